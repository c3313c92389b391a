"""A published claim as data: what a paper concludes, where, and the tests that decide it.

One file for each suite and paper (``reference/<suite>_claims.toml``) holds the measures and factors that its tests
name, the claims, and under ``[[printed]]`` figures of the paper's own machine, which no run confirms or contradicts.

A test names figures by a measure and by levels of factors (:data:`Cells`); factors that it does not name take every
level that there is.  Its relation says what must hold of them.  A bound that means "no difference" (1 of a ratio, 0 of
anything else) is not reached by equality where it is the only bound.
"""

from __future__ import annotations

import functools
import itertools
import math
import tomllib
from importlib import resources
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Range(_Model):
    """Levels of a numeric factor, both ends included, or all names but some."""

    at_least: float = -math.inf
    at_most: float = math.inf
    # of otherwise equal figures the one at the ``lowest`` or ``highest`` of these levels, the ``smallest`` or
    # ``largest`` of the figures themselves (of the two a :class:`Spread` is the ratio), or their ``median``
    pick: Literal["lowest", "highest", "smallest", "largest", "median"] | None = None
    excluding: tuple[str, ...] = ()  # names that do not count

    def includes(self, level: object) -> bool:
        """Whether a level lies within; up to rounding of how it is written."""
        if isinstance(level, Range):
            return self.at_least <= level.at_least and level.at_most <= self.at_most
        if isinstance(level, int | float):
            return self.at_least - 1e-9 <= level <= self.at_most + 1e-9
        return level not in self.excluding


Level = bool | float | str | tuple[str, ...] | Range
Cells = dict[str, Level]


class CellTest(_Model):
    """What every test has."""

    measure: str  # of the figures, one of the file's
    cells: Cells = Field(default_factory=dict)  # levels that the figures have
    whose: Literal["paper", "ours"] = "paper"  # the bounds are: the paper's words, or ours where it names none
    premise: str = ""  # of the conclusion, which is not tested: a run's figures that disagree may lack it, and are open


class BoundedTest(CellTest):
    """A test with one bound at least, in the measure's unit."""

    at_least: float | None = None
    at_most: float | None = None

    @model_validator(mode="after")
    def _has_a_bound(self) -> Self:
        if self.at_least is None and self.at_most is None:
            raise ValueError("a test needs at_least or at_most")
        return self


class Bound(BoundedTest):
    """Figures lie within bounds: each, most, any, or the lowest or highest of all."""

    relation: Literal["bound"]
    which: Literal["each", "most", "any", "lowest", "highest"] = "each"


class Compared(BoundedTest):
    """The ratio, or the difference, of figures at ``of`` to those at ``to`` lies within bounds.

    Compared are figures that differ only in the factors named in ``of`` and ``to``; with ``alike``, figures that agree
    in those factors; with ``of_which`` or ``to_which``, that one figure of all.
    """

    relation: Literal["ratio", "difference"]
    of: Cells
    to: Cells
    which: Literal["each", "most", "any"] = "each"
    of_which: Literal["each", "lowest", "highest"] = "each"
    to_which: Literal["each", "lowest", "highest"] = "each"
    alike: tuple[str, ...] | None = None
    # levels of a factor that the paper's range has. Figures over a shorter range can contradict a bound that more
    # change would break as well, and confirm nothing.
    span: dict[str, Range] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _is_no_spread(self) -> Self:
        levels = itertools.chain.from_iterable(cells.values() for cells in (self.cells, self.of, self.to))
        if any(isinstance(level, Range) and level.pick in ("smallest", "largest") for level in levels):
            raise ValueError("the largest or smallest of figures is compared by relation = 'spread'")
        return self


class Order(CellTest):
    """Figures at one level of a factor are larger than at the next, all else being equal; ``*`` is each other level."""

    relation: Literal["order"]
    factor: str
    descending: Annotated[tuple[str, ...], Field(min_length=2)]


class Spread(BoundedTest):
    """The largest figure over the levels of a factor, beside the smallest; with ``than``, beside that elsewhere."""

    relation: Literal["spread"]
    factor: str
    than: Cells | None = None


class Equivalence(CellTest):
    """From ``to`` to ``of`` all levels of a factor change by about the same: within ``at_most`` of one another."""

    relation: Literal["equivalence"]
    across: str
    of: Cells
    to: Cells
    at_most: float


class Change(CellTest):
    """From ``to`` to ``of`` one level of a factor changes more, up or down, than each other, or ``less``.

    ``pooled``: on the average (of logarithms' sizes) over all cells that every level has.  ``rising``: changes count
    with their sign, so that a fall is less than none.
    """

    relation: Literal["change"]
    across: str
    level: str | bool
    of: Cells
    to: Cells
    less: bool = False
    pooled: bool = False
    rising: bool = False


class Steeper(CellTest):
    """Figures change more from ``to`` to ``of``, up or down, than otherwise alike from ``than_to`` to ``than_of``.

    On the average over what is alike but for the factors that these name.  ``along`` a numeric factor slopes are
    compared: by how much figures grow for each unit of it; else by what factor.
    """

    relation: Literal["steeper"]
    of: Cells
    to: Cells
    than_of: Cells
    than_to: Cells
    along: str | None = None


class Line(CellTest):
    """Along a factor a straight line explains at least that part of the variance.

    It is confirmed where the line explains more than it would, in one case of twenty, of as many unrelated figures:
    99.4 % of three, 90.3 % of four, 77.1 % of five.
    """

    relation: Literal["line"]
    factor: str
    at_least: Annotated[float, Field(ge=0, le=1)]


class Mixed(CellTest):
    """No single level of a factor has the largest figure at every level of another."""

    relation: Literal["mixed"]
    factor: str
    across: str


class Significance(_Model):
    """Rank tests at the level of 0.05, as the paper made them; in a run with guests as the units.

    Of one factor Kruskal–Wallis (within guests Friedman's), of ``pairs`` of its levels Dunn's test, of several factors
    their interaction.  ``*`` pairs a level with every other; ``others`` and a level are all pairs without it.
    """

    relation: Literal["significance"]
    factors: Annotated[tuple[str, ...], Field(min_length=1)]
    pairs: tuple[tuple[str, str], ...] = ()
    # significant, insignificant: measures for which an effect is to be found, or not
    significant: tuple[str, ...] = ()
    insignificant: tuple[str, ...] = ()
    within: str | None = None  # the same in each level of another factor by itself
    cells: Cells = Field(default_factory=dict)
    groups: dict[str, tuple[str, ...]] = Field(default_factory=dict)  # levels put together under new names


Test = Annotated[
    Bound | Compared | Order | Spread | Equivalence | Change | Steeper | Line | Mixed | Significance,
    Field(discriminator="relation"),
]


class Claim(_Model):
    """One conclusion."""

    name: str  # short and unique in its file
    where: str  # in the paper
    text: str  # what it says, in its words or close to them
    note: str = ""  # how it is tested, and what is ours in that
    # it compares what databases write, so that it is tested once more at one level of durability
    at_one_level: bool = False
    tests: Annotated[tuple[Test, ...], Field(min_length=1)]  # all must agree


class ClaimMeasure(_Model):
    """A measure of the file in words, and the unit in which its figures are."""

    title: str
    unit: Literal["ns", "us", "Mbit/s", "frames/s", "ratio", "share", "points", "op/s"]
    # the suite's measure that a run's figures are, ``{probe}`` in it being theirs; empty: worked out from several
    of: str = ""
    of_events: bool = False  # how many there are of what most trials may have none of: a median of 0 says little


class Printed(_Model):
    """A figure of the paper's text about its own machine, and the cell of its table that it is about."""

    where: str
    measure: str
    cells: Cells
    text: str


class ClaimFile(_Model):
    """The claims of one paper that one suite is about."""

    measures: dict[str, ClaimMeasure]  # that tests name
    factors: dict[str, str]  # how a level is written, as a format; an empty one is not written
    default: Cells = Field(default_factory=dict)  # levels of every test that does not name the factor
    # levels of a factor without which a test is not complete; an empty list is every level that there is
    needed: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    # factors that say which platform a figure is of. Only a test that names one compares two platforms.
    of_arms: tuple[str, ...] = ()
    claim: tuple[Claim, ...]
    printed: tuple[Printed, ...] = ()

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        names = [claim.name for claim in self.claim]
        if len(set(names)) != len(names):
            raise ValueError("two claims have one name")
        for claim in self.claim:
            for test in claim.tests:
                used = (*test.significant, *test.insignificant) if isinstance(test, Significance) else (test.measure,)
                for measure in used:
                    if measure not in self.measures:
                        raise ValueError(f"claim {claim.name}: measure = {measure!r} is not declared in this file")
                for factor in _factors_of(test):
                    if factor not in self.factors:
                        raise ValueError(f"claim {claim.name}: factor {factor!r} is not declared in this file")
        return self


def _factors_of(test: Test) -> set[str]:
    told, several = vars(test), ("cells", "of", "to", "than", "than_of", "than_to", "span", "factors", "alike")
    named = {factor for name in several for factor in told.get(name) or ()}
    return named | {told[name] for name in ("factor", "across", "within", "along") if told.get(name)}


@functools.cache
def claim_file(suite: str) -> ClaimFile:
    """What the papers conclude about a suite's subject. Raises ValueError: malformed; claim and field are named."""
    text = resources.files("virtgauge.reference").joinpath(f"{suite}_claims.toml").read_text(encoding="utf-8")
    return ClaimFile.model_validate(tomllib.loads(text))
