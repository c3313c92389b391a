"""The timing suite's figures, as Vega-Lite specifications, and the data behind their panels."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import altair as alt

from virtgauge.ledger.records import ArmRecord
from virtgauge.report.arms import row_labels
from virtgauge.report.charts import (
    ROWS,
    Figure,
    Panel,
    arm_colour,
    arm_dash,
    arm_stroke,
    ccdf_curves,
    domain_of,
    finished,
    time_axis,
    time_ticks,
)
from virtgauge.report.timing.model import Cell, TimingFindings
from virtgauge.report.words import load_label, probe_title

_MOST_NAMED_STRIPS = 6
_PUBLISHED = alt.Tooltip("t:N", title="published, other hardware")

_CCDF_CAPTIONS = {
    "timer_cost": "How often reading the clock takes longer than the time below.",
    "sleep_lateness": "How often a sleep wakes later after its deadline than the time below.",
}

_CROSSES = " Crosses: published medians of the same function and load, measured on other hardware."


def distribution_figures(found: TimingFindings, arms: Sequence[ArmRecord]) -> list[Figure]:
    """For each probe and load: the raw values with their medians, and P(X > x) with its means.

    A panel for each function.  In the manner of Kirova et al. 2019, figures 4, 6, 8, 10, 12 and 14, and 5, 7, 9, 11,
    13 and 15: medians are bold lines, means dashed rules.
    """
    figures = []
    groups: dict[tuple[str, str], list[int]] = {}
    for index, cell in enumerate(found.cells):
        if cell.curves:
            groups.setdefault((cell.probe, cell.load), []).append(index)
    for (probe, load), indices in groups.items():
        title = probe_title(probe) + (f", {load_label(load)}" if load else "")
        crosses = any(row.cell in indices for row in found.published)
        drawn = [index for index in indices if found.cells[index].scatters]
        if drawn:
            panels = tuple(Panel(found.cells[index].function, f"raw-{index}") for index in drawn)
            caption = (
                "Raw values of one typical repetition: some drawn at random, its smallest and its largest. Bold lines "
                "are the medians over all repetitions; side to side means nothing." + (_CROSSES if crosses else "")
            )
            figures.append(Figure(f"{title}: values", caption, _scatter(found, arms, drawn), panels))
        cells = [found.cells[index] for index in indices]
        domain = domain_of(value for cell in cells for curve in cell.curves for value in curve.values_ns)
        least = min(share for cell in cells for curve in cell.curves for share in curve.shares)
        panels = tuple(Panel(found.cells[index].function, f"ccdf-{index}") for index in indices)
        caption = (
            f"{_CCDF_CAPTIONS.get(probe, 'How often the value is larger than the one below.')} Further left is better; "
            "a long tail to the right is what a deadline meets. Dashed vertical rules stand at the means."
            + (_CROSSES if crosses else "")
        )
        figures.append(Figure(f"{title}: distribution", caption, _ccdf(arms, domain, least), panels))
    return figures


def published_medians(found: TimingFindings, cell: int) -> dict[str, float]:
    """The published medians beside ours in a cell, by arm."""
    return {row.arm: row.median_ns for row in found.published if row.cell == cell}


def median_figures(found: TimingFindings, arms: Sequence[ArmRecord]) -> list[Figure]:
    """For each probe: medians with their intervals, a panel for each function, a row for each arm."""
    figures = []
    for probe in dict.fromkeys(cell.probe for cell in found.cells):
        cells = [cell for cell in found.cells if cell.probe == probe and cell.curves]
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
        published = [row.median_ns for row in found.published if found.cells[row.cell].probe == probe]
        domain = domain_of([*measured, *published])
        panels = tuple(Panel(function, median_data_name(probe, place)) for place, function in enumerate(functions))
        loads = list(dict.fromkeys(load_label(cell.load) for cell in cells))
        marks = "; ".join(f"{_SHAPES[place % 4][1]}: {load}" for place, load in enumerate(loads) if load)
        caption = "Median over repetitions with its interval, where wider than its mark."
        if marks:
            caption += f" {marks}."
        if any(arm.emulated and cell.of(arm.name) for arm in arms for cell in cells):
            caption += " Hollow marks are emulated."
        if published:
            caption += " Crosses: published figures of the same function, measured on other hardware."
        spec = _medians(found, arms, domain, cells)
        figures.append(Figure(f"{probe_title(probe)}: medians", caption, spec, panels))
    return figures


def median_data_name(probe: str, place: int) -> str:
    """The name of the data behind a panel of :func:`median_figures`."""
    return f"medians-{probe}-{place}"


def median_data(found: TimingFindings, arms: Sequence[ArmRecord]) -> dict[str, list[dict[str, Any]]]:
    """The rows behind every panel of :func:`median_figures`."""
    labels = row_labels(arms)
    emulated = {arm.name for arm in arms if arm.emulated}
    data: dict[str, list[dict[str, Any]]] = {}
    for probe in dict.fromkeys(cell.probe for cell in found.cells):
        cells = [(index, cell) for index, cell in enumerate(found.cells) if cell.probe == probe and cell.curves]
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
            for published in found.published:
                if published.cell == index:
                    place = {"arm": published.arm, "label": labels[published.arm], "load": load_label(cell.load)}
                    rows.append({"kind": "published", "x": published.median_ns, **place})
    return data


def _ccdf(arms: Sequence[ArmRecord], domain: tuple[float, float], least: float) -> dict[str, Any]:
    curves, x, y = ccdf_curves(arms, domain, least)
    crosses = _published_marks(alt.NamedData(name=ROWS)).encode(x=x, y=y, tooltip=[_PUBLISHED])
    return finished(alt.layer(*curves, crosses), height=210)


def _scatter(found: TimingFindings, arms: Sequence[ArmRecord], indices: Sequence[int]) -> dict[str, Any]:
    """A strip for each arm, in the plan's order; the page places the values within it."""
    cells = [found.cells[index] for index in indices]
    present = strips(found, arms, indices)
    values = [value for cell in cells for scatter in cell.scatters for value in scatter.values_ns]
    domain = domain_of([*values, *(m for index in indices for m in published_medians(found, index).values())])
    colour = arm_colour(arms)
    dash = arm_dash(arms)
    middles = [place + 0.5 for place in range(len(present))]
    names = " : ".join(f"datum.value == {at} ? {json.dumps(name)}" for at, name in zip(middles, present, strict=True))
    # Beyond a few arms their names do not fit below their strips; the colours remain.
    labels = alt.Axis(
        values=middles, labelExpr=f"{names} : ''", title=None, grid=False, ticks=False, labelLimit=310 // len(present)
    )
    axis = labels if len(present) <= _MOST_NAMED_STRIPS else None
    scale = alt.Scale(domain=[0, len(present)], nice=False)
    x = alt.X("x:Q", scale=scale, axis=axis)
    y = alt.Y("y:Q", scale=alt.Scale(type="log", domain=list(domain), nice=False), axis=time_ticks(domain))
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
    return finished(alt.layer(points, medians, crosses), height=210)


def strips(found: TimingFindings, arms: Sequence[ArmRecord], indices: Sequence[int]) -> list[str]:
    """The arms with raw values in any of these cells, in the plan's order."""
    drawn = {scatter.arm for index in indices for scatter in found.cells[index].scatters}
    return [arm.name for arm in arms if arm.name in drawn]


def _published_marks(source: alt.NamedData) -> alt.Chart:
    mark = alt.MarkDef(
        type="point", shape="cross", angle=45, filled=True, size=58, opacity=0.9, color="currentColor", clip=True
    )
    return alt.Chart(source, mark=mark).transform_filter("datum.kind == 'published'")


def _medians(
    found: TimingFindings, arms: Sequence[ArmRecord], domain: tuple[float, float], cells: Sequence[Cell]
) -> dict[str, Any]:
    measured = {series.arm for cell in cells for series in cell.series if series.missing is None}
    names = row_labels(arms)
    labels = [names[arm.name] for arm in arms if arm.name in measured]
    loads = list(dict.fromkeys(load_label(cell.load) for cell in cells))
    colour = arm_colour(arms)
    y = alt.Y("label:N", sort=labels, scale=alt.Scale(domain=labels), axis=alt.Axis(title=None, labelLimit=170))
    offset = alt.YOffset("load:N", sort=loads, scale=alt.Scale(domain=loads, paddingOuter=0.35))
    x = time_axis(domain)
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
        stroke=arm_stroke(arms),
        fillOpacity=alt.condition("datum.emulated", alt.value(0), alt.value(1)),
        shape=alt.Shape("load:N", scale=alt.Scale(domain=loads, range=_shapes(len(loads))), legend=None),
        tooltip=tooltip,
    )
    crosses = _published_marks(source).encode(x=x, y=y, yOffset=offset, tooltip=[_PUBLISHED])
    return finished(alt.layer(rules, dots, crosses), height=max(len(labels) * 14 * max(len(loads), 1) + 24, 90))


_SHAPES = (("circle", "Circles"), ("diamond", "diamonds"), ("square", "squares"), ("triangle-up", "triangles"))


def _shapes(number: int) -> list[str]:
    return [_SHAPES[place % 4][0] for place in range(number)]


def curve_data(found: TimingFindings, index: int) -> list[dict[str, Any]]:
    """The curves behind a panel of P(X > x), in columns, for there may be thousands of points."""
    published = published_medians(found, index)
    return [
        {
            "arm": curve.arm,
            "x": curve.values_ns,
            "y": curve.shares,
            "mean": curve.mean_ns,
            "published": published.get(curve.arm),
        }
        for curve in found.cells[index].curves
    ]


def raw_data(found: TimingFindings, arms: Sequence[ArmRecord], index: int) -> list[dict[str, Any]]:
    """The values of a scatter, in columns, and which strip of its panel they go to."""
    cell = found.cells[index]
    together = [other for other, one in enumerate(found.cells) if (one.probe, one.load) == (cell.probe, cell.load)]
    order, published = strips(found, arms, together), published_medians(found, index)
    return [
        {
            "arm": scatter.arm,
            "strip": order.index(scatter.arm),
            "y": scatter.values_ns,
            "median": scatter.median_ns,
            "published": published.get(scatter.arm),
        }
        for scatter in cell.scatters
    ]
