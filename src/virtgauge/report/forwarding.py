"""The forwarding suite's part of a report, and its figures in the terms of the paper's claims."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import ClassVar

from virtgauge.claims.figures import Figure, Figures, measured
from virtgauge.claims.model import Cells, Level, claim_file
from virtgauge.claims.papers import check_claims
from virtgauge.claims.verdicts import ClaimCheck
from virtgauge.ledger.records import ArmRecord
from virtgauge.report.spec_report import SpecReport
from virtgauge.results.columns import Cell
from virtgauge.results.measure import Measure
from virtgauge.specs.context import Context
from virtgauge.specs.forwarding import FORWARDING
from virtgauge.specs.forwarding_insights import INTERFACES, interfaces_of, jain_of, loads, settings_of, two_level
from virtgauge.specs.forwarding_measures import at_load
from virtgauge.specs.model import SuiteSpec


class ForwardingReport(SpecReport):
    """What each platform carries, how late, and where lost frames went."""

    suite: ClassVar[str] = FORWARDING.name
    title: ClassVar[str] = FORWARDING.title
    spec: ClassVar[SuiteSpec] = FORWARDING

    def hear(self, context: Context) -> tuple[ClaimCheck, ...]:
        return check_claims("forwarding", {"": claim_figures(context)})


def claim_figures(context: Context) -> Figures:
    """What was measured with the paper's load vectors, on platforms with interfaces of their own: T and L_tot."""
    arms = [arm for arm in context.all_arms if arm.usable and arm.role != "aa" and interfaces_of(arm) is not None]
    cells = [cell for cell in context.where({"vector": two_level}) if jain_of(context, cell) is not None]
    found = [one for cell in cells for arm in arms for one in _of_cell(context, cell, arm)]

    def missing_reason(measure: str, cells: Cells) -> str:
        words = INTERFACES.get(cells.get("platform"), "")  # type: ignore[call-overload]
        if any(one.facts["platform"] == cells.get("platform") for one in found):
            return f"no figures at the levels that it is about, with {words}"
        return f"no platform with {words}" if words else "no figures at the levels that it is about"

    return Figures(claim_file("forwarding"), found, context.table.confidence, missing_reason)


def _of_cell(context: Context, cell: Cell, arm: ArmRecord) -> Iterator[Figure]:
    throughput = context.spec.measure("throughput_bits")
    yield from _figure(context, cell, arm, 100.0, throughput, "throughput_mbps", "Mbit/s", throughput, 1e-6)
    for percent in loads(context, [cell]):
        entry = at_load(percent)
        yield from _figure(context, cell, arm, percent, entry["offered"], "latency_us", "us", entry["latency"], 1e-3)


def _figure(
    context: Context,
    cell: Cell,
    arm: ArmRecord,
    percent: float,
    offered: Measure,
    name: str,
    unit: str,
    measure: Measure,
    factor: float,
) -> Iterator[Figure]:
    """A measure's figure at a part of the throughput, in the unit of the claims; none where it was not measured."""
    table = context.table
    values, aa, reference = (
        {block: factor * one for block, one in table.values(measure, cell, name).items()}
        for name in (arm.name, table.aa, table.reference)
    )
    load = context.table.values(offered, cell, arm.name).values()
    if not values:
        return
    levels: dict[str, Level] = {
        "design": context.level(cell, "design"),
        "settings": f"{arm.kind} {sorted(settings_of(arm).items(), key=str)}",
        "frame_bytes": float(context.level(cell, "frame_bytes")),
        "jain": jain_of(context, cell) or 0.0,
        "load": percent,
    }
    facts: dict[str, Level] = {
        "platform": str(interfaces_of(arm)),
        "load_mbps": statistics.median(load) / 1e6 if load else 0.0,
    }
    estimate = measured(values, unit, context.table.confidence)
    yield Figure(name, levels, estimate, values, facts, arm.name, arm.label, arm.emulated, (aa, reference))
