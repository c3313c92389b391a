"""QEMU's monitor (QMP) of a guest: watched for the guest's end, and asked what of a plan's settings is in force.

QEMU keeps running when it cannot go on with its guest: after an error inside KVM, or of a disk's image.  The guest then
stands still, and whoever waited for it would wait until some bound.

Of each setting that is given there is a reader, which asks the monitor or the host after QEMU's threads were placed;
what it finds is recorded with the guest, and anything else than what was asked for is a failed launch.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
import os
import re
import subprocess
from collections.abc import Awaitable, Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from qemu.qmp import ExecuteError, QMPClient, QMPError

from virtgauge.errors import UnavailableError
from virtgauge.host.lending import hold_device, hold_value
from virtgauge.host.process import cpu_list, isolated_cpus, threads_of, wait_for_exit
from virtgauge.host.realtime_settings import timer_advance
from virtgauge.network.links import MACVTAP_FILE
from virtgauge.platforms.attempt import SocketPair
from virtgauge.platforms.base import GuestSpec, LaunchError, stage
from virtgauge.platforms.qemu.command import Boot
from virtgauge.platforms.qemu.refusals import HALT_POLL, Asked, refusals
from virtgauge.platforms.qemu.tuning import CACHES, FIELD, IOTHREAD, MEMORY, PAGE_MIB, Tuning

_EXIT_S = 1.0
_ERRORS = (QMPError, OSError, EOFError, TimeoutError)
_STOPPED = {
    "internal-error": "for an internal error of its accelerator",
    "io-error": "for an error of a disk's image",
    "guest-panicked": "for a panic of the guest's kernel",
}
"""By QEMU's run states (``qapi/run-state.json``); those of a guest that ends as it should are none of them."""
UNTOLD = "given; neither QEMU nor the host tells"
_STAGE = "tuning"
_BOUND_S = 60.0
_CLASSES = {os.SCHED_OTHER: "other", os.SCHED_FIFO: "fifo", os.SCHED_RR: "rr"}
_TUN = "/dev/net/tun"

# The client reports every broken connection, and a machine that powers off breaks its own.
logging.getLogger("qemu.qmp").addHandler(logging.NullHandler())


class Monitor:
    """The monitor behind a socket that a QEMU has inherited, from that QEMU's start on."""

    def __init__(self, pair: SocketPair, stopped: Callable[[str], None]) -> None:
        """Begin to connect, and to watch: ``stopped`` is told, in words, that QEMU has stopped the guest."""
        self._client, self._stopped = QMPClient("virtgauge"), stopped
        self._connecting = asyncio.create_task(self._connect(pair))
        self._watching = asyncio.create_task(self._watch())

    async def connected(self, within_s: float) -> QMPClient:
        """The client, for commands.  Raises QMPError, OSError, EOFError, TimeoutError: the monitor does not answer."""
        await asyncio.wait_for(asyncio.shield(self._connecting), within_s)
        return self._client

    async def _connect(self, pair: SocketPair) -> None:
        await self._client.connect(pair.ours.dup())  # which is the client's to close, whenever the pair is

    async def _watch(self) -> None:
        with contextlib.suppress(*_ERRORS):
            try:
                await self._connecting
                with self._client.listener("STOP") as stops:
                    while True:
                        answer: Any = await self._client.execute("query-status")
                        if why := _STOPPED.get(str(answer["status"])):
                            self._stopped(f"QEMU has stopped the guest {why}")
                        await stops.get()
            finally:
                await self._client.disconnect()

    def abandon(self) -> None:
        """Give the connection up, without waiting for that."""
        self._connecting.cancel()
        self._watching.cancel()

    async def close(self) -> None:
        """Give the connection up, and wait a moment for its end."""
        self.abandon()
        await asyncio.wait([self._connecting, self._watching], timeout=_EXIT_S)

    async def power_off(self, process: subprocess.Popen[bytes], within_s: float) -> None:
        """Wait for the machine that its agent powers off; else tell QEMU to end.  What then remains is killed."""
        if await wait_for_exit(process, within_s) is None:
            with contextlib.suppress(*_ERRORS):
                async with asyncio.timeout(_EXIT_S):
                    await self._client.execute("quit")
            await wait_for_exit(process, _EXIT_S)
        await self.close()


@dataclasses.dataclass(frozen=True)
class Threads:
    """The threads of QEMU's process, by what they do."""

    vcpus: tuple[int, ...]  # in order
    iothreads: tuple[int, ...]
    others: tuple[int, ...]


class InForce:
    """The settings in force of one running guest."""

    def __init__(self, monitor: QMPClient, pid: int, boot: Boot, nics: int = 0) -> None:
        """Take one of so many interfaces."""
        self._monitor, self._pid, self._tuning, self._nics = monitor, pid, boot.tuning, nics
        self._memory_kib, self._disks = boot.memory_mib * 1024, [drive.serial for drive in boot.drives]

    async def place_threads(self, allowed: Collection[int] | None = None) -> None:
        """Put each thread where the plan wants it, and into its scheduling class.

        ``allowed`` are the CPUs that whoever launches the guest gives it; None are all.
        Raises LaunchError: the kernel refuses, or a CPU is none of these.
        """
        tuning, threads = self._tuning, await self._threads()
        wanted = {*tuning.vcpu_cpus, *tuning.emulator_cpus, *tuning.iothread_cpus}
        if allowed is not None and not wanted <= set(allowed):
            own, given = sorted(wanted), sorted(allowed)
            said = f"its threads belong on the CPUs {own}, and the suite confines the guest to {given}"
            raise LaunchError(_STAGE, f"{said}; name no CPUs in the plan's {FIELD} for that suite")
        try:
            for thread, cpu in zip(threads.vcpus, tuning.vcpu_cpus, strict=False):
                os.sched_setaffinity(thread, [cpu])
            if tuning.iothread_cpus:
                for thread in threads.iothreads:
                    os.sched_setaffinity(thread, tuning.iothread_cpus)
            if tuning.emulator_cpus:
                placed: set[int] = set()
                while further := {*(await self._threads()).others} - placed:  # one may have made another meanwhile
                    for thread in further:
                        with contextlib.suppress(ProcessLookupError):  # those that work for a while end by themselves
                            os.sched_setaffinity(thread, tuning.emulator_cpus)
                    placed |= further
            if tuning.vcpu_scheduling is not None:
                name, _, priority = tuning.vcpu_scheduling.partition(":")
                number = next(number for number, known in _CLASSES.items() if known == name)
                for thread in threads.vcpus:
                    os.sched_setscheduler(thread, number, os.sched_param(int(priority or 0)))
        except (QMPError, OSError) as error:
            raise LaunchError(_STAGE, f"a thread of QEMU cannot be placed: {error}") from error

    async def read(self) -> dict[str, str]:
        """What is in force of each setting that the plan gives and this guest has a use for, by its name.
        Raises LaunchError: something else than the plan asks for, or it cannot be read.
        """
        found: dict[str, str] = {}
        differences = list[str]()
        of_nics = self._tuning.of_nics
        for field, asked in self._tuning.given().items():
            if (field in of_nics and not self._nics) or (field.startswith("disk_") and not self._disks):
                continue  # a guest without an interface, or without a disk
            try:
                told = await READERS[field](self)
            except (QMPError, OSError, KeyError, IndexError, ValueError) as error:
                differences.append(f"asked for {field} = {_words(asked)}, and it cannot be read back: {error!r}")
                continue
            found[f"{FIELD}.{field}"] = told
            if told not in (_words(asked), UNTOLD):
                differences.append(f"asked for {field} = {_words(asked)}, in force is {told}")
        if differences:
            raise LaunchError(_STAGE, f"{'; '.join(differences)}; give what can be in force here, or leave it out")
        return found

    async def _ask(self, command: str, **arguments: Any) -> Any:
        return await self._monitor.execute(command, arguments or None)

    async def _property(self, path: str, name: str) -> Any:
        return await self._ask("qom-get", path=path, property=name)

    async def _processors(self) -> list[str]:
        return [one["qom-path"] for one in await self._ask("query-cpus-fast")]

    async def _threads(self) -> Threads:
        vcpus = await vcpu_threads(self._monitor)
        iothreads = tuple(one["thread-id"] for one in await self._ask("query-iothreads"))
        return Threads(vcpus, iothreads, tuple(one for one in threads_of(self._pid) if one not in (*vcpus, *iothreads)))

    async def _found(self, kind: str, path: str = "/machine") -> str | None:
        """Where the first device of a kind is among the machine's; None where it has none."""
        for one in await self._ask("qom-list", path=path):
            below = f"{path}/{one['name']}"
            if one["type"] == f"child<{kind}>":
                return below
            if one["type"].startswith("child<") and (found := await self._found(kind, below)):
                return found
        return None

    def _memory(self) -> tuple[str, dict[str, str]]:
        """Address and fields (KiB, as text) of the guest's memory, as the kernel lists it of QEMU's process.

        Of all mappings it is the one of the guest's size: QEMU keeps it apart from its own by what a fork does with it.
        """
        address, fields = "", dict[str, str]()
        for line in Path(f"/proc/{self._pid}/smaps").read_text().splitlines():
            name, colon, value = line.partition(":")
            if colon and " " not in name:
                fields[name] = value.split(" kB")[0].strip()
                if name == "VmFlags" and int(fields["Size"]) == self._memory_kib:
                    return address, fields
            else:
                address, fields = line.partition("-")[0], {}
        raise ValueError("QEMU has no mapping of the size of the guest's memory")

    def _files(self) -> list[str]:
        folder, found = Path(f"/proc/{self._pid}/fd"), []
        for one in os.listdir(folder):
            with contextlib.suppress(OSError):  # closed meanwhile
                found.append(os.readlink(folder / one))
        return found

    def _carriers(self) -> list[str]:
        """Files through which frames come and go."""
        return [one for one in self._files() if one == _TUN or one.startswith(MACVTAP_FILE)]

    async def cpu_model(self) -> str:
        found = set()
        for path in await self._processors():
            lacks = await self._property(path, "unavailable-features")
            model = str(await self._property(path, "type")).removesuffix("-x86_64-cpu")
            found.add(model + (f" without {', '.join(sorted(lacks))}" if lacks else ""))
        return " and ".join(sorted(found))

    async def cpu_flags(self) -> str:
        told = []
        for flag in self._tuning.cpu_flags:
            on = {bool(await self._property(path, flag[1:])) for path in await self._processors()}
            told.append(("±" if len(on) > 1 else "+" if True in on else "-") + flag[1:])
        return _words(told)

    async def _topology(self, name: str) -> str:
        return str((await self._property("/machine", "smp"))[name])

    async def vcpu_cpus(self) -> str:
        return _words([",".join(map(str, sorted(cpus))) for cpus in _allowed(self._pid, (await self._threads()).vcpus)])

    async def emulator_cpus(self) -> str:
        return _common(self._pid, (await self._threads()).others, self._tuning.emulator_cpus)

    async def iothread_cpus(self) -> str:
        return _common(self._pid, (await self._threads()).iothreads, self._tuning.iothread_cpus)

    async def isolated_cpus(self) -> str:
        return _words(isolated_cpus() >= set(self._tuning.vcpu_cpus))

    async def vcpu_scheduling(self) -> str:
        found = set()
        for thread in (await self._threads()).vcpus:
            # A child of the thread would be of the plain class: a flag beside the class says so.
            number = os.sched_getscheduler(thread) & ~os.SCHED_RESET_ON_FORK
            priority = os.sched_getparam(thread).sched_priority
            found.add(_CLASSES.get(number, str(number)) + (f":{priority}" if priority else ""))
        return " and ".join(sorted(found))

    async def halt_poll_ns(self) -> str:
        return Path("/", HALT_POLL).read_text().strip()

    async def timer_advance(self) -> str:
        return _words(timer_advance())

    async def hugepages(self) -> str:
        pages = int(self._memory()[1]["KernelPageSize"])
        return next((name for name, mib in PAGE_MIB.items() if mib * 1024 == pages), f"{pages} KiB")

    async def memory_prealloc(self) -> str:
        _, fields = self._memory()
        present = sum(int(fields.get(name, 0)) for name in ("Rss", "Private_Hugetlb", "Shared_Hugetlb"))
        whole = present >= self._memory_kib
        backend = next(one for one in await self._ask("query-memdev") if one["id"] == MEMORY)
        if bool(backend["prealloc"]) and not whole:
            return f"true, but {present} of {self._memory_kib} KiB are there"
        return _words(bool(backend["prealloc"]))

    async def memory_locked(self) -> str:
        return _words(int(self._memory()[1].get("Locked", 0)) >= self._memory_kib)

    async def numa_node(self) -> str:
        address, _ = self._memory()
        lines = Path(f"/proc/{self._pid}/numa_maps").read_text().splitlines()
        policy = next(line.split()[1] for line in lines if line.split()[0] == address)
        bound = re.fullmatch(r"bind(?:=static)?:(\d+)", policy)
        return bound[1] if bound else policy

    async def _of_nics(self, name: str) -> str:
        said = [await self._property(f"/machine/peripheral/nic{number}", name) for number in range(self._nics)]
        return _words(_same(said))

    async def nic_backend(self) -> str:
        return " and ".join(sorted({"tap" if one == _TUN else "macvtap" for one in self._carriers()}))

    async def vhost(self) -> str:
        if self._files().count("/dev/vhost-net") < self._nics:
            return _words(False)
        try:
            known = [one["path"] for one in await self._ask("x-query-virtio")]
        except ExecuteError:  # before QEMU 7.2
            return _words(True)
        nics = [one for one in known if re.match(r"/machine/peripheral/nic\d+\b", one)]
        started = [(await self._ask("x-query-virtio-status", path=one))["vhost-started"] for one in nics]
        return _words(len(started) == self._nics and all(started))

    async def vhost_user(self) -> str:
        said = {one["label"]: one for one in await self._ask("query-chardev")}
        paths = enumerate(map(str, self._tuning.vhost_user))
        # Its frontend-open tells of the device only.
        return _words([one for at, one in paths if not said[f"switch{at}"]["filename"].startswith("disconnected:")])

    async def nic_queues(self) -> str:
        several = await self._of_nics("mq")
        if not (carriers := self._carriers()):
            return UNTOLD  # how many the switch serves is its own
        queues = len(carriers) // self._nics
        return str(queues) if several == _words(queues > 1) else f"{queues}, and mq is {several}"

    async def pci_devices(self) -> str:
        paths = [f"/machine/peripheral/pci{number}" for number in range(len(self._tuning.pci_devices))]
        return _words([await self._property(path, "host") for path in paths])

    async def _of_disks(self, name: str) -> str:
        return _words(_same([await self._property(f"/machine/peripheral/{one}-device", name) for one in self._disks]))

    async def disk_cache(self) -> str:
        told = {one["device"]: one["inserted"]["cache"] for one in await self._ask("query-block") if "inserted" in one}
        modes = [tuple(told[name][part] for part in ("writeback", "direct", "no-flush")) for name in self._disks]
        return _words(_same([next((n for n, made in CACHES.items() if made == mode), str(mode)) for mode in modes]))

    async def disk_aio(self) -> str:
        if "/[aio]" in Path(f"/proc/{self._pid}/maps").read_text():
            return "native"
        if (await self._ask("query-version"))["qemu"]["major"] >= 10:  # which waits for everything by an io_uring
            return UNTOLD
        # The thread of the disks has one of its own for what it waits for.
        rings = self._files().count("anon_inode:[io_uring]")
        return "io_uring" if rings > len((await self._threads()).iothreads) else "threads"

    async def disk_iothread(self) -> str:
        return _words(await self._of_disks("iothread") == f"/objects/{IOTHREAD}")

    async def hpet(self) -> str:
        return _words(bool(await self._property("/machine", "hpet")))

    async def pit(self) -> str:
        return _words({"on": True, "off": False}.get(told := await self._property("/machine", "pit"), told))

    async def _lost_ticks(self, kind: str) -> str:
        path = await self._found(kind)
        return f"no {kind}" if path is None else str(await self._property(path, "lost_tick_policy"))

    async def untold(self) -> str:
        return UNTOLD


def make_ready(asked: Asked, scope_folder: Path, removal: contextlib.ExitStack) -> None:
    """Set what has to be so on the host before a guest starts, until ``removal``.
    Raises LaunchError: something that is asked for cannot be had here.
    """
    if refused := refusals(asked):
        raise LaunchError(_STAGE, "; ".join(f"{one}; {one.remedy}" for one in refused))
    with stage(_STAGE, UnavailableError):
        if asked.tuning.halt_poll_ns is not None:
            removal.callback(hold_value(asked.root / HALT_POLL, str(asked.tuning.halt_poll_ns), scope_folder))
        for address in asked.tuning.pci_devices:
            removal.callback(hold_device(address, scope_folder, asked.root))


async def enforce(monitor: QMPClient, pid: int, boot: Boot, spec: GuestSpec) -> dict[str, str]:
    """Place the threads of a guest that came up, and read all back.  Raises LaunchError: something is not in force."""
    if not boot.tuning.given():
        return {}
    guest = InForce(monitor, pid, boot, len(spec.nics))
    try:
        async with asyncio.timeout(_BOUND_S):
            await guest.place_threads(spec.cpus)
            return await guest.read()
    except TimeoutError as error:
        raise LaunchError(_STAGE, f"QEMU's monitor does not tell within {_BOUND_S:g} s what is in force") from error


READERS: dict[str, Callable[[InForce], Awaitable[str]]] = {
    **{name: getattr(InForce, name) for name in Tuning.model_fields if hasattr(InForce, name)},
    **{name: functools.partial(InForce._topology, name=name) for name in ("sockets", "cores", "threads")},
    "nic_mergeable": functools.partial(InForce._of_nics, name="mrg_rxbuf"),
    "nic_tx": functools.partial(InForce._of_nics, name="tx"),
    "disk_discard": functools.partial(InForce._of_disks, name="discard"),
    "disk_queues": functools.partial(InForce._of_disks, name="num-queues"),
    "rtc_lost_ticks": functools.partial(InForce._lost_ticks, kind="mc146818rtc"),
    "pit_lost_ticks": functools.partial(InForce._lost_ticks, kind="kvm-pit"),
    "cpu_pm": InForce.untold,
    "qemu_options": InForce.untold,
}
"""By field of :class:`Tuning`: each has one."""


async def vcpu_threads(monitor: QMPClient) -> tuple[int, ...]:
    """The threads that are a guest's processors, by its numbers of these. Raises QMPError."""
    every: Any = await monitor.execute("query-cpus-fast")
    return tuple(one["thread-id"] for one in sorted(every, key=lambda one: int(one["cpu-index"])))


def thread_cpus(pid: int) -> tuple[int, ...]:
    """The CPUs on which some thread of a process may run.  Raises OSError: it is gone."""
    return tuple(sorted(frozenset[int]().union(*_allowed(pid, threads_of(pid)))))


def _allowed(pid: int, threads: Sequence[int]) -> list[frozenset[int]]:
    """Of each thread the CPUs that it may run on; nothing of one that has ended."""
    found = []
    for thread in threads:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            text = Path(f"/proc/{pid}/task/{thread}/status").read_text()
            found.append(cpu_list(text.partition("\nCpus_allowed_list:")[2].split()[0]))
    return found


def _common(pid: int, threads: Sequence[int], asked: Sequence[int]) -> str:
    """The CPUs of several threads, as they were asked for where they are those."""
    found = set(_allowed(pid, threads))
    return _words(asked) if found == {frozenset(asked)} else " and ".join(sorted(_words(sorted(one)) for one in found))


def _same(values: Sequence[Any]) -> Any:
    """What all of them are; else all."""
    return values[0] if values and all(one == values[0] for one in values) else list(values)


def _words(value: Any) -> str:
    """A value as a plan would have it, in a way that two can be compared."""
    if isinstance(value, bool):
        return str(value).lower()
    return " ".join(map(_words, value)) if isinstance(value, list | tuple) else str(value)
