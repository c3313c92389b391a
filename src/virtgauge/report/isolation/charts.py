"""The kinds of charts that the isolation figures are made of, but the heat map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from virtgauge.ledger.records import ArmRecord
from virtgauge.report.charts import (
    ROWS,
    arm_colour,
    arm_stroke,
    domain_of,
    finished,
    lines_with_intervals,
    time_ticks,
)

_PERCENT_LABEL = "format(datum.value * 100, '~g') + ' %'"
LINES_OF_LABEL = "split(datum.label, '|')"
"""A bar in a category's name begins its next line."""
_LINES_HEIGHT = 180
_LANE_HEIGHT, _LEAST_BAND = 13, 32
_BAND_PADDING = 0.25
_HEADROOM = 1.06


def lines(arms: Sequence[ArmRecord], rows: Sequence[dict[str, Any]], x_title: str, y_title: str) -> dict[str, Any]:
    """Parts of a whole over parts of a whole: a line for each arm, with intervals.

    Rows are those of :func:`~virtgauge.report.charts.lines_with_intervals`, and ``guide`` for points of lines that
    figures are held against: ``across`` and ``up``, ``of`` (a name for each line), ``stated`` (published) and ``t``.
    """
    ends = [row[end] for row in rows for end in ("y", "low", "high", "up") if row.get(end) is not None]
    across_scale, across_axis = alt.Scale(domain=[-0.02, 1.02], nice=False), _percents(x_title)
    up_scale = alt.Scale(domain=[0, max([1.0, *ends]) * _HEADROOM], nice=False)
    up_axis = _percents(y_title)
    across = alt.X("x:Q", scale=across_scale, axis=across_axis)
    guides = (
        alt.Chart(alt.NamedData(name=ROWS))
        .transform_filter("datum.kind == 'guide'")
        .mark_line(color="currentColor", strokeWidth=1.2, clip=True)
        .encode(
            x=alt.X("across:Q", scale=across_scale, axis=across_axis),
            y=alt.Y("up:Q", scale=up_scale, axis=up_axis),
            detail="of:N",
            opacity=alt.condition("datum.stated", alt.value(0.9), alt.value(0.45)),
            strokeDash=alt.condition("datum.stated", alt.value([2, 3]), alt.value([1, 0])),
            tooltip=[alt.Tooltip("t:N", title="line")],
        )
    )
    return finished(alt.layer(guides, lines_with_intervals(arms, across, up_scale, up_axis)), height=_LINES_HEIGHT)


def slices(arms: Sequence[ArmRecord], rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Spreads of rates: a band for each category and a line within it for each arm.

    Rows have ``category``, ``arm``, the quantiles ``p5``, ``p25``, ``p50``, ``p75``, ``p95`` and
    ``t``; those of the kind ``guide`` an ``x`` that is due, and ``t``.
    """
    highest = max([1.0, *(row["p95"] for row in rows if row["kind"] != "guide")])
    scale, axis = alt.Scale(domain=[0, highest * _HEADROOM], nice=False), _percents("of the reference’s rate")
    up, within, height = _bands(arms, rows)
    colour, told = arm_colour(arms), _tooltip("t", "5 · 25 · 50 · 75 · 95 %")
    base = alt.Chart(alt.NamedData(name=ROWS)).transform_filter("datum.kind != 'guide'")

    def stretch(low: str, high: str, width: int, opacity: float) -> alt.Chart:
        drawn: alt.Chart = base.mark_rule(strokeWidth=width, opacity=opacity, clip=True).encode(
            x=alt.X(f"{low}:Q", scale=scale, axis=axis), x2=high, y=up, yOffset=within, color=colour, tooltip=told
        )
        return drawn

    middle = base.mark_tick(thickness=2.5, size=_LANE_HEIGHT - 2, opacity=1, clip=True).encode(
        x=alt.X("p50:Q", scale=scale, axis=axis), y=up, yOffset=within, color=colour, tooltip=told
    )
    due = (
        alt.Chart(alt.NamedData(name=ROWS))
        .transform_filter("datum.kind == 'guide'")
        .mark_rule(strokeDash=[3, 3], strokeWidth=1.2, color="currentColor", opacity=0.6)
        .encode(x=alt.X("x:Q", scale=scale, axis=axis), tooltip=[alt.Tooltip("t:N", title="line")])
    )
    layers = (due, stretch("p5", "p95", 1, 0.9), stretch("p25", "p75", 7, 0.35), middle)
    return finished(alt.layer(*layers), height=height)


def durations(arms: Sequence[ArmRecord], rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Durations along a logarithmic axis: from the median, filled, to the p99, hollow, where there is one.

    Rows have ``category``, ``arm``, ``x`` and perhaps ``far`` in ns, the ends ``low`` and ``high`` of the interval of
    ``x``, and ``t``.
    """
    ends = [row[end] for row in rows for end in ("x", "low", "high", "far") if row.get(end) is not None]
    domain = domain_of(ends)
    scale, axis = alt.Scale(type="log", domain=list(domain), nice=False), time_ticks(domain)
    up, within, height = _bands(arms, rows)
    colour, told = arm_colour(arms), _tooltip("t", "time")
    base = alt.Chart(alt.NamedData(name=ROWS))

    def stretch(low: str, high: str, width: int, opacity: float) -> alt.Chart:
        known = base.transform_filter(f"isValid(datum.{low}) && isValid(datum.{high})")
        drawn: alt.Chart = known.mark_rule(strokeWidth=width, opacity=opacity, clip=True).encode(
            x=alt.X(f"{low}:Q", scale=scale, axis=axis), x2=high, y=up, yOffset=within, color=colour, tooltip=told
        )
        return drawn

    def marks(field: str, fill: float) -> alt.Chart:
        known = base.transform_filter(f"isValid(datum.{field})")
        dots = known.mark_point(filled=True, size=44, opacity=1, fillOpacity=fill, strokeWidth=1.5, clip=True)
        drawn: alt.Chart = dots.encode(
            x=alt.X(f"{field}:Q", scale=scale, axis=axis),
            y=up,
            yOffset=within,
            color=colour,
            stroke=arm_stroke(arms),
            tooltip=told,
        )
        return drawn

    layers = (stretch("x", "far", 1, 0.7), stretch("low", "high", 4, 0.4), marks("x", fill=1))
    return finished(alt.layer(*layers, marks("far", fill=0)), height=height)


def _bands(arms: Sequence[ArmRecord], rows: Sequence[dict[str, Any]]) -> tuple[alt.Y, alt.YOffset, int]:
    """Bands in the order of their first rows, lanes in that of the arms, and the height that they need."""
    ours = [row for row in rows if "category" in row]
    categories = list(dict.fromkeys(row["category"] for row in ours))
    present = {row["arm"] for row in ours}
    lanes = [arm.name for arm in arms if arm.name in present]
    up = alt.Y(
        "category:N",
        sort=categories,
        scale=alt.Scale(domain=categories, paddingInner=_BAND_PADDING, paddingOuter=_BAND_PADDING / 2),
        axis=alt.Axis(title=None, labelExpr=LINES_OF_LABEL, labelLimit=150, ticks=False, grid=False),
    )
    height = max(_LEAST_BAND, _LANE_HEIGHT * len(lanes) + 6) * max(len(categories), 1) + 12
    return up, alt.YOffset("arm:N", scale=alt.Scale(domain=lanes)), height


def _percents(title: str) -> alt.Axis:
    return alt.Axis(labelExpr=_PERCENT_LABEL, title=title, grid=True, tickCount=6, labelOverlap=True)


def _tooltip(field: str, title: str) -> list[alt.Tooltip]:
    return [
        alt.Tooltip("label:N", title="platform"),
        alt.Tooltip("at:N", title="load"),
        alt.Tooltip(f"{field}:N", title=title),
    ]
