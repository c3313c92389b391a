"""By what settings each cell of a plan was measured, beyond its levels: figures of other settings are not the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from virtgauge.errors import UsageError
from virtgauge.ledger.records import Manifest
from virtgauge.plan.load import parse_plan
from virtgauge.plan.model import DesignScope, Plan
from virtgauge.results.columns import Cell
from virtgauge.suites.registry import SUITES

Settings = Mapping[str, Any]

_SAY_NOTHING = frozenset({"reservoir"})  # Settings that no figure depends on
_Concerns = Callable[[str, Mapping[str, str]], bool]  # Whether a setting has to do with a cell, by its probe and levels


_CONCERN: Mapping[tuple[str, str], _Concerns] = {
    ("timing", "reads"): lambda probe, factors: probe == "timer_cost",
    ("timing", "sleep_samples"): lambda probe, factors: probe == "sleep_lateness",
    ("timing", "cpu_threads"): lambda probe, factors: factors.get("load") == "cpu",
    ("timing", "io"): lambda probe, factors: factors.get("load") == "io",
    ("storage", "mixed"): lambda probe, factors: probe == "mixed",
    ("storage", "objective_ms"): lambda probe, factors: probe == "knee",
    ("storage", "knee_steps"): lambda probe, factors: probe == "knee",
    ("storage", "crash_after_s"): lambda probe, factors: probe == "crash",
}
"""Settings of only some of a suite's cells; every other one is of all."""


def plan_of(manifest: Manifest) -> Plan | None:
    """A run's plan; None where this version cannot read it."""
    try:
        return parse_plan(manifest.plan_text, manifest.run_id)
    except UsageError:
        return None


def settings_of(plan: Plan) -> dict[Cell, Settings]:
    """The settings of every cell of a plan, but for its levels; without the sections that this version refuses."""
    found: dict[Cell, Settings] = {}
    for name, designs in plan.suite.items():
        for design in designs if name in SUITES else ():
            try:
                _, own = DesignScope.split(design)
                suite, section = SUITES[name].create(own), SUITES[name].Settings.model_validate(own)
            except ValidationError:
                continue
            for cell in suite.cells():  # one that several designs have is measured as the first says
                found.setdefault(cell.figures_key, _of_cell(section, name, cell.probe, cell.factors))
    return found


def differing(one: Settings, other: Settings) -> list[str]:
    """What two cells' settings differ in, in words: ``sleep_samples 500 and 5000``."""
    names = [*one, *(name for name in other if name not in one)]
    return [f"{name} {one.get(name)} and {other.get(name)}" for name in names if one.get(name) != other.get(name)]


def _of_cell(section: BaseModel, suite: str, probe: str, factors: Mapping[str, str]) -> Settings:
    found = {}
    for name in type(section).model_fields:
        value, concerns = getattr(section, name), _CONCERN.get((suite, name))
        # A tuple holds levels, which are in the cell's key.
        if not isinstance(value, tuple) and name not in _SAY_NOTHING and (not concerns or concerns(probe, factors)):
            found[name] = value
    return found
