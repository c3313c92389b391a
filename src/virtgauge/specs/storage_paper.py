"""Tables IV and V of van der Veen et al. 2012, what of a run stands for each of their cells, and its claims.

The paper's physical server is this run's reference; its virtual one a virtual machine, one with hardware
virtualization before an emulated one, then the one with most of the paper's databases, and a container only for want of
either.  The paper had its disk turn at 7200 rpm under the physical server and supposes that the virtual machine monitor
cached: so beside its tables a rotational flush profile stands for the first and one that is quicker for the second,
where a run has them.  Its conclusions are tested on the rotational one throughout, wherever it is known.  Of the two
servers no writes decide that waited for disks of the run's making, whether these differ or not: they would be what
decides.

A server of one processor decides nothing about many clients: it has nowhere to serve a second one.

A server that is there already stands for its product where it is shown to be on the arm's machine: in reading with
whatever settings, in writing at the level that these amount to.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from virtgauge.analysis.estimate import Estimate
from virtgauge.analysis.storage import Explanation, Limit, durability_share, flush_limit_per_s, spread
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
from virtgauge.specs import storage_formatting as words
from virtgauge.specs import storage_insights as insights
from virtgauge.specs.blocks import Block, Column, Finding, Row, Shown, Text, Value, table_of
from virtgauge.specs.context import Context
from virtgauge.specs.storage_formatting import (
    AS_CONFIGURED,
    LEVELS,
    PAPER_LEVELS,
    SHORT_LEVELS,
    SINGLE_WRITE,
    USUAL,
    WRITES,
)
from virtgauge.specs.storage_insights import per_second, rates

MOST_CLIENTS = 16  # Of the paper's; what its tables call many clients
_ON_ONE_DISK = {**USUAL, "commit_log": ("same",)}
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
        self._plain = context.where({**_ON_ONE_DISK, "write_mode": ("default", "values")})
        self.arms = stands(context.all_arms, self._databases)
        counts = {insights.clients_of(context, cell) for cell in self._plain}
        self.many = max((number for number in counts if 1 < number <= MOST_CLIENTS), default=None)
        """How many clients stand for the paper's many; None where no more than one was measured."""

    def cell(self, paper: StorageFigure, level: str | None = None, *, replayed: bool = True) -> Cell | None:
        """The result for a cell, at the paper's level or at a given one; None where there is none.

        A read finds the same rows whatever the level, so one at any level will do.  A long statement is preferred where
        there is one: it is what the paper wrote PostgreSQL's many values with.  ``replayed``: to stand beside the
        paper's figure, whose virtual machine may have acknowledged flushes early.
        """
        if paper.server not in self.arms:
            return None
        context, arm = self._context, self.arms[paper.server][0].name
        wanted, any_level = level or PAPER_LEVELS[paper.database], paper.operation == "read" and level is None
        fitting = [
            cell
            for cell in self._plain
            if context.level(cell, "operation") == paper.name
            and insights.clients_of(context, cell) == (self.many if paper.many_clients else 1)
            and self.is_of(cell, arm, paper.database, "" if any_level else wanted)
            and rates(context, cell, arm)
        ]
        return min(
            fitting,
            key=lambda cell: (
                context.level(cell, "durability") != wanted,
                context.level(cell, "write_mode") != "values",
                _device_rank(context.level(cell, "flushes"), quick_first=replayed and paper.server == "virtual"),
            ),
            default=None,
        )

    def existing(self, cell: Cell, arm: str) -> Mapping[str, Any]:
        """What a result tells of a server that was there already; empty of any other, and of what was not measured."""
        if self._context.level(cell, "durability") != AS_CONFIGURED:
            return {}
        return self._context.table.last_result(cell, arm).get("existing") or {}

    def is_of(self, cell: Cell, arm: str, database: str, level: str = "") -> bool:
        """Whether a cell is of a database, and at a level where one is asked for."""
        own, at = self._context.words(cell, "database"), self._context.level(cell, "durability")
        if at == AS_CONFIGURED:
            told = self.existing(cell, arm)
            own = "" if not told or told["elsewhere"] else words.DATABASES[told["database"]]
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
            name, of, own = context.words(cell, "database"), words.DATABASES[told["database"]], told["level"]
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
            meant = (context.words(cell, "database"), context.level(cell, "operation")) == (paper.database, paper.name)
            here = context.level(cell, "durability") == level and context.table.tried(cell, arm)
            if meant and here and not rates(context, cell, arm):
                return f"No valid figure: {context.table.endings.ending(cell, arm).rstrip('.')}."
        at = f" at the paper’s level ({level})" if paper.operation == "write" else ""
        return f"Not measured: {paper.database}{at}{self.passed_over(paper.server, paper.database, paper.name)}."


def _device_rank(profile: str, *, quick_first: bool) -> tuple[int, str]:
    order = ["rotational", "rotational-seek", "as-is", "latency", "at-once"]
    kind = profile.partition(":")[0]
    place = order.index(kind) if kind in order else len(order)
    return (-place if quick_first else place), profile


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
    yield ", ".join((arm.label, context.words(cell, "clients"), context.words(cell, "durability")))
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
    def words(self) -> str:
        """``PostgreSQL flushed, MongoDB none``."""
        return ", ".join(f"{name} {SHORT_LEVELS[level]}" for name, level in self.levels.items())


def ranking(context: Context) -> Iterator[tuple[ArmRecord, str, list[SpreadLevel]]]:
    """How much of the paper's ranking is durability, for every arm and flush profile where it can be told.

    The mixed levels come first.  An emulated processor ranks nothing, and so explains no ranking.
    """
    single = {**_ON_ONE_DISK, "operation": (SINGLE_WRITE,), "clients": ("1", "")}
    for arm in (one for one in context.own_arms if not one.emulated):
        cells = [cell for cell in context.where(single) if rates(context, cell, arm.name)]
        for (flushes,), group in context.groups(cells, ("flushes",)).items():
            placed = {
                (context.words(cell, "database"), context.level(cell, "durability")): rates(context, cell, arm.name)
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
    own = ", ".join(filter(None, (mixed.words, words.flush_words(flushes))))
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
            named = f"as in the paper: {one.words}" if one.level == "mixed" else f"all {SHORT_LEVELS[one.level]}"
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
    names = list(dict.fromkeys(context.words(cell, "database") for cell in cells))
    for paper, mark in _published(context, cells):
        if not paper.many_clients:
            yield mark | {"x": paper.per_s, "category": paper.database, "place": names.index(paper.database)}


def published_lines(context: Context, cells: list[Cell]) -> Iterator[dict[str, Any]]:
    """The paper's figures of one client and of many."""
    for paper, mark in _published(context, cells):
        yield mark | {"x": MOST_CLIENTS if paper.many_clients else 1, "y": paper.per_s, "name": ""}


def _published(context: Context, cells: list[Cell]) -> Iterator[tuple[StorageFigure, dict[str, Any]]]:
    """Those that belong beside some cells, with their marks: writes at the paper's level, reads at any."""
    levels = {(context.words(cell, "database"), context.level(cell, "operation")): cell for cell in cells}
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
    level = next(stand.equal_levels(), None)
    equal = _figures(context, stand, level) if level else None
    return check_claims("storage", {"": _figures(context, stand, None)}, equal)


def _figures(context: Context, stand: Stand, level: str | None) -> Figures:
    """Writes at a level that all have, or at that which the paper had each at."""
    # A container is no virtual machine: what the paper says of those is not tested on it.
    deciding = {
        server
        for server, (arm, _) in stand.arms.items()
        if not arm.emulated and (server == "physical" or arm.is_virtual)
    }

    def missing_reason(measure: str, cells: Cells) -> str:
        server = str(cells.get("server", "physical"))
        if server in stand.arms and stand.arms[server][0].emulated:
            return f"the only {_SERVERS[server]} of this run is {stand.arms[server][0].mark}, which decides nothing"
        if server not in deciding:
            return f"this run has no {_SERVERS[server]} that decides anything"
        if server in stand.of_one_processor and (
            measure == "rate_by_clients" or cells.get("clients") == "many clients"
        ):
            return f"the {_SERVERS[server]} has one processor, which serves one client at a time: vcpus = 2"
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

    asked = (paper for paper in storage_figures() if paper.server in deciding)
    figures = [one for paper in asked for one in _of_cell(context, stand, paper, level)]
    return Figures(claim_file("storage"), figures, context.table.claims_confidence, missing_reason)


def _of_cell(context: Context, stand: Stand, paper: StorageFigure, level: str | None) -> Iterator[Figure]:
    arm = stand.arms[paper.server][0]

    known = stand.cell(paper, level if paper.operation == "write" else None, replayed=False)

    def figure(measure: str, cell: Cell, **more: Level) -> Iterator[Figure]:
        levels: dict[str, Level] = {"database": paper.database, "operation": paper.name, "server": paper.server}
        waits = paper.operation == "write" and stand.is_of(cell, arm.name, paper.database, LEVELS[-1])
        disk = context.level(cell, "flushes").replace(AS_CONFIGURED, AS_IS) if waits else ""
        own, limited = functools.partial(rates, context, cell), insights.client_limited(context, cell, arm.name)
        # Beside a server that is there already no null server runs: another's of this run may have told the limit.
        unknown = stand.existing(cell, arm.name) and not context.values("client_limit", cell, arm.name)
        higher = LIMITED if limited or unknown else ""
        return context.claim_figure(measure, levels | more, own, arm, disk=disk, may_be_higher=higher)

    if paper.server in stand.of_one_processor and paper.many_clients:
        return
    if known is not None:
        yield from figure("rate", known, clients=paper.clients)
    if known is None or paper.many_clients:
        return
    for cell in context.where({**_ON_ONE_DISK, "operation": (paper.name,), "index": ("yes", "no")}):
        alike = ("database", "durability", "flushes")
        if all(context.level(cell, name) == context.level(known, name) for name in alike):
            index, count = context.level(cell, "index") == "yes", context.level(cell, "clients") or "1"
            if index and not (paper.server in stand.of_one_processor and count != "1"):
                yield from figure("rate_by_clients", cell, count=float(count))
            if count == "1":
                yield from figure("rate_by_index", cell, index=index)
