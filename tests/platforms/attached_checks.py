"""What is true of a machine attached by ssh before and after: whose agents and folders are where."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from platforms.conftest import running
from platforms.ssh_server import SshServer

from virtgauge.platforms import create
from virtgauge.platforms.base import Guest, GuestSpec, LaunchError, Platform

Spec = Callable[..., GuestSpec]


def attached(server: SshServer, **changes: Any) -> Platform:
    return create("attached", server.settings(**changes))


def remote_folders(tag: str) -> list[Path]:
    return [path for base in ("/tmp", "/var/tmp", "/dev/shm") for path in Path(base).glob(f"virtgauge.{tag}.*")]


def agents_of(tag: str) -> list[str]:
    return [str(path) for path in agent_programs() if f"virtgauge.{tag}." in str(path)]


def agent_programs() -> list[str]:
    found = []
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            found.append(os.readlink(process / "exe"))
    return found


async def gone(tag: str) -> bool:
    """Whether nothing of the remote side is there any more; waited for, because the remote side ends on its own."""
    for _ in range(600):
        if not remote_folders(tag) and not agents_of(tag):
            return True
        await asyncio.sleep(0.05)
    return False


@contextlib.asynccontextmanager
async def guest_of(platform: Platform, spec: GuestSpec) -> AsyncIterator[Guest]:
    async with running(platform, spec) as guest:
        yield guest
    assert remote_folders(spec.scope.tag) == []
    assert agents_of(spec.scope.tag) == []


async def refused(platform: Platform, spec: Spec, *words: str) -> str:
    """Probe and launch say the same; nothing is left.  Returns what they say."""
    found = await platform.probe()
    assert not found.usable
    asked = spec()
    with pytest.raises(LaunchError) as caught:
        await platform.launch(asked)
    text = f"{found.reason}\n{found.fix}"
    for word in words:
        assert word in text
        assert word in str(caught.value)
    assert not (asked.scope.folder / asked.name).exists()
    assert await gone(asked.scope.tag)
    return text
