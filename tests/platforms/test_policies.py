"""What a policy does to real guests, seen from outside of them."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from platforms.conftest import burnt_share, require, running, undisturbed
from platforms.disk_checks import PLATFORMS, disk, shell
from sampled import on, sampled

import virtgauge
from virtgauge.agent.channel import ChannelClosedError
from virtgauge.host.cgroup import Hierarchies
from virtgauge.host.policy import DiskLimits, Policy, PolicyError
from virtgauge.host.scope import Scope
from virtgauge.platforms import create
from virtgauge.platforms.base import Guest, GuestSpec, Platform, Share

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(300)]
Spec = Callable[..., GuestSpec]
CORE = max(os.sched_getaffinity(0))
ALL = DiskLimits(read_bps=4_000_000, write_bps=2_000_000)


async def usable(name: str) -> Platform:
    kind, settings = PLATFORMS[name]
    platform = create(kind, settings)
    require(await platform.probe(), name)
    return platform


ELSEWHERE = "host runsc microvm"
"""What holds of a container's control groups holds of the others': `make test-all` tries it."""


@pytest.fixture
async def platform(request: pytest.FixtureRequest, private_state: Path) -> Platform:
    return await usable(request.param)


@contextlib.asynccontextmanager
async def busy(*guests: Guest) -> AsyncIterator[None]:
    """Each works on all its processors."""
    loads = []
    for guest in guests:
        started = await guest.channel.request("load_start", name="cpu", params={"threads": 2}, timeout_s=60)
        loads.append((guest, started.value["load"]))
    yield
    for guest, load in loads:
        await guest.channel.request("load_stop", load=load, timeout_s=120)


async def received(seconds: float, *guests: Guest) -> list[float]:
    """CPUs that each was charged with, from outside."""
    clock = asyncio.get_running_loop()
    before, began = [guest.accounting().cpu_ns for guest in guests], clock.time()
    await asyncio.sleep(seconds)
    after, elapsed = [guest.accounting().cpu_ns for guest in guests], clock.time() - began
    return [((last or 0) - (first or 0)) / elapsed / 1e9 for first, last in zip(before, after, strict=True)]


def members(guest: Guest, scope: Scope) -> set[int]:
    """The processes of a guest, found without the code under test: who carries its group's name."""
    needle = f"virtgauge/{scope.tag}/"
    found = set()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and needle in (entry / "cgroup").read_text():
                found.add(int(entry.name))
    return found


async def disk_rate(guest: Guest, folder: Path, operation: str, seconds: float = 0.6) -> tuple[float, bool]:
    """Bytes a second past the page cache, and whether it was left out."""
    params = {
        **{"kernel": "disk", "threads": 1, "warmup_ns": 3 * 10**8, "duration_ns": int(seconds * 1e9)},
        **{"slice_ns": 10**8, "seed": 1, "order": "sequential", "operation": operation, "folder": str(folder)},
        **{"block_bytes": 65536, "file_bytes": 2 << 20},
    }
    reply = await guest.channel.request("probe", name="kernel", params=params, load=None, timeout_s=120)
    return reply.value["units"] / reply.value["elapsed_ns"] * 1e9, bool(reply.value["direct"])


@on("runc microvm", "host runsc")
async def test_a_limit_holds_by_outside_accounting_and_can_be_lifted(platform: Platform, spec: Spec) -> None:
    async with running(platform, spec()) as guest:
        applied = await guest.apply(Policy(cpu_limit=0.3))
        assert "30000" in " ".join(applied.in_force.values())
        assert applied.no_effect == ()
        before = guest.throttling()
        async with busy(guest):
            await undisturbed(lambda: received(2.0, guest), lambda found: found[0] < 0.33)
            after = guest.throttling()
            assert before is not None
            assert after is not None
            span = after.since(before)
            assert 1 <= span.throttled <= span.periods  # of 20; a machine that others use throttles less often
            assert span.throttled_ns > 0
            lifted = await guest.apply(Policy())
            assert lifted.in_force == {}
            first = guest.throttling()
            (free,) = await received(2.0, guest)
            last = guest.throttling()
        assert free > 0
        assert first is not None
        assert last is not None
        assert last.since(first).throttled == 0


@on("runc", ELSEWHERE)
async def test_every_process_of_the_guest_is_in_the_group_that_is_set(
    platform: Platform, scope: Scope, spec: Spec
) -> None:
    """gVisor's sandbox and gofer, QEMU's threads, and what the guest starts later."""
    async with running(platform, spec()) as guest:
        await guest.apply(Policy(cpu_limit=0.5, cores=(CORE,)))
        group = f"virtgauge/{scope.tag}/"
        async with busy(guest):
            found = members(guest, scope)
            assert found
            v1 = "cpu" in Hierarchies.detect().v1
            for pid in found:
                lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
                controllers = [line.split(":")[1] for line in lines if group in line]
                assert {"cpu", "cpuset"} <= {name for part in controllers for name in part.split(",")} or not v1
                for task in Path(f"/proc/{pid}/task").iterdir():
                    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended
                        status = (task / "status").read_text()
                        assert f"Cpus_allowed_list:\t{CORE}\n" in status
            await undisturbed(lambda: received(2.0, guest), lambda found: found[0] < 0.55)


@on("runc", ELSEWHERE)
async def test_cores_confine(platform: Platform, spec: Spec) -> None:
    async with running(platform, spec()) as guest:
        applied = await guest.apply(Policy(cores=(CORE,)))
        assert applied.in_force["cpuset.cpus"] == str(CORE)
        used, _ = await burnt_share(guest, 2.0, threads=2)
        assert 0 < used < 1.05


@on("runc", ELSEWHERE)
async def test_weights_divide_one_core_in_their_ratio(platform: Platform, spec: Spec) -> None:
    async with running(platform, spec()) as heavy, running(platform, spec()) as light:
        said = await heavy.apply(Policy(weight=300, cores=(CORE,)))
        await light.apply(Policy(weight=100, cores=(CORE,)))
        assert {"cpu.shares": "3072", "cpu.weight": "300"}.items() & said.in_force.items()
        async with busy(heavy, light):
            await asyncio.sleep(1.0)
            ratio = pytest.approx(3.0, rel=0.1)
            await undisturbed(lambda: received(4.0, heavy, light), lambda found: found[0] / found[1] == ratio)


@on("runc", ELSEWHERE)
async def test_disk_limits_hold_for_what_is_written_and_read_past_the_cache(
    platform: Platform, scope: Scope, spec: Spec
) -> None:
    """All but those of gVisor, which says so itself: it opens no file of the host for direct I/O."""
    data, bound = disk(scope, 32), 2_000_000
    async with running(platform, spec(disks=(data,))) as guest:
        if any("direct I/O" in part for part in (await guest.apply(Policy(disk=ALL))).no_effect):
            assert "gVisor" in guest.label
            flushed, _ = await disk_rate(guest, data.folder, "write-flush", 2.0)
            assert 0 < flushed < 1.15 * bound
            assert (await disk_rate(guest, data.folder, "write"))[0] > 2 * bound
            return
        await guest.apply(Policy())
        free, direct = await disk_rate(guest, data.folder, "write")
        assert direct
        assert free > 2 * bound
        applied = await guest.apply(Policy(disk=ALL))
        assert sorted(value.split()[-1] for value in applied.in_force.values()) == [str(bound), str(2 * bound)]
        for operation, most in (("write", bound), ("read", 2 * bound)):
            # Never more; less, where the machine stands still meanwhile.
            within = functools.partial(disk_rate, guest, data.folder, operation, 2.0)
            rate, _ = await undisturbed(within, lambda found, most=most: found[0] > 0.5 * most)
            assert rate < 1.15 * most
        applied = await guest.apply(Policy(disk=DiskLimits(write_iops=20)))
        written, _ = await disk_rate(guest, data.folder, "write", 2.0)
        assert written < 1.15 * 20 * 65536
        read, _ = await disk_rate(guest, data.folder, "read")
        assert read > 2.3 * 2 * bound  # what is not stated any more is lifted
        await guest.apply(Policy())
        assert (await disk_rate(guest, data.folder, "write"))[0] > 2 * bound


@on("runc", ELSEWHERE)
async def test_buffered_writes_pass_the_throttles_of_v1_and_that_is_said(
    platform: Platform, scope: Scope, spec: Spec
) -> None:
    data = disk(scope, 64)
    async with running(platform, spec(disks=(data,), host_root=True)) as guest:
        applied = await guest.apply(Policy(disk=DiskLimits(write_bps=1_000_000)))
        clock = asyncio.get_running_loop()
        began = clock.time()
        code, output = await shell(guest, f"dd if=/dev/zero of={data.folder}/file bs=1M count=4 conv=fsync")
        assert code == 0, output
        flushed_s = clock.time() - began
        assert flushed_s > 2.4  # of 4.2, whose first moments are free
        if any("cgroup v1" in part and "buffered" in part for part in applied.no_effect):
            began = clock.time()
            code, output = await shell(guest, f"dd if=/dev/zero of={data.folder}/other bs=1M count=4")
            assert code == 0, output
            assert clock.time() - began < flushed_s / 2
        else:
            assert any("throttle" in name or name == "io.max" for name in applied.in_force)
        await guest.apply(Policy())


@on("runc", ELSEWHERE)
async def test_what_does_nothing_is_named(platform: Platform, spec: Spec) -> None:
    machine = os.sched_getaffinity(0)
    async with running(platform, spec(vcpus=1)) as guest:
        applied = await guest.apply(Policy(cpu_limit=1.0, cores=(CORE,)))
        assert any(part.startswith("cpu_limit") for part in applied.no_effect)
        applied = await guest.apply(Policy(cpu_limit=float(len(machine)), cores=tuple(machine), reservation=0.5))
        assert {part.split(":")[0] for part in applied.no_effect} >= {"cpu_limit", "cores", "reservation"}
        with pytest.raises(PolicyError, match="no disk of its own"):
            await guest.apply(Policy(disk=DiskLimits(read_bps=1_000_000)))


@pytest.mark.parametrize("name", sampled(["runc"], ["runsc"]))
async def test_an_exhausted_memory_limit_is_told_as_such(name: str, private_state: Path, spec: Spec) -> None:
    platform = await usable(name)
    async with running(platform, spec(memory_mib=256)) as guest:
        assert guest.out_of_memory_kills() == 0
        with contextlib.suppress(ChannelClosedError):  # gVisor's whole sandbox is one process of the host
            code, _ = await shell(guest, "head -c 1000000000 /dev/zero | tail > /dev/null")
            assert code != 0
        kills = guest.out_of_memory_kills()
        assert kills is not None
        assert kills >= 1


@pytest.mark.full
async def test_the_driver_of_v2_does_what_it_says_on_a_kernel_with_v2_alone(
    private_state: Path, scope: Scope, spec: Spec
) -> None:
    """In a virtual machine, whatever this host mounts: see cgroup_v2_inside.py, which runs there."""
    platform = await usable("microvm")
    source, data = Path(virtgauge.__file__).parent.parent, disk(scope, 64)
    inside = Path(__file__).with_name("cgroup_v2_inside.py")
    shares = (Share(source), Share(inside.parent))
    async with running(platform, spec(vcpus=2, disks=(data,), host_root=True, shares=shares)) as guest:
        code, output = await shell(guest, f"/usr/bin/python3 {inside} {source} {data.folder}", 250)
    assert code == 0, output
    found = json.loads(output.splitlines()[-1])
    assert (found["layout"], found["left"]) == ("v2", False)
    processor = found["processor"]
    assert processor["weighed"] == {"cpu.weight": "300", "cpuset.cpus": "0"}
    assert processor["ratio"] == pytest.approx(3.0, rel=0.1)
    assert (processor["allowed"], processor["freed"]) == ([0], [0, 1])
    assert processor["limited"] == {"cpu.max": "30000 100000"}
    assert 0 < processor["within"] < 0.33
    assert processor["throttled"] >= 1
    assert processor["after"]["cpu.weight"] == "100"
    writing = found["disk"]
    assert list(writing["in_force"]) == ["io.max"]
    assert "wbps=1000000" in writing["in_force"]["io.max"]
    assert writing["no_effect"] == []
    assert writing["times"]["oflag=direct None"] < 3 < 5 < writing["times"]["oflag=direct 1000000"]  # of 6.3 s
    assert writing["times"]["conv=fsync 1000000"] > 5
    assert "wbps=1000000" not in writing["lifted"]
    assert (found["memory"]["before"], found["memory"]["after"]) == (0, 1)


async def test_a_virtual_machine_says_what_its_limit_is_of(private_state: Path, spec: Spec) -> None:
    platform = await usable("microvm")
    async with running(platform, spec(vcpus=2)) as guest:
        applied = await guest.apply(Policy(cpu_limit=0.5))
        assert any("2 vCPUs" in note and "0.25 of a CPU" in note for note in applied.notes)
        qemu: Any = guest
        for thread in Path(f"/proc/{qemu._process.pid}/task").iterdir():
            lines = (thread / "cgroup").read_text().splitlines()
            assert (
                any(":cpu" in line and "virtgauge/" in line for line in lines) or "cpu" not in Hierarchies.detect().v1
            )
        assert guest.out_of_memory_kills() is None
