"""Which laboratory a platform's guests stand in."""

from __future__ import annotations

from virtgauge.suites.forwarding.guest_lab import GuestLab
from virtgauge.suites.forwarding.laboratory import ForwardingLab
from virtgauge.suites.forwarding.settings import ForwardingSettings
from virtgauge.suites.forwarding.simulated import SimulatedLab
from virtgauge.suites.testbed import Stage


async def set_up_laboratory(settings: ForwardingSettings, stage: Stage) -> ForwardingLab:
    """Build and check it.

    Raises:
        LaunchError: it did not come up, or a flow does not reach its guest and only it.
        AgentError, ChannelClosedError, ProtocolError, TimeoutError: an agent failed meanwhile.
    """
    kind = SimulatedLab if stage.platform.simulated else GuestLab
    lab = await kind.create(settings, stage)
    await lab.check()
    return lab
