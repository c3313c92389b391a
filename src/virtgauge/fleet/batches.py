"""The batches of a fleet: on which host each is measured, whose slots it takes, and how far all of them are."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping

from virtgauge.decisions.verdicts import Needed
from virtgauge.errors import UsageError
from virtgauge.execution.prepare import Design, check_plan
from virtgauge.execution.runner import Progress
from virtgauge.execution.schedule import Batch, schedule_block
from virtgauge.ledger.records import (
    COMPLETED,
    INCOMPLETE,
    INTERRUPTED,
    ONE_MACHINE,
    ArmRecord,
    EventRecord,
    HostRecord,
    TrialStatus,
    course_of,
    moment,
)
from virtgauge.ledger.store import Ledger
from virtgauge.plan.fleet import FleetPair
from virtgauge.plan.load import parse_plan
from virtgauge.plan.model import Plan


@dataclasses.dataclass(frozen=True)
class Placed:
    """A batch and where it takes place."""

    batch: Batch
    host: str  # that the batch is measured on, and whose trials it brings
    pair: FleetPair | None = None  # of the plan: which other host its tester is on; None where that is this one

    @property
    def slots(self) -> tuple[str, ...]:
        """The hosts that must be free."""
        return (self.host,) if self.pair is None else (self.host, self.pair.tester)


def placed_batches(
    plan: Plan,
    design: Design,
    host: HostRecord,
    arms: Mapping[str, ArmRecord],
    repetitions: Iterable[int] | None = None,
    needed: Needed = lambda arm, cell: True,
) -> Iterator[Placed]:
    """Batches of a host, in order: its blocks are numbered apart from every other host's.

    Without ``repetitions`` those that the plan always has; of the others what is ``needed``.
    """
    assert plan.seed is not None
    pairs = plan.fleet.pair if plan.fleet is not None else ()
    for repetition in range(plan.repetitions) if repetitions is None else repetitions:
        batches = schedule_block(
            plan.seed,
            host.first_block + repetition,
            host.arms,
            design.cells,
            lambda cell, arm: design.is_for(cell, arms[arm]),
        )
        for batch in batches:  # chosen from what the worker has, too
            cells = tuple(cell for cell in batch.cells if needed(batch.arm, cell.figures_key))
            if cells:
                place = batch.cells[0].suite, host.name
                pair = next((one for one in pairs if (one.suite, one.guests) == place), None)
                yield Placed(dataclasses.replace(batch, cells=cells), host.name, pair)


class Slots:
    """The slots of a fleet's hosts, for the tasks of one event loop."""

    def __init__(self, hosts: Iterable[str]) -> None:
        self._hosts = frozenset(hosts)
        self._claims: list[tuple[frozenset[str], asyncio.Event]] = []
        """In the order in which they came, with what is set when each is over; those that have to wait among them."""

    @contextlib.asynccontextmanager
    async def claim(self, *hosts: str) -> AsyncIterator[None]:
        """Hold the slots of these hosts; waits until all of them are free at once.
        Raises ValueError: no host, or one that the fleet has not.
        """
        wanted = frozenset(hosts)
        if not wanted or not wanted <= self._hosts:
            raise ValueError(f"cannot claim {sorted(wanted - self._hosts) or 'nothing'} of {sorted(self._hosts)}")
        # Also those that wait: nobody must pass by on a slot that somebody before them waits for.
        earlier = [over for claimed, over in self._claims if claimed & wanted]
        claim = (wanted, asyncio.Event())
        self._claims.append(claim)
        try:
            for over in earlier:
                await over.wait()
            yield
        finally:
            self._claims.remove(claim)
            claim[1].set()


class BatchProgress(Progress):
    """What the merged ledger of a fleet says of its batches."""

    def done(self, placed: Placed) -> int:
        """Cells of a batch that need no more."""
        return sum(self.is_done(placed.batch.trial_key(cell)) for cell in placed.batch.cells)

    def of(self, placed: Placed) -> tuple[tuple[str, int, str], ...]:
        """Key, attempt and status of what is known of a batch."""
        keys = [placed.batch.trial_key(cell) for cell in placed.batch.cells]
        return tuple((key, n, status.value) for key in keys for n, status in self.known[key].items())


_COURSE = {
    "": "not begun",
    "started": "under way, or ended without a word",
    "resumed": "under way, or ended without a word",
    INTERRUPTED: "interrupted; `virtgauge fleet resume` goes on",
    INCOMPLETE: "ended incomplete; `virtgauge fleet resume` goes on",
    COMPLETED: "complete",
}
_OF_HOSTS = ("scheduler-lost", "worker-lost", "worker-back", "tester-lost", "host-busy", "host-set-aside", ONE_MACHINE)


@dataclasses.dataclass(frozen=True)
class HostStatus:
    """One host."""

    name: str
    done: int  # cells of its batches that need no more
    total: int  # cells of its batches
    valid: int
    not_valid: int
    failed_guests: int
    last: str | None  # when the last trial that came from it began; None before the first


def fleet_status(ledger: Ledger) -> tuple[list[HostStatus], list[EventRecord], str]:
    """Hosts, what happened to them, and the run's course in words, as the ledger has it now.
    Raises UsageError: it is the ledger of one host.
    """
    manifest = ledger.manifest()
    if not manifest.hosts:
        raise UsageError(f"{ledger.folder} is the run of one host", "`virtgauge report` shows it")
    plan = parse_plan(manifest.plan_text, f"{ledger.folder}/plan.toml")
    design = check_plan(plan, f"{ledger.folder}/plan.toml")
    arms = {arm.name: arm for arm in manifest.arms}
    trials, guests = ledger.attempts(), ledger.guests()
    progress = BatchProgress(plan.attempts, trials)

    def of(host: HostRecord) -> HostStatus:
        batches = list(placed_batches(plan, design, host, arms))
        own = [trial for trial in trials if host.owns(trial.block)]
        valid = sum(trial.status is TrialStatus.VALID for trial in own)
        return HostStatus(
            name=host.name,
            done=sum(progress.done(placed) for placed in batches),
            total=sum(len(placed.batch.cells) for placed in batches),
            valid=valid,
            not_valid=len(own) - valid,
            failed_guests=sum(guest.error is not None for guest in guests if host.owns(guest.block)),
            last=moment(own[-1].started_at) if own else None,
        )

    events = ledger.events()
    told = [event for event in events if event.kind in _OF_HOSTS]
    return [of(host) for host in manifest.hosts], told, _COURSE[course_of(events)]
