"""The isolation suite's figures in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from virtgauge.ledger.records import ArmRecord
from virtgauge.report.isolation import tables
from virtgauge.report.isolation.model import Degree, IsolationFindings, ResourceSentence
from virtgauge.report.isolation.vocabulary import amount
from virtgauge.report.words import printable

_STYLES = {"worse": "red", "better": "green", "warn": "yellow", "plain": "dim"}


def print_findings(found: IsolationFindings, arms: Sequence[ArmRecord], console: Console) -> None:
    """Print how well each resource is kept apart, in a table and in words, and what is missing."""
    table = tables.glance(found, arms)
    if table.rows:
        console.print()
        console.print(_degrees(table))
    for resource, sentences in tables.sentence_groups(found, arms):
        for arm, one in sentences:
            if one.degree in (Degree.PARTLY, Degree.NOT) and not arm.emulated:
                line = Text(f"{resource}, {printable(arm.label)}: {one.degree}: ", style="bold")
                line.append(printable(one.text), style="not bold")
                console.print(line)
    for row in found.not_measured:
        console.print(Text(printable(f"not measured: {row.what}: {row.reason}"), style="dim"))


def _degrees(table: tables.Glance) -> Table:
    made = Table(
        title=Text("kept of what was promised, beside the load that costs most"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    made.add_column("platform", overflow="fold")
    for resource in table.resources:
        made.add_column(resource.value, justify="right")
    for row in table.rows:
        platform = Text(printable(row.arm.name))
        if row.arm.emulated:
            platform.append(" (emulated)", style="yellow")
        made.add_row(platform, *(_degree(one, row.arm) for one in row.sentences))
    return made


def _degree(one: ResourceSentence, arm: ArmRecord) -> Text:
    if one.degree is Degree.OPEN:
        return Text("–", style="dim")
    text = Text(amount(one.worst, one.resource), style="bold")
    text.append(f"\n{one.degree}", style=f"not bold {_STYLES[tables.degree_class(one.degree, arm.emulated)]}")
    return text
