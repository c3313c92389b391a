"""Which sessions a host is measured with, and which of them need two hosts at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from virtgauge.errors import UsageError
from virtgauge.execution.prepare import Design
from virtgauge.ledger.records import ArmRecord, HostRecord
from virtgauge.plan.fleet import FleetPair, FleetSection
from virtgauge.plan.model import Plan
from virtgauge.plan.schedule import Session, schedule_block
from virtgauge.suites.base import Cell


@dataclasses.dataclass(frozen=True)
class Placed:
    """A session and where it takes place.

    Attributes:
        host: that the session is measured on, and whose trials it brings.
        tester: the other host whose slot it needs; None where it needs none.
    """

    session: Session[Cell]
    host: str
    tester: str | None = None

    @property
    def slots(self) -> tuple[str, ...]:
        """The hosts that must be free."""
        return (self.host,) if self.tester is None else (self.host, self.tester)


def placed_sessions(plan: Plan, design: Design, host: HostRecord, arms: Mapping[str, ArmRecord]) -> Iterator[Placed]:
    """All sessions of a host, in order: its blocks are numbered apart from every other host's."""
    assert plan.seed is not None
    pairs = plan.fleet.pair if plan.fleet is not None else ()
    for repetition in range(plan.repetitions):
        sessions = schedule_block(
            plan.seed,
            host.first_block + repetition,
            host.arms,
            design.cells,
            lambda cell, arm: design.is_for(cell, arms[arm]),
        )
        for session in sessions:
            yield Placed(session, host.name, _tester(session, host.name, pairs))


def _tester(session: Session[Cell], host: str, pairs: Sequence[FleetPair]) -> str | None:
    suite = session.cells[0].suite
    return next((pair.tester for pair in pairs if (pair.suite, pair.guests) == (suite, host)), None)


def refuse_pairs(fleet: FleetSection, source: str) -> None:
    """Refuse suites across hosts: their testers can be placed, and do not exist yet.

    Raises:
        UsageError: the plan has such a pair.
    """
    if fleet.pair:
        pair = fleet.pair[0]
        raise UsageError(
            f"{source}: fleet.pair: suite.{pair.suite} with its tester on {pair.tester!r} and its guests on "
            f"{pair.guests!r} cannot be measured: both slots would be claimed together, but the suite's laboratory is "
            "made of namespaces of one machine",
            "leave the pair out: each host is then measured with its own tester; `virtgauge bandwidth listen` and "
            "`estimate` measure the path between two hosts",
        )
