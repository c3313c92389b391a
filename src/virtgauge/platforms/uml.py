"""User Mode Linux: a Linux kernel that runs as a program of the host, and its processes as processes of the host."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field, field_validator

from virtgauge.agent import find_agent
from virtgauge.agent.serial import serial_streams
from virtgauge.errors import UnavailableError
from virtgauge.extras import find_native
from virtgauge.host.machine import AS_ROOT, lacking
from virtgauge.host.mounts import MS_BIND, MS_NODEV, MS_NOSUID, MS_RDONLY, MS_REC, MS_REMOUNT, unshare_mounts
from virtgauge.host.policy import Applied, Policy
from virtgauge.host.process import LIBC, checked
from virtgauge.platforms.attempt import ProcessAttempt, SocketPair
from virtgauge.platforms.base import Availability, Guest, GuestSpec, LaunchError, stage
from virtgauge.platforms.boot_files import RootPart, agent_words, initramfs_with, require_short
from virtgauge.platforms.boot_probe import BootedPlatform, boots, installed, judge, version_of
from virtgauge.platforms.disk_image import OwnDiskImage
from virtgauge.platforms.guest_kernel import REAL_TIME, BootedKernel, KernelFile, ModulesFolder, kernel_of
from virtgauge.platforms.local import KernelGuest, Tap, guest_place, loop_devices, start_kernel

LONGEST_COMMAND_LINE = 4095  # Of this kernel, in bytes; what is beyond it is lost without a word (COMMAND_LINE_SIZE)

INITRAMFS, VIEW, STATE = "initramfs", "view", "state"
"""In the guest's folder, in which the kernel is started: so no path that it is told can hold a blank or a comma.

The initramfs; what the guest sees of the host's files; the kernel's own, its pid and the socket of its console.
"""
_PACKAGE = "user-mode-linux"
_POWERS = ("chown", "dac_override", "dac_read_search", "fowner", "fsetid")
"""What root's kernel needs to serve files of the host as root's, and no more."""
_CONFINEMENT = (
    *("unshare", "--pid", "--fork", "--kill-child=SIGKILL", "--"),
    *("sh", "-c", '"$@"; exit $?', "sh"),  # the first process, which a kernel that panics must not be: it would not end
    *("setpriv", f"--bounding-set=-all,+{',+'.join(_POWERS)}", "--inh-caps=-all", "--"),
)
"""A process of the guest is one of the host, whose system calls the kernel catches by ptrace.  Where the kernel is
killed, they go on by themselves, as calls to the host: a guest that is powering off then unmounts the host's ``/proc``.
So they are in a namespace of processes whose end takes all of them with it, and none has the powers for such a call."""
_NEEDS_ROOT = "only root can keep a guest's processes from going on as the host's when its kernel is killed"
_ONE_PROCESSOR = "User Mode Linux has one virtual processor"
_DISK = "ubd on a loop device, every write synchronous (flushes of this kernel do nothing)"
_DISK_BYPASS = (
    "User Mode Linux opens its disk without direct I/O, so that of what it reads only what the host's page cache has "
    "not got meets the bounds"
)


@dataclasses.dataclass(frozen=True)
class UmlBoot:
    """What is started."""

    binary: Path
    memory_mib: int
    identity: str  # names it among all on this host; its processes have it in their titles
    modules: Sequence[str] = ()  # names, in the order in which the agent loads them
    disks: Sequence[tuple[Path, Path]] = ()  # devices of the host that are its data disks, and where each is mounted
    root: Sequence[RootPart] = ()  # what its root consists of; empty for one that is the agent's alone
    words: Sequence[str] = ()  # of the plan, for the kernel

    def arguments(self, *, agent_descriptor: int, taps: Sequence[Tap] = ()) -> list[str]:
        """The whole command line; the descriptor is of a connected socket for the channel."""
        return [
            str(self.binary),
            *(f"mem={self.memory_mib}M", f"initrd={INITRAMFS}"),
            *(f"umid={self.identity}", f"uml_dir={STATE}", f"hostfs={VIEW}"),
            # The console is written to standard output, and nothing is read; no terminal is opened for the others.
            *("con=null", "con0=null,fd:1", "ssl=null", f"ssl0=fd:{agent_descriptor}"),
            *("quiet", "panic=-1", "noreboot"),
            # The vector driver; the older one hangs above some 100,000 packets a second.  Frames are read and written
            # one by one (``vec=0``): what sends and receives many at once is for sockets only.
            *(
                f"vec{number}:transport=fd,fd={tap.descriptors[0]},vec=0,mac={tap.mac},mtu={tap.mtu}"
                for number, tap in enumerate(taps)
            ),
            # Each write synchronous: this kernel answers a flush of its disk and does nothing for it.
            *(f"ubd{number}s={device}" for number, (device, _) in enumerate(self.disks)),
            *(("virtgauge.exports=hostfs",) if self.root else ()),
            *agent_words("serial:/dev/ttyS0", self.modules, self.root, "/", [folder for _, folder in self.disks]),
            *self.words,
        ]


class HostView:
    """A folder whose entries, numbered as the parts of the guest's root, are the host's folders.

    The agent mounts nothing but these entries by the file system ``hostfs``.  Root inside can do more: ``hostfs`` takes
    a path with ``..`` for its option, and so reads and writes all that its kernel, a process of root on the host, may.

    The folder and its empty entries are made at once; :meth:`mount` fills them for one process and its children, and
    what it mounts is gone with them.
    """

    def __init__(self, folder: Path, parts: Sequence[RootPart]) -> None:
        folder.mkdir()
        self._binds: list[tuple[bytes, bytes, int]] = []
        for number, part in enumerate(parts):
            if part.kind == "link":
                continue
            point = folder / str(number)
            point.mkdir()
            readonly = 0 if part.kind == "write" else MS_RDONLY
            self._binds.append((os.fsencode(part.source), os.fsencode(point), readonly))

    def mount(self) -> None:
        """Mount everything, in a mount namespace of this process.  For a child between fork and exec.
        Raises OSError: this user may not, or a folder is missing.
        """
        if not self._binds:
            return
        unshare_mounts()
        for source, point, readonly in self._binds:
            checked(LIBC.mount(source, point, None, MS_BIND | MS_REC, None))
            checked(LIBC.mount(b"none", point, None, MS_REMOUNT | MS_BIND | MS_NOSUID | MS_NODEV | readonly, None))


def find_registers() -> Path:
    """The library with which a kernel before 6.13 restores the registers of a processor with AMX.
    Raises UnavailableError: it is not there.
    """
    what = "the library for User Mode Linux's registers"
    return find_native("libuml_registers.so", "VIRTGAUGE_UML_REGISTERS", what, "a built one", "uml_registers")


class UmlPlatform(BootedPlatform):
    """The agent as the first process of a kernel that is a program of the host, on a serial line of its.

    A guest has one processor.  Every system call in it is caught by its kernel through ptrace, reading a clock among
    them; no hardware is virtualized or emulated.
    """

    kind: ClassVar[str] = "uml"
    label = "User Mode Linux"
    is_virtual: bool = True
    most_vcpus: ClassVar[int | None] = 1
    timeout_factor = 10.0

    class Settings(OwnDiskImage):
        """User Mode Linux. A ``kernel`` is a program of this machine: Linux built with ``ARCH=um``."""

        kernel: KernelFile | None = None
        """A kernel of your own, by its path on this machine (relative to the folder that virtgauge is started in): a
        program that may be executed. By default ``linux.uml`` on PATH, which `virtgauge provision uml` installs;
        there is no ``rt``."""
        kernel_modules: ModulesFolder | None = None
        """The folder of its modules; by default ../lib/uml/modules/RELEASE, as seen from the folder of the kernel's
        program, else /lib/modules/RELEASE, or none where neither is there."""
        memory_mib: Annotated[int, Field(ge=64)] = 512
        """Memory of a guest."""
        vcpus: Annotated[int, Field(ge=1)] | None = None
        """A guest has one processor; 1 is the only value."""

        @field_validator("vcpus")
        @classmethod
        def _there_is_one(cls, value: int | None) -> int | None:
            if value not in (None, 1):
                raise ValueError(f"{_ONE_PROCESSOR}: leave vcpus out, or set vcpus = 1")
            return value

        @field_validator("kernel")
        @classmethod
        def _is_a_program(cls, value: Path | None) -> Path | None:
            if value == REAL_TIME:
                raise ValueError("no distribution has a real-time User Mode Linux: give the path of one of your own")
            if value is not None and not os.access(value, os.X_OK):
                raise ValueError(
                    f"{value} is no program that this user may execute: chmod a+rx, or build it by ARCH=um"
                )
            return value

    settings: Settings

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, **self.settings.described(), "vcpus": 1, "nic_model": "vector"}

    def needs(self) -> tuple[str, ...]:
        return (*(() if self.settings.kernel else ("uml",)), "uml_registers", *self.settings.image_parts)

    async def _examine(self, details: dict[str, str]) -> Availability:
        self._program()
        if os.geteuid() != 0:
            raise UnavailableError(_NEEDS_ROOT + lacking("CAP_SYS_ADMIN"), AS_ROOT)
        agent, _, kernel = find_agent(), find_registers(), await self._kernel()
        await self.settings.raw_image()
        boot = functools.partial(boots, self.launch, "probe", agent)
        key = (*kernel.key, self.settings.image_key, agent.sha256)
        verdict = await judge(self.kind, key, boot, bound_s=self.settings.boot_timeout_s)
        return dataclasses.replace(verdict, details=kernel.record())

    async def launch(self, spec: GuestSpec) -> Guest:
        if spec.vcpus not in (None, 1):
            raise LaunchError("start", f"vcpus is {spec.vcpus}: {_ONE_PROCESSOR}; ask for 1, or for none")
        if os.geteuid() != 0:
            raise LaunchError("start", f"{_NEEDS_ROOT}: {AS_ROOT}")
        spec = self.settings.patient(spec)
        with contextlib.ExitStack() as removal:
            folder, cgroup = guest_place(spec, removal)
            console = folder / "console.log"
            attempt = _Attempt(spec, "User Mode Linux", console)
            disks = loop_devices(spec, removal)
            boot = await self._boot(spec, folder, disks, await self.settings.root(spec, folder, removal))
            view = HostView(folder / VIEW, boot.root)
            pair = removal.enter_context(contextlib.closing(SocketPair()))

            def command(taps: Sequence[Tap]) -> list[str]:
                words = boot.arguments(agent_descriptor=pair.theirs.fileno(), taps=taps)
                require_short(" ".join(words), LONGEST_COMMAND_LINE)
                return [*_CONFINEMENT, *words]

            # Without the folder for temporary files: the guest's memory would become a file on its disk.
            environment = {name: value for name, value in spec.scope.environment().items() if name != "TMPDIR"}
            environment["LD_PRELOAD"] = str(find_registers())
            process = start_kernel(
                attempt, cgroup, removal, command, [pair], log=console, steps=[view.mount], environment=environment
            )
            channel = await attempt.open_channel(*serial_streams(*await pair.streams()))
            await attempt.configure_network(channel, spec.nics)
            return UmlGuest(
                boot=boot,
                process=process,
                cgroup=cgroup,
                disk=_DISK if disks else None,
                disk_place=disks[0] if disks else None,
                disk_bypass=_DISK_BYPASS,
                **attempt.given(channel, self.label, removal),
            )

    async def _boot(self, spec: GuestSpec, folder: Path, disks: Sequence[Path], root: Sequence[RootPart]) -> UmlBoot:
        with stage("start", UnavailableError):
            kernel = await self._kernel()
        initramfs, modules = initramfs_with(spec.agent, kernel.modules, ("overlay",) if root else (), kernel.initrd)
        with stage("initramfs", OSError):
            (folder / INITRAMFS).symlink_to(initramfs)
            (folder / STATE).mkdir()
        return UmlBoot(
            binary=kernel.image,
            memory_mib=spec.memory_mib or self.settings.memory_mib,
            identity=f"{spec.scope.tag}-{spec.name}",
            modules=modules,
            disks=[(device, disk.folder) for device, disk in zip(disks, spec.disks, strict=True)],
            root=root,
            words=kernel.words,
        )

    def _program(self) -> Path:
        """The plan's own kernel, else the distribution's.  Raises UnavailableError: there is none."""
        return self.settings.kernel or installed("linux.uml", "User Mode Linux", f"apt install {_PACKAGE}")

    async def _kernel(self) -> BootedKernel:
        """What guests boot.  Raises UnavailableError: there is none, or it fails."""
        binary = self._program()
        fix = f"apt install --reinstall {_PACKAGE}" if self.settings.kernel is None else "give one that runs here"
        version = await version_of(binary, r"\S+", fix)  # the release, as its modules' folder is named
        # The modules are beside the program's own folder: ``/usr/lib/uml/modules/6.1.176`` for ``/usr/bin``.
        beside = binary.resolve().parent.parent / "lib" / "uml" / "modules" / version
        modules = self.settings.kernel_modules or (beside if beside.is_dir() else None)
        found = kernel_of(self.settings.model_copy(update={"kernel": binary, "kernel_modules": modules}))
        return dataclasses.replace(found, release=version)


class UmlGuest(KernelGuest):
    """A running kernel and its processes."""

    def __init__(self, *, boot: UmlBoot, **rest: Any) -> None:
        super().__init__(sandbox=True, **rest)
        self.boot = boot

    async def apply(self, policy: Policy) -> Applied:
        applied = await super().apply(policy)
        if policy.cpu_limit is None or policy.cpu_limit <= 1:
            return applied
        unused = "cpu_limit: the guest has one virtual processor, and cannot use more but for its disk"
        return dataclasses.replace(applied, no_effect=(*applied.no_effect, unused))

    async def crash(self) -> None:
        await super().crash()
        self._cgroup.kill_all()  # its disk has a process of its own


class _Attempt(ProcessAttempt):
    """An attempt that tells why the kernel gave up: a trace of its stack comes after that."""

    def end_of_process(self) -> str | None:
        ended = super().end_of_process()
        if ended is None:
            return None
        text = "".join(log.read_text(errors="replace") for log in self.logs if log.exists())
        panic = re.search(r"Kernel panic[^\r\n]*", text)
        return ended if panic is None else f"{ended} ({panic[0].strip()})"
