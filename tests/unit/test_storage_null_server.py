"""The server that stores nothing is asked again only while it serves the same data."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from virtgauge.agent.channel import Channel
from virtgauge.suites.storage import laboratories
from virtgauge.suites.storage.client import Sensorstore, StoreError
from virtgauge.suites.storage.laboratories import ServedTestbed
from virtgauge.suites.storage.laboratory import Target, TestbedSpec
from virtgauge.suites.testbed import Stage

SMALL, LARGE, BROKEN = {"rows": 10}, {"rows": 1000}, {"rows": -1}


class Process:
    """A null server that does not come up with broken data; no two may run at once, for they share a port."""

    running = 0

    def __init__(self, guest: object, server: laboratories.Server, folder: Path, *, name: str) -> None:
        self.broken = '"rows": -1' in server.argv[-1]

    async def start(self, client: Sensorstore) -> None:
        assert not Process.running
        Process.running += 1
        if self.broken:
            raise StoreError("start", "it ended before it served")

    async def stop(self) -> None:
        Process.running -= 1


class Testbed(ServedTestbed):
    def __init__(self) -> None:
        super().__init__(cast(Stage, SimpleNamespace(launch_peer=self._peer)), cast(TestbedSpec, None))
        self._product = cast(Any, SimpleNamespace(null_protocol="any"))
        self._sensorstore, self._shared, self._lab = Path("sensorstore"), Path("shared"), cast(Any, None)
        self._null, self._null_peer = None, None

    async def _peer(self, name: str, **_wanted: object) -> SimpleNamespace:
        return SimpleNamespace(channel=None)

    async def ask(self, data: Mapping[str, Any]) -> None:
        client = Sensorstore(cast(Channel, None), Path("sensorstore"), {})
        await self.null_client(cast(Target, SimpleNamespace(client=client)), data)


def test_a_null_server_that_did_not_come_up_is_ended_and_the_one_before_it_is_started_anew(monkeypatch):
    monkeypatch.setattr(laboratories, "ServerProcess", Process)

    async def work() -> None:
        testbed = Testbed()
        for data in (SMALL, SMALL, LARGE):
            await testbed.ask(data)
            assert Process.running == 1
        for _ in range(2):
            with pytest.raises(StoreError):
                await testbed.ask(BROKEN)
            assert Process.running == 0
        await testbed.ask(LARGE)
        assert Process.running == 1

    asyncio.run(work())
