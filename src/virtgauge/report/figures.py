"""The figures, as Vega-Lite specifications without data.

Every panel is a chart of its own, so that the page can lay panels out to its width; the panels of one figure share
their axes' domains.  Data comes by name from the page's one copy of it.  Colours belong to arms and are the same in
every figure; text and lines of the axes are coloured by the page's style sheet, which knows light from dark.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

import altair as alt

from virtgauge.ledger.records import ArmRecord
from virtgauge.report.model import Cell, Report
from virtgauge.report.words import load_label, probe_title

# Vega measures labels in this font before it places them; the page uses the same.
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
REFERENCE_COLOUR = "#7b8494"
_COLOURS = (
    *("#2f7ff0", "#ee7d22", "#12a594", "#c44fb8", "#b89400"),
    *("#8a63f0", "#e5484d", "#56a336", "#0ea5d0", "#a1745a"),
)

_TIME_LABEL = (
    "datum.value >= 1e9 ? format(datum.value / 1e9, ',~g') + ' s'"
    " : datum.value >= 1e6 ? format(datum.value / 1e6, '~g') + ' ms'"
    " : datum.value >= 1e3 ? format(datum.value / 1e3, '~g') + ' µs'"
    " : format(datum.value, '~g') + ' ns'"
)
_MOST_NAMED_STRIPS = 6
_PUBLISHED = alt.Tooltip("t:N", title="published, other hardware")
_SHARE_LABEL = "datum.value >= 1 ? 'all' : '1 in ' + format(round(1 / datum.value), '~s')"

_CCDF_CAPTIONS = {
    "timer_cost": "How often reading the clock takes longer than the time below.",
    "sleep_lateness": "How often a sleep wakes later after its deadline than the time below.",
}

_CROSSES = " Crosses: published medians of the same function and load, measured on other hardware."

ROWS = "rows"
"""The name that a specification gives to its panel's data."""


@dataclasses.dataclass(frozen=True)
class Panel:
    """One chart of a figure: its title, and the name of its data."""

    title: str
    data: str


@dataclasses.dataclass(frozen=True)
class Figure:
    """Panels that belong together and are drawn alike.

    Attributes:
        title, caption: what the figure shows and how to read it.
        spec: the chart of every panel; its data is called :data:`ROWS`.
        panels: one for each function.
    """

    title: str
    caption: str
    spec: dict[str, Any]
    panels: tuple[Panel, ...]


def arm_colours(arms: Sequence[ArmRecord]) -> dict[str, str]:
    """A colour for every arm: neutral for reference and A/A, else by order in the plan."""
    tests = [arm.name for arm in arms if arm.role == "test"]
    colours = {name: _COLOURS[place % len(_COLOURS)] for place, name in enumerate(tests)}
    return {arm.name: colours.get(arm.name, REFERENCE_COLOUR) for arm in arms}


def arm_dashes(arms: Sequence[ArmRecord]) -> dict[str, list[int]]:
    """Solid lines for measured arms, dashed for emulated ones, dotted for the A/A arm."""
    return {arm.name: [7, 3] if arm.emulated else [2, 2] if arm.role == "aa" else [1, 0] for arm in arms}


def distribution_figures(report: Report) -> list[Figure]:
    """For each probe and load: the raw values with their medians, and P(X > x) with its means.

    A panel for each function.  In the manner of Kirova et al. 2019, figures 4, 6, 8, 10, 12 and 14, and 5, 7, 9, 11,
    13 and 15: medians are bold lines, means dashed rules.
    """
    figures = []
    groups: dict[tuple[str, str], list[int]] = {}
    for index, cell in enumerate(report.cells):
        if cell.curves:
            groups.setdefault((cell.probe, cell.load), []).append(index)
    for (probe, load), indices in groups.items():
        title = probe_title(probe) + (f", {load_label(load)}" if load else "")
        crosses = any(row.cell in indices for row in report.published)
        drawn = [index for index in indices if report.cells[index].scatters]
        if drawn:
            panels = tuple(Panel(report.cells[index].function, f"raw-{index}") for index in drawn)
            caption = (
                "Raw values of one typical repetition: some drawn at random, its smallest and its largest. Bold lines "
                "are the medians over all repetitions; side to side means nothing." + (_CROSSES if crosses else "")
            )
            figures.append(Figure(f"{title}: values", caption, _scatter(report, drawn), panels))
        cells = [report.cells[index] for index in indices]
        domain = _domain(value for cell in cells for curve in cell.curves for value in curve.values_ns)
        least = min(share for cell in cells for curve in cell.curves for share in curve.shares)
        panels = tuple(Panel(report.cells[index].function, f"ccdf-{index}") for index in indices)
        caption = (
            f"{_CCDF_CAPTIONS.get(probe, 'How often the value is larger than the one below.')} Further left is better; "
            "a long tail to the right is what a deadline meets. Dashed vertical rules stand at the means."
            + (_CROSSES if crosses else "")
        )
        figures.append(Figure(f"{title}: distribution", caption, _ccdf(report, domain, least), panels))
    return figures


def published_medians(report: Report, cell: int) -> dict[str, float]:
    """The published medians beside ours in a cell, by arm."""
    return {row.arm: row.median_ns for row in report.published if row.cell == cell}


def median_figures(report: Report) -> list[Figure]:
    """For each probe: medians with their intervals, a panel for each function, a row for each arm."""
    figures = []
    for probe in dict.fromkeys(cell.probe for cell in report.cells):
        cells = [cell for cell in report.cells if cell.probe == probe and cell.curves]
        if not cells:
            continue
        measured = [
            value
            for cell in cells
            for series in cell.series
            for value in (
                series.statistics["p50"].point,
                series.statistics["p50"].low,
                series.statistics["p50"].high,
            )
            if value is not None
        ]
        functions = list(dict.fromkeys(cell.function for cell in cells))
        published = [row.median_ns for row in report.published if report.cells[row.cell].probe == probe]
        domain = _domain([*measured, *published])
        panels = tuple(Panel(function, median_data_name(probe, place)) for place, function in enumerate(functions))
        loads = list(dict.fromkeys(load_label(cell.load) for cell in cells))
        marks = "; ".join(f"{_SHAPES[place % 4][1]}: {load}" for place, load in enumerate(loads) if load)
        caption = "Median over repetitions with its interval, where wider than its mark."
        if marks:
            caption += f" {marks}."
        if any(arm.record.emulated and arm.trials for arm in report.arms):
            caption += " Hollow marks are emulated."
        if published:
            caption += " Crosses: published figures of the same function, measured on other hardware."
        spec = _medians(report, domain, cells)
        figures.append(Figure(f"{probe_title(probe)}: medians", caption, spec, panels))
    return figures


def _row_labels(report: Report) -> dict[str, str]:
    """A label for every arm, told apart by its name where two arms share one."""
    labels = [arm.record.label for arm in report.arms]
    return {
        arm.record.name: arm.record.label
        if labels.count(arm.record.label) == 1
        else f"{arm.record.label} [{arm.record.name}]"
        for arm in report.arms
    }


def median_data_name(probe: str, place: int) -> str:
    """The name of the data behind a panel of :func:`median_figures`."""
    return f"medians-{probe}-{place}"


def median_data(report: Report) -> dict[str, list[dict[str, Any]]]:
    """The rows behind every panel of :func:`median_figures`."""
    labels = _row_labels(report)
    emulated = {arm.record.name for arm in report.arms if arm.record.emulated}
    data: dict[str, list[dict[str, Any]]] = {}
    for probe in dict.fromkeys(cell.probe for cell in report.cells):
        cells = [(index, cell) for index, cell in enumerate(report.cells) if cell.probe == probe and cell.curves]
        functions = list(dict.fromkeys(cell.function for _, cell in cells))
        for index, cell in cells:
            rows = data.setdefault(median_data_name(probe, functions.index(cell.function)), [])
            for series in cell.series:
                estimate = series.statistics["p50"]
                if estimate.point is None:
                    continue
                place = {"arm": series.arm, "label": labels[series.arm], "load": load_label(cell.load)}
                figures = {"x": estimate.point, "low": estimate.low, "high": estimate.high}
                rows.append({"kind": "ours", "emulated": series.arm in emulated, **place, **figures})
            for published in report.published:
                if published.cell == index:
                    place = {"arm": published.arm, "label": labels[published.arm], "load": load_label(cell.load)}
                    rows.append({"kind": "published", "x": published.median_ns, **place})
    return data


def _domain(values: Iterable[float]) -> tuple[float, float]:
    """A logarithmic axis around these values, a little wider than they are; only positive ones can be drawn."""
    positive = [value for value in values if value > 0]
    if not positive:
        return 1.0, 10.0
    low, high = min(positive), max(positive)
    if high / low < 4:
        low, high = low / 2, high * 2
    return low / 1.15, high * 1.15


def _time_axis(domain: tuple[float, float]) -> alt.X:
    return alt.X("x:Q", scale=alt.Scale(type="log", domain=list(domain), nice=False), axis=_time_ticks(domain))


def _time_ticks(domain: tuple[float, float]) -> alt.Axis:
    # Two orders of magnitude need ticks between the decades, eight do not; about one label a decade at most.
    decades = math.log10(domain[1] / domain[0])
    step = max(1, math.ceil(decades / 6))
    exponents = range(math.floor(math.log10(domain[0])), math.ceil(math.log10(domain[1])) + 1)
    factors = (1, 2, 5) if decades < 2 else (1, 3) if decades < 3 else (1,)
    ticks = [m * 10.0**e for e in exponents if e % step == 0 for m in factors]
    inside = [tick for tick in ticks if domain[0] <= tick <= domain[1]]
    return alt.Axis(labelExpr=_TIME_LABEL, values=inside, title=None, labelOverlap=True, grid=True)


def _arm_scale(report: Report, values: dict[str, Any]) -> alt.Scale:
    names = [arm.record.name for arm in report.arms]
    return alt.Scale(domain=names, range=[values[name] for name in names])


def _ccdf(report: Report, domain: tuple[float, float], least: float) -> dict[str, Any]:
    records = [arm.record for arm in report.arms]
    colour = alt.Color("arm:N", scale=_arm_scale(report, arm_colours(records)), legend=None)
    dash = alt.StrokeDash("arm:N", scale=_arm_scale(report, arm_dashes(records)), legend=None)
    bottom = 10 ** math.floor(math.log10(least))
    decades = [10.0**-k for k in range(round(-math.log10(bottom)) + 1)]
    shown = decades[:: 2 if len(decades) > 5 else 1]
    y_axis = alt.Axis(labelExpr=_SHARE_LABEL, values=shown, title=None)
    y = alt.Y("y:Q", scale=alt.Scale(type="log", domain=[bottom, 1], nice=False), axis=y_axis)
    tooltip = [
        alt.Tooltip("label:N", title="platform"),
        alt.Tooltip("t:N", title="above"),
        alt.Tooltip("s:N", title="share"),
    ]
    source = alt.NamedData(name=ROWS)
    x = _time_axis(domain)
    lines = (
        alt.Chart(source)
        .transform_filter("datum.kind == 'curve'")
        .mark_line(interpolate="step-after", strokeWidth=1.9, clip=True)
        .encode(x=x, y=y, color=colour, strokeDash=dash, tooltip=tooltip)
    )
    means = (
        alt.Chart(source)
        .transform_filter("datum.kind == 'mean'")
        .mark_rule(strokeDash=[3, 4], strokeWidth=1.1, opacity=0.75, clip=True)
        .encode(x=x, color=colour, tooltip=[tooltip[0], alt.Tooltip("t:N", title="mean")])
    )
    crosses = _published_marks(source).encode(x=x, y=y, tooltip=[_PUBLISHED])
    return _finished(alt.layer(means, lines, crosses), height=210)


def _scatter(report: Report, indices: Sequence[int]) -> dict[str, Any]:
    """A strip for each arm, in the plan's order; the page places the values within it."""
    cells = [report.cells[index] for index in indices]
    records = [arm.record for arm in report.arms]
    present = strips(report, indices)
    values = [value for cell in cells for scatter in cell.scatters for value in scatter.values_ns]
    domain = _domain([*values, *(m for index in indices for m in published_medians(report, index).values())])
    colour = alt.Color("arm:N", scale=_arm_scale(report, arm_colours(records)), legend=None)
    dash = alt.StrokeDash("arm:N", scale=_arm_scale(report, arm_dashes(records)), legend=None)
    middles = [place + 0.5 for place in range(len(present))]
    names = " : ".join(f"datum.value == {at} ? {json.dumps(name)}" for at, name in zip(middles, present, strict=True))
    # Beyond a few arms their names do not fit below their strips; the colours remain.
    labels = alt.Axis(
        values=middles, labelExpr=f"{names} : ''", title=None, grid=False, ticks=False, labelLimit=310 // len(present)
    )
    axis = labels if len(present) <= _MOST_NAMED_STRIPS else None
    scale = alt.Scale(domain=[0, len(present)], nice=False)
    x = alt.X("x:Q", scale=scale, axis=axis)
    y = alt.Y("y:Q", scale=alt.Scale(type="log", domain=list(domain), nice=False), axis=_time_ticks(domain))
    tooltip = [alt.Tooltip("label:N", title="platform"), alt.Tooltip("t:N", title="value")]
    source = alt.NamedData(name=ROWS)
    points = (
        alt.Chart(source)
        .transform_filter("datum.kind == 'raw'")
        .mark_circle(size=13, opacity=0.5, clip=True)
        .encode(x=x, y=y, color=colour, tooltip=tooltip)
    )
    medians = (
        alt.Chart(source)
        .transform_filter("datum.kind == 'median'")
        .mark_rule(strokeWidth=2.6, clip=True)
        .encode(
            x=x, x2="x2:Q", y=y, color=colour, strokeDash=dash, tooltip=[tooltip[0], alt.Tooltip("t:N", title="median")]
        )
    )
    crosses = _published_marks(source).encode(x=x, y=y, tooltip=[_PUBLISHED])
    return _finished(alt.layer(points, medians, crosses), height=210)


def strips(report: Report, indices: Sequence[int]) -> list[str]:
    """The arms with raw values in any of these cells, in the plan's order."""
    found = {scatter.arm for index in indices for scatter in report.cells[index].scatters}
    return [arm.record.name for arm in report.arms if arm.record.name in found]


def _published_marks(source: alt.NamedData) -> alt.Chart:
    mark = alt.MarkDef(
        type="point", shape="cross", angle=45, filled=True, size=58, opacity=0.9, color="currentColor", clip=True
    )
    return alt.Chart(source, mark=mark).transform_filter("datum.kind == 'published'")


def _medians(report: Report, domain: tuple[float, float], cells: Sequence[Cell]) -> dict[str, Any]:
    records = [arm.record for arm in report.arms]
    measured = {series.arm for cell in cells for series in cell.series if series.missing is None}
    names = _row_labels(report)
    labels = [names[record.name] for record in records if record.name in measured]
    loads = list(dict.fromkeys(load_label(cell.load) for cell in cells))
    colour = alt.Color("arm:N", scale=_arm_scale(report, arm_colours(records)), legend=None)
    y = alt.Y("label:N", sort=labels, scale=alt.Scale(domain=labels), axis=alt.Axis(title=None, labelLimit=170))
    offset = alt.YOffset("load:N", sort=loads, scale=alt.Scale(domain=loads, paddingOuter=0.35))
    x = _time_axis(domain)
    source = alt.NamedData(name=ROWS)
    ours = alt.Chart(source).transform_filter("datum.kind == 'ours'")
    tooltip = [
        alt.Tooltip("label:N", title="platform"),
        alt.Tooltip("load:N"),
        alt.Tooltip("t:N", title="median"),
        alt.Tooltip("interval:N", title="interval"),
    ]
    rules = (
        ours.transform_filter("isValid(datum.low)")
        .mark_rule(strokeWidth=3, opacity=0.55, clip=True)
        .encode(x=x.copy(), x2="high:Q", y=y, yOffset=offset, color=colour, tooltip=tooltip)
    )
    rules.encoding.x.shorthand = "low:Q"
    dots = ours.mark_point(filled=True, size=58, opacity=1, strokeWidth=1.5, clip=True).encode(
        x=x,
        y=y,
        yOffset=offset,
        color=colour,
        stroke=alt.Stroke("arm:N", scale=_arm_scale(report, arm_colours(records)), legend=None),
        fillOpacity=alt.condition("datum.emulated", alt.value(0), alt.value(1)),
        shape=alt.Shape("load:N", scale=alt.Scale(domain=loads, range=_shapes(len(loads))), legend=None),
        tooltip=tooltip,
    )
    crosses = _published_marks(source).encode(x=x, y=y, yOffset=offset, tooltip=[_PUBLISHED])
    return _finished(alt.layer(rules, dots, crosses), height=max(len(labels) * 14 * max(len(loads), 1) + 24, 90))


_SHAPES = (("circle", "Circles"), ("diamond", "diamonds"), ("square", "squares"), ("triangle-up", "triangles"))


def _shapes(number: int) -> list[str]:
    return [_SHAPES[place % 4][0] for place in range(number)]


def _finished(chart: alt.LayerChart | alt.FacetChart, height: int) -> dict[str, Any]:
    spec: dict[str, Any] = (
        chart.properties(width="container", height=height)
        .configure(background="transparent", font=FONT)
        .configure_view(stroke="transparent")
        .configure_axis(labelFontSize=11, titleFontSize=11, titleFontWeight="normal", tickSize=4, domain=True)
        .to_dict(validate=False)  # takes half a second in all; the tests validate what is drawn
    )
    spec.pop("$schema", None)  # an address; the page has no use for one
    return spec
