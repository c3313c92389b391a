"""Distributions kept as counts per bin: quantiles, spread, merging, and points of the CCDF.

Within a trial all values share the HDR histogram's bins, so quantiles are exact to the bin's width (3 significant
digits).  A quantile here is the smallest value that at least a share q of all values do not exceed: Hyndman & Fan
(1996), "Sample Quantiles in Statistical Packages", definition 1; numpy calls it ``inverted_cdf``.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import math
from collections.abc import Iterable, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

TAIL_SAMPLES = 10
"""How many values must lie beyond a quantile before it is reported: fewer, and it says more of the luck of the
draw than of the system."""


_COMMON_SHARE, _EXACT, _SURE = 0.01, 2048, 1 / 8
"""From which share of all values on one is common; below which each has a bin of its own, above half as wide as the
quotient; and of a step, how far a gap may be unknown to tell whether it is a multiple."""
_TAIL_POINTS = 16  # Of a curve, that always stay; it has several times as many
FENCE = 1.5  # Interquartile ranges from the quartiles (J. W. Tukey 1977, "Exploratory Data Analysis", section 2D).
LEAST_VALUES = 20  # Quartiles of fewer are themselves too uncertain to say what lies far beyond them


@dataclasses.dataclass(frozen=True)
class Distribution:
    """Counts of values, in one unit."""

    values: npt.NDArray[np.int64]  # ascending, distinct bin values, shape (bins,)
    counts: npt.NDArray[np.uint64]  # how often each was seen, shape (bins,)
    # minimum, maximum: exact, before binning
    minimum: float
    maximum: float
    mean: float  # exact, before binning

    @functools.cached_property
    def n(self) -> int:
        return int(self.counts.sum())

    @classmethod
    def of(cls, samples: npt.NDArray[np.int64]) -> Distribution:
        """The distribution of raw values, a bin for each distinct one."""
        if samples.size == 0:
            raise ValueError("a distribution needs at least one value")
        values, counts = np.unique(samples, return_counts=True)
        return cls(values, counts.astype(np.uint64), float(samples.min()), float(samples.max()), float(samples.mean()))

    def quantiles(self, shares: Sequence[float]) -> npt.NDArray[np.float64]:
        """The quantiles at shares (0…1), within exact minimum and maximum. Raises ValueError: nothing was counted."""
        cumulated = np.cumsum(self.counts.astype(np.int64))  # not kept: a report holds every trial's distribution
        total = int(cumulated[-1]) if cumulated.size else 0
        if total == 0:
            raise ValueError("a distribution without values has no quantiles")
        # Taking a few ulps off keeps a product such as 0.07 * 100 = 7.000000000000001 from asking for the eighth value.
        products = np.asarray(shares, dtype=np.float64) * total
        ranks = np.maximum(np.ceil(products - 4 * np.spacing(products)), 1)
        at = np.searchsorted(cumulated, ranks, side="left")
        found: npt.NDArray[np.float64] = self.values[at].astype(np.float64).clip(self.minimum, self.maximum)
        return found

    def quantile(self, share: float) -> float:
        return float(self.quantiles([share])[0])

    def quantile_at_least(self, share: float, confidence: float) -> float:
        """What the quantile is at least of that which the values, each by itself, were drawn from, with a confidence.

        Of their order statistics the largest that is not above it (W. J. Conover 1999, "Practical Nonparametric
        Statistics", section 3.2); a hundred values tell so of the quantile at 0.999 what ten thousand tell as a point.
        """
        from scipy import special  # here, for every command imports this module

        def at_most(rank: int) -> float:  # the probability of drawing so many or fewer that are not above it
            return float(special.bdtr(rank, self.n, share))

        rank = bisect.bisect_left(range(self.n), 1 - confidence, key=at_most)
        return self.quantile(max(rank, 1) / self.n)

    @functools.cached_property
    def median(self) -> float:
        """The smallest value that half of all values do not exceed."""
        return self.quantile(0.5)

    @functools.cached_property
    def step(self) -> float:
        """The step of a coarse clock that the values were read from; 0 where the clock is finer, or that is not known.

        It is the smallest gap among zero and the common values, if the other gaps are multiples of it as far as bins
        tell, which is up to some sixty steps: two modes seldom have one.  A clock of which 99 % of all values are one
        shows none.
        """
        common = self.values[self.counts >= max(_COMMON_SHARE * self.n, TAIL_SAMPLES)]
        if common.size < 2:
            return 0.0
        ticks = np.union1d(0, common).astype(np.float64)
        gaps, blur = np.diff(ticks), np.abs(ticks) // _EXACT
        blur = blur[:-1] + blur[1:]
        at = int(gaps.argmin())
        times = np.rint(gaps / gaps[at])
        unknown = blur + times * blur[at]
        sure = unknown <= _SURE * gaps[at]
        whole = np.abs(gaps - times * gaps[at]) <= unknown
        # Two values say nothing by their own gap alone, unless one is zero, which a clock that stands still tells.
        return float(gaps[at]) if sure.sum() >= min(gaps.size, 2) and (whole | ~sure).all() else 0.0

    def _interpolated(self, shares: Sequence[float]) -> npt.NDArray[np.float64]:
        """Quantiles, with the values of a coarse clock spread evenly over half a step to either side."""
        found = self.quantiles(shares)
        if not self.step:
            return found
        upto = np.append(0.0, np.cumsum(self.counts.astype(np.int64)))
        low, high = found - self.step / 2, found + self.step / 2
        below, until = (upto[np.searchsorted(self.values, end, side="right")] for end in (low, high))
        within: npt.NDArray[np.float64] = (np.asarray(shares) * self.n - below) / (until - below)
        return low + self.step * within

    @property
    def interpolated_median(self) -> float:
        """The median of values that a coarse clock has rounded: interpolated within the step that holds it.

        A counter that advances every 10 ns reports a cost of 13 ns as seven times 10 and three times 20; the plain
        median says 10 of every cost between 5 and 15 (the median of grouped data).  Where no :attr:`step` is known,
        this is :attr:`median`.
        """
        return float(self._interpolated([0.5])[0]) if self.step else self.median

    @property
    def half_iqr(self) -> float:
        """Half the interquartile range, which Kirova et al. 2019 (section 2.3) call the MAD; interpolated likewise."""
        low, high = self._interpolated([0.25, 0.75])
        return float(high - low) / 2

    @property
    def mad(self) -> float:
        """The median absolute deviation from the median, as the term is commonly meant."""
        deviations = np.abs(self.values.astype(np.float64) - self.median)
        order = np.argsort(deviations, kind="stable")
        cumulated = np.cumsum(self.counts[order].astype(np.int64))
        return float(deviations[order[np.searchsorted(cumulated, math.ceil(cumulated[-1] / 2), side="left")]])


def samples_needed(share: float) -> int:
    """How many values a trial needs before its quantile at ``share`` is reported."""
    return math.ceil(round(TAIL_SAMPLES / (1 - share), 6))


def gathered(
    values: npt.NDArray[np.int64], counts: npt.NDArray[np.uint64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]]:
    """The distinct values, ascending, and how often each was seen in all."""
    order = np.argsort(values, kind="stable")  # merges what is in order already
    values = values[order]
    first = np.flatnonzero(np.diff(values, prepend=values[:1] - 1))
    return values[first], np.add.reduceat(counts[order], first)


_Counted = TypeVar("_Counted", bound=Distribution)


def merge(counted: Iterable[_Counted]) -> _Counted:
    """All values of several together, which are of one unit. Raises ValueError: there are none."""
    parts = [part for part in counted if part.counts.any()]
    if not parts:
        raise ValueError("nothing to merge")
    values, counts = (np.concatenate(of) for of in zip(*((part.values, part.counts) for part in parts), strict=True))
    minima, maxima, means = zip(*((part.minimum, part.maximum, part.mean) for part in parts), strict=True)
    starts = np.cumsum([0, *(part.counts.size for part in parts[:-1])])
    # one alone has its own, to the last digit
    mean = np.average(means, weights=np.add.reduceat(counts, starts).astype(np.float64)) if len(means) > 1 else means[0]
    values, counts = gathered(values, counts)
    return dataclasses.replace(
        parts[0], values=values, counts=counts, minimum=min(minima), maximum=max(maxima), mean=float(mean)
    )


def ccdf(distribution: Distribution, points: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Points of the complementary cumulative distribution function P(X > x), for a log-log drawing.

    Thinned evenly in the *logarithm of the share* and over the bins, so that the rare tail keeps as many points as
    the body; the first point, the last bins and the largest value always stay.  The last point's share is that of
    one value, at the exact maximum (nothing lies beyond it, and zero has no place on a logarithmic axis).

    Values ascend and shares fall; of either there are as many points, or fewer.
    """
    total = distribution.n
    beyond = total - np.cumsum(distribution.counts.astype(np.int64))
    values = np.clip(distribution.values.astype(np.float64), distribution.minimum, distribution.maximum)
    inside = beyond > 0
    values = np.concatenate([values[inside], [distribution.maximum]])
    shares = np.concatenate([beyond[inside], [1]]) / total
    if values.size <= points:
        return values, shares
    keep = np.zeros(values.size, dtype=bool)
    keep[0] = keep[-_TAIL_POINTS:] = True
    room = (points - _TAIL_POINTS - 1) // 2
    by_share = np.log(shares[0]) + np.linspace(0, 1, room) * (np.log(shares[-1]) - np.log(shares[0]))
    keep[np.minimum(np.searchsorted(-np.log(shares), -by_share, side="left"), values.size - 1)] = True
    # A body that is spread in value but not in share (a shoulder) would lose its shape: even steps over the bins.
    keep[np.linspace(0, values.size - 1, room).astype(np.int64)] = True
    return values[keep], shares[keep]


def outliers(values: Sequence[float]) -> tuple[float, float] | None:
    """The shares of values below and above the fences, 0 … 1; None of fewer values than :data:`LEAST_VALUES`."""
    if len(values) < LEAST_VALUES:
        return None
    low, high = np.quantile(values, [0.25, 0.75])
    reach = FENCE * (high - low)
    found = np.asarray(values, dtype=np.float64)
    return float(np.mean(found < low - reach)), float(np.mean(found > high + reach))
