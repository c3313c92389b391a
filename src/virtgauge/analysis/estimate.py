"""An estimate: a figure together with what is known of its uncertainty; and the median over independent repetitions.

A trial's samples are correlated; its repetitions on fresh guests are not.  So each repetition gives one value (say,
its p99), the point is the median of those values, and the interval comes from resampling *repetitions*.

The interval is the expanded percentile bootstrap of T. Hesterberg (2015), "What Teachers Should Know About the
Bootstrap: Resampling in the Undergraduate Statistics Curriculum", The American Statistician 69(4): 371-386. The plain
percentile interval of a small sample is too narrow, so the tail share α/2 is replaced by
Φ(−√(n/(n−1)) · t(1−α/2, n−1)).

The bootstrap distribution of a median needs no random resampling: it lives on the sample's own order statistics with
known weights (B. Efron 1979, "Bootstrap Methods: Another Look at the Jackknife", Annals of Statistics 7(1), section
3).  It is computed exactly, which is the limit of infinitely many resamples: no seed, no Monte-Carlo error, and
thousands of estimates in a second.  Of an odd number the ends are order statistics, which hold the median with a
confidence that is known whatever the values; where that is less than the nominal one (93.5 % of 11 at 95 %), the ends
lie as far towards the next ones as T. P. Hettmansperger & S. J. Sheather (1986), "Confidence Intervals Based on
Interpolated Order Statistics", Statistics & Probability Letters 4(2): 75-79, have it.

With very few repetitions no method can reach a high confidence: the widest interval, from the smallest to the
largest value, holds the true median with 1 − 2·0.5ⁿ (n = 3: 75 %; n = 5: 93.75 %).  Then that interval is given *with
that confidence*; a single repetition gets none.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from scipy import special  # and not scipy.stats, which takes over a second to import

Values = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]

_NEGLIGIBLE = 1e-12


@dataclasses.dataclass(frozen=True)
class Estimate:
    """One figure with its interval."""

    # the figure, in ``unit``; None when there is none (which is not zero), then ``method`` says why
    point: float | None
    # low, high: ends of the interval, in ``unit``; both None when no interval is possible
    low: float | None
    high: float | None
    # that the interval really has, which with few repetitions is less than was asked for; None without an interval
    confidence: float | None
    n: int  # how many independent repetitions stand behind it
    unit: str  # ``ns``, ``ratio`` …
    method: str  # how point and interval were found, or why one of them is missing

    @classmethod
    def missing(cls, unit: str, reason: str, n: int = 0) -> Estimate:
        return cls(None, None, None, None, n, unit, reason)

    @classmethod
    def bare(cls, point: float, unit: str, reason: str, n: int = 1) -> Estimate:
        """A figure without an interval, and why it has none."""
        return cls(point, None, None, None, n, unit, reason)

    @property
    def has_interval(self) -> bool:
        return self.low is not None and self.high is not None

    def reaches(self, nominal: float) -> bool:
        """Whether there is an interval with that confidence: few repetitions give one with less."""
        return self.confidence is not None and self.confidence >= nominal

    def excludes(self, value: float) -> bool:
        """Whether there is an interval and ``value`` lies outside it."""
        return self.low is not None and self.high is not None and not self.low <= value <= self.high

    def mapped(self, function: Callable[[float], float], unit: str) -> Estimate:
        """The estimate of an increasing function of the figure (its interval maps end by end)."""

        def apply(value: float | None) -> float | None:
            return None if value is None else function(value)

        return dataclasses.replace(self, point=apply(self.point), low=apply(self.low), high=apply(self.high), unit=unit)


def attainable_confidence(n: int) -> float:
    """The confidence with which [smallest, largest] of n independent values holds the median: 1 − 2·0.5ⁿ."""
    return 1 - 2 * 0.5**n


@functools.cache
def expanded_tail(n: int, confidence: float) -> float:
    """The share to cut from each end of the bootstrap distribution (Hesterberg 2015): Φ(−√(n/(n−1))·t)."""
    t = special.stdtrit(n - 1, 0.5 + confidence / 2)
    return float(special.ndtr(-np.sqrt(n / (n - 1)) * t))


@functools.cache
def median_weights(n: int) -> tuple[Whole, Whole, Values]:
    """The exact bootstrap distribution of the median of n values, as ``(i, j, weight)``.

    A resample's median is the mean of the i-th and j-th order statistic (from 0) with that probability.  For odd n,
    i = j.  Pairs less likely than 1e-12 are left out.
    """
    rank = np.arange(1, n + 1)
    if n % 2:
        # P(median* ≤ x(k)) = P(at least (n+1)/2 of n draws are among the k smallest).
        below = special.bdtrc((n - 1) // 2, n, rank / n)
        weight = np.diff(below, prepend=0.0)
        keep = weight > _NEGLIGIBLE
        place = rank[keep] - 1
        return place, place, weight[keep] / weight[keep].sum()
    half = n // 2
    # The half-th draw in order is x(i) and the next is x(j), i < j: half of the draws end exactly at i, half begin
    # exactly at j.  In logarithms, for the binomial coefficient overflows beyond n = 1000.
    share = np.log(np.arange(0, n + 1).clip(min=1e-300) / n)
    # Of (k/n)^half the step from k − 1 to k, which is below the least number beyond n = 1900.
    log_step = half * share[1:] + np.log1p(-np.exp(half * (share[:-1] - share[1:])))
    lower = np.diff(special.bdtrc(half - 1, n, rank / n), prepend=0.0)  # P(the half-th draw is x(i))
    near = np.flatnonzero(lower > _NEGLIGIBLE)  # no pair beside these, and their mirror images, is likelier
    first = min(int(near[0]), n - 1 - int(near[-1]))
    own = slice(first, n - first)
    log_pairs = special.gammaln(n + 1) - 2 * special.gammaln(half + 1) + log_step[own, None] + log_step[::-1][own]
    log_pairs[np.tri(n - 2 * first, dtype=bool)] = -np.inf  # i ≥ j cannot be
    pairs = np.exp(log_pairs)
    np.fill_diagonal(pairs, np.clip(lower[own] - pairs.sum(axis=1), 0, None))
    i, j = np.nonzero(pairs > _NEGLIGIBLE)
    weight = pairs[i, j]
    return i + first, j + first, weight / weight.sum()


def median_estimate(values: Sequence[float] | Values, unit: str, nominal: float) -> Estimate:
    """The median over repetitions, with an interval of the nominal confidence (0…1) or of what they can give."""
    n = len(values)
    if n == 0:
        return Estimate.missing(unit, "no valid repetition")
    if n == 1:
        return Estimate.bare(float(values[0]), unit, "a single repetition: no interval")
    if not 0 < nominal < 1:
        raise ValueError(f"confidence must lie between 0 and 1, not {nominal}")
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    point = float(ordered[(n - 1) // 2] + ordered[n // 2]) / 2  # np.median would sort them again
    most = attainable_confidence(n)
    if most <= nominal:
        method = f"median of {n} repetitions; smallest to largest, {most:.2%} is the most they can give"
        return Estimate(point, float(ordered[0]), float(ordered[-1]), most, n, unit, method)
    low, high = _end(ordered, nominal, 1), _end(ordered[::-1], nominal, -1)
    method = f"median of {n} repetitions; expanded percentile bootstrap over repetitions"
    return Estimate(point, low, high, nominal, n, unit, method)


def _end(ordered: Values, nominal: float, step: int) -> float:
    """The median* at which those from the first value on reach the tail's share; ``step`` is −1 from the largest."""
    if len(ordered) % 2:
        place, outer = _odd_end(len(ordered), nominal)
        end = float(ordered[place])
        return end + outer * (float(ordered[place - 1]) - end) if outer else end
    i, j, weight, share = _near_end(len(ordered), nominal)
    doubled = ordered[i] + ordered[j]
    order = doubled.argsort()[::step]
    return float(doubled[order[weight[order].cumsum().searchsorted(share)]]) / 2


@functools.cache
def _odd_end(n: int, nominal: float) -> tuple[int, float]:
    """Of an odd number the place of the end, and the weight of the next value outwards, by which it is moved there."""
    i, _, weight, share = _near_end(n, nominal)
    place = int(i[weight.cumsum().searchsorted(share)])
    outer, own = 1 - 2 * special.bdtr([place - 1, place], n, 0.5)
    if own >= nominal or not place:
        return place, 0.0
    part = (outer - nominal) / (outer - own)
    return place, float(1 - (n - place) * part / (place + (n - 2 * place) * part))


@functools.cache
def _near_end(n: int, nominal: float) -> tuple[Whole, Whole, Values, float]:
    """Those of :func:`median_weights` that may be the interval's lower end, and the share that they have to reach.

    A pair of order statistics is never below one of which neither is higher, so whatever the values, most pairs have
    too much or too little beside them.
    """
    i, j, weight = median_weights(n)
    if n % 2:  # each pair is one order statistic, twice
        never_above, never_below = weight.cumsum(), weight[::-1].cumsum()[::-1]
    else:
        first, last = int(i[0]), int(j.max())
        pairs = np.zeros((last - first + 1,) * 2)
        pairs[i - first, j - first] = weight
        never_above = pairs.cumsum(axis=0).cumsum(axis=1)[i - first, j - first]
        never_below = pairs[::-1, ::-1].cumsum(axis=0).cumsum(axis=1)[last - i, last - j]
    tail = expanded_tail(n, nominal)
    before = 1 - never_below + weight < tail - _NEGLIGIBLE
    near = ~before & (never_above - weight < tail + _NEGLIGIBLE)
    return i[near], j[near], weight[near], tail - float(weight[before].sum())
