"""The figures that claims are tested on, whosever they are: a table of estimates by measure and levels of factors."""

from __future__ import annotations

import bisect
import dataclasses
import functools
import itertools
import math
import statistics
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import numpy.typing as npt
from scipy import special

from virtgauge.analysis.comparison import aa_band, band_of, paired_difference, paired_ratio, unpaired_ratio
from virtgauge.analysis.estimate import Estimate, attainable_confidence, expanded_tail, median_estimate
from virtgauge.analysis.factor_tests import LEVEL
from virtgauge.analysis.packets import rate_text
from virtgauge.claims.model import Cells, ClaimFile, Level, Range
from virtgauge.results.formatting import share
from virtgauge.results.quantities import DURATION, significant

_Made = TypeVar("_Made")
_RESAMPLES = 10_000  # so many, for the interval of one of many lines ends where one of a thousand does
AS_IS = "as-is"  # Flushes that take as long as the disk takes
LIMITED = "what it was measured with may be what limits it"


@dataclasses.dataclass(frozen=True, eq=False)
class Figure:
    """One figure."""

    measure: str  # of the claims' file
    levels: Mapping[str, Level]  # by which two figures are paired
    # with its interval over repetitions; of a paper's figure, an interval without width, or one with the ends that it
    # states
    estimate: Estimate
    # the repetitions by block; empty of a paper's
    values: Mapping[int, float] = dataclasses.field(default_factory=dict)
    # further levels by which figures are chosen, and which do not tell places apart
    facts: Mapping[str, Level] = dataclasses.field(default_factory=dict)
    arm: str = ""  # that it is of, or the paper's platform; ``label`` is its name where that is worth saying
    label: str = ""
    emulated: bool = False  # it shows that the method works, and decides nothing
    machine: str = ""  # the computer that it was measured on; empty of a paper's
    existing: bool = False  # of a server that was there already, with its own version, settings and path to its client
    disk: str = ""  # what the run made its flushes cost, or :data:`AS_IS`, where it waited for them
    may_be_higher: str = ""  # why it is at least so much; empty where it is what it is
    # what each repetition then is at most, by block; empty where that is not known
    most: Mapping[int, float] = dataclasses.field(default_factory=dict)
    # the values of the A/A arm and of the reference in the same cell; empty where there are none
    identical: tuple[Mapping[int, float], Mapping[int, float]] = ({}, {})

    @property
    def point(self) -> float:
        """The estimate's point, for sorting: figures of this table have one."""
        return self.estimate.point or 0.0

    def level(self, factor: str) -> Level | None:
        """The level of a factor; None where it has none here."""
        return self._every_level.get(factor)

    @functools.cached_property
    def _every_level(self) -> Mapping[str, Level | None]:
        return {**self.facts, **self.levels, "arm": self.label or None}


class Apart(NamedTuple):
    """How far two arms are apart: of a ratio as its logarithm, else in the figure's unit."""

    seem: float  # at most
    surely: float  # at least; 0 where they may be alike


@dataclasses.dataclass(frozen=True, eq=False)
class Figures:
    """A table of figures, and how two of them compare."""

    file: ClaimFile  # whose words are used
    figures: Sequence[Figure]  # all
    nominal: float | None = None  # the confidence wanted of an interval; None of a paper's own, taken as they are
    # why there is no figure of a measure at some levels
    missing_reason: Callable[[str, Cells], str] = lambda measure, cells: "the paper prints no figure of this"
    # by why not all of it decides, what was measured: where none of these figures is, or where one is of a part of it
    left_out: Mapping[str, Figures] = dataclasses.field(default_factory=dict)
    of_two_arms: Figures | None = None  # those by which arms are compared; None where it is these
    # what was made of them, for it is asked for again and again (:meth:`once`)
    _known: dict[tuple[object, ...], Any] = dataclasses.field(default_factory=dict, init=False, repr=False)

    @functools.cached_property
    def _figures(self) -> dict[str, list[Figure]]:
        return {group[0].measure: group for group in grouped(self.figures, lambda one: one.measure)}

    @property
    def exact(self) -> bool:
        """Whether these are a paper's own."""
        return self.nominal is None

    def place(self, figure: Figure, without: Iterable[str] = (), alike: Iterable[str] | None = None) -> object:
        """What two figures must have in common to be compared, leaving some factors aside."""
        left_out = {*without, *self.file.of_arms}
        names = [name for name in sorted(figure.levels) if name not in left_out] if alike is None else alike
        of_one_arm = "arm" in alike if alike is not None else not {*without} & {*self.file.of_arms}
        return (figure.arm if of_one_arm else "", *((name, figure.level(name)) for name in names if name != "arm"))

    def pairs(
        self,
        first: Iterable[Figure],
        second: Iterable[Figure],
        without: Iterable[str],
        alike: Iterable[str] | None = None,
    ) -> Iterator[tuple[Figure, Figure]]:
        """Figures of both that stand at one place (:meth:`place`), but for themselves."""
        place = functools.partial(self.place, without=without, alike=alike)
        there = {place(some[0]): some for some in grouped(second, place)}
        for one in first:
            yield from ((one, other) for other in there.get(place(one), ()) if other is not one)

    def select(self, measure: str, cells: Cells, which: str = "each") -> Sequence[Figure]:
        """Figures of a measure at some levels: all, or the ``lowest`` or ``highest`` alone."""
        return self.once(lambda: self._select(measure, cells, which), "figures", measure, which, *cells.items())

    def levels(self, factor: str, measure: str, cells: Cells) -> Collection[Level | None]:
        """Those of a factor that figures of a measure at some levels have, the first one's first."""

        def found() -> dict[Level | None, None]:
            return dict.fromkeys(one.level(factor) for one in self.select(measure, cells))

        return self.once(found, "levels", factor, measure, *cells.items())

    def _places(self, factor: str, measure: str) -> Mapping[Level | None, Collection[int]]:
        """Of all figures of a measure: at which places those at each level of a factor stand."""
        places: dict[Level | None, list[int]] = {}
        for place, one in enumerate(self._figures.get(measure, ())):
            places.setdefault(one.level(factor), []).append(place)
        return places

    def once(self, make: Callable[[], _Made], *key: object) -> _Made:
        """What is made of these figures, by a name and what tells it from others of the name."""
        if key not in self._known:
            self._known[key] = make()
        return cast("_Made", self._known[key])

    def _select(self, measure: str, cells: Cells, which: str) -> list[Figure]:
        wanted, figures = self.file.default | cells, self._figures.get(measure, [])
        places = set(range(len(figures)))
        for name, level in wanted.items():
            by_level = self.once(functools.partial(self._places, name, measure), "places", name, measure)
            if name not in cells and by_level.keys() == {None}:
                continue  # figures of this measure do not have the factor
            fitting = (some for own, some in by_level.items() if fits(own, level, which == "each"))
            places.intersection_update(itertools.chain.from_iterable(fitting))
        found = [figures[place] for place in sorted(places)]
        for name, level in wanted.items():
            if isinstance(level, Range) and level.pick is not None:
                found = self._picked(found, name, level.pick)
        return found if which not in ("lowest", "highest") else self._extreme(found, which)

    def _picked(self, found: Sequence[Figure], factor: str, pick: str) -> list[Figure]:
        chosen = []
        for group in grouped(found, lambda one: self.place(one, (factor,))):
            if pick == "median":
                blocks = {block for one in group for block in one.values}
                medians = {
                    block: statistics.median(one.values[block] for one in group if block in one.values)
                    for block in sorted(blocks)
                }
                levels = {name: level for name, level in group[0].levels.items() if name != factor}
                estimate = measured(medians, group[0].estimate.unit, self.wanted())
                more = max(one.may_be_higher for one in group)
                middle = dataclasses.replace(group[0], levels=levels, estimate=estimate, values=medians)
                chosen.append(dataclasses.replace(middle, may_be_higher=more, most={}))
            else:
                best = min if pick in ("lowest", "smallest") else max
                by_level = pick in ("lowest", "highest")
                # Of equal figures the smallest is the first, and the largest the last: they are two all the same.
                ordered = group[::-1] if pick == "largest" else group
                chosen.append(best(ordered, key=lambda one: _number(one.level(factor)) if by_level else one.point))
        return chosen

    def _extreme(self, found: Sequence[Figure], which: str) -> list[Figure]:
        best = min if which == "lowest" else max
        if self.exact:  # of a figure with one end that end is its lowest or highest, and the other is not stated
            ends = [(one, one.estimate.low if which == "lowest" else one.estimate.high) for one in found]
            found = [
                dataclasses.replace(one, estimate=exact(end, one.estimate.unit))
                for one, end in ends
                if end is not None and math.isfinite(end)
            ]
        return [best(found, key=lambda one: one.point)] if found else []

    def estimate(self, one: Figure, among: int = 1) -> Estimate:
        """A figure, of a run with the interval that it has as one among several (:meth:`wanted`).

        Its ends are values that were measured: between two ticks of a coarse clock there is none, and an end that lies
        there (the median of an even number) would surely exclude the tick below.
        """
        if self.exact:
            return one.estimate
        wanted, found = self.wanted(among), one.estimate
        if among > 1:
            found = self.once(lambda: self._within_ticks(one, wanted), "own", one, wanted)
        if not one.may_be_higher or found.high is None:
            return found
        most = end_or(math.inf, measured(one.most, found.unit, wanted).high)
        return dataclasses.replace(found, high=max(found.high, most))

    @staticmethod
    def _within_ticks(one: Figure, wanted: float) -> Estimate:
        found, values = measured(one.values, one.estimate.unit, wanted), sorted(one.values.values())
        if found.low is None or found.high is None:
            return found
        low = values[max(bisect.bisect_right(values, found.low) - 1, 0)]
        high = values[min(bisect.bisect_left(values, found.high), len(values) - 1)]
        return dataclasses.replace(found, low=low, high=high)

    def ratio(self, one: Figure, other: Figure, among: int = 1) -> Estimate:
        """Of two figures; of a run's, formed within each block."""
        if self.exact:
            return self.once(lambda: unpaired_ratio(one.estimate, other.estimate), "ratio", one, other)
        wanted = self.wanted(among)

        def found() -> Estimate:
            return _opened(functools.partial(paired_ratio, nominal=wanted), one, other, 0.0)

        return self.once(found, "ratio", one, other, wanted)

    def difference(self, one: Figure, other: Figure, among: int = 1) -> Estimate:
        """The difference of two figures, paired as their ratio is."""
        if self.exact:
            return exact(one.point - other.point, one.estimate.unit)
        wanted, unit = self.wanted(among), one.estimate.unit

        def found() -> Estimate:
            return _opened(functools.partial(paired_difference, unit=unit, nominal=wanted), one, other, -math.inf)

        return self.once(found, "difference", one, other, wanted)

    def wanted(self, among: int = 1) -> float:
        """The confidence of an interval that decides by itself, where it is one among several that might have.

        A bound is broken to one side, so that both tails of the nominal interval together are the chance to share.
        Over the cells of a paper's table an interval has the confidence that belongs to the level of its tests.
        """
        nominal = 1 - LEVEL if self.nominal is None else self.nominal
        return max(nominal, 1 - 2 * (1 - nominal) / among)

    def firm(self, estimate: Estimate, among: int = 1) -> Estimate:
        """An estimate to decide by: without its interval where so few values do not give it the confidence."""
        stated = self.exact and estimate.confidence is None
        if stated or estimate.reaches(self.wanted(among)):
            return estimate
        return dataclasses.replace(estimate, low=None, high=None, confidence=None)

    def identical(self, figure: Figure, *, is_ratio: bool) -> Apart | None:
        """How far identical arms (A/A) are apart; None where that is not known."""
        if self.nominal is None:
            return None
        scale: Callable[[float], float] = math.log if is_ratio else float
        make: Callable[[], Estimate] = functools.partial(paired_ratio, *figure.identical, self.nominal)
        if not is_ratio:
            make = functools.partial(paired_difference, *figure.identical, figure.estimate.unit, self.nominal)
        found = self.once(make, "identical", figure, is_ratio)
        band = aa_band(found) if is_ratio else band_of([found])
        if band is None or found.low is None or found.high is None:
            return None
        return Apart(scale(band), max(scale(found.low), -scale(found.high), 0.0))

    def text(self, figure: Figure, without: Iterable[str] = (), only: Iterable[str] | None = None) -> str:
        """Where a figure stands: ``TSC, Host, Idle System``."""
        names = {*self.file.factors} if only is None else {*only}
        names.difference_update(without)
        said = [
            format_level(pattern, level)
            for name, pattern in self.file.factors.items()
            if name in names and (level := figure.level(name)) is not None
        ]
        return ", ".join(part for part in said if part)

    def pair_text(self, one: Figure, other: Figure, change: Estimate, *, is_ratio: bool = True) -> str:
        """``TSC ÷ System Call, Host, Idle System, median: 0.40× (0.39 to 0.41)``."""
        differ = [name for name in self.file.factors if one.level(name) != other.level(name)]
        # without a name it is the one that the conclusion is judged for
        first, second = (self.text(figure, only=differ) or "this platform" for figure in (one, other))
        shared, said = self.text(one, without=differ), self.file.measures[one.measure]
        size = told(change, "ratio" if is_ratio else "points" if said.unit == "share" else said.unit)
        where = f"{first} {'÷' if is_ratio else '−'} {second}", shared, said.title
        return f"{', '.join(filter(None, where))}: {size}"

    def listed(self, changes: Mapping[str | bool, Estimate], factor: str) -> str:
        """``PostgreSQL 1.3× (1.2× to 1.4×), MongoDB …``, by the level of a factor."""
        pattern = self.file.factors[factor] or "{}"
        return ", ".join(f"{format_level(pattern, level)} {told(one, 'ratio')}" for level, one in changes.items())

    def explained_by_line(self, levels: Sequence[float], group: Sequence[Figure], among: int = 1) -> Estimate:
        """The share of the variance of medians that a straight line explains, with an interval over repetitions."""
        point = statistics.correlation(levels, [one.point for one in group]) ** 2
        if self.exact:
            return exact(point, "share")
        blocks = sorted(set.intersection(*(set(one.values) for one in group)))
        n, nominal = len(blocks), self.wanted(among)
        if n < 2:
            return Estimate.bare(point, "share", "fewer than two common repetitions", n)
        values = np.array([[one.values[block] for block in blocks] for one in group])
        medians = np.array([_resampled_medians(row) for row in values])
        medians, along = medians - medians.mean(axis=0), np.array(levels) - statistics.fmean(levels)
        spread = (medians**2).sum(axis=0) * (along**2).sum()
        shares = (along @ medians) ** 2 / np.where(spread > 0, spread, 1)
        tail = expanded_tail(n, nominal)
        low, high = np.quantile(shares, (tail, 1 - tail))
        # Noise takes from what a line explains, and from a resample's once more: what the figures show is too little.
        high = min(1.0, max(high, 2 * point - low, high + 2 * (point - float(np.median(shares)))))
        confidence = min(nominal, attainable_confidence(n))
        return Estimate(point, float(low), float(high), confidence, n, "share", "bootstrap over repetitions")


def _opened(
    compare: Callable[[Mapping[int, float], Mapping[int, float]], Estimate], one: Figure, other: Figure, least: float
) -> Estimate:
    """How two figures compare, with ends as far out as what may be higher may be; open where nothing says how far."""
    found = compare(one.values, other.values)
    if not found.has_interval:
        return found
    low, high = found.low, found.high
    if other.may_be_higher:
        low = least if is_open(one, other) else end_or(least, compare(one.values, other.most).low)
    if one.may_be_higher:
        high = math.inf if is_open(one, other) else end_or(math.inf, compare(one.most, other.values).high)
    return dataclasses.replace(found, low=low, high=high)


def is_open(*figures: Figure) -> bool:
    """Whether nothing says how much higher one of them may be; between arms nothing does.

    What identical arms differ by is held against how far apart two arms were found, not against how near they may be.
    """
    arms = {one.arm for one in figures}
    return any(one.may_be_higher and (len(arms) > 1 or not one.most) for one in figures)


def end_or(unknown: float, known: float | None) -> float:
    """An interval's end; the other where there is none."""
    return unknown if known is None else known


def _resampled_medians(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The medians of resamples, of which value ``order[i]`` has the i-th place where so many draws are no larger."""
    n, order = len(values), np.argsort(values)
    drawn = np.array([*itertools.accumulate(_times_drawn(n)[order])])  # seven times as fast as to sort resamples
    lower, upper = (values[order[(drawn <= place).sum(axis=0, dtype=np.int32)]] for place in ((n - 1) // 2, n // 2))
    return np.asarray((lower + upper) / 2)


@functools.lru_cache(maxsize=4)
def _times_drawn(n: int) -> npt.NDArray[np.int32]:
    """How often each of n values is in each resample."""
    drawn = np.random.default_rng(0).integers(n, size=(_RESAMPLES, n)) + n * np.arange(_RESAMPLES)[:, None]
    return np.bincount(drawn.ravel(), minlength=n * _RESAMPLES).reshape(_RESAMPLES, n).T.astype(np.int32)


def chance_of_line(figures: int, level: float) -> float:
    """The share that a straight line explains of unrelated figures, normally distributed, with that probability."""
    t = float(special.stdtrit(figures - 2, 1 - level / 2))
    return t**2 / (t**2 + figures - 2)


def fits(level: Level | None, wanted: Level, narrower: bool = False) -> bool:
    """Whether a level is meant.  What is said of each of a range is also said of a part of it."""
    if isinstance(level, tuple):
        return any(fits(one, wanted, narrower) for one in level)
    if isinstance(wanted, Range):
        if level is None or (isinstance(level, bool) and math.isfinite(wanted.at_least)):
            return False
        return wanted.includes(level) or (narrower and isinstance(level, Range) and level.includes(wanted))
    if isinstance(level, Range):
        return narrower and isinstance(wanted, int | float) and level.includes(wanted)
    return level in wanted if isinstance(wanted, tuple) else level == wanted


def _number(level: Level | None) -> float:
    return float(level) if isinstance(level, int | float) else 0.0


def incomparable(figures: Collection[Figure]) -> str:
    """Why figures together say nothing of platforms; empty where they do.

    They are of one computer; of several arms, of servers that the run set up alike or that were all there already; and
    where writes waited for a disk that the run made, of one arm and one such disk: made alike for two arms, it decides
    as much as made to differ.
    """
    machines = dict.fromkeys(one.machine for one in figures)
    if len(machines) > 1:
        return f"measured on different computers ({'; '.join(machines)})"
    if len({one.arm for one in figures}) > 1 and len({one.existing for one in figures}) > 1:
        return "one server was there already, with another version, settings and path to its client"
    waiting = [one for one in figures if one.disk]
    disks = dict.fromkeys(one.disk for one in waiting)
    if len(disks) > 1:
        return f"their flushes were made to differ ({'; '.join(disks)})"
    if disks.keys() - {AS_IS} and len({one.arm for one in waiting}) > 1:
        return f"their flushes were made alike ({'; '.join(disks)})"
    return ""


def grouped(figures: Iterable[Figure], key: Callable[[Figure], object]) -> list[list[Figure]]:
    """Figures that share a key, in the order of the first of each."""
    groups: dict[object, list[Figure]] = {}
    for one in figures:
        groups.setdefault(key(one), []).append(one)
    return list(groups.values())


def measured(values: Mapping[int, float], unit: str, nominal: float) -> Estimate:
    """The median over repetitions with its interval."""
    return median_estimate(list(values.values()), unit, nominal)


def mean_change(changes: Sequence[Estimate], rising: bool) -> Estimate:
    """By what factor figures change on the average: the mean of the logarithms, or of their sizes (up or down)."""

    def mean(sizes: Sequence[float]) -> float:
        return math.exp(statistics.fmean(sizes))

    sized: Callable[[float], float] = float if rising else abs
    points = [sized(math.log(one.point)) for one in changes if one.point]
    ends = []
    for one in changes:
        if one.low and one.high:
            low, high = math.log(one.low), math.log(one.high)
            sizes = sorted((sized(low), sized(high)))
            ends.append((0.0 if not rising and low <= 0 <= high else sizes[0], sizes[1]))
    if len(ends) < len(changes):
        return Estimate.bare(mean(points), "ratio", "one of them has no interval", len(changes))
    low, high = mean([low for low, _ in ends]), mean([high for _, high in ends])
    confidences = [one.confidence for one in changes if one.confidence is not None]
    confidence = min(confidences, default=None)
    return Estimate(mean(points), low, high, confidence, len(changes), "ratio", "mean of logarithms over cells")


def exact(value: float, unit: str, high: float | None = None) -> Estimate:
    """What a paper states: a value, or two ends."""
    top = value if high is None else high
    point = top if math.isinf(value) else value
    return Estimate(point, value, top, None, 1, unit, "stated in the paper")


def format_level(pattern: str, level: Level) -> str:
    """A level in words; empty where its factor is not written."""
    if not pattern:
        return ""
    if isinstance(level, Range):
        ends = (pattern.format(end) for end in (max(level.at_least, 0.0), min(level.at_most, 1.0)))
        return " to ".join(ends).replace("%", " %")
    if isinstance(level, tuple):
        return " or ".join(format_level(pattern, one) for one in level)
    return pattern.format(level).replace("%", " %")


def number_text(value: float, unit: str) -> str:
    """A value of a unit in words."""
    if unit in ("ns", "us"):
        return DURATION.text(value * (1e3 if unit == "us" else 1.0))
    if unit == "Mbit/s":
        return rate_text(value * 1e6)
    if unit == "share":
        return share(value)
    if unit == "points":
        return f"{value * 100:+.2g} points"
    return f"{significant(value)}×" if unit == "ratio" else f"{significant(value)} {unit}"


def told(estimate: Estimate, unit: str) -> str:
    """``587 Mbit/s (580 Mbit/s to 592 Mbit/s)``; of what a paper states, ``above 96.0 %``."""
    if estimate.point is None:
        return estimate.method
    point = number_text(estimate.point, unit)
    low, high = estimate.low, estimate.high
    if low is None or high is None:
        return f"{point} (no interval)"
    if low == high and estimate.confidence is None:
        return point
    if low in (0, -math.inf) and math.isinf(high):
        return f"{point} (no interval)"
    if math.isinf(high) or math.isinf(low):
        return f"above {number_text(low, unit)}" if math.isinf(high) else f"up to {number_text(high, unit)}"
    ends = f"{number_text(low, unit)} to {number_text(high, unit)}"
    return ends if estimate.confidence is None and estimate.point in (low, high) else f"{point} ({ends})"
