"""What a report is made of, for every form that it takes: sections of tables, charts and text.

Each figure knows what it is of, so that the same table is shown, printed, exported and compared.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from virtgauge.analysis.comparison import Difference, Judgement
from virtgauge.analysis.estimate import Estimate
from virtgauge.results.formatting import is_slight
from virtgauge.results.measure import Better
from virtgauge.results.quantities import COUNT, Quantity


@dataclasses.dataclass(frozen=True)
class Place:
    """What a figure is of."""

    suite: str
    # see :attr:`virtgauge.results.columns.Cell.text`; after ``*`` instead of a probe the levels that a figure over
    # several cells fixes; a part of a cell is a level more, whose name begins with a plus
    cell: str
    arm: str = ""  # empty of what is of no arm
    against: str = ""  # what a ratio is to: another cell by its levels, ``paper``; empty of the figure itself


@dataclasses.dataclass(frozen=True)
class Value:
    """One figure."""

    measure: str  # its name within the suite
    place: Place
    estimate: Estimate  # in the base unit of ``quantity``; its method says why it is missing
    quantity: Quantity
    compared: Difference | None = None  # with the reference; None where that makes no sense
    better: Better = Better.NEITHER  # which way
    ranked: bool = True  # False of emulated arms, whose comparisons are not coloured
    rank: int | None = None  # among others like it; None where nothing is ranked
    note: str = ""  # what a reader must know of it, in a few words
    hint: str = ""  # more, on request

    @classmethod
    def count(
        cls, measure: str, place: Place, number: float | None, quantity: Quantity = COUNT, **more: Any
    ) -> Value | None:
        """A figure that was counted, not estimated; None without one."""
        if number is None:
            return None
        return cls(measure, place, Estimate.bare(float(number), quantity.unit, "counted", 0), quantity, **more)

    @property
    def judged(self) -> Literal["better", "worse", "plain"]:
        """How it stands beside the reference; plain where no difference was shown, or none may be told."""
        found = self.compared
        if found is None or not self.ranked or not found.distinguishable:
            return "plain"
        said = self.better.says(found.judgement is Judgement.HIGHER)
        return "plain" if said == "changed" else said

    @property
    def slight(self) -> bool:
        """Whether it was shown to differ by a factor so near to 1 that it seldom matters."""
        return self.judged != "plain" and self.compared is not None and is_slight(self.compared)


@dataclasses.dataclass(frozen=True)
class Finding:
    """What was found where that is no figure: ``flush-bound``, a reason, a setting."""

    measure: str
    place: Place
    text: str
    note: str = ""
    hint: str = ""


Shown = Value | Finding | str | None  # What stands in a table: plain text is of no figure, None is a dash


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of a table; neighbours of the same group share a heading."""

    title: str
    group: str = ""
    text: bool = False
    hint: str = ""


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of a table: its headings, the arm that it is of (or empty), and what stands in each column."""

    heads: tuple[str, ...]
    arm: str
    cells: tuple[Shown, ...]
    tone: str = ""  # that it is marked by; see :class:`virtgauge.specs.headline.Tone`


@dataclasses.dataclass(frozen=True)
class Table:
    """A table."""

    title: str
    heads: tuple[str, ...]  # titles of the columns that hold the rows' headings; the arm's own column comes after these
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    caption: str = ""  # how to read it
    folded: bool = False  # shown when it is asked for

    @property
    def by_arm(self) -> bool:
        """Whether rows are of an arm each."""
        return any(row.arm for row in self.rows)

    @property
    def groups(self) -> list[tuple[str, int]]:
        """Headings over neighbouring columns, with the number of these; empty where no column has one."""
        named = itertools.groupby(column.group for column in self.columns)
        found = [(group, len(list(neighbours))) for group, neighbours in named]
        return found if any(group for group, _ in found) else []


@dataclasses.dataclass(frozen=True)
class Axis:
    """An axis of a chart: of figures of a quantity, of a factor's numbers (``None``), or of categories."""

    title: str
    quantity: Quantity | None = None
    # logarithmic, linear from zero on, linear around what is drawn (``close``; of a quantity in each panel for itself),
    # or with its middle at 0 and logarithmic away from it (``signed``)
    scale: Literal["log", "linear", "close", "signed"] = "log"
    labels: Mapping[int, str] = dataclasses.field(default_factory=dict)  # of all its numbers, where these have names


@dataclasses.dataclass(frozen=True)
class Panel:
    """One drawing of a chart; see :mod:`virtgauge.report.drawing` for what its rows hold."""

    title: str
    rows: Sequence[Mapping[str, Any]]


Kind = Literal["dots", "lines", "ccdf", "heat_map", "strips", "spans"]


@dataclasses.dataclass(frozen=True)
class Chart:
    """Panels that are drawn alike, on the same axes."""

    kind: Kind
    title: str
    caption: str
    x: Axis
    y: Axis
    panels: tuple[Panel, ...]
    text: str  # what it shows, for those who do not see it


@dataclasses.dataclass(frozen=True)
class Text:
    """Paragraphs; a finding has a heading of its own and stands out."""

    paragraphs: tuple[str, ...]
    heading: str = ""
    tone: Literal["note", "finding"] = "note"


Block = Table | Chart | Text

_FIGURES = ("ours", "other", "raw", "curve")
_MOST_TOLD = 12  # Figures that a chart's text has; the tables have all


def table_of(
    title: str,
    heads: tuple[str, ...],
    columns: Iterable[Column | str],
    rows: Iterable[Row],
    caption: str = "",
    *,
    folded: bool = False,
) -> Iterator[Table]:
    """A table, where there are rows; of a column of figures its title is enough."""
    if found := tuple(rows):
        made = (Column(one) if isinstance(one, str) else one for one in columns)
        yield Table(title, heads, tuple(made), found, caption, folded)


def chart_of(
    kind: Kind,
    title: str,
    caption: str,
    axes: tuple[Axis, Axis],
    panels: Iterable[tuple[str, Sequence[Mapping[str, Any]]]],
    legends: Mapping[str, str] | None = None,
) -> Iterator[Chart]:
    """A chart of those panels, by title, that hold a figure of this run, where there are any.

    The horizontal axis is first; ``legends`` are what the caption adds where a row of a kind, or of a shape, is drawn.
    """
    drawn = [
        Panel(name, rows)
        for name, rows in panels
        if any(row.get("kind", "curve") in _FIGURES or "own" in row for row in rows)
    ]
    if not drawn:
        return
    marks = {row.get(part) for panel in drawn for row in panel.rows for part in ("kind", "shape")}
    caption += "".join(f" {text}" for mark, text in (legends or {}).items() if mark in marks)
    said = [
        f"{panel.title}{': ' if panel.title else ''}{row['label']} {row['at']} {row['t']}"
        for panel in drawn
        for row in panel.rows
        if "at" in row and "label" in row and row["kind"] != "published"
    ]
    more = f" And {len(said) - _MOST_TOLD} more; the tables have all." if len(said) > _MOST_TOLD else ""
    text = f"{'; '.join(said[:_MOST_TOLD])}.{more}" if said else caption
    yield Chart(kind, title, caption, *axes, tuple(drawn), text)


def panels_of(parts: Iterable[tuple[str, Iterable[Mapping[str, Any]]]]) -> list[tuple[str, list[Mapping[str, Any]]]]:
    """Panels by title, each with all rows that are given under it."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for title, rows in parts:
        found.setdefault(title, []).extend(rows)
    return [*found.items()]


@dataclasses.dataclass(frozen=True)
class Section:
    """A part of a report."""

    anchor: str  # unique within the suite
    title: str
    blocks: tuple[Block, ...]
    folded: bool = False  # shown when it is asked for; then its title says how much there is


def values_of(blocks: Sequence[Block]) -> Iterator[Value | Finding]:
    """Every figure of some blocks, charts apart."""
    for block in blocks:
        if isinstance(block, Table):
            for row in block.rows:
                yield from (one for one in row.cells if isinstance(one, Value | Finding))
