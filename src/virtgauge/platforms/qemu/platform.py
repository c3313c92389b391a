"""Virtual machines by QEMU, with hardware virtualization (kvm) or without (tcg, labelled "emulated")."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field
from qemu.qmp import QMPClient, QMPError

from virtgauge.agent import AgentBinary, find_agent
from virtgauge.agent.channel import AgentError, Channel, ChannelClosedError
from virtgauge.agent.messages import ProtocolError
from virtgauge.errors import UnavailableError, printable
from virtgauge.host.policy import Applied, DiskLimits, Policy, PolicyError
from virtgauge.network import Nic
from virtgauge.network.links import open_macvtap, open_tap
from virtgauge.network.namespace import Namespace
from virtgauge.platforms.attempt import WRITE_BACK_S, ProcessAttempt, SocketPair
from virtgauge.platforms.base import Availability, Confinement, Guest, GuestSpec, LaunchError, stage
from virtgauge.platforms.boot_files import RootPart, device_modules, require_short
from virtgauge.platforms.boot_probe import AcceleratedPlatform, Booted, boots, installed, judge, version_of
from virtgauge.platforms.disk_image import OwnDiskImage
from virtgauge.platforms.guest_kernel import files_to_boot, kernel_of
from virtgauge.platforms.local import HostPlatform, KernelGuest, Tap, guest_place, of_all_vcpus, open_taps, start_kernel
from virtgauge.platforms.qemu.command import MACHINES, Boot, drives_of, reached_by, refused_feature, throttle_disk
from virtgauge.platforms.qemu.monitor import Monitor, enforce, make_ready, thread_cpus, vcpu_threads
from virtgauge.platforms.qemu.refusals import Asked, refusal_of
from virtgauge.platforms.qemu.tuning import Tuning

_FACTS_S = 5.0
_HANGS_AFTER_S = 30.0
"""Emulated kernels of several processors seldom stand still at some place of their boot, silent and for ever, and
the next boot does not: one that said nothing for so long is begun once more."""
_WITHOUT = "cpu_without"  # The key of a verdict's details that lists features which KVM refuses

_tsc_khz: dict[str, int | None] = {}
"""The host's TSC frequency as the agent (by hash) found it; it does not change while the machine runs."""


class QemuPlatform(AcceleratedPlatform):
    """The agent as the first process of a virtual machine, on a virtio port."""

    kind: ClassVar[str] = "qemu"
    is_virtual: bool = True
    timeout_factor = 20.0  # as long as an emulated processor takes

    class Settings(OwnDiskImage):
        """Virtual machines that QEMU starts."""

        machine: Literal["microvm", "microvm-noacpi", "q35", "pc"] = "microvm"
        """QEMU's machine type. ``microvm-noacpi`` has no ACPI, and neither timer nor interrupt controller of the PC:
        for a kernel that finds virtio devices by its command line (``CONFIG_VIRTIO_MMIO_CMDLINE_DEVICES``)."""
        accelerator: Literal["auto", "kvm", "tcg"] = "auto"
        """``auto``: kvm if a guest boots with it and its figures count, else tcg (emulated)."""
        vcpus: Annotated[int, Field(ge=1, le=255)] | None = None
        """2 by default, or 1 where the host has no more."""
        memory_mib: Annotated[int, Field(ge=128)] = 512
        """Memory of a guest."""
        nic_model: Literal["virtio", "e1000"] = "virtio"
        """Model of a guest's network interfaces: para-virtual, or Intel's 82540EM emulated register by register. An
        e1000 loses its first frames after the link has come up; warm it up before frames are counted."""
        tuning: Tuning = Tuning()
        """How QEMU is set up in production ([platforms/tuning.md](platforms/tuning.md))."""

        def _problems(self) -> Iterator[str]:
            yield from super()._problems()
            if self.nic_model not in MACHINES[self.machine].nic_devices:
                remedy = 'set machine = "q35", or nic_model = "virtio"'
                yield f"a {self.machine} has no PCI bus for an {self.nic_model}: {remedy}"
            if self.nic_model != "virtio" and (fields := self.tuning.of_nics):
                yield f"tuning.{fields[0]} is of virtio, and nic_model is {self.nic_model!r}: leave one out"

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings: QemuPlatform.Settings = settings or self.Settings()
        super().__init__(self.settings.accelerator)
        self.fills_memory = self.settings.tuning.filled_by is not None
        self._without: tuple[str, ...] | None = None
        """Features of the host's processor that KVM refuses to its guests; None until a probe has told."""
        self._hung = 0

    @property
    def label(self) -> str:
        nic = "" if self.settings.nic_model == "virtio" else f" with {self.settings.nic_model}"
        return f"QEMU {self.settings.machine}{nic}{self._suffix}"

    def describe(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            **self.settings.described(),
            "tuning": self.settings.tuning.given(),
            "vcpus": self._vcpus,
            "accelerator": self._accelerator or self.settings.accelerator,
        }

    def needs(self) -> tuple[str, ...]:
        return ("qemu", *self.settings.parts, *self.settings.image_parts)

    async def _examine(self, details: dict[str, str]) -> Availability:
        binary, kernel, agent = _binary(), kernel_of(self.settings), find_agent()
        await self.settings.raw_image()
        version = await version_of(binary, r"version (\S+)", "apt install --reinstall qemu-system-x86")
        details.update(qemu=version, machine=self.settings.machine, **kernel.record())
        tuning = self.settings.tuning
        tuned = (tuning.model_dump_json(exclude_defaults=True),) if tuning.given() else ()

        async def judged(accelerator: str) -> Availability:
            if (refused := refusal_of(self._asked_of(accelerator))) is not None:
                return refused
            boot = functools.partial(self._try, accelerator, agent)
            key = (version, *kernel.key, agent.sha256, self.settings.machine, self.settings.image_key, *tuned)
            return await judge(accelerator, key, boot, bound_s=self.settings.boot_timeout_s)

        found = await self._choose(judged, details)
        self._without = tuple(found.details.get(_WITHOUT, "").split())
        return found

    async def _try(self, accelerator: str, agent: AgentBinary, bound_s: float, *without: str) -> Booted:
        """Boot a guest and end it; with KVM once more without each feature of the processor that it refuses."""
        launch = functools.partial(self._begin, accelerator=accelerator, without=without)
        name, kvm = "-".join(("probe", accelerator, *without)), accelerator == "kvm"
        try:
            booted = await boots(launch, name, agent, bound_s, system_calls=kvm)
        except LaunchError as error:
            refused = refused_feature(error.log_tail) if kvm else None
            if refused is None or refused in without:
                raise
            return await self._try(accelerator, agent, bound_s, *without, refused)
        return dataclasses.replace(booted, details={_WITHOUT: " ".join(without)} if without else {})

    async def launch(self, spec: GuestSpec) -> Guest:
        if self._accelerator is None or (self._accelerator == "kvm" and self._without is None):
            await self._require_guests()
        return await self._begin(self.settings.patient(spec), self._accelerator or "tcg", self._without or ())

    async def _begin(self, spec: GuestSpec, accelerator: str, without: Sequence[str] = ()) -> Guest:
        """Launch; once more where an emulated boot stands still."""
        try:
            return await self._launch(spec, accelerator, without)
        except LaunchError as error:
            hung = error.stage == "handshake" and accelerator == "tcg" and spec.ready_timeout_s >= _HANGS_AFTER_S
            if not hung:
                raise
        self._hung += 1
        return await self._launch(spec, accelerator)

    def remarks(self) -> tuple[str, ...]:
        boots = "a boot" if self._hung == 1 else f"{self._hung} boots"
        return (f"{self.label}: {boots} stood still, and began again",) if self._hung else ()

    async def _launch(self, spec: GuestSpec, accelerator: str, without: Sequence[str] = ()) -> Guest:
        with contextlib.ExitStack() as removal:
            folder, cgroup = guest_place(spec, removal)
            console, messages = folder / "console.log", folder / "qemu.log"
            attempt = _Attempt(spec, "QEMU", messages, console)
            tsc_khz = await host_tsc_khz(spec) if accelerator == "tcg" else None
            boot = self._boot(spec, accelerator, without, tsc_khz, await self.settings.root(spec, folder, removal))
            pairs = [removal.enter_context(contextlib.closing(SocketPair())) for _ in range(2)]

            def command(taps: Sequence[Tap]) -> list[str]:
                agent, monitor = (pair.theirs.fileno() for pair in pairs)
                return boot.arguments(console=console, agent_descriptor=agent, monitor_descriptor=monitor, taps=taps)

            make_ready(self._asked_of(accelerator, boot.vcpus, boot.memory_mib), spec.scope.folder, removal)
            removal.callback(cgroup.kill_all)  # before a device is given back: that waits for a QEMU that has it
            taps_of = functools.partial(_tuned_links, boot.tuning, removal)
            process = start_kernel(attempt, cgroup, removal, command, pairs, log=messages, taps_of=taps_of)
            monitor = Monitor(pairs[1], attempt.give_up)
            removal.callback(monitor.abandon)
            try:
                channel = await attempt.open_channel(*await pairs[0].streams())
                if self.functional:
                    channel.timeout_factor = self.timeout_factor
                await attempt.configure_network(channel, spec.nics)
                client = await monitor.connected(5.0)
                in_force = await enforce(client, process.pid, boot, spec)
            except (QMPError, OSError, EOFError, TimeoutError) as error:
                raise attempt.failure("monitor", f"QEMU's monitor does not answer: {error}") from error
            except LaunchError:
                await monitor.close()
                raise
            return QemuGuest(
                monitor=client,
                boot=boot,
                in_force=in_force,
                process=process,
                cgroup=cgroup,
                before_removal=lambda: monitor.power_off(process, WRITE_BACK_S if boot.drives else 1.0),
                disk=reached_by(boot.drives),
                **attempt.given(channel, self.label, removal),
            )

    def _asked_of(self, accelerator: str, vcpus: int | None = None, memory_mib: int | None = None) -> Asked:
        own = self.settings
        vcpus, memory_mib = vcpus or self._vcpus, memory_mib or own.memory_mib
        return Asked(own.tuning, accelerator, own.machine, vcpus, memory_mib)

    def _boot(
        self, spec: GuestSpec, accelerator: str, without: Sequence[str], tsc_khz: int | None, root: tuple[RootPart, ...]
    ) -> Boot:
        with stage("start", UnavailableError):
            binary = _binary()
        names = (*MACHINES[self.settings.machine].modules, *device_modules(spec, self.settings.nic_model, root))
        kernel, image, initramfs, modules = files_to_boot(self.settings, spec.agent, names)
        boot = Boot(
            binary=binary,
            machine=self.settings.machine,
            accelerator=accelerator,
            vcpus=spec.vcpus or self._vcpus,
            memory_mib=spec.memory_mib or self.settings.memory_mib,
            kernel=image,
            initramfs=initramfs,
            modules=modules,
            tsc_khz=tsc_khz,
            nic_model=self.settings.nic_model if spec.nics else None,
            drives=drives_of(spec, self.settings.tuning.disk_cache),
            root=root,
            without=without,
            words=kernel.words,
            tuning=self.settings.tuning,
        )
        require_short(boot.kernel_command_line())
        return boot


@contextlib.contextmanager
def _tuned_links(tuning: Tuning, removal: contextlib.ExitStack, spec: GuestSpec) -> Iterator[list[Tap]]:
    """The guest's links, as they are asked for; what of them outlives its process is gone after ``removal``."""

    def macvtap(lab: Namespace, nic: Nic, queues: int) -> tuple[int, ...]:
        descriptors, remove = open_macvtap(lab, nic, queues)
        removal.callback(remove)
        return descriptors

    if sockets := len(tuning.vhost_user):
        if spec.nics and len(spec.nics) != sockets:
            said = f"vhost_user names {sockets} sockets, and the suite gives the guest {len(spec.nics)} interfaces"
            raise LaunchError("network", f"{said}; name one for each")
        yield [Tap((), nic.mac, nic.mtu) for nic in spec.nics]
        return
    with open_taps(spec, tuning.nic_queues or 1, macvtap if tuning.nic_backend == "macvtap" else open_tap) as taps:
        yield taps


class _Attempt(ProcessAttempt):
    """An attempt that knows when QEMU has stopped the guest, from its boot to its end."""

    _stopped: str | None = None
    _channel: Channel | None = None
    _writer: asyncio.StreamWriter | None = None

    async def open_channel(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Channel:
        self._writer = writer
        if self._stopped is not None:
            writer.transport.abort()
        self._channel = await super().open_channel(reader, writer)
        return self._channel

    def give_up(self, reason: str) -> None:
        """Let whoever waits for the agent know that QEMU has stopped the guest."""
        messages = self.logs[0].read_text(errors="replace").splitlines()  # all: the registers follow the reason
        said = next((printable(line.strip(), 200) for line in messages if "error" in line.lower()), "")
        self._stopped = f"{reason} ({said})" if said else reason
        if self._channel is not None:
            self._channel.give_up(self._stopped)
        elif self._writer is not None:
            self._writer.transport.abort()

    def end_of_process(self) -> str | None:
        return super().end_of_process() or self._stopped


class QemuGuest(KernelGuest):
    """A running virtual machine."""

    def __init__(self, *, monitor: QMPClient, boot: Boot, in_force: Mapping[str, str], **rest: Any) -> None:
        super().__init__(**rest)
        self.boot, self._monitor, self.in_force = boot, monitor, in_force

    def confinement(self) -> Confinement:
        """CPUs of all its threads, which a plan may have placed apart."""
        found = super().confinement()
        with contextlib.suppress(OSError):
            return dataclasses.replace(found, cpus=None if self._pid is None else thread_cpus(self._pid))
        return found

    async def vcpu_threads(self) -> tuple[int, ...]:
        try:
            return await vcpu_threads(self._monitor)
        except QMPError:  # it has ended, which whoever speaks to the guest will find
            return ()

    async def apply(self, policy: Policy) -> Applied:
        """Set what QEMU's process may use, and its own throttle of the guest's disk."""
        applied = await super().apply(dataclasses.replace(policy, disk=DiskLimits()))
        in_force = dict(applied.in_force)
        if policy.disk.given() and not self.boot.drives:
            raise PolicyError(f"disk limits {policy.disk.given()}: the guest has no disk of its own")
        if self.boot.drives:
            in_force |= await throttle_disk(self._monitor, policy.disk)
        return of_all_vcpus(Applied(policy, in_force, applied.no_effect), self.boot.vcpus, "QEMU")


async def host_tsc_khz(spec: GuestSpec) -> int | None:
    """Frequency of the host's time-stamp counter as the agent finds it; None where it is not invariant or not there."""
    if spec.agent.sha256 not in _tsc_khz:
        host = await HostPlatform().launch(
            GuestSpec(name=f"{spec.name}-tsc", scope=spec.scope, agent=spec.agent, ready_timeout_s=_FACTS_S)
        )
        tsc: dict[str, Any] = {}
        try:
            tsc = (await host.channel.facts(_FACTS_S)).get("tsc") or {}
        except (AgentError, ChannelClosedError, ProtocolError, TimeoutError) as error:
            raise LaunchError("clock", f"the agent does not tell the host's TSC frequency: {error}") from error
        finally:
            await host.close()
        frequency = tsc.get("frequency_hz") if tsc.get("invariant") else None
        _tsc_khz[spec.agent.sha256] = round(frequency / 1000) if frequency else None
    return _tsc_khz[spec.agent.sha256]


def _binary() -> Path:
    return installed("qemu-system-x86_64", "QEMU", "apt install qemu-system-x86")
