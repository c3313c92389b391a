"""The storage suite's part of a report, and its figures in the terms of the paper's claims."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from virtgauge.claims.figures import Figure, Figures, measured
from virtgauge.claims.model import Cells, Level, claim_file
from virtgauge.claims.papers import check_claims
from virtgauge.claims.verdicts import ClaimCheck
from virtgauge.report.spec_report import SpecReport
from virtgauge.results.columns import Cell
from virtgauge.specs.context import Context
from virtgauge.specs.model import SuiteSpec
from virtgauge.specs.storage import STORAGE
from virtgauge.specs.storage_formatting import CLOSED, PAPER_LEVELS
from virtgauge.specs.storage_insights import rates
from virtgauge.specs.storage_paper import PaperCell, Stand, paper_cells

_SERVERS = {"physical": "physical server", "virtual": "virtual machine"}


class StorageReport(SpecReport):
    """How fast each database stores and reads sensor data, at what durability, and what explains it."""

    suite: ClassVar[str] = STORAGE.name
    title: ClassVar[str] = STORAGE.title
    spec: ClassVar[SuiteSpec] = STORAGE

    def hear(self, context: Context) -> tuple[ClaimCheck, ...]:
        stand = Stand(context)
        level = next(stand.equal_levels(), None)
        equal = claim_figures(context, stand, level) if level else None
        return check_claims("storage", {"": claim_figures(context, stand)}, equal)


def claim_figures(context: Context, stand: Stand, level: str | None = None) -> Figures:
    """Of a run.

    Args:
        context: of the suite.
        stand: which results stand for the paper's cells.
        level: at which every database's writes are taken; None takes each at the level that the paper had it at.
    """
    emulated = {server for server, (arm, _) in stand.arms.items() if arm.emulated}
    # A container is no virtual machine: what the paper says of those is not tested on it.
    deciding = {
        server
        for server, (arm, _) in stand.arms.items()
        if server not in emulated and (server == "physical" or arm.kind != "oci")
    }

    def missing_reason(measure: str, cells: Cells) -> str:
        server = str(cells.get("server", "physical"))
        if server in emulated:
            return f"the only {_SERVERS[server]} of this run is emulated, which decides nothing"
        if server not in deciding:
            return f"this run has no {_SERVERS[server]} that decides anything"
        if measure == "rate_by_clients":
            return "1, 12 and more clients are needed"
        if measure == "rate_by_index":
            return "not measured both with an index and without"
        if cells.get("clients") == "many clients" and stand.many is None:
            return "this run has one client only"
        named = [str(cells[name]) for name in ("database", "operation", "server", "clients") if name in cells]
        database = str(cells.get("database"))
        at = f" at the level “{level or PAPER_LEVELS.get(database)}”" if "write" in str(cells.get("operation")) else ""
        return f"{', '.join(named)} was not measured{at}"

    figures = []
    for paper in paper_cells():
        if paper.server in deciding:
            figures += [*_of_cell(context, stand, paper, level)]
    return Figures(claim_file("storage"), figures, context.table.confidence, missing_reason)


def _of_cell(context: Context, stand: Stand, paper: PaperCell, level: str | None) -> Iterator[Figure]:
    levels: dict[str, Level] = {"database": paper.database, "operation": paper.name, "server": paper.server}
    arm, table = stand.arms[paper.server][0].name, context.table

    def figure(measure: str, cell: Cell, **more: Level) -> Figure:
        values, aa, reference = (rates(context, cell, name) for name in (arm, table.aa, table.reference))
        estimate = measured(values, "op/s", table.confidence)
        return Figure(measure, {**levels, **more}, estimate, values, arm=arm, identical=(aa, reference))

    known = stand.cell(paper, level if paper.operation == "write" else None)
    if known is not None:
        clients = "many clients" if paper.many_clients else "1 client"
        yield figure("rate", known, clients=clients)
    if paper.many_clients:
        return

    def same(cell: Cell, name: str) -> bool:
        return known is not None and context.level(cell, name) == context.level(known, name)

    for cell in _plain(context, paper, arm):
        usual = same(cell, "durability") and same(cell, "flushes")
        index, count = context.level(cell, "index") == "yes", context.level(cell, "clients") or "1"
        if usual and index:
            yield figure("rate_by_clients", cell, count=float(count))
        if usual and count == "1":
            yield figure("rate_by_index", cell, index=index)


def _plain(context: Context, paper: PaperCell, arm: str) -> list[Cell]:
    """Closed-loop results of a cell's database, operation and server, whatever their clients."""
    plain = context.where({"operation": (paper.name,), "loop": CLOSED, "write_mode": ("default",)})
    return [cell for cell in plain if context.words(cell, "database") == paper.database and rates(context, cell, arm)]
