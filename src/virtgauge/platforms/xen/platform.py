"""Xen's domains as guests: para-virtual (PV), or para-virtual within hardware virtualization (PVH)."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import shutil
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field, model_validator

from virtgauge.agent import find_agent
from virtgauge.agent.serial import serial_streams
from virtgauge.errors import UnavailableError
from virtgauge.host.domains import is_xen_host
from virtgauge.host.machine import AS_ROOT, lacking
from virtgauge.host.policy import XEN_WEIGHT, Applied, Policy, PolicyError, xen_weight
from virtgauge.host.scope import Scope
from virtgauge.network import NetworkError, Nic
from virtgauge.network.namespace import Namespace
from virtgauge.platforms.attempt import LaunchAttempt, LaunchedGuest
from virtgauge.platforms.base import Accounting, Availability, Confinement, Guest, GuestSpec, LaunchError, stage
from virtgauge.platforms.boot_files import xen_command_line
from virtgauge.platforms.boot_probe import BootedPlatform, boots
from virtgauge.platforms.disk_image import NO_FOLDERS
from virtgauge.platforms.guest_kernel import OwnKernel, files_to_boot, kernel_of
from virtgauge.platforms.xen.dom0 import Dom0, DomainConfig, GuestType, Share, TscMode, Vif, XenError, facts, xen_cap

_POWER_OFF_S, _PAUSE_S = 2.0, 0.1


async def bridged(dom0: Dom0, lab: Namespace, nic: Nic, removal: contextlib.ExitStack) -> Vif:
    """A bridge with an uplink to the lab, until ``removal``; the toolstack's script puts the domain's interface on it.
    Raises NetworkError, XenError: it cannot be made.
    """
    uplink = dom0.uplink(lab, nic, removal)
    bridge = dom0.bridge_name(uplink)
    removal.callback(dom0.remove_interface, bridge)
    # It waits for no spanning tree and asks for no groups; the script gives the domain's interface the bridge's MTU.
    await dom0.check(
        [
            *("ip", "link", "add", "name", bridge, "type", "bridge"),
            *("stp_state", "0", "forward_delay", "0", "mcast_snooping", "0"),
        ]
    )
    await dom0.check(["ip", "link", "set", "dev", uplink, "mtu", str(nic.mtu), "master", bridge, "up"])
    await dom0.check(["ip", "link", "set", "dev", bridge, "mtu", str(nic.mtu), "up"])
    return Vif(mac=nic.mac, bridge=bridge, script=dom0.vif_script)


class XenGuest(LaunchedGuest):
    """A domain whose agent is its first process."""

    def __init__(self, *, config: DomainConfig, dom0: Dom0, **launched: Any) -> None:
        super().__init__(**launched, before_removal=self._powered_off)
        self.config = config
        self.channel.timeout_factor = dom0.timeout_factor
        self._dom0 = dom0
        self._cap = config.cap
        self._pinned = False

    def accounting(self) -> Accounting:
        """CPU time of its virtual processors as Xen counts it; what dom0 does for it is not in there."""
        cpu_s = self._dom0.cpu_s(self.config.name)
        used_ns = None if cpu_s is None else round(cpu_s * 1e9)
        return Accounting(used_ns, "xl list (steps of 0.1 s)", of_this_machine=not self._dom0.emulated)

    def confinement(self) -> Confinement:
        """Its cap; on which physical processors it runs is Xen's affair, which dom0's numbers do not name."""
        return Confinement(cpu_limit=None if self._cap is None else self._cap / 100)

    async def apply(self, policy: Policy) -> Applied:
        """Set cap and weight of the credit2 scheduler and the affinity, and read them back."""
        if policy.disk.given():
            raise PolicyError(f"disk limits {policy.disk.given()}: the guest has no disk of its own")
        try:
            return await self._apply(policy)
        except XenError as error:
            raise PolicyError(str(error)) from error

    async def _apply(self, policy: Policy) -> Applied:
        name, vcpus = self.config.name, self.config.vcpus
        in_force, no_effect, notes = dict[str, str](), list[str](), list[str]()
        # Xen refuses a cap above what the domain's virtual processors come to.
        cap = 0 if policy.cpu_limit is None else min(xen_cap(policy.cpu_limit), vcpus * 100)
        if cap == vcpus * 100:
            no_effect.append(f"cpu_limit: the guest has {vcpus} vCPUs, and cannot use more")
        reserves = policy.reservation is not None
        share = Share(XEN_WEIGHT if policy.weight is None else xen_weight(policy.weight, reserves=reserves), cap)
        await self._dom0.set_share(name, share)
        self._cap = share.cap or None
        if policy.cpu_limit is not None:
            in_force["credit2 cap"] = f"{share.cap} %"
            notes.append(
                "cpu_limit: of its vCPUs together; what dom0 does for its interfaces is neither bounded nor charged"
            )
        if policy.weight is not None:
            in_force["credit2 weight"] = str(share.weight)
            notes.append("weight: 256 is everybody's in credit2, as 100 is here")
        if policy.reservation is not None and policy.weight is None:
            no_effect.append("reservation: credit2 has none; give a weight")
        placed = policy.cores is not None
        if self._dom0.emulated and placed:
            no_effect.append("cores: the processors of an emulated Xen host are not this machine's")
        elif placed or self._pinned:
            await self._dom0.check(["xl", "vcpu-pin", name, "all", ",".join(map(str, policy.cores or ("all",)))])
            self._pinned = placed
            in_force |= {"vcpu affinity": await self._dom0.affinity(name)} if placed else {}
        return Applied(policy, in_force, tuple(no_effect), tuple(notes))

    async def crash(self) -> None:
        """Destroy the domain: what its kernel had not written is lost."""
        await asyncio.to_thread(self._dom0.destroy, self.config.name)

    async def close(self) -> None:
        if self.channel.closed:
            self._before_removal = None
        await super().close()

    async def _powered_off(self) -> None:
        """Let the domain end by itself, and its interfaces go in order; what then remains is destroyed."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _POWER_OFF_S * self._dom0.timeout_factor
        with contextlib.suppress(XenError):
            while loop.time() < deadline and (await self._dom0.run(["xl", "domid", self.config.name])).exit_code == 0:
                await asyncio.sleep(_PAUSE_S)


class XenPlatform(BootedPlatform):
    """The agent as the first process of a domain, on its console."""

    kind: ClassVar[str] = "xen"
    is_virtual = True

    class Settings(OwnKernel):
        """Domains that `xl` starts."""

        type: GuestType = "pv"
        """``pv`` needs no virtualization support in the processor; ``pvh`` does."""
        tsc_mode: TscMode = "default"
        """Whether reading the time-stamp counter traps to Xen (xen-tscmode(7), which had a fourth mode before 4.12)."""
        vcpus: Annotated[int, Field(ge=1, le=128)] = 1
        """Processors of a guest."""
        memory_mib: Annotated[int, Field(ge=160)] = 256
        """Memory of a guest."""

        @model_validator(mode="before")
        @classmethod
        def _has_no_disk_image(cls, given: Any) -> Any:
            if isinstance(given, dict) and "disk_image" in given:
                raise ValueError(f"disk_image: {NO_FOLDERS}")
            return given

    settings: Settings

    @property
    def label(self) -> str:
        return f"Xen ({self.settings.type.upper()})"

    def needs(self) -> tuple[str, ...]:
        return self.settings.parts

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, **self.settings.described(), "nic_model": "xen"}

    async def _examine(self, details: dict[str, str]) -> Availability:
        if not is_xen_host():
            what = "this machine is no Xen host: it does not run as Xen's privileged domain"
            raise UnavailableError(what, "apt install xen-system-amd64, and boot Xen")
        if os.geteuid() != 0:
            raise UnavailableError("Xen's toolstack needs root" + lacking("CAP_SYS_ADMIN"), AS_ROOT)
        if shutil.which("xl") is None:  # as it is run: by PATH alone
            raise UnavailableError("Xen's toolstack xl is not on PATH", "apt install xen-utils, or put /usr/sbin on it")
        agent, kernel = find_agent(), kernel_of(self.settings)
        try:
            with Scope() as scope:
                told = facts(await Dom0(scope, scope.folder).check(["xl", "info"]))
            await boots(self.launch, "probe", agent, bound_s=60.0)
        except XenError as error:
            return Availability(False, str(error), "start Xen's services: systemctl start xen")
        except LaunchError as error:
            return Availability(False, f"a domain does not start: {str(error).splitlines()[0]}")
        version = told.get("xen_version", "unknown")
        details.update(xen=version, scheduler=told.get("xen_scheduler", "unknown"), **kernel.record())
        return Availability(True, f"Xen {version}: a {self.settings.type.upper()} domain starts", details=details)

    async def launch(self, spec: GuestSpec) -> Guest:
        asked = {
            "a data disk": spec.disks,
            "the host's programs as its root": spec.host_root,
            "folders of the host": spec.shares,
        }
        if what := next((what for what, value in asked.items() if value), None):
            raise LaunchError("start", f"{what}: guests of Xen have none here; use a virtual machine of QEMU for that")
        spec = self.settings.patient(spec)
        with contextlib.ExitStack() as removal:
            folder = spec.scope.guest_folder(spec.name)
            removal.callback(shutil.rmtree, folder, ignore_errors=True)
            with (
                stage("start", UnavailableError),
                stage("network", NetworkError),
                stage("domain", XenError, ValueError, OSError),
            ):
                return await self._launch(spec, await self._dom0(spec.scope, folder), folder / "console.log", removal)

    async def _dom0(self, scope: Scope, folder: Path) -> Dom0:
        if not is_xen_host():
            raise LaunchError("start", "this machine is no Xen host")
        return Dom0(scope, folder)

    async def _launch(self, spec: GuestSpec, dom0: Dom0, log: Path, removal: contextlib.ExitStack) -> Guest:
        patient = dataclasses.replace(spec, ready_timeout_s=spec.ready_timeout_s * dom0.timeout_factor)
        attempt = _XenAttempt(patient, dom0, log)
        vifs: list[Vif] = []
        for nic in spec.nics:
            assert spec.lab is not None
            vifs.append(await bridged(dom0, spec.lab, nic, removal))
        config = self._config(spec, dom0, tuple(vifs))
        path = await dom0.store(f"{config.name}.cfg", config.text())
        removal.callback(dom0.destroy, config.name)
        await dom0.check(["xl", "create", "-q", path], attempt.remaining_s)
        if config.cap is not None and (found := (await dom0.share(config.name)).cap) != config.cap:
            raise LaunchError("limit", f"credit2 was asked for a cap of {config.cap} %, and has {found} % in force")
        reader, writer = await dom0.open_console(await dom0.number_of(config.name), removal)
        channel = await attempt.open_channel(*serial_streams(reader, writer, attempt.note))
        await attempt.configure_network(channel, spec.nics)
        return XenGuest(config=config, dom0=dom0, **attempt.given(channel, self.label, removal))

    def _config(self, spec: GuestSpec, dom0: Dom0, vifs: tuple[Vif, ...]) -> DomainConfig:
        kernel, image, initramfs, modules = files_to_boot(self.settings, spec.agent, ("xen-netfront",))
        vcpus = spec.vcpus or self.settings.vcpus
        return DomainConfig(
            name=f"{spec.scope.tag}-{spec.name}",
            type=self.settings.type,
            kernel=dom0.path_of(image),
            ramdisk=dom0.path_of(initramfs),
            command_line=xen_command_line(modules, kernel.words),
            memory_mib=spec.memory_mib or self.settings.memory_mib,
            vcpus=vcpus,
            vifs=vifs,
            cpus=None if dom0.emulated else spec.cpus,
            cap=None if spec.cpu_limit is None else min(xen_cap(spec.cpu_limit), vcpus * 100),
            tsc_mode=self.settings.tsc_mode,
        )


class _XenAttempt(LaunchAttempt):
    def __init__(self, spec: GuestSpec, dom0: Dom0, log: Path) -> None:
        super().__init__(spec, log)
        self._dom0, self._ended = dom0, False

    def end_of_process(self) -> str | None:
        return "the domain ended" if self._ended else None

    async def settle(self) -> None:
        name = f"{self.spec.scope.tag}-{self.spec.name}"
        with contextlib.suppress(XenError):
            self._ended = (await self._dom0.run(["xl", "domid", name])).exit_code != 0
