"""Rare events that come in clusters: how often they come, how long silence must last, how large one will be.

**Clusters.**  What has one cause comes several times in a row, and bounds that count each time singly are too narrow.
So events are gathered into runs (S. Coles 2001, "An Introduction to Statistical Modeling of Extreme Values", Springer,
section 5.3.2): one that follows the last within a gap belongs to its cluster.  A run that does not end is cut after a
longest time, for events that come for ever are not one event.  Clusters are taken for a Poisson process.

**Rate.**  Where n clusters were seen, their expected number lies between G(α; n) and G(1 − α; n + 1), quantiles of
gamma distributions of that shape; each end is exact and one-sided, at a confidence of 1 − α (F. Garwood 1936, "Fiducial
Limits for the Poisson Distribution", Biometrika 28(3/4): 437-442).  Of none the upper end is −ln α: silence over a time
T bounds the rate by 3/T at 95 %.

**At any time.**  Who looks again and again and stops when such a bound is on one side of a limit is wrong more often.
A mixture of likelihood ratios against an expected number x, over all smaller or all larger rates t·x,

    rarer(n, x) = ∫₀¹ tⁿ e^{x(1−t)} dt,    oftener(n, x) = ∫₁^∞ tⁿ⁻² e^{x(1−t)} dt,

is a martingale of mean one where x is true, and exceeds 1/α ever with a probability of at most α (Ville 1939;
H. Robbins 1970, Annals of Mathematical Statistics 41(5): 1397-1409).  An x is refuted once it does.  Silence then
bounds the rate by 4.5/T.

**Size.**  Peaks above a high threshold have a generalized Pareto distribution (Coles, chapter 4).  The largest of
several events has none yet where it is small: the largest quarter of the peaks tell it.  The level that is exceeded
once in a time is a parameter of its likelihood, whose profile gives the interval (4.3.3 there; that the number of peaks
varies, too, is left out); as its asymptotics cost some per cent of so few, half the error is asked of it.  A tail that
is bounded more sharply than by a shape of −1/2 has no regular likelihood (R. L. Smith 1985, Biometrika 72(1): 67-90),
and no level is told.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from scipy import special  # and not scipy.stats, which takes over a second to import

from virtgauge.analysis.bounds import Bound, Decision, Outcome, margin_of
from virtgauge.analysis.estimate import Estimate, Values

GAP_S, LONGEST_S = 1.0, 10.0  # Between two events of one cluster at most, and from its first to its last
_TAIL = 4  # One of so many peaks is of the tail
_LEAST_OF_TAIL, _MOST_OF_TAIL = 20, 200
FEWEST_PEAKS = _TAIL * _LEAST_OF_TAIL
_FEWEST_OF_COURSE = 5
_APART_S = 10 * LONGEST_S  # Between peaks of the tail on average; at less several clusters are one
LEAST_SHAPE = -0.5  # Of a tail with a regular likelihood
_SHAPES = np.linspace(LEAST_SHAPE, 1.0, 120)  # Of that distribution; 0 is none of them, and its neighbours are as good


def cluster_peaks(events: Iterable[tuple[float, float]]) -> list[float]:
    """The largest size of each cluster, in the order of time; an event is its moment in seconds and its size."""
    peaks: list[float] = []
    began_s = last_s = -math.inf
    for moment_s, size in sorted(events):
        if moment_s - last_s > GAP_S or moment_s - began_s > LONGEST_S:
            peaks.append(size)
            began_s = moment_s
        else:
            peaks[-1] = max(peaks[-1], size)
        last_s = moment_s
    return peaks


def log_rarer(count: int, expected: float) -> float:
    """Ln of how much ``count`` events speak for their being rarer than expected; it rises with that number."""
    share = special.gammainc(count + 1, expected)
    return float(expected + special.gammaln(count + 1) - (count + 1) * math.log(expected) + math.log(share))


def log_oftener(count: int, expected: float) -> float:
    """Ln of how much ``count`` events speak for their coming more often than expected; it falls with that number."""
    if count < 2:
        return float(expected + math.log(special.expn(2 - count, expected)))
    share = special.gammaincc(count - 1, expected)
    return float(expected + special.gammaln(count - 1) - (count - 1) * math.log(expected) + math.log(share))


def _crossing(reached: Callable[[float], bool], low: float, high: float) -> float:
    """Where it becomes true, from ``low``, where it is not, to ``high``, where it is."""
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high


@functools.cache
def expected_number(count: int, confidence: float, *, any_time_valid: bool = False) -> tuple[float, float]:
    """The least and the largest number to be expected of events of which ``count`` were seen, each so certain."""
    alpha = 1 - confidence
    if not any_time_valid:
        low = float(special.gammaincinv(count, alpha)) if count else 0.0
        return low, float(special.gammainccinv(count + 1, alpha))
    evidence = -math.log(alpha)
    low = _crossing(lambda x: log_oftener(count, x) < evidence, 0.0, float(count)) if count else 0.0
    high = _crossing(lambda x: log_rarer(count, x) >= evidence, float(count), 2 * count + 10 + 4 * evidence)
    return low, high


def decide_silence(
    largest: Sequence[float], watched_s: float, bound: Bound, wanted_s: float, unit: str, confidence: float
) -> Decision:
    """Judge a bound that nothing may exceed for so long: one value beyond it fails, so long without one passes.

    The values are the largest of each repetition, all of which have watched for ``watched_s`` together.
    """
    n = len(largest)
    if not n or watched_s <= 0:
        return _nothing_watched(unit)
    estimate = Estimate.bare(max(largest), unit, f"the largest of {n} repetitions", n)
    beyond = sum(not bound.holds(value) for value in largest)
    low, high = expected_number(beyond, confidence)

    def decision(outcome: Outcome, more: int, reason: str) -> Decision:
        return Decision(outcome, estimate, margin_of(bound, estimate.point), more, reason)

    if beyond:
        often = f"{low / _hours(watched_s):.3g} to {high / _hours(watched_s):.3g} of such repetitions an hour"
        return decision(
            Outcome.FAIL, 0, f"{beyond} of {n} repetitions have it beyond the bound, in {_text(watched_s)}: {often}"
        )
    silence = _at_most("nothing beyond the bound", high, watched_s, confidence)
    left_s = wanted_s - watched_s
    if left_s <= 0:
        return decision(Outcome.PASS, 0, silence)
    more = math.ceil(n * left_s / watched_s)
    return decision(Outcome.INCONCLUSIVE, more, f"{silence}; about {_duration(left_s)} more of that would meet it")


def decide_rate(
    seen: tuple[int, int],
    n: int,
    watched_s: float,
    at_most: float,
    per_s: float,
    confidence: float,
    *,
    cells: int = 1,
    any_time_valid: bool = False,
) -> Decision:
    """Judge how often clusters come: at most so many in ``per_s``; the figure is of that time.

    Args:
        seen: how many clusters the repetitions have, at least and at most; they are ``n``, of ``watched_s`` together.
        cells: how many cells the requirement covers.
        any_time_valid: repetitions are added until it is decided.
    """
    if not n or watched_s <= 0:
        return _nothing_watched("")
    least, most = seen
    each, strict = per_s / watched_s, 1 - (1 - confidence) / cells
    low, _ = expected_number(least, confidence, any_time_valid=any_time_valid)
    _, high = expected_number(most, confidence, any_time_valid=any_time_valid)
    failing, _ = expected_number(least, strict, any_time_valid=any_time_valid)
    method = "clusters in the time watched; each end of the interval is one-sided"
    estimate = Estimate((least + most) / 2 * each, low * each, high * each, 2 * confidence - 1, n, "", method)
    margin = margin_of(Bound(at_most=at_most), estimate.point)
    clusters = f"{least}" if least == most else f"{least} to {most}"
    told = _at_most(f"{clusters} cluster{'' if clusters == '1' else 's'}", high, watched_s, confidence)
    if failing * each > at_most:
        told = f"{clusters} clusters in {_text(watched_s)}: at least {low / _hours(watched_s):.3g} an hour"
        return Decision(Outcome.FAIL, estimate, margin, 0, told)
    left_s = high * per_s / at_most - watched_s
    if left_s <= 0:
        return Decision(Outcome.PASS, estimate, margin, 0, told)
    told += f"; about {_duration(left_s)} more without another would meet it"
    return Decision(Outcome.INCONCLUSIVE, estimate, margin, math.ceil(n * left_s / watched_s), told)


def _nothing_watched(unit: str) -> Decision:
    why = "no valid repetition has watched"
    return Decision(Outcome.INCONCLUSIVE, Estimate.missing(unit, why), None, None, why)


def _hours(seconds: float) -> float:
    return seconds / 3600


def _text(watched_s: float) -> str:
    return f"{_duration(watched_s)} watched"


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.3g} min" if seconds < 3600 else f"{_hours(seconds):.4g} h"


def _at_most(seen: str, most: float, watched_s: float, confidence: float) -> str:
    """``nothing beyond the bound in T = 24 h watched: at most 3/T = 0.125 an hour (95 % confidence)``."""
    rate = f"{most:.3g}/T = {most / _hours(watched_s):.3g} an hour"
    return f"{seen} in T = {_text(watched_s)}: at most {rate} ({100 * confidence:.4g} % confidence)"


def return_level(
    peaks: Sequence[float], threshold: float, watched_s: float, over_s: float, unit: str, confidence: float
) -> Estimate:
    """The size that a peak exceeds once in a time of ``over_s``, by the peaks of a time.

    ``peaks`` are those of all clusters, as far as they are above the threshold; others are left out.
    """
    ratio = over_s / watched_s
    excess: Values = np.sort(np.asarray(peaks, dtype=np.float64) - threshold)[::-1]
    excess = excess[excess > 0]
    n = min(excess.size // _TAIL, _MOST_OF_TAIL, int(watched_s / _APART_S))
    if n < _LEAST_OF_TAIL or ratio * n <= 1:
        why = "peaks so large come more often than once in that time"
        if excess.size < FEWEST_PEAKS:
            why = f"that takes {FEWEST_PEAKS} peaks, and there are {excess.size}"
        elif n < _LEAST_OF_TAIL:
            why = f"that takes at least {_text(_LEAST_OF_TAIL * _APART_S)}"
        return Estimate.missing(unit, why, int(excess.size))
    higher = float(excess[n])
    threshold, excess = threshold + higher, excess[:n] - higher
    if excess[0] <= 0:
        return Estimate.missing(unit, "peaks of one size tell no level", n)
    grown = np.expm1(_SHAPES * math.log(ratio * n))

    def fit(log_level: float) -> tuple[float, float]:
        """Ln of the likelihood where the excess of that level is given, at the shape that makes it largest; which."""
        slopes = grown / math.exp(log_level)  # the shape by the scale
        possible = 1 + slopes * excess[0] > 0
        shapes, slopes = _SHAPES[possible], slopes[possible]
        sums = np.log1p(np.outer(slopes, excess)).sum(axis=1)
        found = -n * np.log(shapes / slopes) - (1 + 1 / shapes) * sums
        at = int(found.argmax())
        return float(found[at]), float(shapes[at])

    low, high = math.log(excess.mean() / 10), math.log(10 * excess[0] * max(ratio, 1.0))
    coarse = np.linspace(low, high, 60)
    at = int(np.argmax([fit(one)[0] for one in coarse]))
    fine = np.linspace(coarse[max(at - 1, 0)], coarse[min(at + 1, 59)], 30)
    best = max(fine.tolist(), key=lambda one: fit(one)[0])
    most, shape = fit(best)
    if shape <= LEAST_SHAPE:
        return Estimate.missing(unit, "peaks that end as sharply have no tail to extrapolate", n)
    least = most - float(special.ndtri(1 - (1 - confidence) / 4)) ** 2 / 2
    ends = (
        _crossing(lambda one: fit(one)[0] >= least, low, best),
        _crossing(lambda one: fit(one)[0] < least, best, high),
    )
    point, lower, upper = (threshold + math.exp(one) for one in (best, *ends))
    return Estimate(point, lower, upper, confidence, n, unit, f"peaks over a threshold: {n}; profile likelihood")


def growth_p(course: Sequence[tuple[float, int]]) -> float:
    """How likely clusters come as late in the time watched where their rate stays.

    Laplace's test (D. R. Cox and P. A. W. Lewis 1966, "The Statistical Analysis of Series of Events", Methuen, section
    3.3), one-sided; 1 where there are fewer than five.  The course has, of each repetition, the seconds watched and the
    clusters, in the order of time.
    """
    seconds, counts = (np.array([one[place] for one in course], dtype=np.float64) for place in (0, 1))
    number, whole = counts.sum(), seconds.sum()
    if number < _FEWEST_OF_COURSE or whole <= 0:
        return 1.0
    middles = seconds.cumsum() - seconds / 2
    return float(special.ndtr(-(counts @ middles / (number * whole) - 0.5) * math.sqrt(12 * number)))
