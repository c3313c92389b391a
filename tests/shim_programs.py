"""Programs for the tests of the shim: compiled once a session, run with and without it."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIBRARY = ROOT / "src" / "virtgauge" / "native" / "libhptime_preload.so"
SOURCES = ROOT / "native" / "hptime-preload" / "tests" / "programs"
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("HPTIME_", "LD_"))}


@dataclasses.dataclass(frozen=True)
class Run:
    """What came of a program: its words, and the shim's reports, one for each process."""

    status: int
    out: str
    err: str
    reports: list[dict]

    def served(self, entry: str) -> int:
        return sum(report["served"].get(entry, 0) for report in self.reports)


def bare(*command: str | Path) -> Run:
    done = subprocess.run(command, capture_output=True, text=True, env=CLEAN, timeout=120)
    return Run(done.returncode, done.stdout, done.stderr, [])


def shimmed(folder: Path, *command: str | Path, **environment: str) -> Run:
    reports = folder / f"reports-{len(list(folder.iterdir()))}"
    reports.touch()
    settings = {"LD_PRELOAD": str(LIBRARY), "HPTIME_STATS": str(reports)} | environment
    done = subprocess.run(command, capture_output=True, text=True, env=CLEAN | settings, timeout=120)
    records = [json.loads(line) for line in reports.read_text().splitlines()]
    return Run(done.returncode, done.stdout, done.stderr, records)


def by_command(folder: Path, *words: str | Path, **environment: str) -> Run:
    """Through `virtgauge shim`, options and program as given."""
    target = folder / f"json-{len(list(folder.iterdir()))}"
    command = [sys.executable, "-m", "virtgauge.cli", "shim", "--json", target, *words]
    done = subprocess.run(command, capture_output=True, text=True, env=CLEAN | environment, timeout=120)
    return Run(done.returncode, done.stdout, done.stderr, [json.loads(target.read_text())] if target.exists() else [])
