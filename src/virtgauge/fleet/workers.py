"""Workers: those that the run starts itself, here or by ssh, and what `virtgauge fleet worker` does.

One that the run starts reads its credentials from standard input and ends when that is closed, so that none outlives
the command that started it.  A worker is a dask worker with one slot, and a parent that starts it again when it was
killed: a loop around it rather than dask's nanny, for the parent sleeps in the kernel until its child ends and so takes
no CPU time from what is measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import math
import os
import select
import shlex
import shutil
import signal
import socket
import sys
import time
from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from virtgauge.errors import ExitCode, UnavailableError, UsageError, VirtgaugeError, printable, tell
from virtgauge.execution.progress import ProgressDisplay
from virtgauge.execution.run import LOCK_NAME
from virtgauge.extras import require
from virtgauge.fleet.cluster import HEARTBEAT_S, SLOT, TlsFiles, configure
from virtgauge.host.process import closed_after, die_with_parent, in_daemon
from virtgauge.host.tag import STATE_VARIABLE, make_state_root, state_root
from virtgauge.plan import Hop
from virtgauge.plan.fleet import FleetHost, FleetSection

_GRACE_S = 30.0  # That a worker gives its own process to end; whoever started the worker gives it some seconds more


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
        workers.append(_local_worker(host, scheduler, own, files, display))
    try:
        async with _side_by_side(workers):
            yield
    finally:
        for folder in (state_root() / f"fleet-{host.name}" for host in fleet.hosts):
            # What a killed worker left there is reclaimed by its next start; a lock that is held is another fleet's.
            with contextlib.suppress(OSError), (folder / LOCK_NAME).open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                (folder / LOCK_NAME).unlink()
                folder.rmdir()


@contextlib.asynccontextmanager
async def _local_worker(
    host: FleetHost, scheduler: str, own: Mapping[str, str], files: TlsFiles, display: ProgressDisplay
) -> AsyncIterator[None]:
    argv = [sys.executable, "-m", "virtgauge.cli", *_command(host, scheduler)]
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
            await asyncio.wait_for(process.wait(), _GRACE_S + 10)
        except TimeoutError:
            process.kill()
            await process.wait()
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)


@contextlib.asynccontextmanager
async def ssh_workers(
    fleet: FleetSection, scheduler: str, files: TlsFiles, display: ProgressDisplay
) -> AsyncIterator[None]:
    """One worker on every host, by ssh; ended with it. Raises UnavailableError: a host cannot be logged in to."""
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
    import asyncssh

    from virtgauge.platforms.attached.platform import AttachedSettings
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
        try:
            process = await ssh.create_process(command, encoding=None)
        except (asyncssh.Error, OSError) as error:
            words = f"host {host.name!r}: the login works, and starting a command does not: {error}"
            raise UnavailableError(words, "let its ssh server start commands for this user") from error
        listening = asyncio.create_task(_relay(host, process.stderr, display))
        try:
            process.stdin.write(_credentials(files))
            yield
        finally:
            process.stdin.write_eof()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait_closed(), _GRACE_S + 10)
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)


def _command(host: FleetHost, scheduler: str) -> list[str]:
    return ["fleet", "worker", "--scheduler", scheduler, "--name", host.worker, "--credentials-on-stdin"]


def _credentials(files: TlsFiles) -> bytes:
    """Never on a command line, which others can read."""
    return json.dumps({"ca": files.ca, "certificate": files.certificate, "key": files.key}).encode() + b"\n"


async def _relay(host: FleetHost, lines: AsyncIterable[bytes], display: ProgressDisplay) -> None:
    async for line in lines:
        text = printable(line.decode(errors="replace").rstrip())
        if text:
            display.notice(f"host {host.name}: {text}", warning=False)


CONNECT_S = 300.0  # How long a worker tries to reach its scheduler
_LIFELINE_S = 120.0  # One that has a lifeline, which may break unheard, seeks a scheduler that it has lost so long
_DEATHS, _WITHIN_S = 5, 120.0  # A worker killed so often in so short a time is not started again
_SCHEDULER_LOST = 75
_SEEK_S = 5.0  # One attempt to reach a scheduler that was lost; within it pauses grow
_PAUSE_S = 1.0  # After a failed one


def read_credentials(text: str) -> TlsFiles:
    """What the coordinator hands to a worker that it starts: PEM, on one line of standard input.
    Raises UsageError: something else came.
    """
    try:
        value = json.loads(text)
        return TlsFiles(ca=str(value["ca"]), certificate=str(value["certificate"]), key=str(value["key"]))
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError("standard input holds no credentials", "give --ca, --certificate and --key") from error


def serve(scheduler: str, name: str, files: TlsFiles, *, listen: str | None, lifeline: int | None) -> int:
    """Work until told to stop; returns the exit code.

    By default it listens at the address that faces the scheduler; at the end of the descriptor ``lifeline`` it ends.
    Raises UnavailableError: what a fleet needs is not installed.
    """
    require("fleet", "a fleet's worker")
    ends, seek_s = _Ends(), math.inf if lifeline is None else _LIFELINE_S
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, ends.note)
    deaths: list[float] = []
    while True:
        child = _start(lambda: asyncio.run(_serve(scheduler, name, files, listen, seek_s=seek_s)))
        status = _wait(child, lifeline, ends)
        if ends.asked:
            return ExitCode.OK
        code = os.waitstatus_to_exitcode(status)
        if code >= 0:
            return code
        deaths = [at for at in deaths if at > time.monotonic() - _WITHIN_S] + [time.monotonic()]
        said = f"the worker {name} was ended by {signal.Signals(-code).name}"
        if len(deaths) >= _DEATHS:
            _say(f"{said} for the {len(deaths)}th time; given up")
            return ExitCode.FAILED
        _say(f"{said}; started again")


class _Ends:
    """Whether somebody asked for the end; ``heard`` becomes readable then, so that nobody has to look now and again."""

    def __init__(self) -> None:
        self.asked = False
        self.heard, self._said = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def note(self, *_: object) -> None:
        self.asked = True
        with contextlib.suppress(BlockingIOError):
            os.write(self._said, b".")


def _start(work: Any) -> int:
    """Fork while this process has one thread and nothing of the cluster."""
    parent, child = os.getpid(), os.fork()
    if child:
        return child
    code = ExitCode.DEFECT
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)  # until it has something to give back
        die_with_parent(parent)
        code = work()
    except Exception as error:
        code = error.exit_code if isinstance(error, VirtgaugeError) else code
        with contextlib.suppress(OSError):  # nobody reads it
            tell(error)
    finally:
        with contextlib.suppress(OSError):
            sys.stderr.flush()
        os._exit(code)


def _wait(child: int, lifeline: int | None, ends: _Ends) -> int:
    """Until the child has ended, which it is told to when the end is asked for or the lifeline breaks."""
    with closed_after(os.pidfd_open(child)) as descriptor:
        watched = [descriptor, ends.heard] if lifeline is None else [descriptor, ends.heard, lifeline]
        while not ends.asked:
            ready = select.select(watched, [], [])[0]
            if descriptor in ready:
                break
            if lifeline in ready and not os.read(lifeline or 0, 4096):
                ends.asked = True
        if ends.asked:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGTERM)
            if not select.select([descriptor], [], [], _GRACE_S)[0]:
                os.kill(child, signal.SIGKILL)
        return os.waitpid(child, 0)[1]


async def _serve(scheduler: str, name: str, files: TlsFiles, listen: str | None, *, seek_s: float) -> int:
    from virtgauge.fleet import work

    configure()
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    folder = make_state_root() / "dask"
    folder.mkdir(exist_ok=True)
    stopping = asyncio.ensure_future(stopped.wait())
    within_s, lost_at = CONNECT_S, math.inf
    try:
        while not stopped.is_set():
            if time.monotonic() > lost_at + seek_s:
                return _SCHEDULER_LOST
            worker = connected = None
            try:
                address = listen or await _looked_up(scheduler, stopping)
                if address is None:
                    break
                worker = make_worker(scheduler, name, files, address, folder, within_s)
                connected = asyncio.ensure_future(_connected(worker, f"worker {name} is connected to {scheduler}"))
                await asyncio.wait([connected, stopping], return_when=asyncio.FIRST_COMPLETED)
                if connected.done():
                    await connected
                    _say(f"the scheduler {scheduler} went away; trying to reach it again")
                    within_s, lost_at = _SEEK_S, time.monotonic()
            except (OSError, RuntimeError) as error:
                if within_s == CONNECT_S:
                    raise UnavailableError(
                        f"the scheduler {scheduler} cannot be reached: {error.__cause__ or error}",
                        "check address and certificates, and that no other worker has this name",
                    ) from error
                await asyncio.wait([stopping], timeout=_PAUSE_S)
            finally:
                if connected is not None:
                    connected.cancel()
                if stopped.is_set():
                    await work.end()
                if worker is not None:
                    await worker.close(reason="told to stop")
        return ExitCode.OK
    finally:
        await work.end()
        shutil.rmtree(folder, ignore_errors=True)  # a machine has one worker


async def _looked_up(scheduler: str, stopping: asyncio.Future[Any]) -> str | None:
    """The address that faces the scheduler, or None when this is to end before; raises what :func:`facing` raises.

    In a thread that nobody waits for, which asyncio's own are: without a name server it may take half a minute.
    """
    address = asyncio.wrap_future(in_daemon(lambda: facing(scheduler), "look-up"))
    await asyncio.wait([address, stopping], return_when=asyncio.FIRST_COMPLETED)
    if address.done():
        return await address
    address.cancel()
    return None


async def _connected(worker: Any, words: str) -> None:
    """Until the scheduler is lost. Raises OSError, RuntimeError: it cannot be reached, or refuses this worker."""
    await worker
    worker.http_server.stop()  # nothing of ours is served there
    _say(words)
    await worker.finished()


def _say(words: str) -> None:
    with contextlib.suppress(OSError):
        print(words, file=sys.stderr, flush=True)


def make_worker(
    scheduler: str, name: str, files: TlsFiles, listen: str, folder: Path, within_s: float = CONNECT_S
) -> Any:
    """A dask worker with one thread and one slot, which keeps still while nobody asks it anything."""
    from distributed import Worker
    from distributed.comm import unparse_host_port

    class QuietWorker(Worker):  # type: ignore[misc]  # of a package without types
        async def heartbeat(self) -> None:
            await super().heartbeat()
            self.periodic_callbacks["heartbeat"].callback_time = HEARTBEAT_S * 1000

    return QuietWorker(
        scheduler,
        name=name,
        nthreads=1,
        resources={SLOT: 1},
        security=files.security(),
        host=unparse_host_port(listen),
        protocol="tls",
        memory_limit=0,
        dashboard=False,
        dashboard_address="127.0.0.1:0",
        local_directory=str(folder),
        death_timeout=within_s,
    )


def facing(scheduler: str) -> str:
    """The address of this machine from which the scheduler is reached; nothing is sent to it.
    Raises UsageError: the scheduler's address is none; OSError: its name is not known, or there is no way to it.
    """
    host, _, port = scheduler.removeprefix("tls://").rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"--scheduler {scheduler}: is no address", "give tls://host:port")
    try:
        family, kind, _, _, address = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)[0]
    except UnicodeError as error:  # no name that could be asked for
        raise UsageError(f"--scheduler {scheduler}: {error}", "give tls://host:port") from error
    with socket.socket(family, kind) as probe:
        probe.connect(address)
        return str(probe.getsockname()[0])
