"""Imported figures in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from virtgauge.ledger.records import ArmRecord
from virtgauge.report.imported import formatting
from virtgauge.report.imported.model import Figure, ImportedFindings, Series
from virtgauge.results.formatting import printable, ratio, unresolved

_STYLES = {"worse": "red", "better": "green", "plain": "dim"}


def print_findings(found: ImportedFindings, arms: Sequence[ArmRecord], console: Console) -> None:
    """Print every figure on every arm, a table for each cell."""
    for title, figures in formatting.by_cell(found.figures):
        table = Table(
            title=Text(printable(title)),
            title_justify="left",
            box=box.SIMPLE_HEAD,
            pad_edge=False,
            collapse_padding=True,
        )
        table.add_column("figure")
        for arm in arms:
            table.add_column(Text(printable(arm.name)), justify="right")
        for figure in figures:
            table.add_row(figure.measure, *(_figure(figure, figure.of(arm.name), arm) for arm in arms))
        console.print()
        console.print(table)


def _figure(figure: Figure, series: Series | None, arm: ArmRecord) -> Text:
    if series is None:
        return Text("–", style="dim")
    text = Text(formatting.point(figure, series.estimate), style="bold")
    if series.comparison is not None and series.comparison.ratio.point is not None:
        style = _STYLES[formatting.comparison_class(figure, series, arm)]
        text.append(f"\n{unresolved(series.comparison) or ratio(series.comparison.ratio)}", style=f"not bold {style}")
    return text
