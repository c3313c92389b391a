"""Rates of a path: as people write them, as its layers count them, and what is true while something is estimated on it.

All in bit/s.  A shaper counts a frame with its Ethernet header and without what the wire adds (tc-stab(8)); estimators
count IP packets.  Available is what the capacity leaves beside the cross traffic (Jain and Dovrolis 2002, equation 2),
of a path with one hop that is shaped.
"""

from __future__ import annotations

import re

ETHERNET_BYTES = 38
"""What Ethernet adds to an IP packet on the wire: preamble, header, check sequence, gap (IEEE 802.3)."""
SHAPER_BYTES = 14  # What Linux's shapers and interfaces count beside an IP packet: the header

_FACTORS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}
_PATTERN = re.compile(r"([0-9]+(?:\.[0-9]+)?(?:e[0-9]+)?)([kmg]?)(?:bit(?:/s)?|bps)?", re.IGNORECASE)


def rate_bps(text: str) -> float:
    """A rate: ``1e9``, ``300M``, ``1.5Gbit``; the factors are decimal. Raises ValueError: it is none."""
    found = _PATTERN.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no rate; such as 300M or 1.5G")
    return float(found[1]) * _FACTORS[found[2].lower()]


def rate_text(bps: float) -> str:
    """A rate for people, with four digits: ``93.27 Mbit/s``."""
    for unit, factor in (("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3)):
        if abs(bps) >= factor:
            return f"{bps / factor:.4g} {unit}"
    return f"{bps:.4g} bit/s"


def occupied_bps(ip_bps: float, packet_bytes: int, overhead_bytes: int) -> float:
    """What IP packets of a length occupy of a capacity that counts so many bytes more for each."""
    return ip_bps * (packet_bytes + overhead_bytes) / packet_bytes


def ip_bps(shaper_bps: float, packet_bytes: int) -> float:
    """The rate of IP packets of one length that fills such a rate of a shaper."""
    return shaper_bps * packet_bytes / (packet_bytes + SHAPER_BYTES)


def available_bps(capacity_bps: float, cross_bps: float, packet_bytes: int) -> float:
    """What is left for IP packets of a length; capacity and cross traffic are as the shaper counts."""
    return ip_bps(capacity_bps - cross_bps, packet_bytes)


def error_ratio(estimate_bps: float, truth_bps: float) -> float | None:
    """How far an estimate is off, as a signed share of the truth; None where nothing was left."""
    return estimate_bps / truth_bps - 1 if truth_bps > 0 else None
