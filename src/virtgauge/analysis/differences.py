"""Paired differences of figures that may be zero, guarded by the A/A pair.

An error of 0 % has no ratio.  So errors are compared by their difference within each block, in the measure's own unit,
and the guard is that of :mod:`virtgauge.analysis.comparison`: a difference is called one only if

1. its interval excludes 0, with the confidence wanted, and
2. it is larger than the *band*: what identical arms (A/A) still differ by, the larger end of their difference's
   interval.  Without an A/A interval there is no band, and nothing is called a difference.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from virtgauge.analysis.comparison import Judgement, paired_difference
from virtgauge.analysis.estimate import Estimate


@dataclasses.dataclass(frozen=True)
class Difference:
    """One figure less another, in pairs.

    Attributes:
        estimate: test − base, in the measure's unit.
        band: how far identical arms seem apart, in the same unit; None when that is not known.
        judgement: whether the tested figure is higher or lower, or no difference has been shown.
        reason: why, in words.
    """

    estimate: Estimate
    band: float | None
    judgement: Judgement
    reason: str

    @property
    def distinguishable(self) -> bool:
        return self.judgement is not Judgement.INCONCLUSIVE


def band_of(identical: Sequence[Estimate]) -> float | None:
    """The widest that differences of identical arms still allow; None unless every one of them has an interval.

    Args:
        identical: differences of identical arms: one for each of the conditions that are compared.
    """
    ends = [max(abs(one.low), abs(one.high)) for one in identical if one.low is not None and one.high is not None]
    return max(ends) if ends and len(ends) == len(identical) else None


def compare_differences(
    test: Mapping[int, float], base: Mapping[int, float], band: float | None, unit: str, nominal: float
) -> Difference:
    """Compare two figures by blocks.

    Args:
        test, base: one value a block, in ``unit``.
        band: see :func:`band_of`.
        unit: of both.
        nominal: the confidence wanted.
    """
    estimate = paired_difference(test, base, unit, nominal)
    judgement, reason = _judge(estimate, band, nominal)
    return Difference(estimate, band, judgement, reason)


def _judge(estimate: Estimate, band: float | None, nominal: float) -> tuple[Judgement, str]:
    if estimate.point is None or not estimate.reaches(nominal):
        return Judgement.INCONCLUSIVE, estimate.method
    if not estimate.excludes(0):
        return Judgement.INCONCLUSIVE, "the interval of the difference includes 0"
    if band is None:
        return Judgement.INCONCLUSIVE, "no A/A interval: what identical arms differ by is unknown"
    if abs(estimate.point) <= band:
        return Judgement.INCONCLUSIVE, f"identical arms (A/A) may seem to differ by {band:.3g}"
    judgement = Judgement.HIGHER if estimate.point > 0 else Judgement.LOWER
    return judgement, "the interval excludes 0 and the effect exceeds what identical arms (A/A) differ by"
