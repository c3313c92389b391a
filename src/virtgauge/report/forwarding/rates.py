"""Rates of frames and bits, loads and losses in a person's units."""

from __future__ import annotations

from virtgauge.analysis.estimate import Estimate
from virtgauge.measures.quantities import significant
from virtgauge.report.words import NONE, amount, share


def bit_rate(mbps: float | None) -> str:
    """``98.4 Mbit/s``, ``1.23 Gbit/s``; a dash for None."""
    if mbps is None:
        return NONE
    if abs(float(significant(mbps))) >= 1000:
        return f"{significant(mbps / 1000)} Gbit/s"
    return f"{significant(mbps)} Mbit/s" if abs(mbps) >= 0.1 else f"{significant(mbps * 1000)} kbit/s"


def bit_rate_interval(estimate: Estimate) -> str:
    """``97.0–99.8 Mbit/s``; a dash without an interval."""
    if estimate.low is None or estimate.high is None:
        return NONE
    low, high = bit_rate(estimate.low), bit_rate(estimate.high)
    return f"{low.split()[0] if low.split()[1] == high.split()[1] else low}–{high}"


def frame_rate(pps: float | None) -> str:
    """``147,000/s``; a dash for None."""
    return NONE if pps is None else f"{amount(pps)}/s"


def loss(ratio: float | None) -> str:
    """``0``, ``0.012 %``; a dash for None.  A loss is never rounded to nothing."""
    if ratio is None:
        return NONE
    if ratio == 0:
        return "0"
    return share(ratio) if ratio >= 0.01 else f"{significant(ratio * 100, 2)} %"


def percent_of_throughput(load_percent: float) -> str:
    """``90 %``."""
    return f"{load_percent:g} %"
