"""Isolation reports of ledgers whose truth is known, and what is looked up in them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from isolation_results import Design, isolation_arms, isolation_ledger
from shown import tables, value

from virtgauge import report
from virtgauge.analysis.estimate import Estimate
from virtgauge.specs.blocks import Chart, Finding, Row, Value
from virtgauge.specs.isolation_formatting import Resource
from virtgauge.specs.isolation_insights import Degree

HOST, AA, RUNC, GVISOR, QEMU = isolation_arms()
MEMORY = "memory-write-integer"


def built(folder: Path, *designs: Design, arms: Any = (HOST, AA, RUNC), **fields: Any) -> report.Report:
    """The report of a run in a folder."""
    return report.build(isolation_ledger(folder / "run", list(arms), designs, **fields))


def shown_at(result: report.Report, arm: str, measure: str, **levels: Any) -> Value:
    """A figure in the one cell that has these levels."""
    return value(result, "isolation", measure, arm, *(f"{factor}={level}" for factor, level in levels.items()))


def at(result: report.Report, arm: str, measure: str, **levels: Any) -> Estimate:
    """The same without what stands beside it."""
    return shown_at(result, arm, measure, **levels).estimate


@dataclasses.dataclass(frozen=True)
class Sentence:
    """What is said of a resource."""

    degree: Degree
    text: str
    kept: Estimate


def sentence_of(result: report.Report, arm: str, resource: Resource) -> Sentence:
    """What is said of a resource on an arm."""
    rows = (row for table in tables(result, "isolation", "resources") for row in table.rows)
    (row,) = [row for row in rows if (row.heads, row.arm) == ((resource.value,), arm)]
    degree, kept, *_, text = row.cells
    assert isinstance(degree, Finding) and isinstance(kept, Value) and isinstance(text, str)
    return Sentence(Degree(degree.text), text, kept.estimate)


def rows_of(result: report.Report, anchor: str) -> list[Row]:
    """The rows of all tables of a section."""
    return [row for table in tables(result, "isolation", anchor) for row in table.rows]


def charts(result: report.Report) -> dict[str, Chart]:
    """Every chart by its title."""
    return {one.title: one for one in result.suite("isolation").blocks if isinstance(one, Chart)}


def panel_of(result: report.Report, chart: str, panel: str) -> list[dict[str, Any]]:
    """The rows of one panel."""
    (found,) = [one for one in charts(result)[chart].panels if one.title == panel]
    return [dict(row) for row in found.rows]
