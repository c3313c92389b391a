"""A device without an agent in between, as the searches ask it: for tests of them, and for their benchmark."""

from __future__ import annotations

from collections.abc import Sequence

from virtgauge.platforms.simulated.forwarding import DROPS, ForwardingDevice
from virtgauge.suites.forwarding.trial import FlowResult, Offer, TrialResult


def simulated_offer(device: ForwardingDevice, shares: Sequence[float], frame_bytes: int) -> Offer:
    """One load vector and frame size of a simulated device.  Latencies are not kept."""

    async def offer(rate_pps: float, duration_s: float) -> TrialResult:
        trial = device.trial(rate_pps, shares, frame_bytes, duration_s)
        return TrialResult(
            rate_pps=rate_pps,
            duration_s=duration_s,
            elapsed_s=trial["elapsed_ns"] / 1e9,
            flows=tuple(FlowResult(f["sent"], f["lost"], f["duplicates"], f["reordered"]) for f in trial["flows"]),
            stretched=trial["stretched"],
            late=trial["late"],
            drops=trial[DROPS],
        )

    return offer
