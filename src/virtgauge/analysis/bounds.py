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
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
from collections.abc import Sequence

from scipy import special

from virtgauge.analysis import any_time
from virtgauge.analysis.bootstrap import attainable_confidence, median_estimate
from virtgauge.analysis.estimate import Estimate

MOST_MORE = 1000
"""Beyond so many further repetitions it is said that they are too many to name."""


class Outcome(enum.StrEnum):
    """Of a requirement."""

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
        """Whether the whole interval lies within."""
        return estimate.low is not None and self.holds(estimate.low) and self.holds(_end(estimate.high))

    def excludes(self, estimate: Estimate) -> bool:
        """Whether the whole interval lies beyond one end."""
        if estimate.low is None or estimate.high is None:
            return False
        below = self.at_least is not None and estimate.high < self.at_least
        return below or (self.at_most is not None and estimate.low > self.at_most)


@dataclasses.dataclass(frozen=True)
class Decision:
    """On one cell.

    Attributes:
        outcome: of the figures alone.
        estimate: the median with the interval that decided.
        margin: how far the point is within the bound (negative: beyond it), as a share of the bound's end; None of a
            bound of 0.
        violations: repetitions beyond the bound.
        more: about how many more repetitions would decide it; 0 when it is decided, None when more than
            :data:`MOST_MORE`.
        reason: in words.
    """

    outcome: Outcome
    estimate: Estimate
    margin: float | None
    violations: int
    more: int | None
    reason: str


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
        values: one a repetition, in ``unit``.
        bound: in the same unit.
        unit: of the figures.
        confidence: of the verdict.
        cells: how many cells the requirement covers.
        every: bound each repetition rather than their median.
        any_time_valid: repetitions are added until it is decided, so that the interval must hold whenever one stops.
    """
    strict = 1 - (1 - confidence) / cells
    estimate = _interval(values, unit, confidence, any_time_valid)
    violations = sum(not bound.holds(value) for value in values)
    margin = _margin(bound, estimate.point)

    def decision(outcome: Outcome, reason: str, more: int | None = 0) -> Decision:
        return Decision(outcome, estimate, margin, violations, more, reason)

    if not values:
        return decision(Outcome.INCONCLUSIVE, estimate.method, _fewest(confidence, any_time_valid))
    if every:
        return decision(*_of_every(len(values), violations, _fewest(confidence, any_time_valid), confidence))
    if _enough(estimate, confidence) and bound.contains(estimate):
        return decision(Outcome.PASS, "the whole interval lies within the bound")
    failing = estimate if cells == 1 else _interval(values, unit, strict, any_time_valid)
    if _enough(failing, strict) and bound.excludes(failing):
        return decision(Outcome.FAIL, "the whole interval lies beyond the bound")
    assert estimate.point is not None
    within = bound.holds(estimate.point)
    more = _more(len(values), violations, confidence if within else strict, any_time_valid)
    reason = "the interval reaches over the bound" if estimate.has_interval else estimate.method
    if estimate.has_interval and not _enough(estimate, confidence):
        reason = f"{len(values)} repetitions reach a confidence of {_per_cent(_end(estimate.confidence))} at most"
    return decision(Outcome.INCONCLUSIVE, reason, more)


def _per_cent(value: float) -> str:
    """``75 %``, ``93.8 %``."""
    return f"{float(f'{100 * value:.1f}'):g} %"


def _of_every(n: int, violations: int, fewest: int, confidence: float) -> tuple[Outcome, str, int]:
    if violations:
        return Outcome.FAIL, f"{violations} of {n} repetitions lie beyond the bound", 0
    if n < fewest:
        return Outcome.INCONCLUSIVE, f"none of {n} lies beyond the bound, which says too little", fewest - n
    share = 1 - (1 - confidence) ** (1 / n)
    reason = f"none of {n} repetitions lies beyond the bound; up to {100 * share:.0f} % of further ones still may"
    return Outcome.PASS, reason, 0


def _interval(values: Sequence[float], unit: str, confidence: float, any_time_valid: bool) -> Estimate:
    if any_time_valid:
        return any_time.median_at_any_time(values, unit, confidence)
    return median_estimate(values, unit, confidence)


def _enough(estimate: Estimate, confidence: float) -> bool:
    return estimate.confidence is not None and estimate.confidence >= confidence


def _margin(bound: Bound, point: float | None) -> float | None:
    if point is None or (end := bound.nearest(point)) == 0:
        return None
    distance = abs(point - end) / abs(end)
    return distance if bound.holds(point) else -distance


def _fewest(confidence: float, any_time_valid: bool) -> int:
    if any_time_valid:
        return any_time.fewest_values(confidence)
    return next(n for n in range(1, 10_000) if attainable_confidence(n) >= confidence)


def _more(n: int, violations: int, confidence: float, any_time_valid: bool) -> int | None:
    """How many further repetitions would decide, should they fall on either side of the bound as those so far did."""
    share = max(violations, n - violations) / n
    for total in range(n + 1, n + MOST_MORE + 1):
        count = _decisive(total, confidence, any_time_valid)
        if count is not None and math.floor(share * total + 0.5) >= count:
            return total - n
    return None


def _decisive(n: int, confidence: float, any_time_valid: bool) -> int | None:
    """How many of n values on one side of a bound decide; of a fixed number, by the sign test."""
    if any_time_valid:
        return any_time.decisive_count(n, confidence)
    return _sign_test_count(n, (1 - confidence) / 2)


@functools.cache
def _sign_test_count(n: int, tail: float) -> int | None:
    return next((k for k in range((n + 1) // 2, n + 1) if special.bdtrc(k - 1, n, 0.5) <= tail), None)


def _end(value: float | None) -> float:
    assert value is not None
    return value
