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
        if measure == "rate_by_flushes":
            return f"{cells.get('database')} was not measured with a rotational flush profile and a quicker one"
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
    arm, nominal = stand.arms[paper.server][0].name, context.table.confidence
    known = stand.cell(paper, level if paper.operation == "write" else None)
    if known is not None:
        clients = "many clients" if paper.many_clients else "1 client"
        values = rates(context, known, arm)
        yield Figure("rate", {**levels, "clients": clients}, measured(values, "op/s", nominal), values)
    if paper.many_clients:
        return

    def same(cell: Cell, name: str) -> bool:
        return known is not None and context.level(cell, name) == context.level(known, name)

    for cell in _plain(context, paper, arm):
        values = rates(context, cell, arm)
        estimate = measured(values, "op/s", nominal)
        usual = same(cell, "durability") and same(cell, "flushes")
        index, count = context.level(cell, "index") == "yes", context.level(cell, "clients") or "1"
        if usual and index:
            yield Figure("rate_by_clients", {**levels, "count": float(count)}, estimate, values)
        if usual and count == "1":
            yield Figure("rate_by_index", {**levels, "index": index}, estimate, values)
    for name, cell in _by_flushes(context, paper, arm).items():
        values = rates(context, cell, arm)
        yield Figure("rate_by_flushes", {**levels, "flushes": name}, measured(values, "op/s", nominal), values)


def _plain(context: Context, paper: PaperCell, arm: str) -> list[Cell]:
    """Closed-loop results of a cell's database, operation and server, whatever their clients."""
    plain = context.where({"operation": (paper.name,), "loop": CLOSED, "write_mode": ("default",)})
    return [cell for cell in plain if context.words(cell, "database") == paper.database and rates(context, cell, arm)]


def _by_flushes(context: Context, paper: PaperCell, arm: str) -> dict[str, Cell]:
    """One client's results that flush before each acknowledgement: on a turning disk, and on the quickest other."""
    where = {"index": ("yes",), "clients": ("1", ""), "durability": ("flushed",)}
    own = [cell for cell in _plain(context, paper, arm) if context.fits(cell, where)]
    cells = {context.level(cell, "flushes"): cell for cell in own}
    slow = next((name for name in cells if name.startswith("rotational")), None)
    quick = next((name for name in ("at-once", *cells) if name in cells and not name.startswith("rotational")), None)
    return {words: cells[name] for words, name in (("rotational", slow), ("quick", quick)) if name is not None}
