"""fio's JSON and JSON+ output: a trial for each job and direction that did any input or output.

Fields as in fio's HOWTO (``--output-format=json``, ``json+``): rates of a direction, and its completion, submission and
total latency in nanoseconds; JSON+ has their histograms, on fio's bins of up to 1.6 %.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field

from virtgauge.exchange.imports.foreign_trial import (
    Count,
    ForeignTrial,
    NotNegative,
    Repetition,
    histogram_of_bins,
    moment,
    read_json,
    refused,
    tail_statistics,
)
from virtgauge.ledger.records import Flag, Histogram

PROBE = "fio"
REMEDY = "give the output of `fio --output-format=json+ --output=FILE …`"

_LEVELS = ("rw", "bs", "iodepth", "numjobs", "ioengine", "direct", "sync", "fsync", "rate_iops")
"""Options of a job that tell cells apart, where they are given."""


class _Latency(BaseModel):
    min: NotNegative = 0.0
    max: NotNegative = 0.0
    mean: NotNegative = 0.0
    N: Count = 0
    percentile: dict[NotNegative, NotNegative] = {}
    bins: dict[Count, Count] = {}


class _Side(BaseModel):
    iops: NotNegative
    bw_bytes: NotNegative
    runtime: Count
    total_ios: Count
    clat_ns: _Latency = _Latency()
    slat_ns: _Latency = _Latency()
    lat_ns: _Latency = _Latency()


class _Job(BaseModel):
    jobname: str
    error: int = 0
    options: Annotated[dict[str, str], Field(alias="job options")] = {}
    read: _Side | None = None
    write: _Side | None = None
    trim: _Side | None = None


class _Output(BaseModel):
    version: Annotated[str, Field(alias="fio version")]
    timestamp_ms: Annotated[int, Field(ge=0, lt=1 << 45)]
    options: Annotated[dict[str, str], Field(alias="global options")] = {}
    jobs: Annotated[list[_Job], Field(min_length=1)]


def read_fio(path: Path) -> Repetition:
    """One output. Raises UsageError: it is none, or two of its jobs cannot be told apart."""
    output, source = read_json(path, _Output, REMEDY)
    trials = []
    for job in output.jobs:
        options = output.options | job.options
        levels = {"job": job.jobname} | {name: options[name] for name in _LEVELS if name in options}
        if job.error:
            error = f"fio ended the job {job.jobname} with error {job.error}"
            trials.append(ForeignTrial(PROBE, levels, {}, {}, moment(output.timestamp_ms / 1000), 0, (), error))
            continue
        for operation in ("read", "write", "trim"):
            side: _Side | None = getattr(job, operation)
            if side is not None and side.total_ios:
                trials.append(_trial(levels | {"operation": operation}, side, output))
    if not trials:
        raise refused(path, "no job of it did any input or output", "give the output of a run that did some")
    names = [tuple(trial.factors.items()) for trial in trials]
    if len(set(names)) < len(names):
        raise refused(path, "two of its jobs have the same name and options", "run fio with --group_reporting")
    return Repetition(output.version, (source,), tuple(trials))


def _trial(levels: dict[str, str], side: _Side, output: _Output) -> ForeignTrial:
    result: dict[str, object] = {"iops": side.iops, "bits_per_s": 8 * side.bw_bytes, "total_ios": side.total_ios}
    histograms: dict[str, Histogram] = {}
    flags = []
    for name, latency in (("clat", side.clat_ns), ("slat", side.slat_ns), ("lat", side.lat_ns)):
        if not latency.N:
            continue
        ends = {"min": latency.min, "max": latency.max, "mean": latency.mean}
        result[name] = ends | tail_statistics(latency.percentile, latency.N)
        if latency.bins:
            histograms[name] = histogram_of_bins(latency.bins, "ns", latency.min, latency.max, latency.mean)
            if (counted := histograms[name].n) != latency.N:
                flags.append(Flag("incomplete", f"the bins of {name} hold {counted} of {latency.N} values", False))
    started = output.timestamp_ms / 1000 - side.runtime / 1000
    return ForeignTrial(
        PROBE, levels, result, histograms, moment(max(started, 0)), side.runtime * 1_000_000, tuple(flags)
    )
