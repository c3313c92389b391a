"""The dask.distributed cluster: an existing one, or one that lives as long as the run.

What is said to workers goes through it; who they are and what they answer is judged elsewhere.  Its members prove
themselves by certificates, over TLS 1.3 only, and keep still: by default a process of a cluster wakes fifty times a
second to check on its own loop, twice to look at the load, twice to tell the scheduler, and a hundred times to profile.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import functools
import itertools
import logging
import math
import signal
import time
from collections.abc import AsyncIterator, Callable, Collection
from typing import TYPE_CHECKING, Any

from virtgauge.errors import UnavailableError, UsageError, VirtgaugeError
from virtgauge.fleet import work
from virtgauge.host.process import memory_file
from virtgauge.plan.fleet import FleetSection

if TYPE_CHECKING:
    from distributed import Client, Scheduler
    from distributed.security import Security


_held = contextlib.ExitStack()


@functools.cache
def _path(pem: str) -> str:
    """Of a file with it, which is in memory until this process ends: dask would write it to a disk, for a moment."""
    return _held.enter_context(memory_file(pem)) if "\n" in pem else pem


@dataclasses.dataclass(frozen=True)
class TlsFiles:
    """An authority, a certificate that it signed, and its key: paths of PEM files, or PEM itself."""

    ca: str
    certificate: str
    key: str

    def security(self) -> Security:
        """For every role: whoever holds a certificate of a cluster may do anything in it."""
        import ssl

        from distributed.security import Security

        certificate, key = map(_path, (self.certificate, self.key))
        roles: dict[str, str] = {}
        for role in ("client", "scheduler", "worker"):
            roles |= {f"tls_{role}_cert": certificate, f"tls_{role}_key": key}
        security = Security(
            require_encryption=True, tls_ca_file=self.ca, tls_min_version=ssl.TLSVersion.TLSv1_3, **roles
        )
        try:
            security.get_connection_args("client")
        except (OSError, ssl.SSLError) as error:
            raise UsageError(
                f"certificate, key or authority cannot be used: {error}", "give PEM files that fit each other"
            ) from error
        return security

    @classmethod
    def temporary(cls) -> TlsFiles:
        """New ones that exist in memory only: one certificate for everybody, and no authority that could sign more.

        It is valid since a day ago, for a host whose clock is behind.
        """
        from virtgauge.platforms.attached.certificates import self_signed

        now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
        certificate, key = self_signed("virtgauge fleet", now - day, now + 365 * day)
        return cls(certificate, certificate, key)


SLOT = "host"  # The resource of which every worker has one and every batch takes one
HEARTBEAT_S = 30.0  # A worker's; that one has died is known by its closed connection

_SETTINGS = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "30s",
    "distributed.admin.tick.cycle": "30s",
    "distributed.admin.tick.limit": "1h",
    "distributed.admin.system-monitor.interval": "30s",
    "distributed.admin.system-monitor.disk": False,
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.active-memory-manager.start": False,
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    "distributed.client.scheduler-info-interval": "30s",
}


def configure() -> None:
    """Set it, before anything of dask.distributed is made; what it would log, the run says in its own words."""
    import dask
    import distributed

    dask.config.set(_SETTINGS)
    for name in (distributed.__name__, "distributed.client"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


_CONNECT_S = 30.0  # To a scheduler of our own
_POLL_S = 1.0
_WATCH_S = 2.0  # A worker at work is looked for so often
_REACH_S = 5.0  # One attempt to reach a scheduler that was lost
_STOP_S = 90.0  # More than a worker takes to end what is under way


class WorkerLostError(VirtgaugeError):
    """The worker went away before it answered."""


class SchedulerLostError(WorkerLostError):
    """The scheduler went away before the worker answered, who may be at work all the same."""


class Cluster:
    """A cluster by its client, which is connected anew when its scheduler was away."""

    def __init__(self, client: Client, security: Security) -> None:
        self._client, self._security = client, security
        self._address: str = client.scheduler.address
        self._in_vain = -math.inf  # when the scheduler was last tried to be reached
        self._reaching, self._looking = asyncio.Lock(), asyncio.Lock()
        self._called: dict[str, str] = {}  # by worker, the scheduler through which it was last called
        self._seen: tuple[str, dict[str, str]] = ("", {})  # the scheduler that last told of workers, and where they are
        self._of: tuple[str, set[str]] = ("", set())  # the client that it told, and the addresses of all it had
        self._there: tuple[float, set[str]] = (-math.inf, set())  # when addresses were last asked for
        self._numbers = itertools.count()

    async def close(self) -> None:
        await self._client.close()

    async def present(self, worker: str) -> bool:
        """Whether a worker of that name is connected. Raises SchedulerLostError."""
        return worker in (await self._workers())[1]

    async def _workers(self) -> tuple[str, dict[str, str]]:
        """The scheduler that answers, and addresses by name, only of workers that have a slot.

        Who they are is asked for only when there are others than before: of 200 it takes milliseconds on both ends.
        Raises SchedulerLostError: none answers.
        """
        there = {*await self._asked("ncores")}
        if there and self._of == (self._client.id, there):
            return self._seen
        found = await self._asked("identity")
        self._of = self._client.id, {*found["workers"]}
        addresses = {
            str(one["name"]): address
            for address, one in found["workers"].items()
            if one.get("resources", {}).get(SLOT) == 1
        }
        self._seen = found["id"], addresses
        return self._seen

    async def _address_of(self, worker: str) -> tuple[str, str | None]:
        """The scheduler that answers, and where a worker is: asked of the one worker, where it was there before."""
        scheduler, addresses = self._seen
        address = addresses.get(worker)
        if address is not None and await self._asked("ncores", workers=[address]):
            return scheduler, address
        scheduler, addresses = await self._workers()
        return scheduler, addresses.get(worker)

    async def _asked(self, question: str, **about: object) -> Any:
        """The scheduler's answer. Raises SchedulerLostError."""
        try:
            return await getattr((await self._reach()).scheduler, question)(**about)
        except OSError as error:
            raise SchedulerLostError(f"the scheduler at {self._address} was lost") from error

    async def _reach(self) -> Client:
        async with self._reaching:
            if self._client.status != "running":
                if self._in_vain > time.monotonic() - _POLL_S:
                    raise ConnectionError("it could not be reached a moment ago")
                await self._client.close()
                try:
                    self._client = await _client(self._address, self._security, _REACH_S)
                except OSError:
                    self._in_vain = time.monotonic()
                    raise
            return self._client

    async def _is_there(self, address: str) -> bool:
        """Whether a worker was connected a moment ago: one question for all that ask."""
        async with self._looking:
            if self._there[0] < time.monotonic() - _POLL_S / 2:
                self._there = time.monotonic(), {*await self._asked("ncores")}
        return address in self._there[1]

    async def call(self, worker: str, request: bytes) -> object:
        """Have a worker do what a packed request asks for, in its slot; whatever it answers.
        Raises SchedulerLostError: what the worker answered, or will, did not come through; WorkerLostError: it is not
        connected, or went away meanwhile.
        """
        from distributed import KilledWorker
        from distributed.comm import CommClosedError

        scheduler, address = await self._address_of(worker)
        if address is None and self._called.get(worker, scheduler) != scheduler:
            raise SchedulerLostError(f"the scheduler at {self._address} was lost, and is back")
        if address is None:
            raise WorkerLostError(f"the worker {worker!r} is not connected")
        self._called[worker] = scheduler
        client = self._client
        future = client.submit(
            work.answer,
            request,
            workers=[address],  # of this very process: a worker that comes back is asked again who it is
            resources={SLOT: 1},
            pure=False,
            key=f"virtgauge-{client.id}-{next(self._numbers)}",
        )
        result = asyncio.ensure_future(future.result())
        try:
            while True:
                if not (await asyncio.wait([result], timeout=_WATCH_S))[0]:
                    if not await self._is_there(address):
                        raise WorkerLostError(f"the worker {worker!r} was lost")
                elif result.cancelled() and not future.cancelled() and client.status == "running":
                    # Dask fetches several answers at once; who was to fetch this one has given up his own.
                    result = asyncio.ensure_future(future.result())
                else:
                    break
            if future.cancelled() or client.status != "running":
                raise SchedulerLostError(f"the scheduler at {self._address} was lost")
            return result.result()
        except CommClosedError as error:
            raise SchedulerLostError(f"the scheduler at {self._address} was lost") from error
        except KilledWorker as error:
            raise WorkerLostError(f"the worker {worker!r} was lost") from error
        finally:
            result.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await result
            future.release()

    async def stop(self, token: str, workers: Collection[str]) -> None:
        """End what these workers have under way for a run.
        Raises WorkerLostError: they cannot be told, or do not say that they have heard.
        """
        for answer in await self._tell(work.stop, token, workers):
            if isinstance(answer, Exception):
                raise WorkerLostError(f"a worker does not stop: {answer}") from answer

    async def leave(self, token: str, workers: Collection[str]) -> list[str]:
        """Tell these workers that a run is over; what they remark. Raises WorkerLostError, likewise."""
        found = await self._tell(work.leave, token, workers)
        return [str(words) for remarks in found if isinstance(remarks, list) for words in remarks]

    async def _tell(self, function: Callable[..., Any], token: str, workers: Collection[str]) -> list[object]:
        """Outside of the slots, for it concerns who has one."""
        _, addresses = await self._workers()
        present = sorted(addresses[name] for name in workers if name in addresses)
        if not present:
            return []
        run = self._client.run(function, token, workers=present, on_error="return")
        try:
            found = await asyncio.wait_for(run, _STOP_S)
        except TimeoutError as error:
            raise WorkerLostError(f"workers do not answer within {_STOP_S:g} s") from error
        except OSError as error:
            raise SchedulerLostError(f"the scheduler at {self._address} was lost") from error
        return list(found.values())


@contextlib.asynccontextmanager
async def existing_cluster(fleet: FleetSection, say: Callable[[str], None]) -> AsyncIterator[Cluster]:
    """The plan's cluster, whose scheduler may take ``wait_s`` to come, which is said.
    Raises UsageError: certificate, key or authority cannot be used; UnavailableError: it does not answer, or does not
    let us in.
    """
    configure()
    assert fleet.scheduler is not None
    files = TlsFiles(str(fleet.ca), str(fleet.certificate), str(fleet.key))
    words = f"no scheduler at {fleet.scheduler} lets us in yet; trying for {fleet.wait_s:g} s (wait_s)"
    waiting = asyncio.get_running_loop().call_later(_REACH_S, say, words)
    try:
        async with _joined(fleet.scheduler, files.security(), fleet.wait_s) as cluster:
            waiting.cancel()
            yield cluster
    finally:
        waiting.cancel()


@contextlib.asynccontextmanager
async def own_cluster(address: str, files: TlsFiles) -> AsyncIterator[tuple[Cluster, str]]:
    """A scheduler in this process, for the time of a run; and where it listens."""
    security = files.security()
    async with _scheduler(address, 0, security) as scheduler, _joined(scheduler.address, security) as cluster:
        yield cluster, scheduler.address


async def serve_scheduler(address: str, port: int, files: TlsFiles, told: Callable[[str], None]) -> None:
    """Be the scheduler of a cluster until SIGINT or SIGTERM; where it listens is told when it does.
    Raises UsageError: certificate, key or authority cannot be used; UnavailableError: the address cannot be had.
    """
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    async with _scheduler(address, port, files.security()) as scheduler:
        told(scheduler.address)
        await ended.wait()


@contextlib.asynccontextmanager
async def _scheduler(address: str, port: int, security: Security) -> AsyncIterator[Scheduler]:
    configure()
    from distributed import Scheduler
    from distributed.comm import unparse_host_port

    scheduler: Scheduler = Scheduler(
        host=unparse_host_port(address),
        port=port,
        protocol="tls",
        security=security,
        dashboard=False,
        dashboard_address="127.0.0.1:0",
    )
    try:
        await scheduler
    except (OSError, RuntimeError) as error:
        raise UnavailableError(
            f"nobody can listen at {unparse_host_port(address, port)}: {error.__cause__ or error}",
            "give an address of this machine, and a port that is free",
        ) from error
    try:
        scheduler.http_server.stop()  # nothing of ours is served there
        yield scheduler
    finally:
        await scheduler.close()


@contextlib.asynccontextmanager
async def _joined(address: str, security: Security, within_s: float = _CONNECT_S) -> AsyncIterator[Cluster]:
    try:
        cluster = Cluster(await _client(address, security, within_s), security)
    except (OSError, TimeoutError) as error:
        raise UnavailableError(
            f"the cluster at {address} cannot be reached: {error}",
            "check address and certificates; `virtgauge fleet scheduler` starts one",
        ) from error
    try:
        yield cluster
    finally:
        await cluster.close()


async def _client(address: str, security: Security, timeout_s: float) -> Client:
    """Raises OSError: nobody is there."""
    from distributed import Client

    client: Client = await Client(
        address, security=security, asynchronous=True, set_as_default=False, timeout=timeout_s, name="virtgauge"
    )
    return client
