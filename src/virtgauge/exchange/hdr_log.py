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

from virtgauge.ledger.records import Histogram
from virtgauge.ledger.statistics import NS_PER_UNIT
from virtgauge.measures.catalogue import MEASURES
from virtgauge.results.columns import Cell, read_marks
from virtgauge.results.table import ResultTable

DIGITS = 3
"""Significant decimal digits, as the ledger's histograms have."""


def write_hdr_log(table: ResultTable, out: IO[str]) -> int:
    """Write the log; returns the number of its lines with a histogram.

    All values have one unit, which a comment names: the finest among the histograms, for a clock is read in less than
    ten nanoseconds.  Values below zero, of sleeps that woke early, are counted as 0: the format has none.
    """
    marks = {mark.number: mark for mark in read_marks(table.ledger)}
    found = sorted(_histograms(table), key=lambda one: (marks[one[0]].started_at, one[0]))
    units = {histogram.unit for *_, histogram in found}
    unit = min(units, key=NS_PER_UNIT.__getitem__, default="ns")
    manifest = table.manifest
    began = min((_seconds(marks[number].started_at) for number, *_ in found), default=_seconds(manifest.created_at))
    out.write("#[Histogram log format version 1.3]\n")
    out.write(f"#[Logged with virtgauge {manifest.tool_version}, run {_tag(manifest.run_id)}]\n")
    out.write(f"#[Values are in {unit}; Interval_Max is in ms]\n")
    out.write(f"#[StartTime: {began:.3f} (seconds since epoch), {_moment(began)}]\n")
    out.write('"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"\n')
    for number, tag, histogram in found:
        factor = NS_PER_UNIT[histogram.unit] / NS_PER_UNIT[unit]
        encoded, maximum = _encoded(histogram, factor)
        out.write(
            f"Tag={tag},{_seconds(marks[number].started_at) - began:.3f},{marks[number].elapsed_ns / 1e9:.3f},"
            f"{maximum * NS_PER_UNIT[unit] / 1e6:.6f},{encoded}\n"
        )
    return len(found)


def tag_of(arm: str, cell: Cell, name: str) -> str:
    """What a trial's line is called: the same for all repetitions, so that a reader can add them up.

    ``host/timing/timer_cost/timer_cost/function=rdtsc/load=idle``; commas and blanks are written as in an address.
    """
    levels = (f"{factor}={level}" for factor, level in cell.levels)
    return "/".join(_tag(part) for part in (arm, cell.suite, cell.probe, name, *levels))


def _tag(text: str) -> str:
    return urllib.parse.quote(text, safe="=:.+-_@%")


def _histograms(table: ResultTable) -> Iterator[tuple[int, str, Histogram]]:
    """Of each trial that counts its number, and of each of its histograms the tag."""
    trials = table.trials
    for suite in table.suites:
        places = {
            int(trials.number[row]): (trials.arms[trials.arm[row]], trials.cells[trials.cell[row]])
            for row in trials.counted.tolist()
            if trials.cells[trials.cell[row]].suite == suite
        }
        names = [measure.histogram for measure in MEASURES.get(suite, {}).values() if measure.histogram]
        for name in dict.fromkeys(names):
            for number, histogram in table.ledger.histograms(places, name):
                if histogram.unit in NS_PER_UNIT and histogram.n:
                    yield number, tag_of(*places[number], name), histogram


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
