"""Whether repetitions meet a bound: pass, fail, or not decided; by what margin, and how many more would decide it.

A requirement bounds the *median over repetitions* of a figure (which may itself be a tail: the p99 of each repetition),
or the figure of *every* repetition.

- The median passes when its interval lies wholly within the bound, and fails when it lies wholly beyond.
- Every repetition: a single one beyond the bound fails.  None beyond it passes once there are as many repetitions as
  the median would need; it then says no more than that repetitions beyond the bound are the rarer kind, and the share
  that they may still have is told.

With a requirement over several cells all must pass, which needs no adjustment (an intersection-union test: R. L. Berger
1982, Technometrics 24(4): 295-300); one that fails is one of several chances to do so by luck, therefore failing is
judged with α divided by the number of cells (Bonferroni).

**At any time.**  Whoever looks after every repetition and stops when an ordinary 95 % interval lies on one side of a
bound is wrong far more often than in 5 % of cases.  The interval here is a *confidence sequence*: with its confidence,
the true median lies within it at every number of repetitions at once, so that one may stop whenever one likes.

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

import bisect
import dataclasses
import enum
import functools
import math
from collections.abc import Callable, Sequence

from scipy import special

from virtgauge.analysis.estimate import Estimate, median_estimate

MOST_MORE = 1000  # Beyond so many further repetitions it is said that they are too many to name


class Outcome(enum.StrEnum):
    """How a requirement is decided."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"


@dataclasses.dataclass(frozen=True)
class Bound:
    """What a figure may be, in its base unit; one end or both."""

    at_least: float | None = None
    at_most: float | None = None

    def holds(self, value: float) -> bool:
        return (self.at_least is None or value >= self.at_least) and (self.at_most is None or value <= self.at_most)

    def nearest(self, value: float) -> float:
        """The end that decides: the nearer one."""
        ends = [end for end in (self.at_least, self.at_most) if end is not None]
        return min(ends, key=lambda end: abs(end - value))

    def contains(self, estimate: Estimate) -> bool:
        low, high = estimate.low, estimate.high
        return low is not None and high is not None and self.holds(low) and self.holds(high)

    def excludes(self, estimate: Estimate) -> bool:
        if estimate.low is None or estimate.high is None:
            return False
        below = self.at_least is not None and estimate.high < self.at_least
        return below or (self.at_most is not None and estimate.low > self.at_most)


@dataclasses.dataclass(frozen=True)
class Decision:
    """What is decided on one cell."""

    outcome: Outcome  # of the figures alone
    estimate: Estimate  # the median with the interval that decided
    # how far the point is within the bound (negative: beyond it), as a share of the bound's end; None of a bound of 0
    margin: float | None
    # about how many more repetitions would decide it; 0 when it is decided, None when that cannot be told: of a median,
    # when more than :data:`MOST_MORE`
    more: int | None
    reason: str


def log_evidence(k: int, n: int) -> float:
    """Ln E(k, n): how much k of n values on one side speak against that side having half of the probability."""
    # The integral is a beta function's upper half.
    upper = special.betaincc(k + 1, n - k + 1, 0.5)
    if upper <= 0:
        return -math.inf
    return float((n + 1) * math.log(2) + special.betaln(k + 1, n - k + 1) + math.log(upper))


Decisive = Callable[[int, float], int | None]


@functools.cache
def decisive_count(n: int, confidence: float) -> int | None:
    """How many of n values must lie on one side of a bound for the median to lie there; None where n are too few."""
    threshold = math.log(2 / (1 - confidence))
    # It rises with the count.
    count = bisect.bisect_left(range(n + 1), threshold, lo=n // 2 + 1, key=lambda count: log_evidence(count, n))
    return count if count <= n else None


@functools.cache
def sign_test_count(n: int, confidence: float) -> int | None:
    """How many values a sign test needs where their number was fixed beforehand."""
    tail = (1 - confidence) / 2
    return next((k for k in range((n + 1) // 2, n + 1) if special.bdtrc(k - 1, n, 0.5) <= tail), None)


@functools.cache
def fewest_values(confidence: float, decisive: Decisive = decisive_count) -> int:
    """The fewest values that can decide at all; at any time and with a confidence of 95 %, 8."""
    return next(n for n in range(1, 10_000) if decisive(n, confidence) is not None)


def median_at_any_time(values: Sequence[float], unit: str, confidence: float) -> Estimate:
    """The median over repetitions with an interval that may be looked at after each of them."""
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


def decide(
    values: Sequence[float],
    bound: Bound,
    unit: str,
    confidence: float,
    *,
    cells: int = 1,
    every: bool = False,
    any_time_valid: bool = False,
) -> Decision:
    """Judge the repetitions of one cell.

    Args:
        cells: how many cells the requirement covers.
        every: bound each repetition rather than their median.
        any_time_valid: repetitions are added until it is decided, so that the interval must hold whenever one stops.
    """
    strict = 1 - (1 - confidence) / cells
    interval = median_at_any_time if any_time_valid else median_estimate
    decisive = decisive_count if any_time_valid else sign_test_count
    estimate = interval(values, unit, confidence)
    violations = len(values) - sum(map(bound.holds, values))
    margin = margin_of(bound, estimate.point)

    def decision(outcome: Outcome, reason: str, more: int | None = 0) -> Decision:
        return Decision(outcome, estimate, margin, more, reason)

    if not values:
        return decision(Outcome.INCONCLUSIVE, estimate.method, fewest_values(confidence, decisive))
    if every:
        return decision(*_of_every(len(values), violations, fewest_values(confidence, decisive), confidence))
    if estimate.reaches(confidence) and bound.contains(estimate):
        return decision(Outcome.PASS, "the whole interval lies within the bound")
    failing = estimate if cells == 1 else interval(values, unit, strict)
    if failing.reaches(strict) and bound.excludes(failing):
        return decision(Outcome.FAIL, "the whole interval lies beyond the bound")
    assert estimate.point is not None
    within = bound.holds(estimate.point)
    more = _more(len(values), violations, confidence if within else strict, decisive)
    reason = "the interval reaches over the bound" if estimate.has_interval else estimate.method
    if bound.excludes(estimate):  # at a lower confidence than a failure takes
        reason = f"to fail by one of {cells} cells takes a confidence of {100 * strict:.4g} %"
    if estimate.has_interval and not estimate.reaches(confidence):
        reached = float(f"{100 * (estimate.confidence or 0.0):.1f}")
        reason = f"{len(values)} repetitions reach a confidence of {reached:g} % at most"
    return decision(Outcome.INCONCLUSIVE, reason, more)


def _of_every(n: int, violations: int, fewest: int, confidence: float) -> tuple[Outcome, str, int]:
    if violations:
        return Outcome.FAIL, f"{violations} of {n} repetitions lie beyond the bound", 0
    if n < fewest:
        return Outcome.INCONCLUSIVE, f"none of {n} lies beyond the bound, which says too little", fewest - n
    share = 1 - (1 - confidence) ** (1 / n)
    reason = f"none of {n} repetitions lies beyond the bound; up to {100 * share:.0f} % of further ones still may"
    return Outcome.PASS, reason, 0


def margin_of(bound: Bound, point: float | None) -> float | None:
    """How far a figure is within a bound (negative: beyond it), as a share of the nearest end; None of an end of 0."""
    if point is None or (end := bound.nearest(point)) == 0:
        return None
    distance = abs(point - end) / abs(end)
    return distance if bound.holds(point) else -distance


@functools.cache
def _more(n: int, violations: int, confidence: float, decisive: Decisive) -> int | None:
    """How many further repetitions would decide, should they fall on either side of the bound as those so far did."""
    share = max(violations, n - violations) / n
    for total in range(n + 1, n + MOST_MORE + 1):
        count = decisive(total, confidence)
        if count is not None and math.floor(share * total + 0.5) >= count:
            return total - n
    return None
