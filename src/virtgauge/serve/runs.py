"""Which runs there are: folders with a ledger, found in the folders that were named and nowhere else.

A page names a run by an identifier made from its place, never by a path, so nothing but what was found here can be
asked for.  Links are not followed: a folder that somebody else packed cannot lead outside.  Whatever a ledger holds
becomes a short text without control characters.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import hashlib
import math
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from virtgauge.errors import VirtgaugeError, printable
from virtgauge.host.process import closed_after, is_locked
from virtgauge.ledger.read_only import LOG_NAME, ReadOnlyLedger
from virtgauge.ledger.store import LEDGER_NAME

LOCK_NAME = "controller.lock"
REPORT_NAME = "report.html"

Value = TypeVar("Value")
Stamp = tuple[tuple[int, int, int], ...]
"""Of a ledger and its log: file number, size, time of change.  While it is the same, nothing was written."""


def same_ledger(one: Stamp, other: Stamp) -> bool:
    """Whether two stamps are of one file, and none stands in another's place."""
    return bool(one) and bool(other) and one[0][0] == other[0][0]


@dataclasses.dataclass(frozen=True)
class FoundRun:
    """A folder with a ledger, whatever that is worth."""

    run_id: str  # names it in addresses; the same as long as the folder is there
    folder: Path  # where it is

    def stamp(self) -> Stamp:
        """What changes with every write; empty when the folder has vanished."""
        found = []
        for name in (LEDGER_NAME, LOG_NAME):
            with contextlib.suppress(OSError):
                status = (self.folder / name).lstat()
                found.append((status.st_ino, status.st_size, status.st_mtime_ns))
        return tuple(found)

    @property
    def quiet_s(self) -> float:
        """For how long nothing was written, in seconds; infinite where nothing is there."""
        written = max((changed_ns for _, _, changed_ns in self.stamp()), default=None)
        return math.inf if written is None else (time.time_ns() - written) / 1e9


def find_runs(folders: Sequence[Path]) -> dict[str, FoundRun]:
    """The runs in these folders, each of which may be a run itself; by identifier."""
    found = {}
    for parent in folders:
        root = parent.resolve()
        for folder in (root, *_children(root)):
            with contextlib.suppress(OSError):
                if stat.S_ISREG((folder / LEDGER_NAME).lstat().st_mode):
                    run_id = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
                    found[run_id] = FoundRun(run_id, folder)
    return found


def _children(root: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError), os.scandir(root) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield root / entry.name


def is_measured(folder: Path) -> bool | None:
    """Whether a controller holds the run's lock; None where that cannot be seen.

    The lock is asked for shared, for some microseconds: a controller that starts just then and wants it for itself
    would be told that another is at work, so this is asked of unfinished runs only, and while somebody looks.
    """
    try:
        descriptor = os.open(folder / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    except OSError:
        return None
    with closed_after(descriptor):
        return is_locked(descriptor)


def read_or_say(folder: Path, read: Callable[[ReadOnlyLedger], Value]) -> Value | str:
    """What is read of a run's ledger, or why it cannot be: whatever a damaged or foreign file makes of the reader."""
    try:
        with ReadOnlyLedger.open(folder) as ledger:
            return read(ledger)
    except VirtgaugeError as error:
        return error.message
    except Exception as error:
        return f"its ledger cannot be read: {type(error).__name__}: {error}"


def plain(value: object, longest: int = 300) -> str:
    """Any value as one line; what does not print, marks that turn the direction of writing among it, is replaced."""
    return printable(str(value), longest)


def utc_time(value: object) -> str:
    """A time of the ledger for people: ``2026-03-01 10:00:00``, UTC; whatever else stands there as it is."""
    try:
        return f"{instant(value):%Y-%m-%d %H:%M:%S}"
    except ValueError:
        return plain(value, 40)


def instant(value: object) -> datetime.datetime:
    """A time of the ledger, in UTC. Raises ValueError: it is none."""
    found = datetime.datetime.fromisoformat(str(value))
    if found.tzinfo is None:
        raise ValueError(f"{value} has no time zone")
    return found.astimezone(datetime.UTC)
