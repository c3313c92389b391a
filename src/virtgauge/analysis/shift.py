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
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy import special

from virtgauge.analysis.bootstrap import attainable_confidence
from virtgauge.analysis.estimate import Estimate
from virtgauge.analysis.ranks import midranks

Values = npt.NDArray[np.float64]

MOST_EXACT = 80  # Values of both samples together of which the exact distribution is counted; it takes milliseconds
_SLACK = 1e-9  # Relative: sums of probabilities that should be equal differ by rounding


def widest_confidence(m: int, n: int) -> float:
    """That of the interval from the smallest to the largest difference of m + n values: 1 − 2/C(m + n, m)."""
    return 1 - 2 / math.comb(m + n, m)


def least_p(m: int, n: int) -> float:
    """The smallest two-sided p that m + n values can give: when all of one lie above all of the other."""
    return min(1.0, 2 / math.comb(m + n, m))


def least_size(level: float) -> int:
    """How many values each of two equal samples needs at least before any data can give a p of ``level``."""
    return next(n for n in range(2, 1000) if 2 / math.comb(2 * n, n) <= level * (1 + _SLACK))


@functools.lru_cache(maxsize=512)
def rank_sum_distribution(doubled_ranks: tuple[int, ...], size: int) -> Values:
    """How likely each doubled sum from 0 is when ``size`` of the ranks are drawn without looking.

    Args:
        doubled_ranks: twice the midranks of all values, which is whole where ranks are halved.
        size: of one of the samples.
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
    """Of the m·n differences of m + n values."""
    small, total = min(m, n), m + n
    if widest_confidence(m, n) <= nominal:
        return 0, widest_confidence(m, n)
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
    """Of the means of all pairs of n differences."""
    if attainable_confidence(n) <= nominal:
        return 0, attainable_confidence(n)
    return _place(signed_rank_distribution(tuple(range(2, 2 * n + 1, 2)))[::2], nominal)


def _place(chances: Values, nominal: float) -> tuple[int, float]:
    tails = np.cumsum(chances)
    place = int(np.searchsorted(tails, (1 - nominal) / 2 * (1 + _SLACK), side="right")) - 1
    return place, 1 - 2 * float(tails[place])


def shift_estimate(x: Sequence[float], y: Sequence[float], unit: str, nominal: float) -> Estimate:
    """By how much y lies above x, in their unit; ``n`` is the size of the smaller sample.

    Raises:
        ValueError: a value that is no finite number.
    """
    m, n = len(x), len(y)
    if not m or not n:
        return Estimate.missing(unit, "one of the two has no valid repetition")
    differences = np.subtract.outer(_finite(y), _finite(x))
    if m + n == 2:
        return Estimate.bare(float(differences[0, 0]), unit, "a single repetition each: no interval")
    what = f"Hodges–Lehmann shift between {m} and {n} independent repetitions"
    return _estimate(differences, min(m, n), unit, nominal, interval_place(m, n, nominal), what, "Mann–Whitney")


def paired_shift_estimate(differences: Sequence[float], unit: str, nominal: float) -> Estimate:
    """The shift that the differences within each block show, in their unit.

    Raises:
        ValueError: a value that is no finite number.
    """
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
    """Two-sided p of the hypothesis that x and y are of one distribution, exact with ties and without.

    Raises:
        ValueError: a value that is no finite number.
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
    """Two-sided p of the hypothesis that differences lie symmetrically about 0, exact with ties; zeros are left out.

    Raises:
        ValueError: a value that is no finite number.
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
