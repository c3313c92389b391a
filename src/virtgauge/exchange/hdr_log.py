"""Histograms of valid trials as an HdrHistogram interval log: one tagged line for each trial and histogram.

The format is version 1.3 of HistogramLogWriter: ``Tag=…,start,length,maximum,histogram``, with times in seconds and the
histogram as a compressed V2 encoding in base64.  A ledger's bins are HDR bins of three significant digits, so a reader
gets the quantiles that a report has, to the bin's width.
"""

from __future__ import annotations

import datetime
import urllib.parse
from collections.abc import Iterator
from typing import IO, Any

from virtgauge.ledger.records import Histogram, TrialRecord, TrialStatus
from virtgauge.ledger.store import Ledger
from virtgauge.measures.catalogue import MEASURES
from virtgauge.measures.figures import NS_PER_UNIT

DIGITS = 3
"""Significant decimal digits, as the ledger's histograms have."""


def write_hdr_log(ledger: Ledger, out: IO[str]) -> int:
    """Write the log; returns the number of its lines with a histogram.

    All values have one unit, which a comment names: the finest among the histograms, for a clock is read in less than
    ten nanoseconds.  Values below zero, of sleeps that woke early, are counted as 0: the format has none.
    """
    found = sorted(_histograms(ledger), key=lambda one: (one[0].started_at, one[0].trial_id))
    units = {histogram.unit for _, _, histogram in found}
    unit = min(units, key=NS_PER_UNIT.__getitem__, default="ns")
    manifest = ledger.manifest()
    began = min((_seconds(trial.started_at) for trial, _, _ in found), default=_seconds(manifest.created_at))
    out.write("#[Histogram log format version 1.3]\n")
    out.write(f"#[Logged with virtgauge {manifest.tool_version}, run {_tag(manifest.run_id)}]\n")
    out.write(f"#[Values are in {unit}; Interval_Max is in ms]\n")
    out.write(f"#[StartTime: {began:.3f} (seconds since epoch), {_moment(began)}]\n")
    out.write('"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"\n')
    for trial, name, histogram in found:
        factor = NS_PER_UNIT[histogram.unit] / NS_PER_UNIT[unit]
        encoded, maximum = _encoded(histogram, factor)
        out.write(
            f"Tag={tag_of(trial, name)},{_seconds(trial.started_at) - began:.3f},{trial.elapsed_ns / 1e9:.3f},"
            f"{maximum * NS_PER_UNIT[unit] / 1e6:.6f},{encoded}\n"
        )
    return len(found)


def tag_of(trial: TrialRecord, name: str) -> str:
    """What a trial's line is called: the same for all repetitions, so that a reader can add them up.

    ``host/timing/timer_cost/timer_cost/function=rdtsc/load=idle``; commas and blanks are written as in an address.
    """
    levels = (f"{factor}={level}" for factor, level in trial.factors.items())
    return "/".join(_tag(part) for part in (trial.arm, trial.suite, trial.probe, name, *levels))


def _tag(text: str) -> str:
    return urllib.parse.quote(text, safe="=:.+-_@%")


def _histograms(ledger: Ledger) -> Iterator[tuple[TrialRecord, str, Histogram]]:
    valid = [trial for trial in ledger.trials() if trial.status is TrialStatus.VALID]
    for suite, measures in MEASURES.items():
        trials = {trial.trial_id: trial for trial in valid if trial.suite == suite}
        for name in dict.fromkeys(measure.histogram for measure in measures.values() if measure.histogram):
            for number, histogram in ledger.histograms(trials, name):
                if histogram.unit in NS_PER_UNIT and histogram.n:
                    yield trials[number], name, histogram


def _encoded(histogram: Histogram, factor: float) -> tuple[str, int]:
    """A histogram in the log's form, and its largest value; values are multiplied first."""
    from hdrh.histogram import HdrHistogram

    highest = max(round(histogram.maximum * factor), round(int(histogram.values[-1]) * factor), 2)
    made: Any = HdrHistogram(1, 2 * highest, DIGITS)
    for value, count in zip(histogram.values.tolist(), histogram.counts.tolist(), strict=True):
        made.record_value(max(round(value * factor), 0), count)
    return made.encode().decode("ascii"), max(round(histogram.maximum * factor), 0)


def _seconds(moment: str) -> float:
    return datetime.datetime.fromisoformat(moment).timestamp()


def _moment(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="seconds")
