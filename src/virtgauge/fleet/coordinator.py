"""Drives a fleet: every host through its batches, every answer into the one ledger.

What remains to be done is derived from the merged ledger, so running and resuming are the same thing.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
import zlib
from collections import defaultdict
from collections.abc import Mapping, Sequence

from virtgauge.decisions.verdicts import needed_for, undecided
from virtgauge.errors import UnavailableError, VirtgaugeError
from virtgauge.execution.prepare import Design
from virtgauge.execution.progress import GuestStarting, RunEnded, RunStarted, TrialEnded
from virtgauge.execution.runner import said_open
from virtgauge.execution.schedule import Batch
from virtgauge.fleet.batches import BatchProgress, Placed, Slots, placed_batches
from virtgauge.fleet.cluster import SchedulerLostError, WorkerLostError
from virtgauge.fleet.messages import Assignment, Assistance, Assisting, BatchAnswer, ForeignMessageError, Tester
from virtgauge.fleet.roster import HostEnrolment
from virtgauge.ledger.records import (
    BLOCKS_PER_HOST,
    COMPLETED,
    INCOMPLETE,
    INTERRUPTED,
    SCHEDULED,
    GuestRecord,
    HostRecord,
    TrialRecord,
)
from virtgauge.ledger.store import Ledger, LedgerWriteError
from virtgauge.plan.fleet import FleetHost, FleetPair
from virtgauge.plan.model import Plan


class Merger:
    """The only writer of a fleet's ledger.

    A trial is known by key and attempt, a guest by arm, block and the moment of its launch: what is known already is
    passed over.  A batch is merged as a whole or not at all.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._kinds = {arm.name: arm.kind for arm in ledger.manifest().arms}
        self._trials = {(trial.key, trial.attempt) for trial in ledger.trials()}
        self._guests = {_guest_key(guest): guest.guest_id for guest in ledger.guests()}

    def merge(self, batch: Batch, answer: BatchAnswer) -> list[TrialRecord]:
        """Record what is new of a believed answer to a batch, or nothing of it; the new trials.
        Raises ForeignMessageError: the answer is not one to this batch; UnfitError: it is beyond what a ledger can
        hold; LedgerWriteError: the disk is full.
        """
        _check(batch, self._kinds[batch.arm], answer)
        new = [packed for packed in answer.trials if (packed.record.key, packed.record.attempt) not in self._trials]
        try:
            prepared = [packed.unpacked() for packed in new]
        except (ValueError, zlib.error) as error:
            raise ForeignMessageError(f"a trial of the answer cannot be read: {error}") from error
        numbers: dict[int, int] = {}
        guests = dict(self._guests)
        with self._ledger.together():
            for guest in answer.guests:
                key = _guest_key(guest)
                if key not in guests:
                    guests[key] = self._ledger.put_guest(dataclasses.replace(guest, guest_id=0))
                numbers[guest.guest_id] = guests[key]
            for record, histograms, samples in prepared:
                number = None if record.guest_id is None else numbers[record.guest_id]
                self._ledger.add_trial(dataclasses.replace(record, guest_id=number), histograms, samples)
            for kind, detail in answer.events:
                self._ledger.add_event(kind, detail)
            for arm in self._ledger.manifest().arms if answer.emulated else ():
                if arm.name in answer.emulated and not arm.emulated:  # on one host, and so not to be ranked on any
                    self._ledger.put_arm(dataclasses.replace(arm, emulated=True))
        self._guests = guests
        self._trials |= {(record.key, record.attempt) for record, _, _ in prepared}
        return [record for record, _, _ in prepared]


def _guest_key(guest: GuestRecord) -> tuple[str, int, str]:
    return guest.arm, guest.block, guest.launched_at


def _check(batch: Batch, kind: str, answer: BatchAnswer) -> None:
    """Refuse what was not asked for: an answer must not touch the trials of another batch."""
    cells = {batch.trial_key(cell): cell for cell in batch.cells}
    place = (batch.arm, kind, batch.block)
    guests = {guest.guest_id for guest in answer.guests}
    seen = set()
    for trial in (packed.record for packed in answer.trials):
        cell = cells.get(trial.key)
        fits = (
            cell is not None
            and (trial.arm, trial.platform, trial.block) == place
            and (trial.suite, trial.probe, trial.factors) == (cell.suite, cell.probe, dict(cell.factors))
            and trial.attempt >= 1
            and (trial.key, trial.attempt) not in seen
            and (trial.guest_id is None or trial.guest_id in guests)
        )
        if not fits:
            raise ForeignMessageError(f"the answer holds a trial that was not asked for: {trial.key[:200]!r}")
        seen.add((trial.key, trial.attempt))
    for guest in answer.guests:
        if (guest.arm, guest.platform, guest.block) != place:
            raise ForeignMessageError(f"the answer holds a guest of another batch: {guest.arm[:40]!r}")


class Coordinator:
    """One execution of a fleet's run, from wherever its ledger stands to the end.

    The hosts are those of the manifest that were taken on by the enrolment; of a resumed run some may be missing.
    """

    def __init__(
        self, plan: Plan, design: Design, ledger: Ledger, hosts: Sequence[HostRecord], enrolment: HostEnrolment
    ) -> None:
        self._plan, self._design = plan, design
        self._fleet, self._ledger, self._enrolment = enrolment.fleet, ledger, enrolment
        self._cluster, self._display = enrolment.cluster, enrolment.display
        manifest = ledger.manifest()
        self._arms = {arm.name: arm for arm in manifest.arms}
        self._plan_text, self._token = manifest.plan_text, enrolment.token
        self._hosts = hosts
        self._batches = {host.name: list(placed_batches(plan, design, host, self._arms)) for host in manifest.hosts}
        self._settings = {host.name: host for host in self._fleet.hosts}
        self._workers = [host.worker for host in self._fleet.hosts]
        self._slots = Slots(self._settings)
        self._merger = Merger(ledger)
        self._progress = BatchProgress(plan.attempts, ledger.attempts())
        everything = [placed for batches in self._batches.values() for placed in batches]
        self._total = sum(len(placed.batch.cells) for placed in everything)
        self._done = sum(self._progress.done(placed) for placed in everything)
        self._left = {name: sum(map(self._is_open, batches)) for name, batches in self._batches.items()}
        self._absent = len(manifest.hosts) - len(hosts)
        self._seconds: defaultdict[str, list[float]] = defaultdict(list)

    async def execute(self) -> bool:
        """Measure what is missing, and record the run's course; True when nothing remains.
        Raises LedgerWriteError: a result could not be recorded; asyncio.CancelledError: interrupted; the batches under
        way were stopped, all merged trials are kept.
        """
        try:
            complete = await self._run()
        except BaseException as error:
            by_signal = isinstance(error, asyncio.CancelledError)
            await self._break_off(*((INTERRUPTED, "by a signal") if by_signal else (INCOMPLETE, "")))
            raise
        if not complete:
            await self._break_off(INCOMPLETE, "")
            return False
        try:
            for words in await self._cluster.leave(self._token, self._workers):
                self._tell("remark", words)
        except WorkerLostError as error:
            text = f"workers keep what they measured until `virtgauge clean --fleets` there: {error.message}"
            self._display.notice(text, warning=False)
        finally:
            self._ledger.add_event(COMPLETED, "")
        return True

    async def _break_off(self, kind: str, detail: str) -> None:
        """Record how the run ends, and end what is still under way: nobody waits for it."""
        try:
            self._ledger.add_event(kind, detail)
        finally:
            await self._stop(self._workers)

    async def _stop(self, workers: Sequence[str]) -> None:
        with contextlib.suppress(WorkerLostError):
            await self._cluster.stop(self._token, workers)

    async def _run(self) -> bool:
        started = time.monotonic()
        self._ledger.add_event(SCHEDULED, f"{self._total} trials")
        self._display.show(RunStarted(self._ledger.folder.name, self._total, self._done))
        complete = False
        try:
            await self._drive_all(self._batches)
            complete = await self._repeat_until_decided(started) and self._done == self._total
        finally:
            self._display.show(RunEnded.of(complete, self._ledger.attempts(), time.monotonic() - started))
        return complete

    async def _drive_all(self, batches: Mapping[str, Sequence[Placed]]) -> None:
        """Every host through what is left of its batches, side by side."""
        drives = [asyncio.create_task(self._drive(host, batches[host.name])) for host in self._hosts]
        try:
            await asyncio.gather(*drives)
        finally:
            for drive in drives:
                drive.cancel()
            await asyncio.gather(*drives, return_exceptions=True)

    async def _repeat_until_decided(self, started: float) -> bool:
        """Add repetitions on every host of what open requirements need, within the plan's budget.

        None is added where a host is set aside or absent: its figures would be missing; then it is False.
        """
        budget, requirements = self._plan.budget, self._design.requirements
        if budget is None:
            return True
        newest = max((trial.block % BLOCKS_PER_HOST for trial in self._ledger.attempts()), default=0)
        first = max(self._plan.repetitions, newest)
        for repetition in range(first, budget.repetitions):
            if self._done < self._total:
                return False
            left = undecided(requirements, self._ledger)
            if not left:
                text = f"every requirement is decided after {repetition} repetitions on each host"
                self._display.notice(text, warning=False)
                return True
            said, still_open = said_open(left, {}), [one for one in left if one.open]
            if not still_open:
                self._display.notice(f"{said}: no further repetition would decide the rest")
                return True
            if budget.minutes is not None and time.monotonic() - started > 60 * budget.minutes:
                self._display.notice(f"the budget of {budget.minutes:g} minutes is spent: {said}")
                return True
            if self._absent:
                self._display.notice(f"{said}: nothing is added while a host is set aside")
                return False
            if repetition == first:
                text = f"{said}: repetitions {repetition + 1} to at most {budget.repetitions} follow on each host"
                self._display.notice(text, warning=False)
            needed = needed_for(still_open, requirements, self._ledger.manifest().arms)
            added = {
                host.name: [*placed_batches(self._plan, self._design, host, self._arms, [repetition], needed)]
                for host in self._hosts
            }
            for name, batches in added.items():
                self._left[name] += sum(map(self._is_open, batches))
                self._total += sum(len(placed.batch.cells) for placed in batches)
                self._done += sum(map(self._progress.done, batches))
            self._ledger.add_event(SCHEDULED, f"{self._total} trials")
            await self._drive_all(added)
        if self._done == self._total and (left := undecided(requirements, self._ledger)):
            self._display.notice(f"the budget of {budget.repetitions} repetitions is spent: {said_open(left, {})}")
        return True

    def _is_open(self, placed: Placed) -> bool:
        return self._progress.done(placed) < len(placed.batch.cells)

    async def _drive(self, host: HostRecord, batches: Sequence[Placed]) -> None:
        """A host through batches, until it has to be set aside: nothing more is measured on it in this execution."""
        for placed in batches:
            if not self._is_open(placed):
                continue
            async with self._slots.claim(*placed.slots):
                try:
                    await self._measure(host, placed)
                except LedgerWriteError:
                    raise
                except VirtgaugeError as error:
                    left = f"{self._left[host.name]} batches to do"
                    self._tell("host-set-aside", f"host {host.name} is set aside with {left}: {error.message}")
                    await self._stop([self._settings[host.name].worker])  # while it cannot be another's tester
                    return

    async def _measure(self, host: HostRecord, placed: Placed) -> None:
        batch, began = placed.batch, time.monotonic()
        repetition = batch.block - host.first_block
        self._display.show(GuestStarting(f"{batch.arm} on {host.name}", repetition))
        answer = await self._answer(host, placed)
        for words in answer.notices:
            self._display.notice(f"host {host.name}: {words}")
        new = self._merger.merge(batch, answer)
        self._seconds[host.name].append(time.monotonic() - began)
        done = [self._progress.add(trial.key, trial.attempt, trial.status) for trial in new]
        self._left[host.name] -= not self._is_open(placed)
        remaining_s = self._remaining_s()
        for trial, more in zip(new, done, strict=True):
            self._done += more
            self._display.show(TrialEnded.of(trial, self._done, self._total, remaining_s))

    async def _answer(self, record: HostRecord, placed: Placed) -> BatchAnswer:
        """A batch's answer from this host and no other, however often somebody has to come back for it."""
        host, losses = self._settings[record.name], 0
        assignment, returned = None, False
        while True:
            try:
                assignment = assignment or await self._assignment(record, placed)
                answer = await self._enrolment.ask(host, assignment, BatchAnswer)
            except WorkerLostError as error:
                losses, returned = await self._return_of(host, losses, error), True
                continue  # with the same assignment: what is under way, or has ended, is not measured again
            assignment = None
            if isinstance(answer, BatchAnswer):
                return answer
            if answer.tester_lost:
                if not returned:  # else its tester has ended in its absence
                    losses = self._lost(losses, answer.message)
                returned = False
                self._tell("tester-lost", f"host {host.name}: {answer.message}; its batch goes on")
            elif answer.busy:
                self._tell("host-busy", f"host {host.name}: {answer.message}")
                await self._enrolment.enrol(host)
            else:
                raise UnavailableError(answer.message, answer.remedy)

    async def _return_of(self, host: FleetHost, losses: int, error: WorkerLostError) -> int:
        """Wait until a worker is back after it, or the scheduler, was lost; its losses in this batch until now."""
        if isinstance(error, SchedulerLostError):
            self._tell("scheduler-lost", f"host {host.name}: {error.message}; its batch goes on")
            await self._enrolment.rejoined(host)
            return losses
        losses = self._lost(losses, error.message)
        self._tell("worker-lost", f"host {host.name}: {error.message}; its batch goes on when it is back")
        await self._enrolment.rejoined(host)
        self._tell("worker-back", f"host {host.name}: its worker is back", warning=False)
        return losses

    async def _assignment(self, record: HostRecord, placed: Placed) -> Assignment:
        return Assignment(
            token=self._token,
            first_block=record.first_block,
            plan_text=self._plan_text,
            arms=record.arms,
            block=placed.batch.block,
            testbed=placed.batch.testbed,
            arm=placed.batch.arm,
            keys=tuple(placed.batch.trial_key(cell) for cell in placed.batch.cells),
            known=self._progress.of(placed),
            tester=None if placed.pair is None else await self._tester(placed.pair),
        )

    async def _tester(self, pair: FleetPair) -> Tester:
        """Have the pair's tester be launched whenever the guests' host asks for it; the slots of both are claimed."""
        host, losses = self._settings[pair.tester], 0
        while True:
            try:
                answer = await self._enrolment.ask(host, Assistance(self._token), Assisting)
            except WorkerLostError as error:
                losses = await self._return_of(host, losses, error)
                continue
            if isinstance(answer, Assisting):
                cables = tuple((cable.guests, cable.tester) for cable in pair.cables)
                return Tester(host.name, answer.address, answer.port, answer.secret, answer.cpus, cables)
            if not answer.busy:
                raise UnavailableError(f"the tester's host {host.name!r}: {answer.message}", answer.remedy)
            await self._enrolment.enrol(host)

    def _lost(self, losses: int, message: str) -> int:
        if losses == self._fleet.losses:
            raise UnavailableError(f"{message} {losses + 1} times in one batch")
        return losses + 1

    def _tell(self, kind: str, text: str, *, warning: bool = True) -> None:
        self._ledger.add_event(kind, text)
        self._display.notice(text, warning=warning)

    def _remaining_s(self) -> float | None:
        """Of the slowest host, if batches go on taking what they took; hosts work side by side."""
        expected = []
        for host in self._hosts:
            left, taken = self._left[host.name], self._seconds[host.name]
            if left and not taken:
                return None
            expected.append(left * sum(taken) / len(taken) if taken else 0.0)
        return max(expected, default=None)
