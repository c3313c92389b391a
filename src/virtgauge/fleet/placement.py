"""Which batches a host is measured with, and which of them need two hosts at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from virtgauge.execution.prepare import Design
from virtgauge.ledger.records import ArmRecord, HostRecord
from virtgauge.plan.fleet import FleetPair
from virtgauge.plan.model import Plan
from virtgauge.plan.schedule import Batch, schedule_block
from virtgauge.suites.base import Cell


@dataclasses.dataclass(frozen=True)
class Placed:
    """A batch and where it takes place.

    Attributes:
        host: that the batch is measured on, and whose trials it brings.
        pair: of the plan, that says which other host its tester is on; None where that is this one.
    """

    batch: Batch[Cell]
    host: str
    pair: FleetPair | None = None

    @property
    def slots(self) -> tuple[str, ...]:
        """The hosts that must be free."""
        return (self.host,) if self.pair is None else (self.host, self.pair.tester)


def placed_batches(plan: Plan, design: Design, host: HostRecord, arms: Mapping[str, ArmRecord]) -> Iterator[Placed]:
    """All batches of a host, in order: its blocks are numbered apart from every other host's."""
    assert plan.seed is not None
    pairs = plan.fleet.pair if plan.fleet is not None else ()
    for repetition in range(plan.repetitions):
        batches = schedule_block(
            plan.seed,
            host.first_block + repetition,
            host.arms,
            design.cells,
            lambda cell, arm: design.is_for(cell, arms[arm]),
        )
        for batch in batches:
            yield Placed(batch, host.name, _pair(batch, host.name, pairs))


def _pair(batch: Batch[Cell], host: str, pairs: Sequence[FleetPair]) -> FleetPair | None:
    suite = batch.cells[0].suite
    return next((pair for pair in pairs if (pair.suite, pair.guests) == (suite, host)), None)
