"""Laboratories of real guests for tests."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from platforms.conftest import traces

from virtgauge.agent import find_agent
from virtgauge.host.scope import Scope
from virtgauge.platforms.base import Platform
from virtgauge.platforms.oci.platform import OciPlatform
from virtgauge.platforms.qemu.platform import QemuPlatform
from virtgauge.suites.forwarding.guest_lab import GuestLab
from virtgauge.suites.forwarding.settings import ForwardingSettings
from virtgauge.suites.forwarding.suite import Tally
from virtgauge.suites.testbed import Stage

RUNC = OciPlatform(OciPlatform.Settings(runtime="runc"))
PLATFORMS: dict[str, Platform] = {
    "runc": RUNC,
    "gvisor": OciPlatform(OciPlatform.Settings(runtime="runsc")),
    "virtio": QemuPlatform(QemuPlatform.Settings(machine="microvm", vcpus=1, memory_mib=128)),
    "e1000": QemuPlatform(QemuPlatform.Settings(machine="q35", nic_model="e1000", vcpus=1, memory_mib=128)),
}
SIZE = 64


@contextlib.asynccontextmanager
async def laboratory(platform: Platform, **design: Any) -> AsyncIterator[GuestLab]:
    """A laboratory that is not yet checked, and of which nothing is left afterwards."""
    settings = ForwardingSettings.model_validate({"guests": 2, "port": "af_packet", "switch": "bridge"} | design)
    with Scope() as scope:
        stage = Stage(platform, scope, find_agent(), "lab")
        try:
            yield await GuestLab.create(settings, stage)
        finally:
            await stage.close()
        tag = scope.tag
    assert traces(tag) == []


async def tally(lab: GuestLab) -> Tally:
    """From what the counters of a laboratory say now; every frame has to be accounted for."""
    return Tally(lab, SIZE, 0.0, await lab.drop_counters())
