"""Guests that are processes of this host: what they have in common, and the host itself, the reference for all."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from virtgauge.host.cgroup import Cgroup
from virtgauge.host.cgroup_policy import CgroupPolicy, Throttling
from virtgauge.host.machine import lacking
from virtgauge.host.mounts import DiskImageError, loop_device, mount_disk_image, unmount_disk_image
from virtgauge.host.policy import Applied, Policy
from virtgauge.host.process import threads_of, tree_cpu_ns, wait_for_exit
from virtgauge.network import NetworkError, Nic, links
from virtgauge.network.namespace import Namespace
from virtgauge.plan import Section
from virtgauge.platforms.attempt import WRITE_BACK_S, LaunchedGuest, PipePair, ProcessAttempt, SocketPair, TerminalPair
from virtgauge.platforms.base import Accounting, Availability, Confinement, GuestSpec, LaunchError, Platform, stage

NO_IMAGE = "a folder on the host's filesystem, no image on a loop device"


@dataclasses.dataclass(frozen=True)
class Tap:
    """A guest's link."""

    descriptors: tuple[int, ...]  # one for each pair of queues; none where something else has its other end
    mac: str  # hardware address of the guest's interface on it
    mtu: int  # the longest packet


OpenTaps = Callable[[GuestSpec], contextlib.AbstractContextManager[list[Tap]]]


@contextlib.contextmanager
def open_taps(
    spec: GuestSpec, queues: int = 1, opened: Callable[[Namespace, Nic, int], tuple[int, ...]] = links.open_tap
) -> Iterator[list[Tap]]:
    """The guest's links, open in its lab until its process has its own copies; taps are gone when that ends.
    Raises LaunchError: one cannot be made.
    """
    with contextlib.ExitStack() as closing:
        taps: list[Tap] = []
        for nic in spec.nics:
            assert spec.lab is not None
            with stage("network", NetworkError):
                taps.append(Tap(opened(spec.lab, nic, queues), nic.mac, nic.mtu))
            for descriptor in taps[-1].descriptors:
                closing.callback(os.close, descriptor)
        yield taps


@contextlib.contextmanager
def named_taps(spec: GuestSpec, removal: contextlib.ExitStack) -> Iterator[list[Callable[[], None]]]:
    """The guest's links for a process that opens them by their names, and its way into the lab that has them.

    They stay until ``removal``.
    Raises LaunchError: one cannot be made.
    """
    if spec.lab is None or not spec.nics:
        yield []
        return
    for nic in spec.nics:
        with stage("network", NetworkError):
            links.keep_tap(spec.lab, nic)
        removal.callback(_remove_tap, spec.lab, nic.port)
    with spec.lab.entrance() as enter:
        yield [enter]


def _remove_tap(lab: Namespace, port: str) -> None:
    with contextlib.suppress(FileNotFoundError):  # the lab is gone, and has taken it along
        links.disconnect(lab, [port])


def loop_devices(spec: GuestSpec, removal: contextlib.ExitStack) -> list[Path]:
    """A loop device of each of the guest's disks, whose flushes the host counts and whose traffic it can bound.

    It is free again when the controller and the guest have closed it.
    Raises LaunchError: one cannot be made.
    """
    found = []
    for disk in spec.disks:
        with stage("disk", DiskImageError):
            descriptor, path = loop_device(disk.image)
        removal.callback(os.close, descriptor)
        found.append(path)
    return found


def of_all_vcpus(applied: Applied, vcpus: int, program: str) -> Applied:
    """What a limit of a monitor's whole process means for the virtual processors in it."""
    limit = applied.declared.cpu_limit
    if limit is None:
        return applied
    note = (
        f"cpu_limit: of all {vcpus} vCPUs and {program}'s own threads together, {limit / vcpus:g} of a CPU for each "
        "where all are busy (as libvirt's global_quota; its vcpu_quota is of each vCPU)"
    )
    unused = f"cpu_limit: the guest has {vcpus} vCPUs, and cannot use more but for its devices"
    no_effect = (*applied.no_effect, *((unused,) if limit > vcpus else ()))
    return dataclasses.replace(applied, no_effect=no_effect, notes=(*applied.notes, note))


class LocalGuest(LaunchedGuest):
    """A guest whose every process is in one cgroup of this host."""

    def __init__(
        self,
        *,
        cgroup: Cgroup,  # holds all the guest's processes, where it could be made
        pid: int | None,  # root of the process tree that is counted where cgroups cannot be used
        unbound: str | None = None,
        disk_place: Path | None = None,  # where the host has its first disk mounted, or the host's device that it is
        disk_bypass: str | None = None,  # which of its reads and writes do not meet the bounds of its disk, and why
        sandbox: bool = False,  # whether a kernel of its own and its programs are processes of this host
        **launched: Any,
    ) -> None:
        super().__init__(**launched)
        self._cgroup = cgroup
        self._pid = pid
        self._unbound, self._sandbox = unbound, sandbox
        self._policy = CgroupPolicy(cgroup)
        self._disk_place, self._disk_bypass = disk_place, disk_bypass
        self._cpus_at_launch = self.confinement().cpus
        cgroup.keep_account_open()

    def accounting(self) -> Accounting:
        counted = self._cgroup.cpu_ns()
        if counted is not None:
            return Accounting(cpu_ns=counted, method=self._cgroup.method)
        return Accounting(cpu_ns=None if self._pid is None else tree_cpu_ns(self._pid), method="/proc")

    def confinement(self) -> Confinement:
        cpus: tuple[int, ...] | None = None
        if self._pid is not None:
            with contextlib.suppress(OSError):
                cpus = tuple(sorted(os.sched_getaffinity(self._pid)))
        return Confinement(cpus, self._cgroup.applied_cpu_limit(), self._unbound)

    async def apply(self, policy: Policy) -> Applied:
        device = None
        if self._disk_place is not None:
            found = self._disk_place.stat()
            number = found.st_rdev or found.st_dev
            device = f"{os.major(number)}:{os.minor(number)}"
        applied = self._policy.apply(policy, device, within=self._cpus_at_launch)
        if not policy.disk.given() or self._disk_bypass is None:
            return applied
        return dataclasses.replace(applied, no_effect=(*applied.no_effect, f"disk: {self._disk_bypass}"))

    def throttling(self) -> Throttling | None:
        return self._policy.throttling()

    def sandbox_threads(self) -> frozenset[int]:
        """All in the control group, where it is a sandbox."""
        found = set[int]()
        for pid in self._cgroup.pids() if self._sandbox else ():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                found.update(threads_of(pid))
        return frozenset(found)

    def out_of_memory_kills(self) -> int | None:
        return self._policy.out_of_memory_kills()


def guest_place(spec: GuestSpec, removal: contextlib.ExitStack) -> tuple[Path, Cgroup]:
    """The folder and the cgroup of a guest whose kernel is a process of this host.

    ``removal`` kills every process in the cgroup, also those that outlive that kernel, and removes both.
    """
    folder = spec.scope.guest_folder(spec.name)
    removal.callback(shutil.rmtree, folder, ignore_errors=True)
    cgroup = spec.scope.cgroup(spec.name, cpu_limit=spec.cpu_limit)
    removal.callback(cgroup.remove)
    removal.callback(cgroup.kill_all)
    return folder, cgroup


def guest_namespace(spec: GuestSpec, removal: contextlib.ExitStack) -> Namespace | None:
    """A namespace with the guest's interfaces, configured and linked to its lab; None for a guest without any.

    ``removal`` undoes it, and is expected to end the guest's processes before.
    Raises LaunchError: a name is taken, or this user may make none.
    """
    if not spec.nics or spec.lab is None:
        return None
    with stage("network", NetworkError):
        namespace = Namespace(spec.scope, spec.name, forwarding=spec.forwarding)
        removal.callback(namespace.close)
        links.connect(spec.lab, namespace, spec.nics)
        if spec.loop is not None:
            links.connect(namespace, namespace, [spec.loop], first=len(spec.nics))
            links.take_live_frames(namespace, spec.loop.port)
            for nic in spec.nics:
                links.take_live_frames(spec.lab, nic.port)
    return namespace


def mounted_disks(spec: GuestSpec, removal: contextlib.ExitStack) -> str | None:
    """Mount the guest's disks on this host, under the paths that they have in the guest.

    Who may not mount has folders beside the images in their place, without bounds to what is written there.

    Tells how writes reach their images, in words; None without a disk.  ``removal`` unmounts it, and is expected to end
    the guest's processes before.
    Raises LaunchError: one cannot be mounted.
    """
    ways = []
    for disk in spec.disks:
        with stage("disk", DiskImageError, OSError):
            if lacks := lacking("CAP_SYS_ADMIN"):
                files = disk.image.with_name("files")
                files.mkdir(exist_ok=True)
                disk.image.unlink(missing_ok=True)  # which has taken the room
                removal.callback(disk.folder.unlink, missing_ok=True)
                disk.folder.symlink_to(files)
                ways.append(f"{NO_IMAGE}{lacks}")
            else:
                removal.callback(unmount_disk_image, disk.folder)
                ways.append(mount_disk_image(disk.image, disk.folder))
    return "; ".join(dict.fromkeys(ways)) or None


class Routing:
    """What the host's kernel routes for a guest that shares it, by threads that are charged and confined as it is."""

    def __init__(self, spec: GuestSpec, namespace: Namespace | None) -> None:
        """Make the threads, before a runtime mounts the namespace's ``/sys`` for reading only."""
        self.unbound: str | None = None  # why that cannot be done here; None where it is, or there is nothing to do
        self._spec, self._threads = spec, list[int]()
        if not spec.forwarding or namespace is None:
            return
        try:
            self._threads = links.receive_in_threads(namespace, [f"eth{number}" for number in range(len(spec.nics))])
        except NetworkError as error:
            self.unbound = error.message

    def charge_to(self, cgroup: Cgroup, removal: contextlib.ExitStack) -> None:
        """Move the threads to the guest, which is there by now, until ``removal``: before its cgroup is removed."""
        if not self._threads:
            return
        removal.callback(cgroup.release_kernel_threads)
        try:
            for thread in self._threads:
                cgroup.adopt(thread)
                if self._spec.cpus is not None:
                    os.sched_setaffinity(thread, self._spec.cpus)
        except OSError as error:
            self.unbound = f"a thread of the kernel cannot be moved to the guest: {error.strerror}"


def require_limit(spec: GuestSpec, cgroup: Cgroup) -> None:
    """Refuse to go on where a limit was asked for and is not in force.  Raises LaunchError: with the reason."""
    if spec.cpu_limit is not None and cgroup.applied_cpu_limit() is None:
        raise LaunchError("limit", cgroup.reason or "the CPU time of the guest is not limited")


def start_kernel(
    attempt: ProcessAttempt,
    cgroup: Cgroup,
    removal: contextlib.ExitStack,
    command: Callable[[Sequence[Tap]], Sequence[str]],
    pairs: Sequence[SocketPair | TerminalPair],
    *,
    log: Path,
    steps: Sequence[Callable[[], None]] = (),
    environment: dict[str, str] | None = None,
    taps_of: OpenTaps = open_taps,
    terminal: TerminalPair | None = None,
) -> subprocess.Popen[bytes]:
    """Start a guest's kernel in its cgroup: its command for these links, and whose ends of sockets it inherits.

    ``terminal`` is the one of the pairs that is its standard input and output.
    Raises LaunchError: a link cannot be made, a limit is not in force, or the kernel does not start.
    """
    stdio = None if terminal is None else terminal.theirs.fileno()
    with taps_of(attempt.spec) as taps, cgroup.entrance() as join:
        require_limit(attempt.spec, cgroup)
        process = attempt.start(
            command(taps),
            removal,
            log=log,
            steps=(join, *steps),
            environment=environment,
            stdin=subprocess.DEVNULL if stdio is None else stdio,
            stdout=stdio,
            descriptors=(*(pair.theirs.fileno() for pair in pairs), *(one for tap in taps for one in tap.descriptors)),
        )
    for pair in pairs:
        pair.theirs.close()
    return process


class KernelGuest(LocalGuest):
    """A guest whose kernel is a process of this host, or the program that runs it is."""

    def __init__(self, *, process: subprocess.Popen[bytes], **rest: Any) -> None:
        exit_s = WRITE_BACK_S if rest.get("disk") else 1.0
        rest.setdefault("before_removal", lambda: wait_for_exit(process, exit_s))
        super().__init__(pid=process.pid, **rest)
        self._process = process

    async def crash(self) -> None:
        """Kill its kernel: what that had handed to its disk is in the image, the rest is lost."""
        self._process.kill()
        await wait_for_exit(self._process, WRITE_BACK_S)  # what was on its way to the image still gets there


class HostPlatform(Platform):
    """The agent as a child of the controller, in a session and a cgroup of its own.

    The cgroup only counts, unless a limit is asked for: the process is scheduled as any other of this machine.  With
    interfaces it is in a network namespace of its own, and sees no others; with a lab alone it is in the lab's.
    """

    kind: ClassVar[str] = "host"
    label = "host"
    is_host = True
    timeout_factor = 1.0

    class Settings(Section):
        """This machine, without a guest."""

    async def probe(self) -> Availability:
        return Availability(usable=True, reason="this machine", details={"kernel": os.uname().release})

    async def launch(self, spec: GuestSpec) -> LocalGuest:
        """Start the agent; ``spec.vcpus`` confines it to that many CPUs, ``spec.memory_mib`` has no effect here."""
        with contextlib.ExitStack() as removal:
            return await (await start_agent(spec, removal)).guest(self.label, removal)


@dataclasses.dataclass(frozen=True)
class StartedAgent:
    """An agent of this machine that nobody has spoken to yet."""

    attempt: ProcessAttempt
    process: subprocess.Popen[bytes]
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    cgroup: Cgroup
    unbound: str | None  # as :class:`LocalGuest` has it
    disk: str | None

    async def guest(self, label: str, removal: contextlib.ExitStack) -> LocalGuest:
        """Speak to it.  ``removal`` passes to the guest.  Raises LaunchError: it does not answer."""
        channel = await self.attempt.open_channel(self.reader, self.writer)
        disks = self.attempt.spec.disks
        return LocalGuest(
            cgroup=self.cgroup,
            pid=self.process.pid,
            before_removal=lambda: wait_for_exit(self.process, 0.5),
            unbound=self.unbound,
            disk=self.disk,
            disk_place=disks[0].folder if disks else None,
            **self.attempt.given(channel, label, removal),
        )


async def start_agent(
    spec: GuestSpec, removal: contextlib.ExitStack, command: Sequence[str] | None = None
) -> StartedAgent:
    """Start the agent as a process, with everything that the specification says, until ``removal``.

    A command starts it in a sandbox; without one it is a plain process of this machine.
    Raises LaunchError: it does not start.
    """
    cpus = spec.cpus
    if cpus is None and spec.vcpus is not None:
        cpus = tuple(sorted(os.sched_getaffinity(0)))[: spec.vcpus]
    folder = spec.scope.guest_folder(spec.name)
    removal.callback(shutil.rmtree, folder, ignore_errors=True)
    disk = mounted_disks(spec, removal)
    namespace = guest_namespace(spec, removal) or spec.lab
    routing = Routing(spec, namespace)
    cgroup = spec.scope.cgroup(spec.name, cpu_limit=spec.cpu_limit)
    removal.callback(cgroup.remove)
    removal.callback(cgroup.kill_all)
    attempt = ProcessAttempt(spec, "the agent", log_file := folder / "agent.log")
    pipes = PipePair()
    removal.callback(pipes.close)
    with contextlib.ExitStack() as entrances:
        steps = [entrances.enter_context(cgroup.entrance())]
        require_limit(spec, cgroup)
        if namespace is not None:
            steps.append(entrances.enter_context(namespace.entrance()))
        process = attempt.start(
            command or [str(spec.agent.path)],
            removal,
            log=log_file,
            steps=steps,
            cpus=cpus,
            stdin=pipes.guest_stdin,
            stdout=pipes.guest_stdout,
        )
    pipes.close_guest_ends()
    routing.charge_to(cgroup, removal)
    reader, writer = await pipes.streams()
    return StartedAgent(attempt, process, reader, writer, cgroup, routing.unbound, disk)
