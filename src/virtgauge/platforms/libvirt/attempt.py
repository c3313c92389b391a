"""A launch of a domain: how it fails, and what it leaves behind otherwise."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from pathlib import Path

from virtgauge.agent.binary import AgentBinary
from virtgauge.platforms.attempt import LaunchAttempt
from virtgauge.platforms.base import GuestSpec
from virtgauge.platforms.libvirt.connection import LibvirtError, waited
from virtgauge.platforms.libvirt.domain import DomainHandle
from virtgauge.platforms.libvirt.domain_xml import AGENT_IN_CONTAINER

_STATE_S = 5.0
_REMOVE_S = 40.0


class DomainAttempt(LaunchAttempt):
    """A launch whose guest is a domain."""

    def __init__(self, spec: GuestSpec, handle: DomainHandle, console: Path) -> None:
        super().__init__(spec, console)
        self.handle = handle
        self.console = console

    def end_of_process(self) -> str | None:
        try:
            return waited("the state of the guest", self.handle.end, _STATE_S)
        except LibvirtError as error:
            return error.message

    async def settle(self) -> None:
        await asyncio.sleep(0.1)


def removed(handle: DomainHandle) -> None:
    """Leave nothing of a domain, whatever libvirt says to that."""
    with contextlib.suppress(LibvirtError):  # the reclaim of its scope tries again, and says what is left
        waited(f"cannot remove {handle.name}", handle.remove, _REMOVE_S)


def container_root(folder: Path, agent: AgentBinary) -> Path:
    """The root of a container: the agent, and folders for what libvirt mounts."""
    root = folder / "root"
    for name in ("dev", "proc", "sys", "run", "tmp"):
        (root / name).mkdir(parents=True)
    shutil.copy(agent.path, root / AGENT_IN_CONTAINER.lstrip("/"))
    return root
