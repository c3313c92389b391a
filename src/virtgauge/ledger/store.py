"""The ledger of a run: SQLite with write-ahead log and full sync, so that what was committed survives a kill -9.

A run is a folder::

    plan.toml            the plan, complete
    ledger.sqlite        manifest, guests, trials, histograms, events
    samples/T.parquet    raw reservoirs of trial T
    report.html          written by the report stage

Histograms (a few KB each) are rows of the ledger rather than files: a report over ten thousand trials then reads one
file.  Raw samples are Parquet, one file a trial, made durable before the trial's row is committed, which says how many
of each series there are; a file without a row is an unfinished trial's and is removed when the run is resumed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import json
import os
import shlex
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from virtgauge.errors import UsageError, VirtgaugeError, printable
from virtgauge.ledger import damage, files, rows
from virtgauge.ledger.damage import DamagedError, Salvage
from virtgauge.ledger.records import (
    STATISTICS,
    ArmRecord,
    Attempt,
    EventRecord,
    GuestRecord,
    Histogram,
    Manifest,
    TrialRecord,
    TrialStatus,
    statistics_of,
)

SCHEMA_VERSION = 1
LEDGER_NAME = "ledger.sqlite"
_BESIDE = ("-wal", "-shm", "-journal")  # What SQLite puts beside it
_RUNS_NAMED = _LOST_NAMED = 8
_HISTOGRAMS_AT_ONCE = 200  # Of some kilobytes each, and of 2 MB at most

_SCHEMA = """
CREATE TABLE manifest (id INTEGER PRIMARY KEY CHECK (id = 1), value TEXT NOT NULL) STRICT;
CREATE TABLE guests (
    guest_id INTEGER PRIMARY KEY, arm TEXT NOT NULL, platform TEXT NOT NULL, block INTEGER NOT NULL,
    launched_at TEXT NOT NULL, ready_ns INTEGER, facts TEXT NOT NULL, error TEXT) STRICT;
CREATE TABLE trials (
    trial_id INTEGER PRIMARY KEY, key TEXT NOT NULL, suite TEXT NOT NULL, probe TEXT NOT NULL, arm TEXT NOT NULL,
    platform TEXT NOT NULL, block INTEGER NOT NULL, attempt INTEGER NOT NULL, factors TEXT NOT NULL,
    status TEXT NOT NULL, flags TEXT NOT NULL, result TEXT NOT NULL, accounting TEXT NOT NULL, error TEXT,
    guest_id INTEGER REFERENCES guests, started_at TEXT NOT NULL, elapsed_ns INTEGER NOT NULL,
    UNIQUE (key, attempt)) STRICT;
CREATE TABLE histograms (
    trial_id INTEGER NOT NULL REFERENCES trials, measure TEXT NOT NULL, unit TEXT NOT NULL, bins BLOB NOT NULL,
    minimum INTEGER NOT NULL, maximum INTEGER NOT NULL, mean REAL NOT NULL,
    PRIMARY KEY (trial_id, measure)) STRICT, WITHOUT ROWID;
CREATE TABLE events (at TEXT NOT NULL, kind TEXT NOT NULL, detail TEXT NOT NULL) STRICT;
"""
_COLUMNS = ", ".join(f'"{name}" REAL' for name in STATISTICS)
# Runs of before there was this table are told from by their histograms.
_STATISTICS_TABLE = (
    "CREATE TABLE IF NOT EXISTS summaries (trial_id INTEGER NOT NULL, measure TEXT NOT NULL, unit TEXT NOT NULL, "
    f"n INTEGER NOT NULL, {_COLUMNS}, "
    "PRIMARY KEY (trial_id, measure)) STRICT, WITHOUT ROWID"
)
ALL_BLOCKS = (0, 2**62)


def utc_now() -> str:
    """The time as the ledger writes it: ISO 8601 in UTC."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")


def no_run(folder: Path) -> UsageError:
    """The refusal of a folder without a ledger; it names the runs inside, where there are some."""
    inside = sorted(path.parent for path in folder.glob(f"*/{LEDGER_NAME}"))
    if not inside:
        return UsageError(f"no run in {folder}: {LEDGER_NAME} is missing", "`virtgauge run` makes one")
    named = ", ".join(printable(str(run)) for run in inside[-_RUNS_NAMED:])
    return UsageError(
        f"no run in {folder} itself; it holds {len(inside)} in folders of their own", f"name one of them: {named}"
    )


class LedgerWriteError(VirtgaugeError):
    """A trial could not be recorded, so measuring on would be in vain."""

    def __init__(self, folder: Path, cause: Exception) -> None:
        super().__init__(
            f"cannot write to the run in {folder}: {cause}",
            f"free some space, then `virtgauge resume {shlex.quote(str(folder))}`; every trial recorded so far is kept",
        )


class UnfitError(VirtgaugeError):
    """What was to be recorded could not be read again; nothing of it was."""


@contextlib.contextmanager
def _fitting(what: str) -> Iterator[None]:
    try:
        yield
    except rows.RowError as error:
        raise UnfitError(f"{what} cannot be recorded: {error}") from error


class Ledger:
    """The durable record of one run.  One writer at a time; readers may look at any moment."""

    def __init__(self, folder: Path, connection: sqlite3.Connection) -> None:
        self.folder = folder
        self._db = connection
        self._together = False
        self.blocks = ALL_BLOCKS
        """First and last block that is shown."""

    @property
    def path(self) -> Path:
        return self.folder / LEDGER_NAME

    @classmethod
    def create(cls, folder: Path, manifest: Manifest) -> Ledger:
        """Make a new run's folder, with its plan and ledger; raises as :meth:`whole`."""
        with cls.whole(folder, manifest):
            pass
        return cls.open(folder)

    @classmethod
    @contextlib.contextmanager
    def whole(cls, folder: Path, manifest: Manifest) -> Iterator[Ledger]:
        """Make a new run that has all that is added within, or is not there, even after a kill -9.
        Raises UsageError: the folder already holds a ledger, or the log of one; VirtgaugeError: the disk is full, or
        gone.
        """
        path = folder / LEDGER_NAME
        if path.exists():
            raise UsageError(f"{folder} already holds a run", "choose another folder, or `virtgauge resume` it")
        for log in (folder / (LEDGER_NAME + beside) for beside in _BESIDE):
            if os.path.lexists(log):  # SQLite would take it for the new ledger's, and write it over that
                raise UsageError(f"{folder} holds {log.name} of another run", "choose another folder, or remove it")
        # Built under another name and renamed when whole: a ledger that exists is a ledger that can be read.
        building = path.with_suffix(".building")
        try:
            (folder / "samples").mkdir(parents=True, exist_ok=True)
            if any(folder.glob(f"{building.name}*")):  # of one that was killed, or a link that would be written through
                _remove_unfinished(folder, building)
            (folder / "plan.toml").unlink(missing_ok=True)  # the same
            (folder / "plan.toml").write_text(manifest.plan_text, encoding="utf-8")
            with contextlib.closing(sqlite3.connect(building)) as db:
                db.executescript(_SCHEMA)
                db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
                db.execute(f"PRAGMA application_id = {damage.APPLICATION_ID}")
                db.execute("INSERT INTO manifest VALUES (1, ?)", (json.dumps(dataclasses.asdict(manifest)),))
                db.commit()
            with cls(folder, defended(sqlite3.connect(building), building)) as ledger:
                with ledger.together():
                    yield ledger
                # Now, for two that open a new one would refuse each other the change; and not before, for what did
                # not fit from the log into the file would be told to nobody.
                _turn_log_on(ledger._db)
            files.sync(building)
            building.rename(path)
            files.sync(folder)
        except BaseException as error:
            if not path.exists():
                _remove_unfinished(folder, building)
            cause = error.__cause__ if isinstance(error, LedgerWriteError) else error
            if isinstance(cause, OSError | sqlite3.OperationalError):
                text = f"cannot make a run in {folder}: {cause}"
                raise VirtgaugeError(text, "free some space, or choose another folder") from error
            raise

    @classmethod
    def open(cls, folder: Path) -> Ledger:
        """Open a run's ledger. Raises UsageError: there is none, or of another version, or it may not be written."""
        path = folder / LEDGER_NAME
        if not files.is_regular(path):
            raise no_run(folder)
        require_files(folder)
        if not (os.access(folder, os.W_OK) and os.access(path, os.W_OK)):
            raise UsageError(
                f"the run in {folder} may not be written by this user; its ledger is intact",
                f'use sudo, as the run did, or make the run yours: `sudo chown -R "$USER" {shlex.quote(str(folder))}`',
            )
        db = defended(sqlite3.connect(path, timeout=10), path)
        try:
            _turn_log_on(db)
            db.execute("PRAGMA synchronous = FULL")
        except sqlite3.DatabaseError as error:
            db.close()
            raise _refused(path, error, str(error)) from error
        return cls(folder, db)

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if isinstance(error, damage.MADE_OF_ROWS) and not isinstance(error, VirtgaugeError):
                self.check()  # whether the file is to blame, or this program
                if odd := damage.odd_one(self._db):
                    raise DamagedError(self.path, odd.where, odd.problem) from error
        finally:
            self.close()

    def confirm(self) -> None:
        """Raise ChangedError: what was read up to now is not of one moment; what a writer reads is."""

    def examine(self, take: Callable[[TrialRecord], None] = lambda trial: None) -> Salvage:
        """What of it is sound, and what is not; ``take`` gets each sound trial."""
        return damage.examine(self._db, take)

    def check(self) -> None:
        """Check every page and row. Raises DamagedError: naming the first that is wrong, and what is left."""
        found = self.examine()
        if found.faults:
            first, further = found.faults[0], len(found.faults) - 1
            more = f" (and {further} faults more)" if further else ""
            raise DamagedError(self.path, first.where, first.problem + more, found.left)

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Whatever is added within becomes durable at once, or not at all; within another such block, when that ends.
        Raises LedgerWriteError: the disk is full, or gone; nothing of it was recorded.
        """
        if self._together:
            yield
            return
        self._together = True
        try:
            with self._db:
                yield
        except (OSError, sqlite3.OperationalError) as error:
            raise LedgerWriteError(self.folder, error) from error
        finally:
            self._together = False

    # -- writing -----------------------------------------------------------------------------------------

    def add_event(self, kind: str, detail: str) -> None:
        self.put_event(EventRecord(utc_now(), kind, detail))

    def put_event(self, event: EventRecord) -> None:
        with _fitting("an event"):
            rows.read_event(vars(event))
        with self.together():
            self._db.execute("INSERT INTO events VALUES (?, ?, ?)", (event.at, event.kind, event.detail))

    def put_arm(self, arm: ArmRecord) -> None:
        """Correct the manifest's arm of that name, or add it: trials come from elsewhere, or its guests tell more."""
        manifest = self.manifest()
        arms = {kept.name: kept for kept in (*manifest.arms, arm)}
        changed = dataclasses.replace(manifest, arms=tuple(arms.values()))
        with self.together():
            self._db.execute("UPDATE manifest SET value = ?", (json.dumps(dataclasses.asdict(changed)),))

    def put_guest(self, guest: GuestRecord) -> int:
        """Record a guest under its number, or the next one where that is 0; returns the number."""
        with _fitting(f"a guest of {guest.arm[:40]}"):
            told = rows.guest_row(guest) | {"guest_id": guest.guest_id or None}
        with self.together():
            cursor = self._db.execute("INSERT INTO guests VALUES (?,?,?,?,?,?,?,?)", list(told.values()))
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def add_trial(
        self,
        trial: TrialRecord,
        histograms: Mapping[str, Histogram] | None = None,
        samples: Mapping[str, npt.NDArray[np.int64]] | None = None,
        number: int | None = None,
    ) -> int:
        """Make a trial durable: samples first, then row and histograms in one transaction.

        Its ``trial_id`` is ignored: its number is the one given, or the next one.  Histograms are by measure, raw
        values for its Parquet file by series; its row says how many these are.  A row that says it already, and comes
        without them, goes on saying it: they are lost.

        Returns the trial's number.  When this returns, a kill -9 loses nothing of it.
        Raises LedgerWriteError: the disk is full, or gone; what was committed before is kept; UnfitError: it is beyond
        what a row can hold.
        """
        kept = {series: values for series, values in (samples or {}).items() if len(values)}
        if kept:
            promised = {rows.PROMISE: {series: len(values) for series, values in kept.items()}}
            trial = dataclasses.replace(trial, accounting=trial.accounting | promised)
        with _fitting(f"the trial {trial.key[:200]}"):
            told = rows.trial_row(trial, histograms or {})
        (newest,) = self._db.execute("SELECT coalesce(max(trial_id), 0) FROM trials").fetchone()
        trial_id = int(newest) + 1 if number is None else number
        if kept:
            try:
                files.write_raw_values(self.samples_path(trial_id), kept)
            except OSError as error:
                raise LedgerWriteError(self.folder, error) from error
        with self.together():
            row = list((told | {"trial_id": trial_id}).values())
            self._db.execute(f"INSERT INTO trials VALUES ({','.join('?' * len(row))})", row)
            for measure, histogram in (histograms or {}).items():
                bounds = histogram.minimum, histogram.maximum, histogram.mean
                row = [trial_id, measure, histogram.unit, rows.pack(histogram), *bounds]
                self._db.execute("INSERT INTO histograms VALUES (?,?,?,?,?,?,?)", row)
                if histogram.n:
                    self._db.execute(_STATISTICS_TABLE)
                    found = statistics_of(histogram)
                    row = [trial_id, measure, histogram.unit, histogram.n, *(found[name] for name in STATISTICS)]
                    self._db.execute(f"INSERT INTO summaries VALUES ({','.join('?' * len(row))})", row)
        return trial_id

    def discard_unfinished_samples(self) -> None:
        """Remove sample files of trials that never reached the ledger."""
        known = {trial_id for (trial_id,) in self._db.execute("SELECT trial_id FROM trials")}
        (self.folder / "samples").mkdir(exist_ok=True)  # a copy may lack an empty folder
        for path in (self.folder / "samples").iterdir():
            if path.suffix == ".partial" or (path.stem.isdigit() and int(path.stem) not in known):
                with contextlib.suppress(IsADirectoryError):  # somebody else's
                    path.unlink()

    # -- reading -----------------------------------------------------------------------------------------

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> sqlite3.Cursor:
        """The answer to one SELECT as plain tuples, as they come."""
        cursor = self._db.cursor()
        cursor.row_factory = None
        return cursor.execute(sql, parameters)

    def manifest(self) -> Manifest:
        return rows.read_manifest(self._db.execute("SELECT * FROM manifest").fetchone())

    def trials(self) -> list[TrialRecord]:
        """All trials, valid or not, in the order in which they ended."""
        asked = "SELECT * FROM trials WHERE block BETWEEN ? AND ? ORDER BY trial_id"
        return [rows.read_trial(dict(row)) for row in self._db.execute(asked, self.blocks)]

    def attempts(self, after: int = 0, at_most: int = -1) -> list[Attempt]:
        """The little of each that counting needs; or of those after a number, or of the first so many."""
        asked = (
            "SELECT trial_id, key, attempt, status, block, started_at FROM trials "
            "WHERE trial_id > ? AND block BETWEEN ? AND ? ORDER BY trial_id LIMIT ?"
        )
        found = self.rows(asked, (after, *self.blocks, at_most))
        return [Attempt(number, key, n, TrialStatus(how), block, at) for number, key, n, how, block, at in found]

    def guests(self) -> list[GuestRecord]:
        asked = "SELECT * FROM guests WHERE block BETWEEN ? AND ? ORDER BY guest_id"
        return [rows.read_guest(dict(row)) for row in self._db.execute(asked, self.blocks)]

    def events(self) -> list[EventRecord]:
        return [rows.read_event(dict(row)) for row in self._db.execute("SELECT * FROM events ORDER BY rowid")]

    def histograms(self, trial_ids: Iterable[int], measure: str) -> Iterator[tuple[int, Histogram]]:
        """The histograms of these trials, those that have one, as they come."""
        # By key: the trials of a cell are spread over the whole run.
        found = self._db.execute(
            f"SELECT trial_id, measure, unit, {rows.BINS}, minimum, maximum, mean FROM histograms "
            "WHERE measure = ? AND trial_id IN (SELECT value FROM json_each(?)) ORDER BY trial_id",
            (measure, json.dumps(sorted(trial_ids))),
        )
        while some := [dict(row) for row in found.fetchmany(_HISTOGRAMS_AT_ONCE)]:
            yield from zip((row["trial_id"] for row in some), rows.read_histograms(some), strict=True)

    def histograms_of(self, trial_id: int) -> dict[str, Histogram]:
        """All histograms of one trial, by measure."""
        found = self._db.execute(
            f"SELECT trial_id, measure, unit, {rows.BINS}, minimum, maximum, mean FROM histograms WHERE trial_id = ?",
            (trial_id,),
        )
        return {row["measure"]: rows.read_histogram(dict(row)) for row in found}

    def samples_path(self, trial_id: int) -> Path:
        return self.folder / "samples" / f"{trial_id:07d}.parquet"

    def lost_samples(self) -> list[int]:
        """The trials whose rows promise raw values that are not there; rows of older runs promise none."""
        # JSON is read only where the name stands at all: a million rows take seconds.
        asked = (
            f"""SELECT trial_id FROM trials WHERE CASE WHEN instr(accounting, '"{rows.PROMISE}"') """
            f"THEN json_type(accounting, '$.{rows.PROMISE}') NOT NULL END AND block BETWEEN ? AND ?"
        )
        there: set[str] = set()
        with contextlib.suppress(OSError):
            there.update(os.listdir(self.folder / "samples"))
        return sorted(n for (n,) in self.rows(asked, self.blocks) if self.samples_path(n).name not in there)

    def samples_caveats(self) -> list[str]:
        """Which trials' raw values are missing, in words; nothing where none are."""
        if not (lost := self.lost_samples()):
            return []
        more = [f"{len(lost) - _LOST_NAMED} more"] * (len(lost) > _LOST_NAMED)
        named = ", ".join([*map(str, lost[:_LOST_NAMED]), *more])
        path = self.samples_path(lost[0])
        return [
            f"Raw values that were recorded are missing, of the trials {named}: {path} and the like cannot be found."
        ]

    def samples(self, trial_id: int, series: str) -> npt.NDArray[np.int64]:
        """A trial's raw values; empty when none were kept. Raises DamagedError: its file is none of samples."""
        return self.samples_of(trial_id).get(series, np.empty(0, dtype=np.int64))

    def samples_of(self, trial_id: int) -> dict[str, npt.NDArray[np.int64]]:
        """All of them, by series; likewise."""
        path = self.samples_path(trial_id)
        if not os.path.lexists(path):
            return {}
        found = files.read_raw_values(path)
        asked = f"SELECT json_extract(accounting, '$.{rows.PROMISE}') FROM trials WHERE trial_id = ?"
        promised = next((json.loads(text) for (text,) in self.rows(asked, (trial_id,)) if text is not None), None)
        if promised is not None and promised != {series: values.size for series, values in found.items()}:
            raise DamagedError(path, "", "it does not hold as many raw values as its trial's row says")
        return found


def defended(db: sqlite3.Connection, path: Path) -> sqlite3.Connection:
    """A connection to a ledger whose form is a ledger's: nothing that the file holds is run, and odd pages are refused.
    Raises DamagedError: it is no ledger's; UsageError: it is one of another version; VirtgaugeError: somebody else has
    it for too long.
    """
    with contextlib.ExitStack() as refusal:
        refusal.callback(db.close)
        try:
            for setting in ("trusted_schema = OFF", "cell_size_check = ON", "mmap_size = 0"):
                db.execute(f"PRAGMA {setting}")
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if version in (0, SCHEMA_VERSION):  # else it may have other tables
                damage.check_schema(db, path, _columns())
        except sqlite3.Error as error:
            raise _refused(path, error, f"it is no ledger: {error}") from error
        if version != SCHEMA_VERSION:
            raise UsageError(
                f"{path} has ledger version {version}; this virtgauge reads version {SCHEMA_VERSION}",
                "use the virtgauge that wrote it",
            )
        refusal.pop_all()
    db.row_factory = sqlite3.Row
    return db


def _turn_log_on(db: sqlite3.Connection) -> None:
    """From now on there is a write-ahead log; the change is committed when its answer was read to the end."""
    db.execute("PRAGMA journal_mode = WAL").fetchall()


def _refused(path: Path, error: sqlite3.Error, problem: str) -> VirtgaugeError:
    """What SQLite refused, by whose fault it was."""
    if getattr(error, "sqlite_errorcode", None) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_PROTOCOL):
        return VirtgaugeError(f"{path} is in use, and could not be opened: {error}", "try again later")
    return DamagedError(path, "", problem)


@functools.cache
def _columns() -> dict[str, tuple[Any, ...]]:
    """The columns of each table of a new ledger."""
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        db.executescript(f"{_SCHEMA}; {_STATISTICS_TABLE}")
        tables = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        return {name: damage.columns_of(db, name) for (name,) in tables}


def require_files(folder: Path) -> None:
    """Raise DamagedError where SQLite or the samples would be written or removed elsewhere, or a pipe be waited for."""
    for beside in _BESIDE:
        path = folder / (LEDGER_NAME + beside)
        if files.is_regular(path) is False:
            raise DamagedError(path, "", "it is no file")
    if (folder / "samples").is_symlink():
        raise DamagedError(folder / "samples", "", "it is a link")


def _remove_unfinished(folder: Path, building: Path) -> None:
    """What was made of a run that did not become whole; what shows that there is such a thing goes last."""
    samples = (folder / "samples").glob("[0-9]*.par*")
    for path in (*samples, folder / "plan.toml", *folder.glob(f"{building.name}-*"), building):
        with contextlib.suppress(OSError):
            path.unlink()
