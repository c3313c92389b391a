"""Tests on ranks: Kruskal–Wallis, Friedman, Dunn's pairwise comparisons, and Holm's adjustment.

W. H. Kruskal & W. A. Wallis (1952), "Use of Ranks in One-Criterion Variance Analysis", JASA 47: 583-621; O. J. Dunn
(1964), "Multiple Comparisons Using Rank Sums", Technometrics 6(3): 241-252; S. Holm (1979), "A Simple Sequentially
Rejective Multiple Test Procedure", Scandinavian Journal of Statistics 6: 65-70.  Ties get their mean rank, and both
statistics are corrected for them.  All tests are two-sided.

**Blocked**, the ranks are those within blocks (guests), each of which has one value of every group; then the same
statistic is M. Friedman's (1937), "The Use of Ranks to Avoid the Assumption of Normality Implicit in the Analysis of
Variance", JASA 32: 675-701, and the pairs' p is exact, as that of two groups is (the sign test): few blocks are
usual, and there the normal approximation finds too much.  **Exact**, so is the p of few values without blocks.

They are written out here because ``scipy.stats`` takes over a second to import, and packages with Dunn's test bring
pandas and a drawing library with them; the tests hold these functions to SciPy, to scikit-posthocs and to published
examples.

**Effect sizes** say how large a difference is, whatever its p.  ε² is H/(N−1), the share of the ranks' variance that
the groups explain: M. Tomczak & E. Tomczak (2014), "The need to report effect size estimates revisited", Trends in
Sport Sciences 1(21): 19-25.  Blocked, that share is Kendall's W.

δ is P(X > Y) − P(X < Y): N. Cliff (1993), "Dominance Statistics: Ordinal Analyses to Answer Ordinal Questions",
Psychological Bulletin 114(3): 494-509.  Its interval is the exact one of a proportion, C. J. Clopper & E. S. Pearson
(1934), Biometrika 26: 404-413, of (1 + δ)/2 and of as many independent pairs as have the variance of δ, as E. L. Korn
& B. I. Graubard (1998), "Confidence Intervals for Proportions with Small Expected Number of Positive Counts Estimated
from Survey Data", Survey Methodology 24(2): 193-201, have it for correlated answers; their factor for few degrees of
freedom is left out, in place of which comes the quarter below.  Cliff's own interval (1996, eq.
5.12, with Student's t) holds 81 to 93 % near ±1: where a side varies as bursts do, a few values say how often those
come, and the estimated variance is too small as often as none came.  So the greatest variance that δ can have, (1 −
δ²)/n of the smaller sample (D. Feng & N. Cliff 2004, Journal of Modern Applied Statistical Methods 3(2): 322-332, eq.
6), counts for a quarter.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from scipy import special

from virtgauge.analysis.estimate import Estimate, Values, Whole

Guests = Mapping[str, Mapping[int, float]]  # A value of each guest, by arm and repetition

_GREATEST = 0.25  # The part of the greatest possible variance in that of δ, found by simulation (docs/coverage.md)
_MOST_DEALT = 100  # Values of two groups, and blocks: of more χ² is as good for three, and transforms for pairs
_MOST_DEALT_BY_PAIRS = 36  # Likewise values of three groups and more
_NO_CHANCE = 1e-17  # Less than transforms resolve
_MAGNITUDES = ((0.147, "negligible"), (0.33, "small"), (0.474, "medium"))


@dataclasses.dataclass(frozen=True)
class KruskalWallis:
    """Whether groups of values differ in location."""

    h: float  # the statistic, corrected for ties
    df: int  # groups − 1
    p: float  # from the χ² distribution with ``df`` degrees of freedom, or exact (:func:`kruskal_wallis`)
    sizes: tuple[int, ...]  # of the groups
    blocks: int  # within which values were ranked; 1 where all values are independent

    @property
    def n(self) -> int:
        return sum(self.sizes)

    @property
    def epsilon_squared(self) -> float:
        """The share of the ranks' variance that the groups explain: 0…1."""
        return self.h / (self.n - self.blocks)


@dataclasses.dataclass(frozen=True)
class DunnPair:
    """Two of the groups compared on the ranks of all."""

    # first, second: places of the groups
    first: int
    second: int
    z: float  # positive where the first group's mean rank is the higher one
    p: float  # two-sided, unadjusted
    p_holm: float  # adjusted for all pairs of the same test


def midranks(values: Values) -> Values:
    """The rank of each value from 1; equal values share the mean of their ranks.  Any shape."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    upper = np.cumsum(counts)
    return np.asarray((upper - (counts - 1) / 2)[place].reshape(values.shape), dtype=np.float64)


def _midranks_within(values: Values, groups: Whole) -> Values:
    """Mid-ranks within each group; ``groups`` are their numbers, ascending."""
    order = np.lexsort((values, groups))
    starts, counts = _runs(groups, values[order])
    ranks = np.empty(values.size)
    ranks[order] = np.repeat(starts + (counts + 1) / 2 - np.searchsorted(groups, groups[starts]), counts)
    return ranks


def _runs(*keys: npt.NDArray[np.generic]) -> tuple[Whole, Whole]:
    """Where neighbours that are alike in all keys begin, and how many they are."""
    new = np.ones(keys[0].size, dtype=bool)
    new[1:] = np.logical_or.reduce([key[1:] != key[:-1] for key in keys])
    starts = np.flatnonzero(new)
    return starts, np.diff(starts, append=new.size)


def _midranks_of_rows(values: Values) -> Values:
    """Mid-ranks within each row, of few columns; shape (rows, columns)."""
    others, own = values[:, None, :], values[:, :, None]
    return np.asarray(((others < own).sum(axis=2) + (others <= own).sum(axis=2) + 1) / 2)


def unit_ranks(levels: Sequence[Sequence[Guests]]) -> list[Values]:
    """One value for each unit, such as a guest: the mean, over its cells, of its rank within the cell.

    Values of one unit are correlated: pooled as if they were independent, they show a factor between units where there
    is none.  A rank counts as a share of its cell, 0…1, so that cells with fewer units weigh as much.

    ``levels`` are, for each level of the factor between units, its values by unit, in the same order of cells.
    """
    cells, at, units, values = _flat(levels)
    shares = _midranks_within(values, cells) / (np.bincount(cells)[cells] + 1)
    # rounded, for units that tie would else be put in order by how their shares happen to be added up
    return [_means(units[of], shares[of, None])[0].round(12) for of in (at == level for level in range(len(levels)))]


def ranks_within_units(levels: Sequence[Sequence[Guests]]) -> list[Values]:
    """For each level of a factor within units one value a unit: the mean, over its cells, of the level's rank there.

    What a unit's values have in common, of one level too, counts once.  Units that lack a level in every cell are left
    out.  To be tested with the units as blocks; ``levels`` as in :func:`unit_ranks`.
    """
    cells, _, units, values = _flat(levels)
    order = np.lexsort((units, cells))  # stable, so that a unit's values keep the order of levels
    starts, counts = _runs(cells[order], units[order])
    whole = order[starts[counts == len(levels), None] + np.arange(len(levels))]
    return list(_means(units[whole[:, 0]], _midranks_of_rows(values[whole])))


def _flat(levels: Sequence[Sequence[Guests]]) -> tuple[Whole, Whole, Whole, Values]:
    """All values, cell by cell and therein level by level, after the numbers of their cell, level and unit."""
    owners: dict[str, int] = {}
    samples, places = [], []
    for cell, of_levels in enumerate(zip(*levels, strict=True)):
        for level, guests in enumerate(of_levels):
            for arm, of in guests.items():
                samples.append(of)
                places.append((cell, level, owners.setdefault(arm, len(owners)) << 32))
    at, units, values = _pooled(samples)
    cells, own, arms = np.array(places, dtype=np.int64).reshape(-1, 3)[at].T
    return cells, own, arms + units, values


def _pooled(samples: Sequence[Mapping[int, float]]) -> tuple[Whole, Whole, Values]:
    """All values, after the numbers of their sample and repetition."""
    sizes = [len(sample) for sample in samples]
    units = np.fromiter(itertools.chain.from_iterable(samples), np.int64, sum(sizes))
    values = itertools.chain.from_iterable(sample.values() for sample in samples)
    return np.repeat(np.arange(len(sizes)), sizes), units, np.fromiter(values, np.float64, units.size)


def _means(units: Whole, values: Values) -> Values:
    """The means of each unit's values in each column, by unit."""
    places = _places(units)
    return np.array([np.bincount(places, column) for column in values.T]) / np.bincount(places)


def _places(units: Whole) -> Whole:
    """Of each value the place of its unit among all units, in ascending order."""
    order = np.argsort(units, kind="stable")  # merges what is in order already: the units of each cell
    starts, counts = _runs(units[order])
    places = np.empty_like(order)
    places[order] = np.repeat(np.arange(starts.size), counts)
    return places


def kruskal_wallis(groups: Sequence[Values], *, blocked: bool = False, exact: bool = False) -> KruskalWallis:
    """Kruskal–Wallis over two or more groups; ``blocked``, Friedman's test: place i of each group is of one block.

    Friedman's p is exact for two groups, and for three in up to 100 blocks: χ² finds 6 % of twelve blocks below 5 %,
    and 5.1 % of eighty.  With ``exact`` that of two groups of up to 100 values is, which χ² puts at 4.3 % instead of
    5.7 % for 1 2 3 5 | 4 6 7 8.

    Where all values are equal nothing can differ: H is 0 and p is 1.  Raises ValueError: fewer than two groups, an
    empty one, blocks that are not whole, or a value that is no finite number.
    """
    parts, spread = _parts(groups, blocked=blocked)
    df, sizes, blocks = len(parts) - 1, tuple(map(len, parts)), len(parts[0]) if blocked else 1
    if spread == 0:
        return KruskalWallis(0.0, df, 1.0, sizes, blocks)
    centre = np.mean(np.concatenate(parts))
    h = float(sum(part.size * (part.mean() - centre) ** 2 for part in parts) / spread)
    if blocked and df == 1:
        p = _exact_p(parts, [(0, 1)])[0]
    elif blocked and df == 2 and sizes[0] <= _MOST_DEALT:
        p = _exact_p_of_three(parts)
    elif exact and df == 1 and _enumerable(sizes):
        p = _exact_p_of_pair(parts, 0, 1)
    else:
        p = float(special.chdtrc(df, h))
    return KruskalWallis(h, df, p, sizes, blocks)


def dunn(groups: Sequence[Values], *, blocked: bool = False, exact: bool = False) -> tuple[DunnPair, ...]:
    """Dunn's test of every pair of groups, in the order of :func:`itertools.combinations`.

    Each p is exact, if no group differs, in blocks, and with ``exact`` for two groups as in :func:`kruskal_wallis` and
    for more of up to 36 values together: the normal distribution finds 5.3 % of three groups of four below 5 %, and
    below 1.7 %, Holm's first level, 0.4 % of three groups of three, of which 1 % are.  Raises ValueError likewise.
    """
    parts, spread = _parts(groups, blocked=blocked)
    pairs = list(itertools.combinations(range(len(groups)), 2))
    z, means = [], [float(part.mean()) for part in parts]
    for i, j in pairs:
        error = math.sqrt(spread * (1 / parts[i].size + 1 / parts[j].size))
        z.append((means[i] - means[j]) / error if error else 0.0)
    if blocked:
        p = _exact_p(parts, pairs)
    elif exact and _enumerable([len(part) for part in parts]):
        p = [_exact_p_of_pair(parts, *pair) for pair in pairs]
    else:
        p = [float(2 * special.ndtr(-abs(value))) for value in z]
    return tuple(DunnPair(*row) for row in zip(*zip(*pairs, strict=True), z, p, holm(p), strict=True))


def _exact_p(parts: Sequence[Values], pairs: Sequence[tuple[int, int]]) -> list[float]:
    """The p of pairs if chance had dealt each block's ranks out to the groups: of the difference of two rank sums."""
    ranks = np.sort(np.rint(2 * np.array(parts)).astype(np.int64), axis=0)
    untied = 2 * np.arange(1, len(parts) + 1)
    tied = ranks[:, (untied != ranks.T).any(axis=1)].T.tolist()
    blocks = Counter(map(tuple, tied)) + Counter({tuple(untied.tolist()): ranks.shape[1] - len(tied)})
    chances = _chances_of_difference(tuple(sorted(blocks.items())))
    middle = chances.size // 2
    reached = [round(2 * abs(float((parts[i] - parts[j]).sum()))) for i, j in pairs]
    found = [2 * (float(chances[: middle - by + 1].sum()) if by <= middle else _NO_CHANCE) for by in reached]
    least = least_attainable_dunn_p([len(part) for part in parts], 0, 1, blocked=True)
    return [min(1.0, max(p, least)) for p in found]


@functools.lru_cache(maxsize=4)  # as of :func:`_chances_of_two_sums`; a factor's test and its pairs' ask for the same
def _chances_of_difference(blocks: tuple[tuple[tuple[int, ...], int], ...]) -> Values:
    """How likely chance makes the difference of two groups' sums, of doubled ranks by how many blocks have those.

    Of symmetric length around 0.  Of many blocks the ends are left out: what lies beyond either comes with a chance of
    :data:`_NO_CHANCE` at most.
    """
    groups, number = len(blocks[0][0]), sum(times for _, times in blocks)
    widest, others, kinds = 2 * (groups - 1), ~np.eye(groups, dtype=bool), []
    for ranks, times in blocks:
        steps = np.subtract.outer(ranks, ranks)[others]
        kinds.append((np.bincount(steps + widest, minlength=2 * widest + 1) / steps.size, times))
    if number <= _MOST_DEALT:
        dealt = itertools.chain.from_iterable(itertools.repeat(*kind) for kind in kinds)
        return functools.reduce(np.convolve, dealt, np.ones(1))
    # The product of as many transforms, each chance to some 1e-16; what is less likely needs no place (Hoeffding 1963).
    reach = min(widest * number, math.ceil(widest * math.sqrt(-2 * number * math.log(_NO_CHANCE))))
    longer = 1 << (2 * reach).bit_length()  # a power of two, for which transforms are fast
    around = np.arange(-widest, widest + 1)
    product = np.ones(longer // 2 + 1)
    for one, times in kinds:
        wrapped = np.zeros(longer)
        wrapped[around] = one
        product *= np.fft.rfft(wrapped).real ** times  # real, because a difference is as likely as its opposite
    return np.roll(np.fft.irfft(product, longer), reach)[: 2 * reach + 1].copy()  # or all of it would be kept


def _enumerable(sizes: Sequence[int]) -> bool:
    return sum(sizes) <= (_MOST_DEALT if len(sizes) == 2 else _MOST_DEALT_BY_PAIRS)


def _exact_p_of_pair(parts: Sequence[Values], first: int, second: int) -> float:
    """The p of two groups if chance had dealt all ranks out to all groups: of mean ranks as far apart."""
    doubled = np.rint(2 * np.concatenate(parts)).astype(np.int64)
    one, other = parts[first].size, parts[second].size
    # Of two groups alone, one sum tells the other.
    up, down, others = (1, 0, 0) if len(parts) == 2 else (other, one, other)
    up, down = up // math.gcd(up, down), down // math.gcd(up, down)
    lowest = down * int(np.sort(doubled)[-other:].sum())
    span = lowest + up * int(np.sort(doubled)[-one:].sum()) + 1
    ways = np.zeros((one + 1, others + 1, span))  # by how many ranks both have, and the difference of their sums
    ways[0, 0, lowest] = 1.0
    for rank in doubled.tolist():
        before = ways.copy()
        ways[1:, :, up * rank :] += before[:-1, :, : -up * rank]
        if others:
            ways[:, 1:, : -down * rank] += before[:, :-1, down * rank :]
    middle = lowest + (up * one - down * other) * (doubled.size + 1)
    apart = np.abs(np.arange(span) - middle)
    own = 2 * (up * parts[first].sum() - down * parts[second].sum())
    found = ways[-1, -1][apart >= apart[lowest + round(own)]]
    return float(found.sum() / ways[-1, -1].sum())


def _exact_p_of_three(parts: Sequence[Values]) -> float:
    """The p of three groups if chance had dealt each block's ranks out to them, by the spread of their rank sums."""
    doubled = np.rint(2 * np.array(parts)).astype(np.int64)
    chances = _chances_of_two_sums(tuple(sorted(tuple(sorted(block)) for block in doubled.T.tolist())))
    one, other = np.indices(chances.shape)
    total, found = int(doubled.sum()), doubled.sum(axis=1)
    spread, own = (a**2 + b**2 + (total - a - b) ** 2 for a, b in ((one, other), (found[0], found[1])))
    return min(1.0, float(chances[spread >= own].sum()))


@functools.lru_cache(maxsize=4)  # without ties all blocks have the same ranks, and figures mostly as many blocks
def _chances_of_two_sums(blocks: tuple[tuple[int, ...], ...]) -> Values:
    """How likely chance makes the sums of the first two of three groups, of each block's doubled ranks: axis by sum."""
    most = 6 * len(blocks) + 1
    chances = np.zeros((most, most))
    chances[0, 0] = 1.0
    for block in blocks:
        dealt = np.zeros_like(chances)
        for first, second, _ in itertools.permutations(block):
            dealt[first:, second:] += chances[: most - first, : most - second] / 6
        chances = dealt
    return chances


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment, in the order given: what each p has to be below a level for the whole family."""
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for step, place in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - step) * p_values[place]))
        adjusted[place] = highest
    return adjusted


def least_attainable_p(sizes: Sequence[int], *, blocked: bool = False) -> float:
    """The smallest p that *any* data of these group sizes could have in an exact test of ranks.

    Of all N!/∏nᵢ! ways to deal the ranks out to the groups, complete separation is the most extreme.  Its mirror
    image is as extreme, and so is every order of the groups where they are of one size.  The χ² approximation can
    fall below this (3 + 3 values: 0.0495 instead of 0.1), so whoever has few values asks here first.
    """
    if len(sizes) < 2 or min(sizes) < 1:
        raise ValueError(f"needs two groups with values, not {tuple(sizes)}")
    if blocked:  # every block has its ranks in one order, whichever it is
        return math.exp((1 - sizes[0]) * math.lgamma(len(sizes) + 1))
    log_ways = math.lgamma(sum(sizes) + 1) - sum(math.lgamma(size + 1) for size in sizes)
    log_as_extreme = math.lgamma(len(sizes) + 1) if len(set(sizes)) == 1 else math.log(2)
    return min(1.0, math.exp(log_as_extreme - log_ways))


def least_attainable_dunn_p(
    sizes: Sequence[int], first: int, second: int, *, blocked: bool = False, exact: bool = False
) -> float:
    """The smallest p, not adjusted, that Dunn's test could give this pair: its groups at the two ends of all ranks."""
    if blocked:
        return 2 * float(len(sizes) * (len(sizes) - 1)) ** -sizes[first]
    n, one, other = sum(sizes), sizes[first], sizes[second]
    if exact and _enumerable(sizes):
        log_ways = math.lgamma(n + 1) - sum(math.lgamma(size + 1) for size in (one, other, n - one - other))
        return min(1.0, 2 * math.exp(-log_ways))
    apart = n - (one + other) / 2
    z = apart / math.sqrt(n * (n + 1) / 12 * (1 / one + 1 / other))
    return float(2 * special.ndtr(-z))


def ranked(groups: Sequence[Values]) -> tuple[Values, tuple[int, ...]]:
    """The ranks of all values, group by group, and the groups' sizes.

    Raises ValueError: fewer than two groups, an empty one, or a value that is no finite number.
    """
    values, sizes = _together(groups)
    return midranks(values), sizes


def _together(groups: Sequence[Values]) -> tuple[Values, tuple[int, ...]]:
    """All values and the groups' sizes; raises ValueError as :func:`ranked`."""
    sizes = tuple(len(group) for group in groups)
    if len(sizes) < 2 or min(sizes) < 1:
        raise ValueError(f"needs at least two groups with values, not groups of {sizes}")
    values = np.concatenate([np.asarray(group, dtype=np.float64) for group in groups])
    if not np.isfinite(values).all():
        raise ValueError("a value that is missing or infinite has no rank")
    return values, sizes


def _parts(groups: Sequence[Values], *, blocked: bool) -> tuple[list[Values], float]:
    """Each group's ranks, of all values or within blocks, and the variance that the tests divide by.

    Without ties that is N(N+1)/12, blocked k(k+1)/12.
    """
    values, sizes = _together(groups)
    if not blocked:
        ranks = midranks(values)
        return np.split(ranks, np.cumsum(sizes)[:-1]), float(np.var(ranks, ddof=1))
    if len(set(sizes)) > 1:
        raise ValueError(f"a block has a value of every group, not groups of {sizes}")
    within = _midranks_of_rows(np.array(groups).T)
    return list(within.T), float(np.var(within, axis=1, ddof=1).mean())


def magnitude(delta: float) -> str:
    """A δ in words: negligible, small, medium, large (J. Romano et al. 2006, as R's effsize has it)."""
    return next((word for bound, word in _MAGNITUDES if abs(delta) < bound), "large")


def _dominance(values: Values, stratum: Whole, side: Whole) -> Whole:
    """Of each value the sum of the signs of x − y over all of the other side, x being of side 0 and y of side 1.

    Both are of the same stratum; the strata are ascending.
    """
    order = np.lexsort((values, stratum))
    second = side[order] == 1
    before = np.zeros((2, values.size + 1), dtype=np.int64)  # how many ys, and how many xs
    np.cumsum([second, ~second], axis=1, out=before[:, 1:])

    def around(*keys: npt.NDArray[np.generic]) -> Whole:  # before the first and the last of those alike, together
        starts, counts = _runs(*keys)
        return np.repeat(before[:, starts] + before[:, starts + counts], counts, axis=1)

    below = around(stratum, values[order]) - around(stratum)  # less those that are above
    signs = np.empty_like(order)
    signs[order] = np.where(second, -below[1], below[0])
    return signs


def stratified_delta(strata: Sequence[tuple[Mapping[int, float], Mapping[int, float]]], confidence: float) -> Estimate:
    """Cliff's δ within strata: like is compared with like, and the strata's δ averaged.

    Two platforms that are measured with several functions under several loads are compared within each function and
    load.  The repetitions stay the units: what one adds to δ is the sum of what its values add in all strata, and the
    variance is taken over those sums.  So whatever a repetition's values have in common is counted once.  With a
    single stratum this is Cliff's δ of two samples.  A stratum that one side lacks is left out; each has the values of
    the two sides by repetition.
    """
    whole = [sides for sides in strata if all(sides)]
    if not whole:
        return Estimate.missing("delta", "the two have no cell in common")
    at, units, values = _pooled([*itertools.chain.from_iterable(whole)])
    stratum, side, sizes = at // 2, at % 2, np.bincount(at)
    signs = _dominance(values, stratum, side)
    by_side = sizes.reshape(-1, 2).T
    pairs = by_side[0] * by_side[1]
    deltas = np.bincount(stratum, signs * (side == 0)) / pairs
    unbiased = np.sqrt(sizes / np.maximum(sizes - 1, 1))  # for the stratum's own mean is taken off
    # what each value adds to δ, less what all of them do
    added = (signs / pairs[stratum] - deltas[stratum] / sizes[at]) / len(whole) * unbiased[at]
    delta = math.fsum(deltas.tolist()) / len(whole)
    sums = [np.bincount(_places(units[own]), added[own]) for own in (side == 0, side == 1)]
    n = min(one.size for one in sums)
    if by_side.max(axis=1).min() < 2:
        return Estimate.bare(delta, "delta", "a single repetition in each cell: no interval", n)
    alone = int((sizes == 1).sum())  # of which nothing tells the variance, so that the greatest counts
    variance = sum(float((one**2).sum()) for one in sums) + alone * (1 - delta**2) / len(whole) ** 2
    smaller = min(len(of) / sum(1 / size for size in of) for of in by_side.tolist())
    independent = _independent_pairs(delta, variance, smaller)
    tail, greater = (1 - confidence) / 2, (1 + delta) / 2 * independent
    low = -_highest_delta(independent - greater, greater, tail)
    high = _highest_delta(greater, independent - greater, tail)
    return Estimate(delta, low, high, confidence, n, "delta", "Clopper–Pearson, of the pairs that the variance is of")


def _independent_pairs(delta: float, variance: float, smaller: float) -> float:
    """So many pairs, drawn by themselves, would give δ its variance; of samples wholly apart, the smaller one's size.

    The variance is the estimated one, of rows and columns as independent means, and the greatest possible one (see the
    module): of a smaller sample of that size, the harmonic mean where strata have different ones.
    """
    room = 1 - delta * delta
    return smaller if room < 1e-12 else room / ((1 - _GREATEST) * variance + _GREATEST * room / smaller)


def _highest_delta(greater: float, smaller: float, tail: float) -> float:
    """The δ at which so few pairs, or fewer, would be greater with the chance ``tail`` only; 1 where all are."""
    return 1.0 if smaller < 1e-9 else float(2 * special.betaincinv(greater + 1, smaller, 1 - tail) - 1)
