"""What is true of a path while something is estimated on it.  All rates in bit/s.

A shaper counts a frame with its Ethernet header and without what the wire adds (tc-stab(8)); estimators count IP
packets.  Available is what the capacity leaves beside the cross traffic (Jain and Dovrolis 2002, equation 2), of a path
with one hop that is shaped.
"""

from __future__ import annotations

HEADER_BYTES = 14
"""What Linux's shapers and interfaces count beside an IP packet: the Ethernet header."""


def ip_bps(shaper_bps: float, packet_bytes: int) -> float:
    """The rate of IP packets of one length that fills such a rate of a shaper."""
    return shaper_bps * packet_bytes / (packet_bytes + HEADER_BYTES)


def shaper_bps(ip_bps: float, packet_bytes: int) -> float:
    """The inverse: what IP packets of one length occupy of a shaper."""
    return ip_bps * (packet_bytes + HEADER_BYTES) / packet_bytes


def available_bps(capacity_bps: float, cross_bps: float, packet_bytes: int) -> float:
    """What is left for IP packets of a length.

    Args:
        capacity_bps: of the shaper, as it counts.
        cross_bps: of the cross traffic, counted likewise where it enters.
        packet_bytes: of the packets that estimate.
    """
    return ip_bps(capacity_bps - cross_bps, packet_bytes)


def error_ratio(estimate_bps: float, truth_bps: float) -> float | None:
    """How far an estimate is off, as a signed share of the truth; None where nothing was left."""
    return estimate_bps / truth_bps - 1 if truth_bps > 0 else None


def covers(low_bps: float, high_bps: float, truth_bps: float) -> bool:
    """Whether an interval holds the truth."""
    return low_bps <= truth_bps <= high_bps
