"""The bandwidth suite's tables as rows ready to be shown, in the page and in the terminal alike."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Generic, TypeVar

from virtgauge.analysis.comparison import Judgement
from virtgauge.analysis.differences import Difference
from virtgauge.ledger.records import ArmRecord
from virtgauge.report.bandwidth.keys import Key
from virtgauge.report.bandwidth.model import (
    Accuracy,
    BandwidthFindings,
    Cell,
    Help,
    Pacing,
    PathAccount,
    PooledEffect,
    PublishedFigure,
    Series,
    TimingEffect,
)
from virtgauge.report.bandwidth.published import published_figures
from virtgauge.report.bandwidth.vocabulary import INSIDE, THROUGH_WORDS, arrangement, timing_words

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Line(Generic[T]):
    """What stands beside each other of all platforms, in the order of the columns; None where there is nothing.

    Attributes:
        title: of a group of lines, on its first; empty on the others.
        name: of the line.
    """

    title: str
    name: str
    columns: tuple[T | None, ...]


@dataclasses.dataclass(frozen=True)
class Matrix(Generic[T]):
    """Lines by platform."""

    arms: tuple[ArmRecord, ...]
    lines: tuple[Line[T], ...]


@dataclasses.dataclass(frozen=True)
class GlanceRow:
    """One platform: how far off it is, in the order of the table's columns."""

    arm: ArmRecord
    columns: tuple[Accuracy | None, ...]


@dataclasses.dataclass(frozen=True)
class Glance:
    """The table at a glance: platforms × timings, by estimator.

    Attributes:
        estimators: with the number of columns of each.
        timings: of the columns.
    """

    estimators: tuple[tuple[str, int], ...]
    timings: tuple[str, ...]
    rows: tuple[GlanceRow, ...]


@dataclasses.dataclass(frozen=True)
class DetailTable:
    """All series of one estimator, one timing and one way of swapping it; the first series of a cell is marked."""

    title: str
    rows: tuple[tuple[bool, Cell, ArmRecord, Series], ...]


def glance(found: BandwidthFindings, arms: Sequence[ArmRecord]) -> Glance:
    """The table at a glance: timing built in, where an estimator was measured so; without rows when nothing was."""
    alone = [one for one in found.accuracy if len(one.estimators) == 1]
    built_in = {one.estimators for one in alone if one.through == INSIDE}
    shown = [one for one in alone if one.through == INSIDE or one.estimators not in built_in]
    places = list(dict.fromkeys((one.estimators[0], one.timing) for one in shown))
    of = {(one.arm, one.estimators[0], one.timing): one for one in shown}
    names = list(dict.fromkeys(estimator for estimator, _ in places))
    rows = [
        GlanceRow(arm, tuple(of.get((arm.name, *place)) for place in places))
        for arm in arms
        if any((arm.name, *place) in of for place in places)
    ]
    places.sort(key=lambda place: names.index(place[0]))
    columns = tuple((name, sum(estimator == name for estimator, _ in places)) for name in names)
    return Glance(columns, tuple(timing_words(timing) for _, timing in places), tuple(rows))


def effects(found: BandwidthFindings, arms: Sequence[ArmRecord]) -> Matrix[TimingEffect]:
    """Every cell's timing against the other one."""
    entries = [
        (one.arm, (_versus(one.key.through, one.key.timing, one.base), _place(one.key)), one) for one in found.effects
    ]
    return _matrix(entries, arms)


def pooled(found: BandwidthFindings, arms: Sequence[ArmRecord]) -> Matrix[PooledEffect]:
    """The same over all cells."""
    entries = [(one.arm, ("", _versus(one.through, one.timing, one.base)), one) for one in found.pooled]
    return _matrix(entries, arms)


def costs(found: BandwidthFindings, arms: Sequence[ArmRecord]) -> Matrix[Accuracy]:
    """What a trial sends, and how long it takes."""
    entries = [
        (one.arm, (one.estimators[0], one.arrangement), one)
        for one in found.accuracy
        if len(one.estimators) == 1 and one.sent_bytes.point is not None
    ]
    return _matrix(entries, arms)


def _matrix(entries: Sequence[tuple[str, tuple[str, str], T]], arms: Sequence[ArmRecord]) -> Matrix[T]:
    """Of what is told of an arm and a line's title and name; without arms of which nothing is told."""
    told = {name for name, _, _ in entries}
    shown = tuple(arm for arm in arms if arm.name in told)
    groups: dict[str, dict[str, dict[str, T]]] = {}
    for name, (title, line), entry in entries:
        groups.setdefault(title, {}).setdefault(line, {})[name] = entry
    lines = [
        Line(title if place == 0 else "", line, tuple(own.get(arm.name) for arm in shown))
        for title, group in groups.items()
        for place, (line, own) in enumerate(group.items())
    ]
    return Matrix(shown, tuple(lines))


def _versus(through: str, timing: str, base: str) -> str:
    """``hptime against system timing, built in``."""
    return f"{timing_words(timing)} against {timing_words(base)}, {THROUGH_WORDS.get(through, through)}"


def _place(key: Key) -> str:
    return f"{key.estimator}{key.pacing_label}: {key.path.label}"


def hptime_refusals(found: BandwidthFindings, arms: Sequence[ArmRecord]) -> list[tuple[ArmRecord, str]]:
    """Platforms on which hptime answered from the system's clock, with each reason once."""
    reasons = {
        (series.arm, reason): None
        for cell in found.cells
        for series in cell.series
        for reason in series.hptime_refusals
    }
    return [(arm, reason) for arm in arms for name, reason in reasons if name == arm.name]


def pacing(found: BandwidthFindings, arms: Sequence[ArmRecord]) -> list[tuple[ArmRecord, list[Pacing]]]:
    """How well each platform sends when it should."""
    groups = [(arm, [one for one in found.pacing if one.arm == arm.name]) for arm in arms]
    return [(arm, own) for arm, own in groups if own]


def paths(found: BandwidthFindings, arms: Sequence[ArmRecord]) -> Matrix[PathAccount]:
    """Every path on every platform, and what makes it."""
    return _matrix([(one.arm, (one.path.label, one.link), one) for one in found.paths], arms)


def detail(found: BandwidthFindings, arms: Sequence[ArmRecord]) -> list[DetailTable]:
    """Every series, by estimator and timing."""
    groups: dict[str, list[tuple[bool, Cell, ArmRecord, Series]]] = {}
    for cell in found.cells:
        title = f"{cell.key.estimator}, {arrangement(cell.key.timing, cell.key.through)}{cell.key.pacing_label}"
        own = [(arm, series) for arm in arms if (series := cell.of(arm.name)) is not None]
        rows = [(number == 0, cell, arm, series) for number, (arm, series) in enumerate(own)]
        groups.setdefault(title, []).extend(rows)
    return [DetailTable(title, tuple(rows)) for title, rows in groups.items()]


def published(found: BandwidthFindings) -> list[tuple[PublishedFigure, dict[str, list[tuple[Key, Series]]]]]:
    """Every published figure with ours by arm; empty where there is nothing comparable."""
    cells = {cell.key: cell for cell in found.cells}
    rows = []
    for figure in published_figures():
        ours: dict[str, list[tuple[Key, Series]]] = {}
        for one in found.published:
            series = cells[one.key].of(one.arm)
            if one.figure == figure and series is not None:
                ours.setdefault(one.arm, []).append((one.key, series))
        rows.append((figure, ours))
    return rows


def beside_class(difference: Difference | None, emulated: bool) -> str:
    """How an error beside another is coloured: more is worse, and nothing where not proven or emulated."""
    if difference is None or emulated or difference.judgement is Judgement.INCONCLUSIVE:
        return "plain"
    return "worse" if difference.judgement is Judgement.HIGHER else "better"


def help_class(help_: Help, emulated: bool) -> str:
    """How what a timing does is coloured."""
    if emulated:
        return "plain"
    return {Help.HELPS: "better", Help.ENABLES: "better", Help.HURTS: "worse", Help.LOST: "worse"}.get(help_, "plain")


def validity(series: Series) -> list[str]:
    """``6 valid``, ``sender-stalls: 3``: repetitions, and the flags of all attempts."""
    return [f"{len(series.blocks)} valid", *(f"{flag}: {number}" for flag, number in series.flags.items())]
