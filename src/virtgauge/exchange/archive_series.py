"""The series of an archive: of each host, platform, cell and measure the levels of all runs, and where they change.

A series goes on over kernels and versions of virtgauge, for what these change is what is looked for: a step says which
of them changed with it.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from virtgauge.analysis.change_points import step_limit
from virtgauge.analysis.estimate import Estimate
from virtgauge.analysis.running_steps import LEAST, WINDOW, running_steps, window_beside
from virtgauge.analysis.shift import shift_estimate
from virtgauge.errors import UsageError
from virtgauge.exchange.archive import Entry, read_entries
from virtgauge.exchange.levels import read_levels
from virtgauge.exchange.place import Place
from virtgauge.results.columns import Cell
from virtgauge.results.measure import Better, Measure

Values = npt.NDArray[np.float64]

CONFIDENCE = 0.95  # Of a step's interval, and that one which is told is none of chance
_KEY = ("measure", "probe", "factors", "settings", "host", "cpu", "arm", "platform", "emulated")
_OF_RUNS = ("run", "kernel", "version", "label", "level", "low", "high", "confidence", "repetitions")
_NEAR = 2  # Runs from a step, within which what changed with it did
_TOLD = {"kernel": "kernel", "version": "virtgauge"}  # What may change with a step, and how it is called
_ALIKE, _LEAST_ALIKE = 0.3, 20  # Correlation of neighbouring runs that is told, in series of so many


class Direction(enum.StrEnum):
    """Which way a step goes."""

    WORSE = "worse"
    BETTER = "better"
    CHANGED = "changed"  # of a measure of which neither way is better


@dataclasses.dataclass(frozen=True)
class Step:
    """A change of level."""

    after: int  # place of the last run before it in :attr:`Series.runs`
    size: Estimate  # later / earlier, of the runs beside it; the difference where figures may be 0
    direction: Direction
    beside: tuple[str, ...]  # what else changed there: ``kernel 6.1.0 → 6.18.0``

    @property
    def largeness(self) -> tuple[bool, float]:
        """For comparing: by the logarithm of a ratio, and any difference before those."""
        point = self.size.point or 0.0
        by_ratio = self.size.unit == "ratio" and point > 0
        return by_ratio, abs(math.log(point)) if by_ratio else abs(point)


@dataclasses.dataclass(frozen=True, eq=False)
class Series:
    """One figure over the runs that have it."""

    measure: Measure
    cell: Cell
    host: str  # its name in a fleet, else its processor
    arm: str  # the latest label of the platform
    of: Mapping[str, Any]  # what else it is one series by: the cell's settings, platform, processor
    emulated: bool
    runs: tuple[int, ...]  # their places in :attr:`ArchiveSeries.runs`
    levels: Values  # of each of them, in the measure's base unit
    ends: tuple[tuple[float | None, float | None, float | None, int], ...]  # low, high, confidence and repetitions
    steps: tuple[Step, ...] = ()
    doubtful: int = 0  # more that were found, no larger than single runs differ by or than what does not matter
    alike: bool = False  # whether neighbouring runs differ less than others do

    def level(self, place: int) -> Estimate:
        """Of one run, by its place in the series."""
        low, high, confidence, number = self.ends[place]
        unit, how = self.measure.quantity.unit, "median of the repetitions"
        return Estimate(float(self.levels[place]), low, high, confidence, number, unit, how)


@dataclasses.dataclass(frozen=True)
class RunLine:
    """One run of the archive."""

    label: str
    created_at: str


@dataclasses.dataclass(frozen=True)
class ArchiveSeries:
    """All series of an archive, those with the largest steps first."""

    place: str
    runs: tuple[RunLine, ...]  # in the order in which they were made
    without_levels: int  # how many more it holds of which there are no levels
    series: tuple[Series, ...]
    equivalent: float  # the largest change that does not matter, as a share

    @property
    def hosts(self) -> tuple[str, ...]:
        """In the order in which they come."""
        return tuple(dict.fromkeys(one.host for one in self.series))

    @property
    def steps(self) -> int:
        """How many there are in all."""
        return sum(len(one.steps) for one in self.series)

    @property
    def examined(self) -> int:
        """How many series are long enough to have a step."""
        return sum(len(one.runs) >= 2 * LEAST for one in self.series)

    @property
    def is_worse(self) -> bool:
        """Whether the latest step of a series is for the worse."""
        return any(one.steps[-1].direction is Direction.WORSE for one in self.series if one.steps)


def find_archive_series(place: Place, measures: Sequence[Measure], equivalent: float) -> ArchiveSeries:
    """Every series of these measures, and its steps.

    Args:
        equivalent: the largest change that does not matter, as a share.

    Raises:
        UsageError: there is no archive, or none with such figures.
    """
    entries = sorted(read_entries(place), key=lambda one: (one.created_at, one.archive))
    known = [one for one in entries if one.levels is not None]
    by_name = {one.full_name: one for one in measures}
    table = read_levels(place, [place.path(one.levels) for one in known if one.levels], by_name)
    rows = [row for row in _rows(table, known) if row["unit"] == by_name[row["measure"]].quantity.unit]
    if not rows:
        raise UsageError(
            f"{place.name}: no run has levels of {', '.join([*by_name][:3])}{' …' if len(by_name) > 3 else ''}",
            "name others with --measure (`virtgauge measures`), or archive the runs again: those of before have none",
        )
    found = [_series(row, by_name[row["measure"]]) for row in rows]
    scaled = [_scaled(one.levels) for one in found]
    places = running_steps(scaled, 1 - CONFIDENCE)
    told = [_with_steps(*each, equivalent) for each in zip(found, rows, scaled, places, strict=True)]
    return ArchiveSeries(
        place=place.name,
        runs=tuple(_labelled(known)),
        without_levels=len(entries) - len(known),
        series=tuple(sorted(told, key=_rank, reverse=True)),
        equivalent=equivalent,
    )


def _rows(table: pa.Table, entries: Sequence[Entry]) -> Iterator[dict[str, Any]]:
    """Of each series the key, and of its runs, in order, the rest as lists."""
    run = pc.index_in(table["archive"], value_set=pa.array([one.archive for one in entries], pa.string()))
    ordered = table.append_column("run", run).filter(pc.is_valid(run)).sort_by("run")
    grouped = ordered.group_by([*_KEY, "unit"], use_threads=False).aggregate([(name, "list") for name in _OF_RUNS])
    yield from grouped.to_pylist()


def _series(row: Mapping[str, Any], measure: Measure) -> Series:
    factors, settings = (_parsed(row[name]) for name in ("factors", "settings"))
    if len(set(row["run_list"])) != len(row["run_list"]):
        raise UsageError(f"levels of {measure.full_name} are twice in one run's file", "archive that run anew")
    return Series(
        measure,
        Cell(measure.suite, row["probe"], tuple((factor, str(level)) for factor, level in factors.items())),
        host=row["host"] or row["cpu"] or "unknown",
        arm=row["label_list"][-1],
        of=settings | {"platform": row["platform"], "processor": row["cpu"], "arm": row["arm"]},
        emulated=row["emulated"],
        runs=tuple(row["run_list"]),
        levels=np.asarray(row["level_list"], dtype=np.float64),
        ends=tuple(zip(*(row[f"{name}_list"] for name in ("low", "high", "confidence", "repetitions")), strict=True)),
    )


def _parsed(text: str) -> dict[str, Any]:
    """An object of JSON; what is none stands as it is."""
    try:
        found = json.loads(text or "{}", parse_constant=str)
    except (ValueError, RecursionError):
        found = None
    return {str(name): value for name, value in found.items()} if isinstance(found, dict) else {"": text}


def _scaled(levels: Values) -> Values:
    """On a scale on which a change is a difference: logarithms, where all are positive."""
    return np.log(levels) if (levels > 0).all() else levels


def _with_steps(one: Series, row: Mapping[str, Any], levels: Values, found: Sequence[int], equivalent: float) -> Series:
    """With the steps that are larger than what runs differ by anyway, and than what does not matter.

    The least of those that are not is taken out, and its neighbours seen anew.
    """
    by_ratio, cuts = levels is not one.levels, [*found]
    kept = list[tuple[int, Estimate]]()
    while cuts:
        kept, excess = [], list[float]()
        ends = [0, *(cut + 1 for cut in cuts), levels.size]
        for cut, start, stop in zip(cuts, ends, ends[2:], strict=False):
            before, after = (levels[part].tolist() for part in window_beside(cut + 1, start, stop))
            size = shift_estimate(before, after, one.measure.quantity.unit, CONFIDENCE)
            small = math.log1p(equivalent) if by_ratio else equivalent * abs(float(np.median(before)))
            limit = max(step_limit([*before, *after], len(before), len(after)), small, 1e-12)
            excess.append(abs(size.point or 0.0) / limit)
            kept.append((cut, size))
        least = excess.index(min(excess))
        if excess[least] > 1:
            break
        del cuts[least], kept[least]
    steps = [
        Step(
            cut,
            size.mapped(math.exp, "ratio") if by_ratio else size,
            _direction(one.measure, size.point or 0.0),
            tuple(_beside(row, cut)),
        )
        for cut, size in kept
    ]
    return dataclasses.replace(
        one, steps=tuple(steps), doubtful=len(found) - len(steps), alike=bool(steps) and _alike(levels, cuts)
    )


def _direction(measure: Measure, change: float) -> Direction:
    if measure.better is Better.NEITHER:
        return Direction.CHANGED
    return Direction.BETTER if (change > 0) == (measure.better is Better.HIGHER) else Direction.WORSE


def _beside(row: Mapping[str, Any], cut: int) -> Iterator[str]:
    """What was of one kind before a step and is of another after it, and changed at that place or next to it."""
    for name, called in _TOLD.items():
        facts = row[f"{name}_list"]
        before, after = (
            Counter(part).most_common(1)[0][0]
            for part in (facts[max(cut + 1 - WINDOW, 0) : cut + 1], facts[cut + 1 : cut + 1 + WINDOW])
        )
        near = facts[max(cut - _NEAR, 0) : cut + _NEAR + 2]
        if before != after and len(set(near)) > 1:
            yield f"{called} {before or 'unknown'} → {after or 'unknown'}"


def _alike(levels: Values, cuts: Sequence[int]) -> bool:
    """Whether neighbours are, beside the levels between the steps, as runs of one day may be."""
    parts = np.split(levels, [cut + 1 for cut in cuts])
    left = np.concatenate([part - np.median(part) for part in parts])
    spread = float((left**2).sum())
    return levels.size >= _LEAST_ALIKE and spread > 0 and float((left[1:] * left[:-1]).sum()) / spread > _ALIKE


def _labelled(entries: Sequence[Entry]) -> Iterator[RunLine]:
    names = Counter(one.run for one in entries)
    for one in entries:
        date = one.created_at[:19].replace("T", " ")
        yield RunLine(one.run if names[one.run] == 1 else f"{one.run} ({date})", one.created_at)


def _rank(one: Series) -> tuple[bool, tuple[bool, float]]:
    """Those with steps, and of them the largest ratio."""
    return bool(one.steps), max((step.largeness for step in one.steps), default=(False, 0.0))
