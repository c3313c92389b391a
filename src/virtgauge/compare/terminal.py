"""A comparison in the terminal: the largest changes first.

Texts of a run are printed as they are: never read as Rich markup, control characters taken out.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from virtgauge.compare import formatting
from virtgauge.compare.model import (
    CALLED,
    ArmPair,
    Change,
    Comparison,
    EnvironmentLine,
    Finding,
    Series,
    SeriesComparison,
    SetAside,
)
from virtgauge.results.formatting import NONE, printable

MOST_ROWS = 40
"""Of a table in the terminal; the page and the JSON form hold all."""
MOST_OPEN = 5
"""Of changes that are not called one."""
_STYLES = {
    Finding.WORSE: "red",
    Finding.BETTER: "green",
    Finding.CHANGED: "yellow",
    Finding.EQUIVALENT: "default",
    Finding.NOT_SHOWN: "dim",
}


def render_text(found: Comparison | SeriesComparison, console: Console) -> None:
    """Print what was found, what else differs between the runs, and what was set aside."""
    if isinstance(found, SeriesComparison):
        console.print(_text(formatting.series_headline(found), "bold"))
        for group in formatting.step_groups(found):
            console.print(_text(group.text, _STYLES[group.finding]))
        _series(found, console)
    else:
        for run in found.others:
            line = _text(f"{found.title(run)}: ", "bold")
            console.print(line.append(formatting.headline(found, run)))
        _changes(found, console)
    for caveat in found.caveats:
        console.print(_text(f"! {caveat}", "yellow"))
    _environment(found.environment, [run.label for run in found.runs], console)
    _set_aside(found.set_aside, console)
    console.print(_text(formatting.multiplicity(found), "dim"))


def _changes(found: Comparison, console: Console) -> None:
    """What is called a change, and of the rest the few that come closest to one."""
    called = [change for change in found.changes if change.own.finding in CALLED]
    open_ones = [change for change in found.changes if change.own.finding is Finding.NOT_SHOWN]
    shown = [*called[:MOST_ROWS], *open_ones[:MOST_OPEN]]
    if not shown:
        return
    table = _table(["of", "base → other", "change", "beside the reference"])
    for change in shown:
        own, relative = change.own, change.relative
        beside = formatting.change_text(relative, change.measure)
        if relative is not None and relative.finding in CALLED:
            beside += f" {relative.finding.value}"
        style = _STYLES[own.finding]
        figures = (
            f"{formatting.figure(change.base, change.measure)} → {formatting.figure(change.other, change.measure)}"
        )
        table.add_row(
            _of(found, change),
            _text(figures),
            _text(f"{own.finding.value}: {formatting.change_text(own, change.measure)}", style).append(
                _why(change), "dim"
            ),
            _text(beside, _STYLES[relative.finding] if relative else "dim"),
        )
    console.print(table)
    if len(called) > MOST_ROWS:
        _rest(len(called), console)
    if len(open_ones) > MOST_OPEN:
        console.print(_text(f"… and {len(open_ones) - MOST_OPEN} more in which no difference is shown", "dim"))


def _of(found: Comparison, change: Change) -> Text:
    text = _arm(found.arms[change.arm])
    run = f" in {printable(found.runs[change.run].label)}" if len(found.runs) > 2 else ""
    measure = change.measure.partition(".")[2]
    return text.append(f"{run}\n{printable(found.cells[change.cell].name)}, {measure}", "not bold")


def _arm(arm: ArmPair) -> Text:
    return _text(arm.label, "bold").append(" (emulated)" if arm.emulated else "", "yellow")


def _why(change: Change) -> str:
    """Under a change that is not called one: why, and what would decide."""
    if change.own.finding is not Finding.NOT_SHOWN:
        return ""
    need = formatting.need(change.own)
    return f"\n{change.own.reason}" + (f"; {need}" if need else "")


def _series(found: SeriesComparison, console: Console) -> None:
    table = _table(["of", "steps", "first", "last"])
    changing = [series for series in found.series if series.steps]
    for series in changing[:MOST_ROWS]:
        text = _arm(found.arms[series.arm])
        measure = series.measure.partition(".")[2] + (" as a ratio to the reference" if series.relative else "")
        text.append(f"\n{printable(found.cells[series.cell].name)}, {measure}", "not bold")
        steps = Text("\n").join(
            _text(formatting.step_text(found, series, step), _STYLES[step.finding]) for step in series.steps
        )
        known = [level for level in series.levels if level.point is not None]
        table.add_row(
            text, steps, *(_text(formatting.figure(level, series.measure)) for level in (known[0], known[-1]))
        )
    if changing:
        console.print(table)
        _rest(len(changing), console)
    _unchanged(found.series, console)


def _unchanged(series: Sequence[Series], console: Console) -> None:
    doubtful = sum(one.doubtful > 0 for one in series)
    if doubtful:
        console.print(
            _text(f"{doubtful} series also differ somewhere, by no more than runs or identical arms differ anyway.")
        )
    short = sum(one.p is None for one in series)
    if short:
        console.print(_text(f"{short} series have figures of too few runs to be examined."))


def _environment(lines: Sequence[EnvironmentLine], labels: Sequence[str], console: Console) -> None:
    if not lines:
        if len(labels) > 1:
            console.print(_text("Nothing that was recorded of host, virtgauge, plan and platforms differs."))
        return
    console.print(_text("What differs between the runs", "bold"))
    table = _table(["", *labels])
    for line in lines[:MOST_ROWS]:
        table.add_row(_text(line.what), *(_text(NONE if value is None else value) for value in line.values))
    console.print(table)
    _rest(len(lines), console)


def _set_aside(lines: Sequence[SetAside], console: Console) -> None:
    for line in lines[:MOST_ROWS]:
        console.print(_text(f"not compared: {line.what}: {line.reason}", "dim"))
    _rest(len(lines), console)


def _rest(number: int, console: Console) -> None:
    if number > MOST_ROWS:
        console.print(_text(f"… and {number - MOST_ROWS} more; --format html and json hold all", "dim"))


def _table(headings: Sequence[str]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in headings:
        table.add_column(_text(heading), overflow="fold")
    return table


def _text(text: str, style: str = "") -> Text:
    return Text(printable(text), style=style)
