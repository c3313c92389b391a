"""Verdicts: each requirement judged for each platform, on the figures of a run, and what it has still to measure.

A requirement that covers several cells, or several hosts of a fleet, is met when every one of them meets it.  Six
guards stand above the interval:

- **A/A.**  What identical arms still differ by on this machine is the least that a figure may be off; a margin within
  that band decides nothing.  A bound on the ratio to the reference cannot be decided at all without an A/A pair.
- **silence.**  Valid trials without the figure (too few values for a quantile, for they were cut short) are as a rule
  the slow ones.  Where more than a tenth of them are silent, the others do not stand for all, and more of them would
  not help.
- **Bounds.**  A figure that may be higher than what was measured fails no lower bound, and keeps no upper one; of a
  ratio whose reference may be higher the reverse holds.
- **Trials in vain.**  What nothing may exceed for hours is not met where a trial that was begun told nothing: what it
  met may have ended it.
- **Emulation.**  Figures of an emulated machine say nothing of the hypervisor's speed: they are shown, not judged.
- **Another computer.**  The ratio to a reference that ran on another computer is one of computers, too, and not judged.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

from virtgauge.analysis.bounds import Decision, Outcome, decide
from virtgauge.analysis.comparison import aa_band, band_of, paired_difference, paired_ratio
from virtgauge.analysis.estimate import Estimate
from virtgauge.analysis.rare_events import decide_rate, decide_silence, growth_p, return_level
from virtgauge.claims.verdicts import Verdict as OfClaim
from virtgauge.claims.verdicts import of_platforms
from virtgauge.decisions.requirements import BoundRequirement
from virtgauge.ledger.records import ArmRecord, HostRecord
from virtgauge.ledger.store import Ledger
from virtgauge.results.columns import Cell
from virtgauge.results.table import Blocks, ResultTable, too_many
from virtgauge.specs.suites import contexts_of

_Told = TypeVar("_Told")
_GROWS_P = 0.01  # That clusters come more often by chance is less likely where it is told


@dataclasses.dataclass(frozen=True)
class CellVerdict:
    """A requirement on one cell of one platform."""

    # suite, probe, factors: the cell
    suite: str
    probe: str
    factors: dict[str, str]
    host: str  # of a fleet, that it is judged on; empty where there is one host only
    outcome: Outcome  # after the guards
    estimate: Estimate  # the figure with the interval that decided, in the requirement's base unit
    margin: float | None  # how far the figure is within the bound (negative: beyond), as a share of the bound
    trials: tuple[int, ...]  # numbers of the trials behind it
    more: int | None  # about how many more repetitions would decide it; 0 when decided, None when that cannot be told
    open: bool  # further repetitions may decide it
    reason: str  # in words

    @property
    def cell(self) -> Cell:
        """The cell by which the figures are addressed."""
        return Cell(self.suite, self.probe, tuple(self.factors.items()))


@dataclasses.dataclass(frozen=True)
class Verdict:
    """A requirement on one platform."""

    requirement: str  # by its name
    arm: str  # the platform
    outcome: Outcome | None  # None where it is not judged: the platform was skipped, is emulated, or elsewhere
    # the cell that the verdict rests on: the one that failed, is undecided, or passed with least margin; None without
    # any
    decisive: CellVerdict | None
    cells: tuple[CellVerdict, ...]  # all of them
    reason: str  # in words

    @property
    def open(self) -> bool:
        """Whether further repetitions may still decide it."""
        return any(cell.open for cell in self.cells)

    @property
    def more(self) -> int | None:
        """About how many more repetitions would decide it; None when that cannot be told."""
        open_cells = [cell for cell in self.cells if cell.outcome is Outcome.INCONCLUSIVE]
        numbers = [cell.more for cell in open_cells]
        return None if None in numbers else max((number for number in numbers if number is not None), default=0)


class Judge:
    """Judges requirements on the figures of a run; of a fleet's, a requirement has to be met on each host.

    Intervals hold whenever one stops (``any_time_valid``) where repetitions are added until all is decided.
    """

    def __init__(self, requirements: Sequence[BoundRequirement], table: ResultTable, *, any_time_valid: bool) -> None:
        self.requirements = tuple(requirements)
        self._table = table
        self._arms = {arm.name: arm for arm in table.arms}
        self._any_time_valid = any_time_valid
        self._hosts: tuple[HostRecord | None, ...] = table.manifest.hosts or (None,)

    def verdicts(self) -> list[Verdict]:
        """Every requirement on every platform that it is for."""
        self._table.read(one.measure for one in self.requirements)
        return [
            self._verdict(requirement, name)
            for requirement in self.requirements
            for name in requirement.platforms
            if name in self._arms and not (requirement.relative and name == self._table.reference)
        ]

    def _verdict(self, requirement: BoundRequirement, name: str) -> Verdict:
        arm = self._arms[name]
        if not arm.usable:
            outcome = Outcome.INCONCLUSIVE if requirement.required.platforms else None
            return Verdict(requirement.name, name, outcome, None, (), f"not measured: {arm.reason}")
        table = self._table
        tried = [cell for cell in table.cells() if requirement.covers(cell) and table.tried(cell, name)]
        places = [(cell, host) for cell in tried for host in self._hosts if host is None or name in host.arms]
        cells = tuple(self._cell(requirement, name, cell, host, len(places)) for cell, host in places)
        if arm.emulated:
            reason = f"{arm.mark}: its figures say nothing of the hypervisor's speed"
            return Verdict(requirement.name, name, None, _decisive(cells), cells, reason)
        if requirement.relative and (apart := table.elsewhere(name)):
            return Verdict(requirement.name, name, None, None, (), f"{apart}: the ratio is one of computers, too")
        if not cells:
            return Verdict(requirement.name, name, Outcome.INCONCLUSIVE, None, (), "no trial of it could tell")
        decisive = _decisive(cells)
        assert decisive is not None
        return Verdict(requirement.name, name, decisive.outcome, decisive, cells, decisive.reason)

    def _cell(
        self, requirement: BoundRequirement, arm: str, cell: Cell, host: HostRecord | None, cells: int
    ) -> CellVerdict:
        table, measure = self._table, requirement.measure
        # At 0, so that they count, whatever was tried.
        below = dict.fromkeys(table.endings.flagged(cell, arm, measure.below_by), 0.0)
        own = figures = _of_host({**below, **table.values(measure, cell, arm)}, host)
        numbers = table.numbers(cell, arm)
        trials = tuple(numbers[block] for block in own)
        if requirement.relative:
            base = _of_host(table.values(measure, cell, table.reference), host)
            figures = {block: value / base[block] for block, value in own.items() if base.get(block, 0) > 0}
            numbers = table.numbers(cell, table.reference)
            trials += tuple(numbers[block] for block in figures)
        decision = self._decision(requirement, cell, arm, host, figures, cells)
        silence = self._bounded(requirement, cell, arm, host, decision)
        lasting = silence is not None  # however often it is repeated
        if silence is None and decision.outcome is not Outcome.FAIL:
            silence, lasting = self._silence(requirement, cell, arm, host, figures)
        guard = silence or self._guard(requirement, cell, host, decision)
        outcome = decision.outcome if guard is None else Outcome.INCONCLUSIVE
        return CellVerdict(
            suite=cell.suite,
            probe=cell.probe,
            factors=cell.factors,
            host="" if host is None else host.name,
            outcome=outcome,
            estimate=decision.estimate,
            margin=decision.margin,
            trials=trials,
            more=decision.more if guard is None else None,
            open=outcome is Outcome.INCONCLUSIVE and decision.estimate.n > 0 and not lasting,
            reason=guard or (decision.reason if figures else table.missing_reason(measure, cell, arm)),
        )

    def _decision(
        self, of: BoundRequirement, cell: Cell, arm: str, host: HostRecord | None, figures: Blocks, cells: int
    ) -> Decision:
        """What the figures alone say."""
        values, unit, watch, over_s = [*figures.values()], of.quantity.unit, of.watch, of.required.over_s
        at_any_time, every = self._any_time_valid, of.required.of == "every"
        if watch is None or over_s is None:
            return decide(values, of.bound, unit, of.confidence, cells=cells, every=every, any_time_valid=at_any_time)
        told = self._table.details(cell, arm, watch.paths, watch.read)
        watched = [told[block] for block in sorted(figures)]
        seconds = sum(one.seconds for one in watched)
        if of.required.per:
            # What ended without a result may have had one more.
            lost = self._in_vain(cell, arm, host)
            seen = sum(one.least for one in watched), sum(one.most for one in watched) + len(lost)
            most = of.bound.at_most or 0.0
            decision = decide_rate(
                seen, len(watched), seconds, most, over_s, of.confidence, cells=cells, any_time_valid=at_any_time
            )
            return _with_growth(decision, [(one.seconds, one.most) for one in watched])
        found = decide_silence(values, seconds, of.bound, over_s, unit, of.confidence)
        if watch.figure != "size" or not seconds:
            return found
        peaks, floor = [peak for one in watched for peak in one.peaks], max(one.floor for one in watched)
        level = return_level(peaks, floor, seconds, over_s, unit, of.confidence)
        if level.point is None:
            return dataclasses.replace(found, reason=f"{found.reason}; no larger one is foretold: {level.method}")
        point, low, high = (of.quantity.text(end) for end in (level.point, level.low, level.high))
        expected = f"its peaks, extrapolated, exceed {point} once in {of.required.during} ({low} to {high})"
        return dataclasses.replace(found, reason=f"{found.reason}; {expected}")

    def _in_vain(self, cell: Cell, arm: str, host: HostRecord | None) -> list[str]:
        """How each trial ended that was begun in vain."""
        ended = self._table.endings.in_vain(cell, arm)
        return [how for block, how in ended if host is None or host.owns(block)]

    def _silence(
        self, requirement: BoundRequirement, cell: Cell, arm: str, host: HostRecord | None, told: Collection[int]
    ) -> tuple[str | None, bool]:
        """Why the figures that there are do not stand for all repetitions, and whether more would not help; None where
        they do.  Others may not fail.
        """
        if requirement.watch is not None:
            lost = self._in_vain(cell, arm, host)
            if not lost or requirement.required.per:
                return None, False
            return f"trials begun in vain: {len(lost)}, and what happened then is not known ({lost[-1]})", True
        measure, table = requirement.measure, self._table
        own = [(cell, arm), *(place for place in table.bases(measure, cell, arm) if place[1] == arm)]
        # A guest that fails in what a figure is relative to tells as much of its platform as one that fails here.
        failed = {block: how for place in own for block, how in _of_host(table.endings.failed(*place), host).items()}
        arms = [arm, table.reference] if requirement.relative else [arm]
        places = [place for one in arms for place in [(cell, one), *table.bases(measure, cell, one)]]
        first, *others = (table.numbers(*place) for place in places)
        valid = set(_of_host(first, host)).intersection(*others)
        lacking, every = len(valid.difference(told)), requirement.required.of == "every"
        silent, tried = lacking + len(failed), len(valid) + len(failed)
        if not (silent if every else too_many(silent, tried)):
            return None, False
        if failed:
            *_, last = failed.values()
            said = f"{silent} of {tried} repetitions have no such figure, and {len(failed)} of them failed ({last})"
            return said, every or too_many(lacking, len(valid))
        found = f"{silent} of {len(valid)} valid repetitions have no such figure"
        if requirement.relative:
            return f"{found} beside the reference, whose own may be missing or zero", True
        return f"{found}: {measure.lacking or 'what a trial tells does not say'}", True

    def _bounded(
        self, of: BoundRequirement, cell: Cell, arm: str, host: HostRecord | None, decision: Decision
    ) -> str | None:
        """Why a figure that may be higher does not decide; None where it does all the same."""
        if decision.outcome is Outcome.INCONCLUSIVE:
            return None
        # The bounds on which the outcome turns around if the figure is higher than told, or lower.
        if_higher, if_lower = of.bound.at_most, of.bound.at_least
        if decision.outcome is Outcome.FAIL:
            if_higher, if_lower = if_lower, if_higher
        arms = [arm] if if_higher is not None else []
        arms += [self._table.reference] if of.relative and if_lower is not None else []
        every = of.required.of == "every"
        if not any(self._table.may_be_higher(of.measure, cell, one, host, every=every) for one in arms):
            return None
        whose = "one of the figures" if of.relative else "the figure"
        return f"{whose} is a lower bound, for what limited it is not what is tested: more repetitions would not help"

    def _guard(
        self, requirement: BoundRequirement, cell: Cell, host: HostRecord | None, decision: Decision
    ) -> str | None:
        """Why identical arms forbid a verdict that the interval allows; None where they do not."""
        point = decision.estimate.point
        no_estimate = requirement.required.of == "every" or requirement.watch is not None
        if decision.outcome is Outcome.INCONCLUSIVE or point is None or no_estimate:
            return None
        table = self._table
        identical, reference = (
            _of_host(table.values(requirement.measure, cell, arm), host) for arm in (table.aa, table.reference)
        )
        if not identical:
            return "without an A/A pair nothing is shown of a ratio" if requirement.relative else None
        end = requirement.bound.nearest(point)
        if requirement.relative or (point > 0 and end > 0):
            band = aa_band(paired_ratio(identical, reference, requirement.confidence))
            if band is None:
                return "the A/A pair gave no interval yet" if requirement.relative else None
            if point > 0 and end > 0 and abs(math.log(point / end)) <= math.log(band):
                return f"identical arms (A/A) may seem to differ by a factor of {band:.3g}, and the margin is smaller"
            return None
        unit = requirement.quantity.unit
        width = band_of([paired_difference(identical, reference, unit, requirement.confidence)])
        if width is not None and 0 < abs(point - end) <= width:
            return (
                f"identical arms (A/A) may seem to differ by {requirement.quantity.text(width)}, more than the margin"
            )
        return None


def _with_growth(decision: Decision, course: Sequence[tuple[float, int]]) -> Decision:
    """With a word on clusters that come ever more often: bounds are of the mean rate of the time that was watched."""
    if (p := growth_p(course)) >= _GROWS_P:
        return decision
    words = f"they came ever more often (p = {p:.2g}): that is the mean of the time watched, and more may follow"
    return dataclasses.replace(decision, reason=f"{decision.reason}; {words}")


def _of_host(by_block: Mapping[int, _Told], host: HostRecord | None) -> Mapping[int, _Told]:
    """What is of one host of a fleet; all of it where there is one host only."""
    return by_block if host is None else {block: one for block, one in by_block.items() if host.owns(block)}


def _decisive(cells: Sequence[CellVerdict]) -> CellVerdict | None:
    """What the verdict rests on: a cell that failed before one that is undecided, else the one with least margin."""
    order = {Outcome.FAIL: 0, Outcome.INCONCLUSIVE: 1, Outcome.PASS: 2}
    return min(
        cells, key=lambda cell: (order[cell.outcome], math.inf if cell.margin is None else cell.margin), default=None
    )


Needed = Callable[[str, Cell], bool]  # Whether a further repetition of an arm in a cell would help


def undecided(requirements: Sequence[BoundRequirement], ledger: Ledger) -> list[Verdict]:
    """Verdicts of a run that adds repetitions which are inconclusive, whether or not further ones may decide them."""
    verdicts = Judge(requirements, ResultTable(ledger), any_time_valid=True).verdicts()
    return [one for one in verdicts if one.outcome is Outcome.INCONCLUSIVE]


def needed_for(
    verdicts: Sequence[Verdict], requirements: Sequence[BoundRequirement], arms: Sequence[ArmRecord]
) -> Needed:
    """What to measure for these: their platforms, and what they are judged against, in the cells left open.

    What is required over hours is judged against nothing.
    """
    references = {arm.name for arm in arms if arm.role in ("reference", "aa") and arm.usable}
    reference = next((arm.name for arm in arms if arm.role == "reference"), "")
    known = {one.name: one for one in requirements}
    places: set[tuple[str, object]] = set()
    for verdict in verdicts:
        for cell in verdict.cells:
            if cell.open:
                required = known[verdict.requirement]
                for arm in {verdict.arm, *(references if required.watch is None else ())}:
                    found = {(cell.cell, arm), *required.measure.bases(cell.cell, arm, reference)}
                    places |= {(arm, _loose(one)) for one, arm in found}
    return lambda arm, cell: (arm, _loose(cell)) in places


def _loose(cell: Cell) -> object:
    """The cell, whatever the order of its factors."""
    return cell.suite, cell.probe, frozenset(cell.levels)


# The papers' conclusions, by suite; suites without any are left out. False where other platforms decide it as a whole
Names = dict[str, dict[str, bool]]
_NO_VERDICT = (OfClaim.UNDECIDED, OfClaim.UNTESTABLE)


def open_claims(ledger: Ledger, most: int = sys.maxsize) -> tuple[Names, Names]:
    """The papers' conclusions that a run leaves open though it has figures of them: those that so many repetitions may
    decide on some platform, and those that stay so however often is repeated.
    """
    table = ResultTable(ledger)
    found: tuple[Names, Names] = ({}, {})
    for context in contexts_of(table):
        table.read(context.spec.measures)
        for one in context.spec.claims(context):
            heard = [hearing.checked for hearing in one.run if hearing.checked.verdict in _NO_VERDICT]
            evidence = [each for checked in heard for each in checked.evidence]
            is_open = any(each.agrees is None and each.needs <= most for each in evidence)
            if is_open or (heard and len(heard) == len(one.run)):
                as_a_whole = of_platforms(one.run) in _NO_VERDICT
                found[not is_open].setdefault(context.spec.name, {})[one.paper.name] = as_a_whole
    return found


def needed_for_claims(claims: Names, ledger: Ledger) -> Needed:
    """What to measure for these: every cell of their suites, on what decides and on what that is compared with."""
    arms = {arm.name for arm in ledger.manifest().arms if arm.usable and (not arm.emulated or arm.role != "test")}
    return lambda arm, cell: cell.suite in claims and arm in arms
