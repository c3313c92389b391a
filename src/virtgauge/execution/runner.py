"""Executes a schedule: a fresh testbed for every batch, every trial into the ledger, nothing left behind.

What remains to be done is always derived from the ledger, so running and resuming are the same thing.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from virtgauge.agent import AgentBinary
from virtgauge.agent.channel import AgentError, ChannelClosedError
from virtgauge.agent.messages import ProtocolError
from virtgauge.decisions.verdicts import Names, Needed, Verdict, needed_for, needed_for_claims, open_claims, undecided
from virtgauge.execution.prepare import Arm, Design
from virtgauge.execution.progress import GuestStarting, ProgressDisplay, RunEnded, RunStarted, TrialEnded, TrialProgress
from virtgauge.execution.remaining import RemainingTime, RememberedCosts, Stopwatch, costs_file
from virtgauge.execution.schedule import AtTheSameTime, Batch, schedule, schedule_block, together, turns
from virtgauge.execution.trial import Outcome, RunPatience, run_trial
from virtgauge.host.scope import Scope
from virtgauge.ledger.records import DOUBT, SCHEDULED, Attempt, Flag, GuestRecord, TrialRecord, TrialStatus
from virtgauge.ledger.rows import RowError, check_json
from virtgauge.ledger.store import Ledger, UnfitError, utc_now
from virtgauge.plan.model import Plan
from virtgauge.platforms.base import LaunchError
from virtgauge.platforms.remote import RemoteHost
from virtgauge.results.formatting import count, first_of
from virtgauge.suites.base import Cell
from virtgauge.suites.testbed import Stage, Testbed, allowed_cores

_SETTLED = {TrialStatus.VALID, TrialStatus.UNSUPPORTED}
_LAUNCH_FAILURES_BEFORE_GIVING_UP = 3


class Progress:
    """What the ledger says of the attempts at each trial."""

    def __init__(self, attempts: int, trials: Iterable[TrialRecord | Attempt]) -> None:
        self._attempts = attempts
        self.known: defaultdict[str, dict[int, TrialStatus]] = defaultdict(dict)  # By key and attempt
        for trial in trials:
            self.add(trial.key, trial.attempt, trial.status)

    def add(self, key: str, attempt: int, status: TrialStatus) -> bool:
        """Take in an attempt; whether no further one is needed now, as it was before."""
        was_done = self.is_done(key)
        self.known[key][attempt] = status
        return self.is_done(key) and not was_done

    def is_done(self, key: str) -> bool:
        """Whether no further attempt is needed, or allowed."""
        return any(status in _SETTLED for status in self.known[key].values()) or self.made(key) >= self._attempts

    def made(self, key: str) -> int:
        """Number of the last attempt; 0 before the first."""
        return max(self.known[key], default=0)


@dataclasses.dataclass(eq=False, kw_only=True)
class Runner:
    """One execution of a plan, from wherever its ledger stands to the end."""

    plan: Plan
    design: Design
    arms: dataclasses.InitVar[Sequence[Arm]]
    ledger: Ledger
    scope: Scope
    agent: AgentBinary
    display: ProgressDisplay
    # that are put on every trial from now on, and are not fatal: a host that changed since the run began
    carried_flags: tuple[Flag, ...] = ()

    def __post_init__(self, arms: Sequence[Arm]) -> None:
        plan = self.plan
        assert plan.seed is not None
        self._arms = {arm.record.name: arm for arm in arms if arm.record.usable}
        self._each = plan.repetitions_per_guest
        names = list(self._arms)
        batches = schedule(plan.seed, plan.repetitions, names, self.design.cells, self._is_for, self._each)
        self._batches = list(batches)
        trials = self.ledger.trials()
        self._progress = Progress(plan.attempts, trials)
        self._newest_block = max((trial.block for trial in trials), default=0)
        self._launch_failures: Counter[str] = Counter()
        self._patience = RunPatience(plan.validity)
        self._told: set[tuple[str, str]] = set()
        self._testbeds_set_up = 0
        self._remote: RemoteHost | None = None
        self._total = sum(len(batch.cells) for batch in self._batches)
        self._done = sum(map(self._progress.is_done, self._progress.known))
        # Costs of invented machines are no one else's.
        invented = all(arm.platform.simulated for arm in self._arms.values())
        remembered = RememberedCosts(None if invented else costs_file())
        records = {name: arm.record for name, arm in self._arms.items()}
        self._clock = RemainingTime(records, remembered, at_the_same_time=plan.at_the_same_time)
        planned = {batch.trial_key(cell) for batch in self._batches for cell in batch.cells}
        self._total += len(self._progress.known.keys() - planned)  # of repetitions that were added before

    async def run(self) -> bool:
        """Execute what is not yet done; True when nothing remains.
        Raises asyncio.CancelledError: interrupted; the guest under way was ended, all finished trials are kept.
        """
        started, budget = time.monotonic(), self.plan.budget
        for turn in turns(self._batches, self._each):
            self._expect(turn)
        about = str(self._clock)
        if budget is not None:
            about += f"; then {budget.told(requirements=bool(self.design.requirements))}"
        self.display.show(RunStarted(self.ledger.folder.name, self._total, self._done, self._clock.seconds, about))
        self.ledger.add_event(SCHEDULED, f"{self._total} trials")
        complete = False
        try:
            await self._run_turns(self._batches)
            await self._repeat_until_decided(started)
            complete = self._done == self._total
        finally:
            self._clock.keep(whole=complete)
            self.display.show(RunEnded.of(complete, self.ledger.attempts(), time.monotonic() - started))
        return complete

    async def _repeat_until_decided(self, started: float) -> None:
        """Add repetitions of what open requirements and conclusions need, within the plan's budget.

        Conclusions are judged at the plan's looks only, which their intervals allow for.
        """
        budget = self.plan.budget
        if budget is None:
            return
        told, looked = "", 0
        requirements, arms = self.design.requirements, self.ledger.manifest().arms
        claims: Names = {}
        never: Names = {}
        first = max(self.plan.repetitions, self._newest_block // self._each * self._each)
        for block in range(first, budget.repetitions):
            if block > first and block % self._each:
                continue  # it was measured with the one before
            left = undecided(requirements, self.ledger)
            look = max(one for one in budget.looks(self.plan.repetitions) if one <= block)
            if budget.claims and look > looked:
                looked, before, (claims, never) = look, never, self._open_after(look, budget.repetitions)
                if never and not before:
                    text = _counted("conclusion", "left out of further repetitions", _listed(never))
                    self.display.notice(f"{text}: none within the budget would decide them", warning=False)
            if not (left or claims):
                what = f"requirement and {'other ' if never else ''}conclusion" if budget.claims else "requirement"
                self.display.notice(f"every {what} is decided after {block} repetitions", warning=False)
                return
            still_open, said = [one for one in left if one.open], said_open(left, claims)
            if not (still_open or claims):
                self.display.notice(f"{said}: no further repetition would decide the rest")
                return
            if budget.minutes is not None and time.monotonic() - started > 60 * budget.minutes:
                self._say_spent(f"{budget.minutes:g} minutes")
                return
            required = needed_for(still_open, requirements, arms)
            concluded = needed_for_claims(claims, self.ledger)
            added = list(self._further_batches(block, lambda *at, r=required, c=concluded: r(*at) or c(*at)))
            self._batches += added
            keys = (batch.trial_key(cell) for batch in added for cell in batch.cells)
            self._total += sum(key not in self._progress.known for key in keys)
            if any(map(self._pending, added)) and told != (told := said):
                text = f"{said}: repetitions {block + 1} to at most {budget.repetitions} follow"
                self.display.notice(text, warning=False)
            for turn in turns(added, self._each):
                self._expect(turn)
            self.ledger.add_event(SCHEDULED, f"{self._total} trials")
            await self._run_turns(added)
        self._say_spent(f"{budget.repetitions} repetitions")

    def _say_spent(self, what: str) -> None:
        """Say what is open at the end, as the report has it: by all that was measured, also since the last look."""
        budget = self.plan.budget
        assert budget is not None
        claims = open_claims(self.ledger, budget.repetitions)[0] if budget.claims else {}
        if said := said_open(undecided(self.design.requirements, self.ledger), claims):
            self.display.notice(f"the budget of {what} is spent: {said}")

    def _open_after(self, look: int, most: int) -> tuple[Names, Names]:
        """What was open at a look, and what stays so: a run that goes on sees what that look saw, and spends none."""
        whole, self.ledger.blocks = self.ledger.blocks, (0, look - 1)
        try:
            return open_claims(self.ledger, most)
        finally:
            self.ledger.blocks = whole

    def _further_batches(self, block: int, needed: Needed) -> Iterator[Batch]:
        """What of a further block is needed, and of those that share its guests."""
        budget, each = self.plan.budget, self._each

        def is_for(cell: Cell, arm: str) -> bool:
            # Verdicts on others must not change what an arm has beside it.
            among = self._arms if self.plan.at_the_same_time else (arm,)
            return self._is_for(cell, arm) and any(needed(one, cell.figures_key) for one in among)

        assert self.plan.seed is not None and budget is not None
        start = block // each * each
        found = schedule_block(self.plan.seed, start, list(self._arms), self.design.cells, is_for, each)
        return (batch for batch in found if block <= batch.block < budget.repetitions)

    async def run_one(
        self, batch: Batch, known: Iterable[tuple[str, int, TrialStatus]] = (), remote: RemoteHost | None = None
    ) -> list[TrialRecord]:
        """Measure what is missing of a batch that somebody else chooses; all of its trials in this ledger.

        ``known``: key, attempt and status of trials that another ledger has; ``remote``: the other machine on which its
        testers are, None where they are here.
        Raises RemoteHostLostError: that machine does not answer any more; what had finished is in the ledger.
        """
        self._remote = remote
        for attempt in known:
            self._done += self._progress.add(*attempt)
        await self._run_turn([batch])
        keys = {batch.trial_key(cell) for cell in batch.cells}
        return [trial for trial in self.ledger.trials() if trial.key in keys]

    def _is_for(self, cell: Cell, arm: str) -> bool:
        return self.design.is_for(cell, self._arms[arm].record)

    def _expect(self, turn: Sequence[Batch]) -> None:
        cells = [cell for batch in turn for cell in self._pending(batch)]
        platform = self._arms[turn[0].arm].platform
        if pending := [cell for cell in cells if self.design.refusal(cell, platform) is None]:
            self._clock.expect(turn[0].arm, turn[0].testbed, pending)

    async def _run_turns(self, batches: Sequence[Batch]) -> None:
        """Measure batches turn by turn, or the turns of all arms at the same time."""
        found = turns(batches, self._each)
        if not self.plan.at_the_same_time:
            for turn in found:
                await self._run_turn(turn)
            return
        for among in together(found, self._each):
            for turn in among:
                for batch in turn:
                    self._refuse(batch)
            if left := [turn for turn in among if any(map(self._pending, turn))]:
                await self._run_together(left)

    async def _run_together(self, among: Sequence[Sequence[Batch]]) -> None:
        """Measure turns at the same time, each arm on CPUs of its own, cells in the order of the first."""
        names = [arm.name for arm in self.ledger.manifest().arms if arm.usable]  # also of those that are lost since
        shared = AtTheSameTime.of(among, names, allowed_cores(), among[0][0].block // self._each)
        try:
            async with asyncio.TaskGroup() as group:
                for turn in among:
                    group.create_task(self._run_beside(turn, shared))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _run_beside(self, turn: Sequence[Batch], shared: AtTheSameTime) -> None:
        try:
            await self._run_turn(turn, shared)
        finally:
            shared.gate.leave(turn[0].arm)

    async def _run_turn(self, turn: Sequence[Batch], shared: AtTheSameTime | None = None) -> None:
        """Measure batches on one testbed, and on a further one what is left when it is lost, or has to be repeated."""
        for batch in turn:
            self._refuse(batch)
        if not any(map(self._pending, turn)):
            return
        while left := [batch for batch in turn if self._pending(batch)]:
            batch = left[0]
            watch = Stopwatch()
            self._testbeds_set_up += 1
            name = f"g{self._testbeds_set_up}"
            cpus = shared.shares[batch.arm] if shared else None
            stage = Stage(self._arms[batch.arm].platform, self.scope, self.agent, name, self._remote, cpus)
            try:
                testbed = await self._set_up(batch, stage)
                took_s = watch.elapsed
                if testbed is None:
                    self._record_unlaunched(batch)
                    continue
                self._clock.launched(batch.arm, batch.testbed, took_s)
                if shared:
                    shared.beside.join(stage)
                for one in left:
                    pending, reached_s = self._pending(one), watch.elapsed
                    if shared:
                        await shared.gate.reach(one.arm, one.block)
                        watch.elsewhere += watch.elapsed - reached_s
                    if not await self._measure(
                        one, shared.ordered(one, pending) if shared else pending, *testbed, watch
                    ):
                        break
            finally:
                if shared:
                    shared.beside.leave(stage)
                await stage.close()
            self._clock.closed(batch.arm, batch.testbed, watch.own)
        self._clock.over(turn[0].arm, turn[0].testbed)

    async def _set_up(self, batch: Batch, stage: Stage) -> tuple[Testbed, int] | None:
        """A fresh testbed and the number of its first guest in the ledger; None when it did not come up."""
        self.display.show(GuestStarting(batch.arm, batch.block))
        kind, at = self._arms[batch.arm].record.kind, utc_now()
        launch = GuestRecord(arm=batch.arm, platform=kind, block=batch.block, launched_at=at, ready_ns=None, facts={})
        try:
            testbed = await self.design.suites[batch.cells[0].key].set_up(batch.testbed, stage)
            facts = await testbed.guest.channel.facts()
            others = [guest for guest in stage.guests if guest is not testbed.guest] if stage.platform.peer else []
            beside = [await guest.channel.facts() for guest in others]
            for told in (facts, *beside):
                check_json("facts", told)
        except (LaunchError, AgentError, ChannelClosedError, ProtocolError, TimeoutError, RowError) as error:
            self._launch_failures[batch.arm] += 1
            self.display.notice(f"{batch.arm}: the guest did not come up: {error}")
            self.ledger.put_guest(dataclasses.replace(launch, error=str(error) or repr(error)))
            return None
        self._launch_failures[batch.arm] = 0
        for told in (facts, *beside):
            self._note_emulation(batch.arm, told)
        self._note_machine(batch.arm, facts, beside)
        facts["in_force"] = dict(testbed.guest.in_force)  # whatever the guest itself may say of that
        if stage.cpus is not None:
            facts["placed_on"] = list(stage.cpus)
            confined = testbed.guest.confinement().cpus
            if not (stage.platform.simulated or (confined and set(confined) <= set(stage.cpus))):
                doubt = f"{batch.arm}: that it stays on CPUs of its own could not be read back"
                self._remark(doubt, warning=True, kind=DOUBT)
        return testbed, self.ledger.put_guest(dataclasses.replace(launch, ready_ns=testbed.ready_ns, facts=facts))

    def _note_emulation(self, arm: str, facts: dict[str, Any]) -> None:
        """Mark every arm of a platform of which only its guests can tell that it is emulated."""
        platform = self._arms[arm].platform
        found = platform.emulation(facts)
        if found is None or self._arms[arm].record.emulated or (arm, "emulation") in self._told:
            return
        self._told.add((arm, "emulation"))
        follows = "its figures are marked as emulated and never ranked" if found.certain else "no figure is marked"
        self._remark(f"{arm}: {found.words}; {follows}", warning=True)
        if found.certain:
            for name, other in self._arms.items():
                if other.platform is platform:
                    record = dataclasses.replace(other.record, emulated=True)
                    self._arms[name] = dataclasses.replace(other, record=record)
                    self.ledger.put_arm(record)

    def _note_machine(self, name: str, facts: dict[str, Any], beside: Iterable[dict[str, Any]]) -> None:
        """Let an arm stand for the machine that its guests say that they are, and say what is doubtful of it."""
        arm, before = self._arms[name], self._arms[name].record
        found, peer = arm.platform.recognised(facts), arm.platform.peer
        doubts = list(found.doubts)
        for told in (peer.recognised(one) for one in beside) if peer is not None else ():
            doubts += [f"of its peer: {doubt}" for doubt in told.doubts]
            if (told.hypervisor, told.processor) != (found.hypervisor, found.processor):
                doubts.append(f"it says that it is {found.words()}, and its peer that it is {told.words()}")
        for doubt in doubts:
            self._remark(f"{name}: {doubt}", warning=True, kind=DOUBT)
        if found.hypervisor not in ("", before.recognised):
            text = f"{name}: its guest says that it is {found.words()}, for which it stands from now on"
            if before.recognised:
                text += f", no longer for {before.recognised}: figures of both are mixed"
            self._remark(text, warning=bool(before.recognised))
        elif found.processor not in ("", before.processor):
            self._remark(f"{name}: its guest says that it is on another computer: {found.processor}", warning=True)
        recognised = found.hypervisor or before.recognised
        record = dataclasses.replace(
            before,
            recognised=recognised,
            virtual=True if recognised else before.virtual,
            processor=found.processor,
            physical=found.physical and not recognised,
        )
        if record != before:
            self._arms[name] = dataclasses.replace(arm, record=record)
            self.ledger.put_arm(record)

    def _remark(self, text: str, *, warning: bool, kind: str = "remark") -> None:
        """Say something once, on the display and in the ledger."""
        if (text, "remark") not in self._told:
            self._told.add((text, "remark"))
            self.ledger.add_event(kind, text)
            self.display.notice(text, warning=warning)

    def _refuse(self, batch: Batch) -> None:
        """Record what this user cannot have, before anything is started for it."""
        for cell in self._pending(batch):
            if (words := self.design.refusal(cell, self._arms[batch.arm].platform)) is not None:
                self._record(batch, cell, Outcome(TrialStatus.UNSUPPORTED, words))

    def _record_unlaunched(self, batch: Batch) -> None:
        for cell in self._pending(batch):
            self._record(batch, cell, Outcome(TrialStatus.FAILED, "the guest did not come up"))
        if self._launch_failures[batch.arm] == _LAUNCH_FAILURES_BEFORE_GIVING_UP:
            text = f"{batch.arm}: given up after {_LAUNCH_FAILURES_BEFORE_GIVING_UP} launches in a row failed"
            self.ledger.add_event("arm-given-up", text)
            if self.plan.at_the_same_time:
                self.ledger.add_event(DOUBT, f"{text}: from then on the others had no neighbour on its CPUs.")
            self._clock.given_up(batch.arm)
            self.display.notice(text)

    async def _measure(
        self, batch: Batch, pending: Sequence[Cell], testbed: Testbed, guest_id: int, watch: Stopwatch
    ) -> bool:
        """Measure cells of a batch; whether further ones can be on the same testbed."""
        for cell in pending:
            key, started_at, began = batch.trial_key(cell), utc_now(), watch.elapsed
            suite = self.design.suites[cell.key]

            def show(done: float, key: str = key) -> None:
                self.display.show(TrialProgress(key, done))

            show(0.0)
            outcome = await run_trial(cell, suite, testbed, self._patience.limits(), show)
            seconds = watch.elapsed - began
            self._patience.spend(outcome.accounting, seconds)
            watch.elsewhere += seconds
            try:
                self._record(batch, cell, outcome, guest_id, started_at, seconds)
            except UnfitError as error:  # else the run could not be read any more
                outcome = Outcome(TrialStatus.FAILED, error.message, guest_lost=True, elapsed_ns=outcome.elapsed_ns)
                self._record(batch, cell, outcome, guest_id, started_at, seconds)
            if outcome.guest_lost or testbed.closed:
                return False  # what is still pending gets a fresh testbed
        return True

    def _pending(self, batch: Batch) -> list[Cell]:
        """Cells of a batch that need a further attempt and may have one."""
        if self._launch_failures[batch.arm] >= _LAUNCH_FAILURES_BEFORE_GIVING_UP:
            return []
        return [cell for cell in batch.cells if not self._progress.is_done(batch.trial_key(cell))]

    def _record(
        self,
        batch: Batch,
        cell: Cell,
        outcome: Outcome,
        guest_id: int | None = None,
        started_at: str = "",
        seconds: float | None = None,
    ) -> None:
        """Put a trial into the ledger, which took so many seconds; one that was not even begun has none."""
        key = batch.trial_key(cell)
        attempt = self._progress.made(key) + 1
        trial = TrialRecord(
            trial_id=0,
            key=key,
            suite=cell.suite,
            probe=cell.probe,
            arm=batch.arm,
            platform=self._arms[batch.arm].record.kind,
            block=batch.block,
            attempt=attempt,
            factors=dict(cell.factors),
            status=outcome.status,
            flags=outcome.flags + self.carried_flags,
            result=outcome.result,
            accounting=outcome.accounting,
            error=outcome.error,
            guest_id=guest_id,
            started_at=started_at or utc_now(),
            elapsed_ns=outcome.elapsed_ns,
        )
        self.ledger.add_trial(trial, outcome.histograms, outcome.samples)
        self._done += self._progress.add(key, attempt, outcome.status)
        over = self._progress.is_done(key)
        if seconds is not None:
            self._clock.trial(batch.arm, cell, seconds, over=over, failed=outcome.status is TrialStatus.FAILED)
        elif over:
            self._clock.dropped(batch.arm, cell)
        event = TrialEnded.of(trial, self._done, self._total, self._clock.seconds)
        if outcome.status is TrialStatus.UNSUPPORTED:  # the same in every block; saying it once is enough
            if (batch.arm, cell.key) in self._told:
                event = dataclasses.replace(event, reason=None)
            self._told.add((batch.arm, cell.key))
        self.display.show(event)


def said_open(undecided: Sequence[Verdict], claims: Names) -> str:
    """``2 verdicts are undecided (p99 ≤ 1 ms on gvisor, and 1 more), 1 conclusion is open (timing: cost-load)``."""
    parts = (
        ("verdict", "undecided", [f"{one.requirement} on {one.arm}" for one in undecided]),
        ("conclusion", "open", _listed(claims, whole=True)),
        ("conclusion", "decided, but open on some platform", _listed(claims, whole=False)),
    )
    return ", ".join(_counted(*part) for part in parts if part[2])


def _listed(claims: Names, *, whole: bool | None = None) -> list[str]:
    every = [(f"{suite}: {name}", is_whole) for suite, names in claims.items() for name, is_whole in names.items()]
    return [name for name, is_whole in every if whole is None or whole is is_whole]


def _counted(what: str, state: str, found: Sequence[str]) -> str:
    return f"{count(len(found), f'{what} is', f'{what}s are')} {state} ({first_of(found, 3, ', ')})"
