"""The platform `xen` in its nested lab, as plans of the tests name it: kind `xen-lab`."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from xen_lab.dom0 import LabDom0, lab_of
from xen_lab.packages import find_lab_parts

from virtgauge.agent import find_agent
from virtgauge.errors import UnavailableError
from virtgauge.host.scope import Scope
from virtgauge.platforms.base import Availability, GuestSpec
from virtgauge.platforms.boot_probe import Booted, judge
from virtgauge.platforms.xen.platform import XenPlatform

REGISTRATION = {"xen-lab": "xen_lab.platform:XenLabPlatform"}
"""For :data:`virtgauge.platforms.KINDS`."""


class XenLabPlatform(XenPlatform):
    """Domains of the lab of their scope."""

    kind: ClassVar[str] = "xen-lab"
    emulated = True

    @property
    def label(self) -> str:
        return f"{super().label[:-1]}, nested lab, emulated)"

    async def probe(self) -> Availability:
        """Start a domain, or remember that one started."""
        try:
            parts, agent = find_lab_parts(), find_agent()
        except UnavailableError as error:
            return Availability(False, error.message, error.remedy)

        async def boot(_bound_s: float) -> Booted:
            with Scope() as scope:
                guest = await self.launch(GuestSpec(name="probe", scope=scope, agent=agent))
                await guest.close()
                return Booted(guest.ready_ns)

        key = ("xen-lab", parts.xen.package, parts.kernel.package, self.settings.type, agent.sha256)
        verdict = await judge("tcg", key, boot)
        return Availability(
            verdict.usable,
            f"nested lab (emulated): {verdict.reason}",
            verdict.fix,
            details={"xen": parts.xen.package, "kernel": parts.kernel.package},
        )

    async def _dom0(self, scope: Scope, folder: Path) -> LabDom0:
        return await lab_of(scope, self.settings.type, find_agent())
