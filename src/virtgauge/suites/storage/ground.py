"""The ground that a database stands on: a guest with the host's programs, a data disk, a shared folder."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from virtgauge.agent.channel import Channel
from virtgauge.errors import UnavailableError, VirtgaugeError
from virtgauge.host.mounts import make_disk_image
from virtgauge.network.namespace import Namespace
from virtgauge.network.nic import Nic
from virtgauge.platforms.base import Disk, Guest, LaunchError, Share
from virtgauge.suites.storage.client import Sensorstore, StoreError, find_sensorstore
from virtgauge.suites.storage.databases import account
from virtgauge.suites.storage.databases.base import Account, Layout
from virtgauge.suites.storage.flushes import AS_IS, LABORATORY_FAILED, find_launcher, launcher_prefix
from virtgauge.suites.storage.laboratory import TestbedSpec
from virtgauge.suites.storage.server import run
from virtgauge.suites.testbed import Stage

PORT = 5400  # Of every server: each is alone in its network namespace or machine
GUEST, PEER, _PREFIX = "10.212.0.1", "10.212.0.2", 24
_LINK, _MAC = "db", "52:54:00:db:00:01"
_NETWORK_S = 30.0


@dataclasses.dataclass
class Ground:
    """See the module."""

    shared: Path  # a folder that host and guest see under the same path, and both can write
    disk: Path  # the data disk, as the guest sees it
    image: Path
    sensorstore: Path
    account: Account | None  # whom servers run as; None where the agent is not root
    timeout_factor: float
    wanted: dict[str, Any]

    @classmethod
    def prepare(cls, stage: Stage, spec: TestbedSpec) -> Ground:
        """Make folder and disk; they go with the testbed.

        Raises:
            StoreError: the load generator or the flush laboratory is missing.
            LaunchError: the disk cannot be made.
        """
        try:
            program, _ = find_sensorstore(), find_launcher()
        except UnavailableError as error:
            raise StoreError("setup", str(error)) from error
        try:
            scratch = stage.scope.scratch_folder(stage.name("image"))
            stage.at_end(lambda: shutil.rmtree(scratch, ignore_errors=True))
            shared = stage.scope.guest_folder(stage.name("shared"))
            stage.at_end(lambda: shutil.rmtree(shared, ignore_errors=True))
            shared.chmod(0o711)  # servers are not root, and have their configuration here
            image = scratch / "data.img"
            make_disk_image(image, spec.disk_mib)
            whom = account() if os.geteuid() == 0 else None
        except (VirtgaugeError, OSError) as error:
            raise LaunchError("disk", str(error)) from error
        stage.charge_kernel_threads()
        disk = stage.scope.folder / stage.name("disk")
        return cls(shared, disk, image, program, whom, stage.platform.timeout_factor, {})

    async def launch(
        self, stage: Stage, spec: TestbedSpec, *, memory_mib: int, shares: Sequence[Path], lab: Namespace | None = None
    ) -> Guest:
        """Launch the guest: with a link into the lab, where there is one.

        Args:
            memory_mib: what it needs, where it has memory of its own and the plan does not say.
            shares: folders of the host that it has to see.
            lab: where its link leads.

        Raises:
            LaunchError: it did not come up.
        """
        folders = {self.sensorstore.parent, find_launcher().parent, *shares} - {self.shared}
        wanted: dict[str, Any] = {
            "disk": Disk(self.image, self.disk),
            "host_root": True,
            "shares": (Share(self.shared, writable=True), *(Share(folder) for folder in sorted(folders))),
            "memory_mib": spec.memory_mib or (memory_mib if stage.platform.is_virtual else None),
            "vcpus": spec.vcpus,
        }
        if lab is not None:
            wanted |= {"lab": lab, "nics": (Nic(port=_LINK, mac=_MAC, addresses=(f"{GUEST}/{_PREFIX}",)),)}
        self.wanted = wanted
        return await stage.launch(**wanted)

    async def crash(self, stage: Stage) -> None:
        """Cut the guest's power. Raises StoreError: ``unsupported``: it has no kernel of its own."""
        guest = stage.guests[0]
        try:
            await guest.crash()
        except UnavailableError as error:
            raise StoreError("unsupported", error.message) from error

    async def launch_again(self, stage: Stage) -> Guest:
        """A second guest on the same disk, in place of the one that was crashed."""
        crashed = stage.guests.pop(0)
        used_ns = crashed.accounting().cpu_ns or 0
        await crashed.close()
        stage.charge(lambda: used_ns)  # what it used is no foreign load of the trial under way
        return await stage.launch("again", **self.wanted)

    def layout(self, password: str) -> Layout:
        return Layout(self.shared / "config", self.disk, GUEST, PORT, password, self.account)

    async def notifies_of_system_calls(self, guest: Channel) -> bool:
        """Whether the guest's kernel does, without which flushes of a program that has no C library are not seen."""
        prefix = launcher_prefix(self.disk / "notified-flushes", AS_IS, static=True)
        return int((await run(guest, [*prefix, "/bin/true"]))["exit_code"] or 0) != LABORATORY_FAILED

    def client_inside(self, guest: Channel) -> Sensorstore:
        return Sensorstore(guest, self.sensorstore, None, timeout_factor=self.timeout_factor)

    def prober(self, guest: Channel, profile: str) -> Sensorstore | None:
        """What flushes the data disk; None where a profile stands for it, whose pace is known."""
        return self.client_inside(guest) if profile == AS_IS else None


async def address_peer(peer: Channel) -> None:
    """Give the lab's end of the link its address."""
    interface = {"name": _LINK, "addresses": [f"{PEER}/{_PREFIX}"]}
    await peer.request("network", interfaces=[interface], forwarding=False, timeout_s=_NETWORK_S)
