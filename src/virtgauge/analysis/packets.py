"""Formulas of packets: rates of a path and of a line; of many virtual routers load vectors, latency, buffers, losses.

Rates of a path are in bit/s.  A shaper counts a frame with its Ethernet header and without what the wire adds
(tc-stab(8)); estimators count IP packets.  Available is what the capacity leaves beside the cross traffic (Jain and
Dovrolis 2002, equation 2), of a path with one hop that is shaped.

Frame sizes count the frame check sequence, as in RFC 2544 (64 is 60 in software).  A load vector is the guests' shares
of the total load, in the guests' order; the shares add up to 1 (Batalla et al. 2016, section 3, equations 1 to 6).
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence

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


WIRE_OVERHEAD_BYTES = 20
"""Preamble, start of frame and the smallest gap between frames: what a frame takes on an Ethernet beside itself."""
Shares = tuple[float, ...]


def wire_frames_per_s(frame_bytes: int, medium_bits_per_s: float) -> float:
    """The most frames of a size that an Ethernet of this speed carries: 1,488,095 of 64 bytes at 1 Gbit/s."""
    return medium_bits_per_s / (8 * (frame_bytes + WIRE_OVERHEAD_BYTES))


def bits_per_s(frames_per_s: float, frame_bytes: int) -> float:
    """The rate in bits of frames (with check sequence)."""
    return frames_per_s * 8 * frame_bytes


def two_level_shares(guests: int, strong: int, light_share: float) -> Shares:
    """The paper's vector: the first k guests strongly loaded, the others slightly (equations 3 and 4, for O_tot = 1).

    Of N ``guests`` k are ``strong``, from 1 to N (at k = N every guest has 1/N); all others together carry the part q
    (``light_share``) of the load, at least 0 and below 1.  Raises ValueError: q would load them more than the strong.
    """
    if strong == guests:
        return equal_shares(guests)
    heavy, light = (1 - light_share) / strong, light_share / (guests - strong)
    if light > heavy:
        raise ValueError(
            f"q = {light_share:g} gives each slightly loaded guest more than each of the k = {strong} strongly loaded "
            f"ones; with N = {guests} it must be at most {(guests - strong) / guests:g}"
        )
    return (heavy,) * strong + (light,) * (guests - strong)


def equal_shares(guests: int) -> Shares:
    """Every guest the same."""
    return (1 / guests,) * guests


def zipf_shares(guests: int, exponent: float) -> Shares:
    """Guest number i (from 1) in proportion to i to the power of -exponent: a few large, a long tail of small."""
    return shares_of([rank**-exponent for rank in range(1, guests + 1)])


def shares_of(weights: Sequence[float]) -> Shares:
    """A user's own vector: weights of any scale, none negative, brought to a sum of 1. Raises ValueError: all are 0."""
    total = math.fsum(weights)
    if total <= 0:
        raise ValueError("at least one weight must be above 0")
    return tuple(weight / total for weight in weights)


def jain_index(loads: Sequence[float]) -> float:
    """Jain's fairness index of loads or shares (equation 2): from 1/N (all on one guest) to 1 (all alike)."""
    return math.fsum(loads) ** 2 / (len(loads) * math.fsum(load * load for load in loads))


def frames_for(loss_ratio: float) -> int:
    """How many frames, none of them lost, exclude a higher loss ratio than this at 95 % (the rule of three).

    Source: J. A. Hanley, A. Lippman-Hand 1983, "If nothing goes wrong, is everything all right?", JAMA 249, 1743.
    """
    return math.ceil(3 / loss_ratio)


def shows_more_loss(lost: int, sent: int, loss_ratio: float, among: int = 1) -> bool:
    """Whether lost frames are evidence of a higher loss ratio than this.

    They are where chance does not lose so many at this ratio once in twenty trials (the binomial distribution): one of
    a hundred says nothing of 0.5 %.  Of several guests, any of which would fail a trial, the chance is shared (Šidák).
    """
    if lost <= loss_ratio * sent:
        return False
    from scipy import special  # here, for every command imports this module

    level = 1 - 0.95 ** (1 / among)
    return loss_ratio == 0 or float(special.bdtrc(lost - 1, sent, loss_ratio)) < level


def weighted_latency(latencies: Sequence[float], shares: Sequence[float]) -> float:
    """Every guest's mean latency weighted with its share of the load (Batalla et al. 2016, equation 7)."""
    return math.fsum(latency * share for latency, share in zip(latencies, shares, strict=True)) / math.fsum(shares)


def implied_buffer_s(burst_frames: float, maximum_frames_per_s: float) -> float:
    """How long the longest lossless burst takes at the highest rate, as if nothing were forwarded (RFC 9004, 5.4)."""
    return burst_frames / maximum_frames_per_s


def corrected_buffer_s(burst_frames: float, maximum_frames_per_s: float, throughput_frames_per_s: float) -> float:
    """The buffer itself: less what the device forwards while the burst arrives (RFC 9004, section 5.4).

    The throughput has to be below the highest rate, or no burst can fill the buffer (section 5.2).
    """
    implied = implied_buffer_s(burst_frames, maximum_frames_per_s)
    return implied - implied * throughput_frames_per_s / maximum_frames_per_s


@dataclasses.dataclass(frozen=True)
class DropCounter:
    """What one place dropped between two readings."""

    place: str  # ``br0 port to guest 3``, ``guest 3 backlog``, ``tester receive ring`` …
    dropped: int
    flow: int | None = None  # the one whose frames alone pass there; None where all flows do


@dataclasses.dataclass(frozen=True)
class LossAccounting:
    """Where lost frames went: every one is set against a counter that admits to have dropped it.

    The tester counts losses by flow; rings, backlogs, switch ports and guests count what they dropped.  The ledger
    closes when both agree.  When it does not, frames vanished at a place that nobody watches, or the counters saw
    traffic that is not ours; either way the figures cannot be trusted.
    """

    lost: int  # frames that the tester missed, of all flows
    places: Mapping[str, int]  # frames by the place that dropped them; only places that dropped any
    unattributed: int  # lost frames that no counter explains, summed over flows
    excess: int  # frames that counters dropped but the tester does not miss
    tolerance: int  # frames by which both may be off

    @property
    def closed(self) -> bool:
        return max(self.unattributed, self.excess) <= self.tolerance


def add_accountings(ledgers: Sequence[LossAccounting]) -> LossAccounting:
    """The sum over trials.  Each has to close by itself: a large loss that is explained must not hide a small one."""
    open_ones = [ledger for ledger in ledgers if not ledger.closed]
    return LossAccounting(
        lost=sum(ledger.lost for ledger in ledgers),
        places=sum((Counter(ledger.places) for ledger in ledgers), Counter()),
        unattributed=sum(ledger.unattributed for ledger in open_ones),
        excess=sum(ledger.excess for ledger in open_ones),
        tolerance=0,
    )


def close_accounting(
    lost_by_flow: Sequence[int], counters: Sequence[DropCounter], *, tolerance_share: float = 0.0
) -> LossAccounting:
    """Set losses against counters: a flow's own first, what remains against those that all flows share.

    The sums may differ by ``tolerance_share`` of the lost frames, for counters that are read while frames are still
    under way.  Raises ValueError: a counter went backwards, or a loss is negative.
    """
    if any(lost < 0 for lost in lost_by_flow):
        raise ValueError("a flow cannot lose fewer than no frames")
    remaining, shared, places = list(lost_by_flow), 0, Counter[str]()
    for counter in counters:
        if counter.dropped < 0:
            raise ValueError(f"the counter of {counter.place} went backwards by {-counter.dropped}")
        places[counter.place] += counter.dropped
        if counter.flow is None:
            shared += counter.dropped
        else:
            remaining[counter.flow] -= counter.dropped
    open_losses = sum(left for left in remaining if left > 0)
    lost = sum(lost_by_flow)
    return LossAccounting(
        lost=lost,
        places=+places,
        unattributed=max(open_losses - shared, 0),
        excess=max(shared - open_losses, 0) - sum(left for left in remaining if left < 0),
        tolerance=int(lost * tolerance_share),
    )
