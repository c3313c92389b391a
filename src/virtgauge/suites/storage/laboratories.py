"""The testbeds: a database embedded in the load generator, a server that runs already, a server in a guest."""

from __future__ import annotations

import abc
import dataclasses
import json
import os
import secrets
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from virtgauge.agent.channel import AgentError
from virtgauge.errors import UnavailableError, VirtgaugeError
from virtgauge.network import NetworkError
from virtgauge.platforms.base import Guest, LaunchError, Share
from virtgauge.platforms.base import stage as launching
from virtgauge.platforms.simulated.storage import KILL
from virtgauge.suites.storage.client import Sensorstore, StoreError, find_sensorstore, run
from virtgauge.suites.storage.databases import DATABASES, account, database
from virtgauge.suites.storage.databases.base import Found, Instance, Profile, Server
from virtgauge.suites.storage.existing import not_on
from virtgauge.suites.storage.flushes import AS_IS, LABORATORY_FAILED, find_launcher, launcher_prefix
from virtgauge.suites.storage.laboratory import StorageTestbed, Target, TestbedSpec, found, place_of, profile_of
from virtgauge.suites.storage.server import ServerProcess, kill_tree, noted, run_well
from virtgauge.suites.testbed import GUEST_ADDRESS, GUEST_END, PEER_ADDRESS, Stage, address_peer

_NOWHERE = Path("/simulated")
_PORT, _NULL_PORT = 5400, 5401  # Of every server: each is alone in its network namespace or machine


class SimulatedTestbed(StorageTestbed):
    """The simulated database: the load generator's commands reach it by the real protocol."""

    async def set_up(self) -> None:
        await self.stage.launch()
        self.client_place = self.stage.platform

    async def plain_target(self, params: Mapping[str, Any]) -> Target:
        name = params["database"]
        profile = profile_of(name, params["durability"], params["period_ms"], params["commit_log"])
        client = self._client({"driver": "simulated", "options": {"level": profile.durability.value}})
        return Target(
            label=f"simulated {name}",
            profile=dataclasses.replace(profile, options={}),
            client=client,
            inside=client,
            product=database(name),
            counters=_NOWHERE,
            disk=_NOWHERE,
            files=(_NOWHERE,),
            acknowledged=_NOWHERE,
            may_drop=True,
            reported=await client.about(),
        )

    def _client(self, store: Mapping[str, Any]) -> Sensorstore:
        return Sensorstore(self.guest.channel, Path("sensorstore"), store)

    async def null_client(self, target: Target, data: Mapping[str, Any]) -> Sensorstore:
        return self._client({"driver": "none", "options": {}})

    async def crash(self, what: str) -> None:
        await run(self.guest.channel, [KILL])


class GuestTestbed(StorageTestbed):
    """A guest of ours with the host's programs, its disks, and a folder that both see under the same path."""

    def _prepare(self) -> None:
        """Make disks and folder. Raises StoreError: a program of ours is missing; LaunchError: one cannot be made."""
        stage, spec = self.stage, self.spec
        try:
            self._sensorstore, self._launcher = find_sensorstore(), find_launcher()
        except UnavailableError as error:
            raise StoreError("setup", str(error)) from error
        parts = ("disk", "log") if spec.commit_log == "separate" else ("disk",)
        self._disks = tuple(stage.make_disk(part, spec.settings.disk_mib) for part in parts)
        with launching("disk", VirtgaugeError, OSError):
            self._shared = stage.scope.guest_folder(stage.name("shared"))
            stage.at_end(lambda: shutil.rmtree(self._shared, ignore_errors=True))
            self._shared.chmod(0o711)  # servers are not root, and have their configuration here
            self._account = account() if os.geteuid() == 0 else None
        stage.charge_kernel_threads()
        self._profile = spec.flushes or AS_IS
        self._factor = stage.platform.timeout_factor
        self._counters = self._disks[0].folder / "flushes"
        self._wanted: dict[str, Any] = {}

    async def _launch(self, memory_mib: int, shares: Iterable[Path], **wanted: Any) -> None:
        """Launch the guest with folders of the host that it has to see, and as much memory where it has its own."""
        folders = {self._sensorstore.parent, self._launcher.parent, *shares}
        outside = sorted(folder for folder in folders if not folder.is_relative_to(self._shared))
        self._wanted = wanted | {
            "disks": self._disks,
            "host_root": True,
            "shares": (Share(self._shared, writable=True), *map(Share, outside)),
            "memory_mib": self.spec.settings.memory_mib or (memory_mib if self.stage.platform.is_virtual else None),
            "vcpus": self.spec.settings.vcpus,
        }
        await self.stage.launch(**self._wanted)

    def _instance(self, name: str, place: Found, profile: Profile) -> Instance:
        data, *log = (disk.folder / name for disk in self._disks)
        return Instance(
            found=place,
            profile=profile,
            config=self._shared / "config",
            data=data,
            address=GUEST_ADDRESS,
            port=_PORT,
            password=secrets.token_hex(12),
            account=self._account,
            log=log[0] if log else None,
        )

    def _inside(self) -> Sensorstore:
        return Sensorstore(self.guest.channel, self._sensorstore, {}, timeout_factor=self._factor)

    def _target(self, label: str, client: Sensorstore, name: str, **known: Any) -> Target:
        return Target(
            label=label,
            client=client,
            may_drop=True,
            inside=self._inside(),
            product=database(name),
            disk=self._disks[-1].folder if self._profile == AS_IS else None,  # the pace of any other is known
            files=tuple(disk.folder / name for disk in self._disks),
            acknowledged=self._shared / "acknowledged",
            **known,
        )

    async def crash(self, what: str) -> None:
        if what != "machine":
            await self._kill()
            return
        try:
            await self.guest.crash()
        except UnavailableError as error:
            raise StoreError("unsupported", error.message) from error

    async def restart(self, what: str) -> None:
        await super().restart(what)
        if what == "machine":  # a second guest on the same disk
            crashed = self.stage.guests.pop(0)
            used_ns = crashed.accounting().cpu_ns or 0
            await crashed.close()
            self.stage.charge(lambda: used_ns)  # what it used is no foreign load of the trial under way
            await self.stage.launch("again", **self._wanted)

    @abc.abstractmethod
    async def _kill(self) -> None:
        """End what serves. Raises StoreError: ``lost``: it had ended before."""


class EmbeddedTestbed(GuestTestbed):
    """A guest in which embedded databases are measured, one after the other: their client is their server."""

    async def set_up(self) -> None:
        self._prepare()
        self._pid = self._shared / "client.pid"
        self._reported: dict[tuple[str, str], dict[str, Any]] = {}
        products = [product for product in DATABASES.values() if product.embedded]
        places = [found(product.name) for product in products]
        memory_mib = max(product.memory_mib for product in products)
        await self._launch(
            memory_mib, [share for place in places if isinstance(place, Found) for share in place.shares]
        )
        self.client_place = (self.stage.platform, self.spec.settings.vcpus, self.spec.settings.memory_mib)

    async def plain_target(self, params: Mapping[str, Any]) -> Target:
        name = params["database"]
        place = place_of(name)
        profile = profile_of(name, params["durability"], params["period_ms"], params["commit_log"])
        store = database(name).store(self._instance(name, place, profile))
        # The shell notes the process's number, so that it can be killed.
        prefix = [*noted(self._pid), *launcher_prefix(self._counters, self._profile)]
        store["timeout_ms"] = self.spec.settings.timeout_ms
        client = dataclasses.replace(self._inside(), store=store, prefix=prefix)
        if (name, profile.name) not in self._reported:
            folder = str(Path(store["path"]).parent)
            await run_well(self.guest.channel, "making the database's folder", ["/bin/mkdir", "-p", folder])
            self._reported[name, profile.name] = await client.about()
        reported = self._reported[name, profile.name]
        label, counters = str(reported["version"]), self._counters
        return self._target(label, client, name, reported=reported, profile=profile, counters=counters, embedded=True)

    async def null_client(self, target: Target, data: Mapping[str, Any]) -> Sensorstore:
        """The loop itself, without any database."""
        return self._inside().on({"driver": "none"})

    async def _kill(self) -> None:
        if not await kill_tree(self.guest.channel, self._pid):
            raise StoreError("lost", "the client had ended before it was to be killed")


class ExistingTestbed(StorageTestbed):
    """A server that is there already, used from the host; it is the host's, or on a machine that exists already."""

    keeps_tables = False  # it outlives the testbed

    async def set_up(self) -> None:
        server = self.spec.existing
        assert server is not None
        platform = self.stage.platform
        if not (platform.is_host or platform.only_plain):
            words = f"the server {server.name} is measured from the host, and is on it or on an attached machine"
            raise StoreError("unsupported", words)
        if (missing_prerequisite := server.missing_prerequisite()) is not None:
            raise StoreError("unsupported", missing_prerequisite)
        try:
            program, store = find_sensorstore(), server.store(self.spec.settings.timeout_ms)
        except VirtgaugeError as error:
            raise StoreError("setup", str(error)) from error
        guest = await self.stage.launch()
        self._elsewhere = await not_on(guest.channel, str(store["address"]), int(store["port"]))
        if not platform.is_host:
            if self._elsewhere is not None:
                words = f"the server {server.name} is not on {platform.label}: {self._elsewhere}"
                raise StoreError("unsupported", f"{words}; give each machine its server (platforms = [...])")
            guest = await self.stage.launch_peer("client")
        self._server, self._client = server, Sensorstore(guest.channel, program, store)
        self._reported: dict[str, Any] | None = None

    async def plain_target(self, params: Mapping[str, Any]) -> Target:
        if self._reported is None:
            self._reported = await self._client.about()
        label = f"{self._reported['version']} at {self._server.name}"
        level = database(self._server.database).level_of(self._reported.get("settings") or {})
        existing = {"database": self._server.database, "level": level and level.value, "elsewhere": self._elsewhere}
        return Target(label, self._client, self._server.allow_drop, self._reported, existing=existing)

    async def explain(self, error: StoreError) -> StoreError:
        if error.code != "exists":
            return error
        remedy = "it has not been touched; to have it dropped, set allow_drop = true, or start with --allow-drop"
        return StoreError(error.code, f"{error.message}: {remedy}")


class ServedTestbed(GuestTestbed):
    """A guest with a database server on disks of its own, and its client at the other end of a network path."""

    async def set_up(self) -> None:
        spec, stage = self.spec, self.stage
        assert spec.database is not None and spec.durability is not None
        place = place_of(spec.database)
        profile = profile_of(spec.database, spec.durability, spec.settings.period_ms, spec.commit_log)
        product = self._product = database(spec.database)
        self._prepare()
        instance = self._instance(spec.database, place, profile)
        self._server = product.server(instance)
        with launching("network", NetworkError, OSError):
            self._server.write(self._account)
            self._lab = stage.make_lab()
        await self._launch(product.memory_mib, place.shares, lab=self._lab, nics=(GUEST_END,))
        peer = await stage.launch_peer("client", lab=self._lab)
        await address_peer(peer.channel)
        uncounted = None
        if product.own_system_calls and not await self._notifies_of_system_calls():
            uncounted = f"{product.title} makes its system calls directly, and the guest's kernel does not report them"
            if self._profile != AS_IS:  # a flush is to cost what another device's would
                words = f"its flushes cannot be made to cost what {self._profile} says; measure it with {AS_IS}"
                raise StoreError("unsupported", f"{uncounted}: {words}")
        store = product.store(instance) | {"timeout_ms": spec.settings.timeout_ms}
        self._label, self._client = product.label(place), Sensorstore(peer.channel, self._sensorstore, store)
        self._level, self._uncounted = profile, uncounted
        self._at_rest = tuple(product.at_rest(instance))
        self._null_peer: Guest | None = None
        # the null server that runs, and the data that its answers follow from; None where none serves
        self._null: tuple[Mapping[str, Any], ServerProcess] | None = None
        self._process = self._new_process()
        await self._process.set_up()
        self._reported = await self._process.start(self._client)

    async def _notifies_of_system_calls(self) -> bool:
        """Whether the guest's kernel does, without which flushes of a program that has no C library are not seen."""
        prefix = launcher_prefix(self._disks[0].folder / "notified-flushes", AS_IS, static=True)
        return int((await run(self.guest.channel, [*prefix, "/bin/true"])).value["exit_code"] or 0) != LABORATORY_FAILED

    def _new_process(self) -> ServerProcess:
        launcher = [] if self._uncounted else launcher_prefix(self._counters, self._profile)
        return ServerProcess(self.guest.channel, self._server, self._shared, launcher, timeout_factor=self._factor)

    async def plain_target(self, params: Mapping[str, Any]) -> Target:
        return self._target(
            self._label,
            self._client,
            self._product.name,
            reported=self._reported,
            profile=self._level,
            counters=None if self._uncounted else self._counters,
            uncounted=self._uncounted,
            at_rest=self._at_rest,
        )

    async def null_client(self, target: Target, data: Mapping[str, Any]) -> Sensorstore | None:
        protocol = self._product.null_protocol
        if protocol is None:
            return None
        place = {"address": PEER_ADDRESS, "port": _NULL_PORT}
        client = target.client.on({**target.client.store, **place, "uri": None})
        if self._null is not None:
            known, process = self._null
            if data == known and await process.alive():
                return client
            self._null = None
            await process.stop()
        try:
            self._null_peer = self._null_peer or await self.stage.launch_peer("null", lab=self._lab)
        except LaunchError as error:
            raise StoreError("client", f"the peer of the null server did not come up: {error}") from error
        asked = json.dumps({"protocol": protocol, **place, "data": data})
        server = Server([str(self._sensorstore), "null", asked], ready_timeout_s=10.0)
        process = ServerProcess(self._null_peer.channel, server, self._shared, name="null server")
        try:
            await process.start(client)
        except AgentError:  # not of the store alone: else it would go on and answer for the next
            await process.stop()
            raise
        self._null = data, process
        return client

    async def _kill(self) -> None:
        await self._process.kill()

    async def restart(self, what: str) -> None:
        await super().restart(what)
        if what == "machine":
            await address_peer(self.stage.peers[0].channel)  # with the guest, the other end of the link was gone
            self._process = self._new_process()
        self._reported = await self._process.start(self._client)

    async def explain(self, error: StoreError) -> StoreError:
        if await self._process.alive():
            return error
        return StoreError(error.code, f"{error.message}; the server has ended: {self._process.last_words()}")


async def set_up_testbed(stage: Stage, spec: TestbedSpec) -> StorageTestbed:
    """Build it; raises what :meth:`Suite.set_up` does, and StoreError: ``unsupported``, or a server did not start."""
    kind: type[StorageTestbed] = EmbeddedTestbed if spec.database is None else ServedTestbed
    if spec.existing is not None:
        kind = ExistingTestbed
    elif stage.platform.simulated:
        kind = SimulatedTestbed
    testbed = kind(stage, spec)
    await testbed.set_up()
    return testbed
