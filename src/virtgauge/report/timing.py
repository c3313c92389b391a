"""The timing suite's part of a report, and its figures in the terms of the paper's claims."""

from __future__ import annotations

import math
from typing import ClassVar

from virtgauge.claims.figures import Figure, Figures, measured
from virtgauge.claims.model import Cells, Level, claim_file
from virtgauge.claims.papers import check_claims
from virtgauge.claims.verdicts import ClaimCheck
from virtgauge.ledger.records import ArmRecord
from virtgauge.report.spec_report import SpecReport
from virtgauge.results.columns import Cell
from virtgauge.specs.context import Context
from virtgauge.specs.model import SuiteSpec
from virtgauge.specs.timing import TIMING
from virtgauge.specs.timing_insights import FUNCTIONS, LOADS, TABLES, USUAL

_STATISTICS = {"median": "p50", "half_iqr": "half_iqr", "max": "max", "min": "min", "p90": "p90", "p99.9": "p99.9"}
"""Ours, by the paper's parameter."""
_KINDS = {"qemu": "QEMU", "xen": "Xen"}
_SCHEMES = {"qemu": "QEMU", "xen": "Xen", "vbox": "VBox", "esx": "ESXi"}
_WORDS = {"VBox": "Virtual Box", "ESXi": "VMware ESXi", "Host OS": "host"}
_PLAIN_RUNTIMES = ("runc", "crun", "youki")
_TARGET_NS = 1e6
"""Of the paper's sleeps, of which it says no length; where several were measured, the nearest one is taken."""

Place = tuple[str, str, str, str]
"""Table, function, arm and load."""


class TimingReport(SpecReport):
    """What clocks and sleeps cost, why, and what determines it."""

    suite: ClassVar[str] = TIMING.name
    title: ClassVar[str] = TIMING.title
    spec: ClassVar[SuiteSpec] = TIMING

    def hear(self, context: Context) -> tuple[ClaimCheck, ...]:
        return check_claims("timing", {"": claim_figures(context)})


def paper_platform(arm: ArmRecord) -> str | None:
    """What the paper calls a platform of this kind; None for one that it does not have."""
    if arm.role == "reference" and arm.kind in ("host", "simulated"):
        return "Host OS"
    if arm.kind == "libvirt":
        return _SCHEMES.get(str(arm.settings.get("uri", "")).partition(":")[0].partition("+")[0])
    return _KINDS.get(arm.kind)


def claim_figures(context: Context) -> Figures:
    """Of a run, the A/A arm's repetitions among them."""
    places, arms, nominal = _of_the_papers_kind(context), context.all_arms, context.table.confidence
    measured_arms = {place[2] for place in places}
    own = {arm.name: arm for arm in arms if arm.name in measured_arms}
    judged = {name: arm for name, arm in own.items() if arm.role != "aa" and not arm.emulated}
    identical = (context.table.aa, context.table.reference)

    def values(place: Place, measure: str) -> dict[int, float]:
        cell = places.get(place)
        return {} if cell is None else context.values(f"{cell.probe}.{_STATISTICS[measure]}", cell, place[2])

    def missing_reason(measure: str, cells: Cells) -> str:
        platform = cells.get("platform")
        if isinstance(platform, str) and not any(paper_platform(arm) == platform for arm in judged.values()):
            name = _WORDS.get(platform, platform)
            if any(paper_platform(arm) == platform for arm in own.values() if arm.emulated):
                return f"the only {name} of this run is emulated, which decides nothing"
            return f"this run has no {name}"
        if not judged:
            return "emulated platforms decide nothing" if own else "nothing of it was measured"
        return "not measured here"

    figures = []
    for place in sorted(places, key=lambda place: (*map(_rank, (place[1], place[3])),)):
        table, function, name, load = place
        arm = judged.get(name)
        for measure in _STATISTICS if arm is not None else ():
            if arm is not None and (found := values(place, measure)):
                levels: dict[str, Level] = {"table": table, "function": function, "load": load}
                levels["platform"] = paper_platform(arm) or arm.name
                estimate = measured(found, "ns", nominal)
                alike = [values((table, function, one, load), measure) for one in identical]
                figures.append(
                    Figure(
                        measure,
                        levels,
                        estimate,
                        found,
                        _facts(arm),
                        name,
                        arm.label,
                        identical=(alike[0], alike[1]),
                    )
                )
    return Figures(claim_file("timing"), figures, nominal, missing_reason)


def _rank(level: str) -> int:
    return [*FUNCTIONS.values(), *LOADS.values()].index(level)


def _facts(arm: ArmRecord) -> dict[str, Level]:
    plain = arm.kind == "oci" and arm.settings.get("runtime") in _PLAIN_RUNTIMES
    platform = paper_platform(arm)
    return {
        "of_the_paper": platform is not None,
        "virtual_or_host": platform == "Host OS" or not (arm.kind == "host" or plain),
    }


def _of_the_papers_kind(context: Context) -> dict[Place, Cell]:
    """The cells that are the paper's: its functions with a program's default slack and class, and of one length."""
    chosen: dict[Place, tuple[float, Cell]] = {}
    for cell in context.where({**USUAL, "probe": TABLES, "function": FUNCTIONS, "load": LOADS}):
        target = context.level(cell, "target_ns")
        distance = abs(math.log(int(target) / _TARGET_NS)) if target.isdigit() and int(target) else 0.0
        for arm in (arm.name for arm in context.arms):
            place = TABLES[cell.probe], FUNCTIONS[cell.factors["function"]], arm, LOADS[cell.factors["load"]]
            if context.values(f"{cell.probe}.p50", cell, arm) and (place not in chosen or distance < chosen[place][0]):
                chosen[place] = distance, cell
    return {place: cell for place, (_, cell) in chosen.items()}
