"""The smallest share that gives a guest the efficiency that it needs."""

from __future__ import annotations

from collections.abc import Sequence


def smallest_setting(points: Sequence[tuple[float, float]], target: float) -> float | None:
    """The smallest share from which on every measured efficiency reaches the target.

    Between the last share that misses and the first that does not, the efficiency is taken to change evenly.  No
    statement is made beyond what was measured: where even the smallest share reaches the target, it is the answer.

    Args:
        points: share and efficiency at it (for instance the lower end of its interval), in any order.
        target: efficiency needed.

    Returns:
        The share, or None where the largest one misses the target, or there is none at all.
    """
    ordered = sorted(points)
    if not ordered or ordered[-1][1] < target:
        return None
    missing = [index for index, (_, efficiency) in enumerate(ordered) if efficiency < target]
    if not missing:
        return ordered[0][0]
    (low, below), (high, above) = ordered[missing[-1]], ordered[missing[-1] + 1]
    return low + (high - low) * (target - below) / (above - below)
