"""What is true of a guest on every platform that is made of processes on this host."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from platforms.conftest import left_behind, running, traces

from virtgauge.agent import AgentBinary
from virtgauge.agent.channel import ChannelClosedError
from virtgauge.host.reclaim import reclaim_dead
from virtgauge.platforms.base import GuestSpec, LaunchError, Platform

CONTROLLER = """
import asyncio, json, os, sys
from virtgauge.agent import find_agent
from virtgauge.host.mounts import make_disk_image
from virtgauge.host.scope import Scope
from virtgauge.platforms.base import Disk, GuestSpec
from virtgauge.platforms import KINDS, create

async def main():
    scope = Scope()
    print(scope.tag, flush=True)
    KINDS.update(json.loads(sys.argv[4]))
    platform = create(sys.argv[1], json.loads(sys.argv[2]))
    disks = ()
    if mib := int(sys.argv[3]):
        disk = Disk(scope.scratch_folder("disk") / "disk.img", scope.folder / "data")
        make_disk_image(disk.image, mib)
        disks = (disk,)
    guest = await platform.launch(GuestSpec(name="g", scope=scope, agent=find_agent(), disks=disks))
    await guest.channel.request("load_start", name="cpu", params={"threads": 1})
    print("ready", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""

LONG_SLEEPS = {
    "function": "usleep",
    "target_ns": 10_000_000,
    "samples": 10_000,
    "max_ns": 10**12,
    "slack_ns": 0,
    "policy": "other",
    "idle_states": "default",
    "reservoir": 10,
    "seed": 1,
}
"""Of the probe ``sleep_lateness``: 100 s, in the midst of which something happens to the guest."""


async def check_a_guest_answers_and_is_gone(platform: Platform, spec: GuestSpec) -> dict[str, object]:
    """Facts, a probe, the accounting; returns the facts."""
    async with running(platform, spec) as guest:
        assert guest.ready_ns > 0
        facts = await guest.channel.facts()
        assert facts["agent_sha256"] == spec.agent.sha256
        reply = await guest.channel.request(
            "probe",
            name="timer_cost",
            params={"function": "rdtscp", "samples": 10_000, "max_ns": 10**10, "reservoir": 100, "seed": 1},
            timeout_s=60,
        )
        assert reply.value["distribution"]["n"] == 10_000
        first = guest.accounting()
        second = guest.accounting()
        assert first.cpu_ns is not None
        assert second.cpu_ns is not None
        assert 0 < first.cpu_ns <= second.cpu_ns
        again = guest
    await again.close()
    assert again.channel.closed
    with pytest.raises(ChannelClosedError):
        await again.channel.facts()
    return facts


async def check_a_broken_agent_is_a_launch_error(
    platform: Platform, spec: Callable[..., GuestSpec], tmp_path: Path, script: str, stage: str, words: str
) -> None:
    """A script in the agent's place ends in a LaunchError that names stage and reason; nothing is left."""
    path = tmp_path / "broken-agent"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    # The time is up only where that is what is to be told: a slow start is no silence.
    asked = spec(agent=AgentBinary(path, "0" * 64), ready_timeout_s=3.0 if "answered within" in words else 20.0)
    started = time.monotonic()
    with pytest.raises(LaunchError) as caught:
        await platform.launch(asked)
    assert time.monotonic() - started < 30
    assert caught.value.stage == stage
    assert words in str(caught.value)
    assert not (asked.scope.folder / asked.name).exists()
    assert traces(f"{asked.scope.tag}/{asked.name}") == []


async def check_cancelling_leaves_nothing(platform: Platform, spec: Callable[..., GuestSpec], after_s: float) -> None:
    """A launch that is cancelled at some moment, and a close that is, remove everything all the same."""
    asked = spec()
    launch = asyncio.create_task(platform.launch(asked))
    await asyncio.sleep(after_s)
    launch.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await (await launch).close()  # it was faster than the cancellation
    assert not (asked.scope.folder / asked.name).exists()
    assert traces(f"{asked.scope.tag}/{asked.name}") == []
    asked = spec()
    guest = await platform.launch(asked)
    close = asyncio.create_task(guest.close())
    await asyncio.sleep(0)
    close.cancel()
    await asyncio.gather(close, return_exceptions=True)
    assert not (asked.scope.folder / asked.name).exists()
    assert traces(f"{asked.scope.tag}/{asked.name}") == []


async def check_a_killed_guest_ends_the_channel(platform: Platform, spec: GuestSpec) -> None:
    """Every process of the guest is killed from outside: requests fail, closing works, nothing is left."""
    async with running(platform, spec) as guest:
        waiting = asyncio.create_task(
            guest.channel.request(
                "probe",
                name="sleep_lateness",
                params=LONG_SLEEPS,
            )
        )
        await asyncio.sleep(0.2)
        assert not waiting.done()
        spec.scope.cgroup(spec.name).kill_all()
        with pytest.raises(ChannelClosedError):
            await asyncio.wait_for(waiting, 10)
        assert guest.channel.closed


def check_a_killed_controller_is_reclaimed(
    kind: str, settings: str, disk_mib: int = 0, remote_side_s: float = 0.0, register: Mapping[str, str] | None = None
) -> str:
    """Kill -9 of the controller while a guest, which may have a disk, runs under load; the reclaim removes every trace.

    Args:
        kind: of the platform.
        settings: its, as JSON.
        disk_mib: the size of the guest's disk; 0 for none.
        remote_side_s: how long a guest's own machine, which is this one here, may take to notice that nobody is there.
        register: kinds of platform that only the tests have.

    Returns:
        the tag of its scope.
    """
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", CONTROLLER, kind, settings, str(disk_mib), json.dumps(dict(register or {}))],
        stdout=subprocess.PIPE,
        env=environment,
    ) as controller:
        assert controller.stdout is not None
        tag = controller.stdout.readline().decode().strip()
        try:
            assert controller.stdout.readline() == b"ready\n"
            assert traces(tag) != []
        finally:
            controller.send_signal(signal.SIGKILL)
    lines = reclaim_dead()
    assert any(line.startswith(f"{tag}:") for line in lines), lines
    assert (left_behind(tag) if disk_mib else left_behind(tag, remote_side_s)) == []  # a mount may have been copied
    assert not any(line.startswith(f"{tag}:") for line in reclaim_dead())
    return tag
