"""Tests on ranks: Kruskal–Wallis, Dunn's pairwise comparisons, and Holm's adjustment.

W. H. Kruskal & W. A. Wallis (1952), "Use of Ranks in One-Criterion Variance Analysis", JASA 47: 583-621; O. J. Dunn
(1964), "Multiple Comparisons Using Rank Sums", Technometrics 6(3): 241-252; S. Holm (1979), "A Simple Sequentially
Rejective Multiple Test Procedure", Scandinavian Journal of Statistics 6: 65-70.  Ties get their mean rank, and both
statistics are corrected for them.  All tests are two-sided.

They are written out here because ``scipy.stats`` takes over a second to import, and packages with Dunn's test bring
pandas and a drawing library with them; the tests hold these functions to SciPy, to scikit-posthocs and to published
examples.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from scipy import special

Values = npt.NDArray[np.float64]
Unit = TypeVar("Unit", bound=Hashable)


@dataclasses.dataclass(frozen=True)
class KruskalWallis:
    """Whether groups of independent values differ in location.

    Attributes:
        h: the statistic, corrected for ties.
        df: groups − 1.
        p: from the χ² distribution with ``df`` degrees of freedom.
        sizes: of the groups.
    """

    h: float
    df: int
    p: float
    sizes: tuple[int, ...]

    @property
    def n(self) -> int:
        return sum(self.sizes)


@dataclasses.dataclass(frozen=True)
class DunnPair:
    """Two of the groups compared on the ranks of all.

    Attributes:
        first, second: places of the groups.
        z: positive where the first group's mean rank is the higher one.
        p: two-sided, unadjusted.
        p_holm: adjusted for all pairs of the same test.
    """

    first: int
    second: int
    z: float
    p: float
    p_holm: float


def midranks(values: Values) -> Values:
    """The rank of each value from 1; equal values share the mean of their ranks.  Any shape."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    upper = np.cumsum(counts)
    return np.asarray((upper - (counts - 1) / 2)[place].reshape(values.shape), dtype=np.float64)


def unit_ranks(levels: Sequence[Sequence[Mapping[Unit, float]]]) -> list[Values]:
    """One value for each unit, such as a guest: the mean, over its cells, of its rank within the cell.

    Values of one unit are correlated: pooled as if they were independent, they show a factor between units where there
    is none.  A rank counts as a share of its cell, 0…1, so that cells with fewer units weigh as much.

    Args:
        levels: for each level of the factor between units its values by unit, cell by cell, in the same order of cells.
    """
    found: list[dict[Unit, list[float]]] = [{} for _ in levels]
    for cell in zip(*levels, strict=True):
        named = [(place, unit, value) for place, values in enumerate(cell) for unit, value in values.items()]
        shares = midranks(np.array([value for _, _, value in named])) / (len(named) + 1)
        for (place, unit, _), share in zip(named, shares, strict=True):
            found[place].setdefault(unit, []).append(float(share))
    return [np.array([np.mean(shares) for shares in units.values()]) for units in found]


def kruskal_wallis(groups: Sequence[Values]) -> KruskalWallis:
    """Kruskal–Wallis over two or more groups.

    Where all values are equal nothing can differ: H is 0 and p is 1.

    Raises:
        ValueError: fewer than two groups, an empty one, or a value that is no finite number.
    """
    ranks, sizes = _ranked(groups)
    n = sum(sizes)
    spread = _tie_corrected_variance(ranks)
    if spread == 0:
        return KruskalWallis(0.0, len(groups) - 1, 1.0, sizes)
    centre = (n + 1) / 2
    h = sum(part.size * (part.mean() - centre) ** 2 for part in _split(ranks, sizes)) / spread
    df = len(groups) - 1
    return KruskalWallis(float(h), df, float(special.chdtrc(df, h)), sizes)


def dunn(groups: Sequence[Values]) -> tuple[DunnPair, ...]:
    """Dunn's test of every pair of groups, in the order of :func:`itertools.combinations`.

    Raises:
        ValueError: as :func:`kruskal_wallis`.
    """
    ranks, sizes = _ranked(groups)
    spread = _tie_corrected_variance(ranks)
    means = [part.mean() for part in _split(ranks, sizes)]
    pairs = list(itertools.combinations(range(len(groups)), 2))
    z = [
        0.0 if spread == 0 else float((means[i] - means[j]) / math.sqrt(spread * (1 / sizes[i] + 1 / sizes[j])))
        for i, j in pairs
    ]
    p = [float(2 * special.ndtr(-abs(value))) for value in z]
    return tuple(DunnPair(*row) for row in zip(*zip(*pairs, strict=True), z, p, holm(p), strict=True))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment, in the order given: what each p has to be below a level for the whole family."""
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for step, place in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - step) * p_values[place]))
        adjusted[place] = highest
    return adjusted


def least_attainable_p(sizes: Sequence[int]) -> float:
    """The smallest p that *any* data of these group sizes could have in an exact test of ranks.

    Of all N!/∏nᵢ! ways to deal the ranks out to the groups, complete separation is the most extreme.  Its mirror
    image is as extreme, and so is every order of the groups where they are of one size.  The χ² approximation can
    fall below this (3 + 3 values: 0.0495 instead of 0.1), so whoever has few values asks here first.
    """
    if len(sizes) < 2 or min(sizes) < 1:
        raise ValueError(f"needs two groups with values, not {tuple(sizes)}")
    log_ways = math.lgamma(sum(sizes) + 1) - sum(math.lgamma(size + 1) for size in sizes)
    as_extreme = math.factorial(len(sizes)) if len(set(sizes)) == 1 else 2
    return min(1.0, as_extreme * math.exp(-log_ways))


def least_attainable_dunn_p(sizes: Sequence[int], first: int, second: int) -> float:
    """The smallest Holm-adjusted p that Dunn's test could give this pair: its groups at the two ends of all ranks."""
    n, pairs = sum(sizes), len(sizes) * (len(sizes) - 1) // 2
    apart = n - (sizes[first] + sizes[second]) / 2
    z = apart / math.sqrt(n * (n + 1) / 12 * (1 / sizes[first] + 1 / sizes[second]))
    return min(1.0, float(2 * special.ndtr(-z)) * pairs)


def _ranked(groups: Sequence[Values]) -> tuple[Values, tuple[int, ...]]:
    sizes = tuple(len(group) for group in groups)
    if len(sizes) < 2 or min(sizes) < 1:
        raise ValueError(f"needs at least two groups with values, not groups of {sizes}")
    values = np.concatenate([np.asarray(group, dtype=np.float64) for group in groups])
    if not np.isfinite(values).all():
        raise ValueError("a value that is missing or infinite has no rank")
    return midranks(values), sizes


def _tie_corrected_variance(ranks: Values) -> float:
    """The variance of the ranks with N − 1, which is N(N+1)/12 without ties; both tests divide by it."""
    return float(np.var(ranks, ddof=1)) if ranks.size > 1 else 0.0


def _split(ranks: Values, sizes: Sequence[int]) -> list[Values]:
    return np.split(ranks, np.cumsum(sizes)[:-1])
