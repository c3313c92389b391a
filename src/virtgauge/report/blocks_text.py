"""Blocks in the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table as Printed
from rich.text import Text as Line

from virtgauge.ledger.records import ArmRecord
from virtgauge.results import formatting
from virtgauge.results.formatting import printable
from virtgauge.specs.blocks import Block, Chart, Finding, Shown, Table, Text, Value

if TYPE_CHECKING:
    from virtgauge.report.spec_report import SpecFindings

_STYLES = {"worse": "red", "better": "green", "plain": "dim"}
_HEADINGS_WIDTH, _COLUMN_WIDTH, _FEWEST_COLUMNS = 30, 13, 3
_MOST_ROWS = 60


def print_blocks(found: SpecFindings, arms: Mapping[str, ArmRecord], console: Console) -> None:
    """Print the summary, then of every section what is not folded; the page has all."""
    for block in found.summary:
        _print(block, arms, console)
    for section in found.sections:
        shown = [] if section.folded else [one for one in section.blocks if not isinstance(one, Chart)]
        for block in shown:
            if isinstance(block, Text) and block.tone == "note":
                continue
            _print(block, arms, console)
    folded = [one.title for one in found.sections if one.folded]
    if folded:
        console.print(Line(f"more in the HTML report: {', '.join(folded)}", style="dim"))


def _print(block: Block, arms: Mapping[str, ArmRecord], console: Console) -> None:
    if isinstance(block, Text):
        for paragraph in block.paragraphs:
            text = f"{block.heading}: {paragraph}" if block.heading and block.tone == "finding" else paragraph
            console.print(Line(printable(text), style="bold" if block.tone == "finding" else "dim"))
    elif isinstance(block, Table):
        if block.folded:
            console.print(Line(printable(f"{block.title}: {len(block.rows)} rows, in the HTML report"), style="dim"))
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
        if row.arm in arms and arms[row.arm].emulated:
            platform.append(" (emulated)", style="yellow")
        made.add_row(platform, *shown)
    left = [f"{len(block.rows) - _MOST_ROWS} rows"] * (len(block.rows) > _MOST_ROWS)
    left += [f"{len(block.columns) - len(columns)} columns"] * (len(columns) < len(block.columns))
    if left:
        made.add_row(Line(f"{' and '.join(left)} more: see the HTML report", style="dim"))
    return made


def _shown(one: Shown) -> Line:
    if one is None:
        return Line("–", style="dim")
    if isinstance(one, str):
        return Line(printable(one))
    if isinstance(one, Finding):
        return Line(printable(one.text))
    return _value(one)


def _value(one: Value) -> Line:
    if one.estimate.point is None:
        return Line("–", style="dim")
    text = Line(formatting.point_text(one.estimate, one.quantity), style="bold")
    if one.note:
        text.append(f" ({printable(one.note)})", style="yellow")
    if one.compared is not None:
        text.append(
            f" {formatting.beside(one.compared, one.quantity, short=True)}", style=f"not bold {_STYLES[one.judged]}"
        )
    return text
