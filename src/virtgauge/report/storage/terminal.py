"""The storage suite's figures in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from virtgauge.ledger.records import ArmRecord
from virtgauge.measures.quantities import significant
from virtgauge.report.storage import tables
from virtgauge.report.storage.model import DurabilityRow, Series, StorageFindings
from virtgauge.report.storage.vocabulary import (
    OPERATION_WORDS,
    SHORT_LEVELS,
    clients_words,
    database_title,
    device_words,
    rate,
)
from virtgauge.report.tables import rate_class
from virtgauge.report.verdicts import verdict_counts
from virtgauge.report.words import printable, ratio

_STYLES = {"worse": "red", "better": "green", "plain": "dim"}
_MOST_COLUMNS_NARROW = 4
_WIDE = 120


def print_findings(found: StorageFindings, arms: Sequence[ArmRecord], console: Console) -> None:
    """Print rates at every level, what durability costs, the paper's replay, and its conclusions."""
    for table in tables.glance(found, arms):
        console.print()
        console.print(_rates(table, console.width))
    for one in tables.first_ranking(found):
        console.print(Text(printable(one.sentence), style="bold"))
    for arm, rows in tables.durability_by_arm(found, arms)[:1]:
        console.print(_durability(arm, [row for _, row in rows]))
    replayed = [cell for cell in found.replay if cell.ratio.point is not None]
    if replayed:
        line = Text("Tables IV and V: ", style="bold")
        points = [cell.ratio.point for cell in replayed if cell.ratio.point is not None]
        limits = tables.limits_of(replayed)
        line.append(
            f"{len(replayed)} of {len(found.replay)} cells replayed, {significant(min(points))} to "
            f"{significant(max(points))}× the paper’s; {limits}",
            style="not bold",
        )
        console.print(line)
    for row in found.not_measured:
        what = f"{row.database}{f' ({row.durability})' if row.durability else ''}"
        console.print(Text(printable(f"not measured: {what}: {row.reason}"), style="dim"))
    for name, claims in (
        ("their own tables", [claim.paper for claim in found.paper_claims]),
        ("this run", [claim.run for claim in found.paper_claims]),
    ):
        counts = ", ".join(f"{number} {verdict}" for verdict, number in verdict_counts(claims).items())
        console.print(Text(f"the storage paper's conclusions on {name}: {counts}", style="dim"))


def _rates(table: tables.GlanceTable, width: int) -> Table:
    """One level; a narrow terminal gets the first columns."""
    columns = table.columns if width >= _WIDE else table.columns[:_MOST_COLUMNS_NARROW]
    made = Table(
        title=Text(printable(table.title)),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    made.add_column("database, platform", overflow="fold")
    for operation, clients in columns:
        made.add_column(f"{OPERATION_WORDS[operation]}\n{clients_words(clients)}", justify="right")
    for row in table.rows:
        if row.first:
            made.add_row(Text(printable(row.database), style="bold"))
        platform = Text(f"  {printable(row.arm.name)}")
        if row.arm.emulated:
            platform.append(" (emulated)", style="yellow")
        made.add_row(platform, *(_cell(series, row.arm) for series in row.cells[: len(columns)]))
    if len(columns) < len(table.columns):
        made.add_row(Text(f"{len(table.columns) - len(columns)} columns more: see the HTML report", style="dim"))
    return made


def _cell(series: Series | None, arm: ArmRecord) -> Text:
    if series is None or series.missing is not None:
        return Text("–", style="dim")
    text = Text(rate(series.rate.point), style="bold")
    if series.client_limited:
        text.append(" (client)", style="yellow")
    comparison = series.comparison
    if comparison is not None and comparison.ratio.point is not None:
        style = _STYLES[rate_class(comparison, arm.emulated)]
        text.append(f" {ratio(comparison.ratio)}", style=f"not bold {style}")
    return text


def _durability(arm: ArmRecord, rows: Sequence[DurabilityRow]) -> Table:
    made = Table(
        title=Text(f"durability on {printable(arm.label)}"), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False
    )
    made.add_column("database")
    made.add_column("level")
    for name in ("flushes/op", "lost, server", "lost, machine", "writes", "price"):
        made.add_column(name, justify="right")
    for row in rows:
        flushes = row.flushes_per_operation.point
        crashes = [
            f"{one.missing:,} of {one.acknowledged:,}" if one.crashes else "–" for one in (row.server, row.machine)
        ]
        made.add_row(
            Text(printable(database_title(row.database))),
            Text(printable(SHORT_LEVELS.get(row.durability, row.durability) + device_words(row.flushes))),
            "–" if flushes is None else significant(flushes),
            *crashes,
            rate(row.rate.point),
            ratio(row.price),
        )
    return made
