"""Rows of the timing paper's tables: their levels, their figures, and the cells that differ in one factor only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from virtgauge.analysis import ranks
from virtgauge.reference import TimingFigure
from virtgauge.reference.claims import Factor

Rows = Sequence[TimingFigure]

PARAMETERS: dict[str, str] = {
    "median": "median",
    "half_iqr": "MAD (half IQR)",
    "max": "maximum",
    "min": "minimum",
    "p90": "90th percentile",
    "p99.9": "99.9th percentile",
}
_COLUMNS: dict[str, Callable[[TimingFigure], float]] = {
    "median": lambda row: row.median_ns,
    "half_iqr": lambda row: row.half_iqr_ns,
    "max": lambda row: row.max_ns,
    "min": lambda row: row.min_ns,
}


def level_of(row: TimingFigure, factor: str) -> str:
    """Of a row."""
    return {"function": row.function, "platform": row.platform, "load": row.load}[factor]


def has(parameter: str) -> bool:
    """Whether the tables have it."""
    return parameter in _COLUMNS


def figure_of(row: TimingFigure, parameter: str) -> float:
    """A figure, ns."""
    return _COLUMNS[parameter](row)


def column(rows: Rows, parameter: str) -> ranks.Values:
    """A column, ns."""
    return np.array([figure_of(row, parameter) for row in rows])


def levels_in(rows: Rows, factor: str) -> list[str]:
    """Each once, in the table's order."""
    return list(dict.fromkeys(level_of(row, factor) for row in rows))


def parts_of(within: str | None, levels: Sequence[str], rows: Rows) -> Iterator[tuple[str, Rows]]:
    """The rows of each level of a factor, under its name; all where there is no such factor."""
    if within is None:
        yield "", rows
        return
    for name in levels or levels_in(rows, within):
        yield f"{name}, ", [row for row in rows if level_of(row, within) == name]


def selected(rows: Rows, where: Mapping[Factor, str], ignoring: Sequence[str]) -> list[TimingFigure]:
    """Those at some levels, and at none of others."""
    return [
        row
        for row in rows
        if all(level_of(row, name) == wanted for name, wanted in where.items())
        and not {row.function, row.platform, row.load} & set(ignoring)
    ]


def cells_along(
    rows: Rows, factor: str, where: Mapping[Factor, str], ignoring: Sequence[str]
) -> Iterator[tuple[str, Rows]]:
    """The rows that differ in ``factor`` only, under the name of what they share."""
    groups: dict[tuple[str, ...], list[TimingFigure]] = {}
    for row in selected(rows, where, ignoring):
        shared = tuple(level_of(row, name) for name in ("function", "platform", "load") if name != factor)
        groups.setdefault(shared, []).append(row)
    for shared, cell in groups.items():
        yield ", ".join(shared), cell
