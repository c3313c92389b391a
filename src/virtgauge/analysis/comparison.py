"""Paired comparison with the reference, guarded by the A/A pair.

Arms of one block ran close together in time, so the ratio is formed within the block and what the blocks have in
common (temperature, a neighbour's day) cancels.  The estimate is the median over blocks of log(test / reference),
with the interval of :mod:`virtgauge.analysis.estimate`, taken back to a ratio.

**The A/A guard.**  The reference is also measured against itself.  Its true ratio is 1, so whatever the A/A interval
still allows is what this machine does between *identical* arms.  A difference is called distinguishable only if

1. the interval of the ratio excludes 1, with the confidence wanted, and
2. |log ratio| is larger than the *band*: the larger of |log low| and |log high| of the A/A interval, and at least
   the resolution of the figures (two values of 3 significant digits: :data:`RESOLUTION`).

Condition 1 alone would be satisfied by any systematic difference between first and second place in a block, between two
cores, between two copies of one guest; condition 2 is what such differences amounted to here.  Without an A/A
interval there is no band, and nothing is called distinguishable.

**Differences.**  An error of 0 % has no ratio.  Figures that may be zero are compared by their difference within each
block, in the measure's own unit: its interval has to exclude 0, and the band is the larger end of the interval of the
difference between identical arms.

**Resolution.**  "No difference shown" says nothing without the size that would have been seen.  With the interval that
these repetitions gave, a figure had to be higher by more than the lower half of the interval, or lower by more than its
upper half, and by more than the band: the larger of half and band is the resolution, in each direction.  A true
difference of just that size has an even chance of being shown; one of twice the size (of a ratio: its square) nearly
always is.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Mapping, Sequence

import numpy as np
from scipy import special

from virtgauge.analysis.estimate import Estimate, Values, median_estimate

RESOLUTION = 0.002  # Relative: a bin of the histogram is up to 0.1 % wide, and a ratio has two of them
AA_ALARM = 0.01
"""How unlikely by chance the number of A/A intervals that miss 1 must be before the A/A pair counts as differing."""
FARTHEST = 300.0  # Largest |log| of a ratio: e^±300 and their quotients are still numbers; no machine comes near
COARSE = 1.5  # A comparison that could only have shown differences above this factor has no resolving power to speak of


class Judgement(enum.StrEnum):
    """What a paired comparison allows to be said."""

    HIGHER = "higher"
    LOWER = "lower"
    INCONCLUSIVE = "inconclusive"


@dataclasses.dataclass(frozen=True)
class Difference:
    """One figure beside another, in pairs."""

    estimate: Estimate  # test − base, in the measure's unit
    # how far identical arms seem apart, likewise; None when that is not known
    band: float | None
    judgement: Judgement  # whether the tested figure is higher or lower, or no difference has been shown
    reason: str
    # whether the interval has the confidence that is wanted: of fewer repetitions no difference is ever shown
    reached: bool = dataclasses.field(default=True, kw_only=True)

    @property
    def distinguishable(self) -> bool:
        return self.judgement is not Judgement.INCONCLUSIVE


@dataclasses.dataclass(frozen=True)
class Comparison(Difference):
    """A test arm beside the reference, judged by the ratio test / reference; the A/A band is a factor ≥ 1."""

    difference: Estimate  # test − reference, in the measure's unit

    @property
    def ratio(self) -> Estimate:
        return self.estimate


@dataclasses.dataclass(frozen=True)
class Agreement:
    """What the A/A pairs of a run say together."""

    cells: int  # A/A comparisons that had an interval
    excluding: int  # those whose interval excludes 1
    # how many of them may do so by chance (the 99 % quantile of the binomial distribution with the intervals' own
    # confidence)
    tolerated: int
    widest: float | None  # the largest A/A band, as a factor ≥ 1; None without any

    @property
    def ok(self) -> bool | None:
        """Whether identical arms look identical; None when that could not be examined."""
        return None if self.cells == 0 else self.excluding <= self.tolerated


@dataclasses.dataclass(frozen=True)
class Resolution:
    """What a comparison could have shown."""

    # higher, lower: the smallest difference in each direction: of ratios a factor ≥ 1, of differences in their own
    # unit and ≥ 0; None where no difference at all could be shown
    higher: float | None
    lower: float | None
    band: float | None  # of identical arms, likewise; None when that is not known
    reason: str  # what limits the wider direction, in a few words

    @property
    def smallest(self) -> float | None:
        """The least that it resolves, in the direction in which that is less."""
        return None if self.higher is None or self.lower is None else min(self.higher, self.lower)

    @property
    def widest(self) -> float:
        """The least that it resolves in the other direction; without bound where no difference could be shown."""
        return math.inf if self.higher is None or self.lower is None else max(self.higher, self.lower)


def paired_ratio(test: Mapping[int, float], reference: Mapping[int, float], nominal: float) -> Estimate:
    """The ratio test / reference over the blocks that have both."""
    above, below = _paired(test, reference)
    if not above.size:
        return Estimate.missing("ratio", "no block has a valid trial of both arms")
    if not above.any() and not below.any():
        return Estimate.missing("ratio", "nothing was seen in either: both are 0 in every repetition", above.size)
    if min(above.min(), below.min()) <= 0:
        some = f"{int(np.sum((above <= 0) | (below <= 0)))} of {above.size} repetitions have one of 0 or less"
        return Estimate.missing("ratio", f"a ratio needs positive figures, and {some}; see the difference", above.size)
    logs = np.log(above) - np.log(below)
    if np.abs(logs).max() > FARTHEST:
        return Estimate.missing("ratio", "figures that far apart have no ratio", above.size)
    estimate = median_estimate(logs, "log", nominal).mapped(math.exp, "ratio")
    return dataclasses.replace(estimate, method=f"paired by block; {estimate.method}")


def _paired(test: Mapping[int, float], reference: Mapping[int, float]) -> tuple[Values, Values]:
    """The figures of both in the blocks that both have."""
    if [*test] != [*reference]:
        blocks = sorted(test.keys() & reference.keys())
        test, reference = ({block: of[block] for block in blocks} for of in (test, reference))
    own, other = (np.fromiter(of.values(), np.float64, len(of)) for of in (test, reference))
    return own, other


def unpaired_ratio(one: Estimate, other: Estimate) -> Estimate:
    """The ratio of two positive estimates, with the widest interval that their ends allow.

    For figures that have no blocks in common, or of which only the estimates are known.  As sure as the less sure.
    """
    for lacking in (one, other):
        if lacking.point is None:
            return lacking
    assert one.point is not None and other.point is not None
    n = min(one.n, other.n)
    if one.low is None or one.high is None or other.low is None or other.high is None:
        return Estimate.bare(one.point / other.point, "ratio", "one of them has no interval", n)
    if other.low <= 0:
        return Estimate.missing("ratio", "a ratio needs positive figures; see the difference", n)
    return Estimate(
        one.point / other.point,
        one.low / other.high,
        one.high / other.low,
        None if one.confidence is None or other.confidence is None else min(one.confidence, other.confidence),
        n,
        "ratio",
        "ratio of two estimates, with the widest interval that their ends allow",
    )


def paired_difference(test: Mapping[int, float], reference: Mapping[int, float], unit: str, nominal: float) -> Estimate:
    """The difference test − reference over the blocks that have both, in ``unit``."""
    own, other = _paired(test, reference)
    if not own.size:
        return Estimate.missing(unit, "no block has a valid trial of both arms")
    estimate = median_estimate(own - other, unit, nominal)
    return dataclasses.replace(estimate, method=f"paired by block; {estimate.method}")


def aa_band(aa: Estimate | None) -> float | None:
    """How far apart identical arms may seem, as a factor ≥ 1 (see the module); None without an A/A interval."""
    if aa is None or aa.low is None or aa.high is None:
        return None
    return math.exp(max(abs(math.log(aa.low)), abs(math.log(aa.high)), math.log1p(RESOLUTION)))


def compare(
    test: Mapping[int, float], reference: Mapping[int, float], aa: Estimate | None, unit: str, nominal: float
) -> Comparison:
    """Compare a test arm with the reference, guarded by the A/A pair's ratio ``aa`` of the same measure."""
    ratio = paired_ratio(test, reference, nominal)
    difference = paired_difference(test, reference, unit, nominal)
    judgement, reason = judge_ratio(ratio, aa, nominal)
    return Comparison(ratio, aa_band(aa), judgement, reason, difference, reached=ratio.reaches(nominal))


def judge_ratio(ratio: Estimate, aa: Estimate | None, nominal: float) -> tuple[Judgement, str]:
    """What a ratio says, guarded by the A/A pair's ratio, and why."""
    return _judge(ratio, aa_band(aa), nominal, by_ratio=True)


def band_of(identical: Sequence[Estimate]) -> float | None:
    """The widest that differences of identical arms allow, one for each condition; None unless each has an interval."""
    ends = [max(abs(one.low), abs(one.high)) for one in identical if one.low is not None and one.high is not None]
    return max(ends) if ends and len(ends) == len(identical) else None


def compare_differences(
    test: Mapping[int, float], base: Mapping[int, float], band: float | None, unit: str, nominal: float
) -> Difference:
    """Compare two figures by blocks, guarded by the band of identical arms (:func:`band_of`)."""
    estimate = paired_difference(test, base, unit, nominal)
    judgement, reason = _judge(estimate, band, nominal, by_ratio=False)
    return Difference(estimate, band, judgement, reason, reached=estimate.reaches(nominal))


def _judge(estimate: Estimate, band: float | None, nominal: float, *, by_ratio: bool) -> tuple[Judgement, str]:
    same = 1 if by_ratio else 0
    if estimate.point is None or not estimate.reaches(nominal):
        return Judgement.INCONCLUSIVE, estimate.method
    if not estimate.excludes(same):
        what = "ratio" if by_ratio else "difference"
        return Judgement.INCONCLUSIVE, f"the interval of the {what} includes {same}"
    if band is None:
        return Judgement.INCONCLUSIVE, "no A/A interval: what identical arms differ by is unknown"
    if abs(math.log(estimate.point)) <= math.log(band) if by_ratio else abs(estimate.point) <= band:
        by = "by a factor of" if by_ratio else "by"
        return Judgement.INCONCLUSIVE, f"identical arms (A/A) may seem to differ {by} {band:.3g}"
    judgement = Judgement.HIGHER if estimate.point > same else Judgement.LOWER
    return judgement, f"the interval excludes {same} and the effect exceeds what identical arms (A/A) differ by"


def agreement(ratios: Sequence[Estimate]) -> Agreement:
    """What all A/A ratios of a run say together.

    Of many intervals with confidence c, a share 1 − c misses the truth by design; so one that excludes 1 proves
    nothing.  The pair is said to differ only if more do than chance explains (cells are taken as independent,
    each with the lowest confidence among them).
    """
    confidences = [ratio.confidence for ratio in ratios if ratio.confidence is not None]
    bands = [band for ratio in ratios if (band := aa_band(ratio)) is not None]
    if not confidences:
        return Agreement(0, 0, 0, None)
    n, chance = len(confidences), 1 - min(confidences)
    tolerated = next(k for k in range(n + 1) if special.bdtr(k, n, chance) >= 1 - AA_ALARM)
    # Up to the resolution of the figures: two neighbouring bins are no difference.
    near = 1 + RESOLUTION
    excluding = sum(
        ratio.low is not None and ratio.high is not None and not (ratio.low <= near and ratio.high >= 1 / near)
        for ratio in ratios
    )
    return Agreement(n, excluding, tolerated, max(bands))


def resolution(found: Difference) -> Resolution:
    """What a comparison could have shown, whatever it did show."""
    known = resolution_of(found.estimate, found.band)
    if found.reached or known.smallest is None:
        return known
    reach = 100 * (found.estimate.confidence or 0.0)
    words = f"{found.estimate.n} repetitions give {reach:.1f} % confidence at most"
    return Resolution(None, None, found.band, words)


def resolution_of(estimate: Estimate, band: float | None) -> Resolution:
    """The same of an estimate alone, be it of a ratio (its unit says so) or of a difference, and of its band."""
    point, low, high = estimate.point, estimate.low, estimate.high
    if point is None or low is None or high is None:
        return Resolution(None, None, band, estimate.method.rpartition("; ")[2])
    if band is None:
        return Resolution(None, None, None, "no A/A interval")
    by_ratio = estimate.unit == "ratio"
    halves = (point / low, high / point) if by_ratio else (point - low, high - point)
    interval = f"interval of {estimate.n} repetition{'' if estimate.n == 1 else 's'}"
    reason = "A/A band" if band >= max(halves) else interval
    return Resolution(max(band, halves[0]), max(band, halves[1]), band, reason)


def is_coarse(comparison: Comparison) -> bool:
    """Whether no difference was shown, and only above :data:`COARSE` in either direction had one an even chance.

    Then its ratio says nothing.  Of a comparison without an interval or a band that is not known, so it is not called
    coarse.
    """
    smallest = resolution(comparison).smallest
    return not comparison.distinguishable and smallest is not None and smallest > COARSE
