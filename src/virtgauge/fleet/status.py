"""How far a fleet's run is: by host, from its ledger alone."""

from __future__ import annotations

import dataclasses

from virtgauge.errors import UsageError
from virtgauge.execution.prepare import check_plan
from virtgauge.fleet.placement import placed_batches
from virtgauge.fleet.progress import Progress
from virtgauge.ledger.records import ONE_MACHINE, EventRecord, HostRecord, TrialStatus
from virtgauge.ledger.store import Ledger
from virtgauge.plan.load import parse_plan

_COURSE = {
    "started": "under way, or ended without a word",
    "resumed": "under way, or ended without a word",
    "interrupted": "interrupted; `virtgauge fleet resume` goes on",
    "ended incomplete": "ended incomplete; `virtgauge fleet resume` goes on",
    "completed": "complete",
}
_OF_HOSTS = ("worker-lost", "worker-back", "tester-lost", "host-busy", "host-set-aside", ONE_MACHINE)


@dataclasses.dataclass(frozen=True)
class HostStanding:
    """One host.

    Attributes:
        done, total: cells of its batches that need no more, of all.
        last: when the last trial that came from it began; None before the first.
    """

    name: str
    done: int
    total: int
    valid: int
    not_valid: int
    failed_guests: int
    last: str | None


@dataclasses.dataclass(frozen=True)
class FleetStatus:
    """A fleet: its hosts, what happened to them, and the run's course in words."""

    hosts: tuple[HostStanding, ...]
    events: tuple[EventRecord, ...]
    course: str


def fleet_status(ledger: Ledger) -> FleetStatus:
    """As the ledger has it now.

    Raises:
        UsageError: it is the ledger of one host.
    """
    manifest = ledger.manifest()
    if not manifest.hosts:
        raise UsageError(f"{ledger.folder} is the run of one host", "`virtgauge report` shows it")
    plan = parse_plan(manifest.plan_text, f"{ledger.folder}/plan.toml")
    design = check_plan(plan, f"{ledger.folder}/plan.toml")
    arms = {arm.name: arm for arm in manifest.arms}
    progress, trials, guests = Progress.read(ledger, plan.attempts), ledger.trials(), ledger.guests()

    def of(host: HostRecord) -> HostStanding:
        batches = list(placed_batches(plan, design, host, arms))
        own = [trial for trial in trials if host.owns(trial.block)]
        valid = sum(trial.status is TrialStatus.VALID for trial in own)
        return HostStanding(
            name=host.name,
            done=sum(progress.done(placed) for placed in batches),
            total=sum(len(placed.batch.cells) for placed in batches),
            valid=valid,
            not_valid=len(own) - valid,
            failed_guests=sum(guest.error is not None for guest in guests if host.owns(guest.block)),
            last=own[-1].started_at[:19].replace("T", " ") if own else None,
        )

    events = ledger.events()
    course = [event.kind for event in events if event.kind in _COURSE]
    return FleetStatus(
        hosts=tuple(of(host) for host in manifest.hosts),
        events=tuple(event for event in events if event.kind in _OF_HOSTS),
        course=_COURSE[course[-1]] if course else "not begun",
    )
