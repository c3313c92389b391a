"""The timing suite's figures in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from virtgauge.ledger.records import ArmRecord
from virtgauge.report.tables import verdict_class
from virtgauge.report.timing import factor_tables, tables
from virtgauge.report.timing.causes import summary
from virtgauge.report.timing.model import Series, TimingFindings
from virtgauge.report.words import duration, duration_interval, printable, ratio, ratio_interval

_VERDICTS = {"worse": "red", "better": "green", "plain": "dim"}


def print_findings(found: TimingFindings, arms: Sequence[ArmRecord], console: Console) -> None:
    """Print the figures of every cell, what would help each platform, and which factors matter."""
    for group in tables.detail(found, arms):
        console.print()
        console.print(_group_table(group, console.width))
    _advice(found, arms, console)
    _factors(found, arms, console)


def _group_table(group: tables.DetailGroup, width: int) -> Table:
    """One probe's figures; a narrow terminal gets fewer columns."""
    columns = [name for name in _COLUMNS if width >= _WIDE or name not in _ONLY_WHEN_WIDE]
    title = Text(f"{group.title}: {group.meaning}" if group.meaning else group.title)
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("platform", overflow="fold")
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    for part in group.tables:
        table.add_row(Text(printable(part.title), style="bold"))
        for arm, series in part.rows:
            platform = Text(f"  {printable(arm.name)}")
            if arm.emulated:
                platform.append(" (emulated)", style="yellow")
            figures = _figures(series, arm.emulated)
            table.add_row(platform, *(figures[column] for column in columns))
        table.add_section()
    return table


_COLUMNS = ("median", "interval", "× reference", "p99", "p99.9", "max", "n")
_ONLY_WHEN_WIDE = {"interval", "p99.9", "n"}
_WIDE = 110


def _figures(series: Series, emulated: bool) -> dict[str, Text]:
    figures, comparison = series.statistics, series.comparisons.get("p50")
    if series.missing is not None:
        reason = Text(printable(series.missing)[:24], style="dim")
        return {name: Text("–") for name in _COLUMNS} | {"× reference": reason}
    if comparison is None or comparison.ratio.point is None:
        against = Text("")
    else:
        style = _VERDICTS[verdict_class(comparison, emulated)]
        against = Text(f"{ratio(comparison.ratio)} ({ratio_interval(comparison.ratio)})", style=style)
    return {
        "median": Text(duration(figures["p50"].point), style="bold"),
        "interval": Text(duration_interval(figures["p50"]), style="dim"),
        "× reference": against,
        **{name: Text(duration(figures[name].point)) for name in ("p99", "p99.9", "max")},
        "n": Text(str(len(series.blocks))),
    }


def _factors(found: TimingFindings, arms: Sequence[ArmRecord], console: Console) -> None:
    """What matters for the median of each probe; the page has the other parameters, the pairs and the tests."""
    for section in factor_tables.factor_sections(found, arms):
        said = section.sentences[0][1] if section.sentences else section.found.notes
        line = Text(f"{section.title}: ", style="bold")
        line.append(printable(" ".join(said)), style="not bold")
        console.print(line)
    counts = factor_tables.claim_counts(found.paper_claims)
    if counts:
        tally = ", ".join(f"{number} {verdict}" for verdict, number in counts.items())
        console.print(
            Text(f"the timing paper's conclusions on its own tables: {tally} (see the HTML report)", style="dim")
        )


def _advice(found: TimingFindings, arms: Sequence[ArmRecord], console: Console) -> None:
    """The first thing to do on each platform, by measured effect."""
    for arm in arms:
        if arm.role != "aa" and (said := summary(found.causes.get(arm.name, ()))):
            line = Text(f"{printable(arm.label)}: ", style="bold")
            line.append(printable(said), style="not bold")
            console.print(line)
