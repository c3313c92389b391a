"""Programs for the tests of the flush laboratory: compiled once a session, run with and without it."""

from __future__ import annotations

import dataclasses
import os
import struct
import subprocess
from pathlib import Path

from waiting import wait_until

from virtgauge.suites.storage.flushes import launcher_prefix

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "native" / "flushlab" / "tests" / "programs"
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("LD_", "VIRTGAUGE_FLUSH"))}


_MAGIC, _SIZE, _SPACING = b"VGFLUSH1", 4096, 64


@dataclasses.dataclass(frozen=True)
class FlushCounters:
    """What was counted, in the order of the file (``native/flushlab/src/counters.rs``).

    Attributes:
        fsync: calls that succeeded; so the next two.
        fdatasync: see above.
        msync: with ``MS_SYNC``.
        sync_writes: writes that are flushes of their own.
        other: ``sync_file_range`` that waits, ``syncfs``, ``sync``.
        time_ns: how long all these took together, where that was seen.
        failed: flushes that failed.
        untimed: flushes whose time was not seen: as-is, of a static program.
        dsync_opens: openings of a static program whose writes would be flushes, and are not seen.
    """

    fsync: int
    fdatasync: int
    msync: int
    sync_writes: int
    other: int
    time_ns: int
    failed: int
    untimed: int
    dsync_opens: int

    @property
    def total(self) -> int:
        """All flushes."""
        return self.fsync + self.fdatasync + self.msync + self.sync_writes + self.other

    @classmethod
    def decode(cls, page: bytes) -> FlushCounters:
        """The counters in a file's bytes.

        Raises:
            ValueError: they are those of something else.
        """
        if len(page) != _SIZE or not page.startswith(_MAGIC):
            raise ValueError("no file of flush counters")
        names = [field.name for field in dataclasses.fields(cls)]
        values = (struct.unpack_from("<Q", page, _SPACING * (index + 1))[0] for index in range(len(names)))
        return cls(**dict(zip(names, values, strict=True)))


@dataclasses.dataclass(frozen=True)
class Run:
    """What came of a program, and what was counted; None without the laboratory."""

    status: int
    out: str
    err: str
    counters: FlushCounters | None = None

    def flushes(self) -> dict[str, int]:
        """The counters that are not zero, without the times."""
        assert self.counters is not None, self.err
        counted = dataclasses.asdict(self.counters)
        return {name: value for name, value in counted.items() if value and name != "time_ns"}


def bare(*command: str | Path) -> Run:
    done = subprocess.run(command, capture_output=True, text=True, env=CLEAN, timeout=120)
    return Run(done.returncode, done.stdout, done.stderr)


def flushed(profile: str, counters: Path, *command: str | Path, static: bool = False) -> Run:
    prefix = launcher_prefix(counters, profile, static=static)
    done = subprocess.run([*prefix, *command], capture_output=True, text=True, env=CLEAN, timeout=120)
    page = counters.read_bytes() if counters.is_file() else None
    return Run(done.returncode, done.stdout, done.stderr, None if page is None else FlushCounters.decode(page))


def compile_programs(folder: Path) -> None:
    """`dynamic` and `static`, of the same source."""
    for name, flags in (("dynamic", []), ("static", ["-static"])):
        command = ["cc", "-O1", "-pthread", *flags, "-o", str(folder / name), str(SOURCES / "flushes.c")]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def until_gone(counters: Path) -> None:
    """Wait until no process of a laboratory is left: what counts the flushes of a static program ends after it."""
    wait_until("the end of a laboratory", lambda: not supervisors(counters), within=20)


def supervisors(counters: Path) -> list[str]:
    """Processes that still have a laboratory's file in their command line or memory."""
    found = []
    for process in (path for path in Path("/proc").iterdir() if path.name.isdigit()):
        try:
            told = process.joinpath("cmdline").read_bytes() + process.joinpath("maps").read_bytes()
        except OSError:  # gone in between
            continue
        if str(counters).encode() in told:
            found.append(process.name)
    return found
