"""Whether a disk became another one between two probes.

A disk that others use too is restless: bursts of flushes differ by factors while nothing has changed.  So two things
have to be seen: the medians of the bursts differ by a factor that matters, and the bursts by more than chance makes
them (the rank-sum test of Mann and Whitney 1947).
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

FACTOR = 2.0
"""A disk whose flushes became so much faster or slower is another one."""
CHANCE = 0.001
"""How often at most bursts that are independent look like that although nothing has changed."""


def disk_changed(before: Sequence[float], after: Sequence[float]) -> bool:
    """Whether the rates of the bursts after are those of another disk than before.

    Args:
        before, after: flushes per second of each burst; seven of each are the least that can show a change.

    Raises:
        ValueError: there are none.
    """
    if not before or not after:
        raise ValueError("a disk's change needs bursts before and after")
    fast, slow = sorted((median(before), median(after)), reverse=True)
    if fast <= FACTOR * slow:
        return False
    from scipy.stats import mannwhitneyu  # more than a second, which almost all runs spare

    return bool(mannwhitneyu(before, after).pvalue < CHANCE)
