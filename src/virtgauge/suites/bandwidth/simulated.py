"""The simulated path as a testbed: simulated guests at its ends, which speak the real protocol."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from virtgauge.platforms.simulated.bandwidth import SimulatedLink
from virtgauge.platforms.simulated.platform import SimulatedPlatform
from virtgauge.suites.bandwidth.ends import NOWHERE, RECEIVER_END
from virtgauge.suites.bandwidth.path import Conditions, Count, Counted, LinkRecord, Path
from virtgauge.suites.bandwidth.testbed import OTHERS, RECEIVER, TESTED, Address, BandwidthTestbed, TestbedSpec
from virtgauge.suites.testbed import Stage


class SimulatedPath(Path):
    """A link of the simulation, shaped and counted past its agents, as a real one is."""

    def __init__(self, link: SimulatedLink) -> None:
        self._link = link
        self._conditions: Conditions | None = None

    async def set(self, conditions: Conditions) -> None:
        self._conditions = conditions
        self._link.shape(conditions.capacity_bps)

    async def measured_bps(self, seconds: float) -> float | None:
        return self._link.flooded_bps() if seconds else None

    @contextlib.asynccontextmanager
    async def counting(self) -> AsyncIterator[Count]:
        yield _SimulatedCount(self._link)

    async def rest(self) -> LinkRecord:
        conditions = self._conditions
        assert conditions is not None
        emulated = conditions.delay_ms > 0 or conditions.loss > 0
        lateness_ns = self._link.truth.emulator_late_ns if emulated else None
        return LinkRecord("emulator" if emulated else conditions.shaper, 0, 0, lateness_ns)


class _SimulatedCount(Count):
    """What the others have sent in simulated time, which is that of the estimate alone."""

    def __init__(self, link: SimulatedLink) -> None:
        self._link = link
        self._before = link.counters()

    def over(self, start_ns: int, end_ns: int) -> Counted:
        before, now = self._before, self._link.counters()
        return Counted(
            now.cross_bytes - before.cross_bytes,
            now.cross_frames - before.cross_frames,
            0,
            now.passed_ns - before.passed_ns,
        )


async def set_up_simulation(stage: Stage, spec: TestbedSpec) -> BandwidthTestbed:
    """Launch both ends and the others.

    Raises:
        LaunchError: one was told not to come up.
    """
    platform = stage.platform
    assert isinstance(platform, SimulatedPlatform)
    tested, receiver, others = [await stage.launch(name) for name in (TESTED, RECEIVER, OTHERS)]
    link = platform.link_of(stage.scope, stage.name(TESTED))
    return BandwidthTestbed(
        stage,
        spec,
        tested=tested,
        receiver=receiver,
        others=others,
        path=SimulatedPath(link),
        address=Address(RECEIVER_END.address, NOWHERE),
        others_cpu=None,
    )
