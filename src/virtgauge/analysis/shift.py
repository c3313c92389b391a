"""By how much one sample lies above another that shares nothing with it: two runs, each with its own repetitions.

The point is the estimate of J. L. Hodges & E. L. Lehmann (1963), "Estimates of Location Based on Rank Tests", Annals
of Mathematical Statistics 34(2): 598-611: the median of all differences yⱼ − xᵢ.  Its interval inverts the test of H.
B. Mann & D. R. Whitney (1947): it ends at the k-th smallest and the k-th largest of those differences, with k from
the exact distribution of their statistic (D. F. Bauer 1972, "Constructing Confidence Sets Using Rank Statistics",
JASA 67: 687-690). It needs no distribution but that the two differ by a shift; of logarithms, by a factor.  Where
values are tied, the interval with its ends included holds the shift with at least that confidence (G. E. Noether
1967, "Wilcoxon Confidence Intervals for Location Parameters in the Discrete Case", JASA 62: 184-188).

With few values no interval reaches a high confidence: from the smallest to the largest difference it is 1 − 2/C(m +
n, m) (2 + 2 values: 66.7 %; 3 + 3: 90 %; 4 + 4: 97.1 %).  Then that one is given, *with that confidence*.

The distribution of a sum of ranks, with or without ties, is counted by the algorithm of B. Streitberg & J. Röhmel
(1986), "Exact Distributions for Permutation and Rank Tests", Statistical Software Newsletter 12(1): 10-17, up to
:data:`MOST_EXACT` values; beyond, it is the normal one with the corrections for ties and continuity.

**In pairs.**  Where both figures were measured in each block, the point is the median of the means of all pairs of
differences (J. L. Hodges & E. L. Lehmann 1963, Annals of Mathematical Statistics 34(2): 598-611), a difference with
itself among them.  Its interval inverts the signed-rank test of F. Wilcoxon (1945), "Individual Comparisons by Ranking
Methods", Biometrics Bulletin 1(6): 80-83 (M. Hollander, D. A. Wolfe & E. Chicken 2014, "Nonparametric Statistical
Methods", 3rd edition, section 3.3), with the exact distribution.

With few blocks no interval reaches a high confidence: from the smallest to the largest difference it is 1 − 2·0.5ⁿ (3
blocks: 75 %; 6: 96.9 %).  Then that one is given, *with that confidence*.

**What may be said.**  A change is called one only if

1. the interval of the shift excludes no change,
2. its p, adjusted for all comparisons that were made, is at most the level, and
3. it is larger than the *band*: what identical arms (A/A) seem to differ by in the run where they differ more.

That nothing changed is a finding of its own: the whole interval lies within a margin that is too small to matter.
With an interval of confidence 1 − 2α or more that is the pair of one-sided tests of D. J. Schuirmann (1987), "A
Comparison of the Two One-Sided Tests Procedure and the Power Approach", Journal of Pharmacokinetics and
Biopharmaceutics 15(6): 657-680, at the level α.  It is said first: a change that is sharp but smaller than the margin
is none that matters. Everything else has not been shown, which is not the same as no change.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
from collections.abc import Mapping, Sequence

import numpy as np
from scipy import special

from virtgauge.analysis.estimate import Estimate, Values, attainable_confidence
from virtgauge.analysis.ranks import midranks

POINTS = "points of a ratio"
"""The unit of a difference of two ratios: ``ratio`` itself is that of what was formed by division."""
MOST_EXACT = 80  # Values of both samples together of which the exact distribution is counted; it takes milliseconds
MOST_NEEDED = 10_000  # Repetitions beyond which more of them are no answer; a plan allows no more
_SLACK = 1e-9  # Relative: sums of probabilities that should be equal differ by rounding


def least_p(m: int, n: int) -> float:
    """The smallest two-sided p that m + n values can give: when all of one lie above all of the other."""
    return min(1.0, 2 / math.comb(m + n, m))


def least_size(level: float) -> int:
    """How many values each of two equal samples needs at least before any data can give a p of ``level``."""
    return next(n for n in range(2, 1000) if 2 / math.comb(2 * n, n) <= level * (1 + _SLACK))


@functools.lru_cache(maxsize=512)
def rank_sum_distribution(doubled_ranks: tuple[int, ...], size: int) -> Values:
    """How likely each doubled sum from 0 is when ``size`` of the ranks are drawn without looking.

    Ranks are doubled, for midranks may be halves.
    """
    ways = np.zeros((size + 1, sum(sorted(doubled_ranks)[-size:]) + 1))
    ways[0, 0] = 1.0
    for rank in doubled_ranks:
        ways[1:, rank:] += ways[:-1, : ways.shape[1] - rank].copy()
    return np.asarray(ways[size] / ways[size].sum(), dtype=np.float64)


@functools.lru_cache(maxsize=256)
def signed_rank_distribution(doubled_ranks: tuple[int, ...]) -> Values:
    """How likely each doubled sum from 0 is when every rank is counted or not with a chance of one half."""
    chances = np.zeros(sum(doubled_ranks) + 1)
    chances[0] = 1.0
    for rank in doubled_ranks:
        chances[rank:] += chances[: chances.size - rank].copy()
        chances /= 2
    return chances


# Which of the ordered differences, or means of them, end an interval: how many it leaves out at each end, and the
# confidence with which it then holds the shift; less than ``nominal`` only where not even the widest reaches it.


@functools.cache
def interval_place(m: int, n: int, nominal: float) -> tuple[int, float]:
    """The place of an interval's end among the sorted m·n differences of m + n values, and its confidence."""
    small, total = min(m, n), m + n
    if 1 - least_p(m, n) <= nominal:
        return 0, 1 - least_p(m, n)
    if total <= MOST_EXACT:
        # U is the sum of ranks less its least, and without ties every second doubled sum is impossible.
        return _place(
            rank_sum_distribution(tuple(range(2, 2 * total + 1, 2)), small)[small * (small + 1) :: 2], nominal
        )
    spread = math.sqrt(m * n * (total + 1) / 12)
    place = max(0, math.floor(m * n / 2 + special.ndtri((1 - nominal) / 2) * spread - 0.5))
    return place, 1 - 2 * float(special.ndtr((place + 0.5 - m * n / 2) / spread))


@functools.cache
def _paired_place(n: int, nominal: float) -> tuple[int, float]:
    """The same place among the sorted means of all pairs of n differences, and its confidence."""
    if attainable_confidence(n) <= nominal:
        return 0, attainable_confidence(n)
    return _place(signed_rank_distribution(tuple(range(2, 2 * n + 1, 2)))[::2], nominal)


def _place(chances: Values, nominal: float) -> tuple[int, float]:
    tails = np.cumsum(chances)
    place = int(np.searchsorted(tails, (1 - nominal) / 2 * (1 + _SLACK), side="right")) - 1
    return place, 1 - 2 * float(tails[place])


def shift_estimate(x: Sequence[float], y: Sequence[float], unit: str, nominal: float) -> Estimate:
    """By how much y lies above x, in their unit; ``n`` is the size of the smaller sample.

    Of ratios the unit is :data:`POINTS`.  Raises ValueError: a value that is no finite number.
    """
    unit = POINTS if unit == "ratio" else unit
    m, n = len(x), len(y)
    if not m or not n:
        return Estimate.missing(unit, "one of the two has no valid repetition")
    differences = np.subtract.outer(_finite(y), _finite(x))
    if m + n == 2:
        return Estimate.bare(float(differences[0, 0]), unit, "a single repetition each: no interval")
    what = f"Hodges–Lehmann shift between {m} and {n} independent repetitions"
    return _estimate(differences, min(m, n), unit, nominal, interval_place(m, n, nominal), what, "Mann–Whitney")


def paired_shift_estimate(differences: Sequence[float], unit: str, nominal: float) -> Estimate:
    """The shift that the differences within each block show, in their unit; of ratios it is :data:`POINTS`.

    Raises ValueError: a value that is no finite number.
    """
    unit = POINTS if unit == "ratio" else unit
    n = len(differences)
    if n == 0:
        return Estimate.missing(unit, "no block has a valid trial of both arms")
    values = _finite(differences)
    if n == 1:
        return Estimate.bare(float(values[0]), unit, "a single repetition: no interval")
    means = (np.add.outer(values, values) / 2)[np.triu_indices(n)]
    what = f"Hodges–Lehmann shift within {n} blocks"
    return _estimate(means, n, unit, nominal, _paired_place(n, nominal), what, "signed-rank")


def _estimate(
    differences: Values, n: int, unit: str, nominal: float, ends: tuple[int, float], what: str, test: str
) -> Estimate:
    ordered = np.sort(differences, axis=None)
    place, confidence = ends
    how = (
        f"smallest to largest difference, {confidence:.2%} is the most they can give"
        if confidence < nominal
        else f"interval by inverting the {test} test"
    )
    low, high = float(ordered[place]), float(ordered[-1 - place])
    return Estimate(float(np.median(ordered)), low, high, confidence, n, unit, f"{what}; {how}")


def mann_whitney_p(x: Sequence[float], y: Sequence[float]) -> float:
    """Two-sided p of x and y being of one distribution, exact with ties and without.

    Raises ValueError: a value that is no finite number.
    """
    ranks = midranks(np.concatenate([_finite(x), _finite(y)]))
    n, size = ranks.size, min(len(x), len(y))
    own = ranks[: len(x)] if len(x) == size else ranks[len(x) :]
    if n <= MOST_EXACT:
        return _two_sided(rank_sum_distribution(_doubled(ranks), size), own)
    spread = math.sqrt(size * (n - size) / n * float(np.var(ranks, ddof=1)))
    apart = abs(float(own.sum()) - size * (n + 1) / 2) - 0.5
    return 1.0 if spread == 0 else min(1.0, float(2 * special.ndtr(-max(apart, 0.0) / spread)))


def signed_rank_p(differences: Sequence[float]) -> float:
    """Two-sided p of differences lying symmetrically about 0, exact with ties; zeros are left out.

    Raises ValueError: a value that is no finite number.
    """
    values = _finite(differences)
    values = values[values != 0]
    ranks = midranks(np.abs(values))
    return _two_sided(signed_rank_distribution(_doubled(ranks)), ranks[values > 0])


def _finite(values: Sequence[float]) -> Values:
    found = np.asarray(values, dtype=np.float64)
    if not np.isfinite(found).all():
        raise ValueError("a value that is missing or infinite has no rank")
    return found


def _doubled(ranks: Values) -> tuple[int, ...]:
    return tuple(sorted(np.rint(2 * ranks).astype(int).tolist()))


def _two_sided(chances: Values, own: Values) -> float:
    """How likely a doubled sum of ranks is that is as far from the middle as this one."""
    total = int(np.rint(2 * own.sum()))
    return min(1.0, 2 * float(min(chances[: total + 1].sum(), chances[total:].sum())))


class Outcome(enum.StrEnum):
    """What two runs allow to be said of a figure."""

    HIGHER = "higher"
    LOWER = "lower"
    EQUIVALENT = "equivalent"
    NOT_SHOWN = "not shown"


@dataclasses.dataclass(frozen=True)
class Shifted:
    """By how much a figure lies higher in one run than in the base."""

    ratio: Estimate  # other / base; missing where a figure is 0 or negative
    difference: Estimate  # other − base, in the measure's unit
    p: float | None  # two-sided; None where one of them has no repetition
    sizes: tuple[int, int]  # repetitions of base and other
    paired: bool = False  # whether both were measured in each repetition

    @property
    def least_p(self) -> float:
        return 2 * 0.5 ** min(self.sizes) if self.paired else least_p(*self.sizes)

    def least_size(self, level: float) -> int:
        """How many repetitions it takes before any data can give a p of ``level``."""
        return math.ceil(math.log2(2 / level) - _SLACK) if self.paired else least_size(level)

    @property
    def by_ratio(self) -> bool:
        """Whether it is judged by the ratio; else by the difference."""
        return self.ratio.point is not None


@dataclasses.dataclass(frozen=True)
class Bounds:
    """What a change is held against."""

    # what identical arms differ by: a factor ≥ 1 for ratios, else in the measure's unit; None when not known
    band: float | None
    margin: float  # the largest change that does not matter, as a share (0.05); 0 when every change does
    base: float  # the base's figure, of which the margin is a share where differences are judged
    level: float  # α, of the whole family of comparisons
    comparisons: int  # how many there are in the family
    held: int  # how many of them hold at the level


@dataclasses.dataclass(frozen=True)
class Judged:
    """An outcome, why, and how many repetitions of each run would probably decide what is not shown; None if none."""

    outcome: Outcome
    reason: str
    needed: int | None = None


def shifted(base: Sequence[float], other: Sequence[float], unit: str, nominal: float) -> Shifted:
    """Compare independent repetitions of two runs."""
    sizes = len(base), len(other)
    difference = shift_estimate(base, other, unit, nominal)
    if not base or not other:
        return Shifted(Estimate.missing("ratio", difference.method), difference, None, sizes)
    if min(*base, *other) <= 0:
        ratio = Estimate.missing("ratio", "a ratio needs positive figures; see the difference", min(sizes))
    else:
        first, second = ([math.log(value) for value in values] for values in (base, other))
        ratio = shift_estimate(first, second, "log", nominal).mapped(math.exp, "ratio")
    return Shifted(ratio, difference, mann_whitney_p(base, other), sizes)


def paired_shifted(base: Mapping[int, float], other: Mapping[int, float], unit: str, nominal: float) -> Shifted:
    """Compare two arms of one run within its blocks."""
    blocks = sorted(base.keys() & other.keys())
    differences = [other[block] - base[block] for block in blocks]
    difference = paired_shift_estimate(differences, unit, nominal)
    sizes = len(blocks), len(blocks)
    if any(base[block] <= 0 or other[block] <= 0 for block in blocks):
        ratio = Estimate.missing("ratio", "a ratio needs positive figures; see the difference", len(blocks))
        return Shifted(ratio, difference, signed_rank_p(differences), sizes, paired=True)
    logs = [math.log(other[block] / base[block]) for block in blocks]
    ratio = paired_shift_estimate(logs, "log", nominal).mapped(math.exp, "ratio")
    return Shifted(ratio, difference, signed_rank_p(logs) if blocks else None, sizes, paired=True)


def judge(change: Shifted, p_adjusted: float | None, bounds: Bounds) -> Judged:
    """What may be said of a change, with its p adjusted for the whole family of comparisons; see the module."""
    estimate = change.ratio if change.by_ratio else change.difference
    if p_adjusted is None or estimate.point is None or estimate.low is None or estimate.high is None:
        needed = change.least_size(bounds.level) if min(change.sizes) else None
        return Judged(Outcome.NOT_SHOWN, estimate.method, needed)

    def scale(value: float) -> float:
        """A figure on the scale on which 0 is no change."""
        return math.log(value) if change.by_ratio else value

    margin = math.log1p(bounds.margin) if change.by_ratio else bounds.margin * abs(bounds.base)
    point, low, high = scale(estimate.point), scale(estimate.low), scale(estimate.high)
    band = None if bounds.band is None else scale(bounds.band)
    if bounds.margin and -margin <= low and high <= margin and estimate.reaches(1 - 2 * bounds.level - _SLACK):
        small = "" if low <= 0 <= high else ", though the interval excludes none"
        return Judged(Outcome.EQUIVALENT, f"the whole interval lies within ±{bounds.margin:.3g} of no change{small}")
    if low <= 0 <= high:
        reason = f"the interval includes {1 if change.by_ratio else 0} (no change)"
    elif p_adjusted > bounds.level and change.least_p > bounds.level:
        reason = f"with so few repetitions chance alone gives as much once in {1 / change.least_p:.0f} times"
    elif p_adjusted > bounds.level:
        reason = f"among {bounds.comparisons} comparisons chance alone may give as much"
    elif band is None:
        reason = "no A/A interval of both runs: what identical arms differ by is unknown"
    elif abs(point) <= band:
        by = "by a factor of" if change.by_ratio else "by"
        reason = f"identical arms (A/A) may seem to differ {by} {bounds.band:.3g}"
    else:
        outcome = Outcome.HIGHER if point > 0 else Outcome.LOWER
        return Judged(outcome, "the interval excludes no change and the effect exceeds what identical arms differ by")
    beyond_band = None if band is None else abs(point) - band
    half = max(high - point, point - low)
    return Judged(Outcome.NOT_SHOWN, reason, _needed(change, half, beyond_band, margin - abs(point), bounds))


def _needed(change: Shifted, half: float, beyond_band: float | None, within: float, bounds: Bounds) -> int | None:
    """Repetitions of each run at which the interval would probably be clear of no change, or within the margin.

    The interval narrows with the square root of the repetitions if spread and effect stay what they are.  A change has
    to hold among all comparisons, so it needs an interval of the confidence that the next one to hold would need.

    ``half`` is the longer half of the interval; the point lies so far beyond the band, and within the margin (negative
    where it does not).
    """
    n = min(change.sizes)
    next_level = bounds.level * min(bounds.held + 1, bounds.comparisons) / bounds.comparisons
    wider = float(special.ndtri(1 - next_level / 2) / special.ndtri(1 - bounds.level / 2))
    routes = []
    if beyond_band is not None and beyond_band > 0:
        routes.append(max(change.least_size(next_level), math.ceil(n * (half * wider / beyond_band) ** 2)))
    if bounds.margin and within > 0:
        routes.append(max(change.least_size(2 * bounds.level), math.ceil(n * (half / within) ** 2)))
    needed = max(min(routes), n + 1) if routes else None
    return needed if needed is not None and needed <= MOST_NEEDED else None


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Adjusted p in the order given: those at or below a level q hold, of what holds, a share q of chance at most.

    Y. Benjamini & Y. Hochberg (1995), "Controlling the False Discovery Rate: A Practical and Powerful Approach to
    Multiple Testing", Journal of the Royal Statistical Society B 57(1): 289-300.  It holds for independent comparisons
    and for those that depend on one another positively, as cells of one run do (Y. Benjamini & D. Yekutieli 2001,
    Annals of Statistics 29: 1165-1188).
    """
    number = len(p_values)
    order = sorted(range(number), key=lambda place: p_values[place], reverse=True)
    adjusted = [1.0] * number
    lowest = 1.0
    for step, place in enumerate(order):
        lowest = min(lowest, p_values[place] * number / (number - step))
        adjusted[place] = lowest
    return adjusted


def threshold(p_values: Sequence[float], level: float) -> float:
    """The unadjusted p up to which results hold at the false discovery rate ``level``; 0 when none does."""
    held = sum(p <= level for p in benjamini_hochberg(p_values))
    return level * held / len(p_values) if held else 0.0
