"""The whole report in the terminal: ``virtgauge report RUN --full``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich import box
from rich.console import Console
from rich.table import Table as Printed
from rich.text import Text as Line

from virtgauge.ledger.records import ArmRecord
from virtgauge.report.answers import identical_arms
from virtgauge.report.last_screen import MARKS, validity_text
from virtgauge.report.model import Report
from virtgauge.report.requirements import print_decisions
from virtgauge.results import formatting
from virtgauge.results.formatting import band, confidence, count, printable
from virtgauge.specs.blocks import Block, Chart, Finding, Section, Shown, Table, Text, Value
from virtgauge.specs.headline import Headline, Tone

_STYLES = {"worse": "red", "better": "green", "plain": "dim"}
_HEADINGS_WIDTH, _COLUMN_WIDTH, _FEWEST_COLUMNS = 30, 13, 3
_MOST_ROWS = 60
_ELSEWHERE = "in the HTML report (`--format html`)"


def render_text(report: Report, console: Console) -> None:
    """Print verdicts, what every suite found, and what was skipped or invalid; no text of a run is read as markup."""
    run, arms = report.run, {arm.record.name: arm.record for arm in report.arms}
    title = Line(f"{printable(run.plan_name)} ", style="bold")
    title.append(
        f"{printable(run.created_at[:16]).replace('T', ' ')} UTC, {count(report.blocks, 'repetition')}", style="dim"
    )
    console.print(title)
    if report.replay is not None:
        console.print(Line(f"Claims of the papers: {report.replay.summary}", style="bold"))
    print_decisions(report.decisions, {name: arm.label for name, arm in arms.items()}, console)
    for suite in report.suites:
        if len(report.suites) > 1:
            console.print(Line(suite.title, style="bold underline"))
        console.print(_headlines(report, suite.headlines))
    for caveat in report.caveats:
        console.print(Line(f"! {printable(caveat)}", style="yellow"))
    for suite in report.suites:
        print_blocks(suite.summary, suite.sections, arms, console)
    others = [*([report.hosts.section] if report.hosts else []), *([report.settings] if report.settings.blocks else [])]
    print_blocks(report.replay.blocks if report.replay else (), others, arms, console)
    _validity(report, console)
    for arm in arms.values():
        if not arm.usable:
            fix = f"  →  {arm.fix}" if arm.fix else ""
            console.print(Line(f"skipped {printable(arm.label)}: {printable(arm.reason + fix)}", style="dim"))


def _headlines(report: Report, headlines: Sequence[Headline]) -> Printed:
    lines = Printed.grid(padding=(0, 1))
    for width in (1, min(max(len(printable(one.label)) for one in headlines), 32), None):
        lines.add_column(width=width)
    for one in headlines:
        mark, style = MARKS[one.tone]
        marked = f" ({word})" if (word := report.arm(one.arm).record.mark) else ""
        text = printable(one.text) + marked + (" (reference)" if one.tone is Tone.REFERENCE else "")
        lines.add_row(Line(mark, style=style), Line(printable(one.label), style="bold"), Line(text, style=style))
    return lines


def _validity(report: Report, console: Console) -> None:
    agreement, line = report.agreement, validity_text(report)
    if agreement.ok is not None and agreement.widest is not None:
        line += f"; {identical_arms(report).text} (widest band of all cells: {band(agreement.widest)})"
    line += f"; intervals at {confidence(report.run.confidence)} where the repetitions allow"
    figures = (one for suite in report.suites for headline in suite.headlines for one in headline.figures)
    if any(one.judgement is not None and one.unit == "ratio" for one in figures):
        line += "; ratios to the reference are medians of those within each repetition"
    console.print(Line(line))


def print_blocks(
    summary: Iterable[Block], sections: Sequence[Section], arms: Mapping[str, ArmRecord], console: Console
) -> None:
    """Print a summary, then of every section what is not folded; the page has all."""
    for block in summary:
        _print(block, arms, console)
    for block in (block for section in sections if not section.folded for block in section.blocks):
        if not isinstance(block, Chart) and not (isinstance(block, Text) and block.tone == "note"):
            _print(block, arms, console)
    folded = [one.title for one in sections if one.folded]
    if folded:
        console.print(Line(f"more {_ELSEWHERE}: {', '.join(folded)}", style="dim"))


def _print(block: Block, arms: Mapping[str, ArmRecord], console: Console) -> None:
    if isinstance(block, Text):
        for paragraph in block.paragraphs:
            text = f"{block.heading}: {paragraph}" if block.heading and block.tone == "finding" else paragraph
            console.print(Line(printable(text), style="bold" if block.tone == "finding" else "dim"))
    elif isinstance(block, Table):
        if block.folded:
            rows = formatting.count(len(block.rows), "row")
            console.print(Line(printable(f"{block.title}: {rows}, {_ELSEWHERE}"), style="dim"))
        else:
            console.print()
            console.print(_table(block, arms, console.width))


def _table(block: Table, arms: Mapping[str, ArmRecord], width: int) -> Printed:
    """A narrow terminal gets the first columns."""
    columns = block.columns[: max((width - _HEADINGS_WIDTH) // _COLUMN_WIDTH, _FEWEST_COLUMNS)]
    title = Line(printable(block.title)) if block.title else None
    made = Printed(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    made.add_column(", ".join(block.heads), overflow="fold")
    for column in columns:
        heading = "\n".join(printable(part) for part in (column.group, column.title) if part)
        made.add_column(heading, justify="left" if column.text else "right", overflow="fold")
    heads: tuple[str, ...] = ()
    for row in block.rows[:_MOST_ROWS]:
        named = ", ".join(head.replace("\n", ", ") for head in row.heads if head)
        shown = [_shown(one) for one in row.cells[: len(columns)]]
        if not block.by_arm:
            made.add_row(Line(printable(named)), *shown)
            continue
        if row.heads != heads:
            made.add_row(Line(printable(named), style="bold"))
            heads = row.heads
        platform = Line(f"  {printable(row.arm)}")
        if row.arm in arms and arms[row.arm].mark:
            platform.append(f" ({arms[row.arm].mark})", style="yellow")
        made.add_row(platform, *shown)
    lacking = (len(block.rows) - _MOST_ROWS, "row"), (len(block.columns) - len(columns), "column")
    left = [formatting.count(*one) for one in lacking if one[0] > 0]
    if left:
        made.add_row(Line(f"{' and '.join(left)} more {_ELSEWHERE}", style="dim"))
    return made


def _shown(one: Shown) -> Line:
    if one is None or (isinstance(one, Value) and one.estimate.point is None):
        return Line("–", style="dim")
    if isinstance(one, str | Finding):
        return Line(printable(one if isinstance(one, str) else one.text))
    text = Line(formatting.point_text(one.estimate, one.quantity), style="bold")
    if one.note:
        text.append(f" ({printable(one.note)})", style="yellow")
    if one.compared is not None:
        beside, strength = formatting.beside(one.compared, one.quantity, short=True), " dim" * one.slight
        text.append(f" {beside}", style=f"not bold {_STYLES[one.judged]}{strength}")
    return text
