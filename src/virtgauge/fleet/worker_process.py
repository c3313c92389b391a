"""``virtgauge fleet worker``: a dask worker with one slot, and a parent that starts it again when it was killed.

A loop around the worker rather than dask's nanny: the parent sleeps in the kernel until its child ends, and so takes no
CPU time from what is measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import shutil
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from virtgauge.errors import ExitCode, UnavailableError, UsageError, VirtgaugeError
from virtgauge.extras import require
from virtgauge.fleet.quiet import HEARTBEAT_S, SLOT, configure
from virtgauge.fleet.tls import TlsFiles
from virtgauge.host.process import die_with_parent
from virtgauge.host.tag import state_root

CONNECT_S = 300.0
"""How long a worker tries to reach its scheduler."""
_DEATHS, _WITHIN_S = 5, 120.0
"""A worker killed so often in so short a time is not started again."""
_GRACE_S = 30.0
_SCHEDULER_LOST = 75


def read_credentials(text: str) -> TlsFiles:
    """What the coordinator hands to a worker that it starts: PEM, on one line of standard input.

    Raises:
        UsageError: something else came.
    """
    try:
        value = json.loads(text)
        return TlsFiles(ca=str(value["ca"]), certificate=str(value["certificate"]), key=str(value["key"]))
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError("standard input holds no credentials", "give --ca, --certificate and --key") from error


def serve(scheduler: str, name: str, files: TlsFiles, *, listen: str | None, lifeline: int | None) -> int:
    """Work until told to stop; returns the exit code.

    Args:
        scheduler: ``tls://host:port``.
        name: of the worker.
        files: to prove itself with.
        listen: address of this machine; None: the one that faces the scheduler.
        lifeline: a descriptor at whose end the worker ends too.

    Raises:
        UnavailableError: what a fleet needs is not installed.
    """
    require("fleet", "a fleet's worker")
    ends = _Ends()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, ends.note)
    deaths: list[float] = []
    while True:
        child = _start(lambda: _work(scheduler, name, files, listen))
        status = _wait(child, lifeline, ends)
        if ends.asked:
            return ExitCode.OK
        code = os.waitstatus_to_exitcode(status)
        if code == _SCHEDULER_LOST and lifeline is None:
            print(f"the scheduler {scheduler} went away; trying to reach it again", file=sys.stderr, flush=True)
            continue
        if code >= 0:
            return code
        deaths = [at for at in deaths if at > time.monotonic() - _WITHIN_S] + [time.monotonic()]
        said = f"the worker {name} was ended by {signal.Signals(-code).name}"
        if len(deaths) >= _DEATHS:
            print(f"{said} for the {len(deaths)}th time; given up", file=sys.stderr, flush=True)
            return ExitCode.FAILED
        print(f"{said}; started again", file=sys.stderr, flush=True)


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
    except VirtgaugeError as error:
        print(f"virtgauge: {error}", file=sys.stderr, flush=True)
        code = error.exit_code
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _wait(child: int, lifeline: int | None, ends: _Ends) -> int:
    """Until the child has ended, which it is told to when the end is asked for or the lifeline breaks."""
    descriptor = os.pidfd_open(child)
    try:
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
    finally:
        os.close(descriptor)


def _work(scheduler: str, name: str, files: TlsFiles, listen: str | None) -> int:
    configure()
    return asyncio.run(_serve(scheduler, name, files, listen))


async def _serve(scheduler: str, name: str, files: TlsFiles, listen: str | None) -> int:
    from virtgauge.fleet import work

    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    folder = state_root() / "dask"
    folder.mkdir(parents=True, exist_ok=True)
    worker = make_worker(scheduler, name, files, listen or facing(scheduler), folder)
    stopping = asyncio.ensure_future(stopped.wait())
    starting = asyncio.ensure_future(_started(worker))
    try:
        await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            return ExitCode.OK
        try:
            await starting
        except (OSError, TimeoutError, ValueError) as error:
            raise UnavailableError(
                f"the scheduler {scheduler} cannot be reached: {error}", "check address and certificates"
            ) from error
        print(f"worker {name} is connected to {scheduler}", file=sys.stderr, flush=True)
        ended = asyncio.ensure_future(worker.finished())
        await asyncio.wait([ended, stopping], return_when=asyncio.FIRST_COMPLETED)
        return ExitCode.OK if stopped.is_set() else _SCHEDULER_LOST
    finally:
        starting.cancel()
        await work.end()
        await worker.close(reason="told to stop")
        shutil.rmtree(folder, ignore_errors=True)  # a machine has one worker


async def _started(worker: Any) -> None:
    await worker
    worker.http_server.stop()  # nothing of ours is served there


def make_worker(scheduler: str, name: str, files: TlsFiles, listen: str, folder: Path) -> Any:
    """A dask worker with one thread and one slot, which keeps still while nobody asks it anything."""
    from distributed import Worker

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
        host=listen,
        protocol="tls",
        memory_limit=0,
        dashboard=False,
        dashboard_address="127.0.0.1:0",
        local_directory=str(folder),
        death_timeout=CONNECT_S,
    )


def facing(scheduler: str) -> str:
    """The address of this machine from which the scheduler is reached; nothing is sent to find it.

    Raises:
        UsageError: the scheduler's address is none, or there is no way to it.
    """
    host, _, port = scheduler.removeprefix("tls://").rpartition(":")
    try:
        family, kind, _, _, address = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except (OSError, ValueError) as error:
        raise UsageError(f"--scheduler {scheduler}: {error}", "give tls://host:port") from error
