"""The smallest difference that a comparison could have shown.

"No difference shown" says nothing without the size that would have been seen.  A difference is shown when its interval
excludes equality and it exceeds the A/A band (:mod:`virtgauge.analysis.comparison`,
:mod:`virtgauge.analysis.differences`).  So with the interval that these repetitions gave, a figure had to be higher by
more than the lower half of the interval, or lower by more than its upper half, and by more than the band: the larger of
half and band is the resolution, in each direction.  A true difference of just that size has an even chance of being
shown; one of twice the size (of a ratio: its square) nearly always is.
"""

from __future__ import annotations

import dataclasses

from virtgauge.analysis.comparison import Comparison
from virtgauge.analysis.differences import Difference
from virtgauge.analysis.estimate import Estimate

COARSE = 1.5
"""A comparison that could only have shown differences above this factor has no resolving power to speak of."""


@dataclasses.dataclass(frozen=True)
class Resolution:
    """What a comparison could have shown.

    Attributes:
        higher, lower: the smallest difference in each direction: of ratios a factor ≥ 1, of differences in their own
            unit and ≥ 0; None where no difference at all could be shown.
        band: of identical arms, likewise; None when that is not known.
        reason: what limits the wider direction, in a few words.
    """

    higher: float | None
    lower: float | None
    band: float | None
    reason: str

    @property
    def smallest(self) -> float | None:
        """In the direction in which it resolves more."""
        return None if self.higher is None or self.lower is None else min(self.higher, self.lower)


def resolution(found: Comparison | Difference) -> Resolution:
    """What a comparison could have shown, whatever it did show."""
    if isinstance(found, Comparison):
        return resolution_of(found.ratio, found.band)
    return resolution_of(found.estimate, found.band)


def resolution_of(estimate: Estimate, band: float | None) -> Resolution:
    """The same of an estimate alone.

    Args:
        estimate: of a ratio (its unit says so) or of a difference.
        band: what identical arms seem to differ by: a factor, or in the unit of the difference.
    """
    point, low, high = estimate.point, estimate.low, estimate.high
    if point is None or low is None or high is None:
        return Resolution(None, None, band, estimate.method.rpartition("; ")[2])
    if band is None:
        return Resolution(None, None, None, "no A/A interval")
    by_ratio = estimate.unit == "ratio"
    halves = (point / low, high / point) if by_ratio else (point - low, high - point)
    interval = f"interval of {estimate.n} repetition{'' if estimate.n == 1 else 's'}"
    reason = "A/A band" if band >= max(halves) else interval
    return Resolution(max(band, halves[0]), max(band, halves[1]), band, reason)


def is_coarse(comparison: Comparison) -> bool:
    """Whether no difference was shown, and only above :data:`COARSE` in either direction had one an even chance.

    Then its ratio says nothing.  Of a comparison without an interval or a band that is not known, so it is not called
    coarse.
    """
    smallest = resolution(comparison).smallest
    return not comparison.distinguishable and smallest is not None and smallest > COARSE
