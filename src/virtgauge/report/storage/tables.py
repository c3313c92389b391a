"""The storage suite's tables as rows ready to be shown, in the page and in the terminal alike."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from virtgauge.ledger.records import ArmRecord
from virtgauge.report.storage.model import (
    Cell,
    DurabilityRow,
    DurabilityShare,
    Key,
    Latency,
    ReplayedCell,
    Series,
    StorageFindings,
)
from virtgauge.report.storage.vocabulary import (
    KNEE,
    LEVELS,
    MIXED,
    OPERATION_WORDS,
    PLAIN,
    SHORT_LEVELS,
    clients_words,
    database_title,
    level_words,
    rate,
    short_device,
)
from virtgauge.report.words import exact_duration

Place = tuple[str, str]
"""A level of durability and a flush profile: within it, databases are compared and ranked."""


@dataclasses.dataclass(frozen=True)
class GlanceRow:
    """One database on one platform: its series in the order of the table's columns; None where it was not tried."""

    database: str
    version: str
    arm: ArmRecord
    first: bool
    platforms: int
    cells: tuple[Series | None, ...]


@dataclasses.dataclass(frozen=True)
class GlanceTable:
    """One level: databases and platforms × operations and numbers of clients."""

    title: str
    columns: tuple[tuple[str, int], ...]
    rows: tuple[GlanceRow, ...]

    @property
    def groups(self) -> list[tuple[str, list[int]]]:
        """Operations, and the numbers of clients that each has a column for."""
        groups: dict[str, list[int]] = {}
        for operation, clients in self.columns:
            groups.setdefault(operation, []).append(clients)
        return [(OPERATION_WORDS[operation], clients) for operation, clients in groups.items()]


@dataclasses.dataclass(frozen=True)
class DetailTable:
    """Every cell of one operation at one level; the first series of a cell is marked."""

    title: str
    rows: tuple[tuple[bool, Cell, ArmRecord, Series], ...]


@dataclasses.dataclass(frozen=True)
class LatencyRow:
    """Percentiles of one stream of one cell on one platform."""

    what: str
    arm: ArmRecord
    measure: str
    stream: str
    latency: Latency


def places_of(cells: Iterable[Cell]) -> list[Place]:
    """Levels and flush profiles, the strongest level first."""
    found = dict.fromkeys((cell.key.durability, cell.key.flushes) for cell in cells)
    order = [*reversed(LEVELS), *(level for level, _ in found)]
    return sorted(found, key=lambda place: order.index(place[0]))


def usual_cells(found: StorageFindings) -> list[Cell]:
    """Cells of the paper's kind."""
    return [cell for cell in found.cells if cell.key.operation in PLAIN and cell.key.usual]


def glance(found: StorageFindings, arms: Sequence[ArmRecord]) -> list[GlanceTable]:
    """A table for each level and flush profile, the strongest first; of several clients the fewest and the most."""
    tables = []
    cells = usual_cells(found)
    for place in places_of(cells):
        own = {cell.key: cell for cell in cells if (cell.key.durability, cell.key.flushes) == place}
        columns = []
        for operation in PLAIN:
            clients = sorted({key.clients for key in own if key.operation == operation})
            columns += [(operation, number) for number in dict.fromkeys((*clients[:1], *clients[-1:]))]
        rows: list[GlanceRow] = []
        for database in dict.fromkeys(key.database for key in own):
            placed = {(key.operation, key.clients): cell for key, cell in own.items() if key.database == database}
            if not any(_measured(cell) for cell in placed.values()):
                continue  # named once, with the reason, under what was not measured
            shown = [arm for arm in arms if any(cell.of(arm.name) for cell in placed.values())]
            for number, arm in enumerate(shown):
                series = tuple(placed[column].of(arm.name) if column in placed else None for column in columns)
                version = next((one.version for one in series if one and one.version), "")
                rows.append(GlanceRow(database_title(database), version, arm, number == 0, len(shown), series))
        tables.append(GlanceTable(level_words(*place), tuple(columns), tuple(rows)))
    return [table for table in tables if table.rows]


def _measured(cell: Cell) -> bool:
    return any(series.missing is None for series in cell.series)


def _unsupported(cell: Cell) -> bool:
    return all((series.missing or "").startswith("unsupported") for series in cell.series)


def detail(found: StorageFindings, arms: Sequence[ArmRecord]) -> list[DetailTable]:
    """Every cell that has a rate, by operation and level."""
    groups: dict[tuple[str, Place], list[Cell]] = {}
    for cell in found.cells:
        if cell.key.operation in PLAIN and cell.key.closed and (_measured(cell) or not _unsupported(cell)):
            groups.setdefault((cell.key.operation, (cell.key.durability, cell.key.flushes)), []).append(cell)
    tables = []
    for (operation, place), cells in groups.items():
        rows = []
        for cell in cells:
            own = [(arm, series) for arm in arms if (series := cell.of(arm.name)) is not None]
            rows += [(number == 0, cell, arm, series) for number, (arm, series) in enumerate(own)]
        tables.append(DetailTable(f"{OPERATION_WORDS[operation]}: {level_words(*place)}", tuple(rows)))
    return tables


def what_of(key: Key) -> str:
    """``PostgreSQL, 1 client, without index``: a cell within a table of one operation and level."""
    said = [database_title(key.database), clients_words(key.clients)]
    said += ["without index"] * (not key.index)
    if key.offered_per_s is not None:
        said.append(f"{rate(key.offered_per_s)} offered")
    return ", ".join(said + ([key.write_mode] if key.write_mode != "default" else []))


def open_rows(found: StorageFindings, arms: Sequence[ArmRecord]) -> list[LatencyRow]:
    """Every open loop, from sending and from the intended start."""
    rows: list[LatencyRow] = []
    for cell in found.cells:
        if cell.key.operation in PLAIN and cell.key.offered_per_s is not None:
            level = SHORT_LEVELS.get(cell.key.durability, cell.key.durability)
            what = f"{what_of(cell.key)}, {level}{short_device(cell.key.flushes)}"
            rows += _latencies(cell, what, arms, OPERATION_WORDS[cell.key.operation])
    return rows


def _latencies(cell: Cell, what: str, arms: Sequence[ArmRecord], stream: str = "") -> Iterator[LatencyRow]:
    for arm in arms:
        series = cell.of(arm.name)
        if series is None:
            continue
        for name in series.service:
            for measure, streams in (("service", series.service), ("response", series.response)):
                if name in streams:
                    yield LatencyRow(what, arm, measure, stream or f"{name}s", streams[name])


def mixed_rows(found: StorageFindings, arms: Sequence[ArmRecord]) -> list[LatencyRow]:
    """Writes and reads of every mixed load, from sending and from the intended start."""
    rows: list[LatencyRow] = []
    for cell in found.cells:
        if cell.key.operation != MIXED:
            continue
        what = f"{database_title(cell.key.database)}: {level_words(cell.key.durability, cell.key.flushes)}"
        rows += _latencies(cell, what, arms)
    return rows


def knee_rows(found: StorageFindings, arms: Sequence[ArmRecord]) -> list[tuple[Key, ArmRecord, Series]]:
    """Every knee on every platform."""
    return [
        (cell.key, arm, series)
        for cell in found.cells
        if cell.key.operation == KNEE
        for arm in arms
        if (series := cell.of(arm.name)) is not None
    ]


def objective(series: Series) -> str:
    """``20 ms``; a dash where none is recorded."""
    return "–" if series.objective_ns.point is None else exact_duration(series.objective_ns.point)


def durability_by_arm(
    found: StorageFindings, arms: Sequence[ArmRecord]
) -> list[tuple[ArmRecord, list[tuple[bool, DurabilityRow]]]]:
    """The levels of every database, platform by platform; the first of a database is marked."""
    tables = []
    for arm in arms:
        rows = [row for row in found.durability if row.arm == arm.name]
        firsts = [number == 0 or rows[number - 1].database != row.database for number, row in enumerate(rows)]
        if rows:
            tables.append((arm, list(zip(firsts, rows, strict=True))))
    return tables


def first_ranking(found: StorageFindings) -> list[DurabilityShare]:
    """How much of the ranking is durability, on the first platform where it can be told."""
    first = next((one.arm for one in found.ranking), "")
    return [one for one in found.ranking if one.arm == first]


def limits_of(cells: Iterable[ReplayedCell]) -> str:
    """``12 flush-bound, 8 round-trip-bound``."""
    counts = Counter(cell.limit for cell in cells if cell.limit)
    return ", ".join(f"{number} {limit}" for limit, number in counts.most_common())
