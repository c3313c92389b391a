"""Rates as people write them, and as the layers count them."""

from __future__ import annotations

import re

ETHERNET_BYTES = 38
"""What Ethernet adds to an IP packet on the wire: preamble, header, check sequence, gap (IEEE 802.3)."""

SHAPER_BYTES = 14
"""What Linux's HTB and TBF add when they count: the header (tc-stab(8))."""

_FACTORS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}
_PATTERN = re.compile(r"([0-9]+(?:\.[0-9]+)?(?:e[0-9]+)?)([kmg]?)(?:bit(?:/s)?|bps)?", re.IGNORECASE)


def rate_bps(text: str) -> float:
    """A rate in bit/s: ``1e9``, ``300M``, ``1.5Gbit``; the factors are decimal.

    Raises:
        ValueError: it is none.
    """
    found = _PATTERN.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no rate; such as 300M or 1.5G")
    return float(found[1]) * _FACTORS[found[2].lower()]


def rate_text(bps: float) -> str:
    """The same for people, with four digits."""
    for unit, factor in (("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3)):
        if abs(bps) >= factor:
            return f"{bps / factor:.4g} {unit}"
    return f"{bps:.4g} bit/s"


def occupied_bps(ip_bps: float, packet_bytes: int, overhead_bytes: int) -> float:
    """What IP packets of a length occupy of a capacity that counts so many bytes more for each; rates in bit/s."""
    return ip_bps * (packet_bytes + overhead_bytes) / packet_bytes
