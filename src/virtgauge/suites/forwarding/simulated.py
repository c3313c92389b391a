"""The simulated device as something to search on, without an agent in between: for searches themselves."""

from __future__ import annotations

from collections.abc import Sequence

from virtgauge.platforms.simulated.forwarding import ForwardingDevice
from virtgauge.suites.forwarding.trial import FlowResult, TrialResult


class SimulatedLoad:
    """One load vector and frame size on a simulated device.  Latencies are not kept."""

    def __init__(self, device: ForwardingDevice, shares: Sequence[float], frame_bytes: int) -> None:
        self._device, self._shares, self._frame_bytes = device, shares, frame_bytes

    async def measure(self, rate_pps: float, duration_s: float) -> TrialResult:
        """Offer the load; takes no time."""
        trial = self._device.trial(rate_pps, self._shares, self._frame_bytes, duration_s)
        return TrialResult(
            rate_pps=rate_pps,
            duration_s=duration_s,
            elapsed_s=trial.elapsed_ns / 1e9,
            flows=tuple(FlowResult(f.sent, f.lost, f.duplicates, f.reordered) for f in trial.flows),
            stretched=trial.stretched,
            late=trial.late,
            port="simulated",
            drops=trial.drops,
        )
