"""Servers in sandboxes and virtual machines: a write and a read of each that can be had in seconds.

Which others were tried by hand, and what came out, is in docs/storage.md.
"""

from __future__ import annotations

from typing import Any

import pytest
from sampled import sampled
from suites.storage_testbeds import each, on_testbed, require

from virtgauge.suites.base import Cell
from virtgauge.suites.storage.client import StoreError
from virtgauge.suites.storage.laboratory import StorageTestbed
from virtgauge.suites.storage.suite import StorageSuite
from virtgauge.suites.testbed import Stage

pytestmark = pytest.mark.slow

PLATFORMS: dict[str, dict[str, Any]] = {
    "gvisor": {"kind": "oci", "runtime": "runsc"},
    "qemu": {"kind": "qemu", "machine": "microvm"},
    "uml": {"kind": "uml"},
}
PAIRS = sampled(
    [("mongodb", "gvisor"), ("victoriametrics", "qemu")],
    [("influxdb", "gvisor"), ("victoriametrics", "gvisor"), ("influxdb", "qemu")],
)
OF_GO = {"influxdb", "victoriametrics"}
LEVELS = {"victoriametrics": "none"}


@pytest.mark.parametrize(("database", "platform"), PAIRS)
def test_a_server_in_a_guest_stores_readings_and_gives_them_back(database: str, platform: str) -> None:
    require(database)
    design = {"databases": [database], "operations": ["single-write", "multi-read"], "timeout_ms": 20_000}
    design |= {"durability": [LEVELS.get(database, "flushed")], "sensors": 2, "seconds": 0.5}
    found = on_testbed(design, each, **PLATFORMS[platform])
    write, read = found["single-write"], found["multi-read"]
    assert write.result["operations"] > 0 and read.result["rows"] == 1000 * read.result["operations"] > 0
    for measured in found.values():
        assert not measured.result["wrong"] and not measured.result["errors"]
        assert not {flag.name for flag in measured.flags} & {"wrong-answer", "flushes", "errors", "empty"}
    if platform == "gvisor" and database in OF_GO:
        assert write.result["flushes"] is None, "a figure that nobody counted"
        assert "flushes-uncounted" in {flag.name for flag in write.flags}
        assert "flushes-uncounted" not in {flag.name for flag in read.flags}
    elif LEVELS.get(database) is None:
        assert write.result["flushes"] >= write.result["operations"]


@pytest.mark.full
@pytest.mark.parametrize("platform", ["gvisor", "qemu", "uml"])
def test_a_commit_log_has_a_disk_of_its_own_in_a_guest_and_outlives_its_crash(platform: str) -> None:
    require("postgresql")
    crash = {"crash": ["server" if platform == "gvisor" else "machine"], "crash_after_s": 0.5}
    design = {"databases": ["postgresql"], "operations": ["single-write", "crash"], "commit_log": ["separate"]}
    found = on_testbed(design | crash | {"timeout_ms": 20_000, "seconds": 0.5}, each, **PLATFORMS[platform])
    write, lost = found["single-write"].result, found["crash"].result
    assert write["flushes"] >= write["operations"] > 0 and not write["errors"]
    assert lost["acknowledged_rows"] > 0
    assert lost["missing_rows"] == lost["wrong_rows"] == 0


def test_flushes_that_cannot_be_reached_in_a_guest_are_not_made_to_cost_what_a_disk_says() -> None:
    require("influxdb")

    async def work(suite: StorageSuite, cells: list[Cell], testbed: StorageTestbed, _: Stage) -> None:
        with pytest.raises(StoreError) as caught:
            await suite.measure(cells[0], testbed, lambda _: None)
        assert caught.value.code == "unsupported"
        assert "rotational:7200" in caught.value.message and "as-is" in caught.value.message

    on_testbed({"databases": ["influxdb"], "flushes": ["rotational:7200"]}, work, **PLATFORMS["gvisor"])
