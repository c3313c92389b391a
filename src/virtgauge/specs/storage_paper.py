"""Tables IV and V of van der Veen et al. 2012 beside what of a run stands for their cells, and its claims.

The paper had its disk turn at 7200 rpm under the physical server and supposes that the virtual machine monitor
cached: so beside its tables a rotational flush profile stands for the first and one that is quicker for the second,
where a run has them.  Its conclusions on one server are tested on the rotational one, wherever it is known, those on
two servers on the disk as it is: of these no writes decide that waited for disks of the run's making, whether these
differ or not, for they would be what decides.

A server of one processor decides nothing about many clients: it has nowhere to serve a second one.
"""

from __future__ import annotations

import dataclasses
import functools
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from virtgauge.analysis.estimate import Estimate
from virtgauge.analysis.resources import Explanation, Limit, durability_share, flush_limit_per_s, spread
from virtgauge.claims.figures import AS_IS, LIMITED, Figure, Figures
from virtgauge.claims.model import Cells, Level, claim_file
from virtgauge.claims.papers import check_claims
from virtgauge.claims.verdicts import ClaimCheck
from virtgauge.ledger.records import ArmRecord
from virtgauge.reference import StorageFigure, storage_figures, table
from virtgauge.results.columns import Cell
from virtgauge.results.formatting import ratio_with_interval, share
from virtgauge.results.quantities import OPERATION_RATE, RATIO, ROW_RATE, SHARE, significant
from virtgauge.results.table import Blocks
from virtgauge.specs import storage_formatting as labels
from virtgauge.specs import storage_insights as insights
from virtgauge.specs.blocks import Block, Column, Finding, Row, Shown, Text, Value, table_of
from virtgauge.specs.context import Context
from virtgauge.specs.storage_formatting import AS_CONFIGURED, LEVELS, PAPER_LEVELS, SHORT_LEVELS, SINGLE_WRITE
from virtgauge.specs.storage_insights import per_second, rates
from virtgauge.specs.storage_stand import MOST_CLIENTS, ON_ONE_DISK, Stand, Use

NOTE = (
    "All 48 figures of van der Veen et al. 2012, measured on other hardware and software, with this run’s at the "
    "levels of durability that the paper’s defaults had (PostgreSQL flushed, Cassandra periodic, MongoDB "
    "unacknowledged), and what explains each, reckoned from what was counted: flushes, CPU time, round trips, the "
    "client’s own limit. The paper’s server had 24 cores of 2.2 GHz and a disk of 7200 rpm, its client Java 6 and a "
    "network of 1 Gb/s. Nothing is tuned to its figures."
)
_PAPER_DISK = "rotational:7200"
_LIKE = 1.25  # Rates within this factor of each other are called the same (ours)
_PER_TURN = 20.0
"""Single writes that one turn of the disk may bring, up to which a flushing database's figure is set against it."""
_SERVERS = {"physical": "physical server", "virtual": "virtual machine"}
_SHAPES = {"physical": "M-1,-1L1,1M-1,1L1,-1", "virtual": "diamond"}


def replay(context: Context) -> Iterator[Block]:
    """All 48 cells, in the paper's order; those without a figure of ours say why."""
    stand = Stand(context)
    columns: tuple[Column | str, ...] = (
        *("paper", "this run", "ratio"),
        *(Column(name, text=True) for name in ("measured as", "limit", "what explains it")),
    )
    titles = {1: "Table IV: single operations per second", 1000: "Table V: rows per second, 1,000 to a statement"}
    replayed: list[Value] = []
    for values, title in titles.items():
        rows = []
        for paper in (one for one in storage_figures() if one.values == values):
            shown = tuple(_replayed(context, stand, paper))
            replayed += [one for one in shown[2:3] if isinstance(one, Value) and one.estimate.point is not None]
            heads = paper.database, paper.server, f"{paper.operation}, {paper.clients}"
            rows.append(Row(heads, "", shown))
        yield from table_of(title, ("Database", "Server", "Operation"), columns, rows)
    if replayed:
        points = [one.estimate.point for one in replayed if one.estimate.point is not None]
        told = f"{significant(min(points))} to {significant(max(points))}× the paper’s"
        yield Text((f"{len(points)} of 48 cells replayed, {told}. {table('storage_ops').source.citation}",))


def _replayed(context: Context, stand: Stand, paper: StorageFigure) -> Iterator[Shown]:
    """The paper's figure, ours, their ratio, what ours was measured as, and what explains them."""
    quantity = OPERATION_RATE if paper.values == 1 else ROW_RATE
    cell = stand.cell(paper)
    if cell is None:
        yield Value.count("replay", context.place("*", "", "paper", paper=paper.text), paper.per_s, quantity)
        yield from (None, None, None, None, " ".join((stand.missing_reason(paper), *_of_the_paper(paper))))
        return
    arm, why = stand.arms[paper.server]
    own = context.estimate(insights.rate_measure(context, cell), cell, arm.name)
    ratio = own.mapped(lambda per_s: per_s / paper.per_s, "ratio")
    place = context.place(cell, arm.name, "paper", paper=paper.text)
    yield Value.count("replay", place, paper.per_s, quantity)
    yield context.of("replay.rate", place, own, quantity)
    yield context.of("replay.ratio", place, ratio, RATIO)
    yield ", ".join((arm.label, context.text(cell, "clients"), context.text(cell, "durability")))
    found = insights.explained(context, cell, arm.name)
    said = insights.reasons(context, cell, *found) if found else []
    said += [*_of_the_paper(paper), *_difference(paper, context.level(cell, "flushes"), found, ratio.point, why)]
    yield Finding("replay.limit", place, found[1].limit.value) if found else None
    yield " ".join(said)


def _of_the_paper(paper: StorageFigure) -> Iterator[str]:
    """What the paper's own figure says, from its disk's turns and its kind of acknowledgement."""
    if paper.operation == "read":
        return
    level = PAPER_LEVELS[paper.database]
    if level == "flushed":
        turns = flush_limit_per_s(_PAPER_DISK, None)
        assert turns is not None
        per_turn = paper.per_s / paper.values / turns
        told = f"The paper’s {per_second(paper.per_s)} are {significant(per_turn)} statements to a turn of its disk"
        if paper.server == "virtual" and not paper.many_clients and per_turn > _LIKE:
            told += ", more than one client can have flushed: its virtual machine acknowledged flushes early"
        elif not paper.many_clients and per_turn > 1 / _LIKE:
            told += ": it waited for one each time"
        elif paper.many_clients and _LIKE < per_turn < _PER_TURN:
            told += ": group commit"
        yield f"{told}."
    elif level == "none":
        yield "The paper’s is of sending as well: its client did not wait for an answer."


def _difference(
    paper: StorageFigure, flushes: str, found: tuple[Any, Explanation] | None, ratio: float | None, stand: str
) -> Iterator[str]:
    """Why ours differs from the paper's, or not."""
    if ratio is None:
        return
    by_flushes = found is not None and found[1].limit is Limit.FLUSHES
    if 1 / _LIKE <= ratio <= _LIKE:
        device = "The limit is the device’s, so the rate is the same on any hardware."
        yield device if by_flushes else "About the paper’s figure."
    elif stand:
        yield f"This run’s is {stand}, so its factor says little of virtual machines."
    elif by_flushes and flushes != _PAPER_DISK and paper.server == "physical":
        yield f"Another device than the paper’s makes the factor of {significant(ratio)}."
    else:
        beside = "the hardware and software of 2012 against this machine’s"
        yield f"What remains, a factor of {significant(ratio)}, is {beside}."


class SpreadLevel(NamedTuple):
    """How far databases lie apart at one level."""

    level: str  # of all; ``mixed`` for each database's own
    levels: dict[str, str]  # level by database
    fastest: str
    slowest: str
    spread: Estimate  # rate of the fastest over that of the slowest, formed within each repetition
    # of the mixed levels' spread that this level takes away (of its logarithm); None for the mixed ones
    share: float | None

    @property
    def text(self) -> str:
        """``PostgreSQL flushed, MongoDB none``."""
        return ", ".join(f"{name} {SHORT_LEVELS[level]}" for name, level in self.levels.items())


def ranking(context: Context) -> Iterator[tuple[ArmRecord, str, list[SpreadLevel]]]:
    """How much of the paper's ranking is durability, for every arm and flush profile where it can be told.

    The mixed levels come first.  An emulated processor ranks nothing, and so explains no ranking.
    """
    single = {**ON_ONE_DISK, "operation": (SINGLE_WRITE,), "clients": ("1", "")}
    for arm in (one for one in context.own_arms if not one.emulated):
        cells = [cell for cell in context.where(single) if rates(context, cell, arm.name)]
        for (flushes,), group in context.groups(cells, ("flushes",)).items():
            placed = {
                (context.text(cell, "database"), context.level(cell, "durability")): rates(context, cell, arm.name)
                for cell in group
            }
            mixture = {name: level for name, level in PAPER_LEVELS.items() if (name, level) in placed}
            if len(mixture) < 2:
                continue
            all_levels = {"mixed": mixture} | {level: dict.fromkeys(mixture, level) for level in reversed(LEVELS)}
            found: list[SpreadLevel] = []
            for level, levels in all_levels.items():
                if all(place in placed for place in levels.items()):
                    own = {name: placed[name, its] for name, its in levels.items()}
                    found.append(_spread(context, level, levels, own, found[0].spread.point if found else None))
            yield arm, flushes, found


def _spread(
    context: Context, level: str, levels: dict[str, str], own: Mapping[str, Blocks], mixed: float | None
) -> SpreadLevel:
    """The spread is formed within each repetition, so that what its databases have in common cancels."""
    by_block = ([one[block] for one in own.values()] for block in sorted(set.intersection(*map(set, own.values()))))
    found = context.median((spread(rates) for rates in by_block if min(rates) > 0), RATIO)
    middles = {name: statistics.median(one.values()) for name, one in own.items()}
    taken = None if mixed is None or found.point is None else durability_share(mixed, found.point)
    fastest, slowest = (choose(middles, key=middles.__getitem__) for choose in (max, min))
    return SpreadLevel(level, levels, fastest, slowest, found, taken)


def first_ranking(context: Context) -> Iterator[Block]:
    """The share of durability in the ranking, on the first platform where it can be told."""
    told = list(ranking(context))
    if told:
        first = told[0][0]
        own = (_sentence(flushes, found) for arm, flushes, found in told if arm is first)
        label = f"{first.label}, single writes of one client"
        yield Text(tuple(f"{sentence} ({label})" for sentence in own), "Durability", "finding")


def _sentence(flushes: str, levels: Sequence[SpreadLevel]) -> str:
    """How much of the ranking is durability, at the strongest level that all have in common."""
    mixed, *equal = levels
    own = ", ".join(filter(None, (mixed.text, labels.flush_text(flushes))))
    text = (
        f"At the paper’s levels ({own}) {mixed.fastest} stores {ratio_with_interval(mixed.spread)} as many single "
        f"values a second as {mixed.slowest}"
    )
    if not equal:
        return f"{text}; they have no common level here, so the share of durability in the difference is unknown."
    text += f"; all {SHORT_LEVELS[equal[0].level]}, the spread is {ratio_with_interval(equal[0].spread)}"
    taken = equal[0].share
    return text + (f": durability is {share(taken)} of that ranking." if taken is not None else ".")


def ranking_shares(context: Context) -> Iterator[Block]:
    """How far apart the fastest and the slowest database are on every platform, level by level."""
    rows = []
    for arm, flushes, found in ranking(context):
        for one in found:
            place = context.place(f"*;flushes={flushes};durability={one.level}", arm.name)
            named = f"as in the paper: {one.text}" if one.level == "mixed" else f"all {SHORT_LEVELS[one.level]}"
            shown = (
                Finding("durability_share.fastest", place, one.fastest),
                Finding("durability_share.slowest", place, one.slowest),
                context.of("durability_share.spread", place, one.spread, RATIO),
                Value.count("durability_share.share", place, one.share and 100 * one.share, SHARE),
            )
            rows.append(Row((insights.on_device(named, flushes),), arm.name, shown))
    columns = (Column("fastest", text=True), Column("slowest", text=True), "fastest ÷ slowest")
    yield from table_of(
        "How much of the databases’ ranking is durability",
        ("Levels",),
        (*columns, "durability’s share of the mixed ranking"),
        rows,
        "Single writes of one client: the fastest database over the slowest, each at the level that the paper had "
        "it at, then all at one level. The share is of the logarithm, for rates differ by factors.",
    )


def published_dots(context: Context, cells: list[Cell]) -> Iterator[dict[str, Any]]:
    """The paper's figures of one client, in the band of each database."""
    names = list(dict.fromkeys(context.text(cell, "database") for cell in cells))
    for paper, mark in _published(context, cells):
        if not paper.many_clients:
            yield mark | {"x": paper.per_s, "category": paper.database, "place": names.index(paper.database)}


def published_lines(context: Context, cells: list[Cell]) -> Iterator[dict[str, Any]]:
    """The paper's figures of one client and of many."""
    for paper, mark in _published(context, cells):
        yield mark | {"x": MOST_CLIENTS if paper.many_clients else 1, "y": paper.per_s, "name": ""}


def _published(context: Context, cells: list[Cell]) -> Iterator[tuple[StorageFigure, dict[str, Any]]]:
    """Those that belong beside some cells, with their marks: writes at the paper's level, reads at any."""
    levels = {(context.text(cell, "database"), context.level(cell, "operation")): cell for cell in cells}
    for paper in storage_figures():
        cell = levels.get((paper.database, paper.name))
        at_level = cell is not None and context.level(cell, "durability") == PAPER_LEVELS[paper.database]
        if at_level or (cell is not None and paper.operation == "read"):
            told = f"{paper.database}, {paper.server}: {per_second(paper.per_s)}"
            mark = {"kind": "published", "arm": "paper", "shape": _SHAPES[paper.server], "t": told}
            yield paper, mark | {"label": "published", "at": ""}


def claims(context: Context) -> tuple[ClaimCheck, ...]:
    """On all of a run's figures together, and once more with all databases at one level of durability."""
    stand = Stand(context)
    of_cell = functools.cache(functools.partial(_of_cell, context, stand))  # mostly one serves both uses, at any level
    level = next(stand.equal_levels(), None)
    equal = _figures(context, stand, of_cell, level) if level else None
    return check_claims("storage", {"": _figures(context, stand, of_cell, None)}, equal)


def _figures(
    context: Context, stand: Stand, of_cell: Callable[[StorageFigure, Cell | None], list[Figure]], level: str | None
) -> Figures:
    """Writes at a level that all have, or at that which the paper had each at."""

    def missing_reason(measure: str, cells: Cells) -> str:
        server = str(cells.get("server", "physical"))
        if server in stand.arms and stand.arms[server][0].emulated:
            return f"the only {_SERVERS[server]} of this run is {stand.arms[server][0].mark}, which decides nothing"
        if server not in stand.deciding:
            return f"this run has no {_SERVERS[server]} that decides anything"
        if server in stand.of_one_processor and (
            measure == "rate_by_clients" or cells.get("clients") == "many clients"
        ):
            return f"the {_SERVERS[server]} has one processor, which serves one client at a time; vcpus = 2 gives two"
        if measure == "rate_by_clients":
            return "1, 12 and more clients are needed"
        if measure == "rate_by_index":
            return "not measured both with an index and without"
        if cells.get("clients") == "many clients" and stand.many is None:
            return "this run has one client only"
        named = [str(cells[name]) for name in ("database", "operation", "server", "clients") if name in cells]
        database, operation = (str(cells.get(name, "")) for name in ("database", "operation"))
        at = f" at the level “{level or PAPER_LEVELS.get(database)}”" if "write" in operation else ""
        return f"{', '.join(named)} was not measured{at}{stand.passed_over(server, database, operation, level)}"

    asked = [paper for paper in storage_figures() if paper.server in stand.deciding]

    def figures(use: Use) -> Figures:
        known = (stand.cell(paper, level if paper.operation == "write" else None, use) for paper in asked)
        found = [one for place in zip(asked, known, strict=True) for one in of_cell(*place)]
        return Figures(claim_file("storage"), found, context.table.claims_confidence, missing_reason)

    return dataclasses.replace(figures("server"), of_two_arms=figures("servers"))


def _of_cell(context: Context, stand: Stand, paper: StorageFigure, known: Cell | None) -> list[Figure]:
    """What stands for a figure of the paper, where a result does: by itself, over clients, and over indexes."""
    arm = stand.arms[paper.server][0]
    if known is None or (paper.server in stand.of_one_processor and paper.many_clients):
        return []

    def figure(measure: str, cell: Cell, **more: Level) -> Iterator[Figure]:
        levels: dict[str, Level] = {"database": paper.database, "operation": paper.name, "server": paper.server}
        waits = paper.operation == "write" and stand.is_of(cell, arm.name, paper.database, LEVELS[-1])
        disk = context.level(cell, "flushes").replace(AS_CONFIGURED, AS_IS) if waits else ""
        own, limited = functools.partial(rates, context, cell), insights.client_limited(context, cell, arm.name)
        # Beside a server that is there already no null server runs: another's of this run may have told the limit.
        existing = bool(stand.existing(cell, arm.name))
        unknown = existing and not context.values("client_limit", cell, arm.name)
        higher, most = (LIMITED, insights.most(context, cell, arm.name)) if limited or unknown else ("", {})
        told: dict[str, Any] = {"existing": existing, "disk": disk, "may_be_higher": higher, "most": most}
        return context.claim_figure(measure, levels | more, own, arm, **told)

    found = [*figure("rate", known, clients=paper.clients)]
    if paper.many_clients:
        return found
    for cell in context.where({**ON_ONE_DISK, "operation": (paper.name,), "index": ("yes", "no")}):
        alike = ("database", "durability", "flushes")
        if all(context.level(cell, name) == context.level(known, name) for name in alike):
            index, count = context.level(cell, "index") == "yes", context.level(cell, "clients") or "1"
            if index and not (paper.server in stand.of_one_processor and count != "1"):
                found += figure("rate_by_clients", cell, count=float(count))
            if count == "1":
                found += figure("rate_by_index", cell, index=index)
    return found
