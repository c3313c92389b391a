"""A nested lab: an emulated machine that runs Xen, for trying the platform out where no Xen host is at hand.

It proves that everything works, `xl` and Xen being the real ones; what is timed in it is emulated, and labelled so.

A lab belongs to a scope: guests of one scope share it, so that a run pays for it once, and it ends with the scope.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import itertools
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from xen_lab.machine import (
    ARCHIVES_FOLDER,
    CARDS,
    CONSOLE_PORT,
    CONSOLES,
    DOM0_MODULES,
    KERNELS_FOLDER,
    XEN_FOLDER,
    LabMachine,
    console_socket,
)
from xen_lab.packages import LabParts, XenPackages, find_lab_parts
from xen_lab.taps import TapPool

from virtgauge.agent import AgentBinary
from virtgauge.agent.channel import AgentError, Channel, ChannelClosedError
from virtgauge.agent.messages import ProtocolError
from virtgauge.folders import cache_root
from virtgauge.host.process import wait_for_exit
from virtgauge.host.scope import Scope
from virtgauge.network import NetworkError, Nic
from virtgauge.network.namespace import Namespace
from virtgauge.platforms.attempt import ProcessAttempt, SocketPair
from virtgauge.platforms.base import GuestSpec, LaunchError
from virtgauge.platforms.boot_files import build_initramfs
from virtgauge.platforms.xen.dom0 import COMMAND_S, Dom0, Ended, GuestType, XenError
from virtgauge.provision.kernel import ModuleError, canonical, module_closure

_Result = TypeVar("_Result")

NAME = "xen-lab"
"""Begins the names of its folder, cgroup and namespace in the scope."""

_BOOT_S = 180.0
"""An idle machine needs a dozen seconds, a busy one many more."""
_SETUP = Path(__file__).with_name("setup.sh")
_ANSWER_S = 15.0
_OUTPUT_BYTES = 200_000

_labs: dict[tuple[str, GuestType], concurrent.futures.Future[LabDom0]] = {}
_labs_lock = threading.Lock()
_numbers = itertools.count()


async def lab_of(scope: Scope, guests: GuestType, agent: AgentBinary) -> LabDom0:
    """The lab of a scope, brought up at the first call; it ends with the scope.

    Raises:
        LaunchError: it does not come up.
        UnavailableError: something is missing of which it is made.
    """
    key = (scope.tag, guests)
    with _labs_lock:
        booting = _labs.get(key)
        if booting is None or (booting.done() and (booting.exception() is not None or booting.result().ended)):
            thread = LoopThread(f"{NAME} {scope.tag}")
            booting = _labs[key] = thread.submit(LabDom0.boot(scope, guests, agent, thread))
    # Whoever stops waiting does not stop it for the others.
    return await asyncio.shield(asyncio.wrap_future(booting))


class LabDom0(Dom0):
    """The dom0 of a nested lab, by its agent."""

    emulated = True
    timeout_factor = 4.0
    vif_script = "/run/vif-join"

    def __init__(
        self,
        *,
        thread: LoopThread,
        channel: Channel,
        process: subprocess.Popen[bytes],
        folder: Path,
        taps: TapPool,
        xen: XenPackages,
    ) -> None:
        """Take over what a boot has made; see :meth:`boot`."""
        self._thread, self._channel, self._process, self._taps = thread, channel, process, taps
        self._environment = {
            "LD_LIBRARY_PATH": str(XEN_FOLDER / xen.libraries.relative_to(xen.folder)),
            "PATH": ":".join(
                [*(str(XEN_FOLDER / path.relative_to(xen.folder)) for path in xen.programs), os.defpath, "/usr/sbin"]
            ),
        }
        self._consoles = LabConsoles(folder)
        self._creating = asyncio.Lock()
        """Domains are made one at a time: xl bounds what it starts meanwhile as on a real machine."""
        self._uplinks: dict[str, str] = {}
        """dom0's interfaces by hardware address."""
        self._removal = contextlib.ExitStack()
        self._watch: asyncio.Task[None] | None = None

    @classmethod
    async def boot(cls, scope: Scope, guests: GuestType, agent: AgentBinary, thread: LoopThread) -> LabDom0:
        """Start QEMU, Xen and dom0; called in the lab's own thread.

        Raises:
            LaunchError: it does not come up; nothing of it is left.
        """
        with contextlib.ExitStack() as removal:
            removal.callback(thread.stop)
            name = f"{NAME}-{next(_numbers)}"
            folder = scope.guest_folder(name)
            removal.push(_removing_after_failure(folder))
            cgroup = scope.cgroup(name)
            removal.callback(cgroup.remove)
            removal.callback(cgroup.kill_all)
            console, messages = folder / "console.log", folder / "qemu.log"
            attempt = ProcessAttempt(
                GuestSpec(name=name, scope=scope, agent=agent, ready_timeout_s=_BOOT_S), "QEMU", messages, console
            )
            parts = find_lab_parts()
            machine, xen = _machine(guests, agent, parts), parts.xen
            try:
                taps = TapPool(scope, name, CARDS)
            except NetworkError as error:
                raise LaunchError("network", str(error)) from error
            removal.callback(taps.close)
            pair = SocketPair()
            removal.callback(pair.close)
            try:
                command = machine.arguments(
                    console=console,
                    agent_descriptor=pair.theirs.fileno(),
                    taps=[(descriptor, tap.mac) for descriptor, tap in zip(taps.descriptors, taps.taps, strict=True)],
                )
            except (OSError, ValueError) as error:
                raise LaunchError("start", f"the nested Xen lab: {error}") from error
            with cgroup.entrance() as join:
                process = attempt.start(
                    command,
                    removal,
                    log=messages,
                    steps=(join,),
                    descriptors=(pair.theirs.fileno(), *taps.descriptors),
                )
            pair.theirs.close()
            taps.close_descriptors()
            channel = await attempt.open_channel(*await pair.streams())
            lab = cls(thread=thread, channel=channel, process=process, folder=folder, taps=taps, xen=xen)
            try:
                await lab._settle(xen.version)
            except XenError as error:
                raise attempt.failure("dom0", str(error)) from error
            lab._removal = removal.pop_all()
        lab._watch = asyncio.create_task(lab._until_it_ends())
        return lab

    @property
    def ended(self) -> bool:
        """Whether the machine is gone."""
        return self._channel.closed or self._process.poll() is not None

    async def run(self, argv: Sequence[str], timeout_s: float = COMMAND_S) -> Ended:
        return await asyncio.wrap_future(self._submit(argv, timeout_s))

    def run_now(self, argv: Sequence[str], timeout_s: float = COMMAND_S) -> Ended:
        try:
            return self._submit(argv, timeout_s).result(timeout_s + 2 * _ANSWER_S)
        except (concurrent.futures.CancelledError, TimeoutError) as error:
            raise XenError(f"`{' '.join(argv[:3])}`: the nested Xen lab does not answer") from error

    async def store(self, name: str, text: str) -> str:
        path = f"/run/{name}"
        await self.check(["bash", "-c", 'printf %s "$1" >"$2"', "store", text, path])
        return path

    def path_of(self, path: Path) -> Path:
        for ours, theirs in ((_kernels(), KERNELS_FOLDER), (_archives(), ARCHIVES_FOLDER)):
            if path.is_relative_to(ours):
                return theirs / path.relative_to(ours)
        raise XenError(f"dom0 does not see {path}")

    async def open_console(
        self, number: int, removal: contextlib.ExitStack
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        terminal = (await self.check(["xenstore-read", f"/local/domain/{number}/console/tty"])).strip()
        slot, reader, writer = await self._consoles.open(removal)
        loop = asyncio.get_running_loop()
        # The agent that is dom0's first process joins the two; it is no file of dom0's root.
        relay = self._submit(["/proc/1/exe", "--relay", terminal, f"virtio:{slot}"], None)
        removal.callback(relay.cancel)

        def hang_up(_: object) -> None:
            with contextlib.suppress(RuntimeError):  # a caller's loop that has ended
                loop.call_soon_threadsafe(writer.close)

        relay.add_done_callback(hang_up)
        return reader, writer

    def uplink(self, lab: Namespace, nic: Nic, removal: contextlib.ExitStack) -> str:
        return self._uplinks[self._taps.lend(lab, nic, removal).mac]

    def bridge_name(self, uplink: str) -> str:
        return f"br-{uplink}"

    async def _settle(self, version: str) -> None:
        script = _SETUP.read_text()
        argv = ["bash", "-c", script, "setup", version]
        (await self._run(argv, _BOOT_S)).checked(["bash", _SETUP.name, version])
        listing = ["bash", "-c", 'cd /sys/class/net && for each in *; do echo "$each $(<$each/address)"; done']
        for line in (await self._run(listing, COMMAND_S)).checked(listing).splitlines():
            name, _, mac = line.partition(" ")
            self._uplinks[mac] = name

    def _submit(self, argv: Sequence[str], timeout_s: float | None) -> concurrent.futures.Future[Ended]:
        try:
            if not self.ended:
                return self._thread.submit(self._run(argv, timeout_s))
        except RuntimeError:  # it has ended just now
            pass
        raise XenError("the nested Xen lab has ended")

    async def _run(self, argv: Sequence[str], timeout_s: float | None) -> Ended:
        """In the lab's own thread; without a bound, until it ends or is cancelled."""
        turn = self._creating if list(argv[:2]) == ["xl", "create"] else contextlib.nullcontext()
        try:
            async with turn:
                reply = await self._channel.request(
                    "run",
                    argv=list(argv),
                    env=self._environment,
                    timeout_ms=86_400_000 if timeout_s is None else round(timeout_s * 1000),
                    output_limit=_OUTPUT_BYTES,
                    timeout_s=None if timeout_s is None else timeout_s + _ANSWER_S,
                )
        except (AgentError, ChannelClosedError, ProtocolError, TimeoutError) as error:
            raise XenError(f"`{' '.join(argv[:3])}` in dom0: {error}") from error
        value = reply.value
        if value["timed_out"]:
            raise XenError(f"`{' '.join(argv[:3])}` did not end within {timeout_s:g} s")
        return Ended(
            value["exit_code"], value["stdout"].decode(errors="replace"), value["stderr"].decode(errors="replace")
        )

    async def _until_it_ends(self) -> None:
        """Wait for the scope's end, which kills QEMU, and let go of what this process holds of the lab."""
        while await wait_for_exit(self._process, 3600.0) is None:
            pass
        await self._channel.close()
        self._consoles.close()
        self._removal.close()


def _removing_after_failure(folder: Path) -> Callable[[object, object, object], None]:
    """The folder of a lab that has come up is the scope's, which may be removing it when the lab ends."""

    def remove(kind: object, _error: object, _traceback: object) -> None:
        if kind is not None:
            shutil.rmtree(folder, ignore_errors=True)

    return remove


def _kernels() -> Path:
    return cache_root() / "vmlinux"


def _archives() -> Path:
    return cache_root() / "initramfs"


def _machine(guests: GuestType, agent: AgentBinary, parts: LabParts) -> LabMachine:
    for folder in (_kernels(), _archives()):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        modules = module_closure(parts.kernel.modules, DOM0_MODULES)
        initramfs = build_initramfs(agent, modules, _archives())
    except (ModuleError, OSError) as error:
        raise LaunchError("start", str(error)) from error
    return LabMachine(
        binary=parts.qemu,
        guests=guests,
        hypervisor=parts.xen.image,
        kernel=parts.kernel.image,
        initramfs=initramfs,
        modules=[canonical(path.stem) for path in modules],
        xen=parts.xen.folder,
        kernels=_kernels(),
        archives=_archives(),
    )


class LabConsoles:
    """The sockets by number.

    Each use is a connection of its own, so that nothing of one guest is left for the next.
    """

    def __init__(self, folder: Path) -> None:
        # A socket's path may be a hundred bytes long, and a folder's may be longer.
        self._folder = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._lock = threading.Lock()
        self._free = list(range(CONSOLES))

    async def open(self, removal: contextlib.ExitStack) -> tuple[str, asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a free one.

        Args:
            removal: gets what closes it.

        Returns:
            the name of its port in dom0, and the streams.

        Raises:
            XenError: none is free, or QEMU is gone.
        """
        with self._lock:
            if not self._free:
                raise XenError(f"the {CONSOLES} consoles of the nested Xen lab are all in use; end a guest first")
            number = self._free.pop(0)
        try:
            path = f"/proc/self/fd/{self._folder}/{console_socket(number)}"
            reader, writer = await asyncio.open_unix_connection(path)
        except BaseException as error:
            self._give_back(number)
            if isinstance(error, OSError):
                raise XenError(f"the nested Xen lab has no console {number}: {error}") from error
            raise
        removal.callback(self._give_back, number)
        removal.callback(writer.close)
        return f"{CONSOLE_PORT}.{number}", reader, writer

    def close(self) -> None:
        """Forget the folder."""
        os.close(self._folder)

    def _give_back(self, number: int) -> None:
        with self._lock:
            self._free.append(number)


class LoopThread:
    """Runs coroutines for other threads until it is stopped.  It does not keep the process alive."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, _Result]) -> concurrent.futures.Future[_Result]:
        """Start a coroutine there; its result can be awaited by :func:`asyncio.wrap_future` or waited for.

        Raises:
            RuntimeError: it was stopped.
        """
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            work.close()
            raise

    def stop(self) -> None:
        """End the loop after what it is doing; idempotent."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            pending = asyncio.all_tasks(self._loop)
            for task in pending:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
            self._loop.close()
