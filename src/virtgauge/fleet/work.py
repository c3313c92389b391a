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
import operator
import os
import re
import shutil
import ssl
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

from virtgauge import __version__
from virtgauge.agent import AgentBinary, find_agent
from virtgauge.errors import UnavailableError, UsageError, VirtgaugeError, tell
from virtgauge.execution.prepare import Arm, check_plan, probe_arms
from virtgauge.execution.progress import Notice, ProgressDisplay, ProgressEvent
from virtgauge.execution.run import (
    OccupiedError,
    machine_to_ourselves,
    manifest_of,
    run_to_ourselves,
    warn_of_surroundings,
)
from virtgauge.execution.runner import Runner
from virtgauge.execution.schedule import Batch, schedule_block
from virtgauge.fleet.messages import (
    Answer,
    Assignment,
    Assistance,
    Assisting,
    BatchAnswer,
    Enlistment,
    Enrolment,
    MachineIdentity,
    PackedTrial,
    Refusal,
    Request,
    Signature,
    pack,
    unpack,
)
from virtgauge.folders import cache_root
from virtgauge.host.machine import fingerprint
from virtgauge.host.scope import Scope
from virtgauge.ledger.records import ArmRecord, GuestRecord, TrialRecord, TrialStatus
from virtgauge.ledger.store import LEDGER_NAME, Ledger
from virtgauge.plan.load import parse_plan
from virtgauge.plan.model import Plan
from virtgauge.platforms.base import Platform
from virtgauge.platforms.remote import PeerServer, RemoteHost, RemoteHostLostError

PLAN_SOURCE = "the fleet's plan"
_TOKEN = re.compile(r"[0-9a-f]{16}")


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


class Notices(ProgressDisplay):
    """Keeps what the user should know; everything else is not sent, for sending it would disturb the trials."""

    def __init__(self) -> None:
        self._words: list[str] = []

    def show(self, event: ProgressEvent) -> None:
        if isinstance(event, Notice):
            self._words.append(event.text)

    def taken(self) -> list[str]:
        """What came since this was last asked."""
        words, self._words = self._words, []
        return words


@dataclasses.dataclass
class Workplace:
    """What a worker has open for a run: the machine's lock, a ledger, a scope, platforms that have begun."""

    origin: Assignment  # the first
    runner: Runner
    arms: Mapping[str, ArmRecord]
    platforms: Sequence[Platform]
    display: Notices
    opened: contextlib.ExitStack  # all of it
    events_told: int  # how many of the ledger's

    @classmethod
    async def open(cls, assignment: Assignment) -> Self:
        """Everything up to the first batch.
        Raises UsageError: the plan is refused here, or what was kept is of another plan; UnavailableError: the machine
        is busy, or an arm can no longer be used.
        """
        plan = parse_plan(assignment.plan_text, PLAN_SOURCE)
        design = check_plan(plan, PLAN_SOURCE)
        agent = find_agent()
        display = Notices()
        with contextlib.ExitStack() as stack:
            stack.enter_context(machine_to_ourselves(display))
            arms = [arm for arm in await probe_arms(plan, design.platforms) if arm.record.name in assignment.arms]
            if lost := [arm.record for arm in arms if not arm.record.usable]:
                raise UnavailableError(f"{lost[0].name} can no longer be used: {lost[0].reason}", lost[0].fix)
            ledger = stack.enter_context(_own_ledger(assignment, plan, agent, arms))
            stack.enter_context(run_to_ourselves(ledger.folder))
            ledger.discard_unfinished_samples()
            scope = stack.enter_context(Scope())
            platforms = list({id(arm.platform): arm.platform for arm in arms}.values())
            for platform in platforms:
                for words in await platform.begin(scope, agent):
                    display.notice(words, warning=False)
            runner = Runner(
                plan=plan, design=design, arms=arms, ledger=ledger, scope=scope, agent=agent, display=display
            )
            known, told = {arm.record.name: arm.record for arm in arms}, len(ledger.events())
            return cls(assignment, runner, known, platforms, display, stack.pop_all(), told)

    def serves(self, assignment: Assignment) -> bool:
        of = operator.attrgetter("token", "first_block", "plan_text", "arms")
        return bool(of(self.origin) == of(assignment))

    async def measure(self, assignment: Assignment, signature: Signature, remote: RemoteHost | None) -> BatchAnswer:
        """Measure what is missing of a batch, with its tester elsewhere; everything that is known of it, signed so.
        Raises RemoteHostLostError: the tester's host does not answer any more.
        """
        batch = self._batch(assignment)
        known = [(key, attempt, TrialStatus(status)) for key, attempt, status in assignment.known]
        trials, ledger = await self.runner.run_one(batch, known, remote), self.runner.ledger
        events = ledger.events()[self.events_told :]
        self.events_told += len(events)
        return BatchAnswer(
            signature=signature,
            trials=tuple(PackedTrial.read(ledger, trial) for trial in trials),
            guests=tuple(guest for guest in ledger.guests() if _is_of(guest, batch, trials)),
            notices=tuple(self.display.taken()),
            events=tuple((event.kind, event.detail) for event in events),
            emulated=tuple(arm.name for arm in ledger.manifest().arms if arm.emulated),
        )

    def _batch(self, assignment: Assignment) -> Batch:
        seed, design = self.runner.plan.seed, self.runner.design
        assert seed is not None
        batches = schedule_block(
            seed, assignment.block, assignment.arms, design.cells, lambda cell, arm: design.is_for(cell, self.arms[arm])
        )
        for batch in batches:
            if (batch.testbed, batch.arm) == (assignment.testbed, assignment.arm):
                wanted = tuple(cell for cell in batch.cells if batch.trial_key(cell) in assignment.keys)
                if len(wanted) == len(assignment.keys):
                    return dataclasses.replace(batch, cells=wanted)
        raise UsageError(
            f"the plan has no batch {assignment.testbed!r} of {assignment.arm!r} in block {assignment.block}",
            "install the same version of virtgauge on every host of the fleet",
        )

    def close(self) -> list[str]:
        """Give back everything; what the platforms remark."""
        remarks = [words for platform in self.platforms for words in platform.remarks()]
        self.opened.close()
        return remarks


@contextlib.contextmanager
def _own_ledger(assignment: Assignment, plan: Plan, agent: AgentBinary, arms: Sequence[Arm]) -> Iterator[Ledger]:
    """What this worker has measured of the run so far, or a new ledger."""
    if not _TOKEN.fullmatch(assignment.token):
        raise UsageError(f"the run's token {assignment.token!r} is none", "start the run anew")
    # By host as well: several hosts may be one machine for a try.
    folder = _kept() / assignment.token / f"{assignment.first_block:09d}"
    if (folder / LEDGER_NAME).exists():
        ledger = Ledger.open(folder)
    else:
        ledger = Ledger.create(folder, manifest_of(assignment.token, plan, agent, (arm.record for arm in arms)))
    with ledger:
        if ledger.manifest().agent_sha256 != agent.sha256:
            raise UsageError("the agent here is not the one that this run began with", "install that version again")
        yield ledger


def _is_of(guest: GuestRecord, batch: Batch, trials: Sequence[TrialRecord]) -> bool:
    """Whether a guest was launched for a batch; of those that did not come up, the arm and block say so."""
    if guest.error is not None:
        return (guest.arm, guest.block) == (batch.arm, batch.block)
    return any(trial.guest_id == guest.guest_id for trial in trials)


def kept_runs() -> list[tuple[str, int]]:
    """Token, and bytes on the disk, of runs whose coordinator has not said that they are over, the oldest first."""
    found = []
    for folder in _kept().glob("*"):
        if _TOKEN.fullmatch(folder.name):
            states = []
            with contextlib.suppress(FileNotFoundError):  # a worker at work there has just removed something
                for path in folder.rglob("*"):
                    states.append(path.stat())
            last = max((state.st_mtime for state in states), default=0.0)
            found.append((last, folder.name, sum(state.st_size for state in states)))
    return [(token, size) for _, token, size in sorted(found)]


def is_under_way(token: str) -> bool:
    """Whether a worker here is at work on a run, or may be: it is another user's."""
    for ledger in (_kept() / token).glob(f"*/{LEDGER_NAME}"):
        try:
            with run_to_ourselves(ledger.parent):
                pass
        except OccupiedError:
            return True
        except VirtgaugeError:  # it is another user's; or gone, for a worker has just ended
            if ledger.exists():
                return True
    return False


def forget(token: str) -> None:
    """Remove what was kept of a run."""
    if _TOKEN.fullmatch(token):
        shutil.rmtree(_kept() / token, ignore_errors=True)


def _kept() -> Path:
    return cache_root() / "fleet"
