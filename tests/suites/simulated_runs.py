"""Runs of simulated platforms for tests: a plan in a few lines, executed through the real pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from virtgauge import report
from virtgauge.execution.progress import ProgressDisplay, ProgressEvent
from virtgauge.execution.run import start_run
from virtgauge.ledger.store import Ledger
from virtgauge.plan.model import Plan

TIMERS = ("rdtsc", "rdtscp", "clock_gettime", "clock_gettime_syscall", "gettimeofday")


def simulated(name: str, **settings: Any) -> dict[str, Any]:
    """A platform section."""
    return {"name": name, "kind": "simulated"} | settings


def plan_of(*platforms: dict[str, Any], seed: int = 1, **fields: Any) -> Plan:
    """A plan that measures timers only, on these platforms; the first is the reference."""
    design = {"timers": TIMERS[:2], "sleeps": [], "loads": ["idle"], "reads": 2000, "reservoir": 10}
    known = {
        "name": "simulated",
        "reference": platforms[0]["name"],
        "seed": seed,
        "aa": False,
        "platform": platforms,
        "suite": {"timing": [design | fields.pop("design", {})]},
    }
    return Plan.model_validate(known | fields)


class Recorder(ProgressDisplay):
    """Keeps the events."""

    def __init__(self) -> None:
        self.events: list[ProgressEvent] = []

    def show(self, event: ProgressEvent) -> None:
        self.events.append(event)


def execute(plan: Plan, folder: Path) -> tuple[bool, Recorder]:
    """Run to the end; whether it is complete, and what was shown."""
    recorder = Recorder()
    return start_run(plan, "test", folder, recorder), recorder


def report_of(folder: Path) -> report.Report:
    """The report of a run."""
    with Ledger.open(folder) as ledger:
        return report.build(ledger)
