"""What an estimate brought, whether the agent's probe told it or the program under the shim."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from virtgauge.ledger.records import Histogram
from virtgauge.suites.base import Elapsed

MEGA = 1e6


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

    @classmethod
    def decode(cls, value: Mapping[str, Any]) -> Self:
        """Read one.

        Raises:
            KeyError, TypeError, ValueError: it is none.
        """
        return cls(
            available_bps=float(value["available_bps"]),
            low_bps=float(value["low_bps"]),
            high_bps=float(value["high_bps"]),
            duration_ns=int(value["duration_ns"]),
            bytes=int(value["bytes"]),
            streams=int(value["streams"]),
            discarded=int(value["discarded"]),
            at_ceiling=bool(value["at_ceiling"]),
        )

    def result(self) -> dict[str, Any]:
        """As the ledger keeps it; rates in Mbit/s."""
        return {
            "mbps": self.available_bps / MEGA,
            "low": self.low_bps / MEGA,
            "high": self.high_bps / MEGA,
            "duration_ns": self.duration_ns,
            "bytes": self.bytes,
            "streams": self.streams,
            "discarded": self.discarded,
            "at_ceiling": self.at_ceiling,
        }


@dataclasses.dataclass(frozen=True)
class Found:
    """An estimate with all that it rests on; rates in bit/s of IP packets.

    Attributes:
        available_bps: the median of the searches.
        low_bps, high_bps, confidence: the interval of that median.
        lower_bound: it ended at the highest rate that the estimator tries; the truth may be higher.
        instants: the searches.
        capacity_hint_bps: the rate at which back-to-back packets came; None where the estimator does not look.
        bytes: of IP packets, that were sent.
        duration_ns: of all searches together.
        discarded, stalled: trains that were not what was asked for; of them, those in which the sender stood still.
        foreign_packets: packets of others that came to the listener meanwhile.
    """

    available_bps: float
    low_bps: float
    high_bps: float
    confidence: float
    lower_bound: bool
    instants: tuple[Instant, ...]
    capacity_hint_bps: float | None
    bytes: int
    duration_ns: int
    discarded: int
    stalled: int
    foreign_packets: int

    @classmethod
    def decode(cls, value: Mapping[str, Any]) -> Self:
        """Read an ``outcome``.

        Raises:
            KeyError, TypeError, ValueError: it is none.
        """
        estimate, hint = value["estimate"], value["capacity_hint_bps"]
        return cls(
            available_bps=float(estimate["available_bps"]),
            low_bps=float(estimate["low_bps"]),
            high_bps=float(estimate["high_bps"]),
            confidence=float(estimate["confidence"]),
            lower_bound=bool(estimate["lower_bound"]),
            instants=tuple(Instant.decode(instant) for instant in value["instants"]),
            capacity_hint_bps=None if hint is None else float(hint),
            bytes=int(value["bytes"]),
            duration_ns=int(value["duration_ns"]),
            discarded=int(value["discarded"]),
            stalled=int(value["stalled"]),
            foreign_packets=int(value["foreign_packets"]),
        )

    @property
    def streams(self) -> int:
        """Trains that its searches have sent."""
        return sum(instant.streams for instant in self.instants)


@dataclasses.dataclass(frozen=True)
class Refused:
    """The sender could not pace what the path carries; rates in bit/s of IP packets.

    Attributes:
        max_paced_bps: the highest rate that it was seen to pace; 0 if none was.
        carried_bps: the highest of those that the path carried; None where nobody looked.
        message: why, in words.
    """

    max_paced_bps: float
    carried_bps: float | None
    message: str

    @classmethod
    def decode(cls, value: Mapping[str, Any]) -> Self:
        """Read a ``refusal``, or the program's last word of that kind.

        Raises:
            KeyError, TypeError, ValueError: it is none.
        """
        carried = value["carried_bps"]
        return cls(float(value["max_paced_bps"]), None if carried is None else float(carried), str(value["message"]))


@dataclasses.dataclass(frozen=True)
class Preloaded:
    """What the library did that was preloaded over the program.

    Attributes:
        served, passed: calls that it answered, and that it left to the C library.
        reasons: why it answered none.
    """

    served: int
    passed: int
    reasons: tuple[str, ...]

    def result(self) -> dict[str, Any]:
        """As the ledger keeps it."""
        return {"served": self.served, "passed": self.passed, "reasons": list(self.reasons)}


@dataclasses.dataclass(frozen=True)
class Answer:
    """See the module.

    Attributes:
        found, refused: one of them, or none where there was no estimate.
        silence: why there was none, in words; None where there was one, or a refusal.
        method: by which bursts were handed over.
        stamp: who stamped the packets at the receiver: ``hardware``, ``kernel`` or ``program``.
        max_paced_bps: the highest rate that the sender paced beforehand; None where that is not known.
        sent_bytes: of IP packets, in the whole session.
        gaps, lateness: of all bursts: gaps as thousandths of what was planned, and how late each left, in ns.
        hptime_fallback_reason: why hptime answers from the system's clock; None where it does not.
        usage: of the agent's probe; None of a program.
        clocks: of the guest.
        finished_ns: when the answer had come, by the controller's CLOCK_MONOTONIC.
        preloaded: by a library; None without one.
    """

    found: Found | None
    refused: Refused | None
    silence: str | None
    method: str | None
    stamp: str | None
    max_paced_bps: float | None
    sent_bytes: int | None
    gaps: Histogram | None
    lateness: Histogram | None
    hptime_fallback_reason: str | None
    usage: dict[str, Any] | None
    clocks: tuple[Elapsed, ...]
    finished_ns: int
    preloaded: Preloaded | None = None

    @classmethod
    def of_silence(cls, words: str) -> Self:
        """There was no estimate, for this reason."""
        nothing = dict.fromkeys(
            (
                *("found", "refused", "method", "stamp", "max_paced_bps", "sent_bytes"),
                *("gaps", "lateness", "hptime_fallback_reason", "usage"),
            )
        )
        return cls(**nothing, silence=words, clocks=(), finished_ns=time.monotonic_ns())

    @property
    def steal_ns(self) -> int | None:
        """As the guest sees it."""
        steal = (self.usage or {}).get("steal_ns")
        return None if steal is None else int(steal)


def histogram(value: Mapping[str, Any] | None) -> Histogram | None:
    """Bins and their counts, as lists or as the bytes of a ``distribution``; None where nothing was counted.

    Raises:
        KeyError, TypeError, ValueError: it is none.
    """
    if value is None or int(value["n"]) == 0:
        return None
    values, counts = _numbers(value["values"], "<i8"), _numbers(value["counts"], "<u8")
    if len(values) != len(counts) or np.any(np.diff(values) <= 0) or int(counts.sum()) != int(value["n"]):
        raise ValueError("bins do not ascend, or do not add up to n")
    return Histogram(
        unit=str(value["unit"]),
        values=values,
        counts=counts.astype(np.uint64),
        minimum=int(value["min"]),
        maximum=int(value["max"]),
        mean=float(value["mean"]),
    )


def _numbers(value: bytes | Sequence[int], kind: str) -> Any:
    if isinstance(value, bytes):
        return np.frombuffer(value, dtype=kind).astype(np.int64)
    return np.array(value, dtype=np.int64)
