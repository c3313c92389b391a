"""What the paper's text states in figures, in its terms and ours, and our figures of the same kind beside it."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from virtgauge.ledger.records import ArmRecord
from virtgauge.reference import table
from virtgauge.report.bandwidth.keys import Key
from virtgauge.report.bandwidth.model import Beside, Cell, PublishedFigure
from virtgauge.report.bandwidth.vocabulary import PRECISE, SYSTEM

TOOLS = {"Yaz": "yaz-original", "Kite2": "kite2"}
"""The paper's estimators, and ours that follows each."""
TIMINGS = {"System Call": SYSTEM, "HighPerTimer": PRECISE}
HOST = "Host OS"
_CLOSE = 0.02
"""Relative: shapers count the same capacity with more or fewer headers."""


@functools.cache
def published_figures() -> tuple[PublishedFigure, ...]:
    """What the paper's text states, in the order of the table."""
    return tuple(_figure(row) for row in table("bandwidth").rows)


def _figure(row: dict[str, str]) -> PublishedFigure:
    return PublishedFigure(
        tool=row["tool"],
        timing=row["timing"],
        platform=row["platform"],
        capacity_mbps=float(row["capacity_mbps"]),
        cross_mbps=float(row["cross_traffic_mbps"]),
        median_mbps=float(row["median_mbps"]),
        half_iqr_mbps=float(row["mad_mbps"]) if row["mad_mbps"] else None,
        note=row["note"],
    )


def is_about(figure: PublishedFigure, key: Key) -> bool:
    """Whether a figure is about what a result of ours is of, on whatever platform."""
    path = key.path
    return (
        TOOLS[figure.tool] == key.estimator
        and TIMINGS[figure.timing] == key.timing
        and abs(path.link.capacity_mbps / figure.capacity_mbps - 1) <= _CLOSE
        and abs(path.cross_mbps - figure.cross_mbps) <= _CLOSE * figure.capacity_mbps
    )


def beside_ours(cells: Sequence[Cell], arms: Sequence[ArmRecord]) -> tuple[Beside, ...]:
    """Every published figure with those cells of each arm that are of its kind; the A/A arm has none of its own."""
    return tuple(
        Beside(figure, arm.name, cell.key)
        for figure in published_figures()
        for arm in arms
        if arm.role != "aa"
        for cell in cells
        if is_about(figure, cell.key) and (series := cell.of(arm.name)) is not None and series.missing is None
    )
