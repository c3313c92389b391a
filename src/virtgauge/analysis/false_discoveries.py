"""Many comparisons at once: how many of those that are called differences may be chance.

Y. Benjamini & Y. Hochberg (1995), "Controlling the False Discovery Rate: A Practical and Powerful Approach to
Multiple Testing", Journal of the Royal Statistical Society B 57(1): 289-300.  It holds for independent comparisons
and for those that depend on one another positively, as cells of one run do (Y. Benjamini & D. Yekutieli 2001, Annals
of Statistics 29: 1165-1188).
"""

from __future__ import annotations

from collections.abc import Sequence


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Adjusted p in the order given: those at or below a level q hold, of what holds, a share q of chance at most."""
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
