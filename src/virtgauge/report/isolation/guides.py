"""What a figure against the declared share is held against: what was declared, and what the paper states."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from virtgauge.report.isolation.model import Key, PublishedFigure
from virtgauge.report.isolation.published import is_about, published_figures, shares_of
from virtgauge.report.isolation.vocabulary import LOADING, percent
from virtgauge.report.words import share

Row = dict[str, Any]
Quantity = Literal["relative", "q"]

_CROSS, _DIAMOND = "M-1,-1L1,1M-1,1L1,-1", "diamond"
_SMALLEST = 0.05
"""The paper's smallest share; where it speaks of low ones without a figure, its lines begin here."""


def due_line(on: str, quantity: Quantity) -> list[Row]:
    """What a guest does when it gets just what was declared: 1, as an efficiency.

    Args:
        on: the guest that the share is declared for.
        quantity: of the vertical axis.
    """
    ends = [(0.0, 1.0), (1.0, 1.0)] if quantity == "q" else [(at, _left(at, on)) for at in (0.0, 1.0)]
    return [
        {"kind": "guide", "of": "due", "stated": False, "across": across, "up": up, "t": "as declared"}
        for across, up in ends
    ]


def published_rows(key: Key, quantity: Quantity) -> list[Row]:
    """What the paper states of a benchmark and load like these: marks where it names the share, else dotted lines."""
    return [row for figure in published_figures() if is_about(figure, key) for row in _rows(figure, quantity)]


def _rows(figure: PublishedFigure, quantity: Quantity) -> Iterator[Row]:
    ends = {"at least": figure.q_low, "at most": figure.q_high}
    if figure.q_low == figure.q_high:
        ends = {"": figure.q_low}
    for bound, q in ends.items():
        if q is None:
            continue
        at = "" if figure.share is None else f" at {percent(figure.share)}"
        saving = ", energy saving" if figure.energy_saving else ""
        told = {"t": f"{figure.processor}{saving}: q {f'{bound} ' if bound else ''}{share(q)}{at}"}
        if figure.share is not None:
            up = q if quantity == "q" else q * _left(figure.share, figure.on)
            shape = _DIAMOND if figure.energy_saving else _CROSS
            yield {"kind": "published", "x": figure.share, "y": up, "shape": shape, "name": ""} | told
            continue
        shares = shares_of(figure)
        for across in (max(shares.at_least, _SMALLEST), shares.at_most):
            up = q if quantity == "q" else q * _left(across, figure.on)
            line = f"{figure.processor} {figure.benchmark} {figure.load} {bound}"
            yield {"kind": "guide", "of": line, "stated": True, "across": across, "up": up} | told


def _left(declared: float, on: str) -> float:
    """The share that is meant for the tested guest."""
    return round(1 - declared, 9) if on == LOADING else declared
