"""What figures say of a paper's conclusion: one of them, several, and all."""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from scipy import special

from virtgauge.analysis.comparison import RESOLUTION
from virtgauge.analysis.estimate import Estimate, attainable_confidence
from virtgauge.analysis.shift import MOST_NEEDED
from virtgauge.claims.figures import Figure, Figures, incomparable, is_open


class Verdict(enum.StrEnum):
    """On a conclusion."""

    CONFIRMED = "confirmed"
    CONTRADICTED = "contradicted"
    UNDECIDED = "undecided here"
    UNTESTABLE = "not testable here"


SEVERITY = (Verdict.CONTRADICTED, Verdict.UNDECIDED, Verdict.CONFIRMED)


@dataclasses.dataclass(frozen=True)
class Evidence:
    """One figure of a test."""

    text: str  # in words, with the figure, or why there is none
    agrees: bool | None  # with the conclusion; None where it does not decide
    measured: bool = True  # whether there is a figure at all
    needs: float = 0  # repetitions, with fewer of which it cannot decide; infinite where it never will
    likely: int | None = None  # about how many would decide it; None where it is decided, or that is not known

    @classmethod
    def none(cls, reason: str, needs: float = math.inf) -> Evidence:
        """Nothing was measured that could decide."""
        return cls(reason, None, measured=False, needs=needs)


@dataclasses.dataclass(frozen=True)
class CheckedClaim:
    """A conclusion of a paper and what this run says of it."""

    name: str
    place: str
    text: str
    note: str
    verdict: Verdict
    evidence: tuple[Evidence, ...]


@dataclasses.dataclass(frozen=True)
class Hearing:
    """What figures of this run say of a conclusion: those of one arm, or, with an empty name, of all together."""

    arm: str
    checked: CheckedClaim


@dataclasses.dataclass(frozen=True)
class ClaimCheck:
    """A conclusion of a paper, on the paper's own figures and on this run's."""

    paper: CheckedClaim
    run: tuple[Hearing, ...]
    # of storage, the same with all databases at one level of durability; None where it does not matter
    at_one_level: CheckedClaim | None = None


def verdict_of(evidence: Sequence[Evidence]) -> Verdict:
    """Contradicted if any figure says so, confirmed if all agree; undecided only if no part lacks figures for good."""
    agreement = [one.agrees for one in evidence]
    if False in agreement:
        return Verdict.CONTRADICTED
    if evidence and None not in agreement:
        return Verdict.CONFIRMED
    whole = all(one.measured or math.isfinite(one.needs) for one in evidence)
    return Verdict.UNDECIDED if whole and any(one.measured for one in evidence) else Verdict.UNTESTABLE


def of_platforms(hearings: Iterable[Hearing]) -> Verdict:
    """Contradicted if any platform contradicts, confirmed if none is undecided; those that cannot tell do not count."""
    verdicts = {one.checked.verdict for one in hearings}
    return next((one for one in SEVERITY if one in verdicts), Verdict.UNTESTABLE)


def counted(verdicts: Iterable[Verdict]) -> dict[str, int]:
    """How often there is each verdict; empty where there is none at all."""
    counts = Counter(verdicts)
    return {verdict.value: counts[verdict] for verdict in Verdict} if counts else {}


def within(estimate: Estimate, at_least: float | None, at_most: float | None, *, strictly: bool = False) -> bool | None:
    """Whether the interval lies within bounds; None where it reaches over one, or where there is none."""
    if estimate.low is None or estimate.high is None:
        return None
    low, high = -math.inf if at_least is None else at_least, math.inf if at_most is None else at_most
    if strictly:
        outside = not _above(estimate.high, low) or not _above(high, estimate.low)
        inside = (at_least is None or _above(estimate.low, low)) and (at_most is None or _above(high, estimate.high))
    else:
        outside = _above(low, estimate.high) or _above(estimate.low, high)
        inside = not _above(low, estimate.low) and not _above(estimate.high, high)
    return False if outside else inside or None


def _above(one: float, other: float) -> bool:
    """By more than rounding: the figures of a coarse clock have a ratio of just 3, of which a logarithm makes more."""
    return one > other and not math.isclose(one, other, rel_tol=1e-9)


def evidence_of(text: str, agrees: bool | None, figures: Figures, *used: Figure, likely: int | None = None) -> Evidence:
    """Of figures: emulated ones decide nothing, nor those of different computers, or disks, beside one another."""
    if any(one.emulated for one in used):
        return Evidence.none(f"{text} (emulated, which decides nothing)")
    if apart := incomparable(used):
        return Evidence.none(f"{text} ({apart}, which decides nothing)")
    if why := max((one.may_be_higher for one in used), default=""):
        if not is_open(*used):
            text += f"; {why}, which is allowed for"
        elif agrees is None:
            text += f"; {why}"
        if agrees is None:
            return Evidence(text, None, measured=True, needs=math.inf)  # repetitions find the same limit
    return Evidence(text, agrees, measured=agrees is not None or not figures.exact, likely=likely)


_NO_IDENTICAL = "; there were no identical arms (A/A) to judge it by"
_NO_ORDER = 0.01  # Relative, and ours: what is shown to lie closer together than this stands in no order
Bounds = tuple[float | None, float | None]  # The least and the most; None without one


class Judged(NamedTuple):
    """One figure of a test: ``sure`` is what it says with the confidence for as many as there are."""

    point: float | None
    evidence: Evidence
    sure: bool | None


class WithinBounds(NamedTuple):
    """Whether an estimate lies within bounds."""

    alone: bool | None  # by itself
    surely: bool | None  # as one of several
    why: str  # what forbids to say so, with a semicolon before it; empty where nothing does
    likely: int | None  # about how many repetitions would decide it; None where it is decided, or none would


def agreement_of(
    figures: Figures,
    estimate: Callable[[int], Estimate],
    among: int,
    bounds: Bounds,
    of: Figure | None,
    is_ratio: bool,
    groups: int = 1,
) -> WithinBounds:
    """Whether an estimate, as one of so many, lies within bounds; with the confidence for so many groups of these.

    ``of`` is by the arms identical to which the margin is judged; None within one arm.
    """
    neutral = 1 if is_ratio else 0
    strictly = bounds in ((neutral, None), (None, neutral))
    every = among * groups
    own, several = estimate(groups), estimate(every)
    alone = surely = within(figures.firm(own, groups), *bounds, strictly=strictly)
    if several is not own:
        surely = within(figures.firm(several, every), *bounds, strictly=strictly)
    point = own.point
    needed = functools.partial(_likely, figures, own, every, bounds, of, is_ratio=is_ratio)
    if of is not None and point is not None and bounds != (None, None) and alone is not None:
        end = min((end for end in bounds if end is not None), key=lambda end: abs(point - end))
        as_ratio = is_ratio and point > 0 and end > 0
        known = figures.identical(of, is_ratio=as_ratio)  # where they were not measured the interval alone decides
        apart = abs(math.log(point / end)) if as_ratio else abs(point - end)
        if known and (apart <= known.seem if as_ratio else apart < known.seem):
            why = "; identical arms (A/A) may seem to differ by more than the margin"
            return WithinBounds(None, None, why, needed())
    lacking = of is not None and alone is not None and not figures.exact and not all(of.identical)
    why = _NO_IDENTICAL if lacking else ""
    return WithinBounds(alone, surely, why, needed() if alone is None else None)


def _likely(
    figures: Figures, estimate: Estimate, among: int, bounds: Bounds, of: Figure | None, *, is_ratio: bool
) -> int | None:
    """With how many repetitions interval and A/A band would probably be clear of the bounds; None where with none.

    Both narrow with the square root of their number, if spread and figure stay what they are; by what identical arms
    surely differ, the band does not.
    """
    point, low, high, confidence = estimate.point, estimate.low, estimate.high, estimate.confidence
    if figures.exact or point is None or low is None or high is None or not confidence or (is_ratio and low <= 0):
        return None
    if math.isinf(low) or math.isinf(high):  # of what may be higher, however often it is measured
        return None
    scale: Callable[[float], float] = math.log if is_ratio else float
    at, below, above = scale(point), scale(point) - scale(low), scale(high) - scale(point)
    sides = []  # how far the point keeps a bound, and the half of the interval that reaches over it
    for bound, sign, inner, outer in zip(bounds, (1, -1), (below, above), (above, below), strict=True):
        if bound is not None and not (is_ratio and bound <= 0):
            margin = sign * (at - scale(bound))
            sides.append((margin, inner if margin > 0 else outer))
    broken = [side for side in sides if side[0] < 0]
    wanted = figures.wanted(among if broken else 1)  # what one of several breaks, it must surely break
    stretch = float(special.ndtri((1 - wanted) / 2) / special.ndtri((1 - confidence) / 2))
    known = None if of is None else figures.identical(of, is_ratio=is_ratio)
    width, apart = known or (0.0, 0.0)
    least = max(apart, math.log1p(RESOLUTION)) if known and is_ratio else apart  # of the band
    # One that is broken is enough; but all are to be kept.
    decisive = [(abs(margin), half * stretch) for margin, half in broken or sides]
    if not decisive or any(margin <= least for margin, _ in decisive):
        return None
    narrower = max(max(half / margin, (width - apart) / (margin - apart)) for margin, half in decisive)
    needed = math.ceil(estimate.n * narrower**2)
    fewest = next(n for n in range(1, MOST_NEEDED) if attainable_confidence(n) >= wanted)
    return max(needed, fewest, estimate.n + 1) if needed <= MOST_NEEDED else None


def of_order(judged: Judged, figures: Figures, one: Figure, other: Figure, among: int) -> Judged:
    """What is said of an order of two figures, as one of so many: also that there is none where they are alike.

    Else two that are equal would be open however often they are measured.  What identical arms (A/A) are apart may hide
    as much of a difference.
    """
    evidence = judged.evidence
    if evidence.agrees or judged.sure is not None or figures.exact or not evidence.measured:
        return judged
    ratio = figures.firm(figures.ratio(one, other, among), among)
    most, apart = math.log1p(_NO_ORDER), one.arm != other.arm
    if ratio.point and abs(math.log(ratio.point)) < most:  # more repetitions may show either
        judged = judged._replace(evidence=dataclasses.replace(evidence, likely=None))
    if ratio.low is None or ratio.high is None or ratio.low <= 0:
        return judged
    known = figures.identical(one, is_ratio=True) if apart else None
    if max(-math.log(ratio.low), math.log(ratio.high)) + (known.seem if known else 0) > most:
        return judged
    why = f"; within {100 * _NO_ORDER:.0f} % of one another"
    if evidence.agrees is None and apart and not all(one.identical):
        why += _NO_IDENTICAL
    found = dataclasses.replace(evidence, text=evidence.text + why, agrees=False, likely=None)
    return judged._replace(evidence=found, sure=False)


def of_extreme(
    agrees: bool | None, sure: bool | None, chosen: Estimate, others: Iterable[Estimate], which: str, bounds: Bounds
) -> tuple[bool | None, str]:
    """What the highest or lowest of several says, chosen by its point, and what forbids to say so.

    What holds of it holds of all, and what it alone does it must surely do.  One of the others that is less sure may be
    beyond it: so each has to keep the bound that it keeps for all of them; and where it falls short of the bound that
    it was to reach, each has to fall short of it.
    """
    reached: Bounds = (bounds[0], None)
    kept: Bounds = (None, bounds[1])
    if which == "lowest":
        reached, kept = kept, reached
    alone = reached if agrees else kept  # the bound by which one alone decides
    said = agrees if agrees is not None and alone == (None, None) else sure
    carried = True
    if said is True:
        carried = kept == (None, None) or all(within(one, *kept) for one in others)
    elif said is False and within(chosen, *reached) is False:
        carried = all(within(one, *reached) is False for one in others)
    return (said, "") if carried else (None, "; another figure’s interval reaches over the bound")


def quantified(judged: Sequence[Judged], which: str, absent: int = 0) -> Iterator[Evidence]:
    """Every figure must agree, or most of them, or any; what one alone decides it must do surely.

    ``absent`` more cells have no figure: one of them may be the one of ``any``, and ``most`` is of all.
    """
    judged = [
        one if one.point is not None else one._replace(evidence=Evidence.none(one.evidence.text)) for one in judged
    ]
    known = sorted((one for one in judged if one.point is not None), key=lambda one: one.point or 0.0)
    agreeing, against, open_ones = (
        sum(one.evidence.agrees is verdict for one in judged) for verdict in (True, False, None)
    )
    if which not in ("most", "any"):
        for one in judged:
            if one.evidence.agrees is False and one.sure is not False and 2 * against < len(known):
                text = f"{one.evidence.text}; of {len(known)} figures some may lie there by chance"
                yield dataclasses.replace(one.evidence, text=text, agrees=None, likely=None)
            else:
                yield one.evidence
        return
    if not known:
        yield from (one.evidence for one in judged[:1])
        return
    # Those that no repetition decides are as good as absent.
    stuck = [one.evidence for one in judged if one.evidence.agrees is None and math.isinf(one.evidence.needs)]
    possible, lacking = agreeing + open_ones - len(stuck), absent + len(stuck)
    if which == "any":
        surely = 2 * agreeing > len(judged) or any(one.sure and one.evidence.agrees for one in judged)
        agrees = True if surely else None if possible + lacking else False
        may_decide = bool(possible or not lacking)
    else:
        half = (len(judged) + absent) / 2
        agrees = True if agreeing > half else False if possible + lacking <= half else None
        may_decide = possible > half or agreeing + lacking <= half
    text = f"within the bounds in {agreeing} of {len(judged)} cells, {open_ones} undecided"
    needs = 0 if may_decide else math.inf
    yield Evidence(text + f", {absent} not measured" * bool(absent), agrees, needs=needs)
    if agrees is None and not may_decide:
        yield from stuck
    # The two that are furthest apart; they decide nothing by themselves.
    shown = [one for one in known if one.evidence.measured or math.isfinite(one.evidence.needs)] or known
    for name, one in {"lowest": shown[0], "highest": shown[-1]}.items():
        said, most = f"{name}: {one.evidence.text}", max(needs, one.evidence.needs)
        yield dataclasses.replace(one.evidence, text=said, agrees=agrees, needs=most, likely=None)
