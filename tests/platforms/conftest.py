"""Real guests: what a test needs of the machine, and everything that a guest could leave on it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from virtgauge.agent import AgentBinary, find_agent
from virtgauge.host.scope import Scope
from virtgauge.platforms.base import Availability, Guest, GuestSpec, Platform

pytestmark = pytest.mark.slow
Found = TypeVar("Found")


def traces(tag: str) -> list[str]:
    """Everything on this machine that carries a tag, found without the code under test."""
    found = []
    needle = tag.encode()
    for pid in (entry for entry in os.listdir("/proc") if entry.isdigit()):
        with contextlib.suppress(OSError):
            process = Path("/proc", pid)
            if needle in process.joinpath("environ").read_bytes() + process.joinpath("cmdline").read_bytes():
                found.append(f"process {pid}: {process.joinpath('cmdline').read_bytes()[:80]!r}")
    found += [f"mount {line}" for line in Path("/proc/self/mountinfo").read_text().splitlines() if tag in line]
    for root, _, _ in os.walk("/sys/fs/cgroup"):
        if f"/virtgauge/{tag}" in root:
            found.append(f"cgroup {root}")
    found += [f"loop device of {file}" for file in loop_files() if tag in file]
    for folder in ("/run/netns", "/sys/class/net", "/run", "/tmp", "/run/virtgauge", "/dev/shm", "/run/runsc"):
        with contextlib.suppress(OSError):
            found += [f"{folder}/{name}" for name in os.listdir(folder) if tag in name]
    state = Path(os.environ["VIRTGAUGE_STATE"])
    if (state / tag).exists():
        found.append(f"folder {state / tag}")
    return found


def left_behind(tag: str, within_s: float = 90.0) -> list[str]:
    """The traces that stay.

    A guest of another test that copied the mounts of this machine meanwhile holds a file system, and the loop device
    below it, until that guest ends: that may be a minute.
    """
    return _staying(lambda: traces(tag), within_s)


def assert_removed(tag: str) -> None:
    """Nothing is left: of loop devices, which another test's guest may hold, after a while; of all else, at once."""
    assert [trace for trace in traces(tag) if not trace.startswith("loop device of ")] == []
    assert left_behind(tag) == []


def kept_in_loops(*images: Path, within_s: float = 90.0) -> list[str]:
    """Those images that stay behind loop devices, though nothing of the test uses them; see :func:`left_behind`."""
    return _staying(lambda: sorted({*map(str, images)} & {*loop_files()}), within_s)


def _staying(found: Callable[[], list[str]], within_s: float) -> list[str]:
    ends = time.monotonic() + within_s
    while (stays := found()) and time.monotonic() < ends:
        time.sleep(0.1)
    return stays


def loop_files() -> list[str]:
    """The files behind this machine's loop devices."""
    found = []
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):  # gone in between
            found.append(backing.read_text().strip())
    return found


def descriptors() -> int:
    """How many files this process has open."""
    return len(os.listdir("/proc/self/fd"))


def require(availability: Availability, name: str) -> None:
    """Fail where a platform is missing, unless the machine's owner said that it may be: nothing is skipped unseen."""
    if not availability.usable:
        allowed = os.environ.get("VIRTGAUGE_ALLOW_MISSING", "").split(",")
        assert name in allowed, (
            f"{name}: {availability.reason} (fix: {availability.fix}); VIRTGAUGE_ALLOW_MISSING={name} allows it"
        )
        pytest.skip(f"{name} is missing, as allowed: {availability.reason}")


@pytest.fixture
def scope(private_state: Path) -> Iterator[Scope]:
    with Scope() as scope:
        yield scope
        tag = scope.tag
    assert_removed(tag)


@pytest.fixture
def agent() -> AgentBinary:
    return find_agent()


@pytest.fixture
def spec(scope: Scope, agent: AgentBinary) -> Callable[..., GuestSpec]:
    """A guest's specification; each call names another guest."""
    count = 0

    def make(**changes: Any) -> GuestSpec:
        nonlocal count
        count += 1
        return dataclasses.replace(GuestSpec(name=f"g{count}", scope=scope, agent=agent), **changes)

    return make


@contextlib.asynccontextmanager
async def running(platform: Platform, spec: GuestSpec) -> AsyncIterator[Guest]:
    """A guest that is gone, with all that it had, at the end."""
    open_before = descriptors()
    guest = await platform.launch(spec)
    try:
        yield guest
    finally:
        await guest.close()
    await asyncio.sleep(0)  # transports close their descriptors in the next turn of the loop
    await asyncio.sleep(0)
    assert descriptors() <= open_before
    assert not (spec.scope.folder / spec.name).exists()
    assert traces(f"{spec.scope.tag}/{spec.name}") == []


async def undisturbed(measure: Callable[[], Awaitable[Found]], holds: Callable[[Found], bool]) -> Found:
    """What is measured, as soon as it holds: of three tries, for a pause of this machine may spoil one.

    For what a wrong product fails in every try.
    """
    tried = []
    for _ in range(3):
        tried.append(await measure())
        if holds(tried[-1]):
            return tried[-1]
    raise AssertionError(f"it held in none of {tried}")


async def burnt_share(guest: Guest, seconds: float, threads: int) -> tuple[float, float]:
    """CPU time charged from outside while a load runs (0 threads: none), and what the load says it got; in CPUs."""
    clock, channel = asyncio.get_running_loop(), guest.channel
    before, started = guest.accounting().cpu_ns, clock.time()
    achieved_ns = 0
    if threads:
        load = (await channel.request("load_start", name="cpu", params={"threads": threads})).value["load"]
        await asyncio.sleep(seconds)
        achieved_ns = (await channel.request("load_stop", load=load, timeout_s=30)).value["cpu_ns"]
    else:
        await asyncio.sleep(seconds)
    after, elapsed = guest.accounting().cpu_ns, clock.time() - started
    assert before is not None
    assert after is not None
    return (after - before) / elapsed / 1e9, achieved_ns / elapsed / 1e9
