"""The two kinds of charts that the forwarding figures are made of, and their axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import altair as alt

from virtgauge.ledger.records import ArmRecord
from virtgauge.report.charts import (
    ROWS,
    arm_colour,
    arm_dash,
    domain_of,
    finished,
    lines_with_intervals,
    log_ticks,
    time_ticks,
)

_RATE_LABEL = (
    "datum.value >= 1e3 ? format(datum.value / 1e3, '~g') + ' Gbit/s'"
    " : datum.value >= 0.1 ? format(datum.value, '~g') + ' Mbit/s'"
    " : format(datum.value * 1e3, '~g') + ' kbit/s'"
)
_LOSS_LABEL = "datum.value == 0 ? '0' : format(datum.value * 100, '~g') + ' %'"
_LOSS_TICKS = [0, 0.001, 0.01, 0.1, 1]
_LINEAR_BELOW = 0.001
_HEIGHT = 210

Quantity = Literal["fairness", "size", "rate", "time"]


def lines(arms: Sequence[ArmRecord], rows: Sequence[dict[str, Any]], *, x: Quantity, y: Quantity) -> dict[str, Any]:
    """A line for each arm through its points, with intervals; published figures as marks without a line."""
    across = alt.X("x:Q", scale=_scale(x, [row["x"] for row in rows]), axis=_axis(x, [row["x"] for row in rows]))
    ends = [row[end] for row in rows for end in ("y", "low", "high") if row.get(end) is not None]
    return finished(lines_with_intervals(arms, across, _scale(y, ends), _axis(y, ends)), height=_HEIGHT)


def losses(arms: Sequence[ArmRecord], rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Points of loss over load, and a rule at every arm's throughput."""
    source = alt.NamedData(name=ROWS)
    loads = [row["x"] for row in rows]
    across = alt.X("x:Q", scale=_scale("rate", loads), axis=_axis("rate", loads))
    scale = alt.Scale(type="symlog", constant=_LINEAR_BELOW, domain=[0, 1], nice=False)
    axis = alt.Axis(values=_LOSS_TICKS, labelExpr=_LOSS_LABEL, title=None)
    colour = arm_colour(arms)
    platform = alt.Tooltip("label:N", title="platform")
    points = (
        alt.Chart(source)
        .transform_filter("datum.kind == 'point'")
        .mark_circle(size=22, opacity=0.6)
        .encode(
            x=across,
            y=alt.Y("y:Q", scale=scale, axis=axis),
            color=colour,
            tooltip=[platform, alt.Tooltip("at:N", title="offered"), alt.Tooltip("t:N", title="lost")],
        )
    )
    rules = (
        alt.Chart(source)
        .transform_filter("datum.kind == 'throughput'")
        .mark_rule(strokeWidth=1.4, opacity=0.8, clip=True)
        .encode(
            x=across,
            color=colour,
            strokeDash=arm_dash(arms),
            tooltip=[platform, alt.Tooltip("t:N", title="throughput")],
        )
    )
    return finished(alt.layer(rules, points), height=_HEIGHT)


def _scale(quantity: Quantity, values: Sequence[float]) -> alt.Scale:
    if quantity == "fairness":
        return alt.Scale(domain=[0, 1.03], nice=False)
    if quantity == "size":
        return alt.Scale(domain=[0, max(values) * 1.04], nice=False)
    return alt.Scale(type="log", domain=list(domain_of(values)), nice=False)


def _axis(quantity: Quantity, values: Sequence[float]) -> alt.Axis:
    if quantity == "fairness":
        return alt.Axis(values=[0, 0.2, 0.4, 0.6, 0.8, 1], format="~g", title="J", grid=True)
    if quantity == "size":
        sizes = sorted(set(values))
        return alt.Axis(values=sizes, labelExpr="datum.value + ' B'", title=None, grid=True, labelOverlap=True)
    if quantity == "time":
        return time_ticks(domain_of(values))
    ticks = log_ticks(domain_of(values), most_decades=math.inf)
    return alt.Axis(labelExpr=_RATE_LABEL, values=ticks, title=None, labelOverlap=True, grid=True)
