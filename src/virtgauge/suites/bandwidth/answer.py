"""What an estimate brought, whether the agent's probe told it or the program under the shim."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from typing import Any, Self

from virtgauge.suites.answers import CountedHistogram, decoded
from virtgauge.suites.base import Elapsed

MEGA = 1e6
_RATES = {"mbps": "available", "low": "low", "high": "high"}


@dataclasses.dataclass(frozen=True)
class Instant:
    """One complete search; rates in bit/s of IP packets."""

    available_bps: float
    low_bps: float
    high_bps: float
    duration_ns: int
    bytes: int
    streams: int
    discarded: int
    at_ceiling: bool

    def result(self) -> dict[str, Any]:
        """As the ledger keeps it; rates in Mbit/s."""
        told = dataclasses.asdict(self)
        rates = {name: told.pop(f"{key}_bps") / MEGA for name, key in _RATES.items()}
        return rates | told


@dataclasses.dataclass(frozen=True)
class Found:
    """An estimate with all that it rests on; rates in bit/s of IP packets."""

    available_bps: float  # the median of the searches
    # low_bps, high_bps, confidence: the interval of that median
    low_bps: float
    high_bps: float
    confidence: float
    lower_bound: bool  # it ended at the highest rate that the estimator tries; the truth may be higher
    instants: tuple[Instant, ...]
    # the rate at which back-to-back packets came; None where the estimator does not look
    capacity_hint_bps: float | None
    bytes: int  # of IP packets, that were sent
    duration_ns: int  # of all searches together
    # discarded, stalled: trains that were not what was asked for; of them, those in which the sender stood still
    discarded: int
    stalled: int
    foreign_packets: int  # packets of others that came to the listener meanwhile

    @property
    def streams(self) -> int:
        return sum(instant.streams for instant in self.instants)


@dataclasses.dataclass(frozen=True)
class Refused:
    """The sender could not pace what the path carries; rates in bit/s of IP packets."""

    max_paced_bps: float  # the highest rate that it was seen to pace; 0 if none was
    carried_bps: float | None  # the highest of those that the path carried; None where nobody looked
    message: str


@dataclasses.dataclass(frozen=True)
class Answer:
    """See the module."""

    finished_ns: int  # when the answer had come, by the controller's CLOCK_MONOTONIC
    # found, refused: one of them, or none where there was no estimate
    found: Found | None = None
    refused: Refused | None = None
    silence: str | None = None  # why there was none, in words; None where there was one, or a refusal
    method: str | None = None  # by which bursts were handed over
    stamp: str | None = None  # who stamped the packets at the receiver: ``hardware``, ``kernel`` or ``program``
    # the highest rate that the sender paced beforehand; None where that is not known
    max_paced_bps: float | None = None
    sent_bytes: int | None = None  # of IP packets, in the whole session
    # gaps, lateness: of all bursts: gaps as thousandths of what was planned, and how late each left, in ns
    gaps: CountedHistogram = None
    lateness: CountedHistogram = None
    hptime_fallback_reason: str | None = None  # why hptime answers from the system's clock; None where it does not
    usage: dict[str, Any] | None = None  # of the agent's probe; None of a program
    clocks: tuple[Elapsed, ...] = ()
    # calls that a library preloaded over the program has ``served`` and ``passed`` on to the C library, with the
    # ``reasons`` why it served none, for the ledger; None without one
    preloaded: dict[str, Any] | None = None

    @classmethod
    def of_silence(cls, words: str) -> Self:
        return cls(time.monotonic_ns(), silence=words)

    @classmethod
    def decode(
        cls, value: Mapping[str, Any], finished_ns: int, refusal: Mapping[str, Any] | None, **known: Any
    ) -> Self:
        """Read what probe and program tell alike.

        Args:
            value: the probe's result, or the program's last word.
            finished_ns: when it had come.
            refusal: in place of its ``outcome``.
        """
        outcome = None if refusal is not None else value["outcome"]
        told = {name: value[name] for name in ("method", "stamp", "gaps", "lateness")}
        told |= {"max_paced_bps": value["limits"]["max_paced_bps"], "sent_bytes": value["tally"]["bytes"]}
        told |= {"found": None if outcome is None else {**outcome, **outcome["estimate"]}, "refused": refusal}
        return decoded(cls, {"finished_ns": finished_ns, **told, **known})

    @property
    def steal_ns(self) -> int | None:
        steal = (self.usage or {}).get("steal_ns")
        return None if steal is None else int(steal)
