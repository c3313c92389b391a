"""The forwarding laboratory as the suite sees it: something that offers loads to N guests and reads counters."""

from __future__ import annotations

import abc
from collections.abc import Sequence

from virtgauge.analysis.forwarding import DropCounter
from virtgauge.suites.forwarding.calibration import TesterCalibration, calibrate
from virtgauge.suites.forwarding.trial import PACED, Sending, TrialResult
from virtgauge.suites.testbed import Stage, Testbed


class ForwardingLab(Testbed, abc.ABC):
    """N guests between two switches, and a tester at both ends.  Flow number i goes through guest number i alone."""

    def __init__(self, stage: Stage, *, flows: int) -> None:
        super().__init__(stage)
        self.flows = flows
        self._calibrations: dict[int, TesterCalibration] = {}

    @abc.abstractmethod
    async def check(self) -> None:
        """Prove by counters that every flow reaches its own guest and no other, and comes back.

        Raises:
            LaunchError: one does not.
        """

    @abc.abstractmethod
    async def measure(
        self,
        shares: Sequence[float],
        frame_bytes: int,
        rate_pps: float,
        duration_s: float,
        sending: Sending = PACED,
    ) -> TrialResult:
        """Offer a load by this vector.

        Raises:
            AgentError, ChannelClosedError, ProtocolError: tester or guest failed.
        """

    @abc.abstractmethod
    async def measure_loop(self, frame_bytes: int, rate_pps: float, duration_s: float) -> TrialResult:
        """The same to a bare loop from the tester to itself: what the tester can do.

        Raises:
            AgentError, ChannelClosedError, ProtocolError: the tester failed.
        """

    @abc.abstractmethod
    async def drop_counters(self) -> list[DropCounter]:
        """What every watched place has dropped since it exists; in the same order at every call.

        Places on the tester's side are counted by the trials themselves.
        """

    def unbound(self) -> str | None:
        """Why the guests' CPU limit is not in force, in words; None where it is, as far as seen, or there is none."""
        return None

    async def calibration(self, frame_bytes: int, highest_pps: float, duration_s: float) -> TesterCalibration:
        """The tester on its bare loop, measured once for each frame size."""
        if frame_bytes not in self._calibrations:

            async def loop(rate_pps: float, seconds: float) -> TrialResult:
                return await self.measure_loop(frame_bytes, rate_pps, seconds)

            self._calibrations[frame_bytes] = await calibrate(loop, highest_pps, duration_s)
        return self._calibrations[frame_bytes]
