"""The testbeds: a database embedded in the load generator, a server that runs already, a server in a guest."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

from virtgauge.errors import VirtgaugeError
from virtgauge.network.namespace import Namespace
from virtgauge.network.nic import NetworkError
from virtgauge.platforms.base import LaunchError
from virtgauge.platforms.simulated.storage import KILL
from virtgauge.suites.storage.calibration import NullServer
from virtgauge.suites.storage.client import Sensorstore, StoreError, find_sensorstore
from virtgauge.suites.storage.databases import DATABASES, database
from virtgauge.suites.storage.databases.base import Database, Durability, Found, Server
from virtgauge.suites.storage.existing import ExistingServer
from virtgauge.suites.storage.flushes import AS_IS, launcher_prefix
from virtgauge.suites.storage.ground import PEER, PORT, Ground, address_peer
from virtgauge.suites.storage.laboratory import StorageTestbed, Target, TestbedSpec, found, level_of, profile_of
from virtgauge.suites.storage.server import ServerProcess, kill_tree, noted, run, run_well
from virtgauge.suites.testbed import Stage

_NOWHERE = Path("/simulated")
_NULL_PORT = PORT + 1


class SimulatedTestbed(StorageTestbed):
    """The simulated database: the load generator's commands reach it by the real protocol."""

    @classmethod
    async def create(cls, stage: Stage, spec: TestbedSpec) -> SimulatedTestbed:
        await stage.launch()
        return cls(stage, spec)

    @property
    def client_place(self) -> Hashable:
        return self.stage.platform

    async def target(self, params: Mapping[str, Any]) -> Target:
        level = Durability(params["durability"])
        profile = profile_of(params["database"], level, params["period_ms"])
        told = {"driver": "simulated", "options": {"level": level.value}}
        client = self._client(told)
        return Target(
            label=f"simulated {params['database']}",
            profile=dataclasses.replace(profile, options={}),
            client=client,
            inside=client,
            probe=client,
            counters=_NOWHERE,
            disk=_NOWHERE,
            acknowledged=_NOWHERE,
            may_drop=True,
            reported=await client.about(),
        )

    def _client(self, store: Mapping[str, Any]) -> Sensorstore:
        return Sensorstore(self.guest.channel, Path("sensorstore"), store)

    async def null_client(self, target: Target, data: Mapping[str, Any]) -> Sensorstore:
        return self._client({"driver": "none", "options": {}})

    def has_acknowledged(self, target: Target) -> bool:
        return True

    async def crash(self, target: Target, what: str) -> None:
        await run(self.guest.channel, [KILL])

    async def recover(self, target: Target, what: str) -> Target:
        return target


class EmbeddedTestbed(StorageTestbed):
    """A guest in which embedded databases are measured, one after the other: their client is their server."""

    def __init__(self, stage: Stage, spec: TestbedSpec, ground: Ground) -> None:
        super().__init__(stage, spec)
        self._ground = ground
        self._profile = spec.flushes or AS_IS
        self._counters = ground.disk / "flushes"
        self._pid = ground.shared / "client.pid"
        self._reported: dict[tuple[str, str], dict[str, Any]] = {}

    @classmethod
    async def create(cls, stage: Stage, spec: TestbedSpec) -> EmbeddedTestbed:
        ground = Ground.prepare(stage, spec)
        products = [product for product in DATABASES.values() if product.embedded]
        places = [place for product in products if isinstance(place := found(product.name), Found)]
        await ground.launch(
            stage,
            spec,
            memory_mib=max((product.memory_mib for product in products), default=512),
            shares=[share for place in places for share in place.shares],
        )
        return cls(stage, spec, ground)

    @property
    def client_place(self) -> Hashable:
        return (self.stage.platform, self.spec.vcpus, self.spec.memory_mib)

    async def target(self, params: Mapping[str, Any]) -> Target:
        name = params["database"]
        place, profile = level_of(name, Durability(params["durability"]), params["period_ms"])
        product, ground = database(name), self._ground
        store = product.store(place, ground.layout(password=""), profile) | {"timeout_ms": self.spec.timeout_ms}
        client = self._client(store)
        if (name, profile.name) not in self._reported:
            folder = str(Path(store["path"]).parent)
            await run_well(self.guest.channel, "making the database's folder", ["/bin/mkdir", "-p", folder])
            self._reported[name, profile.name] = await client.about()
        return Target(
            label=str(self._reported[name, profile.name]["version"]),
            profile=profile,
            client=client,
            inside=ground.client_inside(self.guest.channel),
            probe=ground.prober(self.guest.channel, self._profile),
            counters=self._counters,
            disk=ground.disk,
            acknowledged=ground.shared / "acknowledged",
            may_drop=True,
            embedded=True,
            reported=self._reported[name, profile.name],
        )

    def _client(self, store: Mapping[str, Any] | None) -> Sensorstore:
        # The shell notes the process's number, so that it can be killed.
        prefix = [*noted(self._pid), *launcher_prefix(self._counters, self._profile)]
        ground = self._ground
        return Sensorstore(
            self.guest.channel, ground.sensorstore, store, prefix=prefix, timeout_factor=ground.timeout_factor
        )

    async def null_client(self, target: Target, data: Mapping[str, Any]) -> Sensorstore:
        """The loop itself, without any database."""
        return self._ground.client_inside(self.guest.channel).on({"driver": "none"})

    async def crash(self, target: Target, what: str) -> None:
        if what == "machine":
            await self._ground.crash(self.stage)
        elif not await kill_tree(self.guest.channel, self._pid):
            raise StoreError("lost", "the client had ended before it was to be killed")

    async def recover(self, target: Target, what: str) -> Target:
        if what == "machine":
            await self._ground.launch_again(self.stage)
        return dataclasses.replace(
            target, client=self._client(target.client.store), inside=self._ground.client_inside(self.guest.channel)
        )


class ExistingTestbed(StorageTestbed):
    """A server that is there already, used from the host."""

    def __init__(self, stage: Stage, spec: TestbedSpec, server: ExistingServer, client: Sensorstore) -> None:
        super().__init__(stage, spec)
        self._server, self._client = server, client
        self._reported: dict[str, Any] | None = None

    @classmethod
    async def create(cls, stage: Stage, spec: TestbedSpec) -> ExistingTestbed:
        assert spec.existing is not None
        if not stage.platform.is_host:
            words = f"the server {spec.existing.name} is an existing server: it is measured from the host only"
            raise StoreError("unsupported", words)
        if (missing_prerequisite := spec.existing.missing_prerequisite()) is not None:
            raise StoreError("unsupported", missing_prerequisite)
        try:
            program, store = find_sensorstore(), spec.existing.store(spec.timeout_ms)
        except VirtgaugeError as error:
            raise StoreError("setup", str(error)) from error
        guest = await stage.launch()
        return cls(stage, spec, spec.existing, Sensorstore(guest.channel, Path(program), store))

    @property
    def keeps_tables(self) -> bool:
        """Never: the server outlives the testbed."""
        return False

    async def target(self, params: Mapping[str, Any]) -> Target:
        if self._reported is None:
            self._reported = await self._client.about()
        label = f"{self._reported['version']} at {self._server.name}"
        return Target(label, self._client, self._server.allow_drop, self._reported)

    async def explain(self, error: StoreError) -> StoreError:
        if error.code != "exists":
            return error
        remedy = "it has not been touched; to have it dropped, set allow_drop = true, or start with --allow-drop"
        return StoreError(error.code, f"{error.message}: {remedy}")


class ServedTestbed(StorageTestbed):
    """A guest with a database server on a disk of its own, and its client at the other end of a network path."""

    def __init__(
        self,
        stage: Stage,
        spec: TestbedSpec,
        ground: Ground,
        lab: Namespace,
        product: Database,
        server: Server,
        target: Target,
    ) -> None:
        super().__init__(stage, spec)
        self._ground, self._lab, self._product, self._server, self._target = ground, lab, product, server, target
        self._process = self._new_process()
        self._null: NullServer | None = None

    @classmethod
    async def create(cls, stage: Stage, spec: TestbedSpec) -> ServedTestbed:
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
        uncounted = None
        if product.own_system_calls and not await ground.notifies_of_system_calls(stage.guests[0].channel):
            uncounted = f"{product.title} makes its system calls directly, and the guest's kernel does not report them"
            if spec.flushes not in (None, AS_IS):  # a flush is to cost what another device's would
                words = f"its flushes cannot be made to cost what {spec.flushes} says; measure it with {AS_IS}"
                raise StoreError("unsupported", f"{uncounted}: {words}")
        target = Target(
            label=product.label(place),
            client=Sensorstore(peer.channel, ground.sensorstore, store),
            may_drop=True,
            reported={},
            profile=profile,
            counters=ground.disk / "flushes" if uncounted is None else None,
            uncounted=uncounted,
            disk=ground.disk,
            acknowledged=ground.shared / "acknowledged",
        )
        testbed = cls(stage, spec, ground, lab, product, server, target)
        await testbed._process.set_up()
        await testbed._serve()
        return testbed

    def _new_process(self) -> ServerProcess:
        counters, shared = self._target.counters, self._ground.shared
        launcher = launcher_prefix(counters, self.spec.flushes or AS_IS) if counters is not None else []
        factor = self._ground.timeout_factor
        return ServerProcess(self.guest.channel, self._server, shared, launcher, timeout_factor=factor)

    async def _serve(self) -> None:
        reported = await self._process.start(self._target.client)
        self._target = dataclasses.replace(self._target, reported=reported)

    async def target(self, params: Mapping[str, Any]) -> Target:
        guest = self.guest.channel
        probe = self._ground.prober(guest, self.spec.flushes or AS_IS)
        return dataclasses.replace(self._target, inside=self._ground.client_inside(guest), probe=probe)

    async def null_client(self, target: Target, data: Mapping[str, Any]) -> Sensorstore | None:
        protocol = self._product.null_protocol
        if protocol is None:
            return None
        if self._null is None:
            place = (self._ground.sensorstore, protocol, PEER, _NULL_PORT)
            self._null = await NullServer.launch(self.stage, self._lab, *place)
        return await self._null.client(target.client, data)

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
        await self._serve()
        return await self.target({})

    async def explain(self, error: StoreError) -> StoreError:
        if await self._process.alive():
            return error
        words = f"{error.message}; the server has ended: {self._process.last_words()}"
        return StoreError(error.code, words)


async def set_up_testbed(stage: Stage, spec: TestbedSpec) -> StorageTestbed:
    """Build it.

    Raises:
        StoreError: ``unsupported`` where it cannot be here; or the server did not come up.
        LaunchError: guest or peer did not.
        AgentError, ChannelClosedError, ProtocolError, TimeoutError: an agent failed meanwhile.
    """
    if spec.existing is not None:
        return await ExistingTestbed.create(stage, spec)
    if stage.platform.simulated:
        return await SimulatedTestbed.create(stage, spec)
    if spec.database is None:
        return await EmbeddedTestbed.create(stage, spec)
    return await ServedTestbed.create(stage, spec)
