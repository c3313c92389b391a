"""The figures of a comparison: ratios with their intervals, and courses over a series of runs."""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import altair as alt

from virtgauge.compare import formatting
from virtgauge.compare.model import Change, Comparison, Finding, Series, SeriesComparison
from virtgauge.report.charts import ROWS, Figure, Panel, PanelData, Row, finished, log_ticks
from virtgauge.results.formatting import ratio_interval
from virtgauge.results.quantities import FACTOR, Quantity

MOST_COURSES = 60
"""Panels of courses on a page; those with steps come first, and the table holds all."""
_COLOURS = {
    "worse": "#c4331c",
    "better": "#1b7f4b",
    "changed": "#8a5a00",
    "equivalent": "#2f7ff0",
    "not shown": "#7b8494",
}
_RATIO_LABEL = "format(datum.value, '~g') + '×'"
_ROW_HEIGHT, _LABEL_WIDTH = 19, 190


@dataclasses.dataclass(frozen=True)
class ComparisonFigures:
    """Figures, and the data of their panels by name."""

    figures: tuple[Figure, ...]
    data: Mapping[str, PanelData]


def change_figures(found: Comparison) -> ComparisonFigures:
    """For each other run and measure, the ratio to the base of every cell: a panel for each arm."""
    figures: list[Figure] = []
    data: dict[str, PanelData] = {}
    for run in found.others:
        for measure in dict.fromkeys(change.measure for change in found.changes):
            rows = {
                arm: [
                    _change_row(found, change)
                    for change in sorted(found.changes, key=lambda change: change.cell)
                    if (change.run, change.measure, change.arm) == (run, measure, arm)
                    and change.own.ratio.point is not None
                ]
                for arm in range(len(found.arms))
            }
            shown = {arm: some for arm, some in rows.items() if some}
            if not shown:
                continue
            caption = "; ".join(
                filter(None, ("Ratio to the base with its interval", formatting.measure_of(measure).better.clause))
            )
            names = {arm: f"change-{run}-{measure}-{arm}" for arm in shown}
            data |= {names[arm]: PanelData("rows", some) for arm, some in shown.items()}
            figures.append(
                Figure(
                    f"{found.title(run)}: {measure}",
                    f"{caption}. The grey bar is what identical arms (A/A) seem to differ by.",
                    _forest([row for some in shown.values() for row in some], max(map(len, shown.values()))),
                    tuple(Panel(found.arms[arm].label, names[arm]) for arm in shown),
                )
            )
    return ComparisonFigures(tuple(figures), data)


def series_figures(found: SeriesComparison) -> ComparisonFigures:
    """The course of every figure over the runs, with its steps; one figure for each measure."""
    figures: list[Figure] = []
    data: dict[str, PanelData] = {}
    drawn = list(found.series[:MOST_COURSES])
    for measure, relative in dict.fromkeys((series.measure, series.relative) for series in drawn):
        own = [series for series in drawn if (series.measure, series.relative) == (measure, relative)]
        panels = []
        for number, series in enumerate(own):
            name = f"course-{measure}-{'relative' if relative else 'own'}-{number}"
            data[name] = PanelData("rows", _course_rows(found, series))
            panels.append(Panel(f"{found.arms[series.arm].label}: {found.cells[series.cell].name}", name))
        what = f"{measure} as a ratio to the reference" if relative else measure
        figures.append(
            Figure(
                what,
                "The median of each run with its interval, in the order in which the runs were made. An upright line "
                "is a change of level; the level lines are the medians of the runs between changes.",
                _courses(len(found.runs), FACTOR if relative else formatting.measure_of(measure).quantity),
                tuple(panels),
            )
        )
    return ComparisonFigures(tuple(figures), data)


def _change_row(found: Comparison, change: Change) -> Row:
    effect = change.own
    band = effect.band if effect.band is not None else 1.0
    return {
        "cell": found.cells[change.cell].name.partition(": ")[2] or found.cells[change.cell].name,
        "x": effect.ratio.point,
        "low": effect.ratio.low,
        "high": effect.ratio.high,
        "bandLow": 1 / band,
        "bandHigh": band,
        "finding": effect.finding.value,
        "t": formatting.change_text(effect, change.measure),
        "interval": ratio_interval(effect.ratio),
        "why": effect.reason,
    }


def _forest(rows: Sequence[Row], most: int) -> dict[str, Any]:
    domain = _ratio_domain(value for row in rows for value in (row["x"], row["low"], row["high"], row["bandHigh"]))
    scale = alt.Scale(type="log", domain=list(domain), nice=False)
    axis = alt.Axis(
        labelExpr=_RATIO_LABEL, values=_ratio_ticks(domain), title=None, labelOverlap=True, labelSeparation=6
    )
    x = alt.X("x:Q", scale=scale, axis=axis)
    cells = list(dict.fromkeys(row["cell"] for row in rows))
    y = alt.Y("cell:N", sort=cells, title=None, axis=alt.Axis(labelLimit=_LABEL_WIDTH, grid=False))
    colour = alt.Color("finding:N", scale=alt.Scale(domain=list(_COLOURS), range=list(_COLOURS.values())), legend=None)
    tooltip = [
        alt.Tooltip("cell:N", title="cell"),
        alt.Tooltip("t:N", title="change"),
        alt.Tooltip("finding:N", title="finding"),
        alt.Tooltip("why:N", title="because"),
    ]
    base = alt.Chart(alt.NamedData(name=ROWS))
    bands = base.mark_bar(color="#7b8494", opacity=0.16, height=13, clip=True).encode(
        x=alt.X("bandLow:Q", scale=scale, axis=axis), x2="bandHigh:Q", y=y
    )
    same = base.mark_rule(color="#7b8494", strokeDash=[3, 3]).encode(x=alt.datum(1, type="quantitative"))
    intervals = (
        base.transform_filter("isValid(datum.low)")
        .mark_rule(strokeWidth=2.4, clip=True)
        .encode(x=alt.X("low:Q", scale=scale, axis=axis), x2="high:Q", y=y, color=colour, tooltip=tooltip)
    )
    dots = base.mark_point(filled=True, size=46, opacity=1, clip=True).encode(x=x, y=y, color=colour, tooltip=tooltip)
    return finished(alt.layer(bands, same, intervals, dots), max(most, 2) * _ROW_HEIGHT)


def _course_rows(found: SeriesComparison, series: Series) -> list[Row]:
    rows: list[Row] = []
    ends = [*(step.after for step in series.steps), len(found.runs) - 1]
    start = 0
    for end in ends:
        part = [level.point for level in series.levels[start : end + 1] if level.point is not None]
        level = statistics.median(part) if part else None
        for place in range(start, end + 1):
            estimate = series.levels[place]
            rows.append(
                {
                    "kind": "run",
                    "place": place,
                    "run": found.runs[place].label,
                    "y": estimate.point,
                    "low": estimate.low,
                    "high": estimate.high,
                    "level": level,
                    "part": start,
                    "t": formatting.figure(estimate, series.measure),
                }
            )
        start = end + 1
    for step in series.steps:
        text = formatting.step_text(found, series, step)
        rows.append({"kind": "step", "place": step.after + 0.5, "finding": step.finding.value, "t": text})
    return rows


def _courses(runs: int, quantity: Quantity) -> dict[str, Any]:
    scale = alt.Scale(domain=[-0.5, runs - 0.5], nice=False)
    every = max(1, math.ceil(runs / 12))
    axis = alt.Axis(values=list(range(0, runs, every)), labelExpr="datum.value + 1", title="run", grid=False)
    x = alt.X("place:Q", scale=scale, axis=axis)
    up_axis = alt.Axis(title=None, labelExpr=_label(quantity), tickCount=4)
    up = alt.Scale(zero=False)
    base = alt.Chart(alt.NamedData(name=ROWS))
    ours = base.transform_filter("datum.kind == 'run' && isValid(datum.y)")
    tooltip = [alt.Tooltip("run:N", title="run"), alt.Tooltip("t:N", title="median")]
    levels = ours.mark_line(color="#7b8494", strokeWidth=1.4, strokeDash=[5, 3]).encode(
        x=x, y=alt.Y("level:Q", scale=up, axis=up_axis), detail="part:N"
    )
    intervals = (
        ours.transform_filter("isValid(datum.low)")
        .mark_rule(color="#2f7ff0", strokeWidth=3, opacity=0.4)
        .encode(x=x, y=alt.Y("low:Q", scale=up, axis=up_axis), y2="high:Q", tooltip=tooltip)
    )
    dots = ours.mark_point(filled=True, size=40, opacity=1, color="#2f7ff0").encode(
        x=x, y=alt.Y("y:Q", scale=up, axis=up_axis), tooltip=tooltip
    )
    steps = (
        base.transform_filter("datum.kind == 'step'")
        .mark_rule(strokeWidth=2)
        .encode(
            x=x,
            color=alt.Color(
                "finding:N", scale=alt.Scale(domain=list(_COLOURS), range=list(_COLOURS.values())), legend=None
            ),
            tooltip=[alt.Tooltip("t:N", title="change")],
        )
    )
    return finished(alt.layer(levels, intervals, dots, steps), 150)


def _label(quantity: Quantity) -> str:
    """An axis' labels in a person's units, as an expression of Vega's."""
    smallest, *larger = quantity.shown
    factor = quantity.factors[smallest]
    expression = f"format(datum.value / {factor}, '~g') + {json.dumps(' ' + smallest)}"
    for unit in larger:
        factor = quantity.factors[unit]
        label = f"format(datum.value / {factor}, '~g') + {json.dumps(' ' + unit)}"
        expression = f"abs(datum.value) >= {factor} ? {label} : {expression}"
    return expression


def _ratio_domain(values: Iterable[float | None]) -> tuple[float, float]:
    """A logarithmic axis about 1, a little wider than the values."""
    reach = max((abs(math.log(value)) for value in values if value is not None and value > 0), default=0.0)
    reach = max(reach * 1.1, math.log(1.1))
    return math.exp(-reach), math.exp(reach)


def _ratio_ticks(domain: tuple[float, float]) -> list[float]:
    if domain[1] > 3:
        return log_ticks(domain)
    step = 0.05 if domain[1] < 1.15 else 0.1 if domain[1] < 1.4 else 0.5
    first, last = math.ceil(domain[0] / step), math.floor(domain[1] / step)
    return [round(number * step, 2) for number in range(first, last + 1) if number > 0]


FINDING_COLOURS: Mapping[Finding, str] = {Finding(name): colour for name, colour in _COLOURS.items()}
"""For the legend of the figures."""
