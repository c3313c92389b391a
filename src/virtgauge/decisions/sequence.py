"""What a run has still to measure until its requirements are decided."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from virtgauge.analysis.bounds import Outcome
from virtgauge.decisions.requirements import BoundRequirement
from virtgauge.decisions.verdicts import Judge, Verdict
from virtgauge.ledger.records import ArmRecord
from virtgauge.ledger.store import Ledger
from virtgauge.measures.measure import Measure
from virtgauge.measures.values import CellKey, MeasuredValues

Needed = Callable[[str, CellKey], bool]
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
        """Verdicts that further repetitions may still decide."""
        verdicts = judged(ledger, self._requirements, self._arms, any_time_valid=True)
        usable = {arm.name for arm in self._arms if arm.usable}
        return [
            one
            for one in verdicts
            if one.outcome is Outcome.INCONCLUSIVE and one.arm in usable and any(cell.open for cell in one.cells)
        ]

    def needed(self, verdicts: Sequence[Verdict]) -> Needed:
        """What to measure for these: their platforms, and what they are judged against, in the cells left open."""
        against = {arm.name for arm in self._arms if arm.role in ("reference", "aa") and arm.usable}
        places: set[tuple[str, CellKey]] = set()
        for verdict in verdicts:
            for cell in verdict.cells:
                if cell.open:
                    for key in _with_baselines(self._measure(verdict.requirement), cell.key):
                        places |= {(arm, key) for arm in {verdict.arm, *against}}
        loose = {(arm, frozenset(key[2]), key[:2]) for arm, key in places}
        return lambda arm, key: (arm, frozenset(key[2]), key[:2]) in loose

    def _measure(self, requirement: str) -> Measure:
        return next(one.measure for one in self._requirements if one.name == requirement)


def _with_baselines(measure: Measure, key: CellKey) -> list[CellKey]:
    """The cell, and the one that its figure is divided by."""
    base = measure.baseline(dict(key[2])) if measure.baseline else None
    return [key] if base is None else [key, (key[0], key[1], tuple(base.items()))]


def judged(
    ledger: Ledger, requirements: Sequence[BoundRequirement], arms: Sequence[ArmRecord], *, any_time_valid: bool
) -> list[Verdict]:
    """The verdicts on what a ledger holds."""
    trials = ledger.trials()
    values = MeasuredValues.read(ledger, {one.measure.full_name: one.measure for one in requirements}.values(), trials)
    return Judge(requirements, arms, trials, any_time_valid=any_time_valid).verdicts(values)
