"""What a worker does when it is asked: say who it is, measure a batch, launch testers for others, stop, and leave.

All of it runs on the worker's event loop and so in its main thread, for guests are killed with the thread that started
them.  What was measured is kept in a ledger of the worker's own until the coordinator has it and the run ends: a
batch that was cut short goes on where it was, and one whose answer was lost is answered again.  A batch does not end
with the connection to the scheduler.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import ssl

from virtgauge import __version__
from virtgauge.agent import find_agent
from virtgauge.errors import VirtgaugeError, tell
from virtgauge.execution.prepare import check_plan, probe_arms
from virtgauge.execution.progress import ProgressDisplay
from virtgauge.execution.run import OccupiedError, machine_to_ourselves, warn_of_surroundings
from virtgauge.fleet.messages import (
    Answer,
    Assignment,
    Assistance,
    Assisting,
    BatchAnswer,
    Enlistment,
    Enrolment,
    MachineIdentity,
    Refusal,
    Request,
    Signature,
    pack,
    unpack,
)
from virtgauge.fleet.workplace import PLAN_SOURCE, Notices, Workplace, forget
from virtgauge.host.machine import fingerprint
from virtgauge.host.scope import Scope
from virtgauge.plan.load import parse_plan
from virtgauge.platforms.remote import PeerServer, RemoteHost, RemoteHostLostError


class StartedAnewError(VirtgaugeError):
    """The machine is in another boot than was enrolled."""


_IDLE_S = 30.0  # After so long without a batch the machine is free for others again
_END_S = 60.0


async def answer(data: bytes) -> bytes:
    """Do what a packed request asks for: what came of it, or why it could not be done; at most one at a time.

    A batch goes on when the scheduler is lost, and whoever asks for the same again has its answer.
    """
    task = _state.current
    if task is None or data != _state.asked or not _stands(task):
        if task is not None and not task.done():
            return pack(Refusal("a batch is under way already", None, busy=True))
        task = _state.current = asyncio.ensure_future(_work(data))
        _state.asked = data
    try:
        return pack(await asyncio.shield(task))
    except asyncio.CancelledError:
        if not task.cancelled():  # only who waits here is to go
            raise
        return pack(Refusal("the batch was stopped", None, stopped=True))
    except VirtgaugeError as error:
        return pack(
            Refusal(
                error.message,
                error.remedy,
                busy=isinstance(error, OccupiedError),
                tester_lost=isinstance(error, RemoteHostLostError),
                restarted=isinstance(error, StartedAnewError),
            )
        )
    except Exception as error:
        with contextlib.suppress(OSError):  # of whoever reads what is printed here
            tell(error)
        return pack(Refusal(f"a defect of virtgauge there: {error!r}", "its worker has printed what to report"))


def _stands(task: asyncio.Task[Answer]) -> bool:
    """Whether work is under way, or has brought what it was to bring."""
    if not task.done():
        return True
    return not task.cancelled() and task.exception() is None and isinstance(task.result(), BatchAnswer)


async def stop(token: str) -> None:
    """End what is under way or open for a run, if it is this; its guest is ended, what had finished is kept."""
    if _state.token == token:
        await end()


async def end() -> None:
    """End whatever is under way, and give the machine back."""
    current = _state.current
    if current is not None and not current.done():
        if not current.cancelling():  # else its clean-up is under way
            current.cancel()
        await asyncio.wait([current], timeout=_END_S)
    await close()


async def leave(token: str) -> list[str]:
    """A run is over: forget what was kept of it; returns what its platforms remark."""
    if _state.token == token:
        await close()
    forget(token)
    return _state.remarks.pop(token, [])


async def close() -> None:
    """Give the machine back; what the platforms of the run remark is kept until that is over."""
    _stay()
    closing = _state.closing
    if closing is not None and not closing.done() and closing is not asyncio.current_task():
        await asyncio.wait([closing])
    if _state.current is None or _state.current.done():
        _state.current, _state.token = None, ""
    assistant, _state.assistant = _state.assistant, None
    place, _state.place = _state.place, None
    if place is not None and (remarks := place.close()):
        _state.remarks.setdefault(place.origin.token, []).extend(remarks)
    if assistant is not None:
        await assistant.aclose()


def _signature() -> Signature:
    from distributed import get_worker

    return Signature(str(get_worker().name), MachineIdentity.read(), __version__, find_agent().sha256)


def _own_end() -> tuple[str, ssl.SSLContext, ssl.SSLContext]:
    """This machine's address, and what connections from others and to others are made with."""
    from distributed import get_worker

    worker = get_worker()
    security = worker.security
    ends = security.get_listen_args("worker"), security.get_connection_args("worker")
    return worker.ip, ends[0]["ssl_context"], ends[1]["ssl_context"]


async def _work(data: bytes) -> Answer:
    request: Request = unpack(data, (Enlistment, Assistance, Assignment), "the coordinator")
    token = "" if isinstance(request, Enlistment) else request.token
    if _state.assistant is not None and _state.token != token:
        raise OccupiedError("the tester of a run's guests is here", "wait until their batch has ended")
    if not isinstance(request, Enlistment) and request.boot_id != _signature().machine.boot_id:
        raise StartedAnewError("this machine was started anew since it was enrolled")
    others, _state.token = _state.token != token, token
    if others:
        await close()
    match request:
        case Enlistment():
            return await _enlist(request)
        case Assistance():
            return await _assist()
        case Assignment():
            return await _measure(request)


async def _enlist(request: Enlistment) -> Enrolment:
    plan = parse_plan(request.plan_text, PLAN_SOURCE)
    design = check_plan(plan, PLAN_SOURCE)
    display = Notices()
    with machine_to_ourselves(display):
        arms = await probe_arms(plan, design.platforms)
        await warn_of_surroundings(plan, design, arms, display)
    return Enrolment(_signature(), fingerprint(), tuple(arm.record for arm in arms), tuple(display.taken()))


async def _measure(assignment: Assignment) -> BatchAnswer:
    if _state.place is None or not _state.place.serves(assignment):
        await close()
        _state.place = await Workplace.open(assignment)
    place = _state.place
    _stay()
    remote = None
    if (at := assignment.tester) is not None:
        remote = RemoteHost(at.host, at.address, at.port, at.secret, _own_end()[2], at.cpus, cables=at.cables)
    try:
        return await place.measure(assignment, _signature(), remote)
    finally:
        # Give the machine back unless something comes.
        _state.leaving = asyncio.get_running_loop().call_later(_IDLE_S, _close_soon)


async def _assist() -> Assisting:
    """Be ready to launch testers for the guests on another host: with the machine's lock, a scope, and a server."""
    await close()
    address, context, _ = _own_end()
    try:
        async with contextlib.AsyncExitStack() as stack:
            stack.enter_context(machine_to_ourselves(ProgressDisplay()))  # which tells nobody
            server = PeerServer(stack.enter_context(Scope()), find_agent(), _IDLE_S, _close_soon)
            await server.listen(address, context)
            stack.push_async_callback(lambda: asyncio.shield(server.close()))
            _state.assistant = stack.pop_all()
    except OSError as error:
        raise VirtgaugeError(f"no tester can be asked for at {address}: {error}") from error
    cpus = tuple(sorted(os.sched_getaffinity(0)))
    return Assisting(_signature(), server.address, server.port, server.secret, cpus)


def _close_soon() -> None:
    if _state.current is None or _state.current.done():
        _state.closing = asyncio.ensure_future(close())
    else:  # a batch has just begun
        _state.leaving = asyncio.get_running_loop().call_later(_IDLE_S, _close_soon)


def _stay() -> None:
    if _state.leaving is not None:
        _state.leaving.cancel()
        _state.leaving = None


@dataclasses.dataclass
class _State:
    """What this process has open: one run at a time, and in it one batch at a time."""

    place: Workplace | None = None
    current: asyncio.Task[Answer] | None = None
    asked: bytes = b""  # the request of the one that is under way
    token: str = ""  # the run for which it is, or for which something is open
    assistant: contextlib.AsyncExitStack | None = None  # what is open for testers
    leaving: asyncio.TimerHandle | None = None
    closing: asyncio.Task[None] | None = None
    remarks: dict[str, list[str]] = dataclasses.field(default_factory=dict)  # of platforms, by run


_state = _State()
