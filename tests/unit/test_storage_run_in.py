"""A server on Java is loaded before it is first measured, once."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from virtgauge.suites.storage.client import StoreError
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
        self.failure: StoreError | None = None

    def refuse(self) -> None:
        if self.failure:
            raise self.failure

    async def prepare(self, data: Any, *, preload: int, **_: Any) -> None:
        self.asked.append(f"prepare {preload}")

    async def measure(self, data: Any, streams: Any, *, warmup_s: float, seconds: float) -> SimpleNamespace:
        (one,) = streams
        self.asked.append(f"{one.operation} {one.values} by {one.clients}, {seconds:g} s")
        return SimpleNamespace(operations_per_s=next(self.rates), refuse_unusable=self.refuse)

    async def drop(self) -> None:
        self.asked.append("drop")


async def nothing(_: Any) -> None:
    pass


KINDS = ["write 1 by 1, 2 s", "read 1 by 1, 2 s", "write 1000 by 1, 2 s", "read 1000 by 1, 2 s"]
ROUND = ["prepare 1000", *KINDS, "drop"]
TRIAL = ["prepare 0", "measured", "drop"]
STEADY = itertools.repeat(100.0)


def measured_twice(client: Client, settings: StorageSettings) -> None:
    """Two trials on one server."""
    target = SimpleNamespace(client=client, product=database(settings.databases[0]), may_drop=True, embedded=False)
    testbed = SimpleNamespace(keeps_tables=True, kept_rows=None, has_run_in=False, note_held=nothing, rest=nothing)
    params = {"operation": "single-write", "of": "", "crash": "", "index": True, "late_share": 0.0}

    async def twice() -> None:
        for _ in range(2):
            async with filled(settings, testbed, target, params):  # type: ignore[arg-type]
                client.asked.append("measured")

    asyncio.run(twice())


@pytest.mark.parametrize(
    ("name", "rates", "rounds"),
    [
        ("cassandra", STEADY, 3),
        ("cassandra", itertools.chain([100, 100, 100, 100], [119, 91, 100, 100], STEADY), 3),  # no more than noise
        ("cassandra", itertools.chain([80, 100, 100, 100], [100, 50, 100, 100], STEADY), 4),  # back, which is no gain
        ("cassandra", itertools.chain(4 * [100], 4 * [100], [100, 100, 100, 121], STEADY), 5),  # after a flat round
        ("questdb", STEADY, 3),
        ("postgresql", STEADY, 0),
    ],
)
def test_a_server_on_java_runs_in_before_its_first_trial_alone_until_it_is_steady(
    name: str, rates: Iterable[float], rounds: int
) -> None:
    client = Client(rates)
    measured_twice(client, StorageSettings(databases=(name,), clients=(1, 16)))
    assert client.asked == [*(rounds * ROUND), *TRIAL, *TRIAL]


def test_a_server_on_java_that_never_gets_steady_is_measured_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = itertools.count(step=10)
    client = Client(1.3**n for n in itertools.count())
    settings = StorageSettings(databases=("cassandra",), operations=("single-write", "window"))
    monkeypatch.setattr("virtgauge.suites.storage.trial.time", SimpleNamespace(monotonic=lambda: next(moments)))
    measured_twice(client, settings)
    assert client.asked.count("prepare 1000") == 8, "80 s after the first look are the last before 90 s"
    assert client.asked.count("window 1000 by 1, 2 s") == 8


def test_operations_that_fail_while_a_server_runs_in_are_no_steady_rate() -> None:
    client = Client(STEADY)
    client.failure = StoreError("full", "the disk is full")
    with pytest.raises(StoreError, match="the disk is full"):
        measured_twice(client, StorageSettings(databases=("cassandra",)))
    assert client.asked == ROUND, "its table is dropped, and nothing measured"


def test_a_server_that_was_started_again_after_a_crash_has_to_run_in_again() -> None:
    testbed = object.__new__(ServedTestbed)
    vars(testbed).update(has_run_in=True, _client=None, _process=SimpleNamespace(start=nothing))
    asyncio.run(testbed.restart("server"))
    assert not testbed.has_run_in
