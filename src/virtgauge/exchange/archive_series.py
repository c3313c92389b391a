"""The series of an archive: of each host, platform, cell and measure the levels of all runs, and where they change.

A series goes on over kernels and versions of virtgauge, for what these change is what is looked for: a step says what
of all that was recorded changed with it.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from virtgauge.analysis.running_steps import LEAST, running_steps, runs_needed
from virtgauge.errors import UsageError
from virtgauge.exchange.archive_steps import CONFIDENCE, NEAR, Facts, Series, alternating, with_steps
from virtgauge.exchange.entries import Entry, read_entries, read_levels
from virtgauge.exchange.place import Place
from virtgauge.ledger.records import run_labels
from virtgauge.results.columns import Cell
from virtgauge.results.formatting import first_of
from virtgauge.results.measure import Measure

_KEY = ("measure", "probe", "factors", "settings", "host", "cpu", "arm", "platform", "emulated")
_OF_RUNS = ("run", "kernel", "version", "label", "level", "low", "high", "confidence", "repetitions")


class Shown(enum.StrEnum):
    """What was found of a series."""

    STEPS = "steps"
    DOUBTFUL = "doubtful"  # differs somewhere, by no more than single runs do or than does not matter
    TOO_FEW = "too few runs"  # than it takes to tell a change of this series alone
    NONE = "none shown"


class Turn(NamedTuple):
    """Where series end, or others begin, or one thing is followed by another."""

    last: int | None  # the run with which they end
    first: int | None  # the run with which the others begin
    what: str  # of which host and platform they are, or what differs: ``sample_count 500 → 1000``


@dataclasses.dataclass(frozen=True)
class RunLine:
    """One run of the archive."""

    label: str
    created_at: str
    finished: bool
    hosts: Mapping[str, Mapping[str, str]]  # kernel and virtgauge, by the hosts' names

    @property
    def date(self) -> str:
        return self.created_at[:10]

    @property
    def dated(self) -> str:
        """The run's name, with its date where the name does not say it."""
        known = self.date in self.label or self.date.replace("-", "") in self.label
        return self.label if known else f"{self.label} ({self.date})"


@dataclasses.dataclass(frozen=True)
class ArchiveSeries:
    """All series of an archive, those with the newest steps first."""

    place: str
    runs: tuple[RunLine, ...]  # in the order in which they were made
    without_levels: tuple[str, ...]  # more runs, which were archived before there were levels
    unread: Mapping[str, str]  # and those whose levels cannot be read, and why
    series: tuple[Series, ...]
    turns: Mapping[Turn, int]  # and how many series each is of, the newest first
    alternating: Mapping[str, tuple[str, ...]]  # by host what says that its runs are of several machines
    equivalent: float  # the largest change that does not matter, as a share

    @functools.cached_property
    def labels(self) -> tuple[str, ...]:
        """What the runs are called, each with its date."""
        return tuple(run.dated for run in self.runs)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts, in the order in which they come."""
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
    def needed(self) -> int | None:
        """Runs that it takes to tell a change of one series alone; None where no number does."""
        return runs_needed(1 - CONFIDENCE, len(self.series))

    def shown(self, one: Series) -> Shown:
        if one.steps or one.doubtful:
            return Shown.STEPS if one.steps else Shown.DOUBTFUL
        return Shown.NONE if self.needed is not None and len(one.runs) >= self.needed else Shown.TOO_FEW

    def failing(self, since: str = "") -> list[Series]:
        """Those that go on, and whose latest step is for the worse, since a date; emulated ones only without others."""
        measured = [one for one in self.series if not one.emulated] or self.series
        worse = [one for one in measured if one.steps and one.steps[-1].finding == "worse" and not one.ended]
        return [one for one in worse if self.runs[one.runs[one.steps[-1].after + 1]].date >= since]


def find_archive_series(place: Place, measures: Sequence[Measure], equivalent: float) -> ArchiveSeries:
    """Every series of these measures, and its steps; a change by the share ``equivalent`` or less does not matter.

    Raises UsageError: there is no archive, or none with such figures.
    """
    entries = sorted(read_entries(place), key=lambda one: (one.created_at, one.archive))
    named = run_labels((one.run, one.created_at) for one in entries)
    labels = dict(zip((one.archive for one in entries), named, strict=True))
    by_name = {one.full_name: one for one in measures}
    paths = {one.archive: place.path(one.levels) for one in entries if one.levels is not None}
    table, damaged = read_levels(place, [*dict.fromkeys(paths.values())], by_name)
    unread = {labels[archive]: damaged[path] for archive, path in paths.items() if path in damaged}
    without_levels = tuple(labels[one.archive] for one in entries if one.archive not in paths)
    known = [one for one in entries if paths.get(one.archive, "") not in {"", *damaged}]
    rows = [row for row in _rows(table, known) if row["unit"] == by_name[row["measure"]].quantity.unit]
    if not rows:
        for label, why in unread.items():
            remedy = f"`virtgauge archive add RUN --to {place.name}` writes them anew"
            raise UsageError(f"{place.name}: levels cannot be read: {label}: {why}", remedy)
        raise UsageError(
            f"{place.name}: no run has levels of {first_of([*by_name], 3, ', ')}",
            "name others with --measure (`virtgauge measures`), or archive the runs again: those of before have none",
        )
    found = [_series(row, by_name[row["measure"]], known) for row in rows]
    places = running_steps([one.scaled for one in found], 1 - CONFIDENCE)
    hosts: list[dict[str, dict[str, str]]] = [{} for _ in known]
    for one in found:
        for run, facts in zip(one.runs, one.facts, strict=True):
            hosts[run][one.host] = {name: facts[name] for name in ("kernel", "virtgauge")}
    with_ends, turns = _ended([with_steps(*each, equivalent) for each in zip(found, places, strict=True)])
    return ArchiveSeries(
        place=place.name,
        runs=tuple(
            RunLine(labels[one.archive], one.created_at, one.finished, hosts[number])
            for number, one in enumerate(known)
        ),
        without_levels=without_levels,
        unread=unread,
        series=tuple(sorted(_as_references(with_ends), key=_rank, reverse=True)),
        turns=turns,
        alternating=_alternating(rows, known),
        equivalent=equivalent,
    )


def _rows(table: pa.Table, entries: Sequence[Entry]) -> Iterator[dict[str, Any]]:
    """Of each series the key, and of its runs, in order, the rest as lists."""
    run = pc.index_in(table["archive"], value_set=pa.array([one.archive for one in entries], pa.string()))
    ordered = table.append_column("run", run).filter(pc.is_valid(run)).sort_by("run")
    grouped = ordered.group_by([*_KEY, "unit"], use_threads=False).aggregate([(name, "list") for name in _OF_RUNS])
    yield from grouped.to_pylist()


def _series(row: Mapping[str, Any], measure: Measure, entries: Sequence[Entry]) -> Series:
    factors, settings = (_parsed(row[name]) for name in ("factors", "settings"))
    if len(set(row["run_list"])) != len(row["run_list"]):
        raise UsageError(f"levels of {measure.full_name} are twice in one run's file", "archive that run anew")
    runs, facts = row["run_list"], list[Facts]()
    for run, kernel, version in zip(runs, row["kernel_list"], row["version_list"], strict=True):
        kept = dict(entries[run].facts.get(row["host"], {}))
        kept.pop("kernel release", None)  # the levels say it themselves
        facts.append({"kernel": kernel, "virtgauge": version} | kept)
    return Series(
        measure=measure,
        cell=Cell(measure.suite, row["probe"], tuple((factor, str(level)) for factor, level in factors.items())),
        arm=row["label_list"][-1],
        runs=tuple(runs),
        levels=np.asarray(row["level_list"], dtype=np.float64),
        ends=tuple(zip(*(row[f"{name}_list"] for name in ("low", "high", "confidence", "repetitions")), strict=True)),
        dates=[entries[run].created_at[:10] for run in runs],
        facts=facts,
        host=_called(row),
        of=settings | {"platform": row["platform"], "processor": row["cpu"], "arm": row["arm"]},
        emulated=row["emulated"],
        is_reference=entries[runs[-1]].reference == row["arm"],
    )


def _called(row: Mapping[str, Any]) -> str:
    return str(row["host"] or row["cpu"] or "unknown")


def _parsed(text: str) -> dict[str, Any]:
    """An object of JSON; what is none stands as it is."""
    try:
        found = json.loads(text or "{}", parse_constant=str)
    except (ValueError, RecursionError):
        found = None
    return {str(name): value for name, value in found.items()} if isinstance(found, dict) else {"": text}


def _as_references(series: Sequence[Series]) -> Iterator[Series]:
    """With what is said of a step where the reference changes as well."""
    references = dict[tuple[Any, ...], list[Series]]()
    for one in series:
        if one.is_reference and one.steps:
            references.setdefault((*one.figure, one.host), []).append(one)
    for one in series:
        beside = () if one.is_reference else references.get((*one.figure, one.host), ())
        moved = [(other.runs[step.after], step) for other in beside for step in other.steps]
        steps = [
            dataclasses.replace(
                step,
                as_reference=any(abs(at - one.runs[step.after]) < NEAR and step.is_of(own) for at, own in moved),
            )
            for step in one.steps
        ]
        yield dataclasses.replace(one, steps=tuple(steps)) if moved else one


def _ended(series: Sequence[Series]) -> tuple[list[Series], dict[Turn, int]]:
    """Which have ended, and all places where series end or begin: two that follow one another are told as one."""
    newest = max(one.runs[-1] for one in series)
    over = {id(one) for one in series if newest - one.runs[-1] >= one.pause}
    fresh = {id(one) for one in series if one.runs[0] >= one.pause}
    ends, begun = dict[tuple[str, Cell], int](), dict[tuple[str, Cell], list[Series]]()
    for one in series:
        ends[one.figure] = min(ends.get(one.figure, newest), one.runs[-1])
    for one in series:
        if one.runs[0] > ends[one.figure]:
            begun.setdefault(one.figure, []).append(one)
    turns, followed = Counter[Turn](), set[int]()
    for one in sorted((one for one in series if one.runs[-1] < newest), key=lambda one: one.runs[-1]):
        later = [two for two in begun.get(one.figure, ()) if two.runs[0] > one.runs[-1] and id(two) not in followed]
        near = min(later, key=lambda two: (len(_differences(one, two)), two.runs[0]), default=None)
        changed = [] if near is None else _differences(one, near)
        same = near is not None and near.host == one.host and near.of["arm"] == one.of["arm"]
        if near is not None and (same or (id(one) in over and len(changed) <= 2)):
            over.add(id(one))
            followed.add(id(near))
            turns[Turn(one.runs[-1], near.runs[0], ", ".join(changed))] += 1
        elif id(one) in over:
            turns[Turn(one.runs[-1], None, f"{one.arm} on {one.host}")] += 1
    turns.update(Turn(None, one.runs[0], f"{one.arm} on {one.host}") for one in series if id(one) in fresh - followed)
    ordered = sorted(turns, key=lambda turn: max(turn.last or 0, turn.first or 0), reverse=True)
    return [dataclasses.replace(one, ended=id(one) in over) for one in series], {turn: turns[turn] for turn in ordered}


def _differences(one: Series, later: Series) -> list[str]:
    """What two series of a figure are apart in: ``sample_count 500 → 1000``."""
    before, after = one.apart, later.apart
    names = dict.fromkeys([*before, *after])
    if one.host != later.host and before["processor"] in (one.host, after["processor"]):
        del names["processor"]  # it is what the host is called
    return [
        f"{name} {before.get(name, '–')} → {after.get(name, '–')}"
        for name in names
        if before.get(name) != after.get(name)
    ]


def _alternating(rows: Iterable[Mapping[str, Any]], entries: Sequence[Entry]) -> dict[str, tuple[str, ...]]:
    """By host what of it is one thing and another in turns."""
    runs = dict[tuple[str, str], set[int]]()
    for row in rows:
        runs.setdefault((row["host"], _called(row)), set()).update(row["run_list"])
    told = {
        called: tuple(alternating([entries[run].facts.get(host, {}) for run in sorted(own)]))
        for (host, called), own in runs.items()
    }
    return {host: facts for host, facts in told.items() if facts}


def _rank(one: Series) -> tuple[int, tuple[bool, float]]:
    """Those with the newest steps, and of them the largest ratio."""
    return one.runs[one.steps[-1].after] if one.steps else -1, one.largest
