"""Guests through libvirt: QEMU, Xen and LXC on this machine, and whatever else libvirt speaks to by an image."""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar
from xml.etree import ElementTree

from virtgauge.agent import AgentBinary, find_agent
from virtgauge.errors import UnavailableError
from virtgauge.host.domains import DomainRecord
from virtgauge.network import NetworkError
from virtgauge.platforms.attached.platform import Endpoint
from virtgauge.platforms.base import Availability, Emulation, Guest, GuestSpec, LaunchError, emulation_told, stage
from virtgauge.platforms.boot_files import RootPart
from virtgauge.platforms.boot_probe import AcceleratedPlatform, Booted, boots, judge
from virtgauge.platforms.guest_kernel import BootedKernel, kernel_of
from virtgauge.platforms.libvirt.boot import DomainAttempt, LabDevices, agent_root, kernel_boot, management_interface
from virtgauge.platforms.libvirt.connection import DomainHandle, LibvirtError, called, library, open_connection
from virtgauge.platforms.libvirt.domain_xml import SOCKET_IN_CONTAINER, Domain, Interface, disk_target
from virtgauge.platforms.libvirt.entrance import CallIn, Entrance, Socket, Terminal, conversation
from virtgauge.platforms.libvirt.guest import DomainPolicy, LibvirtGuest
from virtgauge.platforms.libvirt.settings import ChannelKind, LibvirtSettings
from virtgauge.platforms.qemu.command import drives_of, reached_by

_UNBOUND = "this host's kernel routes for a container, and libvirt does not charge or confine it to that container"


class LibvirtPlatform(AcceleratedPlatform):
    """The agent in a domain of libvirt."""

    kind: ClassVar[str] = "libvirt"
    Settings = LibvirtSettings

    def __init__(self, settings: LibvirtSettings | None = None) -> None:
        self.settings: LibvirtSettings = settings or LibvirtSettings()
        usual = self.settings.usual_image
        if self.settings.image is None and usual is not None and usual.is_file():
            self.settings = self.settings.model_copy(update={"image": str(usual)})
        self.target = self.settings.target
        self.is_virtual = self.target.driver.own_kernel
        super().__init__(self.settings.accelerator)
        self._security: tuple[str, ...] | None = None
        """Of libvirt's models, those that confine domains there; None until it was asked."""

    @property
    def label(self) -> str:
        machine = self._machine()
        nic = f" with {self._nic_model}" if self._nic_model != next(iter(self.target.driver.nic_models)) else ""
        return f"libvirt {self.target.driver.title}{f' {machine}' if machine else ''}{nic}{self._suffix}"

    def describe(self) -> dict[str, Any]:
        described = {"kind": self.kind, **self.settings.described(), "vcpus": self._vcpus, "nic_model": self._nic_model}
        if self.target.driver.scheme == "qemu":
            described["accelerator"] = self._accelerator or self.settings.accelerator
        return described

    @property
    def _nic_model(self) -> str:
        return self.settings.nic_model or next(iter(self.target.driver.nic_models))

    def needs(self) -> tuple[str, ...]:
        return (*(self.settings.parts if self._from_kernel else ()), *self.settings.image_parts)

    async def _examine(self, details: dict[str, str]) -> Availability:
        """Connect, and boot a guest with QEMU alone."""
        driver, agent = self.target.driver, find_agent()
        details |= await called(f"cannot open {self.target.uri}", self._look)
        if self.settings.image is None and not driver.kernel_boot and driver.channel is not ChannelKind.SOCKET:
            where, usual = " on another machine" if self.target.remote else "", self.settings.usual_image
            raise UnavailableError(
                f"{driver.title}{where} boots an image, and image is not set",
                f"`virtgauge image build --out {shlex.quote(str(usual))}`, where it is found"
                if usual is not None
                else f"`virtgauge image build --out guest.{driver.image_format}`, then set image to where that is",
            )
        kernel: BootedKernel | None = None
        if self._from_kernel:
            kernel = kernel_of(self.settings)
            await self.settings.raw_image()
            details |= kernel.record()
        if self._channel_kind() is ChannelKind.DIAL_IN and self.settings.listen is None:
            raise UnavailableError(
                f"a guest of {driver.title} has no line to this machine but the network, and listen is not set",
                "set listen to an address and port of this machine, credentials to those of the image, and management "
                "to the hypervisor's network by which it calls",
            )
        if driver.scheme != "qemu":
            return Availability(True, f"{self.target.uri} answers", details=details)
        return await self._choose(lambda accelerator: self._judge(accelerator, agent, kernel, details), details)

    def emulation(self, facts: Mapping[str, Any]) -> Emulation | None:
        return None if self._accelerator is not None else emulation_told(facts)

    async def launch(self, spec: GuestSpec) -> Guest:
        if self._security is None or (self.target.driver.scheme == "qemu" and self._accelerator is None):
            await self._require_guests()
        return await self._launch(spec, self._accelerator)

    def _look(self) -> dict[str, str]:
        """Versions, for the record; in a thread."""
        libvirt = library()
        with contextlib.closing(open_connection(self.target.uri)) as connection:
            self._security = ()
            with contextlib.suppress(libvirt.libvirtError):  # not every driver tells
                capabilities = ElementTree.fromstring(connection.getCapabilities())
                self._security = tuple(
                    model.text or "" for model in capabilities.findall("host/secmodel/model") if model.text != "none"
                )
            details = {"libvirt": _version(connection.getLibVersion()), "uri": self.target.uri}
            with contextlib.suppress(libvirt.libvirtError):
                details["hypervisor"] = f"{connection.getType()} {_version(connection.getVersion())}"
            return details

    async def _judge(
        self, accelerator: str, agent: AgentBinary, kernel: BootedKernel | None, details: dict[str, str]
    ) -> Availability:
        offer = await called(f"cannot ask {self.target.uri} for {accelerator}", lambda: self._offered(accelerator))
        if offer is not None:
            return Availability(False, offer)

        async def boot(bound_s: float) -> Booted:
            name, kvm = f"probe-{accelerator}", accelerator == "kvm"
            try:
                return await boots(lambda spec: self._launch(spec, accelerator), name, agent, bound_s, system_calls=kvm)
            except LaunchError as error:
                if error.stage == "dial-in":  # says nothing of the accelerator, and is not to be remembered of it
                    raise UnavailableError(f"{accelerator}: no guest was reached: {error}") from error
                raise

        what = "\0".join((*kernel.key, self.settings.image_key)) if kernel else self.settings.image or ""
        machine = self._machine() or ""
        if self.settings.listen is not None:
            what = "\0".join((what, self.settings.listen, str(self.settings.management)))
        key = ("libvirt", details["libvirt"], details.get("hypervisor", ""), self.target.uri, what, machine)
        return await judge(accelerator, (*key, agent.sha256), boot, bound_s=self.settings.boot_timeout_s)

    def _offered(self, accelerator: str) -> str | None:
        """Why libvirt does not offer an accelerator; None where it does."""
        domain_type = "kvm" if accelerator == "kvm" else "qemu"
        with contextlib.closing(open_connection(self.target.uri)) as connection:
            try:
                connection.getDomainCapabilities(None, "x86_64", self._machine(), domain_type, 0)
            except library().libvirtError as error:
                return f"libvirt does not offer it: {error.get_error_message()}"
        return None

    async def _launch(self, spec: GuestSpec, accelerator: str | None) -> Guest:
        driver = self.target.driver
        self._refuse(spec)
        spec = self.settings.patient(spec)
        if self._channel_kind() is ChannelKind.DIAL_IN:
            spec = dataclasses.replace(spec, ready_timeout_s=max(spec.ready_timeout_s, self.settings.wait_s))
        handle = DomainHandle(self.target.uri, f"{spec.scope.tag}-{spec.name}")
        with contextlib.ExitStack() as removal:
            folder = spec.scope.guest_folder(spec.name)
            # Its record is what a domain that stays is found by.
            removal.callback(lambda: None if handle.left else shutil.rmtree(folder, ignore_errors=True))
            DomainRecord(self.target.uri, handle.name).write(folder)
            console = folder / "console.log"
            attempt = DomainAttempt(spec, handle, console)
            devices = LabDevices(spec.scope.tag, spec.lab, spec.nics if driver.in_lab else ())
            removal.callback(devices.remove)
            parts = await self.settings.root(spec, folder, removal) if self._from_kernel else ()
            removal.callback(handle.leave_nothing)
            root = agent_root(folder, spec.agent) if driver.channel is ChannelKind.SOCKET else None
            socket = root / SOCKET_IN_CONTAINER.lstrip("/") if root else folder / "agent.sock"
            domain = await self._domain(spec, accelerator, handle.name, devices.names, root, parts)
            entrance = self._entrance(socket, removal)
            domain = dataclasses.replace(domain, socket=entrance.socket, console=console if self._ours else None)
            async with entrance.listening():
                await self._start(attempt, domain, devices)
                channel = await conversation(attempt, entrance)
            await attempt.configure_network(channel, spec.nics)
            target = disk_target(0) if domain.drives else None
            try:
                policy = await called(
                    "the limits of the guest",
                    lambda: DomainPolicy(handle, driver.scheme, driver.title, domain.vcpus, target),
                )
                limit = await called("the limit of the guest", policy.cpu_limit)
            except LibvirtError as error:
                raise attempt.failure("limit", str(error)) from error
            if spec.cpu_limit is not None and limit is None:
                raise LaunchError("limit", f"libvirt does not limit the CPU time of a guest of {driver.title} here")
            return LibvirtGuest(
                handle=handle,
                policy=policy,
                disk=reached_by(domain.drives),
                elsewhere=self.target.remote,
                own_kernel=driver.own_kernel,
                unbound=_UNBOUND if spec.forwarding and not driver.own_kernel else None,
                **attempt.given(channel, self.label, removal),
            )

    def _entrance(self, socket: Path, removal: contextlib.ExitStack) -> Entrance:
        kind = self._channel_kind()
        if kind is ChannelKind.CONSOLE:
            return Terminal(removal)
        if kind is not ChannelKind.DIAL_IN:
            return Socket(socket, removal, serial=kind is ChannelKind.SERIAL)
        if self.settings.listen is None or self.settings.credentials is None:
            raise LaunchError("dial-in", "listen and credentials are not set; `virtgauge doctor` prints the remedy")
        return CallIn(Endpoint.parse(self.settings.listen), self.settings.credentials, removal)

    async def _start(self, attempt: DomainAttempt, domain: Domain, devices: LabDevices) -> None:
        """Start the domain, and put its interfaces into the lab.  Raises LaunchError: the stage that failed."""
        handle, driver = attempt.handle, self.target.driver
        taps = bool(devices.names) and driver.scheme == "qemu"  # LXC makes its own pairs

        def start() -> None:
            handle.start(domain.xml(), transient=driver.transient, auto_destroy=driver.auto_destroy, paused=taps)

        with stage("start", LibvirtError), stage("network", NetworkError):
            if taps:
                devices.make_taps()
            await called(f"{driver.title} does not start {handle.name}", start, attempt.remaining_s)
            devices.move_into_lab()
            if taps:
                resume = f"{driver.title} does not resume {handle.name}"
                await called(resume, lambda: handle.libvirt_domain.resume(), attempt.remaining_s)

    async def _domain(
        self,
        spec: GuestSpec,
        accelerator: str | None,
        name: str,
        devices: list[str],
        root: Path | None,
        parts: tuple[RootPart, ...],
    ) -> Domain:
        driver, settings, model = self.target.driver, self.settings, self._nic_model
        boot = None
        if self._from_kernel:
            boot = await kernel_boot(spec, settings, driver, accelerator, model, parts)
        management = management_interface(settings, driver.nic_models[model])
        nics = [
            Interface(
                nic.mac,
                driver.nic_models[model],
                device=devices[number] if devices else None,
                network=None if devices else settings.networks[number],
            )
            for number, nic in enumerate(spec.nics)
        ]
        return Domain(
            driver=driver,
            domain_type="kvm" if accelerator == "kvm" else driver.domain_type,
            name=name,
            uuid=str(uuid.uuid4()),
            description=f"A guest of virtgauge, of the run {spec.scope.tag}; `virtgauge clean` removes what it left.",
            vcpus=spec.vcpus or self._vcpus,
            memory_mib=spec.memory_mib or settings.memory_mib,
            channel=self._channel_kind(),
            machine=self._machine(),
            boot=boot,
            image=settings.image,
            image_format=settings.image_format,
            root=root,
            nics=[*([management] if management else ()), *nics],
            drives=drives_of(spec),
            exports=parts,
            cpus=spec.cpus,
            cpu_limit=spec.cpu_limit,
            security=() if self.target.remote else self._security or (),
            environment=tuple(spec.scope.environment().items()) if self._ours else (),
        )

    @property
    def _from_kernel(self) -> bool:
        return self.settings.image is None and self.target.driver.kernel_boot

    @property
    def _ours(self) -> bool:
        """Whether it is a QEMU of this machine, which finds our files and is found by its environment."""
        return self.target.driver.scheme == "qemu" and not self.target.remote

    def _refuse(self, spec: GuestSpec) -> None:
        """Refuse what the driver has not, before anything is started.  Raises LaunchError: with the reason."""
        driver, settings = self.target.driver, self.settings
        if (driver.plain or settings.image is not None) and (spec.disks or spec.host_root):
            what = "no disk of its own" if spec.disks else "nothing of this machine's programs"
            raise LaunchError("disk", f"a guest of {self.label} that boots an image, or is remote, has {what}")
        if spec.nics and not driver.in_lab and len(settings.networks) < len(spec.nics):
            raise LaunchError(
                "network",
                f"{spec.name} has {len(spec.nics)} interfaces, and networks = {list(settings.networks)}: "
                f"name one of {driver.title}'s networks for each",
            )

    def _channel_kind(self) -> ChannelKind:
        driver = self.target.driver
        if self.settings.listen is not None:
            return ChannelKind.DIAL_IN
        return driver.channel if self.settings.image is None else driver.image_channel

    def _machine(self) -> str | None:
        machines = self.target.driver.machines
        return self.settings.machine or (machines[0] if machines else None)


def _version(number: int) -> str:
    return f"{number // 1_000_000}.{number // 1000 % 1000}.{number % 1000}"
