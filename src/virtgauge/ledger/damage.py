"""What is wrong with a ledger that came from anywhere, and what of it can still be read.

Every opened ledger has its schema checked, which costs a millisecond: just the tables that a ledger has, no views,
triggers or generated columns in their place.  When a command opens one, the bounds of its trials and guests are
checked, the pages of all but the largest (SQLite's ``quick_check``: 2 µs a trial), and each row of a small one (80 µs a
trial).  Of any size every row is checked when something that was read could not be worked with: that says whether the
file is to blame.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from virtgauge.errors import VirtgaugeError, printable
from virtgauge.ledger import rows
from virtgauge.ledger.records import EventRecord, GuestRecord, Manifest, TrialRecord

APPLICATION_ID = 0x76677567  # In the header of ledgers; 0 in those of before it was written
MADE_OF_ROWS = (sqlite3.Error, ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError)
"""What code raises that was given a row which it cannot work with."""
_KEYS = {"manifest": "id", "guests": "guest_id", "events": "rowid"}  # Else the trial's number
_FORMER = "statistics"  # A table of earlier runs, whose statistics were others; nothing reads it
# Bytes of a ledger up to which a command begins with a check of every row, and of every page: a tenth of a second each.
_READ_WHOLE, _PAGES_CHECKED = 2 * 2**20, 64 * 2**20
_NO_FIGURE = "a number that no figure can be"
_ACCOUNT = {  # All else in an account is a number or null
    "method": "text",
    "clocks": "an object",
    "samples": "an object",
    "waited_ns": "a number",
    "left_out": "an array",
    "left_out[]": "an object",
    "left_out[].reason": "text",
    "left_out[].share": "a number",
    "left_out[].elapsed_ns": "a number",
}
_ALIKE = 0.6  # A share of rows from which the others are the odd ones
_LOOKED_AT = 1000  # Of the elements of an array
_MOST_LOOKUPS = 1_000_000  # For rows between two places at which a table cannot be gone through


class DamagedError(VirtgaugeError):
    """A file that a command reads is not as virtgauge wrote it."""

    def __init__(self, path: Path, where: str, problem: str, left: str = "") -> None:
        place = f"{path}: {where}" if where else str(path)
        super().__init__(
            printable(f"{place}: damaged: {problem}"[:1000]) + (f"; {left}" if left else ""),
            "restore it from a copy; of a run, `virtgauge repair RUN --out NEW` keeps what is sound",
        )


@dataclasses.dataclass(frozen=True)
class Fault:
    """Something that is wrong with a ledger."""

    table: str
    row: int | None  # its key; None where it is the table
    problem: str

    @property
    def where(self) -> str:
        return f"table {self.table}" if self.row is None else f"table {self.table}, row {self.row}"

    def __str__(self) -> str:
        return f"{self.where}: {self.problem}"


@dataclasses.dataclass
class Salvage:
    """What of a ledger can be read."""

    manifest: Manifest | None = None
    guests: list[GuestRecord] = dataclasses.field(default_factory=list)
    trials: int = 0  # that are sound, with their histograms
    unsound: set[int] = dataclasses.field(default_factory=set)  # trials by number
    events: list[EventRecord] = dataclasses.field(default_factory=list)
    faults: list[Fault] = dataclasses.field(default_factory=list)

    @property
    def left(self) -> str:
        if self.manifest is None:
            return "what was run cannot be read, so nothing can be kept"
        return f"{self.trials} of {self.trials + len(self.unsound)} trials can still be read"


def check_schema(db: sqlite3.Connection, path: Path, schema: Mapping[str, tuple[Any, ...]]) -> None:
    """Raise DamagedError where a ledger's tables are others than these, by name their columns as SQLite tells them."""
    try:
        (application,) = db.execute("PRAGMA application_id").fetchone()
        found = {*db.execute("SELECT type, name FROM sqlite_master WHERE sql IS NOT NULL")}
        if application not in (0, APPLICATION_ID):
            raise DamagedError(path, "", f"it belongs to another program (application id {application})")
        for kind, name in sorted(found):
            if kind != "table" or name not in (*schema, _FORMER):
                raise DamagedError(path, "", f"it holds the {kind} {str(name)[:60]}, which no ledger has")
        for name, wanted in schema.items():
            if ("table", name) not in found and name != "summaries":
                raise DamagedError(path, f"table {name}", "is missing")
            if ("table", name) in found and columns_of(db, name) != wanted:
                raise DamagedError(path, f"table {name}", "has other columns than a ledger's")
    except (sqlite3.Error, ValueError) as error:  # names that are no text
        raise DamagedError(path, "", str(error)) from error


def columns_of(db: sqlite3.Connection, table: str) -> tuple[Any, ...]:
    """Of every column name, type, whether it may be null, place in the key, and whether it is computed."""
    found = db.execute(f"PRAGMA table_xinfo({table})").fetchall()
    return tuple((name, kind, missing, key, hidden) for _, name, kind, missing, _, key, hidden in map(tuple, found))


def is_suspect(db: sqlite3.Connection, size: int) -> bool:
    """Whether to go through all rows of a ledger of so many bytes before it is used."""
    if size <= _READ_WHOLE:
        return True
    if size <= _PAGES_CHECKED and db.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
        return True
    return any(
        db.execute(f"SELECT 1 FROM {table} WHERE NOT ({bounds}) LIMIT 1").fetchone() for table, bounds in rows.BOUNDS
    )


def examine(db: sqlite3.Connection, take: Callable[[TrialRecord], None] = lambda trial: None) -> Salvage:
    """Go through the pages and all rows of a ledger as they are at this moment; ``take`` gets each sound trial."""
    made, db.row_factory, db.text_factory = (db.row_factory, db.text_factory), sqlite3.Row, bytes
    found, own = Salvage(), not db.in_transaction
    try:
        if own:
            db.execute("BEGIN")  # trials that a run adds meanwhile are not seen
        _examine(db, found, take)
    finally:
        db.row_factory, db.text_factory = made
        if own:
            with contextlib.suppress(sqlite3.Error):
                db.rollback()
    return found


def _examine(db: sqlite3.Connection, found: Salvage, take: Callable[[TrialRecord], None]) -> None:
    (left,) = db.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size").fetchone()

    def each(table: str, read: Callable[[Mapping[str, Any]], Any]) -> Iterator[tuple[int, Any]]:
        nonlocal left
        for key, row in _rows(db, table, found.faults):
            left -= sum(len(value) for value in row.values() if isinstance(value, str | bytes))
            if left < 0:  # rows that share pages fill the memory from a small file
                found.faults.append(Fault(table, key, "the rows up to it are longer than the file"))
                return
            try:
                yield key, read(row)
            except rows.RowError as error:
                found.faults.append(Fault(table, key, str(error)))

    for _, manifest in each("manifest", rows.read_manifest):
        found.manifest = manifest
    if found.manifest is None and not found.faults:
        found.faults.append(Fault("manifest", None, "has no row"))
    arms = {arm.name for arm in found.manifest.arms} if found.manifest else set()
    found.guests = [guest for _, guest in each("guests", rows.read_guest)]
    found.events = [event for _, event in each("events", rows.read_event)]
    with contextlib.suppress(sqlite3.OperationalError):  # there is no such table
        db.execute("SELECT 1 FROM summaries LIMIT 0")
        for _ in each("summaries", rows.check_statistics):
            pass
    with_histograms = {number for number, _ in each("histograms", rows.read_histogram)}
    found.unsound = _at_fault(found.faults, "summaries", "histograms")
    seen: set[tuple[str, int]] = set()
    numbers = set()
    for number, trial in each("trials", rows.read_trial):
        problem = None
        if trial.arm not in arms and arms:
            problem = f"arm {ascii(trial.arm)[:60]} is none of the manifest's"
        elif (trial.key, trial.attempt) in seen:
            problem = "its key and attempt are there twice"
        seen.add((trial.key, trial.attempt))
        numbers.add(number)
        if problem:
            found.faults.append(Fault("trials", number, problem))
        elif number not in found.unsound:
            found.trials += 1
            take(trial)
    found.unsound |= _at_fault(found.faults, "trials")
    if stray := with_histograms - numbers - found.unsound:
        found.faults.append(Fault("histograms", min(stray), "belongs to no trial"))
    if not found.faults:
        try:
            told = [str(row[0], "utf-8", "replace") for row in db.execute("PRAGMA quick_check(1)")]
        except sqlite3.Error as error:
            told = [str(error)]
        if told != ["ok"]:
            found.faults.append(Fault("?", None, told[0]))


def _at_fault(faults: list[Fault], *tables: str) -> set[int]:
    return {fault.row for fault in faults if fault.table in tables and fault.row is not None}


def _rows(db: sqlite3.Connection, table: str, faults: list[Fault]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a table that SQLite can reach, with their keys: from its beginning, from its end, and between."""
    key = _KEYS.get(table, "trial_id")
    shown = f'SELECT {key} AS "the key", * FROM {table}'
    alone = table not in ("histograms", "summaries")  # whether a key is of one row
    first = None
    try:
        for row in db.execute(f"{shown} ORDER BY {key}"):
            first = row[0]
            yield from _decoded(row, table, faults)
        return
    except sqlite3.Error as error:
        faults.append(Fault(table, None, str(error)))
    last = None
    try:
        for row in db.execute(f"{shown} ORDER BY {key} DESC"):
            if first is not None and (row[0] <= first if alone else row[0] < first):
                return
            last = row[0]
            yield from _decoded(row, table, faults)
    except (sqlite3.Error, TypeError):
        pass
    begin = first + 1 if isinstance(first, int) else 1
    end = last if isinstance(last, int) else begin + 10_000
    for number in range(begin, min(end, begin + _MOST_LOOKUPS)):
        try:
            for row in db.execute(f"{shown} WHERE {key} = ?", (number,)):
                yield from _decoded(row, table, faults)
        except sqlite3.Error as error:
            faults.append(Fault(table, number, str(error)))


def _decoded(row: sqlite3.Row, table: str, faults: list[Fault]) -> Iterator[tuple[int, dict[str, Any]]]:
    key, *values = row
    _, *names = row.keys()
    try:
        told = {
            name: value.decode() if isinstance(value, bytes) and name != "bins" else value
            for name, value in zip(names, values, strict=True)
        }
    except UnicodeDecodeError as error:
        faults.append(Fault(table, key, f"its text is not UTF-8: {error}"))
        return
    if type(key) is not int:
        faults.append(Fault(table, None, f"a key is {ascii(key)[:60]}"))
        return
    yield key, told


def odd_one(db: sqlite3.Connection) -> Fault | None:
    """A row whose JSON holds what none can, or is of another form than that of others of its kind; None without one."""
    trials = "SELECT trial_id, suite || ' ' || probe, factors, accounting, result FROM trials WHERE status = 'valid'"
    guests = "SELECT guest_id, platform, facts FROM guests WHERE error IS NULL"
    for table, asked in (("trials", trials), ("guests", guests)):
        groups: defaultdict[str, list[tuple[int, dict[str, str]]]] = defaultdict(list)
        cursor = db.execute(asked)
        columns = [name for name, *_ in cursor.description][2:]
        for number, group, *texts in cursor:
            forms: dict[str, str] = {}
            for column, text in zip(columns, texts, strict=True):
                _forms(column, json.loads(text), forms)
            for path, kind in forms.items():
                if kind == _NO_FIGURE or _is_no_account(path, kind):
                    return Fault(table, number, f"{path} is {kind}")
            groups[group].append((number, forms))
        for alike in groups.values():
            for path in sorted({path for _, forms in alike for path in forms}):
                parent = path.rpartition(".")[0]
                own = [
                    (number, forms.get(path, "missing"))
                    for number, forms in alike
                    if forms.get(parent, "an object") == "an object"
                ]
                kinds = Counter(kind for _, kind in own).most_common()
                if len(kinds) > 1 and kinds[0][1] >= _ALIKE * len(own):
                    number, kind = next(one for one in own if one[1] == kinds[-1][0])
                    return Fault(table, number, f"{path} is {kind}; in {kinds[0][1]} rows it is {kinds[0][0]}")
    return None


def _forms(path: str, value: Any, forms: dict[str, str]) -> None:
    kinds = {dict: "an object", list: "an array", str: "text", bool: "true or false", type(None): "null"}
    forms[path] = kinds.get(type(value), "a number")
    if isinstance(value, int | float) and not is_figure(value):
        forms[path] = _NO_FIGURE
    if isinstance(value, dict):
        for key, one in value.items():
            _forms(f"{path}.{key[:40]}", one, forms)
    elif isinstance(value, list):
        for one in value[:_LOOKED_AT]:
            _forms(f"{path}[]", one, forms)


def is_figure(value: float) -> bool:
    """Whether it is a number with which reports can work: zero, or of a size that figures have."""
    return value == 0 or 1e-30 < abs(value) < 1e30


def _is_no_account(path: str, kind: str) -> bool:
    column, _, name = path.partition(".")
    if column != "accounting" or not (name in _ACCOUNT or name.isidentifier()):
        return False
    return kind != _ACCOUNT[name] if name in _ACCOUNT else kind not in ("a number", "null")
