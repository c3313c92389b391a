"""The timing paper's conclusions about bandwidth, tested on its own figures and on each platform's alike.

A run's figure with its interval over repetitions agrees when the whole interval lies within what the conclusion says,
and contradicts when the whole interval lies outside; else it does not decide.  What the paper's text states is taken as
it is.  Emulated platforms decide nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from virtgauge.analysis.estimate import Estimate
from virtgauge.ledger.records import ArmRecord
from virtgauge.reference import bandwidth_claims as claims
from virtgauge.reference.bandwidth_claims import Claim
from virtgauge.report.bandwidth import vocabulary as say
from virtgauge.report.bandwidth.claim_figures import Figures, Found, OurFigures, PaperFigures
from virtgauge.report.bandwidth.model import BandwidthClaim, PlatformClaim
from virtgauge.report.bandwidth.results import Results
from virtgauge.report.verdicts import Evidence, ExaminedClaim, verdict_of, within
from virtgauge.report.words import ratio, ratio_interval


def examined_claims(results: Results, arms: Sequence[ArmRecord]) -> tuple[BandwidthClaim, ...]:
    """Every conclusion of the paper, in its order.

    Args:
        results: of the run.
        arms: of the manifest.
    """
    judged = [arm for arm in arms if arm.usable and not arm.emulated and arm.role != "aa"]
    figures = {arm.name: OurFigures(results, arm, judged) for arm in judged}
    paper = PaperFigures()
    return tuple(
        BandwidthClaim(
            paper=examine(claim, paper),
            arms=tuple(PlatformClaim(name, examine(claim, ours)) for name, ours in figures.items()),
        )
        for claim in claims.bandwidth_claims()
    )


def on_paper() -> tuple[ExaminedClaim, ...]:
    """Every conclusion, on what the paper's text states in figures."""
    figures = PaperFigures()
    return tuple(examine(claim, figures) for claim in claims.bandwidth_claims())


def examine(claim: Claim, figures: Figures) -> ExaminedClaim:
    """Carry out a conclusion's tests."""
    evidence = tuple(one for test in claim.tests for one in _hear(test, figures))
    return ExaminedClaim(claim.name, claim.place, claim.text, claim.note, verdict_of(evidence), evidence)


def _hear(test: claims.Test, figures: Figures) -> Iterator[Evidence]:
    match test:
        case claims.Untestable():
            yield Evidence.none(test.reason)
        case claims.Bounds():
            yield from _bounds(test, figures)
        case claims.Compared():
            yield from _compared(test, figures)
        case claims.Least():
            yield from _least(test, figures)


def _bounds(test: claims.Bounds, figures: Figures) -> Iterator[Evidence]:
    found = figures.select(test.of)
    if not found:
        yield Evidence.none(figures.why_none(test.of))
        return
    if test.which != "each":
        choose = min if test.which == "lowest" else max
        found = [choose(found, key=lambda one: one.estimate.point or 0.0)]
    for one in found:
        agrees = within(one.estimate, test.at_least, test.at_most, strictly=0 in (test.at_least, test.at_most))
        yield Evidence(f"{one.words}: {one.told}", agrees)


def _compared(test: claims.Compared, figures: Figures) -> Iterator[Evidence]:
    first, second = figures.select(test.of), figures.select(test.to)
    for wanted, found in ((test.of, first), (test.to, second)):
        if not found:
            yield Evidence.none(figures.why_none(wanted))
            return
    pairs = [(one, other) for one in first for other in second if _comparable(test, one, other)]
    if not pairs:
        yield Evidence.none("nothing was measured both ways and otherwise alike")
    for one, other in pairs:
        is_ratio = test.how == "ratio"
        change = figures.ratio(one, other) if is_ratio else figures.difference(one, other)
        strictly = (1 if is_ratio else 0) in (test.at_least, test.at_most)
        size = _ratio(change) if is_ratio else _points(change)
        text = f"{one.words}: {one.told} beside {other.told}{_difference(test, other)}: {size}"
        yield Evidence(text, within(change, test.at_least, test.at_most, strictly=strictly))


def _comparable(test: claims.Compared, one: Found, other: Found) -> bool:
    """Whether two places differ in nothing but what the selections differ in."""
    a, b = one.key, other.key
    if test.of.capacity_mbps != test.to.capacity_mbps:
        return a.through == b.through
    same_timing = a.timing == b.timing or test.of.timings != test.to.timings
    same_cross = (a.path.cross_mbps, a.path.traffic) == (b.path.cross_mbps, b.path.traffic)
    return (
        (a.estimator, a.through, a.pacing, a.path.link) == (b.estimator, b.through, b.pacing, b.path.link)
        and same_timing
        and (same_cross or test.of.cross != test.to.cross)
    )


def _least(test: claims.Least, figures: Figures) -> Iterator[Evidence]:
    rivals = figures.rivals(test.of, test.platform)
    own = {one.key: one for one in figures.select(test.of)}
    pairs = [(name, own[rival.key], rival) for name, rival in rivals if rival.key in own]
    if not pairs:
        yield Evidence.none(f"said of {test.platform} beside other guests, and not both were measured here")
    for name, one, rival in pairs:
        change = figures.difference(one, rival)
        text = f"{one.words}: {one.told}, {name} {rival.told}: {_points(change)}"
        yield Evidence(text, within(change, None, 0, strictly=True))


def _difference(test: claims.Compared, other: Found) -> str:
    """What the second figure is of, where that is not said by the first."""
    if test.of.capacity_mbps != test.to.capacity_mbps:
        return f" ({other.key.estimator}, {other.key.path.label})"
    if test.of.cross != test.to.cross:
        return f" ({other.key.path.cross_label})"
    if test.of.timings != test.to.timings:
        return f" ({other.key.arrangement})"
    return " (reference)" if test.to.platform == "reference" else ""


def _ratio(estimate: Estimate) -> str:
    if not estimate.has_interval:
        return f"{ratio(estimate)} (no interval)"
    return ratio(estimate) if estimate.low == estimate.high else f"{ratio(estimate)} ({ratio_interval(estimate)})"


def _points(estimate: Estimate) -> str:
    point = f"{say.points(estimate.point)} points"
    if not estimate.has_interval:
        return f"{point} (no interval)"
    return point if estimate.low == estimate.high else f"{point} ({say.points_interval(estimate)})"
