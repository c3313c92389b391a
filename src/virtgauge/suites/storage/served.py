"""A guest with a database server on a disk of its own, and its client at the other end of a network path."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Mapping
from typing import Any

from virtgauge.agent.channel import Channel
from virtgauge.network.namespace import Namespace
from virtgauge.network.nic import NetworkError
from virtgauge.platforms.base import LaunchError
from virtgauge.suites.bench import Stage
from virtgauge.suites.storage.availability import level_of
from virtgauge.suites.storage.benches import BenchSpec
from virtgauge.suites.storage.client import Sensorstore, StoreError
from virtgauge.suites.storage.databases.base import Database, Profile, Server
from virtgauge.suites.storage.databases.registry import database
from virtgauge.suites.storage.flushes import AS_IS, launcher_prefix
from virtgauge.suites.storage.ground import PEER, PORT, Ground, address_peer
from virtgauge.suites.storage.laboratory import StorageBench, Target
from virtgauge.suites.storage.null_server import NullServer
from virtgauge.suites.storage.server import ServerFiles, ServerProcess

_NULL_PORT = PORT + 1


class ServedBench(StorageBench):
    """See the module."""

    def __init__(self, stage: Stage, spec: BenchSpec, ground: Ground, lab: Namespace, description: Served) -> None:
        super().__init__(stage, spec)
        self._ground, self._lab, self._description = ground, lab, description
        self._counters = ground.disk / "flushes"
        self._client = Sensorstore(self.stage.peers[0].channel, ground.sensorstore, description.store)
        self._process = self._new_process()
        self._reported: dict[str, Any] = {}
        self._null: NullServer | None = None

    @classmethod
    async def create(cls, stage: Stage, spec: BenchSpec) -> ServedBench:
        """Launch guest and peer, and start the server.

        Raises:
            StoreError: ``unsupported``: there is no such server or level here; or the server did not come up.
            LaunchError: guest or peer did not.
            AgentError, ChannelClosedError, ProtocolError, TimeoutError: an agent failed.
        """
        assert spec.database is not None and spec.durability is not None
        place, profile = level_of(spec.database, spec.durability, spec.period_ms)
        product = database(spec.database)
        ground = Ground.prepare(stage, spec)
        layout = dataclasses.replace(ground.layout(secrets.token_hex(12)), memory_mib=product.memory_mib)
        server = product.server(place, layout, profile)
        try:
            server.write(ground.account)
            lab = Namespace(stage.scope, stage.name("lab"))
        except (NetworkError, OSError) as error:
            raise LaunchError("network", str(error)) from error
        stage.at_end(lab.close)
        shares = [share for share in (*server.shares, *place.shares) if not share.is_relative_to(ground.shared)]
        await ground.launch(stage, spec, memory_mib=product.memory_mib, shares=shares, lab=lab)
        peer = await stage.launch_peer("client", lab=lab)
        await address_peer(peer.channel)
        store = product.store(place, layout, profile) | {"timeout_ms": spec.timeout_ms}
        uncounted = await _why_uncounted(product, ground, stage.guests[0].channel, spec.flushes)
        bench = cls(stage, spec, ground, lab, Served(product.label(place), profile, server, store, uncounted))
        await bench.start()
        return bench

    def _new_process(self) -> ServerProcess:
        files = ServerFiles(self._ground.shared / "server.pid", self._ground.shared / "server.log")
        counted = self._description.uncounted is None
        launcher = launcher_prefix(self._counters, self.spec.flushes or AS_IS) if counted else []
        slowness = self._ground.slowness
        return ServerProcess(self.guest.channel, self._description.server, files, launcher, slowness=slowness)

    async def start(self) -> None:
        """Set the server up on an empty disk, and start it.

        Raises:
            StoreError: it did not come up.
        """
        await self._process.set_up()
        self._reported = await self._process.start(self._client)

    async def target(self, params: Mapping[str, Any]) -> Target:
        ground, guest = self._ground, self.guest.channel
        return Target(
            label=self._description.label,
            profile=self._description.profile,
            client=self._client,
            inside=ground.client_inside(guest),
            probe=ground.prober(guest, self.spec.flushes or AS_IS),
            counters=self._counters if self._description.uncounted is None else None,
            uncounted=self._description.uncounted,
            disk=ground.disk,
            acknowledged=ground.shared / "acknowledged",
            may_drop=True,
            embedded=False,
            reported=self._reported,
        )

    async def null_client(self, target: Target, data: Mapping[str, Any]) -> Sensorstore | None:
        driver = str(self._description.store["driver"])
        if self._null is None:
            place = (self._ground.sensorstore, driver, PEER, _NULL_PORT)
            self._null = await NullServer.launch(self.stage, self._lab, *place)
        return None if self._null is None else await self._null.client(target.client, data)

    async def crash(self, target: Target, what: str) -> None:
        if what == "machine":
            await self._ground.crash(self.stage)
        else:
            await self._process.kill()

    async def recover(self, target: Target, what: str) -> Target:
        if what == "machine":
            await self._ground.launch_again(self.stage)
            await address_peer(self.stage.peers[0].channel)  # with the guest, the other end of the link was gone
            self._process = self._new_process()
        self._reported = await self._process.start(self._client)
        return await self.target({})

    async def explain(self, error: StoreError) -> StoreError:
        if await self._process.alive():
            return error
        words = f"{error.message}; the server has ended: {self._process.last_words()}"
        return StoreError(error.code, words)


@dataclasses.dataclass(frozen=True)
class Served:
    """What a server is.

    Attributes:
        label: product and version.
        profile: its settings of the level.
        server: how it is run.
        store: how it is reached.
        uncounted: why its flushes are not; None where they are.
    """

    label: str
    profile: Profile
    server: Server
    store: Mapping[str, Any]
    uncounted: str | None


async def _why_uncounted(product: Database, ground: Ground, guest: Channel, flushes: str | None) -> str | None:
    """Why the server's flushes cannot be counted in this guest; None where they can.

    Raises:
        StoreError: ``unsupported``: they have to be, because a flush is to cost what another device's would.
    """
    if not product.own_system_calls or await ground.notifies_of_system_calls(guest):
        return None
    words = f"{product.title} makes its system calls by itself, and the guest's kernel tells nobody of them"
    if flushes not in (None, AS_IS):
        text = f"{words}: its flushes cannot be made to cost what {flushes} says; measure it with {AS_IS}"
        raise StoreError("unsupported", text)
    return words
