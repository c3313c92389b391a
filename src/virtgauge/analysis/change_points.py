"""Where a series of independent groups changes its level, by ranks only.

For a series of groups (runs, each with its repetitions), every stretch of neighbours is tried: the ranks within it
against the ranks of all others, standardized as in the test of Mann & Whitney.  A stretch that begins with the first
group is a change that stays, any other one that goes back.  The largest is the statistic: A. N. Pettitt (1979), "A
Non-Parametric Approach to the Change-Point Problem", Applied Statistics 28(2): 126-135, in the standardized form of
B. Lausen & M. Schumacher (1992), "Maximally Selected Rank Statistics", Biometrics 48(1): 73-85, over the stretches of
A. B. Olshen et al. (2004), "Circular Binary Segmentation", Biostatistics 5(4): 557-572, without which a lone group
that differs is hard to see.  Its p comes from permutations of all values with a given seed, counted so that it is
never 0 (B. Phipson & G. K. Smyth 2010, Statistical Applications in Genetics and Molecular Biology 9(1): 39).

Of several series over the same places, each has a p for changes that stay and one for those that go back, and the
smallest is compared with the smallest that permutations of the places give: P. H. Westfall & S. S. Young (1993),
"Resampling-Based Multiple Testing", Wiley.  So neither series without a change nor the many stretches that go back hide
a change that stays, and the level is that of one test.

A series that changes is cut there and its parts are examined in turn; they share their series' level.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from virtgauge.analysis.estimate import Values, Whole
from virtgauge.analysis.ranks import ranked

PERMUTATIONS = 9999
_AT_ONCE = 4_000_000  # Values that are worked on together; it bounds the memory
_SLACK = 1e-9
MOVING_RANGE_FACTOR = 1 / (math.sqrt(2) * 0.6744897501960817)
"""From the median of the moving ranges of normal values to their standard deviation: 1/(√2·Φ⁻¹(¾))."""
LIMIT = 4.5
"""Standard deviations from level to level that are no change yet.  Shewhart's three are for one place.  Here every
stretch is tried, and where days vary normally the largest difference exceeds 4.5 in about one of twenty series of 4 to
50 runs that do not change."""


AStep = TypeVar("AStep")


@dataclasses.dataclass(frozen=True)
class Candidate:
    """The stretch of a series that differs most from its rest."""

    # start, stop: its first group, and the one after its last
    start: int
    stop: int
    statistic: float  # the standardized difference of ranks, positive where the stretch has the higher values
    p: float  # how likely so large a one is anywhere in a series that does not change

    def cuts(self, groups: int) -> list[int]:
        """The last groups before the changes at its ends, in a series of so many."""
        return [cut - 1 for cut in (self.start, self.stop) if 0 < cut < groups]


def candidate(groups: Sequence[Values], seed: int, permutations: int = PERMUTATIONS) -> Candidate:
    """The stretch of a series of groups that differs most, and its p.  Raises ValueError: as :func:`ranked`."""
    ranks, sizes = ranked(groups)
    starts, stops = _stretches(len(sizes))
    found = np.concatenate([*_standardized(ranks[None, :], sizes)])[:, 0]
    place = int(np.argmax(np.abs(found)))
    start, stop = int(starts[place]), int(stops[place])
    if not found[place]:
        return Candidate(start, stop, 0.0, 1.0)
    doubled = tuple(sorted(np.rint(2 * ranks).astype(int).tolist()))
    by_chance = _permuted(doubled, sizes, seed, permutations)
    as_large = permutations - int(np.searchsorted(by_chance, abs(found[place]) * (1 - _SLACK)))
    return Candidate(start, stop, float(found[place]), (1 + as_large) / (1 + permutations))


def candidate_of(
    series: Sequence[Values], groups: int, seed: int, permutations: int = PERMUTATIONS
) -> tuple[int, Candidate]:
    """Of several series over the same places, that and its stretch for which chance has the smallest p.

    A stretch begins and ends at bounds of ``groups`` of neighbouring places, three or more.  Values are finite, and
    taken as they are: whoever wants ranks gives ranks.  The p is that of any such stretch in all series together.
    """
    places = np.arange(len(series[0]))
    sizes = tuple(len(group) for group in np.array_split(places, groups))
    orders = np.random.default_rng(seed).permuted(np.tile(places, (permutations + 1, 1)), axis=1)
    orders[0] = places
    families = []
    for index, values in enumerate(series):
        own, extremes = [], []
        for found in _standardized((values - np.mean(values))[orders], sizes):
            own.append(found[:, 0].copy())
            extremes.append(np.abs(found, out=found).max(axis=0))
        for first, last in ((0, 1), (1, groups - 1)):  # starts
            largest = np.max(extremes[first:last], axis=0)
            as_large = permutations + 1 - np.searchsorted(np.sort(largest), largest * (1 - _SLACK))
            unlike = np.concatenate(own[first:last])
            far = np.abs(unlike)
            place = int(np.argmax(far >= far.max() * (1 - _SLACK)))  # of equal ones the first
            families.append((as_large, index, first * (groups - 1) + place, float(unlike[place])))
    smallest = np.min([as_large for as_large, *_ in families], axis=0)
    _, index, place, statistic = min(families, key=lambda family: family[0][0])
    starts, stops = _stretches(groups)
    p = float(np.mean(smallest <= smallest[0]))
    return index, Candidate(int(starts[place]), int(stops[place]), statistic, p)


def segments(groups: Sequence[Values], level: float, seed: int, permutations: int = PERMUTATIONS) -> tuple[int, ...]:
    """Where a series changes: the indices of the last group of each part but the last, ascending.

    ``level`` is the largest p that counts for the whole series; each cut divides it among the parts.
    """
    if len(groups) < 2:
        return ()
    found = candidate(groups, seed, permutations)
    if found.p > level:
        return ()
    cuts = found.cuts(len(groups))
    ends = [-1, *cuts, len(groups) - 1]
    inner = [
        begin + 1 + place
        for begin, end in itertools.pairwise(ends)
        for place in segments(groups[begin + 1 : end + 1], level / (len(cuts) + 1), seed, permutations)
    ]
    return tuple(sorted([*cuts, *inner]))


@functools.lru_cache(maxsize=64)
def _stretches(groups: int) -> tuple[Whole, Whole]:
    """Starts and stops of all stretches; first those from the first group, of which the rest is the other side."""
    pairs = [(0, stop) for stop in range(1, groups)]
    pairs += [(start, stop) for start in range(1, groups) for stop in range(start + 1, groups)]
    starts, stops = np.asarray(pairs, dtype=np.int64).T
    return starts, stops


def _standardized(values: Values, sizes: tuple[int, ...]) -> Iterator[Values]:
    """For each start, of every row of values the standardized differences of stretches from their rest: stop by row.

    0 where all are tied.  Those of all starts together would not fit into the processor's cache.
    """
    n, before = values.shape[1], np.cumsum((0, *sizes[:-1]))
    sums = np.zeros((len(sizes), len(values)))
    sums[1:] = np.cumsum(np.add.reduceat(values, before, axis=1)[:, :-1], axis=1).T
    sums -= before[:, None] * np.mean(values[0])
    variance = float(np.var(values[0], ddof=1))  # the same in every row
    if not variance:
        sums[:], variance = 0.0, 1.0
    within = np.abs(np.subtract.outer(before, before))
    spread = np.sqrt(within * (n - within) / n * variance)
    for start in range(len(sizes) - 1):
        found = sums[start + 1 :] - sums[start]
        found /= spread[start + 1 :, start, None]
        yield found


@functools.lru_cache(maxsize=256)
def _permuted(doubled_ranks: tuple[int, ...], sizes: tuple[int, ...], seed: int, permutations: int) -> Values:
    """The largest standardized differences of permuted series, ascending; the same for all series without ties."""
    rng = np.random.default_rng(seed)
    ranks = np.asarray(doubled_ranks) / 2
    rows = max(1, _AT_ONCE // ranks.size)
    largest = np.zeros(permutations)
    for start in range(0, permutations, rows):
        part = largest[start : start + rows]
        for found in _standardized(rng.permuted(np.tile(ranks, (part.size, 1)), axis=1), sizes):
            np.maximum(part, np.abs(found, out=found).max(axis=0), out=part)
    return np.sort(largest)


def step_limit(levels: Sequence[float], before: int, after: int) -> float:
    """How far two parts of a series may lie apart when nothing changed but the day.

    Repetitions of one run share its day, so runs differ by more than their repetitions.  What single runs differ by
    is taken from the moving ranges of the whole series, by their median, which a few steps do not move (D. J. Wheeler
    & D. S. Chambers 1992, "Understanding Statistical Process Control", 2nd edition, chapter 3).

    ``levels`` are those of all runs in order; ``before`` and ``after`` are how many each of the parts has.
    """
    if len(levels) < 3:
        raise ValueError("needs at least three runs")
    deviation = float(np.median(np.abs(np.diff(levels)))) * MOVING_RANGE_FACTOR
    return LIMIT * deviation * math.sqrt(1 / before + 1 / after)


def exceeding(cuts: Sequence[int], length: int, step: Callable[[int, int, int], tuple[AStep, float]]) -> list[AStep]:
    """The steps that exceed their limit: the least of those that do not is taken out, and its neighbours seen anew.

    The cuts are the last places before steps.  ``step`` makes that from the part between two places to the one between
    the second and a third, and says how many times its limit it is.
    """
    ends = [0, *(cut + 1 for cut in cuts), length]
    while len(ends) > 2:
        steps, excess = zip(*map(step, ends, ends[1:], ends[2:]), strict=True)
        least = excess.index(min(excess))
        if excess[least] > 1:
            return [*steps]
        del ends[least + 1]
    return []
