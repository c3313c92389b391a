"""The forwarding paper's conclusions, judged on this run's figures by the tests that stand with them.

A figure with its interval over independent searches agrees when the whole interval lies within what the conclusion
says, and contradicts when the whole interval lies outside; else it does not decide.  A range of J or of frame sizes
smaller than the paper's cannot confirm how much changes over it.  Emulated platforms decide nothing.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from virtgauge.analysis.bootstrap import median_estimate
from virtgauge.analysis.comparison import paired_ratio
from virtgauge.analysis.estimate import Estimate
from virtgauge.analysis.forwarding.load_vectors import jain_of_two_levels
from virtgauge.ledger.records import ArmRecord
from virtgauge.reference import forwarding_claims as claims
from virtgauge.reference.forwarding_claims import Claim, Factor, Quantity, Range
from virtgauge.report.forwarding.interfaces import WORDS, interfaces_of, pairs
from virtgauge.report.forwarding.measured import Measured, Quantities, along, grouped, median_of
from virtgauge.report.forwarding.rates import bit_rate, frame_rate
from virtgauge.report.verdicts import Evidence, ExaminedClaim, verdict_of, within
from virtgauge.report.words import duration, ratio, ratio_interval

_PAPER_LEVELS: dict[Factor, tuple[float, ...]] = {
    "jain": tuple(jain_of_two_levels(12, k, 0.01) for k in range(1, 13)),
    "frame_bytes": (64, 128, 512, 1024, 1518),
}
_PAPER_MEDIUM_MBPS = 1000.0
"""The paper's load axis ends at its gigabit medium: a load is that part of what can be carried."""
_FACTOR_WORDS: dict[Factor, str] = {"jain": "J", "frame_bytes": "frame size", "load_mbps": "load"}
_ALMOST = 1.05

Pair = tuple[ArmRecord, ArmRecord]
_OfOneArm = TypeVar("_OfOneArm", claims.Bounds, claims.Growth, claims.Valley)
_OfTwoArms = TypeVar("_OfTwoArms", claims.Comparison, claims.Interaction)


def examined_claims(quantities: Quantities, arms: Sequence[ArmRecord], nominal: float) -> tuple[ExaminedClaim, ...]:
    """Every conclusion of the paper, in its order."""
    court = _Court(quantities, arms, nominal)
    found = []
    for claim in claims.forwarding_claims():
        evidence = tuple(one for test in claim.tests for one in court.hear(test))
        found.append(_examined(claim, evidence))
    return tuple(found)


def on_paper() -> tuple[ExaminedClaim, ...]:
    """Every conclusion, on the paper's own figures, of which it prints none."""
    nothing = (Evidence.none("the paper prints no table, only diagrams"),)
    return tuple(_examined(claim, nothing) for claim in claims.forwarding_claims())


def _examined(claim: Claim, evidence: tuple[Evidence, ...]) -> ExaminedClaim:
    return ExaminedClaim(claim.name, claim.place, claim.text, claim.note, verdict_of(evidence), evidence)


class _Court:
    """Carries out tests on one run's figures."""

    def __init__(self, quantities: Quantities, arms: Sequence[ArmRecord], nominal: float) -> None:
        self._quantities, self._nominal = quantities, nominal
        self._arms = [arm for arm in arms if arm.usable and arm.role != "aa"]

    def hear(self, test: claims.Test) -> Iterator[Evidence]:
        """The evidence of one test, over all arms that it is about."""
        match test:
            case claims.Untestable():
                yield Evidence.none(test.reason)
            case claims.Comparison():
                yield from self._of_pairs(test, self._comparison)
            case claims.Interaction():
                yield from self._of_pairs(test, self._interaction)
            case claims.Bounds():
                yield from self._of_arms(test, self._bounds)
            case claims.Growth():
                yield from self._of_arms(test, self._growth)
            case claims.Valley():
                yield from self._of_arms(test, self._valley)

    def _of_arms(
        self, test: _OfOneArm, found: Callable[[_OfOneArm, ArmRecord], Iterator[Evidence]]
    ) -> Iterator[Evidence]:
        arms = [arm for arm in self._arms if interfaces_of(arm) in test.interfaces]
        evidence = [_about(arm.label, one, arm.emulated) for arm in arms for one in found(test, arm)]
        if not evidence:
            what = WORDS[test.interfaces[0]]
            why = f"no figures at the levels that it is about, with {what}" if arms else f"no platform with {what}"
            evidence = [Evidence.none(why)]
        yield from evidence

    def _of_pairs(
        self, test: _OfTwoArms, found: Callable[[_OfTwoArms, Pair], Iterator[Evidence]]
    ) -> Iterator[Evidence]:
        """Test by test on two arms, in the order of the test's interfaces."""
        known = pairs(self._arms)
        ordered = [pair if test.interfaces[0] == "paravirtual" else (pair[1], pair[0]) for pair in known]
        several = len(ordered) > 1
        evidence = [
            _about(f"{pair[0].label} / {pair[1].label}" if several else "", one, any(arm.emulated for arm in pair))
            for pair in ordered
            for one in found(test, pair)
        ]
        if not evidence:
            why = "no two platforms of this run differ in their interfaces alone"
            evidence = [Evidence.none("no figures of both at the levels that it is about" if known else why)]
        yield from evidence

    # -- one arm -------------------------------------------------------------------------------------

    def _bounds(self, test: claims.Bounds, arm: ArmRecord) -> Iterator[Evidence]:
        for one in self._quantities.select(test.quantity, arm.name, test.where):
            estimate = self._estimate(one.values)
            agrees = within(estimate, test.at_least, test.at_most)
            yield Evidence(f"{one.describe()}: {_quantity(test.quantity, estimate)}", agrees)

    def _growth(self, test: claims.Growth, arm: ArmRecord) -> Iterator[Evidence]:
        over_load = test.factor == "load_mbps"
        found = self._quantities.select(test.quantity, arm.name, test.where, over_load=over_load)
        for group in along(found, test.factor):
            low, high = group[0], group[-1]
            where = high.describe(without=test.factor)
            if low.level(test.factor) == high.level(test.factor):
                yield Evidence.none(f"{where}: a single level of {_FACTOR_WORDS[test.factor]}")
                continue
            change = paired_ratio(high.values, low.values, self._nominal)
            text = f"{where}: {_change(change)} from {_level(low, test.factor)} to {_level(high, test.factor)}"
            wanted = _PAPER_LEVELS.get(test.factor, ())
            whole = _covers(group, test.factor, [level for level in wanted if _is_meant(level, test)])
            if not whole:
                text += f"; the paper's range of {_FACTOR_WORDS[test.factor]} is wider"
            yield Evidence(text, _growth_agrees(test, change, whole=whole))
            if test.linear is not None:
                yield _straightness(group, test.factor, test.linear, where)

    def _valley(self, test: claims.Valley, arm: ArmRecord) -> Iterator[Evidence]:
        found = self._quantities.select(test.quantity, arm.name, test.where, over_load=True)
        for group in along(found, "load_mbps"):
            where = group[0].describe(without="load_mbps")
            middle = _as_percent(test.middle)
            inside = [one for one in group if middle.includes(one.load_percent)]
            ends = {
                "low": [one for one in group if one.load_percent < (middle.at_least or 0)][:1],
                "high": [one for one in group if one.load_percent > (middle.at_most or math.inf)][-1:],
            }
            for name in test.ends:
                if not inside or not ends[name]:
                    yield Evidence.none(f"{where}: no {'middle' if not inside else name} load among those measured")
                    continue
                change = paired_ratio(ends[name][0].values, median_of(inside), self._nominal)
                text = f"{where}: at {bit_rate(ends[name][0].load_mbps)} {_change(change)} of the middle"
                yield Evidence(text, within(change, test.ratio_at_least, None, strictly=True))

    # -- two arms ------------------------------------------------------------------------------------

    def _comparison(self, test: claims.Comparison, pair: Pair) -> Iterator[Evidence]:
        first, second = (self._quantities.select(test.quantity, arm.name, test.where) for arm in pair)
        # Loads are parts of each one's own throughput: with a bound on the load, what both have below it.
        without: Factor | None = "load_mbps" if "load_mbps" in test.where else None
        others = {group[0].place(without): group for group in grouped(second, lambda one: one.place(without))}
        for group in grouped(first, lambda one: one.place(without)):
            other = others.get(group[0].place(without))
            if other is not None:
                change = paired_ratio(median_of(group), median_of(other), self._nominal)
                strictly = (test.ratio_at_least, test.ratio_at_most) == (1, None)
                agrees = within(change, test.ratio_at_least, test.ratio_at_most, strictly=strictly)
                yield Evidence(f"{group[0].describe(without)}: {_change(change)}", agrees)

    def _interaction(self, test: claims.Interaction, pair: Pair) -> Iterator[Evidence]:
        over_load = test.factor == "load_mbps"
        first, second = (
            along(
                self._quantities.select(test.quantity, arm.name, test.where, over_load=over_load),
                test.factor,
            )
            for arm in pair
        )
        others = {group[0].place(without=test.factor): group for group in second}
        for group in first:
            other = others.get(group[0].place(without=test.factor))
            if other is None or len(group) < 2 or len(other) < 2:
                continue
            shown = [paired_ratio(one[-1].values, one[0].values, self._nominal) for one in (group, other)]
            more = paired_ratio(_changes(group), _changes(other), self._nominal)
            where = group[0].describe(without=test.factor)
            words = [WORDS[interfaces] for interfaces in test.interfaces]
            text = f"{where}: {_change(shown[0])} with {words[0]}, {_change(shown[1])} with {words[1]}"
            yield Evidence(text, within(more, 1.0, None, strictly=True))

    def _estimate(self, values: Mapping[int, float]) -> Estimate:
        return median_estimate(list(values.values()), "", self._nominal)


def _about(label: str, evidence: Evidence, emulated: bool) -> Evidence:
    text = f"{label}, {evidence.text}" if label else evidence.text
    if emulated:  # it shows that the method works, and decides nothing
        return Evidence.none(f"{text} (emulated, which decides nothing)")
    return Evidence(text, evidence.agrees, evidence.measured)


def _growth_agrees(test: claims.Growth, change: Estimate, *, whole: bool) -> bool | None:
    """Over less than the paper's range less may change: then too much of it contradicts, too little does not."""
    direction = {
        "rises": within(change, 1, None, strictly=True),
        "falls": within(change, None, 1, strictly=True),
        "flat": True,
    }[test.direction]
    at_least, at_most = test.ratio_at_least, test.ratio_at_most
    if whole or (at_least is None and at_most is None):
        amount = within(change, at_least, at_most)
    else:
        below = at_least if at_least is not None and at_least <= 1 else None
        above = at_most if at_most is not None and at_most >= 1 else None
        amount = None if within(change, below, above) is not False else False
    if False in (direction, amount):
        return False
    return None if None in (direction, amount) else True


def _covers(group: Sequence[Measured], factor: Factor, wanted: Sequence[float]) -> bool:
    """Whether figures reach from the lowest to the highest of these levels, almost."""
    if not wanted:
        return True
    return group[0].level(factor) <= min(wanted) * _ALMOST and group[-1].level(factor) * _ALMOST >= max(wanted)


def _is_meant(level: float, test: claims.Growth) -> bool:
    bounds = test.where.get(test.factor)
    return bounds is None or bounds.includes(level)


def _straightness(group: Sequence[Measured], factor: Factor, at_least: float, where: str) -> Evidence:
    """How much of the variance of the medians a straight line explains."""
    levels = [one.level(factor) for one in group]
    if len(set(levels)) < 3:
        return Evidence.none(f"{where}: any two figures lie on a straight line")
    middles = [statistics.median(one.values.values()) for one in group]
    if len(set(middles)) == 1:
        return Evidence(f"{where}: it does not change at all", None)
    explained = statistics.correlation(levels, middles) ** 2
    return Evidence(
        f"{where}: a straight line explains {explained:.0%} of it".replace("%", " %"), explained >= at_least
    )


def _changes(group: Sequence[Measured]) -> dict[int, float]:
    """By what factor, up or down, the first and the last of a group differ, by block."""
    first, last = group[0].values, group[-1].values
    return {
        block: math.exp(abs(math.log(last[block] / first[block])))
        for block in sorted(first.keys() & last.keys())
        if first[block] > 0 and last[block] > 0
    }


def _as_percent(loads: Range) -> Range:
    """Of the throughput: a load of the paper's medium as that part of ours."""
    return Range(
        at_least=None if loads.at_least is None else loads.at_least / _PAPER_MEDIUM_MBPS * 100,
        at_most=None if loads.at_most is None else loads.at_most / _PAPER_MEDIUM_MBPS * 100,
    )


def _change(estimate: Estimate) -> str:
    if estimate.point is None:
        return estimate.method
    return f"{ratio(estimate)} ({ratio_interval(estimate) if estimate.has_interval else 'no interval'})"


def _level(one: Measured, factor: Factor) -> str:
    words = {"jain": f"J {one.jain:.3f}", "frame_bytes": f"{one.frame_bytes} B", "load_mbps": bit_rate(one.load_mbps)}
    return words[factor]


def _quantity(quantity: Quantity, estimate: Estimate) -> str:
    said: dict[Quantity, Callable[[float | None], str]] = {
        "throughput_mbps": bit_rate,
        "throughput_pps": frame_rate,
        "latency_us": lambda value: duration(None if value is None else value * 1e3),
    }
    tell = said[quantity]
    return tell(estimate.point) + (
        f" ({tell(estimate.low)} to {tell(estimate.high)})" if estimate.has_interval else " (no interval)"
    )
