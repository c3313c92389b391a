"""A server on Java is loaded before it is first measured, once."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from virtgauge.suites.storage.databases import database
from virtgauge.suites.storage.laboratories import ServedTestbed
from virtgauge.suites.storage.settings import StorageSettings
from virtgauge.suites.storage.trial import filled


class Client:
    """Notes what it is asked for."""

    def __init__(self, rates: Iterable[float]) -> None:
        self.store = {"driver": "cassandra"}
        self.asked: list[str] = []
        self.rates = iter(rates)

    async def prepare(self, data: Any, *, preload: int, **_: Any) -> None:
        self.asked.append(f"prepare {preload}")

    async def measure(self, data: Any, streams: Any, *, warmup_s: float, seconds: float) -> SimpleNamespace:
        (one,) = streams
        self.asked.append(f"{one.operation} {one.values} by {one.clients}, {seconds:g} s")
        return SimpleNamespace(operations_per_s=next(self.rates))

    async def drop(self) -> None:
        self.asked.append("drop")


async def nothing(_: Any) -> None:
    pass


ROUND = ["write 1 by 1, 2 s", "read 1 by 1, 2 s", "write 1000 by 1, 2 s", "read 1000 by 1, 2 s"]
STEADY = itertools.repeat(100.0)


@pytest.mark.parametrize(
    ("name", "rates", "rounds"),
    [
        ("cassandra", STEADY, 2),
        ("cassandra", itertools.chain([100, 100, 100, 100], [109, 91, 100, 100], STEADY), 2),  # no more than noise
        ("cassandra", itertools.chain([50, 100, 100, 10], [100, 100, 100, 90], STEADY), 4),  # one kind gains still
        ("cassandra", itertools.chain([90, 100, 100, 100], [100, 50, 100, 100], STEADY), 3),  # back, which is no gain
        ("cassandra", (1.2**n for n in itertools.count()), 8),  # and gains for ever
        ("questdb", STEADY, 2),
        ("postgresql", STEADY, 0),
    ],
)
def test_a_server_on_java_runs_in_before_its_first_trial_alone_until_it_is_steady(
    name: str, rates: Iterable[float], rounds: int
) -> None:
    settings = StorageSettings(databases=(name,), clients=(1, 16))
    client = Client(rates)
    target = SimpleNamespace(client=client, product=database(name), may_drop=True, embedded=False)
    testbed = SimpleNamespace(keeps_tables=True, kept_rows=None, has_run_in=False, note_held=nothing, rest=nothing)
    params = {"operation": "single-write", "of": "", "crash": "", "index": True, "late_share": 0.0}

    async def twice() -> None:
        for _ in range(2):
            async with filled(settings, testbed, target, params):  # type: ignore[arg-type]
                client.asked.append("measured")

    asyncio.run(twice())
    assert testbed.has_run_in is bool(rounds)
    trial = ["prepare 0", "measured", "drop"]
    before = ["prepare 1000", *(rounds * ROUND), "drop"] if rounds else []
    assert client.asked == [*before, *trial, *trial]


def test_a_server_that_was_started_again_after_a_crash_has_to_run_in_again() -> None:
    testbed = object.__new__(ServedTestbed)
    vars(testbed).update(has_run_in=True, _client=None, _process=SimpleNamespace(start=nothing))
    asyncio.run(testbed.restart("server"))
    assert not testbed.has_run_in
