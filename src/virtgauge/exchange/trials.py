"""Every trial of a run: as rows of CSV and Parquet, one for each measure, and its histograms as an HdrHistogram log."""

from __future__ import annotations

import csv
import datetime
import itertools
import json
import math
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from virtgauge.errors import printable
from virtgauge.exchange.figures import chosen_of
from virtgauge.ledger.records import NS_PER_UNIT, Histogram, HostRecord
from virtgauge.results.columns import STATUSES, Cell, Mark, Tried, read_marks
from virtgauge.results.measure import Column, Measure
from virtgauge.results.table import ResultTable
from virtgauge.specs.suites import MEASURES


class Row(NamedTuple):
    """One figure of one trial, or that there is none."""

    # run, created_at, plan, version: of the run, and the virtgauge that measured it
    run: str
    created_at: str
    plan: str
    version: str
    host: str  # of a fleet's run, as its plan names it; in archives, what a single host is called; else empty
    # cpu, kernel: of that host's fingerprint; empty where unknown
    cpu: str
    kernel: str
    suite: str
    probe: str
    measure: str | None  # its name within the suite; None for a trial whose probe has none
    # arm, role, emulated: as in the manifest; platform: the kind
    arm: str
    platform: str
    role: str
    emulated: bool
    factors: str  # levels by factor, as a JSON object in the order of the plan
    block: int
    attempt: int
    # trial_id, key, block, attempt, status, started_at, elapsed_ns, error: as in the ledger
    trial_id: int
    key: str
    status: str
    flags: str  # names of the validity flags, with blanks between
    error: str | None
    started_at: str
    elapsed_ns: int
    value: float | None = None  # in ``unit``; None for a trial that does not count, or cannot say it
    unit: str | None = None  # the base unit of the measure's quantity
    better: str | None = None  # ``lower``, ``higher`` or ``neither``


COLUMNS = Row._fields


class TrialFigures(NamedTuple):
    """One trial, valid or not, and its figures."""

    mark: Mark
    cell: int  # its place among the cells of the run
    arm: str
    block: int
    attempt: int
    host: HostRecord | None  # of a fleet, on which it was made; None where the run had one host only
    ended: Tried  # how, with the reason
    counts: bool  # whether it is the last valid one of its cell, arm and block
    # each of its measures with its value; None of a trial that does not count, or cannot say it
    figures: list[tuple[Measure, float | None]]


def reason_of(ended: Tried) -> str:
    """Why a trial does not count."""
    flags = "; ".join(f"{flag.name}: {flag.detail}" for flag in ended.flags if flag.fatal)
    return ended.error or flags or "no reason was recorded"


def trials_of(table: ResultTable, measures: Sequence[Measure]) -> Iterator[TrialFigures]:
    """Every trial of a run, in the order of the ledger, with these measures."""
    trials, hosts, endings = table.trials, table.manifest.hosts, table.endings.by_number
    columns: list[tuple[Measure, Column]] = []
    for measure in measures:
        column = np.full(trials.number.size, np.nan)
        column[trials.counted] = table.column(measure)
        columns.append((measure, column))
    by_cell = [[one for one in columns if one[0].fits(cell)] for cell in trials.cells]
    counted = np.zeros(trials.number.size, dtype=bool)
    counted[trials.counted] = True
    parts = (trials.cell, trials.arm, trials.block, trials.attempt, trials.status, counted)
    for row, (mark, (cell, arm, block, attempt, status, counts)) in enumerate(
        zip(read_marks(table.ledger), zip(*(one.tolist() for one in parts), strict=True), strict=True)
    ):
        yield TrialFigures(
            mark,
            cell,
            trials.arms[arm],
            block,
            attempt,
            next((host for host in hosts if host.owns(block)), None),
            Tried(STATUSES[status], *endings.get(mark.number, ((), None))),
            counts,
            [(measure, None if math.isnan(column[row]) else float(column[row])) for measure, column in by_cell[cell]],
        )


def read_rows(table: ResultTable, measures: Sequence[Measure] | None = None, host: str = "") -> Iterator[Row]:
    """Every trial in order, or those that have one of these measures; ``host`` is what a single one is called."""
    manifest = table.manifest
    arms = {arm.name: arm for arm in manifest.arms}
    levels = [json.dumps(cell.factors, ensure_ascii=False) for cell in table.trials.cells]
    hosts = {one.name: host_facts(one.name, one.fingerprint) for one in manifest.hosts}
    alone = host_facts(host, manifest.fingerprint)
    for one in trials_of(table, chosen_of(table, measures)):
        cell, arm = table.trials.cells[one.cell], arms.get(one.arm)
        row = Row(
            *(manifest.run_id, manifest.created_at, manifest.plan_name, manifest.tool_version),
            *(alone if one.host is None else hosts[one.host.name]),
            suite=cell.suite,
            probe=cell.probe,
            measure=None,
            arm=one.arm,
            platform=one.mark.platform,
            role=arm.role if arm else "",
            emulated=arm.emulated if arm else False,
            factors=levels[one.cell],
            block=one.block,
            attempt=one.attempt,
            trial_id=one.mark.number,
            key=one.mark.key,
            status=one.ended.status.value,
            flags=" ".join(flag.name for flag in one.ended.flags),
            error=one.ended.error,
            started_at=one.mark.started_at,
            elapsed_ns=one.mark.elapsed_ns,
        )
        for of, value in one.figures:
            yield row._replace(measure=of.name, value=value, unit=of.quantity.unit, better=of.better.value)
        if not one.figures and measures is None:
            yield row


def host_facts(host: str, fingerprint: Mapping[str, Any]) -> tuple[str, str, str]:
    """Name, processor and kernel."""
    identity = fingerprint.get("identity")
    known = identity if isinstance(identity, Mapping) else {}
    return host, str(known.get("cpu_model") or ""), str(known.get("kernel_release") or "")


_ROWS_AT_ONCE = 50_000

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")  # What spreadsheets take for the beginning of a formula

_TEXT = pa.dictionary(pa.int32(), pa.string())
_TYPES = {
    "emulated": pa.bool_(),
    "block": pa.int32(),
    "attempt": pa.int32(),
    "trial_id": pa.int64(),
    "elapsed_ns": pa.int64(),
    "value": pa.float64(),
    "key": pa.string(),
    "error": pa.string(),
    "started_at": pa.string(),
}

SCHEMA = pa.schema([(name, _TYPES.get(name, _TEXT)) for name in COLUMNS])  # Texts that repeat are dictionaries
FILE_SCHEMA = SCHEMA.remove(SCHEMA.get_field_index("suite"))  # Of an archive's files, whose folder says the suite


def table_of(rows: Sequence[tuple[object, ...]], schema: pa.Schema = SCHEMA) -> pa.Table:
    """Rows as an Arrow table."""
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )


def write_csv(rows: Iterable[Row], out: IO[str]) -> None:
    """RFC 4180, with a line of names; what is missing is empty, numbers have all their digits."""
    writer = csv.writer(out)
    writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow(map(csv_cell, row))


def csv_cell(value: object) -> object:
    """What stands in a cell of a CSV file: numbers as they are, texts so that no spreadsheet computes them.

    One that a spreadsheet would take for a formula has an apostrophe before it; what does not print is marked.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        return value
    text = printable(value, lines=True)
    return f"'{text}" if value.startswith(_FORMULA) else text


def write_parquet(rows: Iterable[Row], path: Path) -> None:
    """One Parquet file."""
    source = iter(rows)
    with pq.ParquetWriter(path, SCHEMA, compression="zstd") as writer:
        while gathered := list(itertools.islice(source, _ROWS_AT_ONCE)):
            writer.write_table(table_of(gathered))


def write_hdr_log(table: ResultTable, out: IO[str]) -> None:
    """Histograms of valid trials as an HdrHistogram interval log: one tagged line for each trial and histogram.

    The format is version 1.3 of HistogramLogWriter: ``Tag=…,start,length,maximum,histogram``, with times in seconds and
    the histogram as a compressed V2 encoding in base64.  A ledger's bins are HDR bins of three significant digits, so a
    reader gets the quantiles that a report has, to the bin's width.

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
    out.write(f"#[Logged with virtgauge {_tag(manifest.tool_version)}, run {_tag(manifest.run_id)}]\n")
    out.write(f"#[Values are in {unit}; Interval_Max is in ms]\n")
    moment = datetime.datetime.fromtimestamp(began, datetime.UTC).isoformat(timespec="seconds")
    out.write(f"#[StartTime: {began:.3f} (seconds since epoch), {moment}]\n")
    out.write('"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"\n')
    for number, tag, histogram in found:
        factor = NS_PER_UNIT[histogram.unit] / NS_PER_UNIT[unit]
        encoded, maximum = _encoded(histogram, factor)
        out.write(
            f"Tag={tag},{_seconds(marks[number].started_at) - began:.3f},{marks[number].elapsed_ns / 1e9:.3f},"
            f"{maximum * NS_PER_UNIT[unit] / 1e6:.6f},{encoded}\n"
        )


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
    for suite in table.suites:
        names = dict.fromkeys(one.histogram for one in MEASURES.get(suite, {}).values() if one.histogram)
        for name, cell, arm in itertools.product(names, table.cells(suite), table.trials.arms):
            numbers = table.numbers(cell, arm)
            for block, histogram in table.distributions.histograms(name, cell, arm):
                if histogram.unit in NS_PER_UNIT and histogram.n:
                    yield numbers[block], tag_of(arm, cell, name), histogram


def _encoded(histogram: Histogram, factor: float) -> tuple[str, int]:
    """A histogram in the log's form, and its largest value; values are multiplied first."""
    from hdrh.histogram import HdrHistogram

    highest = max(round(histogram.maximum * factor), round(int(histogram.values[-1]) * factor), 2)
    made: Any = HdrHistogram(1, 2 * highest, 3)  # digits, as the ledger's histograms have
    for value, count in zip(histogram.values.tolist(), histogram.counts.tolist(), strict=True):
        made.record_value(max(round(value * factor), 0), count)
    return made.encode().decode("ascii"), max(round(histogram.maximum * factor), 0)


def _seconds(moment: str) -> float:
    return datetime.datetime.fromisoformat(moment).timestamp()
