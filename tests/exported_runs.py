"""Runs to export, and what reads their exports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from suites import bandwidth_runs, forwarding_runs, isolation_runs, storage_runs
from suites.simulated_runs import execute, plan_of, simulated

from virtgauge.exchange import Format
from virtgauge.exchange.exports import export
from virtgauge.exchange.imports.record import ImportedArm, import_into, read_repetitions
from virtgauge.ledger.store import Ledger

TIMING: dict[str, Any] = {"timers": ["rdtsc"], "sleeps": [], "loads": ["idle"], "reads": 2000, "reservoir": 10}
SUITES: dict[str, list[dict[str, Any]]] = {
    "timing": [TIMING],
    "bandwidth": [bandwidth_runs.QUICK],
    "forwarding": [forwarding_runs.QUICK],
    "storage": [storage_runs.QUICK],
    "isolation": [isolation_runs.QUICK | {"loads": ["none", "integer"]}],
}

FIO_OUTPUT = Path(__file__).parent / "data" / "fio-3.33-mixed.json"


def run_of_every_suite(folder: Path) -> Path:
    """Two simulated platforms and the A/A arm, all suites in short form, and an imported repetition."""
    platforms = (simulated("one"), simulated("other", seed=2))
    execute(plan_of(*platforms, repetitions=2, aa=True, suite=SUITES), folder)
    import_into(folder, read_repetitions("fio", [FIO_OUTPUT]), ImportedArm("one"), {})
    return folder


def exported(folder: Path, kind: Format, out: Path, measures: tuple[str, ...] = ()) -> Path:
    """A run's export as a file."""
    with Ledger.open(folder) as ledger:
        export(ledger, kind, out, measures)
    return out
