"""The kinds of charts that the bandwidth figures are made of."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import altair as alt

from virtgauge.ledger.records import ArmRecord
from virtgauge.report.charts import (
    ROWS,
    arm_colour,
    arm_dash,
    arm_stroke,
    ccdf_curves,
    domain_of,
    finished,
    lines_with_intervals,
    log_ticks,
)

_RATE_LABEL = (
    "datum.value >= 1e3 ? format(datum.value / 1e3, ',~g') + ' Gbit/s' : format(datum.value, ',~g') + ' Mbit/s'"
)
_SIGNED_LABEL = "(datum.value > 0 ? '+' : datum.value < 0 ? '−' : '') + format(abs(datum.value) * 100, '~g')"
_LINES_OF_LABEL = "split(datum.label, '|')"
_TIMES_LABEL = "format(datum.value, '~g') + ' ×'"
_HEIGHT = 200
_LANE_HEIGHT, _LEAST_BAND, _BAND_PADDING = 10, 30, 0.25
_HEADROOM = 0.06
_LINEAR_UP_TO = 0.01
"""Errors within ±1 % lie on a linear axis, larger ones on a logarithmic one."""
_SHORTEST_GAP = 0.1
"""Of what was planned; what is shorter would take most of a logarithmic axis, and tells little."""
_SIGNED_TICKS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
_MOST_NAMED_STRIPS = 6
_TRIANGLE = "triangle-down"

Rows = Sequence[dict[str, Any]]


def against_cross(arms: Sequence[ArmRecord], rows: Rows, y_title: str) -> dict[str, Any]:
    """Rates over the cross traffic: a line for each arm, with intervals.

    Rows are those of :func:`~virtgauge.report.charts.lines_with_intervals`; ``guide`` for points of the line of what
    was available: ``across``, ``up`` and ``t``; ``refused`` for what could be paced at most: the same, with ``arm`` and
    ``label``.
    """
    acrosses = [row[name] for row in rows for name in ("x", "across") if row.get(name) is not None]
    across_scale = alt.Scale(domain=_widened(acrosses), nice=False)
    across_axis = alt.Axis(title="cross traffic, Mbit/s", grid=True, tickCount=6, labelOverlap=True)
    across = alt.X("x:Q", scale=across_scale, axis=across_axis)
    ups = [row[end] for row in rows for end in ("y", "low", "high", "up") if row.get(end) is not None]
    up_scale = alt.Scale(domain=[0, max(ups) * (1 + _HEADROOM)], nice=False)
    up_axis = alt.Axis(title=y_title, grid=True, tickCount=5, labelOverlap=True)
    guide = (
        alt.Chart(alt.NamedData(name=ROWS))
        .transform_filter("datum.kind == 'guide'")
        .mark_line(color="currentColor", strokeWidth=1.2, strokeDash=[2, 3], opacity=0.9, clip=True)
        .encode(
            x=alt.X("across:Q", scale=across_scale, axis=across_axis),
            y=alt.Y("up:Q", scale=up_scale, axis=up_axis),
            tooltip=[alt.Tooltip("t:N", title="available")],
        )
    )
    refused = _refused(
        arms, alt.X("across:Q", scale=across_scale, axis=across_axis), alt.Y("up:Q", scale=up_scale, axis=up_axis)
    )
    return finished(alt.layer(guide, lines_with_intervals(arms, across, up_scale, up_axis), refused), height=_HEIGHT)


def strips(arms: Sequence[ArmRecord], rows: Rows, present: Sequence[str]) -> dict[str, Any]:
    """Instant estimates, a strip for each arm; side to side means nothing within one.

    Args:
        arms: of the manifest.
        rows: of the kinds ``raw`` and ``published`` (``x``, ``y``), ``median`` (``x``, ``x2``, ``y``), ``truth``
            (``y``) and ``refused`` (``across``, ``up``), each with ``t``; those of an arm with ``arm`` and ``label``.
        present: names of the arms that have strips, in order.
    """
    scale = alt.Scale(domain=_widened([row[name] for row in rows for name in ("y", "up") if name in row]), nice=False)
    middles = [place + 0.5 for place in range(len(present))]
    names = " : ".join(f"datum.value == {at} ? {json.dumps(name)}" for at, name in zip(middles, present, strict=True))
    labels = alt.Axis(
        values=middles,
        labelExpr=f"{names} : ''",
        title=None,
        grid=False,
        ticks=False,
        labelLimit=310 // max(len(present), 1),
    )
    # Beyond a few arms their names do not fit below their strips; the colours remain.
    axis = labels if len(present) <= _MOST_NAMED_STRIPS else None
    across = alt.X("x:Q", scale=alt.Scale(domain=[0, len(present)], nice=False), axis=axis)
    up = alt.Y("y:Q", scale=scale, axis=alt.Axis(labelExpr=_RATE_LABEL, title=None, tickCount=6))
    colour, told = arm_colour(arms), [alt.Tooltip("label:N", title="platform"), alt.Tooltip("t:N", title="estimate")]
    source = alt.NamedData(name=ROWS)

    def of(kind: str) -> alt.Chart:
        return alt.Chart(source).transform_filter(f"datum.kind == '{kind}'")

    truth = (
        of("truth")
        .mark_rule(strokeDash=[2, 3], strokeWidth=1.2, color="currentColor", opacity=0.9)
        .encode(y=up, tooltip=[alt.Tooltip("t:N", title="available")])
    )
    raw = of("raw").mark_circle(size=15, opacity=0.55, clip=True).encode(x=across, y=up, color=colour, tooltip=told)
    medians = (
        of("median")
        .mark_rule(strokeWidth=2.6, clip=True)
        .encode(x=across, x2="x2:Q", y=up, color=colour, strokeDash=arm_dash(arms), tooltip=told)
    )
    crosses = (
        of("published")
        .mark_point(shape="cross", angle=45, filled=True, size=58, opacity=0.9, color="currentColor", clip=True)
        .encode(x=across, y=up, tooltip=[alt.Tooltip("t:N", title="published, other hardware")])
    )
    over = alt.X("across:Q", scale=across["scale"], axis=axis)
    refused = _refused(arms, over, alt.Y("up:Q", scale=scale, axis=up["axis"]))
    return finished(alt.layer(truth, raw, medians, crosses, refused), height=_HEIGHT)


def _refused(arms: Sequence[ArmRecord], across: alt.X, up: alt.Y) -> alt.Chart:
    """What could be paced at most, as hollow triangles."""
    chart: alt.Chart = (
        alt.Chart(alt.NamedData(name=ROWS))
        .transform_filter("datum.kind == 'refused'")
        .mark_point(shape=_TRIANGLE, size=70, filled=False, strokeWidth=1.6, opacity=1, clip=True)
        .encode(
            x=across,
            y=up,
            stroke=arm_stroke(arms),
            tooltip=[alt.Tooltip("label:N", title="platform"), alt.Tooltip("t:N", title="cannot pace")],
        )
    )
    return chart


def signed(arms: Sequence[ArmRecord], rows: Rows, title: str) -> dict[str, Any]:
    """Shares around zero with their intervals: a band for each category, a lane within it for each arm.

    Rows have ``category`` (a bar begins its next line), ``at``, ``arm``, ``label``, ``x``, ``low``, ``high``, ``t`` and
    ``interval``; ``hollow`` marks what no difference was shown of.
    """
    ends = [abs(row[end]) for row in rows for end in ("x", "low", "high") if row.get(end) is not None]
    # One tick more than what is seen, so that the axis has both signs' next ones within it.
    reach = next((tick for tick in _SIGNED_TICKS if tick > max(ends, default=0.0)), max(ends, default=1.0)) * 1.05
    ticks = [tick for tick in _SIGNED_TICKS if tick <= reach]
    scale = alt.Scale(type="symlog", constant=_LINEAR_UP_TO, domain=[-reach, reach], nice=False)
    axis = alt.Axis(
        values=[*(-tick for tick in reversed(ticks)), 0, *ticks],
        labelExpr=_SIGNED_LABEL,
        title=title,
        labelOverlap=True,
    )
    categories = list(dict.fromkeys(row["category"] for row in rows))
    present = {row["arm"] for row in rows}
    lanes = [arm.name for arm in arms if arm.name in present]
    up = alt.Y(
        "category:N",
        sort=categories,
        scale=alt.Scale(domain=categories, paddingInner=_BAND_PADDING, paddingOuter=_BAND_PADDING / 2),
        axis=alt.Axis(title=None, labelExpr=_LINES_OF_LABEL, labelLimit=150, ticks=False, grid=False),
    )
    within = alt.YOffset("arm:N", scale=alt.Scale(domain=lanes))
    colour = arm_colour(arms)
    told = [
        alt.Tooltip("label:N", title="platform"),
        alt.Tooltip("at:N", title="of"),
        alt.Tooltip("t:N", title="median"),
        alt.Tooltip("interval:N", title="interval"),
    ]
    zero = (
        alt.Chart(alt.NamedData(name=ROWS))
        .mark_rule(strokeDash=[3, 3], strokeWidth=1.2, color="currentColor", opacity=0.6)
        .encode(x=alt.XDatum(0, scale=scale, axis=axis))
    )
    base = alt.Chart(alt.NamedData(name=ROWS))
    intervals = (
        base.transform_filter("isValid(datum.low)")
        .mark_rule(strokeWidth=4, opacity=0.4, clip=True)
        .encode(x=alt.X("low:Q", scale=scale, axis=axis), x2="high:Q", y=up, yOffset=within, color=colour, tooltip=told)
    )
    marks = base.mark_point(filled=True, size=44, opacity=1, strokeWidth=1.5, clip=True).encode(
        x=alt.X("x:Q", scale=scale, axis=axis),
        y=up,
        yOffset=within,
        color=colour,
        stroke=arm_stroke(arms),
        fillOpacity=alt.condition("datum.hollow", alt.value(0), alt.value(1)),
        tooltip=told,
    )
    height = max(_LEAST_BAND, _LANE_HEIGHT * len(lanes) + 6) * max(len(categories), 1) + 12
    return finished(alt.layer(zero, intervals, marks), height=height)


def gap_curves(arms: Sequence[ArmRecord], values: Sequence[float], shares: Sequence[float]) -> dict[str, Any]:
    """P(X > x) of gaps in times of what was planned, a curve for each arm; rows are curves as the page makes them."""
    domain = domain_of(value for value in values if value >= _SHORTEST_GAP)
    layers, _, _ = ccdf_curves(arms, domain, min(shares))
    axis = alt.Axis(values=log_ticks(domain), labelExpr=_TIMES_LABEL, title=None, labelOverlap=True, grid=True)
    across = alt.X("x:Q", scale=alt.Scale(type="log", domain=list(domain), nice=False), axis=axis)
    return finished(alt.layer(*(layer.encode(x=across) for layer in layers)), height=_HEIGHT)


def lateness_curves(arms: Sequence[ArmRecord], values_ns: Sequence[float], shares: Sequence[float]) -> dict[str, Any]:
    """P(X > x) of durations, a curve for each arm; of panels of the kind ``curves``."""
    layers, _, _ = ccdf_curves(arms, domain_of(values_ns), min(shares))
    return finished(alt.layer(*layers), height=_HEIGHT)


def _widened(values: Sequence[float]) -> list[float]:
    low, high = min(values), max(values)
    margin = _HEADROOM * ((high - low) or high or 1.0)
    return [low - margin, high + margin]
