"""The storage testbeds on real databases: what they measure, what faults become, and that nothing is left of them."""

from __future__ import annotations

import asyncio
import subprocess
from typing import Any

import pytest
from platforms.disk_checks import flushes_of_loop
from sampled import sampled
from suites.storage_testbeds import each, on_testbed, require

from virtgauge.host.tag import scratch_root
from virtgauge.suites.base import Cell
from virtgauge.suites.storage.client import Sensorstore, StoreError, run
from virtgauge.suites.storage.laboratory import StorageTestbed
from virtgauge.suites.storage.server import kill_tree
from virtgauge.suites.storage.suite import StorageSuite
from virtgauge.suites.testbed import Stage

pytestmark = pytest.mark.slow


PLAIN = (
    "multi-read",
    "single-write",
    "last-value",
    "window",
)  # The first is stored in files that nothing was in before


@pytest.mark.parametrize("late", [{}, {"late_share": [0.05]}], ids=["in-order", "late"])
@pytest.mark.parametrize("database", ["sqlite", "duckdb"])
def test_an_embedded_database_flushes_once_for_each_write_and_loses_nothing(database, late):
    require(database)
    design = {"databases": [database], "operations": [*PLAIN, "crash"], "crash_after_s": 0.3}
    found = on_testbed(design | late, each)
    write, read, crash = (found[name].result for name in ("single-write", "multi-read", "crash"))
    assert write["operations"] > 0
    assert 0.9 < write["flushes"] / write["operations"] < 3  # the warm-up's are among them
    assert read["rows"] == 1000 * read["operations"] > 0
    assert all(found[name].result["operations"] > 0 for name in PLAIN)
    assert not any(flag.name in {"wrong-answer", "flushes", "errors"} for one in found.values() for flag in one.flags)
    assert write["client_cpu_ns_per_operation"] > 0
    assert write["stored_readings"] >= write["operations"]  # the warm-up's, too
    assert read["stored_readings"] == 16 * 1000
    if database == "sqlite":
        assert 20 < read["bytes_per_reading"] < 200  # UUID, time and value are 32 bytes; an index
    else:
        assert "20 times the 262,144 by which DuckDB extends them" in read["stored_unknown"]
    assert (write["late_across"] is None) == (not late)
    assert crash["acknowledged_rows"] > 0
    assert crash["missing_rows"] == crash["wrong_rows"] == 0
    assert crash["recovery_ns"] is None, "no server has come up: the database recovers when it is opened"


def test_a_disk_of_7200_turns_a_minute_gives_a_server_120_writes_a_second():
    require("postgresql")
    design = {"databases": ["postgresql"], "flushes": ["rotational:7200"], "seconds": 1.0}
    measured = on_testbed(design, each)["single-write"]
    result = measured.result
    assert 60 < result["operations_per_s"] < 126
    assert result["flushes_per_operation"] == pytest.approx(1, abs=0.35)
    assert result["server_cpu_ns_per_operation"] > 0
    assert result["client_limit_per_s"] > 240
    assert result["settings"]["fsync"] == "on"


def test_a_few_readings_have_no_stored_bytes_and_many_the_same_whatever_the_log_holds() -> None:
    """Single writes grow PostgreSQL's files by pages, or its log by a segment of 16 MiB."""
    require("postgresql")
    design = {"databases": ["postgresql"], "operations": ["single-write", "multi-write", "multi-read"]}
    found = on_testbed(design | {"seconds": 2.0, "preload": 10_000, "loops": ["open:200"]}, each)
    few, written, read = (found[name].result for name in design["operations"])
    assert few["bytes_per_reading"] is None and "by which PostgreSQL extends them" in few["stored_unknown"]
    for many in (written, read):
        assert many["stored_readings"] > 100_000
        assert many["stored_log_bytes"] >= 16 << 20
        assert 80 < many["bytes_per_reading"] < 160  # a row of 64 bytes with its pointer, and 40 or more of its index


LOGS = {"mariadb": "ib_logfile0", "cassandra": "CommitLog-*", "mongodb": "WiredTigerLog.*", "influxdb": "**/*.wal"}


@pytest.mark.parametrize("database", sampled(["mariadb"], ["cassandra", "mongodb", "influxdb"]))
def test_a_commit_log_with_a_disk_of_its_own_is_there_and_nowhere_else(database: str) -> None:
    """Written, killed, recovered from; what is stored is counted on both disks."""
    require(database)

    async def work(suite: StorageSuite, cells: list[Cell], testbed: StorageTestbed, stage: Stage) -> None:
        data, log = (stage.scope.folder / f"testbed-{part}" / database for part in ("disk", "log"))
        write, crash = [await suite.measure(cell, testbed, lambda _: None) for cell in cells]
        assert write.result["operations"] > 0 and not {flag.name for flag in write.flags} - {"disk-changed"}
        assert list(log.glob(LOGS[database]))
        assert not [file for file in data.glob(f"**/{LOGS[database]}") if not file.is_symlink()]
        (counted,) = testbed.held
        assert counted == (data, log)
        assert crash.result["acknowledged_rows"] > 0
        assert crash.result["missing_rows"] == crash.result["wrong_rows"] == 0
        assert crash.result["recovery_ns"] > 0

    design = {"databases": [database], "operations": ["single-write", "crash"], "commit_log": ["separate"]}
    on_testbed(design | {"crash_after_s": 0.3, "disk_mib": 1024}, work)


def test_the_flushes_of_a_commit_log_with_a_disk_of_its_own_are_of_that_disk() -> None:
    """By the kernel's count of each disk, outside of the guest; the suite's own count has those of both."""
    require("postgresql")

    async def work(suite: StorageSuite, cells: list[Cell], testbed: StorageTestbed, stage: Stage) -> None:
        scratch = scratch_root() / stage.scope.tag
        images = [scratch / f"testbed-{part}-image" / "disk.img" for part in ("disk", "log")]
        before = [flushes_of_loop(image) for image in images]
        measured = await suite.measure(cells[0], testbed, lambda _: None)
        data, log = (flushes_of_loop(image) - was for image, was in zip(images, before, strict=True))
        operations, counted = measured.result["operations"], measured.result["flushes"]
        assert operations > 0 and not {flag.name for flag in measured.flags} - {"disk-changed"}
        assert counted >= operations and log >= operations
        assert data < operations / 2, "its checkpoints' and its tables', which are as many however fast it is"

    on_testbed({"databases": ["postgresql"], "commit_log": ["separate"], "seconds": 2.0}, work)


def test_a_table_that_was_only_read_is_read_again_and_any_other_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    prepare = Sensorstore.prepare

    async def counted(client: Sensorstore, *arguments: Any, **named: Any) -> None:
        made.append(named["preload"])
        await prepare(client, *arguments, **named)

    monkeypatch.setattr(Sensorstore, "prepare", counted)

    async def work(
        suite: StorageSuite, cells: list[Cell], testbed: StorageTestbed, _: Stage
    ) -> list[tuple[str, list[int]]]:
        by_operation = {cell.factors["operation"]: cell for cell in cells}
        found = []
        for operation in (
            "single-read",
            "multi-read",
            "single-write",
            "multi-read",
            "multi-read",
            "mixed",
            "single-read",
        ):
            made.clear()
            measured = await suite.measure(by_operation[operation], testbed, lambda _: None)
            assert measured.result["operations"] > 0 and not measured.result["wrong"] and not measured.result["errors"]
            found.append((operation, list(made)))
        return found

    design = {"databases": ["sqlite"], "durability": ["os"], "seconds": 0.1}
    design["operations"] = ["single-read", "multi-read", "single-write", "mixed"]
    assert on_testbed(design, work) == [
        ("single-read", [1000]),
        ("multi-read", []),
        ("single-write", [0]),
        ("multi-read", [1000]),
        ("multi-read", []),
        ("mixed", [1000]),
        ("single-read", [1000]),
    ]


def test_a_server_that_dies_in_a_trial_is_a_failure_with_its_last_words_and_the_testbed_is_spoiled():
    require("postgresql")

    async def work(suite: StorageSuite, cells: list[Cell], testbed: StorageTestbed, stage: Stage) -> None:
        trial = asyncio.ensure_future(suite.measure(cells[0], testbed, lambda _: None))
        await asyncio.sleep(2.0)
        assert await kill_tree(testbed.guest.channel, stage.scope.folder / "testbed-shared" / "server.pid")
        with pytest.raises(StoreError) as caught:
            await trial
        assert caught.value.code in {"lost", "refused"}
        assert "the server has ended" in caught.value.message
        assert testbed.closed

    on_testbed({"databases": ["postgresql"], "seconds": 5.0, "timeout_ms": 1500}, work)


def test_a_server_that_hangs_in_a_trial_times_out():
    require("postgresql")

    async def work(suite: StorageSuite, cells: list[Cell], testbed: StorageTestbed, stage: Stage) -> None:
        trial = asyncio.ensure_future(suite.measure(cells[0], testbed, lambda _: None))
        await asyncio.sleep(2.0)
        pid = (stage.scope.folder / "testbed-shared" / "server.pid").read_text().strip()
        children = subprocess.run(["pgrep", "-P", pid], capture_output=True, text=True, check=True).stdout.split()
        subprocess.run(["kill", "-STOP", pid, *children], check=True)
        with pytest.raises(StoreError) as caught:
            await trial
        assert caught.value.code == "timeout"

    on_testbed({"databases": ["postgresql"], "seconds": 5.0, "timeout_ms": 1500}, work)


def test_a_full_disk_is_a_failure_in_words():
    async def work(suite: StorageSuite, cells: list[Cell], testbed: StorageTestbed, stage: Stage) -> None:
        filler = f"dd if=/dev/zero of={stage.scope.folder}/testbed-disk/filler bs=64k 2>/dev/null; truncate -s -4M "
        filler += f"{stage.scope.folder}/testbed-disk/filler"
        await run(testbed.guest.channel, ["/bin/sh", "-c", filler])
        with pytest.raises(StoreError) as caught:
            await suite.measure(cells[0], testbed, lambda _: None)
        assert caught.value.code == "full", caught.value
        assert testbed.closed

    on_testbed({"databases": ["sqlite"], "operations": ["multi-write"], "disk_mib": 64, "seconds": 10.0}, work)


def test_a_level_that_a_database_does_not_have_is_unsupported_with_the_reason():
    async def work(suite: StorageSuite, cells: list[Cell], testbed: StorageTestbed, _: Stage) -> None:
        with pytest.raises(StoreError) as caught:
            await suite.measure(cells[0], testbed, lambda _: None)
        assert caught.value.code == "unsupported"
        assert "SQLite has no level 'none'" in caught.value.message
        assert not testbed.closed

    on_testbed({"databases": ["sqlite"], "durability": ["none"]}, work)


def test_nothing_listens_at_an_existing_servers_address():
    async def work(suite: StorageSuite, cells: list[Cell], testbed: StorageTestbed, _: Stage) -> None:
        with pytest.raises(StoreError) as caught:
            await suite.measure(cells[0], testbed, lambda _: None)
        assert caught.value.code == "refused"

    server = {"database": "postgresql", "uri": "postgresql://me@127.0.0.1:1/db"}
    on_testbed({"databases": [], "server": [server]}, work)


@pytest.mark.parametrize("machine", ["microvm"])
def test_a_machine_crash_is_audited_on_the_same_disk(machine):
    design = {"databases": ["sqlite"], "operations": ["crash"], "crash": ["machine"], "crash_after_s": 1.0}
    found = on_testbed(design, each, "qemu", machine=machine)
    result = found["crash"].result
    assert result["acknowledged_rows"] > 0
    assert result["missing_rows"] == 0  # flushed before each acknowledgement
