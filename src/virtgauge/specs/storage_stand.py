"""What of a run stands for the servers of van der Veen et al. 2012, and for each cell of their Tables IV and V.

The paper's physical server is this run's reference; its virtual one a virtual machine, one with hardware
virtualization before an emulated one, then the one with most of the paper's databases, and a container only for want of
either.

A server that is there already stands for its product where it is shown to be on the arm's machine: in reading with
whatever settings, in writing at the level that these amount to.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from virtgauge.claims.figures import AS_IS
from virtgauge.ledger.records import ArmRecord
from virtgauge.reference import StorageFigure
from virtgauge.results.columns import Cell
from virtgauge.specs import storage_insights as insights
from virtgauge.specs.context import Context
from virtgauge.specs.storage_formatting import AS_CONFIGURED, LEVELS, PAPER_LEVELS, USUAL, WRITES
from virtgauge.specs.storage_insights import rates

MOST_CLIENTS = 16  # Of the paper's; what its tables call many clients
ON_ONE_DISK = {**USUAL, "commit_log": ("same",)}
Use = Literal["replay", "server", "servers"]
"""What a result is for: to stand beside the paper's figure, whose virtual machine may have acknowledged flushes early;
to be compared within its server; or with the other server's, a server that was there already with another such."""


def stands(
    arms: Sequence[ArmRecord], databases: Callable[[ArmRecord], int] = lambda arm: 0
) -> dict[str, tuple[ArmRecord, str]]:
    """What stands for ``physical`` and ``virtual``, where this run has something, and what is to be known of it.

    ``databases`` says how many of the paper's an arm has.
    """
    usable = [arm for arm in arms if arm.usable and arm.role != "aa"]
    references = [arm for arm in usable if arm.role == "reference"][:1]
    hosts = [*(arm for arm in references if arm.is_bare), *(arm for arm in usable if arm.kind == "host")]
    physical = next(iter([*hosts, *references]), None)
    found = {} if physical is None else {"physical": (physical, "")}
    others = [arm for arm in usable if arm is not physical]
    processor = "" if physical is None else physical.processor
    virtual = [arm for arm in others if arm.is_virtual]
    if virtual:
        best = min(virtual, key=lambda arm: (arm.emulated, arm.processor != processor, -databases(arm)))
        found["virtual"] = best, "of a processor simulated in software" if best.emulated else ""
    elif others:
        found["virtual"] = others[0], "of a container, for want of a virtual machine"
    return found


class Stand:
    """Finds the result of a run that stands for a cell of the paper."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._title = context.spec.factor("database").text
        self._plain = context.where({**ON_ONE_DISK, "write_mode": ("default", "values")})
        self.arms = stands(context.all_arms, self._databases)
        counts = {insights.clients_of(context, cell) for cell in self._plain}
        self.many = max((number for number in counts if 1 < number <= MOST_CLIENTS), default=None)
        """How many clients stand for the paper's many; None where no more than one was measured."""

    @functools.cached_property
    def deciding(self) -> set[str]:
        """Servers of the paper for which something stands that decides; a container is no virtual machine."""
        usable = {server: arm for server, (arm, _) in self.arms.items() if not arm.emulated}
        return {server for server, arm in usable.items() if server == "physical" or arm.is_virtual}

    def cell(self, paper: StorageFigure, level: str | None = None, use: Use = "replay") -> Cell | None:
        """The result for a cell, at the paper's level or at a given one; None where there is none.

        A read finds the same rows whatever the level, so one at any level will do.  A long statement is preferred where
        there is one: it is what the paper wrote PostgreSQL's many values with.
        """
        if paper.server not in self.arms:
            return None
        context, arm = self._context, self.arms[paper.server][0].name
        wanted, any_level = level or PAPER_LEVELS[paper.database], paper.operation == "read" and level is None
        of_operation = [
            cell
            for cell in self._plain
            if context.level(cell, "operation") == paper.name
            and self.is_of(cell, arm, paper.database, "" if any_level else wanted)
            and rates(context, cell, arm)
        ]
        existing = {cell: bool(self.existing(cell, arm)) for cell in of_operation}
        by_existing = False
        if use == "server":  # what it does with more clients is compared with what the same server does with one
            counts = {(there, insights.clients_of(context, cell)) for cell, there in existing.items()}
            by_existing = 2 * sum(there for there, _ in counts) > len(counts)
            of_operation = [cell for cell in of_operation if existing[cell] is by_existing]
        elif use == "servers" and paper.server == "physical" and "virtual" in self.deciding:
            virtual = self.cell(paper.model_copy(update={"server": "virtual"}), level, use)
            by_existing = virtual is not None and bool(self.existing(virtual, self.arms["virtual"][0].name))
        clients = self.many if paper.many_clients else 1
        return min(
            (cell for cell in of_operation if insights.clients_of(context, cell) == clients),
            key=lambda cell: (
                use != "replay" and existing[cell] is not by_existing,
                context.level(cell, "durability") != wanted,
                context.level(cell, "write_mode") != "values",
                _device_rank(context.level(cell, "flushes"), use, paper.server),
            ),
            default=None,
        )

    def existing(self, cell: Cell, arm: str) -> Mapping[str, Any]:
        """What a result tells of a server that was there already; empty of any other, and of what was not measured."""
        if self._context.level(cell, "durability") != AS_CONFIGURED:
            return {}
        told = [*self._context.table.details(cell, arm, (("existing",),), _known).values()]
        return told[-1] if told else {}

    def is_of(self, cell: Cell, arm: str, database: str, level: str = "") -> bool:
        """Whether a cell is of a database, and at a level where one is asked for."""
        own, at = self._context.text(cell, "database"), self._context.level(cell, "durability")
        if at == AS_CONFIGURED:
            told = self.existing(cell, arm)
            own = "" if not told or told["elsewhere"] else self._title(told["database"])
            at = told.get("level") or ""
        return own == database and level in ("", at)

    def passed_over(self, server: str, database: str, operation: str, level: str | None = None) -> str:
        """Why a server that was there already does not stand for cells of the paper; empty where none was there.

        Databases and operations are those that the texts name, and any where they are empty.
        """
        context, arm = self._context, self.arms[server][0].name
        for cell in self._plain:
            if not (told := self.existing(cell, arm)):
                continue
            name, of, own = context.text(cell, "database"), self._title(told["database"]), told["level"]
            doing = context.level(cell, "operation")
            if of not in (database or of) or doing not in (operation or doing):
                continue
            if told["elsewhere"]:
                return f", but of {name}, which is not shown to be on that machine ({told['elsewhere']})"
            if doing in WRITES and own != (level or PAPER_LEVELS.get(of)):
                at = f"the level “{own}”" if own else "a level that its settings do not tell"
                return f", but of {name}, which writes at {at}"
        return ""

    def _databases(self, arm: ArmRecord) -> int:
        """How many of the paper's were measured on an arm."""
        measured = [cell for cell in self._plain if rates(self._context, cell, arm.name)]
        return sum(any(self.is_of(cell, arm.name, database) for cell in measured) for database in PAPER_LEVELS)

    @functools.cached_property
    def of_one_processor(self) -> set[str]:
        """Servers of the paper for which something stands that can serve one client at a time only."""
        found = set()
        for server, (arm, _) in self.arms.items():
            measured = next((cell for cell in self._plain if rates(self._context, cell, arm.name)), None)
            if measured is not None and insights.server_cpus(self._context, measured, arm.name) == 1:
                found.add(server)
        return found

    def equal_levels(self) -> Iterator[str]:
        """Levels at which all of the paper's databases were measured writing, the strongest first."""
        writing = [cell for cell in self._plain if self._context.level(cell, "operation") in WRITES]
        places = [(cell, arm.name) for cell in writing for arm, _ in self.arms.values()]
        for level in reversed(LEVELS):
            if all(any(self.is_of(*place, database, level) for place in places) for database in PAPER_LEVELS):
                yield level

    def missing_reason(self, paper: StorageFigure) -> str:
        """Why this run has nothing for a cell."""
        if paper.server not in self.arms:
            return "This run has no platform other than the reference."
        if paper.many_clients and self.many is None:
            return "This run has one client only."
        context, level = self._context, PAPER_LEVELS[paper.database]
        arm = self.arms[paper.server][0].name
        for cell in context.cells:
            meant = (context.text(cell, "database"), context.level(cell, "operation")) == (paper.database, paper.name)
            here = context.level(cell, "durability") == level and context.table.tried(cell, arm)
            if meant and here and not rates(context, cell, arm):
                return f"No valid figure: {context.table.endings.ending(cell, arm).rstrip('.')}."
        at = f" at the paper’s level ({level})" if paper.operation == "write" else ""
        return f"Not measured: {paper.database}{at}{self.passed_over(paper.server, paper.database, paper.name)}."


def _known(existing: Mapping[str, Any] | None) -> Mapping[str, Any]:
    return existing or {}


def _device_rank(profile: str, use: Use, server: str) -> tuple[int, str]:
    order = ["rotational", "rotational-seek", AS_IS, "latency", "at-once"]
    kind = profile.partition(":")[0]
    place = order.index(kind) if kind in order else len(order)
    if use == "servers" and kind == AS_IS:
        place = -1
    return (-place if use == "replay" and server == "virtual" else place), profile
