"""What the native program answers, as values."""

from __future__ import annotations

import dataclasses
from typing import Any, Self

from virtgauge.bandwidth.program import Event
from virtgauge.bandwidth.rates import ETHERNET_BYTES, SHAPER_BYTES, occupied_bps


@dataclasses.dataclass(frozen=True)
class Estimate:
    """An available bandwidth; rates in bit/s of IP packets.

    Attributes:
        estimator: by which it was found.
        available_bps: the median of its searches.
        low_bps, high_bps: the interval of that median.
        confidence: how often such an interval is meant to hold the truth.
        lower_bound: it ended at the highest rate that the estimator tries; the truth may be higher.
        packet_bytes: length of the IP packets that it was found with.
        searches: complete ones.
        streams: all that were sent; ``discarded`` of them were not what was asked for, ``stalled`` of these because
            the sender was interrupted.
        sent_bytes, duration_ns: what it cost, in bytes of IP packets and in time.
        foreign_packets: packets of others that the listener ignored.
        clock, sleep, method: by which packets were timed and bursts handed over.
        hptime_fallback_reason: why hptime's clock is the system's here; None where it is not.
        user_stamps: why the listener's program stamps packets and not its kernel; None where the kernel does.
    """

    estimator: str
    available_bps: float
    low_bps: float
    high_bps: float
    confidence: float
    lower_bound: bool
    packet_bytes: int
    searches: int
    streams: int
    discarded: int
    stalled: int
    sent_bytes: int
    duration_ns: int
    foreign_packets: int
    clock: str
    sleep: str
    method: str
    hptime_fallback_reason: str | None
    user_stamps: str | None

    @classmethod
    def of(cls, session: Event, result: Event) -> Self:
        """From the program's events of these names."""
        outcome, timing = result["outcome"], result["timing"]
        found, trace = outcome["estimate"], outcome["trace"]
        return cls(
            estimator=result["settings"]["estimator"],
            available_bps=found["available_bps"],
            low_bps=found["low_bps"],
            high_bps=found["high_bps"],
            confidence=found["confidence"],
            lower_bound=found["lower_bound"],
            packet_bytes=trace[-1]["stream"]["packet_bytes"],
            searches=len(outcome["instants"]),
            streams=len(trace),
            discarded=outcome["discarded"],
            stalled=outcome["stalled"],
            sent_bytes=outcome["bytes"],
            duration_ns=outcome["duration_ns"],
            foreign_packets=outcome["foreign_packets"],
            clock=timing["clock"],
            sleep=timing["sleep"],
            method=session["method"],
            hptime_fallback_reason=timing["hptime_fallback_reason"],
            user_stamps=session["no_kernel_stamps"],
        )

    @property
    def wire_bps(self) -> float:
        """The same on an Ethernet wire."""
        return occupied_bps(self.available_bps, self.packet_bytes, ETHERNET_BYTES)

    @property
    def shaper_bps(self) -> float:
        """The same as Linux's HTB and TBF count."""
        return occupied_bps(self.available_bps, self.packet_bytes, SHAPER_BYTES)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        layers = {"layer": "ip", "wire_bps": self.wire_bps, "shaper_bps": self.shaper_bps}
        return dataclasses.asdict(self) | layers


@dataclasses.dataclass(frozen=True)
class Rung:
    """What one way of sending can do; rates in bit/s of IP packets, times in ns.

    Attributes:
        method: its name.
        burst: packets that it hands over at once.
        flat_out_bps: without pacing.
        max_paced_bps: the highest rate that it paces; 0 if there is none.
        gap_p50_ns, gap_p99_ns: between bursts at that rate; None without one.
        late_p99_ns: from a burst's deadline to its handover.
        cpu_share: of one processor, for the sending thread; waiting awake counts.
        ccdf: gaps at that rate, ascending, with the share of all that is longer.
    """

    method: str
    burst: int
    flat_out_bps: float
    max_paced_bps: float
    gap_p50_ns: int | None
    gap_p99_ns: int | None
    late_p99_ns: int | None
    cpu_share: float | None
    ccdf: tuple[tuple[int, float], ...]

    @classmethod
    def of(cls, rung: dict[str, Any]) -> Self:
        """From what stands in the program's event ``rung``."""
        flat_out, paced = rung["flat_out"], rung["paced"] or {}
        gaps, lateness = paced.get("gaps") or {}, paced.get("lateness") or {}
        return cls(
            method=rung["method"],
            burst=flat_out["burst"],
            flat_out_bps=flat_out["achieved_bps"],
            max_paced_bps=paced.get("achieved_bps", 0.0),
            gap_p50_ns=gaps.get("p50_ns"),
            gap_p99_ns=gaps.get("p99_ns"),
            late_p99_ns=lateness.get("p99_ns"),
            cpu_share=paced.get("cpu_share"),
            ccdf=tuple((int(gap_ns), share) for gap_ns, share in gaps.get("ccdf", ())),
        )
