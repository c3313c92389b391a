"""pgbench's transaction logs: a line for each transaction (``-l``), or for each interval (``--aggregate-interval``).

Columns as in PostgreSQL's documentation of pgbench, sections "Per-Transaction Logging" and "Aggregated Logging": times
are microseconds, and ``skipped`` or a kind of failure stands where a transaction has no time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from virtgauge.exchange.imports.foreign_trial import (
    ForeignTrial,
    Repetition,
    histogram_of_values,
    moment,
    read_bytes,
    refused,
)
from virtgauge.ledger.records import Flag

PROBE = "pgbench"
REMEDY = "give the files that `pgbench -l --log-prefix=NAME …` wrote, as they are"

_NO_TIME = frozenset({"skipped", "failed", "serialization", "deadlock"})
_LARGEST = 2**52  # Of a column: a time in µs of a century, still an integer of 64 bits in ns
_EPOCH = 100_000_000  # A first column at least so large is the time of an interval and not the number of a client


def logs_together(paths: Sequence[Path]) -> list[list[Path]]:
    """The files of each repetition: every thread but the first has a file of its own, NAME.PID.1 beside NAME.PID."""
    given = set(paths)
    groups: dict[Path, list[Path]] = {}
    for path in paths:
        stem, _, number = path.name.rpartition(".")
        first = path.with_name(stem) if number.isdigit() and stem else path
        groups.setdefault(first if first in given else path, []).append(path)
    return list(groups.values())


def read_pgbench(paths: Sequence[Path]) -> Repetition:
    """One repetition of all its threads' files. Raises UsageError: no log, logs of two kinds, or none succeeded."""
    read = [(path, *read_bytes(path)) for path in paths]
    rows = [row for path, content, _ in read for row in _rows(path, content)]
    kinds = {columns[0] >= _EPOCH for columns, _ in rows}
    if len(kinds) > 1:
        raise refused(paths[0], "logs of transactions and of intervals are mixed", "import them apart")
    trial = _intervals(rows) if kinds == {True} else _transactions(rows)
    if trial is None:
        raise refused(paths[0], "no transaction of it succeeded", "give a log with transactions")
    return Repetition(PROBE, tuple(source for _, _, source in read), (trial,))


Row = tuple[list[int], str]  # A line's columns, with -1 for a transaction without a time, and why it has none


def _rows(path: Path, content: bytes) -> Iterator[Row]:
    for number, line in enumerate(content.decode("ascii", errors="replace").splitlines(), start=1):
        words = line.split()
        if not words:
            continue
        reason = words[2] if len(words) > 2 and words[2] in _NO_TIME else ""
        if reason:
            words[2] = "-1"
        try:
            columns = [int(float(word)) for word in words]
        except (ValueError, OverflowError):
            columns = []
        beyond = max(columns, default=0) >= _LARGEST
        if len(columns) < 6 or beyond or min(columns[:2] + columns[3:]) < 0 or (columns[2] < 0 and not reason):
            raise refused(path, f"line {number} = {line[:60]!r}: is no line of a pgbench log", REMEDY)
        yield columns, reason


def _transactions(rows: Sequence[Row]) -> ForeignTrial | None:
    """A histogram of logged transactions, in µs; None where none succeeded."""
    times = [time for (_, _, time, *_), reason in rows if not reason]
    if not times:
        return None
    ends = [1_000_000 * seconds + micros for (_, _, _, _, seconds, micros, *_), _ in rows]
    began = min(end - max(columns[2], 0) for end, (columns, _) in zip(ends, rows, strict=True))
    span_us = max(max(ends) - began, 1)
    result = {
        "transactions": len(times),
        "transactions_per_s": len(times) / (span_us / 1e6),
        "failed_share": (len(rows) - len(times)) / len(rows),
        "without_time": dict(Counter(reason for _, reason in rows if reason)),
    }
    factors = {"clients": str(len({columns[0] for columns, _ in rows})), "log": "transactions"}
    histograms = {"transaction": histogram_of_values(np.array(times, dtype=np.int64) * 1000, "ns")}
    return ForeignTrial(PROBE, factors, result, histograms, moment(began / 1e6), span_us * 1000)


def _intervals(rows: Sequence[Row]) -> ForeignTrial | None:
    """Of aggregated logs: no quantiles, and a rate of the whole intervals, which the first and the last are not."""
    by_start = Counter[int]()
    total, weighted, least, most = 0, 0, 0, 0
    for (start, number, latencies, _, low, high, *_), _ in rows:
        by_start[start] += number
        if number:
            least = low if not total else min(least, low)
            most = max(most, high)
            total, weighted = total + number, weighted + latencies
    if not total:
        return None
    starts = sorted(by_start)
    whole = starts[1:-1]
    span_s = starts[-1] - whole[0] if whole else 0
    result = {
        "transactions": total,
        "transactions_per_s": sum(by_start[start] for start in whole) / span_s if span_s else None,
        "transaction": {"mean": 1000 * weighted / total, "min": 1000.0 * least, "max": 1000.0 * most},
    }
    aggregated = Flag("aggregated", "a log of intervals has no quantiles", fatal=False)
    elapsed_ns = (starts[-1] - starts[0]) * 1_000_000_000
    return ForeignTrial(PROBE, {"log": "intervals"}, result, {}, moment(starts[0]), elapsed_ns, (aggregated,))
