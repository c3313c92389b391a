"""The report's tables as rows ready to be shown, in the page and in the terminal alike."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from virtgauge.analysis.comparison import Comparison, Judgement
from virtgauge.analysis.estimate import Estimate
from virtgauge.report.headlines import Highlight, highlights
from virtgauge.report.model import ArmSummary, Cell, PublishedRow, Report, Series, TrialLine
from virtgauge.report.words import duration, load_label, probe_meaning, probe_title

MOST_SPOILT_TRIALS = 200
"""Of those that do not count, at most so many stand in the page's markup; all are in its table of trials."""


@dataclasses.dataclass(frozen=True)
class GlanceCell:
    """One arm's figure in the table at a glance: absolute, and against the reference."""

    median: Estimate
    comparison: Comparison | None
    missing: str | None

    @property
    def kind(self) -> str:
        """``higher``, ``lower``, ``inconclusive``, or ``none`` where there is nothing to compare."""
        return "none" if self.comparison is None else self.comparison.judgement.value


@dataclasses.dataclass(frozen=True)
class GlanceRow:
    """One platform; None where a cell is not part of its design."""

    arm: ArmSummary
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
    rows: tuple[tuple[ArmSummary, Series], ...]


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
    arm: ArmSummary
    what: str
    ours: Series


def shown_arms(report: Report) -> list[ArmSummary]:
    """Arms with trials: the reference, its A/A, then by the plan, emulated ones last (they are never ranked)."""
    rank = {"reference": 0, "aa": 1}
    used = [arm for arm in report.arms if arm.trials]
    return sorted(used, key=lambda arm: (arm.record.emulated, rank.get(arm.record.role, 2)))


def glance(report: Report) -> Glance:
    """The table at a glance; without rows when nothing was measured."""
    columns = tuple(highlights(report.cells))
    rows = tuple(
        GlanceRow(arm, tuple(_glance_cell(column.cell.of(arm.record.name)) for column in columns))
        for arm in shown_arms(report)
    )
    return Glance(columns, rows if columns else ())


def _glance_cell(series: Series | None) -> GlanceCell | None:
    if series is None:
        return None
    return GlanceCell(series.statistics["p50"], series.comparisons.get("p50"), series.missing)


def detail(report: Report) -> list[DetailGroup]:
    """Every cell's table, by probe."""
    arms = shown_arms(report)
    groups: dict[str, list[DetailTable]] = {}
    for cell in report.cells:
        rows = tuple((arm, series) for arm in arms if (series := cell.of(arm.record.name)) is not None)
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


def published(report: Report) -> list[PublishedLine]:
    """Published figures beside ours."""
    lines = []
    for row in report.published:
        cell = report.cells[row.cell]
        series = cell.of(row.arm)
        if series is not None:
            what = f"{cell.function} · {load_label(cell.load)}"
            lines.append(PublishedLine(row, report.arm(row.arm), what, series))
    return lines


def spoilt_trials(report: Report) -> list[TrialLine]:
    """The first of the trials that do not count."""
    return [trial for trial in report.trials if trial.status != "valid"][:MOST_SPOILT_TRIALS]


def trial_columns(report: Report) -> dict[str, Any]:
    """All trials by columns; repeated texts once, referred to by number."""
    texts: dict[str, int] = {}

    def number(text: str) -> int:
        return texts.setdefault(text, len(texts))

    columns: dict[str, list[Any]] = {
        name: [] for name in ("id", "what", "arm", "block", "attempt", "status", "samples", "median", "foreign", "note")
    }
    names = [f"{probe_title(cell.probe)}: {cell.function} · {load_label(cell.load)}" for cell in report.cells]
    for trial in report.trials:
        columns["id"].append(trial.trial_id)
        columns["what"].append(number(names[trial.cell]))
        columns["arm"].append(number(trial.arm))
        columns["block"].append(trial.block)
        columns["attempt"].append(trial.attempt)
        columns["status"].append(number(trial.status))
        columns["samples"].append(trial.samples)
        columns["median"].append(None if trial.median_ns is None else float(f"{trial.median_ns:.4g}"))
        columns["foreign"].append(None if trial.foreign_share is None else round(trial.foreign_share, 4))
        columns["note"].append(number(note_of(trial)))
    return {"texts": list(texts), "columns": columns}


def note_of(trial: TrialLine) -> str:
    """Error and flags of a trial in one line."""
    return "; ".join([*([trial.error] if trial.error else []), *trial.flags])


def verdict_class(comparison: Comparison | None, emulated: bool) -> str:
    """How a comparison is to be coloured: never as better or worse when emulated."""
    if comparison is None or emulated or comparison.judgement is Judgement.INCONCLUSIVE:
        return "plain"
    return "worse" if comparison.judgement is Judgement.HIGHER else "better"


def flattened(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Nested facts as rows ``cpu model → …``; what is unknown is left out."""
    return list(_flatten(facts, ""))


def _flatten(value: Any, prefix: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flatten(inner, f"{prefix} {key}".strip())
    elif isinstance(value, list | tuple) and all(not isinstance(inner, Mapping | list | tuple) for inner in value):
        yield prefix, " ".join(str(inner) for inner in value)
    elif isinstance(value, list | tuple):
        for place, inner in enumerate(value):
            yield from _flatten(inner, f"{prefix} {place}")
    elif isinstance(value, bool):
        yield prefix, "yes" if value else "no"
    elif value is not None:
        yield prefix, str(value)
