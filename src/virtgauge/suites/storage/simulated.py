"""The simulated database as a testbed: the load generator's commands reach it by the real protocol."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

from virtgauge.platforms.simulated.trials import KILL
from virtgauge.suites.storage.client import Sensorstore
from virtgauge.suites.storage.databases.base import Durability
from virtgauge.suites.storage.laboratory import StorageTestbed, Target, TestbedSpec, profile_of
from virtgauge.suites.storage.server import run
from virtgauge.suites.testbed import Stage

_NOWHERE = Path("/simulated")


class SimulatedTestbed(StorageTestbed):
    """See the module."""

    @classmethod
    async def create(cls, stage: Stage, spec: TestbedSpec) -> SimulatedTestbed:
        """Launch its only agent.

        Raises:
            LaunchError: it was told not to come up.
        """
        await stage.launch()
        return cls(stage, spec)

    @property
    def client_place(self) -> Hashable:
        """The platform, which simulates it."""
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
            uncounted=None,
            disk=_NOWHERE,
            acknowledged=_NOWHERE,
            may_drop=True,
            embedded=False,
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
