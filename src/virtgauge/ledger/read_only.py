"""A ledger as a bystander reads it, while its run goes on or long after: nothing in the run's folder is ever changed.

SQLite's ``mode=ro`` alone makes files: a ledger with a write-ahead log gets a new log and index from its first reader.
So an index that is there is only read (``readonly_shm``), and a ledger without a log, which its last writer closed, is
read as a file that does not change (``immutable``).  What is read is of one moment: with a log by one transaction,
which keeps no writer waiting, and without one it is an error that a writer has come and changed the file meanwhile, for
SQLite then mixes pages of before with those of after (https://sqlite.org/c3ref/open.html, ``immutable``).

The file may be anything: it may have been damaged, or be made by somebody else to do harm.  What is read has a time
limit and a size limit, and no function or view of the file's own schema is trusted.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import shlex
import sqlite3
import time
from pathlib import Path
from typing import Self
from urllib.parse import quote

from virtgauge.errors import UsageError, VirtgaugeError
from virtgauge.ledger.damage import MADE_OF_ROWS, DamagedError, is_suspect
from virtgauge.ledger.files import is_regular
from virtgauge.ledger.records import BLOCKS_PER_HOST, GuestRecord, HostRecord, Manifest, TrialRecord
from virtgauge.ledger.rows import read_trial
from virtgauge.ledger.store import LEDGER_NAME, Ledger, defended, no_run, require_files

LOG_NAME = LEDGER_NAME + "-wal"
_INDEX_NAME = LEDGER_NAME + "-shm"
_LOG_HEADER = 32  # Bytes before the first frame of a log (https://www.sqlite.org/fileformat2.html#walformat)
_LARGEST_VALUE = 64 * 2**20
_IMMUTABLE = "mode=ro&immutable=1"
_CHECK_EVERY = 100_000  # Steps of SQLite's machine, some milliseconds, between looks at the clock


class ChangedError(VirtgaugeError):
    """What was read of a ledger is of several moments."""

    def __init__(self, folder: Path) -> None:
        super().__init__(
            f"the run in {folder} went on while it was read: what was read of it is not of one moment",
            "start the command again: a run that goes on is read as it is at one moment",
        )


class ReadOnlyLedger(Ledger):
    """Whatever writes fails; what is read is of one moment."""

    _unchanged: tuple[int, ...] | None = None
    """What the file must be to the end; None where others may write while it is read."""

    @classmethod
    def open(cls, folder: Path, limit_s: float = 20.0) -> Self:
        """Open a run's ledger to look at it.

        After the time limit the ledger answers no more, and ``sqlite3.OperationalError`` says so.
        Raises UsageError: there is none, or it cannot be read.
        """
        while True:
            before = _beside(folder)
            try:
                return cls._open(folder, limit_s)
            except VirtgaugeError:
                if before == _beside(folder):
                    raise  # else its last writer went, and the log with him, between two questions

    @classmethod
    def _open(cls, folder: Path, limit_s: float) -> Self:
        path = folder / LEDGER_NAME
        if not is_regular(path):
            raise no_run(folder)
        state, access = _state(path), _access(folder)
        try:
            db = sqlite3.connect(f"file:{quote(os.fsencode(path))}?{access}", uri=True, timeout=1)
        except sqlite3.Error as error:
            raise DamagedError(path, "", str(error)) from error
        ends = time.monotonic() + limit_s
        db.set_progress_handler(lambda: time.monotonic() > ends, _CHECK_EVERY)
        db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LARGEST_VALUE)
        ledger = cls(folder, defended(db, path))
        db.execute("BEGIN")
        if access == _IMMUTABLE:
            ledger._unchanged = state
        return ledger

    @classmethod
    def for_command(cls, folder: Path, limit_s: float = math.inf) -> Self:
        """Open a run's ledger for a command of the user's own, which takes as long as it needs.

        A log whose index is missing, of a run that was copied, is put in order where this user may write.
        Raises UsageError: there is none, or it cannot be read.
        """
        if is_regular(folder / LEDGER_NAME) and _lacks_index(folder) and os.access(folder, os.W_OK):
            Ledger.open(folder).close()
        ledger = cls.open(folder, limit_s)
        with contextlib.ExitStack() as opened:
            opened.push(ledger)
            if is_suspect(ledger._db, ledger.path.stat().st_size):
                ledger.check()
            opened.pop_all()
        return ledger

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is None or isinstance(error, (*MADE_OF_ROWS, DamagedError)):
                self.confirm()
        except ChangedError:
            self.close()
            raise
        super().__exit__(kind, error, trace)

    def confirm(self) -> None:
        """Raise ChangedError: what was read up to now is not of one moment."""
        if self._unchanged is not None and self._unchanged != _state(self.path):
            raise ChangedError(self.folder)

    def trial(self, number: int) -> TrialRecord:
        """One trial by its number; ValueError when there is none."""
        (row,) = self._db.execute("SELECT * FROM trials WHERE trial_id = ?", (number,))
        return read_trial(dict(row))

    def last_guest(self) -> GuestRecord | None:
        """The guest that was started last, without its facts, which may be long."""
        row = self._db.execute("SELECT * FROM guests ORDER BY guest_id DESC LIMIT 1").fetchone()
        return None if row is None else GuestRecord(**dict(row) | {"facts": {}})


def _state(path: Path) -> tuple[int, ...]:
    """What differs once a file was replaced or written to; empty where it is gone."""
    try:
        about = path.stat()
    except OSError:
        return ()
    return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns


def _beside(folder: Path) -> tuple[bool, ...]:
    """What there is of a ledger and of what SQLite puts beside it while somebody writes."""
    return os.path.lexists(folder / LEDGER_NAME), os.path.lexists(folder / _INDEX_NAME), _has_log(folder)


def _has_log(folder: Path) -> bool:
    """Whether a log may hold what the file does not; where one has a header alone, SQLite waits for ever for more."""
    try:
        return (folder / LOG_NAME).stat().st_size > _LOG_HEADER
    except OSError:
        return False


def _lacks_index(folder: Path) -> bool:
    """Whether there is a log without an index, or with one that a kill kept from being begun, by SQLite's number."""
    if not _has_log(folder):
        return False
    try:
        with (folder / _INDEX_NAME).open("rb") as index:
            return not any(index.read(4))
    except OSError:
        return not (folder / _INDEX_NAME).exists()


def _access(folder: Path) -> str:
    require_files(folder)
    if not _has_log(folder):
        return _IMMUTABLE
    if _lacks_index(folder):
        raise UsageError(
            f"the ledger in {folder} was copied while its run wrote it, or its run was killed at its beginning: "
            f"{LOG_NAME} is there and {_INDEX_NAME} is not, or is empty",
            f"`virtgauge report {shlex.quote(str(folder))}` puts it in order, started by a user who may write there",
        )
    return "mode=ro&readonly_shm=1"


class HostLedger(ReadOnlyLedger):
    """A fleet's ledger with one host's trials and guests only."""

    _host: HostRecord | None = None

    @classmethod
    def of(cls, folder: Path, name: str) -> Self:
        """Open a fleet's run for one of its hosts.
        Raises UsageError: there is no run, it has one host only, or none of that name.
        """
        ledger = cls.for_command(folder)
        hosts = {host.name: host for host in ledger.manifest().hosts}
        if name not in hosts:
            ledger.close()
            known = f"its hosts are {', '.join(hosts)}" if hosts else f"{folder} is the run of one host"
            raise UsageError(f"--host {name}: there is no such host", known)
        host = ledger._host = hosts[name]
        ledger.blocks = host.first_block, host.first_block + BLOCKS_PER_HOST - 1
        return ledger

    def manifest(self) -> Manifest:
        """With the host's own fingerprint; platforms that it cannot use are none of its."""
        whole = super().manifest()
        if self._host is None:
            return whole
        arms = []
        for arm in whole.arms:
            lacks = arm.usable and arm.name not in self._host.arms
            reason = f"it cannot be used on host {self._host.name}"
            arms.append(dataclasses.replace(arm, usable=False, reason=reason) if lacks else arm)
        return dataclasses.replace(whole, fingerprint=self._host.fingerprint, arms=tuple(arms), hosts=())
