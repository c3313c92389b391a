"""The interference matrix: what each benchmark keeps beside each load, on one platform."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from virtgauge.report.charts import ROWS, finished
from virtgauge.report.isolation.charts import LINES_OF_LABEL

_ROW_HEIGHT = 34
_COLOUR = "#e5484d"
_FAINTEST, _STRONGEST = 0.0, 0.6
"""Opacities; a number must be readable on the strongest one, on light pages and dark ones."""
_MOST_LEVEL_LABELS = 3
_WORST = 0.75
"""A loss from which on the colour does not change any more."""


def matrix(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Squares of benchmarks above loads, the redder the more is lost.

    Rows have ``benchmark`` and ``load`` (a bar begins the next line), ``lost`` (of 1; less than 0 where more was done),
    ``figure``, ``t`` and ``interval``.
    """
    benchmarks = list(dict.fromkeys(row["benchmark"] for row in rows))
    loads = list(dict.fromkeys(row["load"] for row in rows))
    plain: dict[str, Any] = {"title": None, "labelLimit": 180, "ticks": False, "domain": False, "grid": False}
    few = len(loads) <= _MOST_LEVEL_LABELS
    below = {"labelExpr": LINES_OF_LABEL} if few else {"labelExpr": "replace(datum.label, '|', ' ')", "labelAngle": -40}
    across = alt.X(
        "load:N",
        sort=loads,
        scale=alt.Scale(domain=loads, padding=0.04),
        axis=alt.Axis(**(plain | {"labelAngle": 0} | below)),
    )
    up = alt.Y(
        "benchmark:N",
        sort=benchmarks,
        scale=alt.Scale(domain=benchmarks, padding=0.04),
        axis=alt.Axis(labelExpr=LINES_OF_LABEL, labelLineHeight=11, **plain),
    )
    base = alt.Chart(alt.NamedData(name=ROWS)).encode(
        x=across,
        y=up,
        tooltip=[
            alt.Tooltip("t:N", title="of"),
            alt.Tooltip("figure:N", title="kept"),
            alt.Tooltip("interval:N", title="interval"),
        ],
    )
    squares = base.mark_rect(color=_COLOUR, stroke="currentColor", strokeOpacity=0.18, strokeWidth=1).encode(
        fillOpacity=alt.FillOpacity(
            "lost:Q",
            scale=alt.Scale(domain=[0, _WORST], range=[_FAINTEST, _STRONGEST], clamp=True),
            legend=None,
        )
    )
    figures = base.mark_text(fontSize=12, color="currentColor").encode(text="figure:N")
    return finished(alt.layer(squares, figures), height=_ROW_HEIGHT * len(benchmarks))
