"""By how much one of two figures lies above the other where both were measured in each block.

The point is the median of the means of all pairs of differences (J. L. Hodges & E. L. Lehmann 1963, Annals of
Mathematical Statistics 34(2): 598-611), a difference with itself among them.  Its interval inverts the signed-rank
test of F. Wilcoxon (1945), "Individual Comparisons by Ranking Methods", Biometrics Bulletin 1(6): 80-83 (M.
Hollander, D. A. Wolfe & E. Chicken 2014, "Nonparametric Statistical Methods", 3rd edition, section 3.3), with the
exact distribution.

With few blocks no interval reaches a high confidence: from the smallest to the largest difference it is 1 − 2·0.5ⁿ (3
blocks: 75 %; 6: 96.9 %).  Then that one is given, *with that confidence*.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from virtgauge.analysis.bootstrap import attainable_confidence
from virtgauge.analysis.estimate import Estimate
from virtgauge.analysis.ranks import midranks

Values = npt.NDArray[np.float64]

_SLACK = 1e-9
"""Relative: sums of probabilities that should be equal differ by rounding."""


@functools.lru_cache(maxsize=256)
def signed_rank_distribution(doubled_ranks: tuple[int, ...]) -> Values:
    """How likely each doubled sum from 0 is when every rank is counted or not with a chance of one half."""
    chances = np.zeros(sum(doubled_ranks) + 1)
    chances[0] = 1.0
    for rank in doubled_ranks:
        chances[rank:] += chances[: chances.size - rank].copy()
        chances /= 2
    return chances


def paired_shift_estimate(differences: Sequence[float], unit: str, nominal: float) -> Estimate:
    """The shift that differences within blocks show, in their unit.

    Args:
        differences: of each block.
        unit: of them.
        nominal: the confidence wanted, in 0…1.
    """
    n = len(differences)
    if n == 0:
        return Estimate.missing(unit, "no block has a valid trial of both arms")
    values = np.asarray(differences, dtype=np.float64)
    if not np.isfinite(values).all():
        raise ValueError("a value that is missing or infinite cannot be compared")
    means = np.sort(((values[:, None] + values[None, :]) / 2)[np.triu_indices(n)])
    point = float(np.median(means))
    if n == 1:
        return Estimate.bare(point, unit, "a single repetition: no interval")
    place, confidence = _interval_place(n, nominal)
    method = f"Hodges–Lehmann shift within {n} blocks; " + (
        f"smallest to largest difference, {confidence:.2%} is the most they can give"
        if confidence < nominal
        else "interval by inverting the signed-rank test"
    )
    return Estimate(point, float(means[place]), float(means[-1 - place]), confidence, n, unit, method)


def signed_rank_p(differences: Sequence[float]) -> float:
    """Two-sided p of the hypothesis that differences lie symmetrically about 0, exact with ties; zeros are left out.

    Raises:
        ValueError: a value that is no finite number.
    """
    values = np.asarray(differences, dtype=np.float64)
    if not np.isfinite(values).all():
        raise ValueError("a value that is missing or infinite has no rank")
    values = values[values != 0]
    if not values.size:
        return 1.0
    doubled = np.rint(2 * midranks(np.abs(values))).astype(int)
    chances = signed_rank_distribution(tuple(sorted(doubled.tolist())))
    total = int(doubled[values > 0].sum())
    return min(1.0, 2 * float(min(chances[: total + 1].sum(), chances[total:].sum())))


@functools.cache
def _interval_place(n: int, nominal: float) -> tuple[int, float]:
    """How many of the ordered means the interval leaves out at each end, and its confidence."""
    if not 0 < nominal < 1:
        raise ValueError(f"confidence must lie between 0 and 1, not {nominal}")
    if attainable_confidence(n) <= nominal:
        return 0, attainable_confidence(n)
    tails = np.cumsum(signed_rank_distribution(tuple(range(2, 2 * n + 1, 2)))[::2])
    place = int(np.searchsorted(tails, (1 - nominal) / 2 * (1 + _SLACK), side="right")) - 1
    return place, 1 - 2 * float(tails[place])
