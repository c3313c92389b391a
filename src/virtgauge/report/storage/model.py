"""What the storage suite's report says, as data.

Rates are in operations per second of all clients together, of statements with many values in rows per second; durations
in nanoseconds.  A cell is one operation of one database at one level of durability; a series is one arm's repetitions.
"""

from __future__ import annotations

import dataclasses

from virtgauge.analysis.comparison import Comparison
from virtgauge.analysis.estimate import Estimate
from virtgauge.analysis.storage.limits import Explanation
from virtgauge.report.headline import Headline
from virtgauge.report.storage.vocabulary import MULTI_READ, MULTI_WRITE, WRITES, unit_of
from virtgauge.report.verdicts import ExaminedClaim, Verdict


@dataclasses.dataclass(frozen=True)
class Key:
    """What a result is of, whatever its arm and block.

    Attributes:
        operation: ``single-write`` …, ``mixed``, ``knee``, ``crash``.
        of: whose knee it is, or what was ended (``server``, ``machine``); else empty.
        values: readings in a statement.
        loop: ``closed``, ``open:RATE``; ``search`` of a knee, ``mixed`` of a mixed load.
    """

    operation: str
    of: str
    database: str
    durability: str
    flushes: str
    clients: int
    values: int
    index: bool
    loop: str
    write_mode: str

    @property
    def many_values(self) -> bool:
        """Whether a statement has many values, so that rows are counted."""
        return self.operation in (MULTI_WRITE, MULTI_READ)

    @property
    def writes(self) -> bool:
        """Whether it writes alone."""
        return self.operation in WRITES

    @property
    def unit(self) -> str:
        """What its rate counts."""
        return unit_of(self.operation)

    @property
    def closed(self) -> bool:
        """Whether each client waits for its answer."""
        return self.loop == "closed"

    @property
    def usual(self) -> bool:
        """Whether it is a closed loop, with index, written in the database's usual way."""
        return self.closed and self.index and self.write_mode == "default"

    @property
    def concatenated(self) -> bool:
        """Whether it is that, but written as the paper wrote to PostgreSQL: by one long statement."""
        return self.closed and self.index and self.write_mode == "values"

    @property
    def offered_per_s(self) -> float | None:
        """Of an open loop, operations intended per second."""
        return float(self.loop.partition(":")[2]) if self.loop.startswith("open:") else None


@dataclasses.dataclass(frozen=True)
class Latency:
    """Percentiles over repetitions; one that a repetition has too few operations for is missing."""

    p50: Estimate
    p99: Estimate
    p999: Estimate
    maximum: Estimate


@dataclasses.dataclass(frozen=True)
class Curve:
    """P(X > x) of all repetitions' service times together, in columns."""

    values_ns: tuple[float, ...]
    shares: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class Step:
    """One rate that a knee's search offered, and the p99 of the response there."""

    offered_per_s: float
    p99_ns: float
    met: bool


@dataclasses.dataclass(frozen=True)
class Series:
    """One arm's repetitions in one cell.

    Attributes:
        arm: its name.
        blocks: repetitions with a valid result.
        rate: of the cell's unit.
        comparison: of the rate with the reference's; None for the reference itself, or without figures.
        rank: among the databases at the same level and otherwise alike, from 1; None where nothing is ranked.
        service: from sending to the answer, by stream (empty name: the only one); ``response`` from the intended start.
        curve: of the service times of a closed loop.
        server_cpu_ns, client_cpu_ns: for each operation.
        flushes_per_operation: counted.
        client_limit_per_s: of the client against a server that stores nothing, in operations.
        disk_before_per_s, disk_after_per_s: flushes of the disk alone.
        client_limited: results that lie near the client's own limit.
        explanation: of the rate; None without one.
        reasons: the explanation in words.
        knee_per_s, objective_ns: of a knee; ``steps`` are what its searches offered.
        settings: of the level, as recorded.
        version: of the database.
        flags: how many trials, valid or not, have each flag.
        missing: why there is no figure; None when there is one.
    """

    arm: str
    blocks: tuple[int, ...]
    rate: Estimate
    comparison: Comparison | None
    rank: int | None
    service: dict[str, Latency]
    response: dict[str, Latency]
    curve: Curve | None
    server_cpu_ns: Estimate
    client_cpu_ns: Estimate
    flushes_per_operation: Estimate
    client_limit_per_s: Estimate
    disk_before_per_s: Estimate
    disk_after_per_s: Estimate
    client_limited: int
    explanation: Explanation | None
    reasons: tuple[str, ...]
    knee_per_s: Estimate
    objective_ns: Estimate
    steps: tuple[Step, ...]
    settings: dict[str, str]
    version: str
    flags: dict[str, int]
    missing: str | None


@dataclasses.dataclass(frozen=True)
class Cell:
    """One operation of one database at one level, with every arm's series in the plan's order."""

    key: Key
    series: tuple[Series, ...]

    def of(self, arm: str) -> Series | None:
        """An arm's series; None when the arm was not tried in this cell."""
        return next((series for series in self.series if series.arm == arm), None)


@dataclasses.dataclass(frozen=True)
class CrashFigures:
    """What a kill -9 in the midst of writes left, over all repetitions.

    Attributes:
        crashes: valid audits.
        acknowledged, missing, wrong: rows.
        newest_lost_ns: largest age, at the kill, of an acknowledged row that was lost; None where none was or it is
            not known.
        reason: why there is no audit; empty when there is one.
    """

    crashes: int
    acknowledged: int
    missing: int
    wrong: int
    newest_lost_ns: float | None
    reason: str


@dataclasses.dataclass(frozen=True)
class DurabilityRow:
    """One level of one database on one arm.

    Attributes:
        operation: of the rates: single writes by one client, where those were measured.
        mean_flush_ns: what one flush took while those were measured.
        rate: at the level, and ``price``: its ratio to the rate at the next weaker level that was measured.
        below: that level; empty for the weakest.
        server, machine: what was left when the server, or the machine, was ended.
    """

    arm: str
    database: str
    durability: str
    flushes: str
    operation: str
    settings: dict[str, str]
    flushes_per_operation: Estimate
    mean_flush_ns: Estimate
    server: CrashFigures
    machine: CrashFigures
    rate: Estimate
    below: str
    price: Estimate


@dataclasses.dataclass(frozen=True)
class SpreadLevel:
    """How far databases lie apart at one level.

    Attributes:
        durability: the level; ``mixed`` for each database's own.
        levels: level by database.
        fastest, slowest: databases.
        spread: rate of the fastest over that of the slowest, by repetition.
        share: of the mixed levels' spread that this level takes away (of its logarithm); None for the mixed ones.
    """

    durability: str
    levels: dict[str, str]
    fastest: str
    slowest: str
    spread: Estimate
    share: float | None


@dataclasses.dataclass(frozen=True)
class DurabilityShare:
    """How much of the paper's ranking is durability, on one arm: single writes of one client.

    Attributes:
        mixed: each database at the level that the paper had it at.
        equal: the same databases at equal levels.
        sentence: in words.
    """

    arm: str
    flushes: str
    mixed: SpreadLevel
    equal: tuple[SpreadLevel, ...]
    sentence: str


@dataclasses.dataclass(frozen=True)
class PaperCell:
    """A figure of the paper's Table IV or V, in operations (of many values: rows) per second."""

    database: str
    server: str
    values: int
    operation: str
    many_clients: bool
    per_s: float

    @property
    def name(self) -> str:
        """Our name of the operation: ``multi-read``."""
        return f"{'single' if self.values == 1 else 'multi'}-{self.operation}"


@dataclasses.dataclass(frozen=True)
class ReplayedCell:
    """A cell of the paper's tables and ours beside it.

    Attributes:
        arm, key: what ours was measured on and as; None where nothing was.
        rate: ours.
        ratio: ours over the paper's.
        explained: sentences, computed from what was counted.
        limit: of ours.
    """

    paper: PaperCell
    arm: str | None
    key: Key | None
    rate: Estimate
    ratio: Estimate
    limit: str
    explained: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class NotMeasured:
    """A database or a level that gave no figure, once for all that share the reason."""

    database: str
    durability: str
    arms: tuple[str, ...]
    reason: str


@dataclasses.dataclass(frozen=True)
class StorageClaim:
    """A conclusion of the paper, on its own tables and on this run.

    Attributes:
        paper: tested on Tables IV and V.
        run: on this run, each database at the level that the paper had it at.
        equal: on this run, all databases at one level; None for conclusions that are not about databases' order.
        level: that level.
    """

    paper: ExaminedClaim
    run: ExaminedClaim
    equal: ExaminedClaim | None
    level: str

    @property
    def overall(self) -> Verdict:
        """Of this run: at the paper's levels."""
        return self.run.verdict


@dataclasses.dataclass(frozen=True)
class StorageFindings:
    """Everything that a run's storage suite says."""

    headlines: tuple[Headline, ...]
    cells: tuple[Cell, ...]
    durability: tuple[DurabilityRow, ...]
    ranking: tuple[DurabilityShare, ...]
    replay: tuple[ReplayedCell, ...]
    not_measured: tuple[NotMeasured, ...]
    paper_claims: tuple[StorageClaim, ...]
    citation: str
    flags: dict[str, dict[str, int]]
