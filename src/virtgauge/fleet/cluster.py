"""The dask.distributed cluster: an existing one, or one that lives as long as the run.

What is said to workers goes through it; who they are and what they answer is judged elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

from virtgauge.errors import UnavailableError, VirtgaugeError
from virtgauge.fleet import work
from virtgauge.fleet.quiet import SLOT, configure
from virtgauge.fleet.tls import TlsFiles
from virtgauge.plan.fleet import FleetSection

if TYPE_CHECKING:
    from distributed import Client, Scheduler
    from distributed.security import Security

CONNECT_S = 30.0
_POLL_S = 1.0
_STOP_S = 60.0

Work = Callable[[bytes], Awaitable[bytes]]


class WorkerLostError(VirtgaugeError):
    """The worker went away before it answered."""


class Cluster(Protocol):
    """What the coordinator needs of a cluster."""

    async def present(self, worker: str) -> bool:
        """Whether a worker of that name is connected."""

    async def call(self, worker: str, function: Work, data: bytes) -> object:
        """Have a worker do something in its slot; whatever it answers.

        Raises:
            WorkerLostError: it is not connected, or went away meanwhile.
        """

    async def stop(self, token: str) -> None:
        """End the run's sessions that are under way."""

    async def leave(self, token: str) -> list[str]:
        """Tell the workers that were called that the run is over; what they remark."""


class DaskCluster:
    """A cluster by its client."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._called: dict[str, str] = {}
        self._numbers = itertools.count()

    async def present(self, worker: str) -> bool:
        return worker in await self._addresses()

    async def _addresses(self) -> dict[str, str]:
        """By name; only of workers that have a slot."""
        found = await self._client.scheduler.identity()
        return {
            str(one["name"]): address
            for address, one in found["workers"].items()
            if one.get("resources", {}).get(SLOT) == 1
        }

    async def call(self, worker: str, function: Work, data: bytes) -> object:
        from distributed import KilledWorker

        address = (await self._addresses()).get(worker)
        if address is None:
            raise WorkerLostError(f"the worker {worker!r} is not connected")
        self._called[worker] = address
        future = self._client.submit(
            function,
            data,
            workers=[address],  # of this very process: a worker that comes back is asked again who it is
            resources={SLOT: 1},
            pure=False,
            key=f"virtgauge-{self._client.id}-{next(self._numbers)}",
        )
        result = asyncio.ensure_future(future.result())
        try:
            while not (await asyncio.wait([result], timeout=_POLL_S))[0]:
                if address not in (await self._addresses()).values():
                    raise WorkerLostError(f"the worker {worker!r} was lost")
            return result.result()
        except KilledWorker as error:
            raise WorkerLostError(f"the worker {worker!r} was lost") from error
        finally:
            result.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await result
            future.release()

    async def stop(self, token: str) -> None:
        await self._tell(work.stop, token)

    async def leave(self, token: str) -> list[str]:
        found = await self._tell(work.leave, token)
        return [str(words) for remarks in found if isinstance(remarks, list) for words in remarks]

    async def _tell(self, function: Callable[..., Any], *arguments: object) -> list[object]:
        """Outside of the slots, for it concerns who has one."""
        present = set((await self._addresses()).values()) & set(self._called.values())
        if not present:
            return []
        run = self._client.run(function, *arguments, workers=sorted(present), on_error="return")
        found = await asyncio.wait_for(run, _STOP_S)
        return list(found.values())


@contextlib.asynccontextmanager
async def existing_cluster(fleet: FleetSection) -> AsyncIterator[DaskCluster]:
    """The plan's cluster.

    Raises:
        UsageError: certificate, key or authority cannot be used.
        UnavailableError: it does not answer, or does not let us in.
    """
    configure()
    assert fleet.scheduler is not None
    files = TlsFiles(str(fleet.ca), str(fleet.certificate), str(fleet.key))
    async with _client(fleet.scheduler, files.security()) as client:
        yield DaskCluster(client)


@contextlib.asynccontextmanager
async def own_cluster(address: str, files: TlsFiles) -> AsyncIterator[tuple[DaskCluster, str]]:
    """A scheduler in this process, for the time of a run; and where it listens."""
    configure()
    from distributed import Scheduler

    security = files.security()
    scheduler: Scheduler = Scheduler(
        host=address, protocol="tls", security=security, dashboard=False, dashboard_address="127.0.0.1:0"
    )
    async with scheduler:
        scheduler.http_server.stop()  # nothing of ours is served there
        async with _client(scheduler.address, security) as client:
            yield DaskCluster(client), scheduler.address


@contextlib.asynccontextmanager
async def _client(address: str, security: Security) -> AsyncIterator[Client]:
    from distributed import Client

    try:
        client = await Client(
            address, security=security, asynchronous=True, set_as_default=False, timeout=CONNECT_S, name="virtgauge"
        )
    except (OSError, TimeoutError) as error:
        raise UnavailableError(
            f"the cluster at {address} cannot be reached: {error}",
            "check address and certificates; `dask scheduler --tls-ca-file … --tls-cert … --tls-key …` starts one",
        ) from error
    try:
        yield client
    finally:
        await client.close()
