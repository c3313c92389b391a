"""Whether a figure differs between two runs that share nothing, or two arms of one: a change, none, or not shown.

A change is called one only if

1. the interval of the shift (:mod:`virtgauge.analysis.shift`, and within blocks of one run
   :mod:`virtgauge.analysis.shift`) excludes no change,
2. its p, adjusted for all comparisons that were made, is at most the level, and
3. it is larger than the *band*: what identical arms (A/A) seem to differ by in the run where they differ more.

That nothing changed is a finding of its own: the whole interval lies within a margin that is too small to matter.
With an interval of confidence 1 − 2α or more that is the pair of one-sided tests of D. J. Schuirmann (1987), "A
Comparison of the Two One-Sided Tests Procedure and the Power Approach", Journal of Pharmacokinetics and
Biopharmaceutics 15(6): 657-680, at the level α.  It is said first: a change that is sharp but smaller than the margin
is none that matters. Everything else has not been shown, which is not the same as no change.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Mapping, Sequence

from scipy import special

from virtgauge.analysis.estimate import Estimate
from virtgauge.analysis.shift import (
    least_p,
    least_size,
    mann_whitney_p,
    paired_shift_estimate,
    shift_estimate,
    signed_rank_p,
)

MOST_NEEDED = 10_000  # Repetitions beyond which more of them are no answer; a plan allows no more
_SLACK = 1e-9


class Outcome(enum.StrEnum):
    """What two runs allow to be said of a figure."""

    HIGHER = "higher"
    LOWER = "lower"
    EQUIVALENT = "equivalent"
    NOT_SHOWN = "not shown"


@dataclasses.dataclass(frozen=True)
class Shifted:
    """By how much a figure lies higher in one run than in the base."""

    ratio: Estimate  # other / base; missing where a figure is 0 or negative
    difference: Estimate  # other − base, in the measure's unit
    p: float | None  # two-sided; None where one of them has no repetition
    sizes: tuple[int, int]  # repetitions of base and other
    paired: bool = False  # whether both were measured in each repetition

    @property
    def least_p(self) -> float:
        return 2 * 0.5 ** min(self.sizes) if self.paired else least_p(*self.sizes)

    def least_size(self, level: float) -> int:
        """How many repetitions it takes before any data can give a p of ``level``."""
        return math.ceil(math.log2(2 / level) - _SLACK) if self.paired else least_size(level)

    @property
    def by_ratio(self) -> bool:
        """Whether it is judged by the ratio; else by the difference."""
        return self.ratio.point is not None


@dataclasses.dataclass(frozen=True)
class Bounds:
    """What a change is held against."""

    # what identical arms differ by: a factor ≥ 1 for ratios, else in the measure's unit; None when not known
    band: float | None
    margin: float  # the largest change that does not matter, as a share (0.05); 0 when every change does
    base: float  # the base's figure, of which the margin is a share where differences are judged
    level: float  # α, of the whole family of comparisons
    comparisons: int  # how many there are in the family
    held: int  # how many of them hold at the level


@dataclasses.dataclass(frozen=True)
class Judged:
    """An outcome, why, and how many repetitions of each run would probably decide what is not shown; None if none."""

    outcome: Outcome
    reason: str
    needed: int | None = None


def shifted(base: Sequence[float], other: Sequence[float], unit: str, nominal: float) -> Shifted:
    """Compare independent repetitions of two runs.

    Args:
        base, other: one value a repetition, in ``unit``.
    """
    sizes = len(base), len(other)
    difference = shift_estimate(base, other, unit, nominal)
    if not base or not other:
        return Shifted(Estimate.missing("ratio", difference.method), difference, None, sizes)
    if min(*base, *other) <= 0:
        ratio = Estimate.missing("ratio", "a ratio needs positive figures; see the difference", min(sizes))
    else:
        first, second = ([math.log(value) for value in values] for values in (base, other))
        ratio = shift_estimate(first, second, "log", nominal).mapped(math.exp, "ratio")
    return Shifted(ratio, difference, mann_whitney_p(base, other), sizes)


def paired_shifted(base: Mapping[int, float], other: Mapping[int, float], unit: str, nominal: float) -> Shifted:
    """Compare two arms of one run within its blocks.

    Args:
        base, other: one value a block, in ``unit``.
    """
    blocks = sorted(base.keys() & other.keys())
    differences = [other[block] - base[block] for block in blocks]
    difference = paired_shift_estimate(differences, unit, nominal)
    sizes = len(blocks), len(blocks)
    if any(base[block] <= 0 or other[block] <= 0 for block in blocks):
        ratio = Estimate.missing("ratio", "a ratio needs positive figures; see the difference", len(blocks))
        return Shifted(ratio, difference, signed_rank_p(differences), sizes, paired=True)
    logs = [math.log(other[block] / base[block]) for block in blocks]
    ratio = paired_shift_estimate(logs, "log", nominal).mapped(math.exp, "ratio")
    return Shifted(ratio, difference, signed_rank_p(logs) if blocks else None, sizes, paired=True)


def judge(change: Shifted, p_adjusted: float | None, bounds: Bounds) -> Judged:
    """What may be said of a change; see the module.

    Args:
        p_adjusted: of the whole family of comparisons.
        bounds: that it is held against.
    """
    scaled = _scaled(change, bounds)
    if scaled is None or p_adjusted is None:
        estimate = change.ratio if change.by_ratio else change.difference
        return Judged(
            Outcome.NOT_SHOWN, estimate.method, change.least_size(bounds.level) if min(change.sizes) else None
        )
    point, low, high, confidence, band, margin = scaled
    if bounds.margin and -margin <= low and high <= margin and confidence >= 1 - 2 * bounds.level - _SLACK:
        small = "" if low <= 0 <= high else ", though the interval excludes none"
        return Judged(Outcome.EQUIVALENT, f"the whole interval lies within ±{bounds.margin:.3g} of no change{small}")
    reason = _objection(change, p_adjusted, point, low, high, band, bounds)
    if not reason:
        outcome = Outcome.HIGHER if point > 0 else Outcome.LOWER
        return Judged(outcome, "the interval excludes no change and the effect exceeds what identical arms differ by")
    return Judged(Outcome.NOT_SHOWN, reason, _needed(change, point, low, high, band, margin, bounds))


def _scaled(change: Shifted, bounds: Bounds) -> tuple[float, float, float, float, float | None, float] | None:
    """Point, low, high, confidence, band and margin on a scale whose 0 is no change; None without an interval."""
    estimate = change.ratio if change.by_ratio else change.difference
    if estimate.point is None or estimate.low is None or estimate.high is None or estimate.confidence is None:
        return None
    if not change.by_ratio:
        margin = bounds.margin * abs(bounds.base)
        return estimate.point, estimate.low, estimate.high, estimate.confidence, bounds.band, margin
    point, low, high = (math.log(value) for value in (estimate.point, estimate.low, estimate.high))
    band = None if bounds.band is None else math.log(bounds.band)
    return point, low, high, estimate.confidence, band, math.log1p(bounds.margin)


def _objection(
    change: Shifted, p_adjusted: float, point: float, low: float, high: float, band: float | None, bounds: Bounds
) -> str:
    """Why a change may not be called one; empty where nothing speaks against it."""
    if low <= 0 <= high:
        return f"the interval includes {1 if change.by_ratio else 0} (no change)"
    if p_adjusted > bounds.level:
        if change.least_p > bounds.level:
            return f"with so few repetitions chance alone gives as much once in {1 / change.least_p:.0f} times"
        return f"among {bounds.comparisons} comparisons chance alone may give as much"
    if band is None:
        return "no A/A interval of both runs: what identical arms differ by is unknown"
    if abs(point) <= band:
        seem = f"by a factor of {math.exp(band):.3g}" if change.by_ratio else f"by {band:.3g}"
        return f"identical arms (A/A) may seem to differ {seem}"
    return ""


def _needed(
    change: Shifted, point: float, low: float, high: float, band: float | None, margin: float, bounds: Bounds
) -> int | None:
    """Repetitions of each run at which the interval would probably be clear of no change, or within the margin.

    The interval narrows with the square root of the repetitions if spread and effect stay what they are.  A change has
    to hold among all comparisons, so it needs an interval of the confidence that the next one to hold would need.
    """
    n, half = min(change.sizes), max(high - point, point - low)
    next_level = bounds.level * min(bounds.held + 1, bounds.comparisons) / bounds.comparisons
    wider = float(special.ndtri(1 - next_level / 2) / special.ndtri(1 - bounds.level / 2))
    routes = []
    if band is not None and abs(point) > band:
        routes.append(max(change.least_size(next_level), math.ceil(n * (half * wider / (abs(point) - band)) ** 2)))
    if bounds.margin and margin > abs(point):
        routes.append(max(change.least_size(2 * bounds.level), math.ceil(n * (half / (margin - abs(point))) ** 2)))
    needed = max(min(routes), n + 1) if routes else None
    return needed if needed is not None and needed <= MOST_NEEDED else None


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Adjusted p in the order given: those at or below a level q hold, of what holds, a share q of chance at most.

    Y. Benjamini & Y. Hochberg (1995), "Controlling the False Discovery Rate: A Practical and Powerful Approach to
    Multiple Testing", Journal of the Royal Statistical Society B 57(1): 289-300.  It holds for independent comparisons
    and for those that depend on one another positively, as cells of one run do (Y. Benjamini & D. Yekutieli 2001,
    Annals of Statistics 29: 1165-1188).
    """
    number = len(p_values)
    order = sorted(range(number), key=lambda place: p_values[place], reverse=True)
    adjusted = [1.0] * number
    lowest = 1.0
    for step, place in enumerate(order):
        lowest = min(lowest, p_values[place] * number / (number - step))
        adjusted[place] = lowest
    return adjusted


def threshold(p_values: Sequence[float], level: float) -> float:
    """The unadjusted p up to which results hold at the false discovery rate ``level``; 0 when none does."""
    held = sum(p <= level for p in benjamini_hochberg(p_values))
    return level * held / len(p_values) if held else 0.0
