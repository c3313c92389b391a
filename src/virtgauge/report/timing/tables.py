"""The timing suite's tables as rows ready to be shown, in the page and in the terminal alike."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from virtgauge.analysis.comparison import Comparison
from virtgauge.analysis.estimate import Estimate
from virtgauge.ledger.records import ArmRecord
from virtgauge.report.timing.headlines import Highlight, highlights
from virtgauge.report.timing.model import Cell, PublishedRow, Series, TimingFindings
from virtgauge.report.words import duration, load_label, probe_meaning, probe_title


@dataclasses.dataclass(frozen=True)
class GlanceCell:
    """One arm's figure in the table at a glance: absolute, and against the reference."""

    median: Estimate
    comparison: Comparison | None
    missing: str | None


@dataclasses.dataclass(frozen=True)
class GlanceRow:
    """One platform; None where a cell is not part of its design."""

    arm: ArmRecord
    cells: tuple[GlanceCell | None, ...]


@dataclasses.dataclass(frozen=True)
class Glance:
    """The table at a glance: platforms × the few cells of a first look."""

    columns: tuple[Highlight, ...]
    rows: tuple[GlanceRow, ...]


@dataclasses.dataclass(frozen=True)
class DetailTable:
    """All statistics of one cell."""

    title: str
    cell: Cell
    rows: tuple[tuple[ArmRecord, Series], ...]


@dataclasses.dataclass(frozen=True)
class DetailGroup:
    """The tables of one probe."""

    probe: str
    title: str
    meaning: str
    tables: tuple[DetailTable, ...]


@dataclasses.dataclass(frozen=True)
class PublishedLine:
    """A published figure and ours."""

    row: PublishedRow
    arm: ArmRecord
    what: str
    ours: Series


def glance(found: TimingFindings, arms: Sequence[ArmRecord]) -> Glance:
    """The table at a glance; without rows when nothing was measured."""
    columns = tuple(highlights(found.cells))
    rows = tuple(GlanceRow(arm, tuple(_glance_cell(column.cell.of(arm.name)) for column in columns)) for arm in arms)
    return Glance(columns, rows if columns else ())


def _glance_cell(series: Series | None) -> GlanceCell | None:
    if series is None:
        return None
    return GlanceCell(series.statistics["p50"], series.comparisons.get("p50"), series.missing)


def detail(found: TimingFindings, arms: Sequence[ArmRecord]) -> list[DetailGroup]:
    """Every cell's table, by probe."""
    groups: dict[str, list[DetailTable]] = {}
    for cell in found.cells:
        rows = tuple((arm, series) for arm in arms if (series := cell.of(arm.name)) is not None)
        title = f"{cell.function} · {load_label(cell.load)}" if cell.load else cell.function
        groups.setdefault(cell.probe, []).append(DetailTable(title, cell, rows))
    return [
        DetailGroup(probe, probe_title(probe), probe_meaning(probe), tuple(tables)) for probe, tables in groups.items()
    ]


def aside(series: Series) -> str:
    """What a probe said of its own measuring, in one line: method, the clock's resolution, CPU time of a sleep."""
    said = [f"method {method}" for method in series.methods]
    for name, text in (("resolution", "resolution"), ("overhead", "overhead taken off"), ("cpu_per_sleep", "CPU")):
        estimate = series.scalars.get(name)
        if estimate is not None and estimate.point:
            said.append(f"{text} {duration(estimate.point)}" + (" a sleep" if name == "cpu_per_sleep" else ""))
    return " · ".join(said)


def published(found: TimingFindings, arms: Sequence[ArmRecord]) -> list[PublishedLine]:
    """Published figures beside ours."""
    by_name = {arm.name: arm for arm in arms}
    lines = []
    for row in found.published:
        cell = found.cells[row.cell]
        series = cell.of(row.arm)
        if series is not None:
            what = f"{cell.function} · {load_label(cell.load)}"
            lines.append(PublishedLine(row, by_name[row.arm], what, series))
    return lines
