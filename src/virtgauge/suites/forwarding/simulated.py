"""The simulated device as a laboratory, and without an agent in between for the searches themselves."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from virtgauge.analysis.forwarding import DropCounter, equal_shares
from virtgauge.platforms.base import LaunchError
from virtgauge.platforms.simulated.forwarding import ForwardingDevice
from virtgauge.platforms.simulated.trials import DROPS, LOOP
from virtgauge.suites.forwarding.laboratory import ForwardingLab
from virtgauge.suites.forwarding.packet_trial import Path, Tester, trial_of
from virtgauge.suites.forwarding.settings import ForwardingSettings
from virtgauge.suites.forwarding.trial import PACED, FlowResult, Sending, TrialResult
from virtgauge.suites.testbed import Stage

_GUEST = "guest "


class SimulatedLab(ForwardingLab):
    """One simulated agent that is tester, switches and guests in one; it speaks the real protocol."""

    def __init__(self, settings: ForwardingSettings, stage: Stage) -> None:
        super().__init__(stage, flows=settings.guests)
        paths = [_path(index) for index in range(settings.guests)]
        self._tester = Tester(self.guest.channel, settings.port, "eth0", "eth1", paths)
        self._dropped: dict[str, int] = {}

    @classmethod
    async def create(cls, settings: ForwardingSettings, stage: Stage) -> SimulatedLab:
        """Launch it."""
        await stage.launch()
        return cls(settings, stage)

    async def check(self) -> None:
        """Offer a few frames to each guest: all of them come back, and none twice."""
        trial = await self.measure(equal_shares(self.flows), 64, 100.0 * self.flows, 0.1)
        for index, flow in enumerate(trial.flows):
            if flow.sent == flow.lost:
                raise LaunchError("laboratory check", f"no frame comes back through guest {index}")

    async def measure(
        self,
        shares: Sequence[float],
        frame_bytes: int,
        rate_pps: float,
        duration_s: float,
        sending: Sending = PACED,
    ) -> TrialResult:
        value = (await self._tester.ask(shares, frame_bytes, rate_pps, duration_s, sending)).value
        # The agent is switch and guests too, and so tells their drops, which a real laboratory reads at those places.
        for place, frames in value[DROPS].items():
            self._dropped[place] = self._dropped.get(place, 0) + frames
        return trial_of(value, rate_pps, duration_s)

    async def measure_loop(self, frame_bytes: int, rate_pps: float, duration_s: float) -> TrialResult:
        loop = dataclasses.replace(self._tester, transmit=LOOP, receive=LOOP, paths=self._tester.paths[:1])
        return await loop.measure([1.0], frame_bytes, rate_pps, duration_s)

    async def drop_counters(self) -> list[DropCounter]:
        places = ["shared path", *(f"{_GUEST}{index}" for index in range(self.flows))]
        return [
            DropCounter(place, self._dropped.get(place, 0), int(place.removeprefix(_GUEST)) if index else None)
            for index, place in enumerate(places)
        ]


class SimulatedLoad:
    """One load vector and frame size on a simulated device.  Latencies are not kept."""

    def __init__(self, device: ForwardingDevice, shares: Sequence[float], frame_bytes: int) -> None:
        self._device, self._shares, self._frame_bytes = device, shares, frame_bytes

    async def burst(self, frames: int, rate_pps: float) -> TrialResult:
        """Offer so many frames at once; takes no time."""
        return await self.measure(rate_pps, frames / rate_pps)

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


def _path(index: int) -> Path:
    return Path("52:54:00:00:00:01", f"52:54:00:01:00:{index:02x}", "10.0.0.1", f"10.1.{index}.1")
