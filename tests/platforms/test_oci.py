"""Containers and sandboxes, by each runtime that this machine must have."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from platforms import guest_checks as check
from platforms.conftest import burnt_share, require, running
from sampled import on

from virtgauge.platforms.base import GuestSpec
from virtgauge.platforms.oci.platform import OciPlatform

pytestmark = pytest.mark.slow
Spec = Callable[..., GuestSpec]


BOTH, ONE = on("runc runsc"), on("runc", "runsc")


@pytest_asyncio.fixture
async def platform(request: pytest.FixtureRequest, private_state: Path) -> AsyncIterator[OciPlatform]:
    platform = OciPlatform(OciPlatform.Settings(runtime=request.param))
    require(await platform.probe(), request.param)
    yield platform


async def run(platform: OciPlatform, spec: GuestSpec, script: str) -> tuple[int, str]:
    async with running(platform, spec) as guest:
        reply = await guest.channel.request(
            "run",
            argv=["/bin/sh", "-c", script],
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
            timeout_ms=20_000,
            output_limit=65536,
            timeout_s=40,
        )
    return reply.value["exit_code"], (reply.value["stdout"] + reply.value["stderr"]).decode()


@BOTH
async def test_it_answers_counts_and_is_gone(platform: OciPlatform, spec: Spec) -> None:
    facts = await check.check_a_guest_answers_and_is_gone(platform, spec())
    assert facts["hostname"] == "virtgauge"
    assert facts["init"] is False


@BOTH
async def test_the_hosts_folders_are_there_writable_and_unchanged_outside(platform: OciPlatform, spec: Spec) -> None:
    name = f"virtgauge-test-{secrets.token_hex(4)}"
    folders = ("usr", "etc", "tmp", "var")
    script = "; ".join(f"echo mine > /{folder}/{name} && cat /{folder}/{name}" for folder in folders)
    code, output = await run(platform, spec(), f"test -x /usr/bin/env && {script}")
    assert (code, output) == (0, "mine\n" * 4)
    for folder in folders:
        assert not Path("/", folder, name).exists()


@BOTH
async def test_the_hosts_processes_and_interfaces_are_not_seen(platform: OciPlatform, spec: Spec) -> None:
    code, output = await run(platform, spec(), "ls /sys/class/net /proc | tr '\\n' ' '")
    assert code == 0
    numbers = [int(word) for word in output.split() if word.isdigit()]
    assert max(numbers) < 100
    code, output = await run(platform, spec(), "cat /proc/net/dev")
    interfaces = [line.split(":")[0].strip() for line in output.splitlines() if ":" in line]
    assert interfaces == ["lo"]


@ONE
async def test_accounting_covers_the_whole_sandbox(platform: OciPlatform, spec: Spec) -> None:
    async with running(platform, spec()) as guest:
        idle, _ = await burnt_share(guest, 1.0, 0)
        outside, _ = await burnt_share(guest, 1.5, 1)
    assert outside > idle + 0.1, "a load in the sandbox is work of its cgroup"


@ONE
async def test_a_cpu_limit_holds(platform: OciPlatform, spec: Spec) -> None:
    async with running(platform, spec(vcpus=1)) as guest:
        outside, _ = await burnt_share(guest, 2.0, 4)
    assert outside < 1.25


@BOTH
async def test_a_memory_limit_is_set(platform: OciPlatform, spec: Spec) -> None:
    asked = spec(memory_mib=256)
    async with running(platform, asked):
        group = asked.scope.cgroup(asked.name)
        limits = [
            path.read_text().strip()
            for root in group.hierarchies.all_roots()
            for name in ("memory.limit_in_bytes", "memory.max")
            if (path := root / group.name / name).exists()
        ]
    assert str(256 * 1024 * 1024) in limits


@pytest.mark.parametrize(
    ("script", "stage", "words"),
    [
        ("exit 3", "boot", "first process ended"),
        ("echo garbage; sleep 60", "handshake", "frame"),
        ("sleep 60", "handshake", "no agent answered within"),
    ],
)
@ONE
async def test_a_broken_agent_is_a_launch_error(
    platform: OciPlatform, spec: Spec, tmp_path: Path, script: str, stage: str, words: str
) -> None:
    await check.check_a_broken_agent_is_a_launch_error(platform, spec, tmp_path, script, stage, words)


@pytest.mark.parametrize("after_s", [0.0, 0.03, 0.12])
@BOTH
async def test_cancelling_leaves_nothing(platform: OciPlatform, spec: Spec, after_s: float) -> None:
    await check.check_cancelling_leaves_nothing(platform, spec, after_s)


@BOTH
async def test_a_killed_guest_ends_the_channel(platform: OciPlatform, spec: Spec) -> None:
    await check.check_a_killed_guest_ends_the_channel(platform, spec())


@pytest.mark.parametrize("runtime", ["runc", "runsc"])
async def test_a_killed_controller_is_reclaimed(private_state: Path, runtime: str) -> None:
    require(await OciPlatform(OciPlatform.Settings(runtime=runtime)).probe(), runtime)
    check.check_a_killed_controller_is_reclaimed("oci", json.dumps({"runtime": runtime}))


async def test_a_missing_runtime_is_unavailable_and_no_crash(private_state: Path) -> None:
    found = await OciPlatform(OciPlatform.Settings(runtime="no-such-runtime")).probe()
    assert not found.usable
    assert "not installed" in found.reason


async def test_a_program_that_is_no_runtime_is_unavailable(private_state: Path) -> None:
    for program in ("/bin/false", "/bin/echo"):
        found = await OciPlatform(OciPlatform.Settings(runtime=program)).probe()
        assert not found.usable
    assert "does not start" in found.reason


async def test_options_reach_the_runtime(private_state: Path) -> None:
    require(await OciPlatform().probe(), "runc")
    found = await OciPlatform(OciPlatform.Settings(options=("--no-such-option",))).probe()
    assert not found.usable
    assert "no-such-option" in found.reason
