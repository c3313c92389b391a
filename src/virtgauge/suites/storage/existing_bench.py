"""A server that is there already, used from the host."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from virtgauge.errors import VirtgaugeError
from virtgauge.suites.bench import Stage
from virtgauge.suites.storage.benches import BenchSpec
from virtgauge.suites.storage.client import Sensorstore, StoreError
from virtgauge.suites.storage.existing import ExistingServer
from virtgauge.suites.storage.laboratory import StorageBench, Target
from virtgauge.suites.storage.sensorstore import find_sensorstore


class ExistingBench(StorageBench):
    """See the module."""

    def __init__(self, stage: Stage, spec: BenchSpec, server: ExistingServer, client: Sensorstore) -> None:
        super().__init__(stage, spec)
        self._server, self._client = server, client
        self._reported: dict[str, Any] | None = None

    @classmethod
    async def create(cls, stage: Stage, spec: BenchSpec) -> ExistingBench:
        """Launch the client's agent.

        Raises:
            StoreError: ``unsupported`` on any platform but the host, or where its password is not to be had.
            LaunchError: the agent did not come up.
        """
        assert spec.existing is not None
        if stage.platform.kind != "host":
            words = f"the server {spec.existing.name} runs where it runs: it is measured once, from the host"
            raise StoreError("unsupported", words)
        if (shortfall := spec.existing.shortfall()) is not None:
            raise StoreError("unsupported", shortfall)
        try:
            program, store = find_sensorstore(), spec.existing.store(spec.timeout_ms)
        except VirtgaugeError as error:
            raise StoreError("setup", str(error)) from error
        guest = await stage.launch()
        return cls(stage, spec, spec.existing, Sensorstore(guest.channel, Path(program), store))

    @property
    def keeps_tables(self) -> bool:
        """Never: the server outlives the bench."""
        return False

    async def target(self, params: Mapping[str, Any]) -> Target:
        if self._reported is None:
            self._reported = await self._client.about()
        return Target(
            label=f"{self._reported['version']} at {self._server.name}",
            profile=None,
            client=self._client,
            inside=None,
            probe=None,
            counters=None,
            uncounted=None,
            disk=None,
            acknowledged=None,
            may_drop=self._server.allow_drop,
            embedded=False,
            reported=self._reported,
        )

    async def explain(self, error: StoreError) -> StoreError:
        if error.code != "exists":
            return error
        remedy = "it has not been touched; to have it dropped, set allow_drop = true, or start with --allow-drop"
        return StoreError(error.code, f"{error.message}: {remedy}")
