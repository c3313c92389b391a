"""The isolation suite's part of a report, and its figures in the terms of the paper's claims."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from typing import ClassVar

from virtgauge.analysis.resolution import resolution_of
from virtgauge.claims.figures import Figure, Figures, measured
from virtgauge.claims.model import Cells, Level, Range, claim_file
from virtgauge.claims.papers import check_claims
from virtgauge.claims.verdicts import ClaimCheck
from virtgauge.ledger.records import ArmRecord
from virtgauge.report import headline
from virtgauge.report.headline import Headline, Measured, Said, Tone
from virtgauge.report.spec_report import SpecReport
from virtgauge.results.columns import Cell
from virtgauge.specs.context import Context
from virtgauge.specs.isolation import ISOLATION
from virtgauge.specs.isolation_formatting import (
    FULL_TIME,
    LOADING,
    TESTED,
    Resource,
    about,
    benchmark_of,
    beside,
    kept_words,
    percent,
)
from virtgauge.specs.isolation_insights import Degree, Sentence, sentences
from virtgauge.specs.isolation_paper import paper_benchmark, paper_loads
from virtgauge.specs.isolation_work import EFFORT, effort, is_free, reference, unbounded, unloaded
from virtgauge.specs.model import SuiteSpec

_ORDER = (Degree.NOT, Degree.PARTLY, Degree.ISOLATED)
"""From the worst."""
_NOTHING_LOST = 0.001
"""A loss that cannot be told from none."""
_CLOCK_CHANGED = 0.03
"""Relative: a smaller change of the clock within a trial is taken for none, as by the suite's flag."""


class IsolationReport(SpecReport):
    """What a noisy neighbour costs on each platform, and what a policy saves."""

    suite: ClassVar[str] = ISOLATION.name
    title: ClassVar[str] = ISOLATION.title
    spec: ClassVar[SuiteSpec] = ISOLATION

    def headlines_of(self, context: Context) -> tuple[Headline, ...]:
        """The resource that is kept apart worst, and how the others fare."""
        found = context.once(sentences)
        return headline.headlines(context.all_arms, lambda arm, _: _said(context, arm, found))

    def hear(self, context: Context) -> tuple[ClaimCheck, ...]:
        """Each platform that is not emulated is judged by its own figures."""
        used = [arm for arm in context.all_arms if arm.usable and not arm.emulated and arm.role != "aa"]
        return check_claims("isolation", {arm.name: claim_figures(context, arm.name) for arm in used})


def _said(context: Context, arm: ArmRecord, found: list[Sentence]) -> Said:
    own = [one for one in found if one.arm.name == arm.name and one.degree in _ORDER]
    if not own:
        tried = [cell for cell in context.cells if context.table.tried(cell, arm.name)]
        if not any(effort(context.table, cell, arm.name) for cell in tried):
            reasons = [context.table.missing_reason(EFFORT, cell, arm.name) for cell in tried]
            return Said(reasons[0] if reasons else "not measured yet", Tone.MISSING)
        return Said("measured without any load, which says nothing of isolation", Tone.SAME)
    own.sort(key=lambda one: (_ORDER.index(one.degree), one.worst.point or 0.0))
    first, *others = own
    parts = [f"{first.resource} {first.degree}: {first.text.rstrip('.').partition('; ')[0]}"]
    for degree in _ORDER:
        names = [one.resource.value for one in others if one.degree is degree]
        if names:
            parts.append(f"{' and '.join(filter(None, (', '.join(names[:-1]), names[-1])))} {degree}")
    of_reference = [one for one in found if one.arm.name == context.table.reference and one.degree in _ORDER]
    return Said("; ".join(parts), _tone(own, of_reference), headline.figures(_measured(one) for one in own))


def _measured(one: Sentence) -> Measured:
    """``disk not isolated, keeps 31 % (28–35 %)``, ``wake-up latency not isolated, 8.1× as late (7.9–8.4×)``."""
    keeps = "" if one.resource is Resource.WAKE else "keeps "
    value = f"{one.degree}, {keeps}{kept_words(one.worst, one.resource)}"
    return Measured(one.resource.value, value, resolution=resolution_of(one.worst, one.band))


def _tone(own: list[Sentence], of_reference: list[Sentence]) -> Tone:
    """Slower when any resource is kept apart worse than by the reference, else faster when any is better."""
    degrees = {one.resource: _ORDER.index(one.degree) for one in of_reference}
    steps = [_ORDER.index(one.degree) - degrees[one.resource] for one in own if one.resource in degrees]
    if any(step < 0 for step in steps):
        return Tone.SLOWER
    return Tone.FASTER if any(step > 0 for step in steps) else Tone.SAME


# -- in the terms of the paper's claims ------------------------------------------------------------------


def claim_figures(context: Context, arm: str) -> Figures:
    """An arm's figures."""
    cells = [cell for cell in context.cells if effort(context.table, cell, arm)]
    references = [cell for cell in cells if cell == reference(cell) and about(cell) is Resource.CPU]
    saving = any(_clock_changed(context, cell, arm) for cell in references)

    def missing_reason(measure: str, at: Cells) -> str:
        if at.get("energy_saving", saving) is not saving:
            verb, case = ("changes", "without") if saving else ("keeps", "with")
            return f"the processor {verb} its clock here: the paper’s case {case} energy saving does not arise"
        share = at.get("share")
        where = f", a share of {percent(share)}" if isinstance(share, float) else ""
        if isinstance(share, Range):
            where = f", shares from {percent(max(share.at_least, 0.0))} to {percent(min(share.at_most, 1.0))}"
        loads = " or ".join(
            "no load" if load == "none" else f"{load} load" for load in _listed(at, "beside").split(" or ")
        )
        policies = _listed(at, "policy") or "limit+reservation"
        on = _listed(at, "on") or TESTED
        return f"not measured: {_listed(at, 'resource')} beside {loads}, {policies} on the {on} guest{where}"

    figures = [one for cell in cells for one in _of_cell(context, cell, arm, saving)]
    return Figures(claim_file("isolation"), figures, context.table.confidence, missing_reason)


def _listed(cells: Cells, factor: str) -> str:
    level = cells.get(factor, "")
    return " or ".join(level) if isinstance(level, tuple) else str(level)


def _of_cell(context: Context, cell: Cell, arm: str, saving: bool) -> Iterator[Figure]:
    resource, loads, factors = paper_benchmark(cell), paper_loads(cell.factors["load"]), cell.factors
    if resource is None or not loads or factors["intensity"] not in FULL_TIME:
        return
    share = float(factors["share"]) / 100
    # Without a policy no guest has it and no share is declared: such a figure is of whichever is meant.
    levels: dict[str, Level] = {
        "benchmark": benchmark_of(cell),
        "load": beside(cell),
        "cores": factors["cores"],
        "policy": factors["policy"],
        "on": (TESTED, LOADING) if is_free(cell) else factors["on"],
        "share": Range() if is_free(cell) else share,
    }
    facts: dict[str, Level] = {
        "resource": resource,
        "beside": tuple(sorted(loads)),
        "energy_saving": saving,
        "left": round(1 - share if factors["on"] == LOADING else share, 9),
    }
    table = context.table
    for measure in claim_file("isolation").measures:
        if values := _values(context, measure, cell, arm):
            identical = (_values(context, measure, cell, table.aa), _values(context, measure, cell, table.reference))
            estimate = measured(values, "share", table.confidence)
            yield Figure(measure, levels, estimate, values, facts, arm, identical=identical)


def _values(context: Context, measure: str, cell: Cell, arm: str) -> Mapping[int, float]:
    """By block."""
    if measure in ("given", "under_load"):
        base = effort(context.table, unbounded(cell) if measure == "given" else unloaded(cell), arm)
        work = effort(context.table, cell, arm)
        return {block: work[block] / base[block] for block in work.keys() & base.keys() if base[block] > 0}
    if measure == "loss":  # the CPU's is what the memory's is set against, so it must be more than nothing
        lost = {block: 1 - q for block, q in context.values("q", cell, arm).items()}
        if about(cell) is Resource.CPU:
            return lost if min(lost.values(), default=0) > _NOTHING_LOST else {}
        return {block: max(value, _NOTHING_LOST) for block, value in lost.items()}
    if measure == "q_share":
        return {block: part / 100 for block, part in context.values("entitlement", cell, arm).items()}
    return context.values({"relative": "relative_work"}.get(measure, measure), cell, arm)


def _clock_changed(context: Context, cell: Cell, arm: str) -> bool:
    changes = context.values("frequency_ratio", cell, arm).values()
    return bool(changes) and abs(statistics.median(changes) - 1) > _CLOCK_CHANGED
