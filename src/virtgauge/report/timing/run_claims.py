"""The timing paper's conclusions about clocks and sleeps, tested on a run.

A figure with its interval over repetitions agrees when the whole interval lies within what the conclusion says, and
contradicts when the whole interval lies outside; else it does not decide.  Two arms differ only by more than identical
ones (A/A) do.  An effect that a rank test shows is significant; one that is not shown may be there all the same, so
that "not significant" can be contradicted, and never be confirmed.  Emulated platforms decide nothing.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence

from virtgauge.analysis.bootstrap import median_estimate
from virtgauge.analysis.comparison import aa_band, paired_difference, paired_ratio
from virtgauge.analysis.estimate import Estimate
from virtgauge.ledger.records import ArmRecord
from virtgauge.reference import claims
from virtgauge.reference.claims import Claim
from virtgauge.report.timing.factors import Place
from virtgauge.report.timing.run_factors import tested_factors
from virtgauge.report.timing.run_figures import RunFigures, is_virtual, paper_platform
from virtgauge.report.timing.table_rows import PARAMETERS
from virtgauge.report.verdicts import Evidence, ExaminedClaim, verdict_of, within
from virtgauge.report.words import duration, duration_interval, ratio, ratio_interval

_PLATFORM_WORDS = {"VBox": "Virtual Box", "ESXi": "VMware ESXi", "Host OS": "host"}


def run_claims(figures: RunFigures) -> tuple[ExaminedClaim, ...]:
    """Every conclusion, in the paper's order."""
    return tuple(examine(claim, figures) for claim in claims.timing_claims())


def examine(claim: Claim, figures: RunFigures) -> ExaminedClaim:
    """Carry out a conclusion's tests."""
    heard = [one for table in claim.table for test in claim.tests for one in _Court(figures, table).hear(test)]
    evidence = tuple(dict.fromkeys(heard))
    return ExaminedClaim(claim.name, claim.place, claim.text, claim.note, verdict_of(evidence), evidence)


class _Court:
    """Carries out tests on one table's worth of a run's figures."""

    def __init__(self, figures: RunFigures, table: str) -> None:
        self._figures, self._table = figures, table

    def _lacking(self, platform: str) -> str:
        """Why nothing is told of a platform."""
        name = _PLATFORM_WORDS.get(platform, platform)
        if any(paper_platform(arm) == platform for arm in self._figures.emulated):
            return f"the only {name} of this run is emulated, which decides nothing"
        return f"this run has no {name}"

    def hear(self, test: claims.Test) -> Iterator[Evidence]:
        """The evidence of one test."""
        found = list(self._hear(test))
        if found:
            yield from found
        elif not self._figures.judged:
            emulated = bool(self._figures.emulated)
            yield Evidence.none("emulated platforms decide nothing" if emulated else "nothing of it was measured")
        else:
            yield Evidence.none("not measured here")

    def _hear(self, test: claims.Test) -> Iterator[Evidence]:
        match test:
            case claims.Untestable():
                yield Evidence.none(test.reason)
            case claims.FactorMatters() | claims.LevelsDiffer() | claims.Interaction():
                yield from tested_factors(test, self._figures, self._table, self._lacking)
            case claims.Extreme():
                yield from self._extreme(test)
            case claims.Order():
                yield from self._order(test)
            case claims.Ratio():
                yield from self._ratio(test)
            case claims.Spread():
                yield from self._spread(test)
            case claims.Bounds():
                yield from self._bounds(test)
            case claims.Separated():
                yield from self._separated(test)
            case claims.Figures():
                yield from self._printed(test)

    # -- one arm beside others -----------------------------------------------------------------------

    def _extreme(self, test: claims.Extreme) -> Iterator[Evidence]:
        own = self._figures.named(test.level)
        if not own:
            yield Evidence.none(self._lacking(test.level))
            return
        # That the host is the fastest is said of virtualization as such; all else of the paper's platforms alone.
        known = self._figures.judged if test.level == "Host OS" else self._figures.of_the_paper(test.ignoring)
        rivals = [arm for arm in known if arm not in own and (is_virtual(arm) or test.level != "Host OS")]
        if not rivals:
            yield Evidence.none(f"nothing to compare {_PLATFORM_WORDS.get(test.level, test.level)} with")
        smallest = test.which == "smallest"
        for arm, rival in itertools.product(own, rivals):
            for place in self._places(test.where, arm):
                change = self._between(rival, arm, place, test.parameter)
                agrees = within(change, 1 if smallest else None, None if smallest else 1, strictly=True)
                text = f"{rival.label} ÷ {arm.label}, {self._where(place, test.parameter)}: {_told(change)}"
                yield self._guarded(Evidence(text, agrees), change, place, test.parameter)

    def _spread(self, test: claims.Spread) -> Iterator[Evidence]:
        arms = self._figures.of_the_paper(test.ignoring)
        if len(arms) < 2:
            yield Evidence.none("this run has no two of the paper’s platforms whose figures decide")
            return
        for place in self._places(test.where, arms[0]):
            by_arm = {arm.name: self._estimate((place[0], arm.name, place[2]), test.parameter) for arm in arms}
            known = [arm for arm in arms if by_arm[arm.name].point is not None]
            if len(known) < 2:
                continue
            low, high = (choose(known, key=lambda arm: by_arm[arm.name].point or 0.0) for choose in (min, max))
            change = self._between(low, high, place, test.parameter)
            text = f"{low.label} ÷ {high.label}, {self._where(place, test.parameter)}: {_told(change)}"
            yield Evidence(text, within(change, 1 - test.at_most, None))

    # -- one figure, or two of the same arm ----------------------------------------------------------

    def _order(self, test: claims.Order) -> Iterator[Evidence]:
        if reason := self._without(test.factor, (test.lower, test.higher), test.where):
            yield Evidence.none(reason)
            return
        for lower, higher in self._pairs(test.factor, test.lower, test.higher, test.where, ()):
            low, high = (self._figures.values(self._table, one, test.parameter) for one in (lower, higher))
            change = paired_ratio(low, high, self._figures.nominal)
            agrees = within(change, None, 1, strictly=True)
            told = _told(change)
            if change.point is None and low and high:  # something is zero, or early
                difference = paired_difference(low, high, "ns", self._figures.nominal)
                agrees, told = within(difference, None, 0, strictly=True), f"{_duration(difference)} apart"
            text = f"{test.lower} ÷ {test.higher}, {self._where(lower, test.parameter, without=test.factor)}: {told}"
            yield Evidence(text, agrees, measured=bool(low and high))

    def _ratio(self, test: claims.Ratio) -> Iterator[Evidence]:
        if reason := self._without(test.factor, (test.level, *test.to), test.where):
            yield Evidence.none(reason)
            return
        found = []
        for other in test.to:
            for place, beside in self._pairs(test.factor, test.level, other, test.where, test.ignoring):
                of, to = (self._figures.values(self._table, each, test.parameter) for each in (place, beside))
                change = paired_ratio(of, to, self._figures.nominal)
                said = self._where(place, test.parameter, without=test.factor)
                agrees = within(change, test.at_least, test.at_most)
                found.append((change, Evidence(f"{test.level} ÷ {other}, {said}: {_told(change)}", agrees)))
        if not (test.most or test.any):
            yield from (dataclasses.replace(one, measured=change.point is not None) for change, one in found)
            return
        known = [(change.point, one) for change, one in found if change.point is not None]
        if known:
            agreeing, undecided = (sum(one.agrees is verdict for _, one in known) for verdict in (True, None))
            needed = 1 if test.any else len(known) // 2 + 1
            agrees = True if agreeing >= needed else None if agreeing + undecided >= needed else False
            yield Evidence(f"within the bounds in {agreeing} of {len(known)} cells, {undecided} undecided", agrees)
            # The two that are furthest apart; they decide nothing by themselves.
            known.sort(key=lambda found: found[0])
            for name, (_, one) in {"lowest": known[0], "highest": known[-1]}.items():
                yield Evidence(f"{name}: {one.text}", agrees)

    def _bounds(self, test: claims.Bounds) -> Iterator[Evidence]:
        platform = test.where.get("platform")
        arms = self._figures.named(platform) if platform else self._figures.of_the_paper(test.ignoring)
        if platform and not arms:
            yield Evidence.none(self._lacking(platform))
        for arm in arms:
            for place in self._places(test.where, arm):
                estimate = self._estimate(place, test.parameter)
                where = f"{arm.label}, {self._where(place, test.parameter)}"
                if estimate.point is None:
                    yield Evidence.none(f"{where}: a trial has too few values to say it")
                else:
                    agrees = within(estimate, test.at_least, test.at_most)
                    yield Evidence(f"{where}: {_duration(estimate)}", agrees)

    def _separated(self, test: claims.Separated) -> Iterator[Evidence]:
        ends: list[tuple[float, ArmRecord, Place]] = []
        for function, worst in ((test.lower, max), (test.higher, min)):
            found = []
            for arm in self._figures.judged:
                if paper_platform(arm) not in test.ignoring:
                    for place in self._places({"function": function}, arm):
                        point = self._estimate(place, test.parameter).point
                        found += [] if point is None else [(point, arm, place)]
            if not found:
                return
            ends.append(worst(found, key=lambda one: one[0]))
        (_, arm, place), (_, other, beside) = ends
        of, to = (self._figures.values(self._table, one, test.parameter) for one in (place, beside))
        change = paired_ratio(of, to, self._figures.nominal)
        text = (
            f"highest {PARAMETERS[test.parameter]} of {test.lower} ({arm.label}, {place[2]}) ÷ lowest of {test.higher} "
            f"({other.label}, {beside[2]}): {_told(change)}"
        )
        yield Evidence(text, within(change, None, 1, strictly=True), change.point is not None)

    def _printed(self, test: claims.Figures) -> Iterator[Evidence]:
        """What a text prints is of its own machine; ours is told beside it."""
        yield Evidence.none("of the paper’s own machine: its text is compared with its table")
        for figure in test.figures:
            for arm in self._figures.named(figure.platform):
                estimate = self._estimate((figure.function, arm.name, figure.load), figure.parameter)
                if estimate.point is not None:
                    where = f"{figure.function}, {figure.platform}, {figure.load}"
                    yield Evidence.none(f"{where}, here: {duration(estimate.point)}")

    # -- places --------------------------------------------------------------------------------------

    def _without(self, factor: str, levels: Sequence[str], where: Mapping[claims.Factor, str]) -> str | None:
        """Why there can be no pairs of these levels; None where there may be."""
        wanted = [where["platform"]] if "platform" in where else list(levels) if factor == "platform" else []
        return next((self._lacking(name) for name in wanted if not self._figures.named(name)), None)

    def _pairs(
        self, factor: str, first: str, second: str, where: Mapping[claims.Factor, str], ignoring: Sequence[str]
    ) -> Iterator[tuple[Place, Place]]:
        """Places of the same arm, or of two where the factor is the platform, that differ in one factor only."""
        if factor == "platform":
            for own, rival in itertools.product(self._figures.named(first), self._figures.named(second)):
                for function, _, load in self._places(where, own):
                    yield (function, own.name, load), (function, rival.name, load)
            return
        platform = where.get("platform")
        arms = self._figures.named(platform) if platform else self._figures.judged
        for arm in (arm for arm in arms if paper_platform(arm) not in ignoring):
            for function, _, load in self._places(where, arm):
                place = (function, arm.name, load)
                if place[0 if factor == "function" else 2] == first:
                    other = (second, arm.name, load) if factor == "function" else (function, arm.name, second)
                    if self._figures.values(self._table, other, "median"):
                        yield place, other

    def _places(self, where: Mapping[claims.Factor, str], arm: ArmRecord) -> Iterator[Place]:
        """Of one arm, those at the levels that a test names."""
        for function in self._figures.levels(self._table, 0):
            for load in self._figures.levels(self._table, 2):
                wanted = where.get("function", function) == function and where.get("load", load) == load
                if wanted and self._figures.values(self._table, (function, arm.name, load), "median"):
                    yield function, arm.name, load

    def _estimate(self, place: Place, parameter: str) -> Estimate:
        values = self._figures.values(self._table, place, parameter)
        if not values:
            return Estimate.missing("ns", "no figure")
        return median_estimate(list(values.values()), "ns", self._figures.nominal)

    def _between(self, one: ArmRecord, other: ArmRecord, place: Place, parameter: str) -> Estimate:
        function, _, load = place
        first, second = (
            self._figures.values(self._table, (function, arm.name, load), parameter) for arm in (one, other)
        )
        return paired_ratio(first, second, self._figures.nominal)

    def _guarded(self, evidence: Evidence, change: Estimate, place: Place, parameter: str) -> Evidence:
        """A difference that identical arms may seem to have as well decides nothing."""
        aa, reference = self._figures.between_identical(self._table, place, parameter)
        band = aa_band(paired_ratio(aa, reference, self._figures.nominal)) if aa and reference else None
        if evidence.agrees is None or band is None or change.point is None or not 1 / band <= change.point <= band:
            return evidence
        return Evidence(f"{evidence.text}; identical arms (A/A) may seem to differ as much", None)

    def _where(self, place: Place, parameter: str, without: str = "") -> str:
        label = next((arm.label for arm in self._figures.judged if arm.name == place[1]), place[1])
        parts = [label] if without in ("function", "load") else []
        parts += [place[0]] if without != "function" else []
        parts += [place[2]] if without != "load" else []
        return ", ".join([*parts, PARAMETERS[parameter]])


def _told(estimate: Estimate) -> str:
    if estimate.point is None:
        return estimate.method
    return f"{ratio(estimate)} ({ratio_interval(estimate) if estimate.has_interval else 'no interval'})"


def _duration(estimate: Estimate) -> str:
    return f"{duration(estimate.point)} ({duration_interval(estimate) if estimate.has_interval else 'no interval'})"
