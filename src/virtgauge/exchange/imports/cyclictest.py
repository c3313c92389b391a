"""cyclictest's JSON output (``--json``): a trial for each of its threads.

Latencies are whole microseconds, or nanoseconds with ``--nsecs``; the histogram is there with ``--histogram`` and ends
at its length: what took longer is counted as the maximum.
"""

from __future__ import annotations

import datetime
import email.utils
import shlex
from pathlib import Path
from typing import Annotated

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from virtgauge.exchange.imports.fio import Count, NotNegative
from virtgauge.exchange.imports.foreign_trial import ForeignTrial, Repetition, histogram_of_bins, read_json, refused
from virtgauge.ledger.records import Flag

PROBE = "cyclictest"
REMEDY = "give the file of `cyclictest --json=FILE -h 1000 -q …` of rt-tests 2.0 or later"

_OPTIONS = {
    "-i": "interval_us",
    "--interval": "interval_us",
    "-p": "priority",
    "--priority": "priority",
    "--policy": "policy",
}
"""Of its command line, what tells cells apart."""


class _Thread(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    histogram: dict[Count, Count] = {}
    cycles: Count
    min: NotNegative
    max: NotNegative
    avg: NotNegative


class _Output(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    # rt-tests wrote these two names with a colon in them for years.
    command: Annotated[str, Field(validation_alias=AliasChoices("cmdline:", "cmdline"))] = ""
    version: Annotated[str, Field(validation_alias=AliasChoices("rt_test_version:", "rt_test_version"))] = "unknown"
    start_time: str
    end_time: str
    return_code: int = 0
    resolution_in_ns: int = 0
    thread: Annotated[dict[str, _Thread], Field(min_length=1)]


def read_cyclictest(path: Path) -> Repetition:
    """One output. Raises UsageError: it is none, or no thread of it woke up once."""
    output, source = read_json(path, _Output, REMEDY)
    began, ended = (_moment(path, name, getattr(output, name)) for name in ("start_time", "end_time"))
    unit, ns_per_unit = ("ns", 1) if output.resolution_in_ns else ("us", 1000)
    shared = _levels(output.command)
    elapsed_ns = max(round((ended - began).total_seconds() * 1e9), 0)
    trials = []
    for number, thread in output.thread.items():
        if not thread.cycles:
            continue
        extremes = {"min": thread.min, "max": thread.max, "mean": thread.avg}
        latency = {name: value * ns_per_unit for name, value in extremes.items()}
        histograms, flags = {}, []
        if counted := sum(thread.histogram.values()):
            bins = dict(thread.histogram)
            if beyond := max(thread.cycles - counted, 0):
                # Where they were is not known: as the maximum they make no quantile better than it was.
                bins[round(thread.max)] = bins.get(round(thread.max), 0) + beyond
                words = f"{beyond} of {thread.cycles} latencies beyond the histogram's end are taken as the maximum"
                flags.append(Flag("incomplete", words, fatal=False))
            histograms["latency"] = histogram_of_bins(bins, unit, thread.min, thread.max, thread.avg)
        trials.append(
            ForeignTrial(
                PROBE,
                {"thread": number} | shared,
                {"cycles": thread.cycles, "latency": latency},
                histograms,
                began.isoformat(timespec="milliseconds"),
                elapsed_ns,
                tuple(flags),
                f"cyclictest ended with code {output.return_code}" if output.return_code else None,
            )
        )
    if not trials:
        raise refused(path, "no thread of it woke up once", "let cyclictest run longer")
    return Repetition(f"cyclictest {output.version}", (source,), tuple(trials))


def _moment(path: Path, field: str, text: str) -> datetime.datetime:
    try:
        return email.utils.parsedate_to_datetime(text).astimezone(datetime.UTC)
    except (ValueError, OverflowError) as error:
        raise refused(path, f"{field} = {text[:60]!r}: is no date of RFC 2822", REMEDY) from error


def _levels(command: str) -> dict[str, str]:
    """Interval, priority and policy, as they were given."""
    try:
        words = shlex.split(command)
    except ValueError:
        return {}
    found = {}
    for word, following in zip(words, [*words[1:], ""], strict=False):  # there may be no words
        option, equals, value = word.partition("=")
        if option in _OPTIONS:
            found[_OPTIONS[option]] = value if equals else following
        elif word[:2] in ("-i", "-p") and word[2:].isdigit():
            found[_OPTIONS[word[:2]]] = word[2:]
    return found
