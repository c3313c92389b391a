"""What a run has still to measure until its requirements are decided."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from virtgauge.analysis.bounds import Outcome
from virtgauge.decisions.requirements import BoundRequirement
from virtgauge.decisions.verdicts import Judge, Verdict
from virtgauge.ledger.records import ArmRecord
from virtgauge.ledger.store import Ledger
from virtgauge.results.columns import Cell
from virtgauge.results.measure import Measure
from virtgauge.results.table import ResultTable

Needed = Callable[[str, Cell], bool]
"""Whether a further repetition of an arm in a cell would help."""


class Deciding:
    """Follows the verdicts of a run that adds repetitions until all are decided.

    Args:
        requirements: of the run.
        arms: of the manifest.
    """

    def __init__(self, requirements: Sequence[BoundRequirement], arms: Sequence[ArmRecord]) -> None:
        self._requirements = tuple(requirements)
        self._arms = tuple(arms)

    @property
    def requirements(self) -> tuple[BoundRequirement, ...]:
        return self._requirements

    def undecided(self, ledger: Ledger) -> list[Verdict]:
        """Verdicts that are inconclusive, whether or not further repetitions may decide them."""
        verdicts = Judge(self._requirements, ResultTable(ledger), any_time_valid=True).verdicts()
        return [one for one in verdicts if one.outcome is Outcome.INCONCLUSIVE]

    def open(self, undecided: Sequence[Verdict]) -> list[Verdict]:
        """Of these, the verdicts that further repetitions may still decide."""
        usable = {arm.name for arm in self._arms if arm.usable}
        return [one for one in undecided if one.arm in usable and any(cell.open for cell in one.cells)]

    def needed(self, verdicts: Sequence[Verdict]) -> Needed:
        """What to measure for these: their platforms, and what they are judged against, in the cells left open."""
        against = {arm.name for arm in self._arms if arm.role in ("reference", "aa") and arm.usable}
        places: set[tuple[str, object]] = set()
        for verdict in verdicts:
            for cell in verdict.cells:
                if cell.open:
                    for one in _with_baselines(self._measure(verdict.requirement), cell.cell):
                        places |= {(arm, _loose(one)) for arm in {verdict.arm, *against}}
        return lambda arm, cell: (arm, _loose(cell)) in places

    def _measure(self, requirement: str) -> Measure:
        return next(one.measure for one in self._requirements if one.name == requirement)


def _with_baselines(measure: Measure, cell: Cell) -> list[Cell]:
    """The cell, and the one that its figure is divided by."""
    base = measure.relative_to(cell.factors) if measure.relative_to else None
    return [cell] if base is None else [cell, Cell(cell.suite, cell.probe, tuple(base.items()))]


def _loose(cell: Cell) -> object:
    """The cell, whatever the order of its factors."""
    return cell.suite, cell.probe, frozenset(cell.levels)
