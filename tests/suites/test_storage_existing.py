"""Servers that are there already: measured from the host, denied in words, and nothing of theirs is lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from suites.database_servers import RunningServer, answer_of, running

from virtgauge.agent import find_agent
from virtgauge.errors import UsageError
from virtgauge.host.scope import Scope
from virtgauge.platforms import create
from virtgauge.suites.base import Measurement
from virtgauge.suites.storage.client import StoreError
from virtgauge.suites.storage.databases import database
from virtgauge.suites.storage.databases.base import Durability
from virtgauge.suites.storage.existing import ExistingServer, allowing_drop
from virtgauge.suites.storage.suite import StorageSuite
from virtgauge.suites.testbed import Stage

PASSWORD = "VIRTGAUGE_TEST_PASSWORD"
DATA = {"seed": 7, "sensors": 4, "step_ms": 1000}


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running(database("postgresql"), Durability.FLUSHED) as server:
        yield server


def measured(server: RunningServer, name: str = "postgres", **changes: Any) -> Measurement:
    """One trial of single writes on it, as a plan would have it."""
    layout = server.layout
    uri = f"postgresql://virtgauge@{layout.address}:{layout.port}/{name}"
    existing = {"database": "postgresql", "uri": uri, "password_env": PASSWORD, **changes}
    timing = {"seconds": 0.3, "warmup_s": 0.05, "calibration_s": 0.0, "timeout_ms": 3000}
    design = {"databases": [], "server": [existing], "operations": ["single-write"], **timing}

    async def inside() -> Measurement:
        suite = StorageSuite.create(design)
        (cell,) = suite.cells()
        with Scope() as scope:
            stage = Stage(create("host", {}), scope, find_agent(), "testbed")
            try:
                return await suite.measure(cell, await suite.set_up(cell.testbed, stage), lambda _: None)
            finally:
                await stage.close()

    return asyncio.run(asyncio.wait_for(inside(), 60))


def rows_of(server: RunningServer) -> int:
    """How many readings its table holds, by a client that only looks: 4 sensors of 10 when nobody touched it."""
    stream = {"operation": "read", "values": 10, "clients": 1, "pipeline": 1, "preload": 10, "loop": {"kind": "closed"}}
    timed = {"warmup_ms": 0, "duration_ms": 100, "acknowledged": None, "until_failure": False}
    timed |= {"least_operations": 1, "longer_ms": 60_000}
    found = answer_of("measure", {"store": server.store, "data": DATA, "streams": [stream], **timed})
    (result,) = found["streams"]
    assert result["wrong"] == 0 and result["errors"] == 0, result["first_error"]
    return int(result["rows"] / result["operations"] * DATA["sensors"])


@pytest.mark.slow
def test_it_is_measured_and_its_table_is_gone_afterwards(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PASSWORD, server.layout.password)
    result = measured(server).result
    assert result["operations"] > 0 and "PostgreSQL" in result["database"]
    assert result["bytes_per_reading"] is None and "existing server" in result["stored_unknown"]
    assert server.layout.password not in str(result)
    answer_of("prepare", {"store": server.store, "index": True, "drop": False, "data": DATA, "preload": 10})
    answer_of("drop", {"store": server.store})


@pytest.mark.slow
def test_no_process_shows_the_password_among_its_arguments(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PASSWORD, server.layout.password)
    lines: set[bytes] = set()
    with ThreadPoolExecutor(1) as pool:
        trial = pool.submit(measured, server)
        while not trial.done():
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):  # it ended meanwhile
                    lines.add(path.read_bytes())
    assert trial.result().result["operations"] > 0
    assert any(b"sensorstore\0measure" in line for line in lines), "the client was not seen at work"
    assert not any(server.layout.password.encode() in line for line in lines)


@pytest.mark.slow
def test_a_table_that_is_there_is_not_touched_unless_that_is_allowed(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PASSWORD, server.layout.password)
    answer_of("prepare", {"store": server.store, "index": True, "drop": True, "data": DATA, "preload": 10})
    with pytest.raises(StoreError) as refusal:
        measured(server)
    assert refusal.value.code == "exists" and "virtgauge_readings" in refusal.value.message
    assert rows_of(server) == 40
    assert measured(server, allow_drop=True).result["operations"] > 0


@pytest.mark.slow
def test_a_wrong_password_and_a_wrong_database_are_told_apart(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PASSWORD, "wrong")
    with pytest.raises(StoreError) as denied:
        measured(server)
    assert denied.value.code == "denied"
    monkeypatch.setenv(PASSWORD, server.layout.password)
    with pytest.raises(StoreError) as missing:
        measured(server, name="nowhere")
    assert missing.value.code == "schema" and "nowhere" in missing.value.message


def test_dropping_is_allowed_to_every_existing_server_of_a_plan() -> None:
    plain = {"databases": ["sqlite"]}
    named = {"server": [{"database": "postgresql", "uri": "postgresql://me@db.example/x"}]}
    sections, servers = allowing_drop([plain, named])
    assert servers == 1
    assert sections[0] == plain and sections[1]["server"][0]["allow_drop"] is True
    assert "allow_drop" not in named["server"][0]


def test_a_password_that_is_not_in_the_environment_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PASSWORD, raising=False)
    server = ExistingServer(database="mongodb", uri="mongodb://me@db.example/x", password_env=PASSWORD)
    with pytest.raises(UsageError, match=PASSWORD):
        server.password()


@pytest.mark.parametrize(
    ("uri", "wanted"),
    [
        ("mongodb://me%40here@db.example/x", "mongodb://me%40here:p%2F%40ss@db.example/x"),
        ("mongodb://me@db.example:1/x?authSource=admin", "mongodb://me:p%2F%40ss@db.example:1/x?authSource=admin"),
        ("mongodb://db.example/x", "mongodb://db.example/x"),  # without users, it is not asked to let one in
    ],
)
def test_a_mongodb_is_named_as_its_own_addresses_do(monkeypatch: pytest.MonkeyPatch, uri: str, wanted: str) -> None:
    monkeypatch.setenv(PASSWORD, "p/@ss")
    server = ExistingServer(database="mongodb", uri=uri, password_env=PASSWORD)
    assert server.store(1000)["uri"] == wanted
    assert "p/@ss" not in server.model_dump_json() and "p%2F%40ss" not in server.model_dump_json()


@pytest.mark.parametrize(
    "uri",
    ["mongodb://h/x?tls=true", "mongodb://h/x?authSource=a&tls=true", "mongodb://h/x#y", "mongodb://h/x?authSource="],
)
def test_options_of_an_address_that_would_not_be_followed_are_refused(uri: str) -> None:
    with pytest.raises(ValidationError, match="not passed on"):
        ExistingServer(database="mongodb", uri=uri)
    with pytest.raises(ValidationError, match="not passed on"):
        ExistingServer(database="postgresql", uri="postgresql://h/x?authSource=admin")


def test_what_a_plan_lacks_is_said_beforehand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PASSWORD, raising=False)
    server = {"database": "postgresql", "uri": "postgresql://me@h/x", "password_env": PASSWORD}
    suite = StorageSuite.create({"databases": [], "server": [server]})
    (words,) = suite.missing_prerequisites()
    assert f"export {PASSWORD}=" in words
    monkeypatch.setenv(PASSWORD, "known")
    assert suite.missing_prerequisites() == []
