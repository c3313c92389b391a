"""Firecracker and Cloud Hypervisor: one launch for both, and what they differ in from their descriptions."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field

from virtgauge.agent import find_agent
from virtgauge.agent.serial import serial_streams
from virtgauge.errors import UnavailableError
from virtgauge.host.policy import Applied, Policy
from virtgauge.network.links import disable_all
from virtgauge.platforms.attempt import ProcessAttempt, TerminalPair
from virtgauge.platforms.base import Availability, Guest, GuestSpec, LaunchError, stage
from virtgauge.platforms.boot_files import agent_words, device_modules, require_short
from virtgauge.platforms.boot_probe import AcceleratedPlatform, boots, installed, is_functional, judge, version_of
from virtgauge.platforms.guest_kernel import OwnKernel, files_to_boot, kernel_of
from virtgauge.platforms.local import KernelGuest, guest_place, loop_devices, named_taps, of_all_vcpus, start_kernel
from virtgauge.platforms.rest_vmm.api import Api, RefusalError
from virtgauge.platforms.rest_vmm.monitors import CLOUD_HYPERVISOR, FIRECRACKER, LOG, SERIAL, SOCKET, Machine, Monitor


class RestVmmPlatform(AcceleratedPlatform):
    """The agent as the first process of a virtual machine, on a line that is its monitor's standard input and output.

    These monitors need KVM, and share no folder of this host with a guest.
    """

    monitor: ClassVar[Monitor]
    is_virtual: bool = True
    timeout_factor = 20.0  # as long as a functional KVM takes

    class Settings(OwnKernel):
        """What both are told."""

        vcpus: Annotated[int, Field(ge=1, le=32)] | None = None
        """2 by default, or 1 where the host has no more."""
        memory_mib: Annotated[int, Field(ge=128)] = 512
        """Memory of a guest."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings: RestVmmPlatform.Settings = settings or self.Settings()
        super().__init__("kvm")
        self._judged = False

    @property
    def label(self) -> str:
        return f"{self.monitor.title}{self._suffix}"

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, **self.settings.described(), "vcpus": self._vcpus, "nic_model": "virtio"}

    def needs(self) -> tuple[str, ...]:
        return self.settings.parts

    async def _examine(self, details: dict[str, str]) -> Availability:
        monitor = self.monitor
        version = (await version_of(self._program(), ".+", monitor.fix)).strip()
        agent, kernel = find_agent(), kernel_of(self.settings)
        boot = functools.partial(boots, self._launch, f"probe-{monitor.kind}", agent, system_calls=True)
        key = (monitor.kind, version, *kernel.key, agent.sha256)
        found = await judge("kvm", key, boot, bound_s=self.settings.boot_timeout_s)
        self._judged, self.functional = True, is_functional(found)
        return Availability(
            found.usable,
            f"{version}: {found.reason}",
            None if found.usable else found.fix or 'kind = "qemu" needs no KVM: its guests are emulated then',
            {"version": version, **kernel.record(), **found.details},
        )

    async def launch(self, spec: GuestSpec) -> Guest:
        if spec.host_root:
            raise LaunchError(
                "start", f"the host's programs: {self.monitor.title} shows a guest no folder; use QEMU for that"
            )
        if not self._judged:
            await self._require_guests()
        return await self._launch(self.settings.patient(spec))

    async def _launch(self, spec: GuestSpec) -> Guest:
        monitor = self.monitor
        with stage("start", UnavailableError):
            program = self._program()
        with contextlib.ExitStack() as removal:
            folder, cgroup = guest_place(spec, removal)
            messages = folder / f"{monitor.kind}.log"
            attempt = ProcessAttempt(
                spec, monitor.title, messages, folder / LOG, folder / SERIAL, folder / "console.log"
            )
            disks = loop_devices(spec, removal)
            machine = self._machine(spec, disks)
            (folder / LOG).touch()  # Firecracker makes no file for them
            line = removal.enter_context(contextlib.closing(TerminalPair()))
            command = [str(program), *monitor.arguments]
            with named_taps(spec, removal) as steps:
                process = start_kernel(
                    attempt,
                    cgroup,
                    removal,
                    lambda _: command,
                    [line],
                    log=messages,
                    steps=steps,
                    taps_of=lambda _: contextlib.nullcontext([]),
                    terminal=line,
                )
            await _start(attempt, Api(folder, SOCKET, removal, attempt.end_of_process), monitor, machine)
            channel = await attempt.open_channel(*serial_streams(*await line.streams(), attempt.note))
            if self.functional:
                channel.timeout_factor = self.timeout_factor
            if spec.lab is not None and spec.nics:
                # its frames' checksums and segments were left to the guest when that took its interfaces
                spec.lab.run(lambda: disable_all(nic.port for nic in spec.nics))
            await attempt.configure_network(channel, spec.nics)
            return RestVmmGuest(
                monitor=monitor,
                machine=machine,
                process=process,
                cgroup=cgroup,
                disk=monitor.disk if disks else None,
                disk_place=disks[0] if disks else None,
                disk_bypass=monitor.disk_bypass,
                **attempt.given(channel, self.label, removal),
            )

    def _program(self) -> Path:
        return installed(self.monitor.kind, self.monitor.title, self.monitor.fix)

    def _machine(self, spec: GuestSpec, disks: Sequence[Path]) -> Machine:
        monitor, settings = self.monitor, self.settings
        names = (*monitor.modules, *device_modules(spec))
        kernel, image, initramfs, modules = files_to_boot(settings, spec.agent, names)
        folders = [disk.folder for disk in spec.disks]
        words = [
            *("console=ttyS0", "quiet", *monitor.words),
            *(("ipv6.disable=1",) if spec.nics else ()),  # it would send frames of its own
            *agent_words(monitor.channel, modules, folders=folders, devices=monitor.disk_devices),
            *kernel.words,
        ]
        require_short(" ".join(words), monitor.longest_command_line)
        return Machine(
            vcpus=spec.vcpus or self._vcpus,
            memory_mib=spec.memory_mib or settings.memory_mib,
            kernel=image,
            initramfs=initramfs,
            command_line=" ".join(words),
            disks=disks,
            nics=spec.nics,
        )


class FirecrackerPlatform(RestVmmPlatform):
    """Firecracker's microVMs."""

    kind: ClassVar[str] = "firecracker"
    monitor = FIRECRACKER

    class Settings(RestVmmPlatform.Settings):
        """MicroVMs that Firecracker runs, with KVM."""


class CloudHypervisorPlatform(RestVmmPlatform):
    """Cloud Hypervisor's virtual machines."""

    kind: ClassVar[str] = "cloud-hypervisor"
    monitor = CLOUD_HYPERVISOR

    class Settings(RestVmmPlatform.Settings):
        """Virtual machines that Cloud Hypervisor runs, with KVM."""


class RestVmmGuest(KernelGuest):
    """A running virtual machine."""

    def __init__(self, *, monitor: Monitor, machine: Machine, **rest: Any) -> None:
        super().__init__(**rest)
        self.monitor, self.machine = monitor, machine

    async def apply(self, policy: Policy) -> Applied:
        return of_all_vcpus(await super().apply(policy), self.machine.vcpus, self.monitor.title)


async def _start(attempt: ProcessAttempt, api: Api, monitor: Monitor, machine: Machine) -> None:
    """Make the calls.  Raises LaunchError: the monitor refuses one, ends, or says nothing in time."""
    for call in monitor.calls(machine):
        try:
            await api.request(call, attempt.remaining_s)
        except RefusalError as error:
            raise attempt.failure("api", f"{monitor.title}: {error}") from error
        except (OSError, EOFError, ValueError) as error:
            await attempt.settle()
            ended = attempt.end_of_process()
            why = " in time" if isinstance(error, TimeoutError) else f": {error}"
            told = f"{ended} at {call}" if ended else f"{monitor.title} does not answer {call}{why}"
            raise attempt.failure("api", told) from error
