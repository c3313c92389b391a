"""A running guest of libvirt."""

from __future__ import annotations

import contextlib
import time
from typing import Any

from virtgauge.agent.channel import Channel
from virtgauge.host.policy import Applied, Policy
from virtgauge.platforms.base import Accounting, Confinement, Guest
from virtgauge.platforms.libvirt.connection import LibvirtError, called, library, waited
from virtgauge.platforms.libvirt.domain import DomainHandle
from virtgauge.platforms.libvirt.policy import DomainPolicy

_SHUTDOWN_S = 1.5
_EXIT_S = 1.0
_WRITE_BACK_S = 30.0
"""How long a guest with a disk may take to power off: it writes back what it was not asked to flush."""
_ACCOUNT_S = 5.0
_PAUSE_S = 0.02


class LibvirtGuest(Guest):
    """A domain whose agent answers.

    Attributes:
        handle: of the domain.
    """

    def __init__(
        self,
        *,
        handle: DomainHandle,
        policy: DomainPolicy,
        channel: Channel,
        ready_ns: int,
        label: str,
        removal: contextlib.ExitStack,
        disk: str | None,
        elsewhere: bool,
        own_kernel: bool = True,
        unbound: str | None = None,
    ) -> None:
        """Take over what a launch has made.

        Args:
            handle: of the domain.
            policy: its limits.
            channel: past the handshake.
            ready_ns: what the launch took.
            label: for people.
            removal: undoes everything that launching made, last first.
            disk: as :class:`Guest` has it.
            elsewhere: the hypervisor's host is another machine.
            own_kernel: the guest has one.
            unbound: as :class:`Confinement` has it.
        """
        self.handle = handle
        self.channel = channel
        self.ready_ns = ready_ns
        self.label = label
        self.disk = disk
        self.elsewhere = elsewhere
        self._policy = policy
        self._own_kernel, self._unbound = own_kernel, unbound
        self._removal = removal

    def accounting(self) -> Accounting:
        """CPU time charged so far, as libvirt tells it."""
        try:
            cpu_ns, method = waited("the CPU time of the guest", self._cpu_ns, _ACCOUNT_S)
        except LibvirtError:
            cpu_ns, method = None, "libvirt"
        return Accounting(cpu_ns, method, of_this_machine=not self.elsewhere)

    def confinement(self) -> Confinement:
        """What libvirt says of its CPUs and its limit."""
        try:
            cpus, limit = waited("the limits of the guest", lambda: (self._policy.pins(), self._policy.cpu_limit()))
        except LibvirtError:
            return Confinement(unbound=self._unbound)
        return Confinement(cpus=cpus, cpu_limit=limit, unbound=self._unbound)

    async def apply(self, policy: Policy) -> Applied:
        """Set libvirt's knobs."""
        return await called("the policy of the guest", lambda: self._policy.apply(policy))

    async def crash(self) -> None:
        """Destroy the domain: what the guest's kernel had handed to its disk is in the image, the rest is lost.

        Raises:
            LibvirtError: libvirt refuses.
            UnavailableError: as for every guest without a kernel of its own.
        """
        if not self._own_kernel:
            await super().crash()
        await called(f"cannot destroy {self.handle.name}", self.handle.kill)

    async def close(self) -> None:
        """End the guest and remove everything made for it."""
        removal, self._removal = self._removal, contextlib.ExitStack()
        with removal:
            await self.channel.shutdown(_SHUTDOWN_S)
            with contextlib.suppress(LibvirtError):
                await called("the end of the guest", self._wait_for_end, _WRITE_BACK_S + _EXIT_S)

    def _cpu_ns(self) -> tuple[int | None, str]:
        """Of the domain's control group, with QEMU's own threads; else of its vCPUs, as the hypervisor says."""
        domain: Any = self.handle.libvirt_domain
        try:
            (total,) = domain.getCPUStats(True, 0)
            return int(total["cpu_time"]), "libvirt virDomainGetCPUStats"
        except (library().libvirtError, KeyError, ValueError):
            return int(domain.info()[4]) or None, "libvirt virDomainGetInfo"

    def _wait_for_end(self) -> None:
        deadline = time.monotonic() + (_EXIT_S if self.disk is None else _WRITE_BACK_S)
        while self.handle.end() is None and time.monotonic() < deadline:
            time.sleep(_PAUSE_S)
