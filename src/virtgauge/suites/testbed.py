"""What a session measures on: one guest as a rule, or a laboratory of several guests, peers and networks."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import shutil
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, Self

import numpy as np

from virtgauge.agent import AgentBinary
from virtgauge.agent.channel import Channel
from virtgauge.errors import VirtgaugeError
from virtgauge.host.mounts import make_disk_image
from virtgauge.host.process import KernelThreads, text_of
from virtgauge.host.scope import Scope
from virtgauge.network import Nic
from virtgauge.network.namespace import Namespace
from virtgauge.platforms.base import Accounting, Disk, Guest, GuestSpec, Platform
from virtgauge.platforms.base import stage as launching
from virtgauge.platforms.local import HostPlatform
from virtgauge.platforms.remote import RemoteHost

# The two ends of a link that joins one guest to one peer, which is alone with it in a namespace.
GUEST_ADDRESS, PEER_ADDRESS, _PREFIX = "10.212.0.1", "10.212.0.2", 24
_LINK = "link"
GUEST_END = Nic(port=_LINK, mac="52:54:00:db:00:01", addresses=(f"{GUEST_ADDRESS}/{_PREFIX}",))
_READING_SHARE = 0.1
"""Of the time may go into reading: where a hypervisor's toolstack has to be asked, that is work beside the guests."""


async def address_peer(peer: Channel) -> None:
    """Give the peer's end of the link its address; anew whenever the guest's end was gone meanwhile."""
    interface = {"name": _LINK, "addresses": [f"{PEER_ADDRESS}/{_PREFIX}"]}
    await peer.request("network", interfaces=[interface], forwarding=False, timeout_s=30.0)


def allowed_cpus() -> tuple[int, ...]:
    """The CPUs of this machine that this process may use."""
    return tuple(sorted(os.sched_getaffinity(0)))


def core_of(cpu: int) -> str:
    """The same for threads of one core; a machine that does not say has a core for each."""
    return text_of(Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")) or str(cpu)


def allowed_cores() -> list[tuple[int, ...]]:
    """The CPUs that may be used here, those together that are threads of one core."""
    cpus = sorted(allowed_cpus(), key=lambda cpu: (core_of(cpu), cpu))
    return sorted(tuple(threads) for _, threads in itertools.groupby(cpus, key=core_of))


class Beside:
    """CPU time of guests that are measured at the same time; only differences count, and they never jump."""

    def __init__(self) -> None:
        self._seen, self._gone_ns = dict[Stage, int](), 0

    def join(self, stage: Stage) -> None:
        """From now on its guests' time counts; what they have used so far does not."""
        stage.beside = self
        self._gone_ns -= self._used(stage)

    def leave(self, stage: Stage) -> None:
        """Its guests are about to end. Idempotent."""
        if stage in self._seen:
            self._gone_ns += self._used(stage)
            del self._seen[stage]

    def cpu_ns(self, but: Stage) -> int:
        """Of all that are or were here but one, which is the one that asks, from any beginning."""
        return self._gone_ns + sum(self._used(stage) for stage in list(self._seen) if stage is not but)

    def _used(self, stage: Stage) -> int:
        """So far; a guest that has died tells none any more."""
        now = sum(guest.accounting().cpu_ns or 0 for guest in stage.guests)
        self._seen[stage] = max(self._seen.get(stage, 0), now)
        return self._seen[stage]


class Stage:
    """Launches what a testbed consists of, and ends all of it together.

    Launches raise LaunchError where one does not come up; several can be under way at once.
    """

    def __init__(
        self,
        platform: Platform,
        scope: Scope,
        agent: AgentBinary,
        name: str,
        remote: RemoteHost | None = None,
        cpus: tuple[int, ...] | None = None,
    ) -> None:
        self.platform = platform
        self.scope = scope  # whatever is made on the host belongs to it
        self.remote = remote  # the machine on which peers with interfaces are launched; None where that is this one
        self.machine = platform.machine()  # whose counters judge what is measured here
        self.guests: list[Guest] = []  # of the platform under test, in the order of their launch
        self.peers: list[Guest] = []  # agents beside them that help to measure: a client, a tester
        self.beside: Beside | None = None  # others that are measured at the same time
        self.cpus = cpus  # that all of it may run on; None: all of this machine's
        self._agent = agent  # for guests and peers alike
        self._name = name  # unique within the scope; the names of guests, peers and networks begin with it
        self._removal = contextlib.ExitStack()
        self._charged: list[Callable[[], int | None]] = []
        # Threads of the kernel work for the testbed, and their CPU time cannot be read here.
        self.kernel_work_hidden = False

    async def launch(self, name: str = "", **wanted: Any) -> Guest:
        """A further guest of the platform under test, by fields of :class:`GuestSpec`."""
        return await self._launch(self.platform, self.guests, name, wanted)

    async def launch_second(self, name: str, **wanted: Any) -> Guest:
        """A guest on the second of two machines that exist already, or another simulated one."""
        return await self._launch(self.platform.peer or self.platform, self.guests, name, wanted)

    async def launch_helper(self, name: str) -> Guest:
        """An agent on the second of two machines that exist already, of which only the first is under test."""
        assert self.platform.peer is not None
        return await self._launch(self.platform.peer, self.peers, name, {})

    async def launch_peer(self, name: str, **wanted: Any) -> Guest:
        """An agent on the host, beside the guests, or on the tester's; its CPU time is not theirs.
        Raises RemoteHostLostError: the tester's host cannot be reached.
        """
        if self.remote is None or not wanted.get("nics"):
            return await self._launch(HostPlatform(), self.peers, name, wanted)
        # CPUs are this machine's, and the other's are nobody else's anyway.
        return await self._launch(self.remote, self.peers, name, {**wanted, "cpus": None})

    async def _launch(self, platform: Platform, among: list[Guest], name: str, wanted: dict[str, Any]) -> Guest:
        spec = GuestSpec(name=self.name(name), scope=self.scope, agent=self._agent, **{"cpus": self.cpus} | wanted)
        guest = await platform.launch(spec)
        among.append(guest)
        return guest

    async def together(self, *launches: Coroutine[Any, Any, Guest]) -> list[Guest]:
        """Launches at the same time; the first failure is raised, and the others are given up.

        Among :attr:`guests` they are in this order, not in that of their readiness.
        """
        under_way = [asyncio.ensure_future(launch) for launch in launches]
        try:
            launched = await asyncio.gather(*under_way)
        finally:
            for launch in under_way:
                launch.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)  # whatever still comes up is the stage's by then
        self.guests.sort(key=lambda guest: launched.index(guest) if guest in launched else -1)
        return launched

    def name(self, part: str) -> str:
        return f"{self._name}-{part}" if part else self._name

    def charge(self, cpu_ns: Callable[[], int | None]) -> None:
        """Count the CPU time of something that belongs to the testbed but is neither guest nor peer (a switch)."""
        self._charged.append(cpu_ns)

    def charge_kernel_threads(self) -> None:
        """Count what the kernel's threads work as the testbed's own: they write its disks and forward its packets."""
        threads = KernelThreads()
        self.kernel_work_hidden = not threads.visible
        self.charge(threads.cpu_ns)

    def scratch_folder(self, part: str) -> Path:
        """A folder on a real disk (:meth:`Scope.scratch_folder`) that goes with the testbed."""
        folder = self.scope.scratch_folder(self.name(part))
        self.at_end(lambda: shutil.rmtree(folder, ignore_errors=True))
        return folder

    def make_disk(self, part: str, mib: int) -> Disk:
        """An empty data disk for a guest. Raises LaunchError: it cannot be made."""
        with launching("disk", VirtgaugeError, OSError):
            image = self.scratch_folder(f"{part}-image") / "disk.img"
            make_disk_image(image, mib)
        return Disk(image, self.scope.folder / self.name(part))

    def make_lab(self, part: str = "lab", *, forwarding: bool = False) -> Namespace:
        """A network of the testbed's own. Raises NetworkError: it cannot be made."""
        lab = Namespace(self.scope, self.name(part), forwarding=forwarding)
        self.at_end(lab.close)
        return lab

    def at_end(self, remove: Callable[[], object]) -> None:
        """Undo something that was made for the testbed; called after guests and peers have ended, last made first."""
        self._removal.callback(remove)

    def accounting(self) -> Accounting:
        """This machine's CPU time of the guests under test together; not known where any of them has another's.

        What takes from this machine matters also where only a peer, such as the client, works on it.
        """
        each = [guest.accounting() for guest in self.guests]
        times = [one.cpu_ns for one in each if one.cpu_ns is not None and one.of_this_machine]
        return Accounting(
            cpu_ns=sum(times) if len(times) == len(each) else None,
            method=each[0].method,
            of_this_machine=any(one.of_this_machine for one in each)
            or any(peer.accounting().of_this_machine for peer in self.peers),
        )

    def confined_to(self) -> tuple[int, ...]:
        """The CPUs that guests and peers of this machine may run on; empty where that is not known of one of them."""
        here = (one for one in (*self.guests, *self.peers) if one.accounting().of_this_machine)
        each = [one.confinement().cpus or () for one in here]
        return tuple(sorted(set[int]().union(*each))) if all(each) else ()

    def peers_cpu_ns(self) -> int:
        """CPU time of what the run has made but is not under test here; what is not known counts as none."""
        times = [peer.accounting().cpu_ns for peer in self.peers] + [charged() for charged in self._charged]
        return sum(time for time in times if time is not None) + (self.beside.cpu_ns(but=self) if self.beside else 0)

    async def close(self) -> None:
        """End everything.  Idempotent."""
        removal, self._removal = self._removal, contextlib.ExitStack()
        with removal:
            ended = await asyncio.gather(*(one.close() for one in (*self.guests, *self.peers)), return_exceptions=True)
            for failure in ended:
                if isinstance(failure, BaseException):
                    raise failure


class Testbed:
    """A stage with everything on it, ready to be measured.  Suites derive their own."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self._spoiled = False

    @classmethod
    async def of_one_guest(cls, stage: Stage) -> Self:
        await stage.launch()
        return cls(stage)

    @property
    def guest(self) -> Guest:
        return self.stage.guests[0]

    @property
    def closed(self) -> bool:
        """Whether the testbed is of no further use: it is spoiled, or one of its agents can no longer be reached."""
        return self._spoiled or any(one.channel.closed for one in (*self.stage.guests, *self.stage.peers))

    def spoil(self) -> None:
        """A trial left it in an unknown state, something may still be at work on it: the next needs a fresh one."""
        self._spoiled = True

    @property
    def timeout_factor(self) -> float:
        """How many times longer than on a physical machine a trial may take, by what its slowest agent declares."""
        return max(one.channel.timeout_factor for one in (*self.stage.guests, *self.stage.peers))

    @property
    def ready_ns(self) -> int:
        return max(guest.ready_ns for guest in self.stage.guests)


class CpuRecord:
    """Readings of an account of CPU time, which is None where it is not known; it begins with one."""

    def __init__(self, cpu_ns: Callable[[], int | None]) -> None:
        self._cpu_ns = cpu_ns
        self._times: list[int] = []
        self._charged: list[int] = []
        self.read()

    def read(self) -> None:
        charged = self._cpu_ns()
        if charged is not None:
            self._times.append(time.monotonic_ns())
            self._charged.append(charged)

    def between(self, start_ns: int, end_ns: int) -> int | None:
        """CPU time from one moment of CLOCK_MONOTONIC to another, between readings by their straight line.

        None where the account is not known, or the moments lie outside of what was read.
        """
        if len(self._times) < 2 or not self._times[0] <= start_ns <= end_ns <= self._times[-1]:
            return None
        # Relative to the first, so that nothing is lost to a float's 53 bits.
        times = np.array(self._times, dtype=np.int64) - self._times[0]
        charged = np.array(self._charged, dtype=np.int64) - self._charged[0]
        moments = np.array([start_ns, end_ns], dtype=np.int64) - self._times[0]
        first, last = np.interp(moments, times, charged)
        return round(float(last - first))

    @property
    def total_ns(self) -> int | None:
        """CPU time from the first reading to the last; None where the account is not known."""
        return self._charged[-1] - self._charged[0] if len(self._charged) > 1 else None


@contextlib.asynccontextmanager
async def recorded(*accounts: Callable[[], int | None], every_s: float = 0.02) -> AsyncIterator[list[CpuRecord]]:
    """A record of each account, kept during the block; all are read at the same moments, and last at its end.

    A thread reads them: it takes half as long to wake up as the event loop, beside guests that are being measured.
    Accounts that take long to read are read less often, so that reading takes a tenth of the time at most.
    """
    records = [CpuRecord(cpu_ns) for cpu_ns in accounts]
    block = threading.Lock()  # held by it; an Event would wake the thread up by way of two more objects

    def keep() -> None:
        pause_s = every_s
        while not block.acquire(timeout=pause_s):
            began = time.monotonic()
            for record in records:
                record.read()
            pause_s = max(every_s, (time.monotonic() - began) / _READING_SHARE)

    thread = threading.Thread(target=keep, name="cpu record", daemon=True)
    block.acquire()
    thread.start()
    try:
        yield records
    finally:
        block.release()
        thread.join()
        for record in records:
            record.read()
