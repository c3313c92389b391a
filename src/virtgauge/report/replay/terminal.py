"""The papers' conclusions in the terminal: how many of each verdict, and those that were tested."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from virtgauge.claims.verdicts import Verdict
from virtgauge.report.replay.model import Replay, ReplayedPart, in_words
from virtgauge.results.formatting import printable

_STYLES = {
    Verdict.CONFIRMED: "green",
    Verdict.CONTRADICTED: "red",
    Verdict.UNDECIDED: "yellow",
    Verdict.UNTESTABLE: "dim",
}


def print_summary(replay: Replay | None, console: Console) -> None:
    """One line; nothing where the run is no replay."""
    if replay is not None:
        console.print(Text(f"Claims of the papers: {replay.summary}", style="bold"))


def print_replay(replay: Replay | None, console: Console) -> None:
    """A table for each part that was measured; what could not be tested is counted, and the page says why."""
    if replay is None:
        return
    for part in replay.parts:
        console.print()
        if part.measured:
            console.print(Text(printable(f"{part.title}: {in_words(part.counts)}"), style="bold"))
            console.print(_table(part))
        else:
            console.print(Text(f"{part.title}: {len(part.claims)} claims, not part of this run", style="dim"))
    for label in replay.emulated:
        console.print(Text(f"{printable(label)} is emulated: its figures decide no claim", style="yellow"))


def _table(part: ReplayedPart) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("verdict", no_wrap=True)
    table.add_column("claim", ratio=3, overflow="fold")
    table.add_column("because", ratio=2, overflow="fold")
    for claim in part.claims:
        if claim.verdict is not Verdict.UNTESTABLE:
            verdict = Text(claim.verdict.value, style=_STYLES[claim.verdict])
            table.add_row(verdict, Text(printable(claim.text)), Text(printable(claim.reason), style="dim"))
    return table
