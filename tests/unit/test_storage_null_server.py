"""The server that stores nothing is asked again only while it serves the same data."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from virtgauge.agent.channel import AgentError, Channel
from virtgauge.suites.storage import laboratories, server
from virtgauge.suites.storage.client import Sensorstore, StoreError
from virtgauge.suites.storage.laboratories import ServedTestbed
from virtgauge.suites.storage.laboratory import Target, TestbedSpec
from virtgauge.suites.testbed import Stage

SMALL, LARGE, BROKEN, UNASKED = {"rows": 10}, {"rows": 1000}, {"rows": -1}, {"rows": -2}


class Process:
    """A null server that does not come up with broken data; no two may run at once, for they share a port.

    Of another the agent cannot start the program that asks whether it serves.
    """

    running = started = 0
    ended = False  # by itself

    def __init__(self, guest: object, asked: laboratories.Server, folder: Path, *, name: str) -> None:
        self.rows = json.loads(asked.argv[-1])["data"]["rows"]

    async def alive(self) -> bool:
        return not self.ended

    async def start(self, client: Sensorstore) -> None:
        assert not Process.running
        Process.running += 1
        Process.started += 1
        if self.rows == -1:
            raise StoreError("start", "it ended before it served")
        if self.rows == -2:
            raise AgentError("os", "fork: Resource temporarily unavailable", errno.EAGAIN)

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
        for data in (BROKEN, UNASKED, BROKEN):
            with pytest.raises(AgentError):
                await testbed.ask(data)
            assert Process.running == 0
        await testbed.ask(LARGE)
        assert Process.running == 1

    asyncio.run(work())


def test_a_null_server_that_has_ended_is_started_anew(monkeypatch):
    monkeypatch.setattr(laboratories, "ServerProcess", Process)
    monkeypatch.setattr(Process, "running", 0)

    async def work() -> None:
        testbed, before = Testbed(), Process.started
        for ended, servers in ((False, 1), (False, 1), (True, 2)):
            if ended and testbed._null is not None:
                cast(Process, testbed._null[1]).ended = True
            await testbed.ask(SMALL)
            assert Process.started == before + servers

    asyncio.run(work())


@pytest.mark.parametrize(
    ("pids", "alive", "within_s", "ends"),
    [
        (["", "7"], True, 60, None),  # the shell makes the file, and then writes to it
        ([None, "7"], True, 60, None),
        (["7"], False, 60, "ended before it served"),  # for another has its port, and answers
        ([None, None], False, 0, "another one answers at its address"),
    ],
)
def test_a_server_serves_when_it_answers_and_lives(monkeypatch, tmp_path, pids, alive, within_s, ends):
    written, asked = iter(pids), 0

    async def start(*_words: object) -> SimpleNamespace:
        return SimpleNamespace()

    async def lives(*_words: object) -> bool:
        return alive

    class Client:
        async def about(self) -> dict[str, Any]:
            nonlocal asked
            asked += 1
            if (pid := next(written)) is not None:
                (tmp_path / "server.pid").write_text(pid)
            return {"answers": asked}

    monkeypatch.setattr(server.Running, "start", start)
    monkeypatch.setattr(server, "is_alive", lives)
    monkeypatch.setattr(server, "_POLL_S", 0)
    process = server.ServerProcess(cast(Channel, None), server.Server(["it"], ready_timeout_s=within_s), tmp_path)
    expected = contextlib.nullcontext() if ends is None else pytest.raises(StoreError, match=ends)
    with expected:
        assert asyncio.run(process.start(cast(Sensorstore, Client()))) == {"answers": len(pids)}
