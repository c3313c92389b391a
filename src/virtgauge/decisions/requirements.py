"""From a plan's requirements to bounds on figures: every name, unit and cell checked before anything is started."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

from virtgauge.analysis.bounds import Bound
from virtgauge.analysis.rare_events import LONGEST_S
from virtgauge.errors import UsageError, nearest
from virtgauge.plan.load import Problems
from virtgauge.plan.requirements import Requirement
from virtgauge.results import quantities
from virtgauge.results.columns import Cell
from virtgauge.results.measure import Better, Measure, Watch
from virtgauge.results.quantities import Quantity
from virtgauge.specs.suites import MEASURES, find_measure


@dataclasses.dataclass(frozen=True)
class BoundRequirement:
    """A requirement, resolved."""

    name: str  # unique among the run's requirements
    text: str  # ``p99 of how long after its deadline a sleep wakes ≤ 100 µs``, for people
    required: Requirement  # as the plan has it
    measure: Measure  # whose figure is bounded
    quantity: Quantity  # what is bounded: the measure's, or a factor where the bound is on the ratio to the reference
    bound: Bound  # in that quantity's base unit
    confidence: float  # of the verdict
    platforms: tuple[str, ...]  # names of arms that it is for

    @property
    def relative(self) -> bool:
        """Whether the bound is on the ratio to the reference."""
        return self.required.compared_with == "reference"

    @property
    def watch(self) -> Watch | None:
        """How trials are read where the bound is over hours; None of one on each repetition."""
        return None if self.required.over_s is None else self.measure.watch

    @property
    def better(self) -> Better:
        """Which way is better: as the bound says, where it has one end only."""
        if self.bound.at_least is None:
            return Better.LOWER
        return Better.HIGHER if self.bound.at_most is None else self.measure.better

    def covers(self, cell: Cell) -> bool:
        """Whether the requirement is about this cell."""
        levels = cell.factors
        return self.measure.fits(cell) and all(
            levels.get(factor) in wanted for factor, wanted in self.required.conditions.items()
        )


def resolve(
    requirements: Sequence[Requirement],
    cells: Sequence[Cell] | None,
    platforms: Sequence[str],
    confidence: float,
    source: str,
) -> tuple[BoundRequirement, ...]:
    """Check requirements against the catalogue of measures and the cells of a design.

    Args:
        cells: None for a run's requirements, whose coverage and contradictions were checked before it began.
        platforms: the plan's, without the A/A arm.
        confidence: of verdicts that name none.
        source: what the plan is called in errors.

    Raises PlanError: an unknown suite, measure, unit, platform, factor or level; a bound that no cell of the design is
    covered by; requirements that contradict each other.
    """
    found: list[BoundRequirement] = []
    problems = Problems(source)
    for index, required in enumerate(requirements):
        where = f"{source}: require[{index}]"
        with problems.collected():
            try:
                resolved = _resolve(required, platforms, confidence)
            except UsageError as error:
                raise UsageError(f"{where}.{error.message}", error.remedy) from error
            if cells is not None:
                _require_covered(resolved, cells, where)
            found.append(dataclasses.replace(resolved, name=_unique(resolved.name, [one.name for one in found])))
    with problems.collected():
        _refuse_contradictions(found, cells or (), source)
    problems.raise_if_any()
    return tuple(found)


def _resolve(required: Requirement, platforms: Sequence[str], confidence: float) -> BoundRequirement:
    measure = find_measure(required.suite, required.measure)
    quantity = quantities.FACTOR if required.compared_with else measure.quantity
    if unknown := [name for name in required.platforms if name not in platforms]:
        raise UsageError(f"platforms: {unknown[0]!r} is no platform of the plan", f"use some of {', '.join(platforms)}")
    if required.over_s is not None:
        _require_watched(required, measure, required.over_s)

    def base(value: float | None) -> float | None:
        return None if value is None else quantity.to_base(value, required.unit)

    relation = " of the reference's" if required.compared_with else ""
    every = ", in every repetition" if required.of == "every" else ""
    conditions = ", ".join(f"{factor} {' or '.join(levels)}" for factor, levels in required.conditions.items())
    text = f"{measure.name} {required.bound_text}{relation}{every}" + (f" ({conditions})" if conditions else "")
    return BoundRequirement(
        name=required.name or text,
        text=text,
        required=required,
        measure=measure,
        quantity=quantity,
        bound=Bound(base(required.at_least), base(required.at_most)),
        confidence=required.confidence or confidence,
        platforms=required.platforms or tuple(platforms),
    )


def _require_watched(required: Requirement, measure: Measure, over_s: float) -> None:
    """Refuse what trials that watch for rare events cannot tell."""
    where = f"per = {required.per!r}" if required.per else f"during = {required.during!r}"
    known = [
        one
        for one in MEASURES[measure.suite].values()
        if one.watch is not None and (one.watch.figure == "number" or not required.per)
    ]
    if measure not in known:
        what = "counts no events" if required.per else "is of no trial that watches for a time"
        names = ", ".join(one.name for one in known)
        raise UsageError(
            f"{where}: {measure.name} {what}",
            f"leave it out, or require {names}" if known else "leave it out: no measure of the suite does",
        )
    if required.per and (required.at_most or 0) * 10 * LONGEST_S > over_s:
        raise UsageError(
            f"{where}: so many are not told apart, as a cluster may last {LONGEST_S:g} s",
            "require at most 36 an hour, or another measure without per",
        )


def _require_covered(requirement: BoundRequirement, cells: Sequence[Cell], where: str) -> None:
    """Refuse a bound that no trial of the design could ever speak of."""
    if any(requirement.covers(cell) for cell in cells):
        return
    suite, name = requirement.measure.suite, requirement.measure.name
    own = [cell.factors for cell in cells if requirement.measure.fits(cell)]
    if not own:
        raise UsageError(
            f"{where}: no trial of the plan measures {suite}.{name}",
            f"add a [[suite.{suite}]] that does, or leave the requirement out",
        )
    for factor, wanted in requirement.required.conditions.items():
        levels = sorted({cell[factor] for cell in own if factor in cell})
        if not levels:
            factors = sorted({name for cell in own for name in cell})
            raise UsageError(
                f"{where}.conditions.{factor}: {suite}.{name} has no such factor{nearest(factor, factors)}",
                f"its factors: {', '.join(factors)}",
            )
        if not set(levels) & set(wanted):
            raise UsageError(
                f"{where}.conditions.{factor} = {', '.join(wanted)}: no trial of the plan has it",
                f"the plan has {', '.join(levels)}; add the level to [[suite.{suite}]], or require one of those",
            )
    raise UsageError(
        f"{where}.conditions: no trial of the plan has all of them at once",
        f"add a [[suite.{suite}]] that combines them, or loosen them",
    )


def _refuse_contradictions(requirements: Sequence[BoundRequirement], cells: Sequence[Cell], source: str) -> None:
    """Refuse two bounds on the same figure that nothing can meet at once."""
    for one, other in itertools.permutations(requirements, 2):
        floor, ceiling = one.bound.at_least, other.bound.at_most
        if floor is None or ceiling is None or floor <= ceiling:
            continue
        same_figure = one.measure is other.measure and one.relative == other.relative
        if not same_figure or not set(one.platforms) & set(other.platforms):
            continue
        shared = next((cell for cell in cells if one.covers(cell) and other.covers(cell)), None)
        if shared is not None:
            raise UsageError(
                f"{source}: the requirements {one.name!r} and {other.name!r} contradict each other: nothing is at "
                f"least {one.quantity.text(floor)} and at most {one.quantity.text(ceiling)}",
                f"correct one of them, or give them conditions that do not both hold for {_levels(shared)}",
            )


def _levels(cell: Cell) -> str:
    return ", ".join(f"{factor} {level}" for factor, level in cell.levels if level) or "the same cell"


def _unique(name: str, taken: Sequence[str]) -> str:
    return next(
        candidate
        for candidate in itertools.chain([name], (f"{name} [{n}]" for n in itertools.count(2)))
        if candidate not in taken
    )
