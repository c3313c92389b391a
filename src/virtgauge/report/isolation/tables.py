"""The isolation suite's tables as rows ready to be shown, in the page and in the terminal alike."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Generic, TypeVar

from virtgauge.ledger.records import ArmRecord
from virtgauge.report.isolation.model import (
    AppliedPolicy,
    Cell,
    Conservation,
    Degree,
    IsolationFindings,
    Key,
    ResourceSentence,
    Series,
    SmallestSetting,
)
from virtgauge.report.isolation.results import baselines
from virtgauge.report.isolation.vocabulary import CORES_WORDS, Resource

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class GlanceRow:
    """One platform: what is said of each resource, in the order of the table's columns."""

    arm: ArmRecord
    sentences: tuple[ResourceSentence, ...]


@dataclasses.dataclass(frozen=True)
class Glance:
    """The table at a glance: platforms × the resources of which anything was measured."""

    resources: tuple[Resource, ...]
    rows: tuple[GlanceRow, ...]


@dataclasses.dataclass(frozen=True)
class ArrayTable:
    """The array of one benchmark on one number of cores; the first series of a cell is marked."""

    title: str
    rows: tuple[tuple[bool, Cell, ArmRecord, Series], ...]


@dataclasses.dataclass(frozen=True)
class LatencyPair:
    """One platform's latencies beside a load, and without it (None where that was not measured)."""

    without: Series | None
    under: Series


@dataclasses.dataclass(frozen=True)
class Line(Generic[T]):
    """What stands beside each other of all platforms, in the order of the columns; None where there is nothing.

    Attributes:
        first: of a group of lines with the same benchmark and cores.
    """

    first: bool
    key: Key
    columns: tuple[T | None, ...]


@dataclasses.dataclass(frozen=True)
class Matrix(Generic[T]):
    """Lines by platform.

    Attributes:
        title: empty where there is one table alone.
    """

    title: str
    arms: tuple[ArmRecord, ...]
    lines: tuple[Line[T], ...]


def glance(found: IsolationFindings, arms: Sequence[ArmRecord]) -> Glance:
    """The table at a glance; without rows when nothing can be shown."""
    said = {(one.arm, one.resource): one for one in found.sentences}
    told = [
        resource
        for resource in Resource
        if any(one.resource is resource and one.degree is not Degree.OPEN for one in found.sentences)
    ]
    rows = [
        GlanceRow(arm, tuple(said[arm.name, resource] for resource in told))
        for arm in arms
        if (arm.name, Resource.CPU) in said
    ]
    return Glance(tuple(told), tuple(rows) if told else ())


def sentence_groups(
    found: IsolationFindings, arms: Sequence[ArmRecord]
) -> list[tuple[Resource, list[tuple[ArmRecord, ResourceSentence]]]]:
    """Every sentence, by resource; resources of which nothing was measured stand with what was not measured."""
    table = glance(found, arms)
    return [
        (resource, [(row.arm, row.sentences[place]) for row in table.rows])
        for place, resource in enumerate(table.resources)
    ]


def degree_class(degree: Degree, emulated: bool) -> str:
    """How a degree is coloured: nothing of emulated platforms."""
    if emulated:
        return "plain"
    return {Degree.ISOLATED: "better", Degree.PARTLY: "warn", Degree.NOT: "worse", Degree.OPEN: "plain"}[degree]


def array(found: IsolationFindings, arms: Sequence[ArmRecord]) -> list[ArrayTable]:
    """Every cell, by benchmark and cores."""
    groups: dict[str, list[tuple[bool, Cell, ArmRecord, Series]]] = {}
    for cell in found.cells:
        title = title_of(cell.key)
        own = [(arm, series) for arm in arms if (series := cell.of(arm.name)) is not None]
        rows = [(number == 0, cell, arm, series) for number, (arm, series) in enumerate(own)]
        groups.setdefault(title, []).extend(rows)
    return [ArrayTable(title, tuple(rows)) for title, rows in groups.items()]


def latencies(found: IsolationFindings, arms: Sequence[ArmRecord]) -> list[Matrix[LatencyPair]]:
    """Wake-ups and operations of disks under every load beside the same without it, by benchmark and cores."""
    by_key = {cell.key: cell for cell in found.cells}
    groups: dict[str, list[tuple[str, Key, LatencyPair]]] = {}
    for cell in found.cells:
        unloaded = next((by_key[key] for key in baselines(cell.key) if key in by_key), None)
        for series in () if cell.key.alone else cell.series:
            if series.latency_p50_ns.n:
                pair = LatencyPair(unloaded.of(series.arm) if unloaded else None, series)
                groups.setdefault(title_of(cell.key), []).append((series.arm, cell.key, pair))
    return [_matrix(title, entries, arms) for title, entries in groups.items()]


def conservation(found: IsolationFindings, arms: Sequence[ArmRecord]) -> Matrix[Conservation]:
    """Every cell with a policy and without a load."""
    return _matrix("", [(one.arm, one.key, one) for one in found.conservation], arms)


def smallest(found: IsolationFindings, arms: Sequence[ArmRecord]) -> Matrix[SmallestSetting]:
    """The smallest settings; platforms that tried other shares stand side by side."""
    entries = [(one.arm, dataclasses.replace(one.key, share=1.0), one) for one in found.smallest]
    return _matrix("", entries, arms)


def _matrix(title: str, entries: Sequence[tuple[str, Key, T]], arms: Sequence[ArmRecord]) -> Matrix[T]:
    """Of what is told of an arm and a cell; without the A/A arm, and arms of which nothing is told."""
    told = {name for name, _, _ in entries}
    shown = tuple(arm for arm in arms if arm.role != "aa" and arm.name in told)
    by_key: dict[Key, dict[str, T]] = {}
    for name, key, entry in entries:
        by_key.setdefault(key, {})[name] = entry
    lines: list[Line[T]] = []
    for key, own in by_key.items():
        first = not lines or title_of(lines[-1].key) != title_of(key)
        lines.append(Line(first, key, tuple(own.get(arm.name) for arm in shown)))
    return Matrix(title, shown, tuple(lines))


def title_of(key: Key) -> str:
    """``integer, 1 vCPU each on one shared core``."""
    return f"{key.benchmark_label}, {CORES_WORDS.get(key.cores, key.cores)}"


def policies(found: IsolationFindings, arms: Sequence[ArmRecord]) -> list[tuple[ArmRecord, list[AppliedPolicy]]]:
    """What was declared and what was in force, platform by platform."""
    groups = [(arm, [one for one in found.policies if one.arm == arm.name]) for arm in arms]
    return [(arm, own) for arm, own in groups if own]


def validity(series: Series) -> list[str]:
    """``6 valid``, ``guest-blind: 3``: repetitions, and the flags of all attempts."""
    return [f"{len(series.blocks)} valid", *(f"{flag}: {number}" for flag, number in series.flags.items())]
