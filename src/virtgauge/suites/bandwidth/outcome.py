"""What an estimate brought, and from everything that was seen of its trial to result, flags and histograms.

A flag says what makes an estimate invalid, or has to be said with it.  That it is far from the truth is a result, no
flag.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterator, Mapping
from typing import Any, Self

import numpy as np

from virtgauge.analysis.distribution import Distribution
from virtgauge.analysis.packets import available_bps, error_ratio
from virtgauge.ledger.records import Flag, Histogram
from virtgauge.specs.bandwidth_formatting import PRECISE
from virtgauge.suites.answers import CountedHistogram, decoded
from virtgauge.suites.bandwidth.settings import Timing
from virtgauge.suites.bandwidth.testbed import Conditions, Counted, LinkRecord
from virtgauge.suites.base import Elapsed

MEGA = 1e6
_RATES = {"mbps": "available", "low": "low", "high": "high"}
_SHORT_SHARE, _SHORT_BPS = 0.03, 1e6
_LEAST_MISSING = 0.005  # Of all cross traffic: less is one stall of its sender, or a frame at an end of the span
_HELD_UP = 0.25  # Of the cross traffic beside probes; where 2/3 were missing, 280 Mbit/s were estimated for 104
_CHANCE = 4.0  # Standard deviations that the number of exponential gaps in a span may be off
_CHANGED = 0.02
_STALLED = 0.1
_NO_TRUTH = "the path is as it is: nobody has declared its capacity, or counts what others send on it"


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
        """The outcome as the ledger keeps it; rates in Mbit/s."""
        told = dataclasses.asdict(self)
        return {name: told.pop(f"{key}_bps") / MEGA for name, key in _RATES.items()} | told


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
    """What an estimate brought, whether the agent's probe told it or the program under the shim."""

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
        """Read what the probe's result and the program's last word tell alike: an ``outcome``, or a refusal instead."""
        outcome = None if refusal is not None else value["outcome"]
        told = {name: value[name] for name in ("method", "stamp", "gaps", "lateness")}
        told |= {"max_paced_bps": value["limits"]["max_paced_bps"], "sent_bytes": value["tally"]["bytes"]}
        told |= {"found": None if outcome is None else {**outcome, **outcome["estimate"]}, "refused": refusal}
        return decoded(cls, {"finished_ns": finished_ns, **told, **known})

    @property
    def steal_ns(self) -> int | None:
        steal = (self.usage or {}).get("steal_ns")
        return None if steal is None else int(steal)


@dataclasses.dataclass(frozen=True)
class Trial:
    """What was seen of a trial."""

    params: Mapping[str, Any]
    conditions: Conditions  # of the path, as it was told to be
    packet_bytes: int
    receiver: str  # ``host``, ``guest`` or ``peer``
    answer: Answer
    counted: Counted | None  # of the others, over the time of the estimate; None where nobody can count
    # before_bps, after_bps: what the path let pass of a flood, as its shaper counts; None where that was not seen
    before_bps: float | None
    after_bps: float | None
    link: LinkRecord  # what made the path
    foreign_packets: int | None  # packets that the listener has ignored; None where it did not tell

    @property
    def truth_bps(self) -> float | None:
        """What was available, in bit/s of IP packets; None of a path that is as it is."""
        if self.conditions.capacity_bps is None or self.counted is None:
            return None
        return available_bps(self.conditions.capacity_bps, self.counted.cross_bps, self.packet_bytes)

    @property
    def hptime_fallback_reason(self) -> str | None:
        """Why hptime did not serve, of a timing that has any of it."""
        timing = Timing.named(self.params["timing"])
        return self.answer.hptime_fallback_reason if PRECISE in (timing.clock, timing.sleep) else None

    def result(self) -> dict[str, Any]:
        """The scalars for the ledger; rates in Mbit/s."""
        timing, answer, refused = Timing.named(self.params["timing"]), self.answer, self.answer.refused
        counted = self.counted
        return {
            "estimator": self.params["estimator"],
            "timing": self.params["timing"],
            "through": self.params["through"],
            "clock": timing.clock,
            "sleep": timing.sleep,
            **self._estimate(),
            "truth_mbps": _mega(self.truth_bps),
            "no_truth": _NO_TRUTH if self.truth_bps is None else None,
            "capacity": {
                "declared_mbps": _mega(self.conditions.capacity_bps),
                "measured_mbps": _mega(self.before_bps),
                "measured_after_mbps": _mega(self.after_bps),
            },
            "cross": {
                "asked_mbps": self.conditions.cross_bps / MEGA,
                "counted_mbps": counted and counted.cross_bps / MEGA,
                "frames": counted and counted.cross_frames,
                "dropped": counted and counted.dropped,
            },
            "pacing": {
                "method": answer.method,
                "max_paced_mbps": _mega(answer.max_paced_bps if refused is None else refused.max_paced_bps),
                "refused": refused is not None,
                "carried_mbps": refused and _mega(refused.carried_bps),
                "message": refused and refused.message,
            },
            "stamp": answer.stamp,
            "link": self.link.result(self.conditions),
            "receiver": self.receiver,
            "packet_bytes": self.packet_bytes,
            "foreign_packets": self.foreign_packets,
            "layer": "ip",
            "hptime_fallback_reason": self.hptime_fallback_reason,
            "shim": answer.preloaded,
            "usage": answer.usage,
        }

    def _estimate(self) -> dict[str, Any]:
        """Of a trial without an estimate, None stands for each figure of one."""
        found, truth_bps = self.answer.found, self.truth_bps
        instants = () if found is None else found.instants
        rates = found and Distribution.of(np.array([round(instant.available_bps) for instant in instants]))
        return {
            "instants": [instant.result() for instant in instants],
            "median_mbps": found and found.available_bps / MEGA,
            "low_mbps": found and found.low_bps / MEGA,
            "high_mbps": found and found.high_bps / MEGA,
            "confidence": found and found.confidence,
            "half_iqr_mbps": rates and rates.half_iqr / MEGA,
            "mad_mbps": rates and rates.mad / MEGA,
            "lower_bound": found is not None and found.lower_bound,
            "error_ratio": error_ratio(found.available_bps, truth_bps) if found and truth_bps is not None else None,
            "covered": found.low_bps <= truth_bps <= found.high_bps if found and truth_bps is not None else None,
            "capacity_hint_mbps": found and _mega(found.capacity_hint_bps),
            "bytes_sent": self.answer.sent_bytes if found is None else found.bytes,
            "duration_ns": found and found.duration_ns,
            "streams": found and found.streams,
            "discarded": found and found.discarded,
            "stalled": found and found.stalled,
        }

    def flags(self) -> Iterator[Flag]:
        answer, found = self.answer, self.answer.found
        yield from self._fatal_flags()
        if answer.refused is not None:
            yield Flag("cannot-pace", answer.refused.message, fatal=False)
        if answer.silence is not None:  # an outcome: those that are made until there is an answer would be chosen by it
            yield Flag("no-estimate", answer.silence, fatal=False)
        if answer.stamp == "program":
            yield Flag("user-timestamps", "the receiver's program stamped packets, and not its kernel", fatal=False)
        if found is not None and found.streams and found.stalled > _STALLED * found.streams:
            text = f"the sender stalled in {found.stalled} of {found.streams} trains, which were sent again"
            yield Flag("sender-stalls", text, fatal=False)
        if found is not None and found.lower_bound:
            highest = f"{found.available_bps / 1e6:.0f} Mbit/s is the highest that the estimator tries"
            yield Flag("ceiling", f"{highest}: at least this is available", fatal=False)
        if (reason := self.hptime_fallback_reason) is not None:
            yield Flag("hptime-refused", f"timed by the system's clock: {reason}", fatal=False)

    def _fatal_flags(self) -> Iterator[Flag]:
        if self.counted is not None:
            asked, counted = self.conditions.cross_bps, self.counted.cross_bps
            by_chance = self.counted.cross_frames if self.conditions.traffic == "poisson" else None
            if abs(counted - asked) > allowance_bps(asked, by_chance):
                text = f"of {asked / 1e6:g} Mbit/s cross traffic {counted / 1e6:.1f} were counted"
                yield Flag("cross-traffic-short", text)
            elif (missing := self._missing_beside_probes(by_chance)) > _HELD_UP:
                why = "the processor that sends it was at work for them, and they found the path free"
                text = f"as much as {min(missing, 1):.0%} of what was due while probes passed were not counted: {why}"
                yield Flag("cross-traffic-held-up", text)
        before, after, declared = self.before_bps, self.after_bps, self.conditions.capacity_bps
        if before is not None and after is not None and abs(after / before - 1) > _CHANGED:
            text = f"the path let pass {before / 1e6:.1f} Mbit/s before the estimate and {after / 1e6:.1f} after it"
            yield Flag("path-changed", text)
        elif before is not None and declared is not None and abs(before / declared - 1) > _CHANGED:
            text = f"flooded, the path let pass {before / 1e6:.1f} of its {declared / 1e6:g} Mbit/s"
            yield Flag("path-short", f"{text}; a deeper bucket (burst_us) makes up for timers that are late")
        if overrun := self.link.overrun:
            text = f"the link emulator lost {overrun} frames, which came faster than it takes them"
            # Then the path was less than it says; of a sender that refused before, that says nothing.
            yield Flag("link-overrun", text, fatal=self.answer.refused is None)

    def _missing_beside_probes(self, frames: int | None) -> float:
        """What is missing of the cross traffic as a share of what was due while probes passed; 0 where that is unknown.

        Trains are a small part of the time, so that an absence just then is little of all and everything to them.
        ``frames`` as for :func:`allowance_bps`.
        """
        found, counted, asked = self.answer.found, self.counted, self.conditions.cross_bps
        if found is None or counted is None or not asked or not found.bytes or not found.available_bps:
            return 0.0
        missing = 1 - counted.cross_bps / asked - _chance(frames)
        if missing < _LEAST_MISSING:
            return 0.0
        missing_s = missing * counted.span_ns / 1e9
        return missing_s * found.available_bps / (8 * found.bytes)  # no train is slower than the estimate by much

    def histograms(self) -> dict[str, Histogram]:
        """How sending kept its time: ``gap`` in thousandths of what was planned, ``lateness`` in ns."""
        known = {"gap": self.answer.gaps, "lateness": self.answer.lateness}
        return {name: histogram for name, histogram in known.items() if histogram is not None}


def allowance_bps(asked_bps: float, frames: int | None) -> float:
    """How far the counted cross traffic may be from what was asked for.

    ``frames`` is their number where their gaps are exponential; else None.
    """
    return max(_SHORT_BPS, asked_bps * (_SHORT_SHARE + _chance(frames)))


def _chance(frames: int | None) -> float:
    """By what share their number may be off by chance: it varies by its root."""
    return _CHANCE / math.sqrt(frames) if frames else 0.0


def _mega(bps: float | None) -> float | None:
    return None if bps is None else bps / MEGA
