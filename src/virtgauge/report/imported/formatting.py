"""Figures of imported trials in a person's units."""

from __future__ import annotations

from collections.abc import Iterable

from virtgauge.analysis.estimate import Estimate
from virtgauge.ledger.records import ArmRecord
from virtgauge.measures.catalogue import MEASURES
from virtgauge.report.imported.model import Figure, Series
from virtgauge.report.tables import rate_class, verdict_class


def by_cell(figures: Iterable[Figure]) -> list[tuple[str, list[Figure]]]:
    """The figures of each cell with what to call it: ``fio: rw randread, bs 4k``."""
    cells: dict[str, list[Figure]] = {}
    for figure in figures:
        cells.setdefault(f"{figure.probe}: {figure.cell}", []).append(figure)
    return list(cells.items())


def point(figure: Figure, estimate: Estimate) -> str:
    """``10.9 kop/s``; a dash where there is none."""
    return MEASURES["imported"][figure.measure].quantity.text(estimate.point)


def interval(figure: Figure, estimate: Estimate) -> str:
    """``10.1 kop/s–11.3 kop/s``; empty without one."""
    if not estimate.has_interval:
        return ""
    quantity = MEASURES["imported"][figure.measure].quantity
    return f"{quantity.text(estimate.low)}–{quantity.text(estimate.high)}"


def comparison_class(figure: Figure, series: Series, arm: ArmRecord) -> str:
    """How the comparison with the reference is coloured: by which way is better."""
    judged = verdict_class if figure.better == "lower" else rate_class
    return judged(series.comparison, arm.emulated)
