"""The isolation paper's conclusions, tested on its own figures and on those of each platform by the same tests.

A run's figure with its interval over repetitions agrees when the whole interval lies within what the conclusion says,
and contradicts when the whole interval lies outside; else it does not decide.  What the paper's text states is taken as
it is.  Each platform is judged by itself, for the conclusions are about one hypervisor; emulated ones decide nothing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from virtgauge.analysis.estimate import Estimate
from virtgauge.ledger.records import ArmRecord
from virtgauge.reference import isolation_claims as claims
from virtgauge.reference.isolation_claims import Claim, Selection
from virtgauge.report.isolation.claim_figures import Figures, Found, OurFigures, PaperFigures, told
from virtgauge.report.isolation.model import IsolationClaim, PlatformClaim
from virtgauge.report.isolation.results import Results
from virtgauge.report.verdicts import Evidence, ExaminedClaim, verdict_of, within
from virtgauge.report.words import ratio, ratio_interval


def examined_claims(results: Results, arms: Sequence[ArmRecord], nominal: float) -> tuple[IsolationClaim, ...]:
    """Every conclusion of the paper, in its order.

    Args:
        results: of the run.
        arms: of the manifest.
        nominal: the confidence wanted.
    """
    judged = [arm.name for arm in arms if arm.usable and not arm.emulated and arm.role != "aa"]
    figures = {name: OurFigures(results, name, nominal) for name in judged}
    paper = PaperFigures()
    return tuple(
        IsolationClaim(
            paper=examine(claim, paper),
            arms=tuple(PlatformClaim(name, examine(claim, ours)) for name, ours in figures.items()),
        )
        for claim in claims.isolation_claims()
    )


def on_paper() -> tuple[ExaminedClaim, ...]:
    """Every conclusion, on what the paper's text states in figures."""
    figures = PaperFigures()
    return tuple(examine(claim, figures) for claim in claims.isolation_claims())


def examine(claim: Claim, figures: Figures) -> ExaminedClaim:
    """Carry out a conclusion's tests."""
    evidence = tuple(one for test in claim.tests for one in _hear(test, figures))
    # Tests of one conclusion may want for the same figures.
    evidence = tuple(dict.fromkeys(evidence))
    return ExaminedClaim(claim.name, claim.place, claim.text, claim.note, verdict_of(evidence), evidence)


def _hear(test: claims.Test, figures: Figures) -> Iterator[Evidence]:
    match test:
        case claims.Untestable():
            yield Evidence.none(test.reason)
        case claims.Bounds():
            yield from _bounds(test, figures)
        case claims.Compared():
            yield from _compared(test, figures)
        case claims.Losses():
            yield _losses(test, figures)
        case claims.Spread():
            yield from _spread(test, figures)


def _bounds(test: claims.Bounds, figures: Figures) -> Iterator[Evidence]:
    found = figures.select(test.of, test.which)
    if not found:
        yield Evidence.none(figures.why_none(test.of))
    for one in found:
        yield Evidence(f"{_extreme(test.which)}{one.words}: {told(one.estimate)}", _agrees(test, one.estimate))


def _compared(test: claims.Compared, figures: Figures) -> Iterator[Evidence]:
    first, second = figures.select(test.of, test.which), figures.select(test.to, test.which)
    for wanted, found in ((test.of, first), (test.to, second)):
        if not found:
            yield Evidence.none(figures.why_none(wanted))
            return
    pairs = [
        (one, other)
        for one, other in itertools.product(first, second)
        if test.which != "each" or _comparable(test, one, other)
    ]
    if not pairs:
        yield Evidence.none("nothing was measured both ways and otherwise alike")
    for one, other in pairs:
        found_ratio = figures.ratio(one, other)
        figure = f"{_ratio(found_ratio)}, {told(one.estimate)} beside {told(other.estimate)}"
        where = f"{_extreme(test.which)}{one.words} ÷ {_difference(test, other)}"
        yield Evidence(f"{where}: {figure}", _agrees(test, found_ratio))


def _comparable(test: claims.Compared, one: Found, other: Found) -> bool:
    a, b = one.place, other.place
    if test.mirrored:
        return (a.benchmark, a.load, a.cores, a.policy, a.left) == (b.benchmark, b.load, b.cores, b.policy, b.left)
    alike = (a.cores, a.policy, a.on, a.share) == (b.cores, b.policy, b.on, b.share)
    same_benchmark = a.benchmark == b.benchmark or test.of.benchmarks != test.to.benchmarks
    return alike and same_benchmark and (a.load == b.load or test.of.loads != test.to.loads)


def _losses(test: claims.Losses, figures: Figures) -> Evidence:
    first, second = figures.select(test.of, "lowest"), figures.select(test.to, "lowest")
    if not first or not second:
        return Evidence.none(figures.why_none(test.to if first else test.of))
    one, other = first[0].estimate, second[0].estimate
    text = f"lowest of {first[0].words}: {told(one)}; of {second[0].words}: {told(other)}"
    return Evidence(text, _agrees(test, _loss_ratio(one, other)))


def _loss_ratio(one: Estimate, other: Estimate) -> Estimate:
    """Of what two figures fall short of 1; without an end where the other one may fall short of nothing."""
    if one.low is None or one.high is None or other.low is None or other.high is None:
        return Estimate.missing("ratio", "one of them has no interval")
    least, most = 1 - one.high, 1 - one.low
    other_least, other_most = 1 - other.high, 1 - other.low
    if other_most <= 0 or most < 0:
        return Estimate.missing("ratio", "nothing was lost")
    low = max(least, 0.0) / other_most
    high = most / other_least if other_least > 0 else math.inf
    return Estimate(low, low, high, one.confidence, min(one.n, other.n), "ratio", "widest interval")


def _spread(test: claims.Spread, figures: Figures) -> Iterator[Evidence]:
    found = figures.select(test.of, "each")
    if not found:
        yield Evidence.none(figures.why_none(test.of))
        return
    groups: dict[object, list[Found]] = {}
    for one in found:
        place = one.place
        groups.setdefault((place.benchmark, place.cores, place.policy, place.on, place.share), []).append(one)
    several = [group for group in groups.values() if len(group) > 1]
    if not several:
        yield Evidence.none("a single load of that kind was measured")
    for group in several:
        low, high = (choose(group, key=lambda one: one.estimate.point or 0.0) for choose in (min, max))
        spread = figures.ratio(high, low)
        text = f"{high.words} {told(high.estimate)}, {low.words} {told(low.estimate)}"
        yield Evidence(f"{text}: {_ratio(spread)}", _agrees(test, spread))


def _agrees(test: claims.Bounds | claims.Compared | claims.Losses | claims.Spread, estimate: Estimate) -> bool | None:
    """A ratio of 1 is no difference: as the only bound it is not reached."""
    strictly = isinstance(test, claims.Compared) and (test.at_least, test.at_most) in ((1, None), (None, 1))
    return within(estimate, test.at_least, test.at_most, strictly=strictly)


def _difference(test: claims.Compared, other: Found) -> str:
    return other.place.load if test.of.loads != test.to.loads and _same(test.of, test.to) else other.words


def _same(one: Selection, other: Selection) -> bool:
    return one.benchmarks == other.benchmarks and one.on == other.on


def _extreme(which: str) -> str:
    return "" if which == "each" else f"{which}: "


def _ratio(estimate: Estimate) -> str:
    if not estimate.has_interval:
        return f"{ratio(estimate)} (no interval)"
    return ratio(estimate) if estimate.low == estimate.high else f"{ratio(estimate)} ({ratio_interval(estimate)})"
