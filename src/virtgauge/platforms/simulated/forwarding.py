"""A simulated forwarding device with a known truth: N virtual routers behind one shared path, and its tester.

Frames pass a path that all guests share (bridges, host) and then their own guest.  Each has a capacity, in time per
frame and per byte, and a queue in front of it; the shared path can stall.  What is lost is counted where it is
lost.  A trial takes no time: losses follow from the fluid limit of the queues; only stalls and rare events are drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from virtgauge.plan import Section
from virtgauge.platforms.simulated.answers import distribution_message
from virtgauge.platforms.simulated.truth import NotNegative, Positive, Share, Sigma, lognormal

_WIRE_OVERHEAD_BYTES = 20
_LATENCIES_DRAWN = 400  # Per flow and trial; each stands for as many frames as it takes to make up the flow
_STRETCHED = 1.01  # A trial is stretched when sending took longer than this times what was asked
LOOP = "loop"  # An interface of this name leads back to the tester, past the device
DROPS = "simulated_drops"  # A field that no real agent has: frames by the place of the device that dropped them


class ForwardingTruth(Section):
    """A guest as a forwarding device.

    Losses begin at ``knee`` times the capacity of the shared path and grow by ``slope`` with the relative excess, until
    the capacity bounds what comes out.
    """

    frame_ns: Positive = 2000.0
    """Time of the shared path for a frame, without its bytes."""
    byte_ns: NotNegative = 0.0
    """Time of the shared path for each byte of a frame, check sequence included."""
    guest_frame_ns: Positive | None = None
    """A guest's own time for a frame. By default guests have no limit of their own, and J cannot matter."""
    guest_byte_ns: NotNegative = 0.0
    """A guest's own time for each byte."""
    medium_mbps: Positive | None = None
    """Speed of an Ethernet in front of the device."""
    knee: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Utilization of the shared path at which losses begin."""
    slope: NotNegative = 0.0
    """How fast losses grow with the relative excess over the knee."""
    queue_frames: Annotated[int, Field(ge=0)] = 1024
    """Queue of the shared path, and of each guest."""
    stalls_per_s: NotNegative = 0.0
    """Rate of stalls in which nothing is forwarded."""
    stall_ms: Positive = 5.0
    """Mean length of a stall; lengths are exponential."""
    testbed_sigma: Sigma = 0.0
    """Every testbed draws a factor on all capacities, lognormal with median 1 and this sigma."""
    latency_us: Positive = 50.0
    """Median latency of a frame of no bytes on an idle device."""
    latency_byte_ns: NotNegative = 0.0
    """Latency for each byte of a frame."""
    latency_sigma: Annotated[float, Field(ge=0, le=5)] = 0.1
    """Standard deviation of the logarithm of latencies."""
    congestion: NotNegative = 0.0
    """Latency grows with the utilization u by congestion · u / (1 − u)."""
    hidden_loss: Share = 0.0
    """Probability that a frame is lost where no counter sees it."""
    duplicates: Share = 0.0
    """Probability that a frame arrives twice."""
    reordered: Share = 0.0
    """Probability that a frame arrives after later ones."""
    stretches: bool = False
    """The device runs in the tester's context: it loses nothing and slows the tester down."""
    tester_mpps: Positive = 5.0
    """The tester's own highest rate."""
    late: Share = 0.0
    """Share of the frames that the tester sends late."""

    def shared_pps(self, frame_bytes: int) -> float:
        """What the shared path can forward."""
        capacity = 1e9 / (self.frame_ns + self.byte_ns * frame_bytes)
        if self.medium_mbps is None:
            return capacity
        return min(capacity, self.medium_mbps * 1e6 / (8 * (frame_bytes + _WIRE_OVERHEAD_BYTES)))

    def guest_pps(self, frame_bytes: int) -> float | None:
        """What one guest can forward; None without a limit of its own."""
        if self.guest_frame_ns is None:
            return None
        return 1e9 / (self.guest_frame_ns + self.guest_byte_ns * frame_bytes)

    def throughput_pps(self, shares: Sequence[float], frame_bytes: int, loss_ratio: float = 0.0) -> float:
        """The highest total load at which no guest loses more than this ratio, by this load vector; queues apart."""
        shared = self.shared_pps(frame_bytes)
        limits = [shared / (1 - loss_ratio)]
        if self.slope > 0:
            limits.append(self.knee * shared * (1 + loss_ratio / self.slope))
        if (guest := self.guest_pps(frame_bytes)) is not None:
            limits.append(guest / (max(shares) * (1 - loss_ratio)))
        return min(limits)

    def latency_ns(self, rate_pps: float, shares: Sequence[float], frame_bytes: int) -> float:
        """Median latency of the busiest path at this load."""
        capacity = 1e9 / (self.frame_ns + self.byte_ns * frame_bytes)
        use = rate_pps / capacity
        if (guest := self.guest_pps(frame_bytes)) is not None:
            use = max(use, max(shares) * rate_pps / guest)
        use = min(use, 0.999)
        base = self.latency_us * 1e3 + self.latency_byte_ns * frame_bytes
        return base * (1 + self.congestion * use / (1 - use))


class ForwardingDevice:
    """A device of that truth, with its tester."""

    def __init__(self, truth: ForwardingTruth, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        factor = lognormal(truth.testbed_sigma, self._random)
        slower = {"frame_ns": truth.frame_ns / factor, "byte_ns": truth.byte_ns / factor}
        if truth.guest_frame_ns is not None:
            slower |= {"guest_frame_ns": truth.guest_frame_ns / factor, "guest_byte_ns": truth.guest_byte_ns / factor}
        self.truth = truth.model_copy(update=slower)

    def packet_trial(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """What the probe ``packet_trial`` answers: the tester, the switches and the guests in one."""
        weights = [float(flow["weight"]) for flow in params["flows"]]
        total = sum(weights)
        rate_pps, burst = float(params["rate_pps"]), int(params["burst"])
        trial = self.trial(
            rate_pps,
            [weight / total for weight in weights],
            int(params["frame_bytes"]),
            burst / rate_pps if burst else int(params["duration_ns"]) / 1e9,
            loop=params["transmit"] == LOOP,
        )
        for flow in trial["flows"]:
            values, received = flow.pop("latencies_ps"), flow["received"]
            flow["latency"] = distribution_message(values, total=received) if received else None
        return trial

    def trial(
        self, rate_pps: float, shares: Sequence[float], frame_bytes: int, duration_s: float, *, loop: bool = False
    ) -> dict[str, Any]:
        """Offer a load for so long; with ``loop``, to a wire instead of the device.

        The trial is as docs/protocol.md has it, but that latencies are as drawn, and the drops of switches and guests
        are beside it.
        """
        truth = self.truth
        sent = _apportion(round(rate_pps * duration_s), shares)
        total = int(sent.sum())
        limit = truth.tester_mpps * 1e6
        if truth.stretches and not loop:
            limit = min(limit, truth.throughput_pps(shares, frame_bytes))
        rate = min(rate_pps, limit)
        elapsed_s = total / rate
        lost, drops = (np.zeros_like(sent), {}) if loop else self._losses(rate, sent, frame_bytes, elapsed_s)
        median_ns = 1000.0 if loop else truth.latency_ns(rate, shares, frame_bytes)
        flows = [self._flow(int(s), int(n), median_ns, loop=loop) for s, n in zip(sent, lost, strict=True)]
        received = total - int(lost.sum())
        return {
            "port": "simulated",
            "port_reasons": [],
            "frames_planned": total,
            "sent": total,
            "received": received,
            "lost": total - received,
            "stretched": elapsed_s > _STRETCHED * duration_s,
            "late": int(self._random.binomial(total, truth.late)),
            "elapsed_ns": round(elapsed_s * 1e9),
            **dict.fromkeys(("refused", "receiver_ring_full", "receiver_dropped"), 0),
            "transmit_counters": {"sent": total, "send_dropped": 0},
            "receive_counters": {"received": received, "receive_dropped": 0},
            "flows": flows,
            DROPS: drops,
        }

    def _flow(self, sent: int, lost: int, median_ns: float, *, loop: bool) -> dict[str, Any]:
        """What became of one flow's frames; each latency stands for several."""
        received = sent - lost
        spread = self.truth.latency_sigma * self._random.standard_normal(min(received, _LATENCIES_DRAWN))
        rare = (0.0, 0.0) if loop else (self.truth.duplicates, self.truth.reordered)
        duplicates, reordered = (int(self._random.binomial(received, share)) if share else 0 for share in rare)
        return {
            "sent": sent,
            "received": received,
            "lost": lost,
            "duplicates": duplicates,
            "reordered": reordered,
            "latencies_ps": np.rint(median_ns * 1000 * np.exp(spread)).astype(np.int64),
        }

    def _losses(
        self, rate: float, sent: npt.NDArray[np.int64], frame_bytes: int, elapsed_s: float
    ) -> tuple[npt.NDArray[np.int64], dict[str, int]]:
        """Lost frames by flow, and those of them that are counted, by place."""
        truth, lost, drops = self.truth, np.zeros_like(sent), {}
        if (shared := self._shared_losses(rate, sent, frame_bytes, elapsed_s)).any():
            drops["shared path"] = int(shared.sum())
            lost = lost + shared
        if (capacity := truth.guest_pps(frame_bytes)) is not None and elapsed_s > 0:
            arrived = sent - lost
            excess = np.maximum(arrived - capacity * elapsed_s - truth.queue_frames, 0).astype(np.int64)
            drops |= {f"guest {index}": int(n) for index, n in enumerate(excess) if n}
            lost = lost + excess
        if truth.hidden_loss:
            lost = lost + self._random.binomial(sent - lost, truth.hidden_loss)
        return lost, drops

    def _shared_losses(
        self, rate: float, sent: npt.NDArray[np.int64], frame_bytes: int, elapsed_s: float
    ) -> npt.NDArray[np.int64]:
        truth, total = self.truth, int(sent.sum())
        capacity = truth.shared_pps(frame_bytes)
        overload = max(total * (1 - capacity / rate) - truth.queue_frames, 0.0) if rate > capacity else 0.0
        lost = max(overload, self._stall_losses(rate, capacity, elapsed_s))
        by_flow = _apportion(min(round(lost), total), sent / total) if lost >= 0.5 else np.zeros_like(sent)
        excess = rate / (truth.knee * capacity) - 1
        if truth.slope > 0 and excess > 0:
            by_flow = np.maximum(by_flow, self._random.binomial(sent, min(truth.slope * excess, 1.0)))
        return np.minimum(by_flow, sent)

    def _stall_losses(self, rate: float, capacity: float, elapsed_s: float) -> float:
        """Frames that come while the path stands still and its queue is full."""
        truth = self.truth
        count = int(self._random.poisson(truth.stalls_per_s * elapsed_s))
        moments = np.sort(self._random.uniform(0, elapsed_s, count))
        lengths = self._random.exponential(truth.stall_ms / 1e3, count)
        queued, lost, last = 0.0, 0.0, 0.0
        for moment, length in zip(moments, lengths, strict=True):
            queued = max(queued - (capacity - rate) * (moment - last), 0.0) + rate * length
            lost += max(queued - truth.queue_frames, 0.0)
            queued, last = min(queued, float(truth.queue_frames)), moment
        return lost


def _apportion(total: int, shares: Sequence[float] | npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """A whole number divided by shares, without losing one: the largest remainders get what is left."""
    exact = total * np.asarray(shares, dtype=np.float64)
    whole = np.floor(exact).astype(np.int64)
    whole[np.argsort(whole - exact, kind="stable")[: total - int(whole.sum())]] += 1
    return whole
