"""Sandboxes by Bubblewrap, in which Flatpak runs applications: namespaces, and no runtime that stays beside them."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field

from virtgauge.agent import find_agent
from virtgauge.host.machine import AS_ROOT, USER_NAMESPACES, lacking
from virtgauge.plan import Section
from virtgauge.platforms.base import Availability, Guest, GuestSpec, LaunchError
from virtgauge.platforms.boot_files import system_parts
from virtgauge.platforms.boot_probe import BootedPlatform, boots, installed, said_version
from virtgauge.platforms.local import start_agent
from virtgauge.platforms.oci.bundle import AGENT_PATH, CAPABILITIES, FRESH_FOLDERS

_PROCESSORS = Path("/sys/devices/system")  # all of /sys would show the host's interfaces


class BubblewrapPlatform(BootedPlatform):
    """The agent as the only process of a sandbox, on pipes.

    Its root is empty and in memory, with the host's system folders for reading; it sees no process of the host, and of
    its network namespace the loopback and the guest's interfaces only.
    """

    kind: ClassVar[str] = "bubblewrap"
    label = "sandbox (Bubblewrap)"
    timeout_factor = 3.0

    class Settings(Section):
        """Sandboxes by Bubblewrap (bwrap), in which Flatpak runs applications."""

        options: tuple[str, ...] = ()
        """Options of bwrap. They follow virtgauge's own."""
        vcpus: Annotated[int, Field(ge=1)] | None = None
        """Processors that it may run on; all by default."""

    settings: Settings

    def needs(self) -> tuple[str, ...]:
        return ("bubblewrap",)

    async def _examine(self, details: dict[str, str]) -> Availability:
        details["version"] = await said_version(installed("bwrap", "bwrap", "apt install bubblewrap")) or "unknown"
        try:
            await boots(self.launch, "probe", find_agent(), bound_s=10.0)
        except LaunchError as error:
            fix = None if os.geteuid() == 0 else f"{AS_ROOT}, {USER_NAMESPACES}"
            return Availability(False, f"a sandbox does not start{lacking('CAP_SYS_ADMIN')}: {error}", fix, details)
        return Availability(True, f"{details['version']}: a sandbox starts", details=details)

    async def launch(self, spec: GuestSpec) -> Guest:
        spec = dataclasses.replace(spec, vcpus=spec.vcpus or self.settings.vcpus)
        with contextlib.ExitStack() as removal:
            return await (await start_agent(spec, removal, self._command(spec))).guest(self.label, removal)

    def _command(self, spec: GuestSpec) -> list[str]:
        command = ["bwrap", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--hostname", "virtgauge"]
        command += ["--die-with-parent", "--new-session", "--proc", "/proc", "--dev", "/dev"]
        if not spec.nics:
            command.append("--unshare-net")
        for part in system_parts():
            command += ["--symlink" if part.kind == "link" else "--ro-bind", part.source, str(part.path)]
        for name in FRESH_FOLDERS:
            command += ["--perms", "1777" if name == "tmp" else "0755", "--tmpfs", f"/{name}"]
        command += ["--ro-bind", str(_PROCESSORS), str(_PROCESSORS), "--ro-bind", str(spec.agent.path), AGENT_PATH]
        shares = [*spec.shares, *spec.disk_shares]
        # What leads to a share is for root alone unless it is made before, and a server is another user.
        for folder in dict.fromkeys(folder for share in shares for folder in reversed(share.path.parents)):
            command += ["--perms", "0755", "--dir", str(folder)] if len(folder.parts) > 2 else []
        for share in shares:
            command += ["--bind" if share.writable else "--ro-bind", str(share.path), str(share.path)]
        if os.geteuid() != 0:
            command += ["--unshare-user", "--uid", "0", "--gid", "0"]
        command += ["--cap-drop", "ALL"]
        for capability in (*CAPABILITIES, *spec.capabilities):
            command += ["--cap-add", capability]
        return [*command, "--setenv", "HOME", "/root", "--chdir", "/", *self.settings.options, AGENT_PATH]
