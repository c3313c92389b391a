"""One latency for many guests (Batalla et al. 2016, equation 7)."""

from __future__ import annotations

import math
from collections.abc import Sequence


def weighted_latency(latencies: Sequence[float], shares: Sequence[float]) -> float:
    """Every guest's mean latency weighted with its share of the load.

    Raises:
        ValueError: as many shares as latencies are needed, and some load.
    """
    if len(latencies) != len(shares):
        raise ValueError(f"{len(latencies)} latencies for {len(shares)} shares")
    total = math.fsum(shares)
    if total <= 0:
        raise ValueError("the latency of no load at all is not defined")
    return math.fsum(latency * share for latency, share in zip(latencies, shares, strict=True)) / total
