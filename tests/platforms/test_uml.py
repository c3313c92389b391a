"""User Mode Linux, booted for real."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from platforms import guest_checks as check
from platforms.conftest import burnt_share, kept_in_loops, require, running, traces, undisturbed
from platforms.disk_checks import check_an_image_is_the_root, disk, root_image, shell

from virtgauge.agent import AgentBinary
from virtgauge.host.policy import DiskLimits, Policy
from virtgauge.host.scope import Scope
from virtgauge.platforms.base import GuestSpec, LaunchError, Share
from virtgauge.platforms.uml import UmlPlatform

CAP_KILL, CAP_SYS_ADMIN, CAP_SYS_BOOT = 5, 21, 22
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
Spec = Callable[..., GuestSpec]


@pytest.fixture
async def platform(private_state: Path) -> UmlPlatform:
    platform = UmlPlatform()
    require(await platform.probe(), "uml")
    return platform


async def test_it_answers_counts_and_is_gone(platform: UmlPlatform, spec: Spec) -> None:
    facts = await check.check_a_guest_answers_and_is_gone(platform, spec(memory_mib=96))
    assert facts["init"] is True
    cpu, kernel, memory = facts["cpu"], facts["kernel"], facts["memory_bytes"]
    assert isinstance(cpu, dict)
    assert cpu["count"] == 1
    assert isinstance(kernel, dict)
    assert kernel["release"] != os.uname().release, "a kernel of its own"
    assert isinstance(memory, int)
    assert 64 << 20 < memory <= 96 << 20


@pytest.mark.full
async def test_a_kernel_of_ones_own_boots_with_its_modules_and_words(
    platform: UmlPlatform, spec: Spec, tmp_path: Path
) -> None:
    program = tmp_path / "my linux"
    shutil.copy(platform._program(), program)
    release = (await platform._kernel()).release
    settings = {"kernel": program, "kernel_modules": f"/usr/lib/uml/modules/{release}", "kernel_words": ["noaudit=1"]}
    own = UmlPlatform(UmlPlatform.Settings(**settings, boot_timeout_s=60))
    found = await own.probe()
    require(found, "uml")
    assert (found.details["kernel"], found.details["kernel_release"]) == (str(program), release)
    async with running(own, spec(host_root=True)) as guest:
        facts = await guest.channel.facts()
    assert facts["kernel"]["release"] == release
    assert "noaudit=1" in facts["cmdline"].split()


async def test_its_clock_is_a_system_call_and_agrees_with_the_counter(platform: UmlPlatform, spec: Spec) -> None:
    params = {"samples": 2000, "max_ns": 10**10, "reservoir": 1, "seed": 1}

    async def by_each_clock() -> list[dict[str, Any]]:
        asked = [{"function": clock} | params for clock in ("clock_gettime", "rdtscp", "hptime")]
        return [(await guest.channel.request("probe", name="timer_cost", params=one)).value for one in asked]

    def agree(found: list[dict[str, Any]]) -> bool:
        kernels, counters, hptimes = found
        first, last = kernels["clocks_start"], hptimes["clocks_end"]
        alike = True
        if first["tsc_ns"] is not None:
            passed = last["tsc_ns"] - first["tsc_ns"]
            alike = last["monotonic_raw_ns"] - first["monotonic_raw_ns"] == pytest.approx(passed, rel=0.01)
        return alike and counters["distribution"]["mean"] < kernels["distribution"]["mean"] / 10

    async with running(platform, spec()) as guest:
        facts = await guest.channel.facts()
        *_, hptimes = await undisturbed(by_each_clock, agree)
    assert facts["vdso"] is False
    # This kernel lists no counter that it watches over, so hptime does not trust one.
    assert facts["clocksource"]["available"] == ["timer"]
    assert "not synchronized" in hptimes["hptime_fallback_reason"]


async def test_accounting_covers_the_guests_processes(platform: UmlPlatform, spec: Spec) -> None:
    async with running(platform, spec()) as guest:
        outside, inside = await burnt_share(guest, 2.0, 4)
    assert 0 < inside < 1.05, "one processor"
    # The guest's kernel does not know when the host had no processor for it, and counts that as its own work.
    assert 0.1 < outside < inside + 0.15


@pytest.mark.full
async def test_what_limits_it_holds(platform: UmlPlatform, scope: Scope, spec: Spec) -> None:
    data = disk(scope, 32)
    async with running(platform, spec(cpus=(0,), cpu_limit=0.75, disks=(data,))) as guest:
        assert guest.confinement().cpus == (0,)
        assert guest.confinement().cpu_limit == 0.75
        applied = await guest.apply(Policy(cpu_limit=0.3, disk=DiskLimits(write_bps=1_000_000)))
        assert "30000" in " ".join(applied.in_force.values())
        assert any("write_bps_device" in name or name == "io.max" for name in applied.in_force)
        assert any("page cache" in part for part in applied.no_effect)
        await undisturbed(lambda: burnt_share(guest, 3.0, 2), lambda found: found[0] < 0.33)
        lifted = await guest.apply(Policy())
        assert lifted.in_force == {}


async def test_the_hosts_programs_are_there_and_the_host_is_not(
    platform: UmlPlatform, spec: Spec, tmp_path: Path
) -> None:
    """What was not granted is not seen, and what was granted for reading is not written, by its hostfs either."""
    secret, shared = tmp_path / "secret", tmp_path / "shared"
    for folder in (secret, shared):
        folder.mkdir()
        (folder / "file").write_text("the host's\n")
    async with running(platform, spec(host_root=True, shares=(Share(shared),))) as guest:
        code, output = await shell(guest, "python3 -c 'print(6 * 7)' && echo mine > /etc/hostname && cat /etc/hostname")
        assert (code, output) == (0, "42\nmine\n")
        script = (
            f"mkdir /a /b; mount -t hostfs none /a -o {secret}; cat /a/file; "
            "mount -t hostfs none /b -o / && for folder in /b/*; do echo x > $folder/new; done; ls /b"
        )
        _, output = await shell(guest, script)
    assert "the host's" not in output
    assert "Read-only file system" in output
    assert not (shared / "new").exists()
    assert not Path("/usr/new").exists()
    assert Path("/etc/hostname").read_text() != "mine\n"


async def test_a_disk_image_is_the_root_that_the_agent_answers_from(
    private_state: Path, spec: Spec, tmp_path: Path
) -> None:
    image = root_image(tmp_path, spec().agent.path, "qcow2")
    own = UmlPlatform(UmlPlatform.Settings(disk_image=image))
    require(await own.probe(), "uml")
    await check_an_image_is_the_root(own, spec(), image)


async def test_a_guest_that_hangs_at_boot_is_a_bounded_launch_error(platform: UmlPlatform, spec: Spec) -> None:
    asked = spec(ready_timeout_s=0.05)
    with pytest.raises(LaunchError, match="no agent answered within"):
        await platform.launch(asked)
    assert traces(f"{asked.scope.tag}/{asked.name}") == []


async def test_a_kernel_panic_is_a_launch_error_with_the_console(
    platform: UmlPlatform, spec: Spec, tmp_path: Path
) -> None:
    path = tmp_path / "no-init"
    path.write_text("this is no program")
    path.chmod(0o755)
    asked = spec(agent=AgentBinary(path, "0" * 64))
    with pytest.raises(LaunchError) as caught:
        await platform.launch(asked)
    assert caught.value.stage == "boot"
    assert "Kernel panic" in str(caught.value).splitlines()[0]
    assert traces(f"{asked.scope.tag}/{asked.name}") == []


async def test_cancelling_leaves_nothing(platform: UmlPlatform, spec: Spec) -> None:
    await check.check_cancelling_leaves_nothing(platform, spec, 0.3)


async def test_a_killed_guest_ends_the_channel(platform: UmlPlatform, spec: Spec) -> None:
    await check.check_a_killed_guest_ends_the_channel(platform, spec())


async def test_its_kernel_alone_killed_leaves_no_process(platform: UmlPlatform, scope: Scope, spec: Spec) -> None:
    """The processes of the guest are not the kernel's to take along."""
    asked = spec(disks=(disk(scope, 16),))
    async with running(platform, asked) as guest:
        await guest.channel.request("load_start", name="cpu", params={"threads": 2})
        assert len(scope.cgroup(asked.name).pids()) > 1
        await guest.crash()
        assert scope.cgroup(asked.name).pids() == []
        await asyncio.sleep(0)


async def test_what_a_killed_kernel_leaves_goes_with_it_and_has_no_power_over_the_host(
    platform: UmlPlatform, scope: Scope, spec: Spec
) -> None:
    """Its processes would go on as the host's, in the midst of whatever system call: with root's powers."""
    asked = spec()
    async with running(platform, asked) as guest:
        await guest.channel.request("load_start", name="cpu", params={"threads": 2})
        confined = {}
        for pid in scope.cgroup(asked.name).pids():
            with contextlib.suppress(OSError):  # one that has just ended
                status = Path(f"/proc/{pid}/status").read_text()
                confined |= {pid: status} if status.startswith("Name:\tlinux") else {}
        assert len(confined) > 1
        for status in confined.values():
            (bounding,) = re.findall(r"CapBnd:\s*(\w+)", status)
            assert int(bounding, 16) & (1 << CAP_SYS_ADMIN | 1 << CAP_SYS_BOOT | 1 << CAP_KILL) == 0
        (kernel,) = (
            pid for pid, status in confined.items() if int(re.findall(r"PPid:\s*(\d+)", status)[0]) not in confined
        )
        os.kill(kernel, signal.SIGKILL)
        async with asyncio.timeout(20):
            while scope.cgroup(asked.name).pids():
                await asyncio.sleep(0.02)


async def test_a_killed_controller_is_reclaimed(platform: UmlPlatform, agent: AgentBinary, tmp_path: Path) -> None:
    settings = json.dumps({"disk_image": str(root_image(tmp_path, agent.path, "raw"))})
    tag = check.check_a_killed_controller_is_reclaimed("uml", settings, disk_mib=16)
    assert traces(tag) == []
    assert not kept_in_loops(*tmp_path.iterdir())


async def test_a_state_folder_with_blanks_does_not_matter(
    platform: UmlPlatform, tmp_path: Path, agent: AgentBinary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VIRTGAUGE_STATE", str(tmp_path / "a, b: c"))
    with Scope() as scope:
        asked = GuestSpec(name="g", scope=scope, agent=agent, disks=(disk(scope, 16),), host_root=True)
        async with running(platform, dataclasses.replace(asked)) as guest:
            assert (await shell(guest, f"echo there > '{scope.folder}/data/file' && ls '{scope.folder}/data'"))[0] == 0
