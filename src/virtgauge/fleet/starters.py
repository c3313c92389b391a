"""Workers that the run starts itself: processes of this machine, or by ssh.

Every one is a ``virtgauge fleet worker`` that reads its credentials from standard input and ends when that is closed,
so that none outlives the command that started it, however that ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager

from virtgauge.errors import UnavailableError, printable
from virtgauge.execution.progress import Notice, ProgressDisplay
from virtgauge.execution.run import LOCK_NAME
from virtgauge.fleet.tls import TlsFiles
from virtgauge.host.tag import STATE_VARIABLE, state_root
from virtgauge.plan.fleet import FleetHost, FleetSection

_GRACE_S = 40.0


@contextlib.asynccontextmanager
async def local_workers(
    fleet: FleetSection, scheduler: str, files: TlsFiles, display: ProgressDisplay
) -> AsyncIterator[None]:
    """One process of this machine for every host; ended with it.

    Several of them have a state folder each, for they stand for machines of their own.
    """
    workers = []
    for host in fleet.hosts:
        own = {STATE_VARIABLE: str(state_root() / f"fleet-{host.name}")} if len(fleet.hosts) > 1 else {}
        argv = [sys.executable, "-m", "virtgauge.cli", *_command(host, scheduler)]
        workers.append(_local_worker(host, argv, own, files, display))
    try:
        async with _side_by_side(workers):
            yield
    finally:
        for folder in (state_root() / f"fleet-{host.name}" for host in fleet.hosts):
            with contextlib.suppress(OSError):  # what a killed worker left there is reclaimed by its next start
                (folder / LOCK_NAME).unlink()
                folder.rmdir()


@contextlib.asynccontextmanager
async def _local_worker(
    host: FleetHost, argv: list[str], own: Mapping[str, str], files: TlsFiles, display: ProgressDisplay
) -> AsyncIterator[None]:
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **own},
        start_new_session=True,  # Ctrl-C is for us; we tell the workers
    )
    assert process.stdin is not None and process.stderr is not None
    listening = asyncio.create_task(_relay(host, process.stderr, display))
    try:
        process.stdin.write(_credentials(files))
        yield
    finally:
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), _GRACE_S)
        except TimeoutError:
            process.kill()
            await process.wait()
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)


@contextlib.asynccontextmanager
async def ssh_workers(
    fleet: FleetSection, scheduler: str, files: TlsFiles, display: ProgressDisplay
) -> AsyncIterator[None]:
    """One worker on every host, by ssh; ended with it.

    Raises:
        UnavailableError: a host cannot be logged in to.
    """
    async with _side_by_side([_ssh_worker(fleet, host, scheduler, files, display) for host in fleet.hosts]):
        yield


@contextlib.asynccontextmanager
async def _side_by_side(workers: Sequence[AbstractAsyncContextManager[None]]) -> AsyncIterator[None]:
    """All of them started at once, and ended at once; where one cannot be started, the others are ended."""
    over = asyncio.Event()

    async def hold(worker: AbstractAsyncContextManager[None], started: asyncio.Event) -> None:
        async with worker:
            started.set()
            await over.wait()

    held = [(asyncio.create_task(hold(worker, started := asyncio.Event())), started) for worker in workers]
    try:
        for task, started in held:
            waiting = asyncio.create_task(started.wait())
            await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            if task.done():
                await task  # why it could not be started
        yield
    finally:
        over.set()
        await asyncio.gather(*(task for task, _ in held), return_exceptions=True)


@contextlib.asynccontextmanager
async def _ssh_worker(
    fleet: FleetSection, host: FleetHost, scheduler: str, files: TlsFiles, display: ProgressDisplay
) -> AsyncIterator[None]:
    from virtgauge.platforms.attached.settings import AttachedSettings, Hop
    from virtgauge.platforms.attached.ssh import SshError, connected

    assert host.address is not None
    hop = Hop.parse(host.address)
    settings = AttachedSettings(via="ssh", host=hop.host, port=hop.port, user=hop.user)
    async with contextlib.AsyncExitStack() as stack:
        try:
            ssh = await stack.enter_async_context(connected(settings))
        except SshError as error:
            raise UnavailableError(f"host {host.name!r}: {error.message}", error.remedy) from error
        command = shlex.join([*fleet.command, *_command(host, scheduler)])
        process = await ssh.connection.create_process(command, encoding=None)
        listening = asyncio.create_task(_relay(host, process.stderr, display))
        try:
            process.stdin.write(_credentials(files))
            yield
        finally:
            process.stdin.write_eof()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait_closed(), _GRACE_S)
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)


def _command(host: FleetHost, scheduler: str) -> list[str]:
    return ["fleet", "worker", "--scheduler", scheduler, "--name", host.worker, "--credentials-on-stdin"]


def _credentials(files: TlsFiles) -> bytes:
    """Never on a command line, which others can read."""
    return json.dumps({"ca": files.ca, "certificate": files.certificate, "key": files.key}).encode() + b"\n"


async def _relay(host: FleetHost, lines: object, display: ProgressDisplay) -> None:
    """What a worker says, until it ends."""
    async for line in lines:  # type: ignore[attr-defined]
        text = printable(line.decode(errors="replace").rstrip())
        if text:
            display.show(Notice(f"host {host.name}: {text}", warning=False))
