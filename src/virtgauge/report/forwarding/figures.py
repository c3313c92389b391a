"""The forwarding suite's figures in the paper's form, as Vega-Lite specifications, and the rows behind their panels.

Throughput against J (Batalla et al. 2016, figures 2 and 3), latency against frame size (4, 6) and J (5, 7), latency
against load (8, 9), and the loss curve that the searches leave behind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

from virtgauge.analysis.estimate import Estimate
from virtgauge.ledger.records import ArmRecord
from virtgauge.report.arms import row_labels
from virtgauge.report.charts import Drawn, Made, Row, drawn, figure_of_rows
from virtgauge.report.forwarding import charts
from virtgauge.report.forwarding.cells import AT_THROUGHPUT
from virtgauge.report.forwarding.model import Cell, Design, ForwardingFindings, LatencyLevel, Series
from virtgauge.report.forwarding.published import published_figures
from virtgauge.report.forwarding.rates import bit_rate, bit_rate_interval, loss
from virtgauge.report.words import duration, duration_interval

_MOST_FAIRNESSES = 6
_MOST_LOSS_POINTS = 120
_MOST_BEYOND = 2.0
"""Times the throughput: loads beyond are left out of the loss curve, for nearly all of them is lost anyway."""
_CROSSES = " Crosses: the paper’s figures, measured on other hardware; triangles point to where its bounds leave room."
_LOSS_FAIRNESSES = 2

_OURS = ("ours", "other", "point", "throughput")
"""Kinds of rows that are not published ones."""


def draw(found: ForwardingFindings, arms: Sequence[ArmRecord]) -> Drawn:
    """Every figure of every design.

    Args:
        found: by the suite.
        arms: of the manifest.
    """
    designs = list(dict.fromkeys(cell.design for cell in found.cells))
    drawings = (
        _Drawing(found, arms, design, name=f"forwarding-{place}", several=len(designs) > 1)
        for place, design in enumerate(designs)
    )
    return drawn(made for drawing in drawings for made in drawing.figures())


class _Drawing:
    """The figures of one design."""

    def __init__(
        self, found: ForwardingFindings, arms: Sequence[ArmRecord], design: Design, *, name: str, several: bool
    ) -> None:
        self._arms, self._name = arms, name
        self._labels = row_labels(arms)
        self._emulated = {arm.name for arm in arms if arm.emulated}
        self._aside = f" ({design.label})" if several else ""
        self._cells = [
            cell
            for cell in found.cells
            if cell.design == design and cell.jain is not None and any(s.missing is None for s in cell.series)
        ]
        self._sizes = sorted({cell.frame_bytes for cell in self._cells})
        two_level = sorted({cell.jain for cell in self._cells if cell.two_level and cell.jain is not None})
        self._fairnesses = _spread(two_level, _MOST_FAIRNESSES)

    def figures(self) -> Iterator[Made]:
        """Those for which there is something to draw."""
        made = [
            self._throughput(),
            self._latency_by_size(),
            self._latency_by_fairness(),
            self._latency_by_load("largest"),
            self._latency_by_load("unfair"),
            self._loss(),
        ]
        yield from (one for one in made if one is not None)

    def _made(
        self, what: str, title: str, caption: str, panels: dict[str, list[Row]], spec: Callable[[list[Row]], Any]
    ) -> Made | None:
        """A figure without the panels that would hold nothing of ours."""
        name, title = f"{self._name}-{what}", f"{title}{self._aside}"
        return figure_of_rows(name, title, caption, panels, spec, ours=_OURS, published=_CROSSES)

    # -- the paper's figures -------------------------------------------------------------------------

    def _throughput(self) -> Made | None:
        panels = {f"{size} B": list(self._by_fairness(size, _throughput_row)) for size in self._sizes}
        for figure in published_figures():
            size = figure.smallest_bytes
            if figure.quantity == "throughput" and f"{size:g} B" in panels:
                for jain in (0.085, 1.0):
                    panels[f"{size:g} B"].append(
                        _published(jain, figure.high or 0.0, "cross", figure.platform, bit_rate)
                    )
        caption = (
            "Highest total load that every guest forwards without loss, against the fairness of its distribution "
            "(Jain’s index: 1 is alike for all, the lowest loads one guest nearly alone), with intervals over "
            "independent searches. In the manner of the paper’s Figures 2 and 3. Hollow marks are load vectors that "
            "the paper does not have."
        )
        return self._made(
            "throughput",
            "Throughput against fairness of the load",
            caption,
            panels,
            lambda rows: charts.lines(self._arms, rows, x="fairness", y="rate"),
        )

    def _latency_by_size(self) -> Made | None:
        panels = {
            f"J {jain:.3f}": [
                row | {"x": cell.frame_bytes, "at": f"{cell.frame_bytes} B"}
                for cell in self._cells
                if cell.two_level and cell.jain == jain
                for row in self._rows(cell, _latency_row)
            ]
            for jain in self._fairnesses
        }
        for rows in panels.values():
            rows += [row for size in self._sizes for row in _published_latencies(size, self._sizes, float(size))]
        caption = (
            "Mean latency at the throughput, every guest’s weighted with its share of the load (L_tot, equation 7), "
            "against the frame size. In the manner of the paper’s Figures 4 and 6."
        )
        return self._made(
            "latency-size",
            "Latency against frame size",
            caption,
            panels,
            lambda rows: charts.lines(self._arms, rows, x="size", y="time"),
        )

    def _latency_by_fairness(self) -> Made | None:
        panels = {
            # The paper's bounds are for every J; they stand at the highest.
            f"{size} B": [*self._by_fairness(size, _latency_row), *_published_latencies(size, [size], 1.0)]
            for size in self._sizes
        }
        caption = (
            "The same against the fairness of the load, for each frame size. In the manner of the paper’s Figures 5 "
            "and 7."
        )
        return self._made(
            "latency-fairness",
            "Latency against fairness of the load",
            caption,
            panels,
            lambda rows: charts.lines(self._arms, rows, x="fairness", y="time"),
        )

    def _latency_by_load(self, which: Literal["largest", "unfair"]) -> Made | None:
        """Of the largest frame for several J (figure 8), or of the lowest J for every frame size (figure 9)."""
        paper = [cell for cell in self._cells if cell.two_level]
        if which == "largest":
            size = max((cell.frame_bytes for cell in paper), default=0)
            chosen = {
                f"J {cell.jain:.3f}": cell
                for cell in paper
                if cell.frame_bytes == size and cell.jain in self._fairnesses
            }
            title, numbers = f"Latency against load, {size} B frames", "Figure 8"
        else:
            lowest = min(self._fairnesses, default=0.0)
            chosen = {f"{cell.frame_bytes} B": cell for cell in paper if cell.jain == lowest}
            title, numbers = f"Latency against load, J {lowest:.3f}", "Figure 9"
        panels = {name: list(self._over_load(cell)) for name, cell in chosen.items()}
        for figure in published_figures():
            if figure.load_mbps is None or figure.quantity != "latency":
                continue
            for name, cell in chosen.items():
                if cell.frame_bytes == figure.smallest_bytes:
                    value = (figure.high or 0.0) * 1e3
                    panels[name].append(_published(figure.load_mbps, value, "cross", figure.platform, duration))
        caption = (
            f"L_tot at parts of the throughput, against the load that this is. In the manner of the paper’s {numbers}; "
            "beyond the throughput, where frames are lost, it is the latency of those that come through."
        )
        return self._made(
            f"latency-load-{which}",
            title,
            caption,
            panels,
            lambda rows: charts.lines(self._arms, rows, x="rate", y="time"),
        )

    def _loss(self) -> Made | None:
        panels = {
            f"{cell.frame_bytes} B, J {cell.jain:.3f}": list(self._loss_rows(cell))
            for cell in sorted(self._cells, key=lambda cell: (cell.frame_bytes, cell.jain or 0.0))
            if cell.two_level and cell.jain in _spread(self._fairnesses, _LOSS_FAIRNESSES)
        }
        caption = (
            "Part of the frames that the worst guest lost in every trial of the searches, all repetitions together. "
            "Vertical rules stand at the throughput; loads beyond twice that are left out. Below 0.1 % the axis is "
            "linear, so that no loss has a place."
        )
        return self._made("loss", "Loss against load", caption, panels, lambda rows: charts.losses(self._arms, rows))

    # -- rows ----------------------------------------------------------------------------------------

    def _by_fairness(self, size: int, row_of: Callable[[Series], Row | None]) -> Iterator[Row]:
        for cell in self._cells:
            if cell.frame_bytes == size:
                for row in self._rows(cell, row_of):
                    other = {} if cell.two_level else {"kind": "other"}
                    yield row | {"x": cell.jain, "at": cell.vector_label} | other

    def _rows(self, cell: Cell, row_of: Callable[[Series], Row | None]) -> Iterator[Row]:
        for series in cell.series:
            row = row_of(series)
            if row is not None:
                yield self._of_arm(series) | row

    def _over_load(self, cell: Cell) -> Iterator[Row]:
        for series in cell.series:
            for level in series.latency:
                row = _level_row(level)
                if row is not None:
                    x = level.load_mbps.point
                    yield (
                        self._of_arm(series)
                        | row
                        | {
                            "x": x,
                            "at": f"{bit_rate(x)}, {level.load_percent:g} % of the throughput",
                        }
                    )

    def _loss_rows(self, cell: Cell) -> Iterator[Row]:
        for series in cell.series:
            throughput = series.throughput_mbps.point
            highest = math.inf if throughput is None else _MOST_BEYOND * throughput
            points = sorted((p for p in series.losses if p.load_mbps <= highest), key=lambda point: point.load_mbps)
            step = max(1, -(-len(points) // _MOST_LOSS_POINTS))
            for point in points[::step]:
                yield self._of_arm(series) | {
                    "kind": "point",
                    "x": point.load_mbps,
                    "y": point.worst_loss_ratio,
                    "at": bit_rate(point.load_mbps),
                    "t": loss(point.worst_loss_ratio) + (", stretched" if point.stretched else ""),
                }
            if throughput is not None:
                yield self._of_arm(series) | {"kind": "throughput", "x": throughput, "t": bit_rate(throughput)}

    def _of_arm(self, series: Series) -> Row:
        arm = series.arm
        return {"kind": "ours", "arm": arm, "label": self._labels[arm], "emulated": arm in self._emulated}


def _throughput_row(series: Series) -> Row | None:
    return _row(series.throughput_mbps, bit_rate, bit_rate_interval)


def _latency_row(series: Series) -> Row | None:
    level = series.at(AT_THROUGHPUT)
    return None if level is None else _level_row(level)


def _level_row(level: LatencyLevel) -> Row | None:
    return _row(level.total_ns, duration, duration_interval)


def _row(estimate: Estimate, tell: Callable[[float | None], str], interval: Callable[[Estimate], str]) -> Row | None:
    if estimate.point is None:
        return None
    return {
        "y": float(f"{estimate.point:.5g}"),
        "low": estimate.low,
        "high": estimate.high,
        "t": tell(estimate.point),
        "interval": interval(estimate),
    }


def _published_latencies(size: int, drawn: Sequence[int], x: float) -> Iterator[Row]:
    """The paper's bounds at a frame size: a triangle points to where the figure may lie.

    Of the sizes that are drawn together only the largest of a bound has its name.
    """
    for figure in published_figures():
        inside = [one for one in drawn if (figure.smallest_bytes or 0) <= one <= (figure.largest_bytes or one)]
        if figure.quantity != "latency" or figure.load_mbps is not None or size not in inside:
            continue
        for bound, shape in ((figure.low, "triangle-up"), (figure.high, "triangle-down")):
            if bound is not None:
                row = _published(x, bound * 1e3, shape, figure.platform, duration)
                yield row if size == max(inside) else row | {"name": ""}


def _published(x: float, y: float, shape: str, platform: str, tell: Callable[[float | None], str]) -> Row:
    bound = {"triangle-up": "above ", "triangle-down": "up to "}.get(shape, "")
    return {"kind": "published", "x": x, "y": y, "shape": shape, "name": platform, "t": f"{platform}: {bound}{tell(y)}"}


def _spread(levels: Sequence[float], most: int) -> list[float]:
    """So many of them at even steps, the ends among them."""
    if len(levels) <= most:
        return list(levels)
    return [levels[round(place * (len(levels) - 1) / (most - 1))] for place in range(most)]
