"""What a row of a ledger may be, and its reader: whoever wrote the file, a row is in these bounds or is none.

Bounds lie far beyond what runs record; they keep memory, time and the arithmetic of reports within theirs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import math
import re
import tomllib
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import TypeAdapter, ValidationError

from virtgauge.ledger.records import (
    NS_PER_UNIT,
    STATISTICS,
    EventRecord,
    Flag,
    GuestRecord,
    Histogram,
    Manifest,
    TrialRecord,
    TrialStatus,
)

PROMISE = "samples"  # In a trial's accounting: how many raw values of each series its Parquet file has
LONGEST_NAME = 4096  # Characters of what identifies, and of dates
LONGEST_TEXT = 2**20  # Characters of messages
LONGEST_PLAN = 2**17  # Characters
LONGEST_JSON = 4 * 2**20  # Characters
LONGEST_FLAGS = 2**16  # Characters
DEEPEST = 48  # Levels of JSON
_MOST = {"arms": 500, "hosts": 10_000}  # Of a report that takes seconds
MOST_BINS = 2**17  # Of a histogram: those of three digits over 64 bits are 56,000
MOST_TRIALS = 20_000_000  # Columns of a report are as long as the largest number
_LARGEST = {"trial_id": MOST_TRIALS, "guest_id": MOST_TRIALS, "block": 2**31 - 1, "attempt": 2**31 - 1}
_LARGEST_INTEGER = 2**62
_LARGEST_REAL = 1e30
_LONGEST_NS = 9e15  # In picoseconds still an integer of 64 bits
_YEARS = range(1970, 2201)
BOUNDS = (  # The same in SQL, by table, for ledgers of any size: a microsecond a trial
    (
        "trials",
        f"typeof(trial_id) = 'integer' AND trial_id BETWEEN 1 AND {MOST_TRIALS} AND block BETWEEN 0 AND {2**31 - 1} "
        f"AND attempt BETWEEN 0 AND {2**31 - 1} AND elapsed_ns BETWEEN 0 AND {2**62} AND length(key) <= {LONGEST_NAME} "
        f"AND length(result) <= {LONGEST_JSON} AND length(accounting) <= {LONGEST_JSON} "
        f"AND length(factors) <= {LONGEST_NAME} AND length(flags) <= {LONGEST_FLAGS} AND length(status) < 64 "
        f"AND max(length(suite), length(probe), length(arm), length(platform)) <= {LONGEST_NAME} "
        f"AND length(started_at) < 64 AND suite NOT GLOB '*[^a-z]*' AND ifnull(length(error), 0) <= {LONGEST_TEXT}",
    ),
    ("guests", f"length(facts) <= {LONGEST_JSON}"),
)
# Of a histogram, when it is read: many commands read none. Longer bins are null, which no histogram's are.
BINS = f"CASE WHEN typeof(bins) = 'blob' AND length(bins) < {16 * MOST_BINS} THEN bins END AS bins"

_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_SUITE = re.compile("[a-z]{1,60}")  # In an archive it names a folder
_SUSPECT = re.compile(r"\d{18}|[eE]\+?\d{3}|\\u[dD][89abAB]|\\u0000")
_MANIFEST = TypeAdapter(Manifest)
_FACTORS = TypeAdapter(dict[str, str])
_FLAGS = TypeAdapter(tuple[Flag, ...])
_OBJECT = TypeAdapter(dict[str, Any])
Value = TypeVar("Value")
Row = Mapping[str, Any]


class RowError(ValueError):
    """What is wrong with a row, in words."""


def read_manifest(row: Row) -> Manifest:
    """The manifest, whose parts are of their types. Raises RowError: they are not."""
    told = _json(row, "value", _OBJECT)
    for what, most in _MOST.items():
        if isinstance(told.get(what), list) and len(told[what]) > most:
            raise RowError(f"{what} are {len(told[what])}")
    try:
        found = _MANIFEST.validate_python(told)
    except ValidationError as error:
        raise RowError(_first("value", error)) from error
    _date(found.created_at, "created_at")
    for name in ("run_id", "plan_name", "tool_version"):  # an export has them in each of its rows
        if len(vars(found)[name]) > LONGEST_NAME:
            raise RowError(f"{name} is {_shown(vars(found)[name])}")
    if not 0.5 <= found.confidence < 1:
        raise RowError(f"confidence is {found.confidence}")
    if not found.arms:
        raise RowError("arms are none")
    for what, names in (("arms", [arm.name for arm in found.arms]), ("hosts", [host.name for host in found.hosts])):
        if len(set(names)) < len(names):
            raise RowError(f"{what} have the same name twice")
    roles = [arm.role for arm in found.arms]
    if not {*roles} <= {"reference", "aa", "test"} or roles.count("reference") > 1 or roles.count("aa") > 1:
        raise RowError(f"arms have the roles {', '.join(roles)[:200]}")
    # It is taken apart several times, and a dotted key takes the square of its length.
    if len(found.plan_text) > LONGEST_PLAN or any(line.count(".") > 1000 for line in found.plan_text.splitlines()):
        raise RowError(f"plan_text has {len(found.plan_text)} characters, or a line that is no plan's")
    try:
        tomllib.loads(found.plan_text)
    except (ValueError, RecursionError) as error:
        raise RowError(f"plan_text is no TOML: {str(error)[:200]}") from error
    return found


def read_guest(row: Row) -> GuestRecord:
    """A guest. Raises RowError: it is none."""
    _integers(row, "guest_id", least=1)
    _integers(row, "block")
    if row["ready_ns"] is not None:
        _integers(row, "ready_ns")
    _names(row, "arm", "platform")
    _date(row["launched_at"], "launched_at")
    _message(row, "error")
    return GuestRecord(**{**row, "facts": _json(row, "facts", _OBJECT)})


def read_trial(row: Row) -> TrialRecord:
    """A trial. Raises RowError: it is none."""
    _integers(row, "trial_id", "block", "attempt", "elapsed_ns")
    if row["guest_id"] is not None:
        _integers(row, "guest_id")
    _names(row, "key", "suite", "probe", "arm", "platform")
    _date(row["started_at"], "started_at")
    _message(row, "error")
    if not _SUITE.fullmatch(row["suite"]):
        raise RowError(f"suite is {_shown(row['suite'])}")
    if row["status"] not in [*TrialStatus]:
        raise RowError(f"status is {_shown(row['status'])}")
    factors, flags = _json(row, "factors", _FACTORS, LONGEST_NAME), _json(row, "flags", _FLAGS, LONGEST_FLAGS)
    result, accounting = _json(row, "result", _OBJECT), _json(row, "accounting", _OBJECT)
    promised = accounting.get(PROMISE, {})
    if not isinstance(promised, dict) or any(type(count) is not int or count < 1 for count in promised.values()):
        raise RowError(f"accounting.{PROMISE} does not count raw values by series")
    decoded = {"factors": factors, "flags": flags, "result": result, "accounting": accounting}
    return TrialRecord(**{**row, **decoded, "status": TrialStatus(row["status"])})


def read_histogram(row: Row) -> Histogram:
    """A histogram. Raises RowError: it is none."""
    _integers(row, "trial_id")
    _names(row, "measure", "unit")
    _integers(row, "minimum", "maximum", least=-_LARGEST_INTEGER)
    if not isinstance(row["bins"], bytes):
        raise RowError(f"bins are {_shown(row['bins'])}")
    try:
        found = unpack(row["unit"], row["bins"], row["minimum"], row["maximum"], row["mean"])
    except (zlib.error, ValueError) as error:
        raise RowError(f"bins: {error}") from error
    _check_histogram(found)
    return found


def read_histograms(rows: Sequence[Row]) -> list[Histogram]:
    """Many histograms, unpacked and checked at once, in a third of the time. Raises RowError: one is none."""
    with contextlib.suppress(zlib.error, ValueError, TypeError, OverflowError):
        values, counts, sizes = unpack_all(row["bins"] for row in rows)
        if _are_sound(rows, values, counts, sizes):
            stops = np.cumsum(sizes)[:-1]
            bins = zip(np.split(values, stops), np.split(counts, stops), strict=True)
            return [
                Histogram(*of, row["minimum"], row["maximum"], row["mean"], row["unit"])
                for row, of in zip(rows, bins, strict=True)
            ]
    return [read_histogram(row) for row in rows]  # which says of which what is wrong


def _are_sound(
    rows: Sequence[Row], values: npt.NDArray[np.int64], counts: npt.NDArray[np.uint64], sizes: npt.NDArray[np.int64]
) -> bool:
    """Whether :func:`read_histogram` takes each of these, of which bins and counts stand one after the other."""
    names = [row[name] for row in rows for name in ("measure", "unit")]
    ends = np.array([(row["minimum"], row["maximum"]) * 2 for row in rows], np.int64).T
    means = np.array([row["mean"] for row in rows], np.float64)
    ns = np.array([NS_PER_UNIT.get(row["unit"], 0) for row in rows])
    some, starts = sizes > 0, np.cumsum(sizes) - sizes
    first, totals = np.zeros(values.size, dtype=bool), np.zeros(sizes.size)
    if some.any():
        first[starts[some]] = True
        totals[some] = np.add.reduceat(counts.astype(np.float64), starts[some])
        there = totals > 0
        ends[2:, there] = values[starts[there]], values[starts[there] + sizes[there] - 1]
    return bool(
        all(0 < len(name) <= LONGEST_NAME for name in names)
        and (first | (np.diff(values, prepend=0) > 0)).all()
        and ((ends >= -_LARGEST_INTEGER) & (ends <= _LARGEST_INTEGER) & (np.abs(ends * ns) <= _LONGEST_NS)).all()
        and ((totals < 2**53) & (ends[0] <= ends[1]) & (np.abs(means) <= _LARGEST_REAL)).all()
    )


def check_json(column: str, value: Mapping[str, Any]) -> None:
    """Raise RowError for an object that no row could hold."""
    _json({column: _text(column, value)}, column, _OBJECT)


def guest_row(guest: GuestRecord) -> dict[str, Any]:
    """A guest's columns; its number may be 0, for the next one. Raises RowError: they could not be read."""
    row = vars(guest) | {"facts": _text("facts", guest.facts)}
    read_guest(row | {"guest_id": guest.guest_id or 1})
    return row


def trial_row(trial: TrialRecord, histograms: Mapping[str, Histogram]) -> dict[str, Any]:
    """A trial's columns; 0.1 ms where its figures are usual.
    Raises RowError: these, or its histograms, could not be read.
    """
    told = vars(trial) | {"flags": [dataclasses.asdict(flag) for flag in trial.flags]}
    row = {name: _text(name, one) if isinstance(one, dict | list) else one for name, one in told.items()}
    read_trial(row)
    for histogram in histograms.values():
        _check_histogram(histogram)
    return row


def _text(column: str, value: Any) -> str:
    try:
        return json.dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise RowError(f"{column}: {error}") from error


def _check_histogram(found: Histogram) -> None:
    _real({"mean": found.mean}, "mean")
    if found.values.size > MOST_BINS or (np.diff(found.values) <= 0).any():
        raise RowError("bins do not ascend")
    if found.counts.astype(np.float64).sum() >= 2**53:
        raise RowError("counts are more than 2^53")
    furthest = max(abs(found.minimum), abs(found.maximum), *map(abs, found.values[[0, -1]].tolist() if found.n else ()))
    if furthest * NS_PER_UNIT.get(found.unit, 0) > _LONGEST_NS or furthest > _LARGEST_INTEGER:
        raise RowError(f"a value is {furthest} {_shown(found.unit)}")
    if found.minimum > found.maximum:
        raise RowError("the least value is above the largest")


def check_statistics(row: Row) -> None:
    """Raise RowError for a row of statistics that is none."""
    _integers(row, "trial_id", "n")
    _names(row, "measure", "unit")
    for name in STATISTICS:
        if row[name] is not None:
            _real(row, name)


def read_event(row: Row) -> EventRecord:
    """An event. Raises RowError: it is none."""
    _date(row["at"], "at")
    _names(row, "kind")
    if row["detail"] is None:
        raise RowError("detail is missing")
    _message(row, "detail")
    return EventRecord(**row)


def _json(row: Row, column: str, kind: TypeAdapter[Value], longest: int = LONGEST_JSON) -> Value:
    """A column of JSON as what it must be."""
    text = row[column]
    if not isinstance(text, str):
        raise RowError(f"{column} is {_shown(text)}")
    if len(text) > longest:
        raise RowError(f"{column} has {len(text)} characters")
    try:
        found = kind.validate_json(text, strict=True)
    except ValidationError as error:
        raise RowError(_first(column, error)) from error
    if text.count("[") + text.count("{") > DEEPEST or _SUSPECT.search(text):
        _walk(column, _OBJECT.validate_json(text) if text.lstrip().startswith("{") else found)
    return found


def _first(column: str, error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    return f"{'.'.join(str(part)[:40] for part in (column, *first['loc']))}: {first['msg'][:200]}"


def _walk(column: str, value: Any) -> None:
    """Raise RowError for JSON that is too deep, or has numbers or characters that nothing can work with."""
    level = [value]
    for _ in range(DEEPEST):
        for one in level:
            if isinstance(one, int) and abs(one) > _LARGEST_INTEGER:
                raise RowError(f"{column} has a number of {len(hex(one)) - 2} hexadecimal digits")
            if isinstance(one, float) and math.isinf(one):
                raise RowError(f"{column} has a number that is not finite")
        inner = [one.values() if isinstance(one, dict) else one for one in level if isinstance(one, dict | list)]
        level = [one for some in inner for one in some]
        if not level:
            return
    raise RowError(f"{column} is nested more than {DEEPEST} deep")


def _integers(row: Row, *columns: str, least: int = 0) -> None:
    for column in columns:
        value, most = row[column], _LARGEST.get(column, _LARGEST_INTEGER)
        if type(value) is not int or not least <= value <= most:
            raise RowError(f"{column} is {_shown(value)}")


def _real(row: Row, column: str) -> None:
    value = row[column]
    if not isinstance(value, float | int) or not math.isfinite(value) or abs(value) > _LARGEST_REAL:
        raise RowError(f"{column} is {_shown(value)}")


def _names(row: Row, *columns: str) -> None:
    for column in columns:
        value = row[column]
        if not isinstance(value, str) or not value or len(value) > LONGEST_NAME:
            raise RowError(f"{column} is {_shown(value)}")


def _message(row: Row, column: str) -> None:
    value = row[column]
    if value is not None and (not isinstance(value, str) or len(value) > LONGEST_TEXT):
        raise RowError(f"{column} is {_shown(value)}")


def _date(value: Any, column: str) -> None:
    try:
        # Between date and time any character may stand.
        plain = len(value) < 64 and value.isprintable() and _DAY.match(value)
        if plain and datetime.datetime.fromisoformat(value).year in _YEARS:
            return
    except (AttributeError, TypeError, ValueError):
        pass
    raise RowError(f"{column} is {_shown(value)}, no date")


def _shown(value: Any) -> str:
    if isinstance(value, str | bytes) and len(value) > 60:
        return f"{type(value).__name__} of length {len(value)}"
    return ascii(value)


def pack(histogram: Histogram) -> bytes:
    """Its bins and counts."""
    steps = np.diff(histogram.values, prepend=np.int64(0)).astype("<i8")  # small steps compress well
    return zlib.compress(steps.tobytes() + histogram.counts.astype("<u8").tobytes(), level=6)


def unpack(unit: str, bins: bytes, minimum: int, maximum: int, mean: float) -> Histogram:
    """The inverse of :func:`pack`. Raises ValueError or zlib.error: the bytes are none of its, or are too many."""
    values, counts, _ = unpack_all([bins])
    return Histogram(values, counts, minimum, maximum, mean, unit)


def unpack_all(packed: Iterable[bytes]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
    """Bins and counts of several, one after the other, and how many bins each has. Raises as :func:`unpack`."""
    steps, counts, sizes = [], [], []
    for one in packed:
        unpacking = zlib.decompressobj()
        raw = unpacking.decompress(one, 16 * MOST_BINS)
        if not unpacking.eof or len(raw) % 16:
            raise ValueError(f"{len(one)} bytes are not those of a histogram of {MOST_BINS} bins at most")
        half = len(raw) // 2
        steps.append(raw[:half])
        counts.append(raw[half:])
        sizes.append(half // 8)
    size = np.array(sizes, dtype=np.int64)
    sums = np.zeros(int(size.sum()) + 1, dtype=np.int64)
    np.cumsum(np.frombuffer(b"".join(steps), dtype="<i8"), out=sums[1:])
    # What went before is taken off; sums that exceed 64 bits wrap around, and back.
    values = sums[1:] - np.repeat(sums[np.cumsum(size) - size], size)
    return values, np.frombuffer(b"".join(counts), dtype="<u8"), size
