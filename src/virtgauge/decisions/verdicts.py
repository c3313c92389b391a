"""Verdicts: each requirement judged for each platform, on the figures of a run.

A requirement that covers several cells, or several hosts of a fleet, is met when every one of them meets it.  Three
guards stand above the interval:

- **A/A.**  What identical arms still differ by on this machine is the least that a figure may be off; a margin within
  that band decides nothing.  A bound on the ratio to the reference cannot be decided at all without an A/A pair.
- **Silence.**  Valid trials without the figure (too few values for a quantile, for they were cut short) are as a rule
  the slow ones.  Where more than a tenth of them are silent, the others do not stand for all, and more of them would
  not help.
- **Emulation.**  Figures of an emulated machine say nothing of the hypervisor's speed: they are shown, not judged.
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from virtgauge.analysis.bounds import Decision, Outcome, decide
from virtgauge.analysis.comparison import aa_band, paired_difference, paired_ratio
from virtgauge.analysis.differences import band_of
from virtgauge.analysis.estimate import Estimate
from virtgauge.decisions.requirements import BoundRequirement
from virtgauge.ledger.records import ArmRecord, HostRecord, TrialRecord, TrialStatus
from virtgauge.measures.measure import Measure
from virtgauge.measures.values import CellKey, MeasuredValue, MeasuredValues, cell_key

Levels = frozenset[tuple[str, str]]
"""Of a cell's factors."""

_SILENT = 0.1
"""Of the valid repetitions at most this part may be without the figure."""


@dataclasses.dataclass(frozen=True)
class CellVerdict:
    """A requirement on one cell of one platform.

    Attributes:
        suite, probe, factors: the cell.
        host: of a fleet, that it is judged on; empty where there is one host only.
        outcome: after the guards.
        estimate: the figure with the interval that decided, in the requirement's base unit.
        margin: how far the figure is within the bound (negative: beyond), as a share of the bound.
        trials: numbers of the trials behind it.
        more: about how many more repetitions would decide it; 0 when decided, None when that cannot be told.
        open: further repetitions may decide it.
        reason: in words.
    """

    suite: str
    probe: str
    factors: dict[str, str]
    host: str
    outcome: Outcome
    estimate: Estimate
    margin: float | None
    trials: tuple[int, ...]
    more: int | None
    open: bool
    reason: str

    @property
    def key(self) -> CellKey:
        """As the figures are addressed."""
        return self.suite, self.probe, tuple(self.factors.items())


@dataclasses.dataclass(frozen=True)
class Verdict:
    """A requirement on one platform.

    Attributes:
        requirement: by its name.
        arm: the platform.
        outcome: None where it is not judged: the platform was skipped, or is emulated.
        decisive: the cell that the verdict rests on: the one that failed, is undecided, or passed with least margin;
            None without any.
        cells: all of them.
        reason: in words.
    """

    requirement: str
    arm: str
    outcome: Outcome | None
    decisive: CellVerdict | None
    cells: tuple[CellVerdict, ...]
    reason: str

    @property
    def more(self) -> int | None:
        """About how many more repetitions would decide it; None when that cannot be told."""
        open_cells = [cell for cell in self.cells if cell.outcome is Outcome.INCONCLUSIVE]
        numbers = [cell.more for cell in open_cells]
        return None if None in numbers else max((number for number in numbers if number is not None), default=0)


class Judge:
    """Judges requirements on the figures of a run.

    Args:
        requirements: as :func:`virtgauge.decisions.requirements.understand` made them.
        arms: of the manifest, those that were skipped and the A/A arm among them.
        trials: of the run, valid or not: a cell without a figure is a cell that is not decided.
        hosts: of a fleet's run: a requirement has to be met on each of them.
        any_time_valid: repetitions are added until all is decided, so intervals must hold whenever one stops.
    """

    def __init__(
        self,
        requirements: Sequence[BoundRequirement],
        arms: Sequence[ArmRecord],
        trials: Sequence[TrialRecord],
        hosts: Sequence[HostRecord] = (),
        *,
        any_time_valid: bool,
    ) -> None:
        self.requirements = tuple(requirements)
        self._arms = {arm.name: arm for arm in arms}
        self._reference = next((arm.name for arm in arms if arm.role == "reference"), "")
        self._aa = next((arm.name for arm in arms if arm.role == "aa" and arm.usable), None)
        self._any_time_valid = any_time_valid
        self._last = {(cell_key(trial), trial.arm): trial for trial in trials}
        self._valid: defaultdict[tuple[str, str, Levels, str], set[int]] = defaultdict(set)
        for trial in trials:
            if trial.status is TrialStatus.VALID:
                self._valid[trial.suite, trial.probe, frozenset(trial.factors.items()), trial.arm].add(trial.block)
        self._hosts: tuple[HostRecord | None, ...] = tuple(hosts) or (None,)
        self._cells = list(dict.fromkeys(cell for cell, _ in self._last))

    def verdicts(self, values: MeasuredValues) -> list[Verdict]:
        """Every requirement on every platform that it is for."""
        return [
            self._verdict(requirement, name, values)
            for requirement in self.requirements
            for name in requirement.platforms
            if name in self._arms and not (requirement.relative and name == self._reference)
        ]

    def _verdict(self, requirement: BoundRequirement, name: str, values: MeasuredValues) -> Verdict:
        arm = self._arms[name]
        if not arm.usable:
            outcome = Outcome.INCONCLUSIVE if requirement.required.platforms else None
            return Verdict(requirement.name, name, outcome, None, (), f"not measured: {arm.reason}")
        keys = [cell for cell in self._cells if requirement.covers(cell) and (cell, name) in self._last]
        places = [(key, host) for key in keys for host in self._hosts if host is None or name in host.arms]
        cells = tuple(self._cell(requirement, name, key, host, len(places), values) for key, host in places)
        if arm.emulated:
            reason = "emulated: its figures say nothing of the hypervisor's speed"
            return Verdict(requirement.name, name, None, _decisive(cells), cells, reason)
        if not cells:
            return Verdict(requirement.name, name, Outcome.INCONCLUSIVE, None, (), "no trial of it could tell")
        decisive = _decisive(cells)
        assert decisive is not None
        return Verdict(requirement.name, name, decisive.outcome, decisive, cells, decisive.reason)

    def _cell(
        self,
        requirement: BoundRequirement,
        arm: str,
        key: CellKey,
        host: HostRecord | None,
        cells: int,
        values: MeasuredValues,
    ) -> CellVerdict:
        own = self._of_host(requirement, key, arm, host, values)
        figures = {block: one.value for block, one in own.items()}
        trials = tuple(one.trial.trial_id for one in own.values())
        if requirement.relative:
            base = self._of_host(requirement, key, self._reference, host, values)
            shared = [block for block in own.keys() & base.keys() if base[block].value > 0]
            figures = {block: own[block].value / base[block].value for block in shared}
            trials += tuple(base[block].trial.trial_id for block in sorted(shared))
        decision = decide(
            [figures[block] for block in sorted(figures)],
            requirement.bound,
            requirement.quantity.unit,
            requirement.confidence,
            cells=cells,
            every=requirement.required.of == "every",
            any_time_valid=self._any_time_valid,
        )
        silence = None
        if decision.outcome is not Outcome.FAIL:
            silence = self._silence(requirement.measure, key, arm, host, own.keys())
        guard = silence or self._guard(requirement, key, host, decision, values)
        outcome = decision.outcome if guard is None else Outcome.INCONCLUSIVE
        suite, probe, items = key
        return CellVerdict(
            suite=suite,
            probe=probe,
            factors=dict(items),
            host="" if host is None else host.name,
            outcome=outcome,
            estimate=decision.estimate,
            margin=decision.margin,
            trials=trials,
            more=decision.more if guard is None else None,
            open=outcome is Outcome.INCONCLUSIVE and decision.estimate.n > 0 and silence is None,
            reason=guard or (decision.reason if figures else self._why_missing(key, arm)),
        )

    @staticmethod
    def _of_host(
        requirement: BoundRequirement, key: CellKey, arm: str, host: HostRecord | None, values: MeasuredValues
    ) -> dict[int, MeasuredValue]:
        """An arm's figures in a cell, by block: all of them, or those of one host of a fleet."""
        found = values.found(requirement.measure, key, arm).items()
        return {block: one for block, one in found if host is None or host.owns(block)}

    def _silence(
        self, measure: Measure, key: CellKey, arm: str, host: HostRecord | None, told: Collection[int]
    ) -> str | None:
        """Why the figures that there are do not stand for all repetitions; None where they do, or there are none."""
        suite, probe, items = key
        levels = dict(items)
        base = measure.baseline(levels) if measure.baseline else None
        each = [self._valid[suite, probe, frozenset(one.items()), arm] for one in (levels, base) if one is not None]
        valid = {block for block in set.intersection(*each) if host is None or host.owns(block)}
        silent = len(valid.difference(told))
        if not told or silent <= _SILENT * len(valid):
            return None
        return (
            f"{silent} of {len(valid)} valid repetitions have no such figure (too few values for the quantile, or none "
            "of the kind): longer trials would, more of them would not"
        )

    def _why_missing(self, key: CellKey, arm: str) -> str:
        """Why a platform has no figure in a cell, as its last trial there tells."""
        last = self._last[key, arm]
        if last.status is TrialStatus.VALID:
            return "the trials have no such figure: too few values for the quantile, or none of the kind"
        fatal = next((f"{flag.name}: {flag.detail}" for flag in last.flags if flag.fatal), "")
        return f"no valid trial; the last was {last.status.value}: {last.error or fatal}"

    def _guard(
        self,
        requirement: BoundRequirement,
        key: CellKey,
        host: HostRecord | None,
        decision: Decision,
        values: MeasuredValues,
    ) -> str | None:
        """Why identical arms forbid a verdict that the interval allows; None where they do not."""
        point = decision.estimate.point
        if decision.outcome is Outcome.INCONCLUSIVE or point is None or requirement.required.of == "every":
            return None
        identical, reference = self._identical(requirement, key, host, values)
        if not identical:
            return "without an A/A pair nothing is shown of a ratio" if requirement.relative else None
        end = requirement.bound.nearest(point)
        if point > 0 and end > 0:
            band = aa_band(paired_ratio(identical, reference, requirement.confidence))
            if band is None:
                return "the A/A pair gave no interval yet" if requirement.relative else None
            if abs(math.log(point / end)) <= math.log(band):
                return f"identical arms (A/A) may seem to differ by a factor of {band:.3g}, and the margin is smaller"
            return None
        unit = requirement.quantity.unit
        width = band_of([paired_difference(identical, reference, unit, requirement.confidence)])
        if width is not None and 0 < abs(point - end) <= width:
            return (
                f"identical arms (A/A) may seem to differ by {requirement.quantity.text(width)}, more than the margin"
            )
        return None

    def _identical(
        self, requirement: BoundRequirement, key: CellKey, host: HostRecord | None, values: MeasuredValues
    ) -> tuple[Mapping[int, float], Mapping[int, float]]:
        """The figures of the A/A arm and of the reference, by block; empty without such an arm."""
        if self._aa is None:
            return {}, {}
        pair = [self._of_host(requirement, key, arm, host, values) for arm in (self._aa, self._reference)]
        identical, reference = ({block: one.value for block, one in found.items()} for found in pair)
        return identical, reference


def _decisive(cells: Sequence[CellVerdict]) -> CellVerdict | None:
    """What the verdict rests on: a cell that failed before one that is undecided, else the one with least margin."""
    order = {Outcome.FAIL: 0, Outcome.INCONCLUSIVE: 1, Outcome.PASS: 2}
    return min(
        cells, key=lambda cell: (order[cell.outcome], math.inf if cell.margin is None else cell.margin), default=None
    )
