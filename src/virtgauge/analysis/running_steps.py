"""Where a long series of levels changes, each place judged by its neighbours alone.

At every place the values of a window before it are held against those of a window after it, by the exact test of H. B.
Mann & D. R. Whitney (1947), Annals of Mathematical Statistics 18(1): 50-60.  So one value more costs the same however
long the series is.  At the ends, and beside a step that was found, windows are shorter.

A series changes if the smallest p of its places, times their number, holds among all series at the false discovery rate
asked for (Y. Benjamini & Y. Hochberg 1995).  Within one that does, a step is a place whose p, times their number, is at
most that rate times the share of series that do: then that is also the share of false steps of a series that changes,
on the average over these (Y. Benjamini & M. Bogomolov 2014, "Selective Inference on Multiple Families of Hypotheses",
Journal of the Royal Statistical Society B 76(1): 297-318).  It is that of "nothing changes in this place's windows":
that there is a step nearby is what holds, and not its very place.

A level is that of a run, so what a run does to all of its repetitions counts as chance.  Runs have to differ from one
another independently: where several are of one day, a day that differs is a step, and a drift is several.
"""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Sequence

import numpy as np

from virtgauge.analysis.estimate import Values
from virtgauge.analysis.shift import rank_sum_distribution, threshold

WINDOW = 16  # Values before and after a place, at most: 16 and 16 give a p of 3.3e-9 at least
LEAST = 4  # And at least


def running_steps(series: Sequence[Values], level: float) -> list[list[int]]:
    """Of each series the indices of the last value before each of its steps, ascending.

    Levels are finite; a series of fewer than twice :data:`LEAST` has no step.  ``level`` is the false discovery rate.
    """
    p_values = place_p_values(series)
    long = [own for own in p_values if own.size]
    if not long:
        return [[] for _ in series]
    most = threshold([min(1.0, float(own.min()) * own.size) for own in long], level)
    return [_steps(levels, own, most / max(own.size, 1)) for levels, own in zip(series, p_values, strict=True)]


def place_p_values(series: Sequence[Values]) -> list[Values]:
    """Of each series the two-sided p of each place that its windows are of one distribution.

    Place 0 lies behind the first :data:`LEAST` of the n levels, and there are n + 1 - 2·LEAST, or none.  Where levels
    are tied, a small p is mostly too large rather than too small.
    """
    whole, found, by_length = 2 * WINDOW, [np.empty(0)] * len(series), dict[int, list[int]]()
    for number, levels in enumerate(series):
        by_length.setdefault(min(levels.size, whole), []).append(number)
    for length, numbers in by_length.items():
        if length < 2 * LEAST:
            continue
        # of those that have full windows somewhere, their ends and what lies between
        heads = _of_places(np.array([series[number][:length] for number in numbers]))
        ends = _of_places(np.array([series[number][-length:] for number in numbers]))
        for row, number in enumerate(numbers):
            middle = _of_full_windows(series[number]) if length == whole else heads[row, WINDOW - LEAST :]
            after = ends[row, WINDOW - LEAST + 1 :] if length == whole else np.empty(0)
            found[number] = np.concatenate([heads[row, : WINDOW - LEAST], middle, after])
    return found


def _of_places(rows: Values) -> Values:
    """Of series as long as each other, one a row, the p of each place."""
    length = rows.shape[1]
    return np.stack([_p_values(rows, place, 0, length) for place in range(LEAST, length - LEAST + 1)], axis=1)


def _of_full_windows(levels: Values) -> Values:
    """Of the places of one series with full windows on both sides."""
    windows = np.lib.stride_tricks.sliding_window_view(levels, WINDOW)
    return _compared(windows[:-WINDOW], windows[WINDOW:])


def runs_needed(level: float, number: int) -> int | None:
    """How many values a series takes at least so that a change of it alone is told among so many; None: no number."""
    for length in range(2 * LEAST, 4 * WINDOW):
        half = min(WINDOW, length // 2)
        if 2 / math.comb(2 * half, half) * (length + 1 - 2 * LEAST) <= level / number:
            return length
    return None


def window_beside(place: int, start: int, stop: int) -> tuple[slice, slice]:
    """What is compared at a place, the first index after it, in a part of a series."""
    return slice(max(start, place - WINDOW), place), slice(place, min(stop, place + WINDOW))


def _p_values(rows: Values, place: int, start: int, stop: int) -> Values:
    """The p of several series as long as each other, at one place."""
    before, after = (rows[:, part] for part in window_beside(place, start, stop))
    return _compared(before, after) if min(before.shape[1], after.shape[1]) >= LEAST else np.ones(len(rows))


def _compared(before: Values, after: Values) -> Values:
    """Row by row."""
    m, n = before.shape[1], after.shape[1]
    higher, equal = after[:, :, None] > before[:, None, :], after[:, :, None] == before[:, None, :]
    apart = np.abs(2 * higher.sum((1, 2)) + equal.sum((1, 2)) - m * n)  # twice what the statistic is from its middle
    return np.asarray(_tails(m, n)[apart // 2], dtype=np.float64)


def _steps(levels: Values, p_values: Values, most: float) -> list[int]:
    """Places whose p is at most that, the least first; beside each, windows end there.

    When all are found, the place of each is looked for once more between its neighbours.
    """
    cuts, left = [0, levels.size], p_values.copy()
    while left.size and left.min() <= most:
        cut = LEAST + int(np.argmin(left))
        at = bisect.bisect(cuts, cut)
        cuts.insert(at, cut)
        for place in range(max(LEAST, cut - WINDOW), min(levels.size - LEAST, cut + WINDOW) + 1):
            part = (cuts[at - 1], cut) if place < cut else (cut, cuts[at + 1])
            inside = part[0] < place < part[1]
            left[place - LEAST] = _p_values(levels[None, :], place, *part)[0] if inside else 1.0
    for at in range(1, len(cuts) - 1):
        cuts[at] = _best(levels, cuts[at], cuts[at - 1], cuts[at + 1])
    return [cut - 1 for cut in cuts[1:-1]]


def _best(levels: Values, cut: int, start: int, stop: int) -> int:
    """Where near a cut two levels fit best, by the sum of what values are apart from the median of their side.

    Ranks find that there is a step, and leave its place open where a neighbour is the extreme of its side.
    """
    low, high = max(start, cut - WINDOW), min(stop, cut + WINDOW)
    near = levels[low:high].tolist()
    places = range(LEAST, len(near) - LEAST + 1)
    return low + min(places, key=lambda place: _misfit(near[:place]) + _misfit(near[place:]), default=cut - low)


def _misfit(values: list[float]) -> float:
    """What they are apart from their median, in all: each pair of ends by what it spans."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return sum(ordered[-half:]) - sum(ordered[:half]) if half else 0.0


@functools.cache
def _tails(m: int, n: int) -> Values:
    """By how many whole units the statistic of so many values is from its middle at least, the two-sided p of that."""
    doubled_ranks = tuple(2 * rank for rank in range(1, m + n + 1))
    least = n * (n + 1) // 2  # the smallest sum of ranks
    of_statistic = rank_sum_distribution(doubled_ranks, n)[::2][least : least + m * n + 1]
    apart = np.abs(2 * np.arange(of_statistic.size) - m * n) // 2
    exact = np.bincount(apart, weights=of_statistic)
    return np.minimum(np.cumsum(exact[::-1])[::-1], 1.0)
