"""One latency for many guests (Batalla et al. 2016, equation 7)."""

from __future__ import annotations

import math
from collections.abc import Sequence


def two_level_latency(heavy: Sequence[float], light: Sequence[float], light_share: float) -> float:
    """L_tot: the guests' mean latencies, each group weighted with its part of the load (equation 7).

    At k = N the printed formula is 0/0 and the whole load is on the first group: the plain mean.

    Args:
        heavy: mean latency of each strongly loaded guest.
        light: of each slightly loaded guest; empty at k = N.
        light_share: q.

    Raises:
        ValueError: there is no strongly loaded guest, or q is out of range.
    """
    if not heavy:
        raise ValueError("there must be at least one strongly loaded guest")
    if not 0 <= light_share < 1:
        raise ValueError(f"q = {light_share:g}: the light guests' part of the load must be at least 0 and below 1")
    mean_heavy = math.fsum(heavy) / len(heavy)
    if not light:
        return mean_heavy
    return light_share * math.fsum(light) / len(light) + (1 - light_share) * mean_heavy


def weighted_latency(latencies: Sequence[float], shares: Sequence[float]) -> float:
    """The same for any load vector: every guest's mean latency weighted with its share of the load.

    Raises:
        ValueError: as many shares as latencies are needed, and some load.
    """
    if len(latencies) != len(shares):
        raise ValueError(f"{len(latencies)} latencies for {len(shares)} shares")
    total = math.fsum(shares)
    if total <= 0:
        raise ValueError("the latency of no load at all is not defined")
    return math.fsum(latency * share for latency, share in zip(latencies, shares, strict=True)) / total
