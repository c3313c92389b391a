"""Programs for the tests of the flush laboratory: compiled once a session, run with and without it."""

from __future__ import annotations

import dataclasses
import os
import subprocess
from pathlib import Path

from virtgauge.suites.storage.flushes import FlushCounters, launcher_prefix

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "native" / "flushlab" / "tests" / "programs"
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("LD_", "VIRTGAUGE_FLUSH"))}


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
