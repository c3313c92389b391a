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
from virtgauge.suites.base import Cell as PlannedCell
from virtgauge.suites.isolation.benchmarks import uses_disk
from virtgauge.suites.registry import SUITES

Settings = Mapping[str, Any]

_OWN_VECTORS = ("k=", "equal", "zipf", "worst")  # Of forwarding, by their names; another is the user's
_OF_DISKS = ("disk_file_mib", "disk_sequential_kib", "disk_random_kib", "disk_mib")


def _is_asked_for(probe: str, factors: Mapping[str, str]) -> bool:
    return (factors.get("load"), factors.get("policy")) != ("none", "none")


def _uses_disk(probe: str, factors: Mapping[str, str]) -> bool:
    return any(map(uses_disk, (factors["benchmark"], factors["load"])))


_CONCERN: Mapping[tuple[str, str], Callable[[str, Mapping[str, str]], bool]] = {
    ("timing", "reads"): lambda probe, factors: probe == "timer_cost",
    ("timing", "sleep_samples"): lambda probe, factors: probe == "sleep_lateness",
    ("timing", "cpu_threads"): lambda probe, factors: factors.get("load") == "cpu",
    ("timing", "io"): lambda probe, factors: factors.get("load") == "io",
    ("timing", "cycles"): lambda probe, factors: probe == "cycle",
    ("timing", "max_seconds"): lambda probe, factors: probe != "cycle",
    ("bandwidth", "first_gap_us"): lambda probe, factors: factors.get("estimator") == "yaz-original",
    ("bandwidth", "cross_packet_bytes"): lambda probe, factors: factors.get("cross_mbps") != "0",
    ("bandwidth", "link"): lambda probe, factors: (factors.get("delay_ms"), factors.get("loss")) != ("0", "0"),
    ("forwarding", "zipf_exponent"): lambda probe, factors: factors.get("vector") == "zipf",
    ("forwarding", "k"): lambda probe, factors: factors.get("vector") == "worst",  # the worst of these
    ("forwarding", "q"): lambda probe, factors: factors.get("vector", "").startswith(("k=", "worst")),
    ("forwarding", "user_vectors"): lambda probe, factors: not factors.get("vector", "").startswith(_OWN_VECTORS),
    # what every design's figures are beside is a rate, which it has unasked, and of whichever measures it first
    **dict.fromkeys((("isolation", name) for name in ("seconds", "warmup_s", "slice_ms", "memory_mib")), _is_asked_for),
    ("isolation", "load_memory_block"): lambda probe, factors: factors.get("load", "").startswith("memory-"),
    ("isolation", "cpus"): lambda probe, factors: True,
    ("isolation", "load_cache_block"): lambda probe, factors: factors.get("load") == "cache",
    ("isolation", "wake_period_us"): lambda probe, factors: factors.get("benchmark") == "wake",
    **dict.fromkeys((("isolation", name) for name in _OF_DISKS), _uses_disk),
    ("isolation", "disk_full_mb_per_s"): lambda probe, factors: factors.get("policy") == "disk-limit",
    **dict.fromkeys((("storage", name) for name in ("seconds", "warmup_s")), lambda probe, factors: probe != "crash"),
    ("storage", "pipeline"): lambda probe, factors: factors.get("write_mode") == "pipelined",
    **dict.fromkeys((("storage", name) for name in ("late_by", "late_run")), lambda probe, factors: "late" in factors),
    ("storage", "mixed"): lambda probe, factors: probe == "mixed",
    ("storage", "objective_ms"): lambda probe, factors: probe == "knee",
    ("storage", "knee_steps"): lambda probe, factors: probe == "knee",
    ("storage", "crash_after_s"): lambda probe, factors: probe == "crash",
}
"""Settings of only some of a suite's cells: whether one concerns a cell, by its probe and levels.

Others are of all, but for tuples that are not named here: they hold levels, which are in a cell's key.
"""
_TOLD_BY = {("forwarding", "k"): "strong"}  # The property that says what a setting comes to, whichever way it is given


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
                suite = SUITES[name].create(own)
            except ValidationError:
                continue
            for cell in suite.cells():  # an earlier version measured one that several designs have as the first says
                found.setdefault(cell.figures_key, settings_of_cell(suite.settings, cell))
    return found


def differing(one: Settings, other: Settings) -> list[str]:
    """What two cells' settings differ in, in words: ``sleep_samples 500 and 5000``."""
    names = [*one, *(name for name in other if name not in one)]
    return [f"{name} {one.get(name)} and {other.get(name)}" for name in names if one.get(name) != other.get(name)]


def settings_of_cell(section: BaseModel, cell: PlannedCell) -> Settings:
    """What a design's section says of one of its cells, beyond the levels."""
    found = {}
    for name in type(section).model_fields:
        key, is_levels = (cell.suite, name), isinstance(getattr(section, name), tuple)
        told = _CONCERN[key](cell.probe, cell.factors) if key in _CONCERN else not is_levels
        if told and name != "reservoir":  # on which no figure depends
            found[name] = getattr(section, _TOLD_BY.get(key, name))
    return found


def other_servers(first: BaseModel, second: BaseModel, cell: PlannedCell) -> bool:
    """Whether two designs of a cell of storage name different servers, that exist already, alike."""
    one, other = (
        [server for server in getattr(each, "server", ()) if server.name == cell.factors.get("database")]
        for each in (first, second)
    )
    return one != other


def lost_loads(first: BaseModel, second: BaseModel) -> list[float]:
    """The loads of a second design of forwarding that the first has not, by which the cells of both are measured.

    In per cent of the throughput; more of them change no other figure of a cell.
    """
    theirs, ours = ({*getattr(one, "latency_loads", ()), *getattr(one, "load_curve", ())} for one in (first, second))
    return sorted(ours - theirs)
