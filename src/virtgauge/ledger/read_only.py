"""A ledger as a bystander reads it, while its run goes on or long after: nothing in the run's folder is ever changed.

SQLite's ``mode=ro`` alone makes files: a ledger with a write-ahead log gets a new log and index from its first reader.
So an index that is there is only read (``readonly_shm``), and a ledger without a log, which its last writer closed, is
read as a file that does not change (``immutable``).  A writer is never kept waiting: with a log, readers lock nothing
that it needs.

The file may be anything: it may have been damaged, or be made by somebody else to do harm.  What is read has a time
limit and a size limit, and no function or view of the file's own schema is trusted.
"""

from __future__ import annotations

import dataclasses
import os
import sqlite3
import stat
import time
from pathlib import Path
from urllib.parse import quote

from virtgauge.errors import UsageError
from virtgauge.ledger.records import TrialStatus
from virtgauge.ledger.store import LEDGER_NAME, SCHEMA_VERSION, Ledger

LOG_NAME = LEDGER_NAME + "-wal"
_INDEX_NAME = LEDGER_NAME + "-shm"
_LARGEST_VALUE = 64 * 2**20
_CHECK_EVERY = 100_000
"""Steps of SQLite's machine, some milliseconds, between looks at the clock."""


@dataclasses.dataclass(frozen=True)
class Tally:
    """How many trials a run has by now.

    Attributes:
        valid: that count.
        not_valid: invalid or failed attempts; kept, shown and repeated.
        unsupported: that a guest could not do.
        settled: cells of the design that need no further attempt.
        blocks: repetitions begun.
        newest: number of the last trial; 0 without one.
    """

    valid: int
    not_valid: int
    unsupported: int
    settled: int
    blocks: int
    newest: int


class ReadOnlyLedger(Ledger):
    """Whatever writes fails."""

    @classmethod
    def open(cls, folder: Path, limit_s: float = 20.0) -> ReadOnlyLedger:
        """Open a run's ledger to look at it.

        Args:
            folder: of the run.
            limit_s: after this time the ledger answers no more, and ``sqlite3.OperationalError`` says so.

        Raises:
            UsageError: there is none, or it cannot be read.
        """
        path = folder / LEDGER_NAME
        try:
            regular = stat.S_ISREG(path.lstat().st_mode)
        except OSError:
            regular = False
        if not regular:
            raise UsageError(f"no run in {folder}: {LEDGER_NAME} is missing", "`virtgauge run` makes one")
        try:
            db = sqlite3.connect(f"file:{quote(os.fsencode(path))}?{_access(folder)}", uri=True, timeout=1)
        except sqlite3.Error as error:
            raise UsageError(f"{path} cannot be read: {error}", "restore it from a copy") from error
        ends = time.monotonic() + limit_s
        db.set_progress_handler(lambda: time.monotonic() > ends, _CHECK_EVERY)
        db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LARGEST_VALUE)
        try:
            db.execute("PRAGMA trusted_schema = OFF")
            (version,) = db.execute("PRAGMA user_version").fetchone()
            kinds = dict(db.execute("SELECT name, type FROM sqlite_master").fetchall())
        except sqlite3.Error as error:
            db.close()
            raise UsageError(f"{path} is no ledger: {error}", "restore it from a copy") from error
        if version != SCHEMA_VERSION or kinds.get("trials") != "table":
            db.close()
            raise UsageError(
                f"{path} is no ledger of version {SCHEMA_VERSION}, the one that this virtgauge reads (its version: "
                f"{version})",
                "use the virtgauge that wrote it",
            )
        db.row_factory = sqlite3.Row
        return cls(folder, db)

    def __enter__(self) -> ReadOnlyLedger:
        return self

    def tally(self, attempts: int) -> Tally:
        """The counts, without reading the trials.

        Args:
            attempts: how often a trial is tried in all, as the run's plan says.
        """
        counts = dict(self._db.execute("SELECT status, count(*) FROM trials GROUP BY status").fetchall())
        settled = (TrialStatus.VALID.value, TrialStatus.UNSUPPORTED.value)
        (done,) = self._db.execute(
            "SELECT count(*) FROM "
            "(SELECT 1 FROM trials GROUP BY key HAVING max(attempt) >= ? OR max(status IN (?, ?)))",
            (attempts, *settled),
        ).fetchone()
        newest, block = self._db.execute(
            "SELECT coalesce(max(trial_id), 0), coalesce(max(block), -1) FROM trials"
        ).fetchone()
        valid, unsupported = (counts.get(status, 0) for status in settled)
        return Tally(
            valid=valid,
            not_valid=sum(counts.values()) - valid - unsupported,
            unsupported=unsupported,
            settled=done,
            blocks=block + 1,
            newest=newest,
        )


def _access(folder: Path) -> str:
    try:
        logged = (folder / LOG_NAME).stat().st_size > 0
    except OSError:
        logged = False
    if not logged:
        return "mode=ro&immutable=1"
    if not (folder / _INDEX_NAME).exists():
        raise UsageError(
            f"the ledger in {folder} was copied while its run wrote it: {LOG_NAME} is there and {_INDEX_NAME} is not",
            f"`virtgauge report {folder}` puts it in order",
        )
    return "mode=ro&readonly_shm=1"
