"""What a measure is: one kind of figure, with its suite, unit and direction, and where a trial has it."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import NoneType
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from virtgauge.results.quantities import DURATION, Quantity

if TYPE_CHECKING:
    from virtgauge.results.columns import Cell
    from virtgauge.results.table import ResultTable

Column = npt.NDArray[np.float64]  # A figure of each of some trials; NaN where one has none


class Better(enum.StrEnum):
    """Which of two figures one would rather have."""

    LOWER = "lower"
    HIGHER = "higher"
    NEITHER = "neither"

    @property
    def clause(self) -> str:
        """``lower is better``; empty where neither is."""
        return "" if self is Better.NEITHER else f"{self.value} is better"

    def says(self, higher: bool) -> Literal["better", "worse", "changed"]:
        """What a figure is that is higher than another, or lower."""
        if self is Better.NEITHER:
            return "changed"
        return "better" if higher == (self is Better.HIGHER) else "worse"


@dataclasses.dataclass(frozen=True)
class Field:
    """A number within a trial's result."""

    path: tuple[str, ...]  # of keys, from the outermost
    factor: float = 1.0  # makes the measure's base unit of it
    # at the end of the path is a list, of which the first entry counts that has this value of this key; of a list of
    # numbers without it, their mean
    where: tuple[str, float | str] | None = None
    item: str = ""  # the key of the number within that entry
    flag: bool = False  # whether it is no number but true or false, read as 1 and 0

    def number(self, value: object) -> float | None:
        """The number of what is found at the path's end, in the base unit; None where it is none."""
        if self.where is not None:
            key, wanted = self.where
            entries = value if isinstance(value, list) else []
            found = (one.get(self.item) for one in entries if isinstance(one, Mapping) and one.get(key) == wanted)
            value = next((one for one in found if one is not None), None)
        elif isinstance(value, list) and value and all(isinstance(one, int | float) for one in value):
            value = sum(value) / len(value)
        if not isinstance(value, int | float) or isinstance(value, bool) != self.flag:
            return None
        return float(value) * self.factor

    def numbers(self, values: Sequence[object]) -> Column:
        """The figures of many values, as :meth:`number` has one; NaN where there is none."""
        plain = {bool, NoneType} if self.flag else {int, float, NoneType}
        if self.where is None and {*map(type, values)} <= plain:
            return np.array(values, dtype=np.float64) * self.factor
        found = map(self.number, values)
        return np.array([np.nan if one is None else one for one in found], dtype=np.float64)


@dataclasses.dataclass(frozen=True)
class Statistic:
    """A statistic of a trial's histogram of durations, in nanoseconds."""

    histogram: str  # by its name in the ledger
    name: str  # of the statistic; see :data:`virtgauge.ledger.records.STATISTICS`
    otherwise: Field | None = None  # where a trial that has no such histogram tells the figure
    least: int = 0  # values of which it is told; tails take more of themselves


@dataclasses.dataclass(frozen=True)
class Derived:
    """A figure that is computed from others of the same trial."""

    of: tuple[Field | Statistic | Relative, ...]  # the others
    function: Callable[..., Column]  # of their columns, which are of equal length; makes a column of that length


@dataclasses.dataclass(frozen=True)
class Relative:
    """A figure over that of the same repetition in another cell, of the same arm or of the reference."""

    of: Field | Statistic | Derived  # both figures
    # of a cell the other, and by what its figure is multiplied; of several the first that has a figure above 0
    to: Callable[[Cell], Sequence[tuple[Cell, float]]]
    of_reference: bool = False  # whether the other figure is the reference's


@dataclasses.dataclass(frozen=True)
class Across:
    """A figure that is computed from others of the same cell and arm."""

    # of the table, a cell and an arm makes the figures by block, or says why there are none
    function: Callable[[ResultTable, Cell, str], Mapping[int, float] | str]


Source = Field | Statistic | Derived | Relative | Across


def field(*path: str, factor: float = 1.0) -> Field:
    """A number within a result by the keys that lead to it; see :class:`Field`."""
    return Field(path, factor)


class Watched(NamedTuple):
    """What one trial tells of the rare events for which it watched."""

    seconds: float  # so long
    # clusters of events in it, at least and at most
    least: int
    most: int
    peaks: tuple[float, ...]  # the largest of each cluster among those sizes that were kept, in the base unit
    floor: float  # no larger size than this is missing among them


@dataclasses.dataclass(frozen=True)
class Watch:
    """How trials that watch for rare events are read, so that a figure may be required over hours."""

    paths: tuple[tuple[str, ...], ...]  # of the parts of a result that are needed
    read: Callable[..., Watched]  # of those parts
    figure: Literal["size", "number", "largest"]  # that of the largest event, how many there were, or another largest


@dataclasses.dataclass(frozen=True)
class Measure:
    """One kind of figure."""

    suite: str  # whose trials have it
    name: str  # unique within the suite: ``sleep_lateness.p99``
    quantity: Quantity  # what it is, with its units
    better: Better  # which way
    meaning: str  # in a clause
    probes: frozenset[str]  # of the trials that have it
    source: Source  # where a trial has it, in the base unit
    headline: bool = False  # whether it is among the few by which runs are compared when none is named
    lacking: str = ""  # why a valid trial may have no such figure, and what would help, in a clause
    never: Callable[[Cell], str] = lambda cell: ""  # why no trial of a cell has it, in a clause; empty where one may
    by_ratio: bool = False  # whether repetitions are summed up as ratios are, by the median of their logarithms
    # whether it is compared with the reference by the difference, because its ratio says little
    by_difference: bool = False
    watch: Watch | None = None  # None where a trial watches for no time
    bounded_by: frozenset[str] = frozenset()  # flags of trials whose figure is a lower bound
    below_by: frozenset[str] = frozenset()  # flags of trials without the figure, for it is below all that was tried

    @property
    def full_name(self) -> str:
        """``timing.sleep_lateness.p99``."""
        return f"{self.suite}.{self.name}"

    def fits(self, cell: Cell) -> bool:
        """Whether a trial of the cell may have it."""
        return cell.suite == self.suite and cell.probe in self.probes and not self.never(cell)

    @property
    def relatives(self) -> list[Relative]:
        """Those parts of its source that are relative to other figures."""
        parts = self.source.of if isinstance(self.source, Derived) else (self.source,)
        return [one for one in parts if isinstance(one, Relative)]

    def bases(self, cell: Cell, arm: str, reference: str) -> set[tuple[Cell, str]]:
        """The cells, each with an arm, to whose figures an arm's in a cell may be relative."""
        return {(to, reference if one.of_reference else arm) for one in self.relatives for to, _ in one.to(cell)}

    @property
    def histogram(self) -> str | None:
        """Whose statistic it is; None of any other figure."""
        return self.source.histogram if isinstance(self.source, Statistic) else None

    @property
    def statistic(self) -> str:
        """The name of the histogram's statistic; empty of any other figure."""
        return self.source.name if isinstance(self.source, Statistic) else ""


STATISTICS = {
    "p50": "median",
    "p90": "90th percentile",
    "p99": "99th percentile",
    "p99.9": "99.9th percentile",
    "p99.99": "99.99th percentile",
    "max": "maximum",
    "min": "minimum",
    "mean": "mean",
    "mad": "median absolute deviation",
    "half_iqr": "half the interquartile range",
}


def measures(
    suite: str,
    probes: frozenset[str] | None,
    *told: tuple[str, Quantity, Better, str, Source],
    headline: Collection[str] = (),
    lacking: str = "",
) -> Iterator[Measure]:
    """Measures by name, quantity, what is better, meaning and source.

    Without ``probes`` each has the probe that its name begins with; ``headline`` names those that runs are compared by.
    """
    for name, quantity, better, meaning, source in told:
        own = frozenset({name.partition(".")[0]}) if probes is None else probes
        is_headline = name in headline
        yield Measure(suite, name, quantity, better, meaning, own, source, headline=is_headline, lacking=lacking)


def durations(
    suite: str,
    name: str,
    meaning: str,
    probes: frozenset[str],
    histogram: str,
    headline: str = "",
    statistics: Sequence[str] = tuple(STATISTICS),
    least: int = 0,
) -> Iterator[Measure]:
    """A measure for each statistic of a histogram of durations; ``headline`` names those that runs are compared by.

    The middle of fewer values than ``least``, and how they lie around it, is not told.
    """
    for statistic in statistics:
        middle = statistic in ("p50", "half_iqr", "mad")
        yield Measure(
            suite,
            f"{name}.{statistic}",
            DURATION,
            Better.NEITHER if statistic == "min" and name == "sleep_lateness" else Better.LOWER,
            f"{STATISTICS[statistic]} of {meaning}",
            probes,
            Statistic(histogram, statistic, least=least if middle else 0),
            headline=statistic in headline.split(),
            lacking="too few values for the quantile, or none at all: longer trials would help, more trials would not",
        )
