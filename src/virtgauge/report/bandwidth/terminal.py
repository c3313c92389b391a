"""The bandwidth suite's figures in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from virtgauge.ledger.records import ArmRecord
from virtgauge.report.bandwidth import tables
from virtgauge.report.bandwidth.model import Accuracy, BandwidthFindings, Pacing
from virtgauge.report.bandwidth.vocabulary import off, off_interval, rate
from virtgauge.report.words import printable

_STYLES = {"worse": "red", "better": "green", "plain": "default"}


def print_findings(found: BandwidthFindings, arms: Sequence[ArmRecord], console: Console) -> None:
    """Print how far off each estimator is, what could not be paced, and what is missing."""
    table = tables.glance(found, arms)
    if table.rows:
        console.print()
        console.print(_errors(table))
    for arm, rows in tables.pacing(found, arms):
        refusals = [_refusal(one) for one in rows if one.refused]
        if refusals:
            console.print(Text(printable(f"{arm.name}: cannot pace {'; '.join(refusals)}"), style="yellow"))
    for row in found.not_measured:
        console.print(Text(printable(f"not measured: {row.what}: {row.reason}"), style="dim"))


def _errors(table: tables.Glance) -> Table:
    made = Table(
        title=Text("median error without its sign, its interval, and own intervals that hold the truth"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    made.add_column("platform", overflow="fold")
    names = [name for name, columns in table.estimators for _ in range(columns)]
    for name, timing in zip(names, table.timings, strict=True):
        made.add_column(Text(f"{printable(name)}\n{printable(timing)}"), justify="right")
    for row in table.rows:
        platform = Text(printable(row.arm.name))
        if row.arm.emulated:
            platform.append(" (emulated)", style="yellow")
        made.add_row(platform, *(_error(one, row.arm) for one in row.columns))
    return made


def _error(one: Accuracy | None, arm: ArmRecord) -> Text:
    if one is None:
        return Text("–", style="dim")
    if one.off.point is None:
        return Text("cannot pace" if one.refused else "at least", style="dim")
    text = Text(off(one.off.point), style=f"bold {_STYLES[tables.beside_class(one.beside, arm.emulated)]}")
    interval = off_interval(one.off) if one.off.has_interval else "no interval"
    text.append(f"\n{interval}", style="not bold default")
    held = f"\n{one.covered} of {one.intervals}" if one.intervals else ""
    text.append(held, style="not bold dim")
    return text


def _refusal(one: Pacing) -> str:
    honest = one.honest_mbps.point
    most = "" if honest is None else f", honest up to {rate(honest)}"
    return f"{one.refused} of {one.trials} trials with {one.arrangement} ({one.method}{most})"
