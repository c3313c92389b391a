"""Latencies by cyclictest, oslat, rtla, hwlatdetect and jitterdebugger: a trial for each thread, or CPU and context.

Sources: ``rt-utils.c`` and the programs of rt-tests (2.4 to 2.10); ``timerlat_hist.c`` and ``osnoise_hist.c`` of Linux,
tools/tracing/rtla (before it had threads in user space, and with them); ``jitterdebugger.c`` (045a274b).  A histogram
ends at its length: what took longer is counted as the maximum.
"""

from __future__ import annotations

import dataclasses
import datetime
import email.utils
import re
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AliasChoices, AliasPath, BaseModel, Field

from virtgauge.exchange.imports.foreign_trial import (
    Count,
    ForeignTrial,
    NotNegative,
    Repetition,
    Source,
    histogram_of_bins,
    read_bytes,
    read_json,
    refused,
    undated,
)
from virtgauge.ledger.records import NS_PER_UNIT, Flag, Histogram

_REMEDY = {
    "cyclictest": "give the file of `cyclictest --json=FILE -h 1000 -q …` of rt-tests 2.0 or later",
    "oslat": "give the file of `oslat --json=FILE …` of rt-tests 2.0 or later",
    "rtla": "give what `rtla timerlat hist` or `rtla osnoise hist` prints, with its header, index and summary",
    "hwlatdetect": "give all that hwlatdetect prints, without --quiet",
    "jitterdebugger": "give the file results.json that jitterdebugger wrote into its folder (-o)",
}
_OPTIONS = {  # Of their command lines, what tells cells apart
    "cyclictest": {
        **dict.fromkeys(("-i", "--interval"), "interval_us"),
        **dict.fromkeys(("-p", "--priority"), "priority"),
        "--policy": "policy",
    },
    "oslat": {
        **dict.fromkeys(("-f", "--rtprio"), "priority"),
        **dict.fromkeys(("-w", "--workload"), "workload"),
        **dict.fromkeys(("-m", "--workload-mem"), "workload_mem"),
    },
}
_ONE_TOO_HIGH = ("2.50", "2.60")  # oslat's edges, of these versions: rt-tests 4aeacf7


class _Thread(BaseModel):
    """One of cyclictest's, oslat's or jitterdebugger's."""

    # oslat's bins have a fraction where they are narrower than 1 µs.
    histogram: dict[Annotated[str, Field(pattern=r"^[0-9]{1,12}(\.[0-9]{3})?$")], Count] = {}
    # oslat tells none, for all its values are in the histogram.
    cycles: Annotated[Count, Field(validation_alias=AliasChoices("cycles", "count"))] = 0
    cpu: int = -1
    min: NotNegative
    max: NotNegative
    avg: NotNegative


class _RtTests(BaseModel):
    # rt-tests wrote these two names with a colon in them for years.
    command: Annotated[str, Field(validation_alias=AliasChoices("cmdline:", "cmdline"))] = ""
    version: Annotated[str, Field(validation_alias=AliasChoices("rt_test_version:", "rt_test_version"))] = "unknown"
    start_time: str
    end_time: str
    return_code: int = 0
    resolution_in_ns: int = 0  # of cyclictest: whether it is 1 ns, and not 1 µs
    thread: Annotated[dict[str, _Thread], Field(min_length=1)]


class _Jitterdebugger(BaseModel):
    # Files of a version before 3 do not say it.
    resolution: Annotated[Literal[1, 1000], Field(validation_alias=AliasPath("sysinfo", "resolution_in_ns"))] = 1000
    cpu: Annotated[dict[str, _Thread], Field(min_length=1)]  # by the thread's number, in spite of its name


@dataclasses.dataclass(frozen=True)
class _Seen:
    """What one thread, or one CPU in one context, has seen."""

    factors: dict[str, str]
    unit: str  # ``ns`` or ``us``, of all that follows
    bins: Mapping[int, int]  # counts by latency
    n: int  # latencies; those that no bin has were beyond the histogram's end, or there is no histogram
    least: float
    most: float
    mean: float | None = None  # None: that of the bins


@dataclasses.dataclass(frozen=True)
class _Output:
    """The source of one output's latencies."""

    path: Path
    source: Source
    probe: str
    tool: str
    started: str  # ISO 8601, UTC
    elapsed_ns: int
    flags: tuple[Flag, ...] = ()
    error: str | None = None

    def repetition(self, trials: Sequence[ForeignTrial]) -> Repetition:
        """Of these trials. Raises UsageError: there is none, or two cannot be told apart."""
        if not trials:
            raise refused(self.path, "no latency of it was counted", f"let {self.probe} run longer")
        if len({tuple(trial.factors.items()) for trial in trials}) < len(trials):
            raise refused(self.path, "two of its threads cannot be told apart", _REMEDY[self.probe])
        return Repetition(self.tool, (self.source,), tuple(trials))

    def of(self, seen: Collection[_Seen]) -> Repetition:
        """The trials of all who have seen a latency. Raises UsageError: see :meth:`repetition`."""
        return self.repetition([self.trial(one) for one in seen if one.n])

    def trial(self, seen: _Seen) -> ForeignTrial:
        """A trial of latencies, of which there is one at least."""
        counted = sum(seen.bins.values())
        bins, flags, mean = dict(seen.bins), self.flags, seen.mean
        histograms: dict[str, Histogram] = {}
        if counted:
            if seen.n > counted:
                # Where they were is not known: as the maximum they make no quantile better than it was.
                bins[round(seen.most)] = bins.get(round(seen.most), 0) + seen.n - counted
                words = f"{seen.n - counted} of {seen.n} latencies beyond the histogram's end are taken as the maximum"
                flags = (*flags, Flag("incomplete", words, fatal=False))
            if mean is None:  # an edge of a bin may lie outside of what was seen
                mean = sum(value * count for value, count in bins.items()) / seen.n
                mean = min(max(mean, seen.least), seen.most)
            histograms["latency"] = histogram_of_bins(bins, seen.unit, seen.least, seen.most, mean)
        extremes = {"min": seen.least, "max": seen.most, "mean": mean}
        latency = {name: value * NS_PER_UNIT[seen.unit] for name, value in extremes.items() if value is not None}
        result = {"cycles": seen.n, "latency": latency}
        return ForeignTrial(
            self.probe, seen.factors, result, histograms, self.started, self.elapsed_ns, flags, self.error
        )


def read_cyclictest(path: Path) -> Repetition:
    """One output: µs, or ns with ``--nsecs``; bins with ``--histogram``.
    Raises UsageError: it is none, or no thread of it woke up once.
    """
    found, output, levels = _of_rt_tests(path, "cyclictest")
    unit = "ns" if found.resolution_in_ns else "us"
    return output.of([_woken({"thread": number} | levels, one, unit) for number, one in found.thread.items()])


def read_oslat(path: Path) -> Repetition:
    """One output, of gaps: bins by upper edges in µs, extremes in the tool's unit. Raises UsageError: it is none."""
    found, output, levels = _of_rt_tests(path, "oslat")
    too_high = found.version in _ONE_TOO_HIGH
    seen = []
    for one in found.thread.values():
        fine = any("." in edge for edge in one.histogram)
        bins = {edge - too_high: count for edge, count in _bins(one, 1000 if fine else 1).items()}
        n, last = sum(bins.values()), max(bins, default=0)
        # From 2.7 on extremes are rounded down, by which the least lies below the first edge.
        rounded_down = not too_high and min(bins, default=0) > one.min
        if bins and one.max + rounded_down > last:
            del bins[last]  # which holds what lay beyond it, too, and does not say how many
        seen.append(_Seen({"cpu": str(one.cpu)} | levels, "ns" if fine else "us", bins, n, one.min, one.max))
    return output.of(seen)


def read_jitterdebugger(path: Path) -> Repetition:
    """One ``results.json``. Raises UsageError: it is none, or no thread of it woke up once."""
    found, source = read_json(path, _Jitterdebugger, _REMEDY["jitterdebugger"])
    unit = "ns" if found.resolution == 1 else "us"
    output = _Output(path, source, "jitterdebugger", "jitterdebugger", undated(path, 0), 0)
    return output.of([_woken({"thread": number}, thread, unit) for number, thread in found.cpu.items()])


def _of_rt_tests(path: Path, probe: str) -> tuple[_RtTests, _Output, dict[str, str]]:
    """An output, where it is from, and the levels that its command line says."""
    found, source = read_json(path, _RtTests, _REMEDY[probe])
    began, ended = (_moment(path, probe, name, getattr(found, name)) for name in ("start_time", "end_time"))
    elapsed_ns = max(round((ended - began).total_seconds() * 1e9), 0)
    error = f"{probe} ended with code {found.return_code}" if found.return_code else None
    started = began.isoformat(timespec="milliseconds")
    output = _Output(path, source, probe, f"{probe} {found.version}", started, elapsed_ns, error=error)
    return found, output, _levels(found.command, _OPTIONS[probe])


def _woken(factors: dict[str, str], thread: _Thread, unit: str) -> _Seen:
    bins = _bins(thread)
    return _Seen(factors, unit, bins, max(thread.cycles, sum(bins.values())), thread.min, thread.max, thread.avg)


def _bins(thread: _Thread, scale: int = 1) -> dict[int, int]:
    return {round(scale * float(edge)): count for edge, count in thread.histogram.items()}


def _moment(path: Path, probe: str, field: str, text: str) -> datetime.datetime:
    try:
        return email.utils.parsedate_to_datetime(text).astimezone(datetime.UTC)
    except (ValueError, OverflowError) as error:
        raise refused(path, f"{field} = {text[:60]!r}: is no date of RFC 2822", _REMEDY[probe]) from error


def _levels(command: str, options: Mapping[str, str]) -> dict[str, str]:
    """What was given of these options, by the names of the factors."""
    try:
        words = shlex.split(command)
    except ValueError:
        return {}
    found = {}
    for word, following in zip(words, [*words[1:], ""], strict=False):  # there may be no words
        option, equals, value = word.partition("=")
        if option in options:
            found[options[option]] = value if equals else following
        elif word[:2] in options and word[2:].isdigit():
            found[options[word[:2]]] = word[2:]
    return found


_HEADER = re.compile(
    r"# RTLA (timerlat|osnoise) histogram\n# Time unit is \w+ \((ns|us)\)\n"
    r"# Duration: +([0-9]{1,3}) ([0-9]{2}):([0-9]{2}):([0-9]{2})\nIndex(.*)\n"
)
_COLUMN = re.compile(r"(IRQ|Thr|Usr|CPU)-([0-9]{3,5})")
_CONTEXTS = {"IRQ": {"context": "irq"}, "Thr": {"context": "thread"}, "Usr": {"context": "user"}, "CPU": {}}
_ENDS = ("over:", "min:", "avg:", "max:")
_ROW = re.compile(rf"({'|'.join(_ENDS)}|[0-9]+)(.*)")


def read_rtla(path: Path) -> Repetition:
    """What ``rtla timerlat hist`` or ``rtla osnoise hist`` printed: bins by their lower edges.

    Of osnoise the extremes are lower edges, too, and the mean is that of the bins, for the first versions reckoned it
    wrongly. Raises UsageError: it is none, or not whole.
    """
    content, source = read_bytes(path)
    text = content.decode("utf-8", errors="replace")
    header = _HEADER.search(text)
    if header is None:
        raise refused(path, "has no header of rtla's", _REMEDY["rtla"])
    tracer, unit, days, hours, minutes, seconds, titles = header.groups()
    columns = _COLUMN.findall(titles)
    if not columns:  # what stands below are zeros that are nobody's
        raise refused(path, "no latency of it was counted", "let rtla run longer, or lower its threshold (osnoise -T)")
    bins: list[dict[int, int]] = [{} for _ in columns]
    ends: dict[str, list[str]] = {}  # the rows below the bins
    for line in text[header.end() :].splitlines():
        row = _ROW.match(line)
        if row is None:
            continue
        label, values = row[1], row[2].split()
        if len(values) != len(columns):
            raise refused(path, f"{line[:60]!r} has {len(values)} of {len(columns)} columns", _REMEDY["rtla"])
        if label.isdecimal():
            index = _number(path, label)
            for own, value in zip(bins, values, strict=True):
                if count := _number(path, value):
                    own[index] = count
        else:
            ends[label] = values
        if label == "max:":
            break  # below it are the same figures of all CPUs
    if len(ends) < len(_ENDS):
        raise refused(path, f"has no {', '.join(_ENDS)} below its bins", _REMEDY["rtla"])
    seen = []
    over, least, mean, most = (ends[name] for name in _ENDS)
    for (kind, cpu), own, *told in zip(columns, bins, over, least, mean, most, strict=True):
        if n := sum(own.values()) + _number(path, told[0]):  # without one, there are no extremes
            low, high = _number(path, told[1]), _number(path, told[3])
            middle = _number(path, told[2]) if tracer == "timerlat" else None
            factors = {"tracer": tracer, "cpu": str(int(cpu))} | _CONTEXTS[kind]
            seen.append(_Seen(factors, unit, own, n, low, high, middle))
    elapsed_s = ((int(days) * 24 + int(hours)) * 60 + int(minutes)) * 60 + int(seconds)
    missed = re.search(r"^.{1,80} events missed", text[header.end() :], re.MULTILINE)
    flags = (Flag("incomplete", missed[0], fatal=False),) if missed else ()
    output = _Output(path, source, "rtla", f"rtla {tracer}", undated(path, elapsed_s), elapsed_s * 10**9, flags)
    return output.of(seen)


def _number(path: Path, text: str) -> int:
    """A count or a latency; older versions of rtla overflow below zero."""
    if not re.fullmatch("[0-9]{1,12}", text):
        raise refused(path, f"{text[:60]!r}: is no count or latency", _REMEDY["rtla"])
    return int(text)


_SAYS = {  # Lines of hwlatdetect's; the first four are levels
    "duration_s": r"test duration ([0-9]{1,12}) seconds",
    "threshold_us": r"Latency threshold: +([0-9]{1,12})us",
    "window_us": r"Sample window: +([0-9]{1,12})us",
    "width_us": r"Sample width: +([0-9]{1,12})us",
    "samples": r"Samples recorded: ([0-9]{1,12})$",
    "gaps": r"Samples exceeding threshold: ([0-9]{1,12})$",
}
_SAMPLE = re.compile(r"^ts: [0-9.]+, inner:([0-9]{1,12}), outer:([0-9]{1,12})", re.MULTILINE)


def read_hwlatdetect(path: Path) -> Repetition:
    """What hwlatdetect printed: gaps above its threshold, each the larger of the two that a sample has.

    Raises UsageError: it is none, or samples are missing.
    """
    content, source = read_bytes(path)
    text = content.decode("utf-8", errors="replace")
    said = {}
    for name, pattern in _SAYS.items():
        found = re.search(pattern, text, re.MULTILINE)
        if found is None:
            raise refused(path, f"does not say its {name.partition('_')[0]}", _REMEDY["hwlatdetect"])
        said[name] = int(found[1])
    gaps = [max(int(inner), int(outer)) for inner, outer in _SAMPLE.findall(text)]
    if len(gaps) != said["samples"]:
        raise refused(path, f"has {len(gaps)} of its {said['samples']} samples", _REMEDY["hwlatdetect"])
    factors = {name: str(said[name]) for name in list(_SAYS)[:4]}
    seconds = said["duration_s"]
    output = _Output(path, source, "hwlatdetect", "hwlatdetect", undated(path, seconds), seconds * 10**9)
    trial = output.trial(_Seen(factors, "us", Counter(gaps), len(gaps), min(gaps, default=0), max(gaps, default=0)))
    # Of none there are no extremes either.
    result = {"gaps": said["gaps"]} | (trial.result if gaps else {})
    return output.repetition([dataclasses.replace(trial, result=result)])


LATENCIES: Mapping[str, Callable[[Path], Repetition]] = {  # Readers by the name of the tool
    "cyclictest": read_cyclictest,
    "oslat": read_oslat,
    "rtla": read_rtla,
    "hwlatdetect": read_hwlatdetect,
    "jitterdebugger": read_jitterdebugger,
}
