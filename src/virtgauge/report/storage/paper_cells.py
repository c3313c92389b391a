"""The cells of the paper's Tables IV and V, and which of this run's results stands for each.

The paper's physical server is this run's reference; its virtual one a virtual machine, one with hardware
virtualization before an emulated one, and a container only for want of either.  The paper had its disk turn at 7200 rpm
under the physical server and supposes that the virtual machine monitor cached: so a rotational flush profile stands for
the first and one that is quicker for the second, where a run has them.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Sequence

from virtgauge.ledger.records import ArmRecord
from virtgauge.reference import table
from virtgauge.report.storage.model import Key, PaperCell
from virtgauge.report.storage.results import Results
from virtgauge.report.storage.vocabulary import LEVELS, PAPER_LEVELS, PLAIN, database_title

MOST_CLIENTS = 16
"""Of the paper's; what its tables call many clients."""


@functools.cache
def paper_cells() -> tuple[PaperCell, ...]:
    """All 48, in the tables' order: Table IV, then Table V."""
    cells = [
        PaperCell(
            database=row["database"],
            server=row["server"],
            values=int(row["values_per_statement"]),
            operation=row["operation"],
            many_clients=row["clients"] == "many",
            per_s=float(row["operations_per_second"]),
        )
        for row in table("storage_ops").rows
    ]
    return tuple(sorted(cells, key=lambda cell: cell.values))


@dataclasses.dataclass(frozen=True)
class Stand:
    """What stands for one of the paper's servers.

    Attributes:
        arm: of ours.
        why: what is to be known of that; empty where it is of the same kind.
    """

    arm: ArmRecord
    why: str


def stands(arms: Sequence[ArmRecord]) -> dict[str, Stand]:
    """For ``physical`` and ``virtual``, where this run has something."""
    usable = [arm for arm in arms if arm.usable and arm.role != "aa"]
    reference = next((arm for arm in usable if arm.role == "reference"), None)
    physical = reference if reference and reference.kind in ("host", "simulated") else None
    physical = physical or next((arm for arm in usable if arm.kind == "host"), reference)
    found = {} if physical is None else {"physical": Stand(physical, "")}
    others = [arm for arm in usable if arm is not physical]
    machines = [arm for arm in others if arm.kind != "oci"]
    virtual = min(machines, key=lambda arm: arm.emulated, default=None)
    if virtual is not None:
        found["virtual"] = Stand(virtual, "of a processor simulated in software" if virtual.emulated else "")
    elif others:
        found["virtual"] = Stand(others[0], "of a container, for want of a virtual machine")
    return found


class Places:
    """Finds the result of this run that stands for a cell of the paper.

    Args:
        results: of the run.
        arms: of the manifest.
    """

    def __init__(self, results: Results, arms: Sequence[ArmRecord]) -> None:
        self._results = results
        self.stands = stands(arms)
        plain = [key for key in results.keys if key.operation in PLAIN and (key.usual or key.concatenated)]
        clients = {key.clients for key in plain if 1 < key.clients <= MOST_CLIENTS}
        self._plain = plain
        self.many = max(clients, default=None)
        """How many clients stand for the paper's many; None where no more than one was measured."""

    def key(self, cell: PaperCell, level: str | None = None) -> Key | None:
        """The result for a cell, at the paper's level or at a given one; None where there is none.

        A read finds the same rows whatever the level, so one at any level will do.  A long statement is preferred where
        there is one: it is what the paper wrote PostgreSQL's many values with.
        """
        stand = self.stands.get(cell.server)
        if stand is None:
            return None
        clients = self.many if cell.many_clients else 1
        wanted = level or PAPER_LEVELS[cell.database]
        fitting = [
            key
            for key in self._plain
            if key.operation == cell.name
            and database_title(key.database) == cell.database
            and key.clients == clients
            and (key.durability == wanted or (cell.operation == "read" and level is None))
            and self._results.rates(key, stand.arm.name)
        ]
        quick_first = cell.server == "virtual"
        return min(
            fitting,
            key=lambda key: (
                key.durability != wanted,
                not key.concatenated,
                _device_rank(key.flushes, quick_first=quick_first),
            ),
            default=None,
        )

    def rates(self, cell: PaperCell, level: str | None = None) -> dict[int, float]:
        """That result, by block; of statements with many values in rows per second, as the paper has it."""
        key, stand = self.key(cell, level), self.stands.get(cell.server)
        return self._results.rates(key, stand.arm.name) if key and stand else {}

    def equal_levels(self) -> Iterator[str]:
        """Levels at which all of the paper's databases were measured writing, the strongest first."""
        for level in reversed(LEVELS):
            having = {database_title(key.database) for key in self._plain if key.writes and key.durability == level}
            if having >= set(PAPER_LEVELS):
                yield level


def _device_rank(profile: str, *, quick_first: bool) -> tuple[int, str]:
    order = ["rotational", "as-is", "latency", "at-once"]
    kind = profile.partition(":")[0]
    place = order.index(kind) if kind in order else len(order)
    return (-place if quick_first else place), profile
