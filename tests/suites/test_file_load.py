"""The I/O- and network-bound load: a real file service inside real guests, used from outside over a network."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest

from virtgauge.agent import find_agent
from virtgauge.agent.channel import AgentError, ChannelClosedError
from virtgauge.host.scope import Scope
from virtgauge.host.tag import scratch_root
from virtgauge.platforms import create
from virtgauge.provision.ganesha import find_ganesha
from virtgauge.suites.file_load import FileLoadSettings, FileService, FileTestbed, load_flags
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


def measured(kind: str, settings: dict[str, Any]) -> tuple[FileService, dict[str, Any]]:
    """A cell with the load, as the suite measures it, and what served; the testbed is closed."""

    async def measure() -> tuple[FileService, dict[str, Any]]:
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
        assert testbed.service is not None
        return testbed.service, measurement.result

    return asyncio.run(measure())


def assert_worked(service: FileService, result: dict[str, Any]) -> None:
    load = result["load"]
    assert (load["name"], load["service"], load["fallback"]) == ("io", service.name, service.fallback)
    assert load["read_mb_per_s"] > 0 and load["written_mb_per_s"] > 0 and load["flushes"] > 0
    assert load["errors"] == load["wrong_content"] == 0
    assert 0 < load["achieved"]["cpu_busy_share"] <= 1
    assert load["achieved"]["elapsed_ns"] <= load["elapsed_ns"], "the client worked from the first sample to the last"


def assert_ganesha_or_why_not(service: FileService, filesystems: str) -> None:
    """By nfs-ganesha wherever it is in the cache; where the distribution has none, that is the reason."""
    ganesha = find_ganesha()
    if ganesha is None:
        assert service.name.startswith("agent file service (")
        assert "not in the cache" in (service.fallback or "")
    else:
        assert service.name in [f"nfs-ganesha {ganesha.version} ({name})" for name in filesystems.split()]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "settings"), [("host", {}), ("oci", {"runtime": "runc"})], ids=["host", "runc"])
def test_a_real_nfs_server_serves_from_a_disk_where_the_guest_shares_the_kernel(
    kind: str, settings: dict[str, Any]
) -> None:
    service, result = measured(kind, settings)
    assert_ganesha_or_why_not(service, "VFS")
    assert_worked(service, result)
    assert result["load"]["achieved"]["context_switches_per_s"] > 100
    assert result["load"]["achieved"]["interrupts_per_s"] > 0


@pytest.mark.full
@pytest.mark.slow
def test_a_sandbox_serves_too_and_says_what_it_cannot_tell() -> None:
    service, result = measured("oci", {"runtime": "runsc"})
    assert_ganesha_or_why_not(service, "VFS MEM")
    assert_worked(service, result)
    assert result["load"]["achieved"]["interrupts_per_s"] is None


@pytest.mark.slow
def test_a_machine_without_a_filesystem_serves_by_the_agent_and_says_why() -> None:
    service, result = measured("qemu", {})
    assert service.name in ("agent file service (ramfs)", "agent file service (tmpfs)")
    assert service.fallback and "nfs-ganesha" in service.fallback
    assert_worked(service, result)
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
                assert testbed.service is not None
                await testbed.guest.channel.request("load_stop", load=testbed.service.load, timeout_s=10)
                await asyncio.sleep(0.2)
                return await testbed.stop(client)
            finally:
                await stage.close()

    flags = [*load_flags(asyncio.run(measure()))]
    assert [(flag.name, flag.fatal) for flag in flags] == [("load-failed", True)]
    assert "2 errors" in flags[0].detail


async def test_files_over_a_slow_path_are_tried_for_longer_and_not_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 100 ms of round trip hardly an operation ends in the first moment."""
    tries = [{"read_bytes": 0, "written_bytes": 0}, {"read_bytes": 1, "written_bytes": 0}]
    pauses: list[float] = []

    class Agent:
        async def request(self, kind: str, name: str = "", **_: object) -> SimpleNamespace:
            if kind == "load_start":
                return SimpleNamespace(value={"load": 1})
            done = tries.pop(0) if tries else {"read_bytes": 1, "written_bytes": 1}
            return SimpleNamespace(value=done | {"errors": 0, "first_error": None, "filesystem": "ext4"})

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr("virtgauge.suites.file_load.asyncio.sleep", sleep)
    testbed = await existing(Agent(), Agent())
    assert await testbed.start(SETTINGS) == 1
    assert testbed.service is not None and testbed.service.name == "agent file service (ext4)"
    assert len(pauses) == 3 and pauses == sorted(set(pauses))


async def test_a_peer_that_is_lost_is_told_from_the_machine_itself() -> None:
    class Lost:
        closed = True

        async def request(self, kind: str, **_: object) -> SimpleNamespace:
            raise ChannelClosedError("the stream ended")

    class Serving:
        closed = False

        async def request(self, kind: str, **_: object) -> SimpleNamespace:
            return SimpleNamespace(value={"load": 1})

    with pytest.raises(AgentError, match="lost: the peer, which uses the files of the load io, was lost"):
        await (await existing(Serving(), Lost())).start(SETTINGS)
    with pytest.raises(ChannelClosedError):
        await (await existing(Lost(), Lost())).start(SETTINGS)


async def existing(guest: object, peer: object) -> FileTestbed:
    """The testbed of two machines that exist already, by their channels."""
    platform = SimpleNamespace(only_plain="as it is", address="192.0.2.1")
    helper = AsyncMock(return_value=SimpleNamespace(channel=peer))
    guests = [SimpleNamespace(channel=guest)]
    stage = SimpleNamespace(guests=guests, platform=platform, launch=AsyncMock(), launch_helper=helper)
    testbed = FileTestbed(cast(Stage, stage))
    await testbed.set_up(SETTINGS)
    return testbed


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
