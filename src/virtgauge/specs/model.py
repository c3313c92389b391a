"""How a suite declares what its trials mean and how they are shown."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from virtgauge.results.columns import Cell
from virtgauge.results.measure import Measure
from virtgauge.results.quantities import Quantity
from virtgauge.specs.blocks import Block, Kind, Shown

if TYPE_CHECKING:
    from virtgauge.claims.verdicts import ClaimCheck
    from virtgauge.ledger.records import ArmRecord
    from virtgauge.specs.context import Context
    from virtgauge.specs.headline import Summary

Where = Mapping[str, Collection[str] | Callable[[str], bool]]
"""Which cells: for each of these factors the levels that they have, or a test of the level.  ``probe`` is one too."""


@dataclasses.dataclass(frozen=True)
class Factor:
    """What a suite varies."""

    name: str  # as in the ledger
    label: str = ""  # for people; the name where it is empty
    # in the order in which they are shown; numbers ascend, others follow as they were first tried
    levels: tuple[str, ...] = ()
    usual: str = ""  # that a cell without the factor has, and that is not named
    text: Callable[[str], str] = str  # a level for people
    of: Callable[[Cell], str] | None = None  # finds a cell's level where that is not simply the factor's
    quantity: Quantity | None = None  # of levels that are numbers with a unit

    @property
    def title(self) -> str:
        """``Database``."""
        label = self.label or self.name.replace("_", " ")
        return label[:1].upper() + label[1:]

    def level(self, cell: Cell) -> str:
        """A cell's level; of the factor ``probe`` its probe."""
        known = cell.probe if self.name == "probe" else cell.factors.get(self.name, self.usual)
        return self.of(cell) if self.of else known

    def rank(self, level: str, tried: Sequence[str]) -> tuple[int, float]:
        """A level's place among those that were tried."""
        if level in self.levels:
            return 0, self.levels.index(level)
        try:
            return 1, float(level)
        except ValueError:
            return 2, tried.index(level)


@dataclasses.dataclass(frozen=True)
class Figures:
    """A column of a measure's figures."""

    measure: str  # its name
    title: str = ""  # of the column; the measure's where it is empty
    compared: bool = False  # whether figures stand beside the reference's
    # the cells that have it; others of the table have another column's
    where: Where = dataclasses.field(default_factory=dict)
    # what a reader must know of a figure, of a context, cell and arm
    note: Callable[[Context, Cell, str], str] | None = None
    hint: Callable[[Context, Cell, str], str] | None = None  # more of it, on request


@dataclasses.dataclass(frozen=True)
class Computed:
    """A column of what a function says of a cell and an arm."""

    title: str
    say: Callable[[Context, Cell, str], Shown]
    text: bool = True


@dataclasses.dataclass(frozen=True)
class TableSpec:
    """One kind of table."""

    title: str  # of a table; its split's levels in words are added
    columns: tuple[Figures | Computed, ...]  # what is shown of each cell
    where: Where = dataclasses.field(default_factory=dict)  # the cells that it is about
    split: tuple[str, ...] = ()  # factors of which each combination of levels has a table of its own
    across: tuple[str, ...] = ()  # factors whose levels have columns of their own, in groups by the first
    rows: tuple[str, ...] = ()  # factors that tell rows apart, a heading each; all others in one heading when empty
    # what is added to the first heading, of a context and the cells of a row, in a line of its own
    head: Callable[[Context, list[Cell]], str] | None = None
    ends: tuple[str, ...] = ()  # factors of ``across`` of which only the least and the greatest level are shown
    ranked: str = ""  # the factor whose levels are ranked within each arm by the first column's measure; empty for none
    caption: str = ""  # how to read it
    folded: Literal["none", "rest", "all"] = "rest"  # only the first of its tables is open, or none of them


@dataclasses.dataclass(frozen=True)
class ChartSpec:
    """One kind of chart."""

    # ``dots`` (figures with intervals along a horizontal axis: a forest), ``lines``, ``ccdf``, ``heat_map``,
    # ``strips`` (raw values)
    kind: Kind
    title: str
    caption: str
    # by name; of each cell the first that has figures is drawn. Of a CCDF the histogram's name.
    measures: tuple[str, ...]
    x: str = ""  # the factor along a line's or heat map's horizontal axis
    rows: str = ""  # the factor of the categories of dots, or of a heat map's rows
    panels: tuple[str, ...] = ()  # factors of which each combination of levels has a panel; of a heat map, for each arm
    where: Where = dataclasses.field(default_factory=dict)  # the cells that it is about
    # thins the cells out, where not all are to be drawn
    choose: Callable[[Context, list[Cell]], list[Cell]] | None = None
    # rows to draw besides, of a context and the cells of a panel
    published: Callable[[Context, list[Cell]], Iterable[Mapping[str, Any]]] | None = None
    least: int = 1  # of the factor's levels so many have to be there for a panel
    signed: bool = False  # whether figures lie on both sides of 0
    middle: str = ""  # of strips, the measure whose middle repetition is drawn, with a line at its median
    factor: float = 1.0  # of strips, how many base units a raw value's unit has


@dataclasses.dataclass(frozen=True)
class HeadlineSpec:
    """Each platform in one sentence."""

    # by measure what a platform does, of what, and what leads to the figure: ``("stores", "single values", "at")``,
    # in the sentence's order
    says: Mapping[str, tuple[str, str, str]]
    # by measure what is said of a higher figure than the reference's, of a lower one, and after the figure itself:
    # ``later``, ``earlier``, ``late``
    more: Mapping[str, tuple[str, str, str]]
    cells: Callable[[Context], list[tuple[str, Cell]]]  # that the sentence is about, each with its measure
    name: Callable[[Context, Cell], str]  # of a cell within the sentence
    # the conditions that these cells share, in words
    where: Callable[[Context, list[Cell]], str] = lambda context, cells: ""
    most: int = 2  # of cells by name; of more, the least and the most are told
    # what is added of an arm; empty for nothing
    remark: Callable[[Context, list[Cell], str], str] = lambda context, cells, arm: ""
    # which of the measured cells an arm's sentence is about
    told: Callable[[Context, str, list[tuple[str, Cell]]], list[tuple[str, Cell]]] = lambda context, arm, cells: cells


Insight = Callable[["Context"], Iterable[Block]]
"""What is really of a domain: made of a context, which has the table of results."""


@dataclasses.dataclass(frozen=True)
class SectionSpec:
    """A section of a suite's report: what its parts are, in order.  One without anything to show is left out."""

    anchor: str
    title: str
    parts: tuple[TableSpec | ChartSpec | Insight, ...]
    note: str = ""
    folded: bool = False


@dataclasses.dataclass(frozen=True)
class SuiteSpec:
    """A suite: what it varies, what it measures, and how that is shown."""

    name: str
    title: str  # for people
    factors: tuple[Factor, ...]  # in the order in which they name a cell
    measures: tuple[Measure, ...]  # every figure that can be shown, required, ranked, compared and exported
    # each platform in one sentence, declared, or said of an arm and what to call the reference (empty where it is not
    # compared)
    headline: HeadlineSpec | Callable[[Context, ArmRecord, str], Summary]
    summary: tuple[TableSpec | ChartSpec | Insight, ...]  # below the headlines
    sections: tuple[SectionSpec, ...]  # in order
    # the measures whose A/A ratios say whether identical arms agree, and the cells that count
    agreement: tuple[Figures, ...] = ()
    # every conclusion of the suite's paper, on the paper's figures and on the run's; none without a paper
    claims: Callable[[Context], tuple[ClaimCheck, ...]] = lambda context: ()
    missing: tuple[str, ...] = ()  # factors by which is told what was not measured
    # what else was not, by the first of these factors in words, and why
    absent: Callable[[Context], Iterable[tuple[str, str]]] = lambda context: ()
    glossary: Mapping[str, str] = dataclasses.field(default_factory=dict)  # terms and their explanations

    def factor(self, name: str) -> Factor:
        """A factor by name; one that is not declared has its levels' own words."""
        return next((one for one in self.factors if one.name == name), Factor(name))

    def measure(self, name: str | Measure) -> Measure:
        """A measure by name, or itself; KeyError where there is none."""
        if isinstance(name, Measure):
            return name
        for one in self.measures:
            if one.name == name:
                return one
        raise KeyError(f"{self.name} has no measure {name!r}")

    def cell_name(self, cell: Cell, without: Collection[str] = ()) -> str:
        """A cell in words, usual levels and some factors left out: ``PostgreSQL, single writes, 1 client``."""
        named = [one for one in self.factors if one.name not in without]
        known = {one.name for one in self.factors} | set(without)
        said = [one.text(level) for one in named if (level := one.level(cell)) and level != one.usual]
        said += [f"{name} {level}" for name, level in cell.levels if name not in known and level]
        return ", ".join(word for word in said if word)

    def full_name(self, cell: Cell) -> str:
        """A cell beside those of other suites: ``Sleep lateness: usleep``, ``Storage: PostgreSQL, single writes``."""
        probe = next((one.text(cell.probe) for one in self.factors if one.name == "probe"), self.name.capitalize())
        return ": ".join(filter(None, (probe, self.cell_name(cell, ("probe",)))))
