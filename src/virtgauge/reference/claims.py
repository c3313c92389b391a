"""What the timing paper concludes from its Tables 1 and 2, each conclusion with the test that decides it.

The conclusions are data (``timing_claims.toml``); :mod:`virtgauge.report.timing.paper_claims` carries the tests out on
those tables, :mod:`virtgauge.report.timing.run_claims` on a run.
"""

from __future__ import annotations

import functools
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from virtgauge.reference.claim_file import Bounded, read_claims

Parameter = Literal["median", "half_iqr", "max", "min"]
"""The paper's four; what it calls MAD is half the interquartile range (section 2.3)."""
Quantile = Literal["p90", "p99.9"]
Factor = Literal["function", "platform", "load"]


class _Test(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FactorMatters(_Test):
    """Kruskal–Wallis: the factor is significant for some parameters and not for others.

    With ``within``, the same in each level of another factor by itself (in those of ``levels`` if given).  With
    ``groups``, of levels put together under new names.
    """

    kind: Literal["factor"]
    factor: Factor
    significant: tuple[Parameter, ...] = ()
    insignificant: tuple[Parameter, ...] = ()
    within: Factor | None = None
    levels: tuple[str, ...] = ()
    groups: dict[str, tuple[str, ...]] = Field(default_factory=dict)


class LevelsDiffer(_Test):
    """Dunn's test with Holm's adjustment: pairs of levels differ, or do not.

    ``pairs`` are two levels, or a level and ``*`` for every other, or ``others`` and a level for the pairs without it.
    """

    kind: Literal["pairs"]
    factor: Factor
    pairs: tuple[tuple[str, str], ...]
    significant: tuple[Parameter, ...] = ()
    insignificant: tuple[Parameter, ...] = ()
    within: Factor | None = None
    levels: tuple[str, ...] = ()


class Interaction(_Test):
    """An interaction, which one value in each cell cannot show, and repetitions can.

    Without ``factors`` it is of none that an analysis of variance has.
    """

    kind: Literal["interaction"]
    factors: tuple[Factor, ...] = ()
    significant: tuple[Parameter, ...] = ()
    insignificant: tuple[Parameter, ...] = ()


class Extreme(_Test):
    """In every cell one level has the largest (or smallest) figure of its factor's levels."""

    kind: Literal["extreme"]
    factor: Factor
    level: str
    parameter: Parameter
    which: Literal["largest", "smallest"]
    where: dict[Factor, str] = Field(default_factory=dict)
    ignoring: tuple[str, ...] = ()


class Order(_Test):
    """In every cell one level's figure is below another's."""

    kind: Literal["order"]
    factor: Factor
    lower: str
    higher: str
    parameter: Parameter
    where: dict[Factor, str] = Field(default_factory=dict)


class Ratio(_Test):
    """The ratio of one level's figure to those of other levels, over all cells, lies within bounds.

    ``most``: it is enough that it does in more than half of the cells; ``any``: in one of them.
    """

    kind: Literal["ratio"]
    factor: Factor
    level: str
    to: tuple[str, ...]
    parameter: Parameter
    at_least: float | None = None
    at_most: float | None = None
    most: bool = False
    any: bool = False
    where: dict[Factor, str] = Field(default_factory=dict)
    ignoring: tuple[str, ...] = ()


class Spread(_Test):
    """(largest − smallest) / largest over the levels of a factor is at most so much."""

    kind: Literal["spread"]
    factor: Factor
    parameter: Parameter
    at_most: float
    where: dict[Factor, str] = Field(default_factory=dict)
    ignoring: tuple[str, ...] = ()


class Bounds(_Test, Bounded):
    """In every cell a figure lies within bounds, ns.

    Of the quantiles the tables have none but the median, which no higher quantile is below.
    """

    kind: Literal["bounds"]
    parameter: Parameter | Quantile = "median"
    where: dict[Factor, str] = Field(default_factory=dict)
    ignoring: tuple[str, ...] = ()


class Separated(_Test):
    """Every figure of one function, on any platform and under any load, is below every figure of another."""

    kind: Literal["separated"]
    lower: str
    higher: str
    parameter: Parameter = "median"
    ignoring: tuple[str, ...] = ()


class Untestable(_Test):
    """What no figure of the paper's or ours decides."""

    kind: Literal["untestable"]
    reason: str


class PrintedFigure(_Test):
    """A figure of the text and the cell of the table that it is about; ``5.12 us`` must round to what is printed."""

    function: str
    platform: str
    load: str
    parameter: Parameter = "median"
    printed: Annotated[str, Field(pattern=r"^[0-9.]+ (ns|us|ms)$")]


class Figures(_Test):
    """Figures that the text gives agree with the table."""

    kind: Literal["figures"]
    figures: tuple[PrintedFigure, ...]


Test = Annotated[
    FactorMatters
    | LevelsDiffer
    | Interaction
    | Extreme
    | Order
    | Ratio
    | Spread
    | Bounds
    | Separated
    | Figures
    | Untestable,
    Field(discriminator="kind"),
]


class Claim(BaseModel):
    """One conclusion.

    Attributes:
        name: short and unique.
        table: ``timer_cost`` or ``sleep_miss``; both where it is about both.
        place: where the paper says it.
        text: what it says, in its words or close to them.
        note: what a reader should know of how it is tested.
        tests: all must agree.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    table: Annotated[tuple[Literal["timer_cost", "sleep_miss"], ...], Field(min_length=1)]
    place: str
    text: str
    note: str = ""
    tests: Annotated[tuple[Test, ...], Field(min_length=1)]


@functools.cache
def timing_claims() -> tuple[Claim, ...]:
    """Every conclusion, in the paper's order."""
    return read_claims("timing_claims.toml", Claim)
