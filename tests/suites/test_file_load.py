"""The I/O- and network-bound load: a real file service inside real guests, used from outside over a network."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from virtgauge.agent import find_agent
from virtgauge.host.scope import Scope
from virtgauge.host.tag import scratch_root
from virtgauge.platforms import create
from virtgauge.provision.ganesha import find_ganesha
from virtgauge.suites.file_load import FileLoadSettings, FileTestbed, load_flags
from virtgauge.suites.testbed import Stage
from virtgauge.suites.timing import TimingSuite

pytestmark = pytest.mark.usefixtures("private_state")

SETTINGS = FileLoadSettings(threads=2, file_mib=1, flush_every=4)
DESIGN: dict[str, Any] = {
    "timers": ["clock_gettime"],
    "reads": 20_000_000,
    "sleeps": [],
    "loads": ["idle", "io"],
    "io": SETTINGS.model_dump(),
}


def measured(kind: str, settings: dict[str, Any]) -> tuple[FileTestbed, dict[str, Any]]:
    """A cell with the load, as the suite measures it; the testbed is closed."""

    async def measure() -> tuple[FileTestbed, dict[str, Any]]:
        suite = TimingSuite.create(DESIGN)
        cell = next(cell for cell in suite.cells() if cell.factors["load"] == "io")
        with Scope() as scope:
            stage = Stage(create(kind, settings), scope, find_agent(), "testbed")
            try:
                testbed = await suite.set_up(cell.testbed, stage)
                assert isinstance(testbed, FileTestbed)
                measurement = await suite.measure(cell, testbed, lambda _: None)
            finally:
                await stage.close()
            assert not list((scratch_root() / scope.tag).glob("testbed-*")), "its files are left"
        assert not [flag for flag in measurement.flags if flag.fatal], measurement.flags
        assert not Path("/run/netns", f"{scope.tag}-testbed-lab").exists(), "its namespace is left"
        return testbed, measurement.result

    return asyncio.run(measure())


def assert_worked(testbed: FileTestbed, result: dict[str, Any]) -> None:
    load = result["load"]
    assert (load["name"], load["service"], load["fallback"]) == ("io", testbed.service.name, testbed.service.fallback)
    assert load["read_mb_per_s"] > 0 and load["written_mb_per_s"] > 0 and load["flushes"] > 0
    assert load["errors"] == load["wrong_content"] == 0
    assert 0 < load["achieved"]["cpu_busy_share"] <= 1
    assert load["achieved"]["elapsed_ns"] <= load["elapsed_ns"], "the client worked from the first sample to the last"


def assert_ganesha_or_why_not(testbed: FileTestbed, filesystems: str) -> None:
    """By nfs-ganesha wherever it is in the cache; where the distribution has none, that is the reason."""
    ganesha = find_ganesha()
    if ganesha is None:
        assert testbed.service.name == "agent file service"
        assert "not in the cache" in (testbed.service.fallback or "")
    else:
        assert testbed.service.name in [f"nfs-ganesha {ganesha.version} ({name})" for name in filesystems.split()]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "settings"), [("host", {}), ("oci", {"runtime": "runc"})], ids=["host", "runc"])
def test_a_real_nfs_server_serves_from_a_disk_where_the_guest_shares_the_kernel(
    kind: str, settings: dict[str, Any]
) -> None:
    testbed, result = measured(kind, settings)
    assert_ganesha_or_why_not(testbed, "VFS")
    assert_worked(testbed, result)
    assert result["load"]["achieved"]["context_switches_per_s"] > 100
    assert result["load"]["achieved"]["interrupts_per_s"] > 0


@pytest.mark.full
@pytest.mark.slow
def test_a_sandbox_serves_too_and_says_what_it_cannot_tell() -> None:
    testbed, result = measured("oci", {"runtime": "runsc"})
    assert_ganesha_or_why_not(testbed, "VFS MEM")
    assert_worked(testbed, result)
    assert result["load"]["achieved"]["interrupts_per_s"] is None


@pytest.mark.slow
def test_a_machine_without_a_filesystem_serves_by_the_agent_and_says_why() -> None:
    testbed, result = measured("qemu", {})
    assert testbed.service.name == "agent file service"
    assert testbed.service.fallback and "nfs-ganesha" in testbed.service.fallback
    assert_worked(testbed, result)
    flags = [*load_flags(result["load"])]
    assert [(flag.name, flag.fatal) for flag in flags] == [("file-service", False)]


@pytest.mark.slow
def test_a_service_that_dies_fails_the_trial_that_needed_it() -> None:
    async def measure() -> dict[str, Any]:
        with Scope() as scope:
            stage = Stage(create("host", {}), scope, find_agent(), "testbed")
            try:
                testbed = FileTestbed(stage)
                await testbed.set_up(SETTINGS)
                client = await testbed.start(SETTINGS)
                await testbed.guest.channel.request("load_stop", load=testbed.service.load, timeout_s=10)
                await asyncio.sleep(0.2)
                return await testbed.stop(client)
            finally:
                await stage.close()

    flags = [*load_flags(asyncio.run(measure()))]
    assert [(flag.name, flag.fatal) for flag in flags] == [("load-failed", True)]
    assert "2 errors" in flags[0].detail


def test_cells_of_other_loads_and_other_file_sizes_stand_on_other_testbeds() -> None:
    def testbeds(mib: int) -> dict[str, str]:
        suite = TimingSuite.create(DESIGN | {"io": {"file_mib": mib}})
        return {cell.factors["load"]: cell.testbed for cell in suite.cells()}

    assert testbeds(1)["idle"] == testbeds(2)["idle"] == "guest"
    assert len({testbeds(1)["io"], testbeds(2)["io"], "guest"}) == 3


def test_a_load_that_did_nothing_or_read_what_was_not_written_makes_a_trial_invalid() -> None:
    load = {"operations": 10, "errors": 0, "wrong_content": 0, "first_error": None, "fallback": None, "service": "x"}
    assert not [*load_flags(load)]
    for wrong in ({"operations": 0}, {"errors": 1, "wrong_content": 1, "first_error": "block 3"}):
        assert [flag.fatal for flag in load_flags(load | wrong)] == [True]
    assert [flag.fatal for flag in load_flags(load | {"fallback": "why"})] == [False]
