"""An interval of the median that holds however often it is looked at: for repetitions that are added until a verdict.

Whoever looks after every repetition and stops when an ordinary 95 % interval lies on one side of a bound is wrong far
more often than in 5 % of cases.  The interval here is a *confidence sequence*: with its confidence, the true median
lies within it at every number of repetitions at once, so that one may stop whenever one likes.

For every candidate θ the number k of n values above it is set against a fair coin.  Under "the median is at most θ"
the mixture of all biased coins, uniform between fair and certain,

    E(k, n) = 2ⁿ⁺¹ · ∫_{1/2}^{1} pᵏ (1−p)ⁿ⁻ᵏ dp,

is a non-negative martingale of mean one or less, and exceeds 2/α ever with a probability of at most α/2 (Ville 1939).
θ is kept while neither side exceeds it.  Nothing is assumed of the distribution.

H. Robbins (1970), "Statistical Methods Related to the Law of the Iterated Logarithm", Annals of Mathematical Statistics
41(5): 1397-1409; S. R. Howard & A. Ramdas (2022), "Sequential Estimation of Quantiles with Applications to A/B Testing
and Best-Arm Identification", Bernoulli 28(3): 1704-1728.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from scipy import special

from virtgauge.analysis.estimate import Estimate


def log_evidence(k: int, n: int) -> float:
    """Ln E(k, n): how much k of n values on one side speak against that side having half of the probability."""
    # The integral is a beta function's upper half.
    upper = special.betaincc(k + 1, n - k + 1, 0.5)
    if upper <= 0:
        return -math.inf
    return float((n + 1) * math.log(2) + special.betaln(k + 1, n - k + 1) + math.log(upper))


@functools.cache
def decisive_count(n: int, confidence: float) -> int | None:
    """How many of n values must lie on one side of a bound for the median to lie there; None where n are too few."""
    threshold = math.log(2 / (1 - confidence))
    low, high = n // 2, n + 1  # log_evidence rises with k
    while low + 1 < high:
        middle = (low + high) // 2
        if log_evidence(middle, n) >= threshold:
            high = middle
        else:
            low = middle
    return high if high <= n else None


@functools.cache
def fewest_values(confidence: float) -> int:
    """The fewest values that can decide at all: 8 at a confidence of 95 %."""
    return next(n for n in range(1, 10_000) if decisive_count(n, confidence) is not None)


def median_at_any_time(values: Sequence[float], unit: str, confidence: float) -> Estimate:
    """The median over repetitions with an interval that may be looked at after each of them.

    Args:
        values: one for each independent repetition, in ``unit``.
        unit: of the values.
        confidence: that the interval holds the true median at every number of repetitions.
    """
    n = len(values)
    if n == 0:
        return Estimate.missing(unit, "no valid repetition")
    ordered = sorted(values)
    point = (ordered[(n - 1) // 2] + ordered[n // 2]) / 2
    count = decisive_count(n, confidence)
    if count is None:
        fewest = fewest_values(confidence)
        return Estimate.bare(point, unit, f"an interval that may be looked at any time needs {fewest} repetitions", n)
    method = f"median of {n} repetitions; confidence sequence: it holds whenever one stops"
    return Estimate(point, ordered[n - count], ordered[count - 1], confidence, n, unit, method)
