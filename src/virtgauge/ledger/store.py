"""The ledger of a run: SQLite with write-ahead log and full sync, so that what was committed survives a kill -9.

A run is a folder::

    plan.toml            the plan, complete
    ledger.sqlite        manifest, guests, trials, histograms, events
    samples/T.parquet    raw reservoirs of trial T
    report.html          written by the report stage

Histograms (a few KB each) are rows of the ledger rather than files: a report over ten thousand trials then reads one
file.  Raw samples are Parquet, one file a trial, made durable before the trial's row is committed; a
file without a row is an unfinished trial's and is removed when the run is resumed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from virtgauge.errors import UsageError, VirtgaugeError, printable
from virtgauge.ledger.records import (
    ArmRecord,
    EventRecord,
    Flag,
    GuestRecord,
    Histogram,
    HostRecord,
    Manifest,
    TrialRecord,
    TrialStatus,
)
from virtgauge.ledger.statistics import STATISTICS, distribution_of, pack, statistics_of, unpack

SCHEMA_VERSION = 1
LEDGER_NAME = "ledger.sqlite"
_RUNS_NAMED = 8

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
    "CREATE TABLE IF NOT EXISTS statistics (trial_id INTEGER NOT NULL, measure TEXT NOT NULL, unit TEXT NOT NULL, "
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
            f"free some space, then `virtgauge resume {folder}`; every trial recorded so far is kept",
        )


class Ledger:
    """The durable record of one run.  One writer at a time; readers may look at any moment."""

    def __init__(self, folder: Path, connection: sqlite3.Connection) -> None:
        self.folder = folder
        self._db = connection
        self._together = False
        self.blocks = ALL_BLOCKS
        """First and last block that is shown."""

    @classmethod
    def create(cls, folder: Path, manifest: Manifest) -> Ledger:
        """Make a new run's folder and ledger. Raises UsageError: the folder already holds a ledger."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "samples").mkdir(exist_ok=True)
        path = folder / LEDGER_NAME
        if path.exists():
            raise UsageError(f"{folder} already holds a run", "choose another folder, or `virtgauge resume` it")
        # Built under another name and renamed when whole: a ledger that exists is a ledger that can be read.
        building = path.with_suffix(".building")
        building.unlink(missing_ok=True)
        db = sqlite3.connect(building)
        db.executescript(_SCHEMA)
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        db.execute("INSERT INTO manifest VALUES (1, ?)", (json.dumps(dataclasses.asdict(manifest)),))
        db.commit()
        db.close()
        _sync(building)
        building.rename(path)
        _sync(folder)
        return cls.open(folder)

    @classmethod
    def open(cls, folder: Path) -> Ledger:
        """Open a run's ledger.

        Raises:
            UsageError: there is none, or one of another version, or it may not be written.
        """
        path = folder / LEDGER_NAME
        if not path.is_file():
            raise no_run(folder)
        if not (os.access(folder, os.W_OK) and os.access(path, os.W_OK)):
            raise UsageError(
                f"the run in {folder} may not be written by this user; its ledger is intact",
                f'use sudo, as the run did, or make the run yours: `sudo chown -R "$USER" {folder}`',
            )
        db = sqlite3.connect(path, timeout=10)
        try:
            (version,) = db.execute("PRAGMA user_version").fetchone()
        except sqlite3.DatabaseError as error:
            raise UsageError(f"{path} is no ledger: {error}", "restore it from a copy, or start a new run") from error
        if version != SCHEMA_VERSION:
            raise UsageError(
                f"{path} has ledger version {version}; this virtgauge reads version {SCHEMA_VERSION}",
                "use the virtgauge that wrote it",
            )
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.row_factory = sqlite3.Row
        return cls(folder, db)

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """A transaction."""
        if self._together:  # what is around it commits
            yield
            return
        try:
            with self._db:
                yield
        except (OSError, sqlite3.OperationalError) as error:
            raise LedgerWriteError(self.folder, error) from error

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Whatever is added within becomes durable at once, or not at all.

        Raises:
            LedgerWriteError: the disk is full, or gone; nothing of it was recorded.
        """
        with self._writing():
            self._together = True
            try:
                yield
            finally:
                self._together = False

    # -- writing -----------------------------------------------------------------------------------------

    def add_event(self, kind: str, detail: str) -> None:
        with self._writing():
            self._db.execute("INSERT INTO events VALUES (?, ?, ?)", (utc_now(), kind, detail))

    def put_arm(self, arm: ArmRecord) -> None:
        """Correct the manifest's arm of that name, or add it: trials come from elsewhere, or its guests tell more."""
        manifest = self.manifest()
        arms = {kept.name: kept for kept in (*manifest.arms, arm)}
        changed = dataclasses.replace(manifest, arms=tuple(arms.values()))
        with self._writing():
            self._db.execute("UPDATE manifest SET value = ?", (json.dumps(dataclasses.asdict(changed)),))

    def add_guest(
        self,
        *,
        arm: str,
        platform: str,
        block: int,
        launched_at: str,
        ready_ns: int | None,
        facts: Mapping[str, Any],
        error: str | None = None,
    ) -> int:
        """Record a launched guest, or a launch that failed; returns its number."""
        with self._writing():
            cursor = self._db.execute(
                "INSERT INTO guests (arm, platform, block, launched_at, ready_ns, facts, error) VALUES (?,?,?,?,?,?,?)",
                (arm, platform, block, launched_at, ready_ns, json.dumps(facts), error),
            )
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def add_trial(
        self,
        trial: TrialRecord,
        histograms: Mapping[str, Histogram] | None = None,
        samples: Mapping[str, npt.NDArray[np.int64]] | None = None,
    ) -> int:
        """Make a trial durable: samples first, then row and histograms in one transaction.

        Its ``trial_id`` is ignored; histograms are by measure, raw values for its Parquet file by series.

        Returns the trial's number.  When this returns, a kill -9 loses nothing of it.

        Raises:
            LedgerWriteError: the disk is full, or gone; what was committed before is kept.
        """
        (newest,) = self._db.execute("SELECT coalesce(max(trial_id), 0) FROM trials").fetchone()
        trial_id = int(newest) + 1
        kept = {series: values for series, values in (samples or {}).items() if len(values)}
        if kept:
            self._write_samples(trial_id, kept)
        with self._writing():
            # Its fields are the columns.
            told = vars(trial) | {"trial_id": trial_id, "flags": [dataclasses.asdict(flag) for flag in trial.flags]}
            row = [json.dumps(one) if isinstance(one, dict | list) else one for one in told.values()]
            self._db.execute(f"INSERT INTO trials VALUES ({','.join('?' * len(row))})", row)
            for measure, histogram in (histograms or {}).items():
                bounds = histogram.minimum, histogram.maximum, histogram.mean
                row = [trial_id, measure, histogram.unit, pack(histogram), *bounds]
                self._db.execute("INSERT INTO histograms VALUES (?,?,?,?,?,?,?)", row)
                if histogram.n:
                    self._db.execute(_STATISTICS_TABLE)
                    found = statistics_of(distribution_of(histogram))
                    row = [trial_id, measure, histogram.unit, histogram.n, *(found[name] for name in STATISTICS)]
                    self._db.execute(f"INSERT INTO statistics VALUES ({','.join('?' * len(row))})", row)
        return trial_id

    def _write_samples(self, trial_id: int, samples: Mapping[str, npt.NDArray[np.int64]]) -> None:
        from pyarrow import array, concat_tables, parquet, table  # slow to import, and most runs keep no samples

        path = self.samples_path(trial_id)
        rows = concat_tables(
            table({"series": array([series] * len(values)).dictionary_encode(), "value": values})
            for series, values in samples.items()
        )
        partial = path.with_suffix(".partial")
        try:
            parquet.write_table(rows, partial, compression="zstd")
            _sync(partial)
            partial.rename(path)
            _sync(path.parent)
        except OSError as error:
            raise LedgerWriteError(self.folder, error) from error

    def discard_unfinished_samples(self) -> int:
        """Remove sample files of trials that never reached the ledger; returns how many."""
        known = {trial_id for (trial_id,) in self._db.execute("SELECT trial_id FROM trials")}
        removed = 0
        for path in (self.folder / "samples").iterdir():
            if path.suffix == ".partial" or (path.stem.isdigit() and int(path.stem) not in known):
                path.unlink()
                removed += 1
        return removed

    # -- reading -----------------------------------------------------------------------------------------

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> sqlite3.Cursor:
        """The answer to one SELECT as plain tuples, as they come."""
        cursor = self._db.cursor()
        cursor.row_factory = None
        return cursor.execute(sql, parameters)

    def manifest(self) -> Manifest:
        (text,) = self._db.execute("SELECT value FROM manifest").fetchone()
        value = json.loads(text)
        value["arms"] = tuple(ArmRecord(**arm) for arm in value["arms"])
        hosts = value.get("hosts", ())  # runs of before there were fleets have none
        value["hosts"] = tuple(HostRecord(**host | {"arms": tuple(host["arms"])}) for host in hosts)
        return Manifest(**value)

    def trials(self, after: int = 0, at_most: int = -1) -> list[TrialRecord]:
        """All trials, valid or not, in the order in which they ended; or those after a number, or the first so many."""
        asked = "SELECT * FROM trials WHERE trial_id > ? AND block BETWEEN ? AND ? ORDER BY trial_id LIMIT ?"
        return [_trial(row) for row in self._db.execute(asked, (after, *self.blocks, at_most))]

    def guests(self) -> list[GuestRecord]:
        asked = "SELECT * FROM guests WHERE block BETWEEN ? AND ? ORDER BY guest_id"
        return [_guest(row) for row in self._db.execute(asked, self.blocks)]

    def events(self) -> list[EventRecord]:
        return [EventRecord(*row) for row in self._db.execute("SELECT * FROM events ORDER BY rowid")]

    def histogram(self, trial_id: int, measure: str) -> Histogram:
        """One trial's histogram; KeyError when it has none of that measure."""
        for found in self.histograms([trial_id], measure):
            return found[1]
        raise KeyError((trial_id, measure))

    def histograms(self, trial_ids: Iterable[int], measure: str) -> Iterator[tuple[int, Histogram]]:
        """The histograms of these trials, those that have one, as they come."""
        # By key: the trials of a cell are spread over the whole run.
        rows = self._db.execute(
            "SELECT trial_id, unit, bins, minimum, maximum, mean FROM histograms "
            "WHERE measure = ? AND trial_id IN (SELECT value FROM json_each(?)) ORDER BY trial_id",
            (measure, json.dumps(sorted(trial_ids))),
        )
        for trial_id, *fields in rows:
            yield trial_id, unpack(*fields)

    def histograms_of(self, trial_id: int) -> dict[str, Histogram]:
        """All histograms of one trial, by measure."""
        rows = self._db.execute(
            "SELECT measure, unit, bins, minimum, maximum, mean FROM histograms WHERE trial_id = ?", (trial_id,)
        )
        return {measure: unpack(*fields) for measure, *fields in rows}

    def samples_path(self, trial_id: int) -> Path:
        return self.folder / "samples" / f"{trial_id:07d}.parquet"

    def series(self, trial_id: int) -> list[str]:
        """The names of the series of raw values that a trial kept."""
        path = self.samples_path(trial_id)
        if not path.exists():
            return []
        from pyarrow.parquet import ParquetFile

        return [str(name) for name in ParquetFile(path).read(["series"])["series"].unique().to_pylist()]

    def samples(self, trial_id: int, series: str) -> npt.NDArray[np.int64]:
        """A trial's raw values; empty when none were kept."""
        path = self.samples_path(trial_id)
        if not path.exists():
            return np.empty(0, dtype=np.int64)
        from pyarrow.parquet import ParquetFile

        # By buffers: Arrow's own filters and conversions load pandas where there is one, which takes a second.
        table = ParquetFile(path).read()
        names = table["series"].combine_chunks()
        if series not in (known := names.dictionary.to_pylist()):
            return np.empty(0, dtype=np.int64)
        wanted = np.from_dlpack(names.indices) == known.index(series)
        return np.asarray(np.from_dlpack(table["value"].combine_chunks())[wanted], dtype=np.int64)


def _guest(row: sqlite3.Row) -> GuestRecord:
    return GuestRecord(**dict(row) | {"facts": json.loads(row["facts"])})


def _trial(row: sqlite3.Row) -> TrialRecord:
    decoded = {column: json.loads(row[column]) for column in ("factors", "result", "accounting")}
    flags = tuple(Flag(**flag) for flag in json.loads(row["flags"]))
    return TrialRecord(**dict(row) | decoded | {"status": TrialStatus(row["status"]), "flags": flags})


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
