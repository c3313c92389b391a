"""From everything that was seen of a trial to its result, its flags and its histograms."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from virtgauge.analysis.distribution import Distribution
from virtgauge.ledger.records import Flag, Histogram
from virtgauge.suites.bandwidth.answer import MEGA, Answer
from virtgauge.suites.bandwidth.flags import TrialConditions, flags_of
from virtgauge.suites.bandwidth.path import Conditions, Counted, LinkRecord
from virtgauge.suites.bandwidth.timing import HPTIME, Timing
from virtgauge.suites.bandwidth.truth import available_bps, covers, error_ratio


@dataclasses.dataclass(frozen=True)
class Trial:
    """What was seen of a trial.

    Attributes:
        params: of the cell.
        conditions: of the path, as it was told to be.
        packet_bytes: of the probes.
        receiver: ``host`` or ``guest``.
        answer: of the estimator.
        counted: of the others, over the time of the estimate.
        before_bps, after_bps: what the path let pass of a flood, as its shaper counts; None where that was not seen.
        link: what made the path.
        foreign_packets: packets that the listener has ignored; None where it did not tell.
    """

    params: Mapping[str, Any]
    conditions: Conditions
    packet_bytes: int
    receiver: str
    answer: Answer
    counted: Counted
    before_bps: float | None
    after_bps: float | None
    link: LinkRecord
    foreign_packets: int | None

    @property
    def truth_bps(self) -> float:
        """What was available, in bit/s of IP packets."""
        return available_bps(self.conditions.capacity_bps, self.counted.cross_bps, self.packet_bytes)

    def result(self) -> dict[str, Any]:
        """The scalars for the ledger; rates in Mbit/s."""
        timing, answer = Timing.named(self.params["timing"]), self.answer
        return {
            "estimator": self.params["estimator"],
            "timing": self.params["timing"],
            "through": self.params["through"],
            "clock": timing.clock,
            "sleep": timing.sleep,
            **self._estimate(),
            "truth_mbps": self.truth_bps / MEGA,
            "capacity": {
                "declared_mbps": self.conditions.capacity_bps / MEGA,
                "measured_mbps": _mega(self.before_bps),
                "measured_after_mbps": _mega(self.after_bps),
            },
            "cross": {
                "asked_mbps": self.conditions.cross_bps / MEGA,
                "counted_mbps": self.counted.cross_bps / MEGA,
                "frames": self.counted.cross_frames,
                "dropped": self.counted.dropped,
            },
            "pacing": self._pacing(),
            "stamp": answer.stamp,
            "link": self.link.result(self.conditions),
            "receiver": self.receiver,
            "packet_bytes": self.packet_bytes,
            "foreign_packets": self.foreign_packets,
            "layer": "ip",
            "hptime_fallback_reason": self._hptime_fallback_reason(),
            "shim": None if answer.preloaded is None else answer.preloaded.result(),
            "usage": answer.usage,
        }

    def _estimate(self) -> dict[str, Any]:
        found = self.answer.found
        if found is None:
            missing = (
                *("median_mbps", "low_mbps", "high_mbps", "confidence", "half_iqr_mbps", "mad_mbps", "error_ratio"),
                *("covered", "capacity_hint_mbps", "duration_ns", "streams", "discarded", "stalled"),
            )
            known = {"instants": [], "lower_bound": False, "bytes_sent": self.answer.sent_bytes}
            return known | dict.fromkeys(missing)
        rates = Distribution.of(np.array([round(instant.available_bps) for instant in found.instants]))
        return {
            "instants": [instant.result() for instant in found.instants],
            "median_mbps": found.available_bps / MEGA,
            "low_mbps": found.low_bps / MEGA,
            "high_mbps": found.high_bps / MEGA,
            "confidence": found.confidence,
            "half_iqr_mbps": rates.half_iqr / MEGA,
            "mad_mbps": rates.mad / MEGA,
            "lower_bound": found.lower_bound,
            "error_ratio": error_ratio(found.available_bps, self.truth_bps),
            "covered": covers(found.low_bps, found.high_bps, self.truth_bps),
            "capacity_hint_mbps": _mega(found.capacity_hint_bps),
            "bytes_sent": found.bytes,
            "duration_ns": found.duration_ns,
            "streams": found.streams,
            "discarded": found.discarded,
            "stalled": found.stalled,
        }

    def _pacing(self) -> dict[str, Any]:
        answer, refused = self.answer, self.answer.refused
        return {
            "method": answer.method,
            "max_paced_mbps": _mega(answer.max_paced_bps if refused is None else refused.max_paced_bps),
            "refused": refused is not None,
            "carried_mbps": None if refused is None else _mega(refused.carried_bps),
            "message": None if refused is None else refused.message,
        }

    def flags(self) -> tuple[Flag, ...]:
        """What makes the trial invalid, or is to be said with it."""
        answer, found = self.answer, self.answer.found
        observed = TrialConditions(
            cross_asked_bps=self.conditions.cross_bps,
            cross_counted_bps=self.counted.cross_bps,
            cross_frames=self.counted.cross_frames,
            poisson=self.conditions.traffic == "poisson",
            declared_bps=self.conditions.capacity_bps,
            before_bps=self.before_bps,
            after_bps=self.after_bps,
            overrun=self.link.overrun,
            refused=None if answer.refused is None else answer.refused.message,
            silence=answer.silence,
            stamp=answer.stamp,
            streams=0 if found is None else found.streams,
            stalled=0 if found is None else found.stalled,
            at_ceiling=found.available_bps if found is not None and found.lower_bound else None,
            hptime_fallback_reason=self._hptime_fallback_reason(),
        )
        return tuple(flags_of(observed))

    def histograms(self) -> dict[str, Histogram]:
        """How sending kept its time: ``gap`` in thousandths of what was planned, ``lateness`` in ns."""
        known = {"gap": self.answer.gaps, "lateness": self.answer.lateness}
        return {name: histogram for name, histogram in known.items() if histogram is not None}

    def _hptime_fallback_reason(self) -> str | None:
        """Why hptime did not serve, of a timing that has any of it."""
        timing = Timing.named(self.params["timing"])
        return self.answer.hptime_fallback_reason if HPTIME in (timing.clock, timing.sleep) else None


def _mega(bps: float | None) -> float | None:
    return None if bps is None else bps / MEGA
