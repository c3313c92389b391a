"""A guest in which embedded databases are measured, one after the other: their client is their server."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

from virtgauge.suites.bench import Stage
from virtgauge.suites.storage.availability import found, level_of
from virtgauge.suites.storage.benches import BenchSpec
from virtgauge.suites.storage.client import Sensorstore, StoreError
from virtgauge.suites.storage.databases.base import Durability, Found
from virtgauge.suites.storage.databases.registry import DATABASES, database
from virtgauge.suites.storage.flushes import AS_IS, launcher_prefix
from virtgauge.suites.storage.ground import Ground
from virtgauge.suites.storage.laboratory import StorageBench, Target
from virtgauge.suites.storage.processes import kill_tree, noted, run_well


class EmbeddedBench(StorageBench):
    """See the module."""

    def __init__(self, stage: Stage, spec: BenchSpec, ground: Ground) -> None:
        super().__init__(stage, spec)
        self._ground = ground
        self._profile = spec.flushes or AS_IS
        self._counters = ground.disk / "flushes"
        self._pid = ground.shared / "client.pid"
        self._reported: dict[tuple[str, str], dict[str, Any]] = {}

    @classmethod
    async def create(cls, stage: Stage, spec: BenchSpec) -> EmbeddedBench:
        """Launch the guest with its disk.

        Raises:
            LaunchError: it did not come up.
        """
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
        """A guest of this platform, of this size."""
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
            uncounted=None,
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
        return Sensorstore(self.guest.channel, ground.sensorstore, store, prefix=prefix, slowness=ground.slowness)

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
            target,
            client=self._client(target.client.store),
            inside=self._ground.client_inside(self.guest.channel),
        )
