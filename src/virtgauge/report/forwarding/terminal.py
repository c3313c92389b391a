"""The forwarding suite's figures in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from virtgauge.ledger.records import ArmRecord
from virtgauge.report.forwarding import tables
from virtgauge.report.forwarding.cells import AT_THROUGHPUT
from virtgauge.report.forwarding.model import ForwardingFindings, Series
from virtgauge.report.forwarding.rates import bit_rate, bit_rate_interval, frame_rate
from virtgauge.report.tables import rate_class
from virtgauge.report.verdicts import verdict_counts
from virtgauge.report.words import amount, duration, printable, ratio, ratio_interval, share

_COLUMNS = ("throughput", "interval", "× reference", "frames/s", "latency", "tester", "n")
_ONLY_WHEN_WIDE = {"interval", "frames/s", "tester", "n"}
_WIDE = 120
_MOST_VECTORS = 4
_STYLES = {"worse": "red", "better": "green", "plain": "dim"}


def print_findings(found: ForwardingFindings, arms: Sequence[ArmRecord], console: Console) -> None:
    """Print throughput and latency of every cell, the interfaces' ratios, losses, and the paper's conclusions."""
    for table in tables.detail(found, arms, most_vectors=_MOST_VECTORS):
        console.print()
        console.print(_detail(table, console.width))
    for pair in tables.interface_tables(found, arms):
        points = [one.throughput.point for _, one in pair.rows if one.throughput.point is not None]
        line = Text("para-virtual / emulated interfaces: ", style="bold")
        span = f"{amount(min(points))} to {amount(max(points))}× the throughput over {len(points)} cells"
        line.append(printable(f"{pair.paravirtual.name} / {pair.emulated.name}, {span}"), style="not bold")
        console.print(line)
    for row in tables.accounts(found, arms):
        line = Text(f"{printable(row.arm.name)}: ", style="bold")
        line.append(printable(_losses(row)), style="not bold")
        console.print(line)
    counts = ", ".join(f"{number} {verdict}" for verdict, number in verdict_counts(found.paper_claims).items())
    console.print(Text(f"the forwarding paper's conclusions on this run: {counts} (see the HTML report)", style="dim"))


def _losses(row: tables.AccountRow) -> str:
    account = row.account
    places = ", ".join(f"{line.place} {share(line.share)}" for line in row.lines[:3])
    closed = f"{account.unclosed} of {account.trials} ledgers open" if account.unclosed else "every one accounted for"
    return f"{account.lost:,} of {account.sent:,} frames lost in all trials, {closed}" + (
        f": {places}" if places else ""
    )


def _detail(table: tables.DetailTable, width: int) -> Table:
    """One frame size; a narrow terminal gets fewer columns."""
    columns = [name for name in _COLUMNS if width >= _WIDE or name not in _ONLY_WHEN_WIDE]
    made = Table(title=Text(table.title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    made.add_column("platform", overflow="fold")
    load = _shown_load(table)
    for name in columns:
        title = f"latency at {load:g} %" if name == "latency" and load not in (None, AT_THROUGHPUT) else name
        made.add_column(title, justify="right", no_wrap=name not in ("× reference",))
    for first, cell, arm, series in table.rows:
        if first:
            made.add_row(Text(printable(cell.vector_label), style="bold"))
        platform = Text(f"  {printable(arm.name)}")
        if arm.emulated:
            platform.append(" (emulated)", style="yellow")
        figures = _figures(series, arm.emulated, load)
        made.add_row(platform, *(figures[column] for column in columns))
    if table.left_out:
        made.add_row(Text(f"{table.left_out} load vectors between: see the HTML report", style="dim"))
    return made


def _shown_load(table: tables.DetailTable) -> float | None:
    """The part of the throughput whose latency is shown: all of it, else the largest that was measured below."""
    return max((load for load in table.loads if load <= AT_THROUGHPUT), default=None)


def _figures(series: Series, emulated: bool, load: float | None) -> dict[str, Text]:
    tester = Text(frame_rate(series.tester.limit_pps.point), style="dim")
    if series.missing is not None:
        reason = Text(printable(series.missing)[:24], style="dim")
        return {name: Text("–") for name in _COLUMNS} | {"× reference": reason, "tester": tester}
    comparison = series.comparison
    if comparison is None or comparison.ratio.point is None:
        against = Text("")
    else:
        style = _STYLES[rate_class(comparison, emulated)]
        against = Text(f"{ratio(comparison.ratio)} ({ratio_interval(comparison.ratio)})", style=style)
    level = None if load is None else series.at(load)
    return {
        "throughput": Text(bit_rate(series.throughput_mbps.point), style="bold"),
        "interval": Text(bit_rate_interval(series.throughput_mbps), style="dim"),
        "× reference": against,
        "frames/s": Text(frame_rate(series.throughput_pps.point)),
        "latency": Text(duration(level.total_ns.point if level else None)),
        "tester": tester,
        "n": Text(str(len(series.blocks))),
    }
