"""A server on Java is loaded before it is first measured, once."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from virtgauge.suites.storage.databases import database
from virtgauge.suites.storage.laboratories import ServedTestbed
from virtgauge.suites.storage.settings import StorageSettings
from virtgauge.suites.storage.trial import filled


class Client:
    """Notes what it is asked for."""

    def __init__(self) -> None:
        self.store = {"driver": "cassandra"}
        self.asked: list[str] = []

    async def prepare(self, data: Any, *, preload: int, **_: Any) -> None:
        self.asked.append(f"prepare {preload}")

    async def measure(self, data: Any, streams: Any, *, warmup_s: float, seconds: float) -> None:
        kinds = " and ".join(f"{one.operation} {one.values} by {one.clients}" for one in streams)
        self.asked.append(f"{kinds}, {seconds:g} s")

    async def drop(self) -> None:
        self.asked.append("drop")


async def nothing(_: Any) -> None:
    pass


@pytest.mark.parametrize(
    ("name", "before"),
    [
        (
            "cassandra",
            [
                "prepare 1000",
                "write 1 by 16 and read 1000 by 16, 15 s",
                "write 1000 by 16 and read 1 by 16, 15 s",
                "drop",
            ],
        ),
        ("postgresql", []),
    ],
)
def test_a_server_on_java_runs_in_before_its_first_trial_alone(name: str, before: list[str]) -> None:
    settings = StorageSettings(databases=(name,), clients=(1, 16))
    client = Client()
    target = SimpleNamespace(client=client, product=database(name), may_drop=True, embedded=False)
    testbed = SimpleNamespace(keeps_tables=True, kept_rows=None, has_run_in=False, note_held=nothing, rest=nothing)
    params = {"operation": "single-write", "of": "", "crash": "", "index": True, "late_share": 0.0}

    async def twice() -> None:
        for _ in range(2):
            async with filled(settings, testbed, target, params):  # type: ignore[arg-type]
                client.asked.append("measured")

    asyncio.run(twice())
    assert testbed.has_run_in is bool(before)
    trial = ["prepare 0", "measured", "drop"]
    assert client.asked == [*before, *trial, *trial]


def test_a_server_that_was_started_again_after_a_crash_has_to_run_in_again() -> None:
    testbed = object.__new__(ServedTestbed)
    vars(testbed).update(has_run_in=True, _client=None, _process=SimpleNamespace(start=nothing))
    asyncio.run(testbed.restart("server"))
    assert not testbed.has_run_in
