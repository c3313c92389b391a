"""Xen's domains as guests: para-virtual (PV), or para-virtual within hardware virtualization (PVH)."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from virtgauge.agent.binary import find_agent
from virtgauge.agent.serial import serial_streams
from virtgauge.errors import UnavailableError
from virtgauge.host.domains import is_xen_host
from virtgauge.host.scope import Scope
from virtgauge.network.nic import NetworkError, Nic
from virtgauge.platforms.attempt import LaunchAttempt
from virtgauge.platforms.base import Availability, Guest, GuestSpec, LaunchError, Platform
from virtgauge.platforms.boot_files import ModuleError, build_initramfs, canonical, direct_kernel, module_closure
from virtgauge.platforms.xen.dom0 import Dom0, LocalDom0, XenError
from virtgauge.platforms.xen.guest import XenGuest, bridged
from virtgauge.platforms.xen.toolstack import DomainConfig, GuestType, Toolstack, TscMode, Vif, xen_cap
from virtgauge.provision.cache import cache_root
from virtgauge.provision.kernel import find_kernel

_DEFAULT_MEMORY_MIB = 256
_MODULES = ("xen-netfront",)


class XenPlatform(Platform):
    """The agent as the first process of a domain, on its console."""

    kind: ClassVar[str] = "xen"
    is_virtual = True

    class Settings(BaseModel):
        """Domains that `xl` starts."""

        model_config = ConfigDict(extra="forbid", frozen=True)

        type: GuestType = "pv"
        """``pv`` needs no virtualization support in the processor; ``pvh`` does."""
        tsc_mode: TscMode = "default"
        """Whether reading the time-stamp counter traps to Xen (xen-tscmode(7))."""
        vcpus: Annotated[int, Field(ge=1, le=128)] = 1
        """Processors of a guest."""
        memory_mib: Annotated[int, Field(ge=160)] = _DEFAULT_MEMORY_MIB
        """Memory of a guest."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or self.Settings()

    @property
    def label(self) -> str:
        return f"Xen ({self.settings.type.upper()})"

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, **self.settings.model_dump(mode="json")}

    async def probe(self) -> Availability:
        """Start a domain."""
        if not is_xen_host():
            return Availability(
                False,
                "this machine is no Xen host: it does not run as Xen's privileged domain",
                "apt install xen-system-amd64, and boot Xen",
            )
        if os.geteuid() != 0:
            return Availability(False, "Xen's toolstack needs root", "run virtgauge as root (sudo)")
        if shutil.which("xl") is None:
            return Availability(False, "Xen's toolstack xl is not installed", "apt install xen-utils")
        if find_kernel() is None:
            return Availability(False, "there is no guest kernel in the cache", "virtgauge provision kernel")
        try:
            agent = find_agent()
            with Scope() as scope:
                facts = await Toolstack(LocalDom0(scope, scope.folder)).facts()
                guest = await self.launch(GuestSpec(name="probe", scope=scope, agent=agent))
                await guest.close()
        except UnavailableError as error:
            return Availability(False, error.message, error.remedy)
        except XenError as error:
            return Availability(False, str(error), "start Xen's services: systemctl start xen")
        except LaunchError as error:
            return Availability(False, f"a domain does not start: {str(error).splitlines()[0]}")
        version = facts.get("xen_version", "unknown")
        details = {"xen": version, "scheduler": facts.get("xen_scheduler", "unknown")}
        return Availability(True, f"Xen {version}: a {self.settings.type.upper()} domain starts", details=details)

    async def launch(self, spec: GuestSpec) -> Guest:
        _refuse_what_it_lacks(spec)
        with contextlib.ExitStack() as removal:
            folder = spec.scope.guest_folder(spec.name)
            removal.callback(shutil.rmtree, folder, ignore_errors=True)
            try:
                dom0 = await self._dom0(spec.scope, folder)
                return await self._launch(spec, dom0, folder / "console.log", removal)
            except UnavailableError as error:
                raise LaunchError("start", error.message) from error
            except NetworkError as error:
                raise LaunchError("network", str(error)) from error
            except (XenError, ModuleError, ValueError, OSError) as error:
                raise LaunchError("domain", str(error)) from error

    async def _dom0(self, scope: Scope, folder: Path) -> Dom0:
        if not is_xen_host():
            raise LaunchError("start", "this machine is no Xen host")
        return LocalDom0(scope, folder)

    async def _launch(self, spec: GuestSpec, dom0: Dom0, log: Path, removal: contextlib.ExitStack) -> Guest:
        patient = dataclasses.replace(spec, ready_timeout_s=spec.ready_timeout_s * dom0.timeout_factor)
        toolstack, attempt = Toolstack(dom0), _XenAttempt(patient, dom0, log)
        vifs: list[Vif] = []
        for nic in spec.nics:
            assert spec.lab is not None
            vifs.append(await bridged(dom0, spec.lab, nic, removal))
        config = self._config(spec, dom0, tuple(vifs))
        path = await dom0.store(f"{config.name}.cfg", config.text())
        removal.callback(toolstack.destroy, config.name)
        await toolstack.create(path, attempt.remaining_s)
        reader, writer = await dom0.open_console(await toolstack.number_of(config.name), removal)
        noise = removal.enter_context(log.open("ab", buffering=0))
        channel = await attempt.open_channel(*serial_streams(reader, writer, lambda text: _keep(noise, text)))
        if spec.nics:
            await attempt.configure_network(channel, [_interface(nic) for nic in spec.nics])
        return XenGuest(
            channel=channel,
            ready_ns=attempt.ready_ns(),
            label=self.label,
            config=config,
            dom0=dom0,
            removal=removal.pop_all(),
        )

    def _config(self, spec: GuestSpec, dom0: Dom0, vifs: tuple[Vif, ...]) -> DomainConfig:
        kernel = find_kernel()
        if kernel is None:
            raise UnavailableError("the guest kernel is missing in the cache; `virtgauge doctor` prints the command")
        modules = module_closure(kernel.modules, _MODULES)
        names = ",".join(canonical(path.stem) for path in modules)
        vcpus = spec.vcpus or self.settings.vcpus
        return DomainConfig(
            name=f"{spec.scope.tag}-{spec.name}",
            type=self.settings.type,
            kernel=dom0.path_of(direct_kernel(kernel.image, cache_root() / "vmlinux")),
            ramdisk=dom0.path_of(build_initramfs(spec.agent, modules, cache_root() / "initramfs")),
            # it would send frames of its own by IPv6
            command_line=f"console=hvc0 quiet panic=-1 ipv6.disable=1 virtgauge.modules={names} "
            "virtgauge.channel=serial:/dev/hvc0",
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


def _refuse_what_it_lacks(spec: GuestSpec) -> None:
    """Raises LaunchError for what a domain here is not given."""
    for what, asked in _asked(spec):
        if asked:
            raise LaunchError("start", f"{what}: guests of Xen have none here; use a virtual machine of QEMU for that")


def _asked(spec: GuestSpec) -> Iterator[tuple[str, bool]]:
    yield "a data disk", spec.disk is not None
    yield "the host's programs as its root", spec.host_root
    yield "folders of the host", bool(spec.shares)


def _interface(nic: Nic) -> dict[str, Any]:
    """As the agent is asked for it (docs/protocol.md)."""
    asked = dataclasses.asdict(nic)
    del asked["port"]
    return asked


def _keep(log: BinaryIO, text: bytes) -> None:
    """What the guest's kernel prints, until the guest is gone."""
    with contextlib.suppress(ValueError, OSError):
        log.write(text)
