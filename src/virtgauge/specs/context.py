"""A suite's declaration beside a run's results: what tables, charts and insights are made from."""

from __future__ import annotations

import dataclasses
import functools
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from virtgauge.analysis.comparison import paired_ratio
from virtgauge.analysis.estimate import Estimate, median_estimate
from virtgauge.claims.figures import Figure, measured
from virtgauge.claims.model import Level, claim_file
from virtgauge.ledger.records import ArmRecord
from virtgauge.results.columns import Cell
from virtgauge.results.measure import Better, Measure
from virtgauge.results.quantities import Quantity
from virtgauge.results.table import Blocks, ResultTable
from virtgauge.specs.blocks import Place, Value
from virtgauge.specs.model import SuiteSpec, Where

_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True)
class Context:
    """One suite of one run."""

    spec: SuiteSpec
    table: ResultTable
    all_arms: tuple[ArmRecord, ...]  # of the run, those that were skipped among them; each with a label of its own
    facts: Mapping[str, Mapping[str, Any]]  # by arm, as its first guest's agent saw them
    _made: dict[Callable[[Context], Any], Any] = dataclasses.field(default_factory=dict, repr=False)
    _known: dict[str, dict[tuple[str, ...], list[Cell]]] = dataclasses.field(default_factory=dict, repr=False)

    def once(self, make: Callable[[Context], _T]) -> _T:
        """What a function makes of this context, which it is asked for once."""
        if make not in self._made:
            self._made[make] = make(self)
        found: _T = self._made[make]
        return found

    @functools.cached_property
    def cells(self) -> list[Cell]:
        """Every cell of the suite that was tried, ordered by its factors."""
        groups = self.groups(self.table.cells(self.spec.name), [one.name for one in self.spec.factors])
        return [cell for group in groups.values() for cell in group]

    @functools.cached_property
    def arms(self) -> list[ArmRecord]:
        """Arms with trials: the reference, its A/A, then by the plan, emulated ones last."""
        rank = {"reference": 0, "aa": 1}
        tried = [arm for arm in self.all_arms if any(self.table.tried(cell, arm.name) for cell in self.cells)]
        return sorted(tried, key=lambda arm: (arm.emulated, rank.get(arm.role, 2)))

    @functools.cached_property
    def own_arms(self) -> list[ArmRecord]:
        """Those that are told of by themselves: all but the A/A arm."""
        return [arm for arm in self.arms if arm.role != "aa"]

    @functools.cached_property
    def usable_arms(self) -> list[ArmRecord]:
        """Those of the run that could be measured, but for the A/A arm."""
        return [arm for arm in self.all_arms if arm.usable and arm.role != "aa"]

    def arm(self, name: str) -> ArmRecord:
        """An arm by name."""
        return next(one for one in self.all_arms if one.name == name)

    def ranked(self, arm: str) -> bool:
        """Whether a difference from the reference is one of platforms: of no emulated one, and on one computer."""
        return not self.arm(arm).emulated and not self.table.elsewhere(arm)

    def level(self, cell: Cell, factor: str) -> str:
        """A cell's level of a factor."""
        return self.spec.factor(factor).level(cell)

    def text(self, cell: Cell, factor: str) -> str:
        """The level of a factor for people."""
        return self.spec.factor(factor).text(self.level(cell, factor))

    def fits(self, cell: Cell, where: Where) -> bool:
        """Whether a cell has these levels."""
        levels = ((self.level(cell, factor), wanted) for factor, wanted in where.items())
        return all(wanted(level) if callable(wanted) else level in wanted for level, wanted in levels)

    def where(self, where: Where) -> list[Cell]:
        """The cells that have these levels."""
        return [cell for cell in self.cells if self.fits(cell, where)]

    def groups(self, cells: Iterable[Cell], factors: Sequence[str]) -> dict[tuple[str, ...], list[Cell]]:
        """Cells by their levels of some factors, in the order of the factors' levels."""
        found: dict[tuple[str, ...], list[Cell]] = {}
        for cell in cells:
            found.setdefault(tuple(self.level(cell, one) for one in factors), []).append(cell)
        declared = [self.spec.factor(one) for one in factors]
        tried = [list(dict.fromkeys(key[place] for key in found)) for place in range(len(factors))]
        ordered = sorted(
            found, key=lambda key: [one.rank(level, of) for one, level, of in zip(declared, key, tried, strict=True)]
        )
        return {key: found[key] for key in ordered}

    def measured(self, cell: Cell, arm: str) -> bool:
        """Whether an arm has a valid trial in a cell."""
        at = self.table.trials.counted_at(cell, arm)
        return bool(at.stop > at.start)

    def place(self, cell: Cell | str, arm: str = "", against: str = "", **parts: object) -> Place:
        """What a figure is of; ``parts`` are what it is of within the cell."""
        text = cell if isinstance(cell, str) else cell.text
        return Place(self.spec.name, ";".join([text, *(f"+{name}={one}" for name, one in parts.items())]), arm, against)

    def value(
        self, measure: str | Measure, cell: Cell, arm: str, *, compared: bool = False, note: str = "", **more: Any
    ) -> Value:
        """A figure as it is shown, ``compared`` with the reference; ``more`` are fields of :class:`Value`."""
        asked = self.spec.measure(measure)
        compare = self.table.differed if asked.by_difference else self.table.compared
        beside = compared and arm != self.table.reference and self.table.has(asked, cell, arm)
        found = self.estimate(asked, cell, arm)
        if not note and found.point is not None and self.table.may_be_higher(asked, cell, arm):
            note = "at least that"
        more |= {"compared": compare(asked, cell, arm) if beside else None, "better": asked.better, "note": note}
        return self.of(asked.name, self.place(cell, arm), found, asked.quantity, **more)

    def of(self, measure: str, place: Place, estimate: Estimate, quantity: Quantity, **more: Any) -> Value:
        """A figure that an insight found; ``more`` are fields of :class:`Value`."""
        ranked = not place.arm or self.ranked(place.arm)
        return Value(measure, place, estimate, quantity, ranked=ranked, **more)

    def estimate(self, measure: str | Measure, cell: Cell, arm: str) -> Estimate:
        """A measure over repetitions, in its base unit."""
        return self.table.estimate(self.spec.measure(measure), cell, arm)

    def median(self, values: Iterable[float], quantity: Quantity) -> Estimate:
        """The median of a figure of each repetition, in the quantity's base unit."""
        return median_estimate([*values], quantity.unit, self.table.confidence)

    def middle(self, measure: str, place: Place, values: Mapping[int, float], quantity: Quantity) -> Value:
        """The middle of a figure by block, as it is shown."""
        return self.of(measure, place, self.median(values.values(), quantity), quantity)

    def values(self, measure: str | Measure, cell: Cell, arm: str, unit: str = "") -> Blocks:
        """A measure's figure of each repetition, in its base unit or in another of its quantity."""
        asked = self.spec.measure(measure)
        found, factor = self.table.values(asked, cell, arm), asked.quantity.factors[unit] if unit else 1.0
        return found if factor == 1 else {block: value / factor for block, value in found.items()}

    def claimed(self, measure: str, cell: Cell, arm: str) -> Blocks:
        """What a measure of the suite's claims is of each repetition, in their unit, where it is one of the suite's."""
        told = claim_file(self.spec.name).measures[measure]
        unit = "ratio" if told.unit in ("share", "points") else told.unit
        return self.values(told.of.format(probe=cell.probe), cell, arm, unit)

    def claim_figure(
        self, measure: str, levels: Mapping[str, Level], values: Callable[[str], Blocks], arm: ArmRecord, **more: Any
    ) -> Iterator[Figure]:
        """An arm's figure in the terms of the suite's claims; none where nothing was measured.

        Values, in the unit of the claims' measure, are an arm's by block; the identical arms' are asked for, too.
        ``more`` are fields of :class:`Figure`.
        """
        own, aa, reference = map(values, (arm.name, self.table.aa, self.table.reference))
        if own:
            found = measured(own, claim_file(self.spec.name).measures[measure].unit, self.table.claims_confidence)
            more |= {"arm": arm.name, "emulated": arm.emulated, "machine": self.table.processor(arm.name)}
            # what identical arms differ by is of the reference's computer
            identical: tuple[Blocks, Blocks] = ({}, {}) if self.table.elsewhere(arm.name) else (aa, reference)
            yield Figure(measure, levels, found, own, identical=identical, **more)

    def rank(self, measure: str, cell: Cell, arm: str, among: str) -> int | None:
        """One more than the cells that were shown to be better, of those that differ in one factor alone.

        None without a figure or without others; an emulated processor, and the A/A arm, rank nothing.
        """
        record, asked = self.arm(arm), self.spec.measure(measure)
        own = self.table.values(asked, cell, arm)
        if record.emulated or record.role == "aa" or not own:
            return None
        apart = [one.name for one in self.spec.factors if one.name != among]
        if among not in self._known:
            self._known[among] = self.groups(self.cells, apart)
        rivals = self._known[among][tuple(self.level(cell, one) for one in apart)]
        others = [found for one in rivals if one != cell and (found := self.table.values(asked, one, arm))]
        if not others:
            return None
        compared = [paired_ratio(values, own, self.table.confidence) for values in others]
        ratios = [one for one in compared if one.reaches(self.table.confidence)]
        if asked.better is Better.LOWER:
            return 1 + sum(one.high is not None and one.high < 1 for one in ratios)
        return 1 + sum(one.low is not None and one.low > 1 for one in ratios)


def marked(arm: ArmRecord) -> str:
    """An arm's label, and its mark where it has one: ``Xen (emulated)``."""
    return f"{arm.label} ({arm.mark})" if arm.mark else arm.label


def validity(context: Context, cell: Cell, arm: str) -> str:
    """``6 valid, sender-stalls: 3``: repetitions, and the flags of all attempts."""
    flags = context.table.endings.flags([cell], arm)
    return ", ".join([f"{len(context.table.numbers(cell, arm))} valid", *(f"{f}: {n}" for f, n in flags.items())])


def over_cells(
    figures: Iterable[Mapping[int, float]], middle: Callable[[Iterable[float]], float] = statistics.median
) -> dict[int, float]:
    """The middle of the figures of several cells, by block."""
    blocks: dict[int, list[float]] = {}
    for by_block in figures:
        for block, value in by_block.items():
            blocks.setdefault(block, []).append(value)
    return {block: middle(values) for block, values in blocks.items()}
