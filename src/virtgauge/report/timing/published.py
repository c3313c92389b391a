"""Which published figures stand beside which of ours: same function, same load, same kind of platform."""

from __future__ import annotations

from collections.abc import Sequence

from virtgauge.ledger.records import ArmRecord
from virtgauge.reference import TimingFigure, table, timing_figures
from virtgauge.report.timing.model import Cell, PublishedRow

_TABLES = {"timer_cost": "timer_cost", "sleep_lateness": "sleep_miss"}
_FUNCTIONS = {"rdtscp": "TSC", "clock_gettime": "System Call", "usleep": "uSleep", "highpertimer": "HPTSleep"}
_LOADS = {"idle": "Idle System", "cpu": "CPU-bound", "io": "IO/network-bound"}
_PLATFORMS = {"host": "Host OS", "qemu": "QEMU"}


def published_rows(cells: Sequence[Cell], arms: Sequence[ArmRecord]) -> tuple[PublishedRow, ...]:
    """The published figures that have a counterpart here; the A/A arm has none of its own."""
    rows = []
    for index, cell in enumerate(cells):
        if cell.probe not in _TABLES or not _is_comparable(cell):
            continue
        name = _TABLES[cell.probe]
        source = f"{table(name).source.short}, {table(name).place}"
        for arm in arms:
            if arm.role == "aa" or cell.of(arm.name) is None:
                continue
            for figure in timing_figures(name):
                if _matches(figure, cell, arm.kind):
                    rows.append(_row(source, figure, index, arm.name))
    return tuple(rows)


def citations(rows: Sequence[PublishedRow]) -> tuple[str, ...]:
    """The full citations of the papers that these rows come from."""
    sources = [table(name).source for name in dict.fromkeys(_TABLES.values())]
    return tuple(
        dict.fromkeys(source.citation for source in sources if any(row.source.startswith(source.short) for row in rows))
    )


def _is_comparable(cell: Cell) -> bool:
    """The paper slept with the slack and scheduling class that a program has by default; HPTSleep sees to its own."""
    return (
        cell.factors.get("slack", "default") in ("default", "own")
        and cell.factors.get("policy", "other") == "other"
        and cell.factors.get("idle_states", "default") == "default"
    )


def _matches(figure: TimingFigure, cell: Cell, kind: str) -> bool:
    return (figure.function, figure.load, figure.platform) == (
        _FUNCTIONS.get(cell.factors.get("function", "")),
        _LOADS.get(cell.load),
        _PLATFORMS.get(kind),
    )


def _row(source: str, figure: TimingFigure, cell: int, arm: str) -> PublishedRow:
    return PublishedRow(
        source=source,
        function=figure.function,
        platform=figure.platform,
        load=figure.load,
        median_ns=figure.median_ns,
        half_iqr_ns=figure.half_iqr_ns,
        min_ns=figure.min_ns,
        max_ns=figure.max_ns,
        cell=cell,
        arm=arm,
    )
