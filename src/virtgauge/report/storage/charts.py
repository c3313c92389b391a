"""The kinds of charts that the storage figures are made of, and their axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import altair as alt

from virtgauge.ledger.records import ArmRecord
from virtgauge.report.charts import (
    ROWS,
    arm_colour,
    arm_stroke,
    ccdf_curves,
    domain_of,
    finished,
    lines_with_intervals,
    log_ticks,
    time_ticks,
)

_COUNT_LABEL = (
    "datum.value >= 1e6 ? format(datum.value / 1e6, '~g') + ' M'"
    " : datum.value >= 1e4 ? format(datum.value / 1e3, '~g') + ' k'"
    " : format(datum.value, ',~g')"
)
_LINES_HEIGHT = 210
_ROW_HEIGHT, _LEAST_BAND = 15, 26
_BAND_PADDING = 0.25
PAPER_LANE = "paper"
"""Where the paper's figures lie in a band, below the arms'."""

Quantity = Literal["clients", "rate", "offered", "time"]


def dots(arms: Sequence[ArmRecord], rows: Sequence[dict[str, Any]], unit: str) -> dict[str, Any]:
    """Rates along a logarithmic axis, a band for each category and a line within it for each arm.

    Rows have ``kind`` (``ours``, ``published``), ``category``, ``arm``, ``x``, ``low``, ``high`` and texts; published
    ones a ``shape``, and ``arm`` is then :data:`PAPER_LANE`.
    """
    categories = list(dict.fromkeys(row["category"] for row in sorted(rows, key=lambda row: row.get("place", 0))))
    present = {row["arm"] for row in rows if row["kind"] == "ours"}
    shown = [arm.name for arm in arms if arm.name in present]
    source = alt.NamedData(name=ROWS)
    ends = [row[end] for row in rows for end in ("x", "low", "high") if row.get(end) is not None]
    scale, axis = _scale("rate", ends), _axis("rate", ends, f"{unit} (logarithmic)")
    across = alt.X("x:Q", scale=scale, axis=axis)
    up = alt.Y(
        "category:N",
        sort=categories,
        scale=alt.Scale(domain=categories, paddingInner=_BAND_PADDING, paddingOuter=_BAND_PADDING / 2),
        axis=alt.Axis(title=None, labelLimit=130, ticks=False, grid=False),
    )
    lanes = [*shown, PAPER_LANE] if any(row["kind"] == "published" for row in rows) else shown
    within = alt.YOffset("arm:N", scale=alt.Scale(domain=lanes))
    colour = arm_colour(arms)
    tooltip = [
        alt.Tooltip("label:N", title="platform"),
        alt.Tooltip("category:N", title="of"),
        alt.Tooltip("t:N", title="median"),
        alt.Tooltip("interval:N", title="interval"),
        alt.Tooltip("why:N", title="limit"),
    ]
    base = alt.Chart(source).transform_filter("datum.kind == 'ours'")
    intervals = (
        base.transform_filter("isValid(datum.low)")
        .mark_rule(strokeWidth=3, opacity=0.4, clip=True)
        .encode(
            x=alt.X("low:Q", scale=scale, axis=axis), x2="high:Q", y=up, yOffset=within, color=colour, tooltip=tooltip
        )
    )
    points = base.mark_point(filled=True, size=46, opacity=1, strokeWidth=1.4, clip=True).encode(
        x=across,
        y=up,
        yOffset=within,
        color=colour,
        stroke=arm_stroke(arms),
        fillOpacity=alt.condition("datum.hollow", alt.value(0), alt.value(1)),
        tooltip=tooltip,
    )
    published = (
        alt.Chart(source)
        .transform_filter("datum.kind == 'published'")
        .mark_point(size=60, strokeWidth=1.6, opacity=0.9, color="currentColor", filled=False, clip=True)
        .encode(
            x=across,
            y=up,
            yOffset=within,
            shape=alt.Shape("shape:N", scale=None, legend=None),
            tooltip=[alt.Tooltip("t:N", title="published, other hardware")],
        )
    )
    height = max(_LEAST_BAND, _ROW_HEIGHT * len(lanes)) * max(len(categories), 1) + 16
    return finished(alt.layer(intervals, points, published), height=height)


def lines(
    arms: Sequence[ArmRecord],
    rows: Sequence[dict[str, Any]],
    *,
    x: Quantity,
    y: Quantity,
    x_title: str,
    y_title: str | None = None,
) -> dict[str, Any]:
    """A line for each arm through its points, with intervals; rules at rows of the kinds ``rule`` and ``bound``."""
    points = [row for row in rows if row["kind"] not in ("rule", "bound")]
    across_values = [row["x"] for row in points] + [row["x"] for row in rows if row["kind"] == "rule"]
    ends = [row[end] for row in points for end in ("y", "low", "high") if row.get(end) is not None]
    ends += [row["y"] for row in rows if row["kind"] == "bound"]
    across = alt.X("x:Q", scale=_scale(x, across_values), axis=_axis(x, across_values, x_title))
    up_scale, up_axis = _scale(y, ends), _axis(y, ends, y_title)
    layers = [lines_with_intervals(arms, across, up_scale, up_axis)]
    source = alt.NamedData(name=ROWS)
    if any(row["kind"] == "rule" for row in rows):
        rules = alt.Chart(source).transform_filter("datum.kind == 'rule'").mark_rule(strokeWidth=1.4, opacity=0.8)
        told = [alt.Tooltip("label:N", title="platform"), alt.Tooltip("t:N", title="knee")]
        layers.append(alt.layer(rules.encode(x=across, color=arm_colour(arms), tooltip=told)))
    if any(row["kind"] == "bound" for row in rows):
        bounds = alt.Chart(source).transform_filter("datum.kind == 'bound'")
        line = bounds.mark_rule(strokeDash=[3, 4], strokeWidth=1.2, color="currentColor", opacity=0.8)
        told = [alt.Tooltip("t:N", title="objective of the knee")]
        layers.append(alt.layer(line.encode(y=alt.Y("y:Q", scale=up_scale, axis=up_axis), tooltip=told)))
    return finished(alt.layer(*layers), height=_LINES_HEIGHT)


def curves(arms: Sequence[ArmRecord], values_ns: Sequence[float], shares: Sequence[float]) -> dict[str, Any]:
    """P(X > x) of durations, a curve for each arm."""
    layers, _, _ = ccdf_curves(arms, domain_of(values_ns), min(shares))
    return finished(alt.layer(*layers), height=_LINES_HEIGHT)


def _scale(quantity: Quantity, values: Sequence[float]) -> alt.Scale:
    if quantity == "clients":
        return alt.Scale(type="log", base=2, domain=[min(values) / 1.15, max(values) * 1.15], nice=False)
    return alt.Scale(type="log", domain=list(domain_of(values)), nice=False)


def _axis(quantity: Quantity, values: Sequence[float], title: str | None) -> alt.Axis:
    if quantity == "clients":
        return alt.Axis(values=sorted(set(values)), format="d", title=title, grid=True, labelOverlap=True)
    if quantity == "time":
        axis = time_ticks(domain_of(values))
        return axis.copy(deep=False) if title is None else _titled(axis, title)
    ticks = log_ticks(domain_of(values))
    return alt.Axis(labelExpr=_COUNT_LABEL, values=ticks, title=title, labelOverlap=True, grid=True)


def _titled(axis: alt.Axis, title: str) -> alt.Axis:
    titled = axis.copy()
    titled["title"] = title
    return titled
