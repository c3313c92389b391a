"""What a worker has open for a run on its host, from the first batch to the last."""

from __future__ import annotations

import contextlib
import dataclasses
import operator
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

from virtgauge.agent import AgentBinary, find_agent
from virtgauge.errors import UnavailableError, UsageError, VirtgaugeError
from virtgauge.execution.prepare import Arm, check_plan, probe_arms
from virtgauge.execution.progress import Notice, ProgressDisplay, ProgressEvent
from virtgauge.execution.run import OccupiedError, machine_to_ourselves, manifest_of, run_to_ourselves
from virtgauge.execution.runner import Runner
from virtgauge.execution.schedule import Batch, schedule_block
from virtgauge.fleet.messages import Assignment, BatchAnswer, PackedTrial, Signature
from virtgauge.folders import cache_root
from virtgauge.host.scope import Scope
from virtgauge.ledger.records import ArmRecord, GuestRecord, TrialRecord, TrialStatus
from virtgauge.ledger.store import LEDGER_NAME, Ledger
from virtgauge.plan.load import parse_plan
from virtgauge.plan.model import Plan
from virtgauge.platforms.base import Platform
from virtgauge.platforms.remote import RemoteHost

PLAN_SOURCE = "the fleet's plan"
_TOKEN = re.compile(r"[0-9a-f]{16}")


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
