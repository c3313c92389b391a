"""From charts to Vega-Lite: how each kind is drawn, and its axes.

Every panel is a chart of its own, so that the page can lay panels out to its width; the panels of one chart share its
axes' domains.  Data comes by name from the page's one copy of it.  Text and lines of the axes are coloured by the
page's style sheet, which knows light from dark.

Rows of ``dots`` and ``lines`` have ``kind`` (``ours``; ``other`` off the line; ``published``; ``rule`` and ``bound``
for rules at an ``x`` or a ``y``; ``guide`` for lines through ``across`` and ``up``, one for each ``of``), ``arm``,
``label``, the position (``category`` and ``x``, or ``x`` and ``y``), ``low`` and ``high``, and the texts ``at``, ``t``
and ``interval``; published ones a ``shape``.  Of a heat map they have ``x``, ``y`` and ``value``; of a CCDF and of
strips they are columns, of which the page's script makes rows, or rows with a ``kind`` (``curve``, ``mean``; ``raw``,
``median``) of what is no duration.  Rows of the kind ``mark`` (``across``, ``up``, ``shape``, ``t``) are drawn on lines
and strips besides.  Of spans they have ``category``, ``lane``, ``x`` and ``x2``, the ``cause`` that colours them, and
the texts ``at`` and ``t``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import altair as alt

from virtgauge.ledger.records import ArmRecord
from virtgauge.report.page import arm_colours, arm_dashes
from virtgauge.results.quantities import DURATION, RATIO, SHARE
from virtgauge.specs.blocks import Axis, Chart

# Vega measures labels in this font before it places them; the page uses the same.
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"

_TIME_LABEL = (
    "datum.value >= 1e9 ? format(datum.value / 1e9, ',~g') + ' s'"
    " : datum.value >= 1e6 ? format(datum.value / 1e6, '~g') + ' ms'"
    " : datum.value >= 1e3 ? format(datum.value / 1e3, '~g') + ' µs'"
    " : format(datum.value, '~g') + ' ns'"
)
_SHARE_LABEL = "datum.value >= 1 ? 'all' : '1 in ' + format(round(1 / datum.value), '~s')"
_COUNT_LABEL = (
    "datum.value >= 1e6 ? format(datum.value / 1e6, '~g') + ' M'"
    " : datum.value >= 1e4 ? format(datum.value / 1e3, '~g') + ' k'"
    " : format(datum.value, ',~g')"
)
_SIGNED_LABEL = "(datum.value > 0 ? '+' : datum.value < 0 ? '−' : '') + format(abs(datum.value), '~g')"
_CATEGORY_LABEL = "split(datum.label, '|')"
_LINEAR_UP_TO = 1.0  # A signed axis is linear within ±1, of errors in per cent; beyond it is logarithmic
_SIGNED_TICKS = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
_LINES_HEIGHT = 210
_ROW_HEIGHT, _LEAST_BAND = 15, 26
_BAND_PADDING = 0.25
_LINEAR_BELOW = 0.001  # Of the largest value, on an axis that shows zeros
_MOST_DECADES = 6  # On a logarithmic axis of more, not every one has a tick
_PAPER_LANE = "paper"  # Where published figures lie in a band, below the arms'
_HEADROOM = 1.06
_MARGIN = 10  # Pixels around what is drawn on an axis that is close to it
_SQUARE = "#4c8dd6"
_LANE_HEIGHT = 16

ROWS = "rows"  # The name that a specification gives to its panel's data
Row = Mapping[str, Any]
Arms = Sequence[ArmRecord]
Drawn = tuple[list[alt.Chart], int]  # The layers of a panel, and how high it is


def specification(chart: Chart, arms: Arms) -> dict[str, Any]:
    """How every panel of a chart is drawn, as wide as its place on the page; its data is called :data:`ROWS`.

    ``arms`` are the manifest's, for their colours.
    """
    rows = [row for panel in chart.panels for row in panel.rows]
    draw = {"dots": _dots, "lines": _lines, "ccdf": _curves, "heat_map": _squares, "strips": _strips, "spans": _spans}
    layers, height = draw[chart.kind](chart, rows, arms)
    config = alt.Config(
        background="transparent",
        font=FONT,
        view=alt.ViewConfig(stroke="transparent"),
        axis=alt.AxisConfig(labelFontSize=11, titleFontSize=11, titleFontWeight="normal", tickSize=4, domain=True),
    )
    # At once, for every change to a chart of layers copies all of them.
    whole = alt.layer(*layers).properties(width="container", height=height, config=config)
    spec: dict[str, Any] = whole.to_dict(validate=False)  # takes half a second in all; the tests validate what is drawn
    spec.pop("$schema", None)  # an address; the page has no use for one
    return spec


def _colour(arms: Arms, channel: Any = alt.Color) -> Any:
    """The channel that gives every arm its colour."""
    colours = arm_colours(arms)
    return channel("arm:N", scale=alt.Scale(domain=list(colours), range=list(colours.values())), legend=None)


def _dash(arms: Arms) -> alt.StrokeDash:
    """The channel that tells emulated arms and the A/A arm by their lines."""
    dashes = arm_dashes(arms)
    scale: Any = alt.Scale(domain=list(dashes), range=list(dashes.values()))
    return alt.StrokeDash("arm:N", scale=scale, legend=None)


def _rows(kinds: str, mark: str, **style: Any) -> alt.Chart:
    """Marks of the rows of some kinds."""
    wanted = " || ".join(f"datum.kind == '{kind}'" for kind in kinds.split())
    chart = alt.Chart(alt.NamedData(name=ROWS)).transform_filter(wanted)
    made: alt.Chart = getattr(chart, f"mark_{mark}")(clip=True, **style)
    return made


def _told(**titles: str) -> list[alt.Tooltip]:
    return [alt.Tooltip(f"{name}:N", title=title) for name, title in titles.items()]


def _figures(rows: Sequence[Row], arms: Arms, value: alt.X | alt.Y, place: dict[str, Any], at: str) -> list[alt.Chart]:
    """Points with their intervals, and published ones, along the channel of the value.

    No layer that has nothing to draw, for it would have no extent.
    """
    along = "x" if isinstance(value, alt.X) else "y"
    colour, told = _colour(arms), _told(label="platform", **{at: at}, t="median", interval="interval")
    low: Any = type(value)("low:Q", **{name: value[name] for name in ("scale", "axis")})
    intervals = _rows("ours other", "rule", strokeWidth=3, opacity=0.4).transform_filter("isValid(datum.low)")
    points = _rows("ours other", "point", filled=True, size=44, opacity=1, strokeWidth=1.4)
    published = _rows("published", "point", size=56, strokeWidth=1.6, opacity=0.9, color="currentColor", filled=False)
    hollow = alt.condition("datum.hollow || datum.kind == 'other'", alt.value(0), alt.value(1))
    shape, other = alt.Shape("shape:N", scale=None, legend=None), _told(t="published, other hardware")
    own: dict[str, Any] = {along: value, **place}
    layers = [points.encode(**own, color=colour, stroke=_colour(arms, alt.Stroke), fillOpacity=hollow, tooltip=told)]
    if any(row.get("low") is not None for row in rows):
        layers.insert(0, intervals.encode(**own | {along: low, f"{along}2": "high:Q"}, color=colour, tooltip=told))
    if any(row["kind"] == "published" for row in rows):
        layers.append(published.encode(**own, shape=shape, tooltip=other))
    return layers


def _dots(chart: Chart, rows: Sequence[Row], arms: Arms) -> Drawn:
    """Figures along an axis, a band for each category and a lane within it for each arm."""
    ordered = sorted(rows, key=lambda row: row.get("place", 0))
    categories = list(dict.fromkeys(row["category"] for row in ordered))
    present = {row["arm"] for row in rows if row["kind"] == "ours"}
    lanes = [arm.name for arm in arms if arm.name in present]
    lanes += [_PAPER_LANE] if any(row["kind"] == "published" for row in rows) else []
    ends = _ends(rows, "x")
    across = alt.X("x:Q", scale=_scale(ends, chart.x), axis=_axis(chart.x, ends))
    up = alt.Y(
        "category:N",
        sort=categories,
        scale=alt.Scale(domain=categories, paddingInner=_BAND_PADDING, paddingOuter=_BAND_PADDING / 2),
        axis=alt.Axis(title=None, labelLimit=150, ticks=False, grid=False, labelExpr=_CATEGORY_LABEL),
    )
    place = {"y": up, "yOffset": alt.YOffset("arm:N", scale=alt.Scale(domain=lanes))}
    layers = _figures(rows, arms, across, place, "category")
    if chart.x.scale == "signed":
        zero = alt.Chart(alt.NamedData(name=ROWS)).mark_rule(strokeDash=[3, 3], color="currentColor", opacity=0.6)
        layers.insert(0, zero.encode(x=alt.XDatum(0, scale=across["scale"], axis=across["axis"])))
    height = max(_LEAST_BAND, _ROW_HEIGHT * len(lanes)) * max(len(categories), 1) + 16
    return layers, height


def _lines(chart: Chart, rows: Sequence[Row], arms: Arms) -> Drawn:
    """A line for each arm through its points, with intervals; rules at rows of the kinds ``rule`` and ``bound``."""
    points = [row for row in rows if row["kind"] not in ("rule", "bound")]
    along = [row[name] for row in rows for name in ("x", "across") if name in row]
    ends = [*_ends(points, "y"), *(row["y"] for row in rows if row["kind"] == "bound"), *_ends(rows, "up")]
    x: dict[str, Any] = {"scale": _scale(along, chart.x), "axis": _axis(chart.x, along)}
    y: dict[str, Any] = {"scale": _scale(ends, chart.y), "axis": _axis(chart.y, ends)}
    across, up, colour = alt.X("x:Q", **x), alt.Y("y:Q", **y), _colour(arms)
    joined = _rows("ours", "line", strokeWidth=1.7).encode(
        x=across, y=up, color=colour, strokeDash=_dash(arms), order=alt.Order("x:Q")
    )
    along_marks = alt.X("across:Q", **x)
    layers = [joined, *_figures(rows, arms, up, {"x": across}, "at"), *_marks(rows, along_marks, y["scale"])]
    kinds = {row["kind"] for row in rows}
    if "published" in kinds:
        names = _rows("published", "text", dy=-9, fontSize=10, color="currentColor")
        layers.append(names.encode(x=across, y=up, text="name:N"))
    if "guide" in kinds:
        line = _rows("guide", "line", color="currentColor", strokeWidth=1.2, opacity=0.6, strokeDash=[2, 3])
        layers.append(line.encode(x=along_marks, y=alt.Y("up:Q", **y), detail="of:N", tooltip=_told(t="line")))
    if "rule" in kinds:
        rules = _rows("rule", "rule", strokeWidth=1.4, opacity=0.8)
        layers.append(rules.encode(x=across, color=colour, tooltip=_told(label="platform", t="at")))
    if "bound" in kinds:
        bounds = _rows("bound", "rule", strokeDash=[3, 4], strokeWidth=1.2, color="currentColor", opacity=0.8)
        layers.append(bounds.encode(y=up, tooltip=_told(t="bound")))
    return layers, _LINES_HEIGHT


def _curves(chart: Chart, rows: Sequence[Row], arms: Arms) -> Drawn:
    """P(X > x), a curve for each arm, with a rule at its mean."""
    values = _each(rows, "x")
    bottom = 10 ** math.floor(math.log10(min(_each(rows, "y"))))
    decades = [10.0**-k for k in range(round(-math.log10(bottom)) + 1)]
    shown = alt.Axis(labelExpr=_SHARE_LABEL, values=decades[:: 2 if len(decades) > 5 else 1], title=None)
    across = alt.X("x:Q", scale=_scale(values, chart.x), axis=_axis(chart.x, values))
    up = alt.Y("y:Q", scale=alt.Scale(type="log", domain=[bottom, 1], nice=False), axis=shown)
    lines = _rows("curve", "line", interpolate="step-after", strokeWidth=1.9)
    means = _rows("mean", "rule", strokeDash=[3, 4], strokeWidth=1.1, opacity=0.75)
    colour, told = _colour(arms), _told(label="platform", t="above", s="share")
    return [
        means.encode(x=across, color=colour, tooltip=_told(label="platform", t="mean")),
        lines.encode(x=across, y=up, color=colour, strokeDash=_dash(arms), tooltip=told),
    ], _LINES_HEIGHT


def _squares(chart: Chart, rows: Sequence[Row], arms: Arms) -> Drawn:
    """A coloured square, with its figure, for each pair of levels."""
    base = alt.Chart(alt.NamedData(name=ROWS)).encode(
        x=alt.X("x:N", sort=None, axis=alt.Axis(title=chart.x.title, orient="top", labelAngle=0)),
        y=alt.Y("y:N", sort=None, axis=alt.Axis(title=None)),
    )
    domain = [min(row["value"] for row in rows), max(row["value"] for row in rows)]
    # A number is to be readable on the strongest one, on light pages and dark ones.
    strength = alt.FillOpacity("value:Q", scale=alt.Scale(domain=domain, range=[0.05, 0.55]), legend=None)
    told = _told(at="at", t=chart.y.title)
    squares = base.mark_rect(cornerRadius=2, color=_SQUARE).encode(fillOpacity=strength, tooltip=told)
    figures = base.mark_text(fontSize=11, color="currentColor").encode(text="t:N")
    return [squares, figures], 24 * len({row["y"] for row in rows}) + 30


def _strips(chart: Chart, rows: Sequence[Row], arms: Arms) -> Drawn:
    """Raw values, a strip for each cell."""
    values = [*_each(rows, "y"), *_ends(rows, "up")]
    across, up = alt.X("x:Q", axis=None), alt.Y("y:Q", scale=_scale(values, chart.y), axis=_axis(chart.y, values))
    points = _rows("raw", "point", filled=True, size=5, opacity=0.35)
    medians = _rows("median", "rule", strokeWidth=2.6)
    return [
        points.encode(x=across, y=up, color=_colour(arms), tooltip=_told(label="platform", t="value")),
        medians.encode(x=across, x2="x2:Q", y=up, color=_colour(arms), strokeDash=_dash(arms)),
        *_marks(rows, alt.X("across:Q", axis=None), up["scale"]),
    ], _LINES_HEIGHT


def _spans(chart: Chart, rows: Sequence[Row], arms: Arms) -> Drawn:
    """What followed what from one beginning, a band for each event and a lane within it for each who saw it."""
    bands, lanes = (list(dict.fromkeys(row[part] for row in rows)) for part in ("category", "lane"))
    ends, causes = _ends(rows, "x2"), list(dict.fromkeys(row["cause"] for row in rows))
    shown = alt.Axis(labelExpr=_TIME_LABEL, title=chart.x.title, tickCount=6, grid=True)
    bars = _rows("ours", "bar", height={"band": 0.9}).encode(
        x=alt.X("x:Q", scale=_scale(ends, chart.x), axis=shown),
        x2="x2:Q",
        y=alt.Y("category:N", sort=bands, axis=alt.Axis(title=None, ticks=False, labelExpr=_CATEGORY_LABEL)),
        yOffset=alt.YOffset("lane:N", scale=alt.Scale(domain=lanes)),
        color=alt.Color(
            "cause:N",
            scale=alt.Scale(domain=causes, scheme="tableau10"),
            legend=alt.Legend(orient="bottom", title=None, columns=4),
        ),
        tooltip=_told(at="seen by", t="what"),
    )
    return [bars], _LANE_HEIGHT * max(len(lanes), 2) * len(bands) + 16


def _marks(rows: Sequence[Row], across: alt.X, up_scale: alt.Scale) -> list[alt.Chart]:
    """What is drawn besides, at ``across`` and ``up``, in a shape of its own."""
    if not any(row.get("kind") == "mark" for row in rows):
        return []
    marks = _rows("mark", "point", size=64, filled=False, strokeWidth=1.6, opacity=0.9, color="currentColor")
    shape = alt.Shape("shape:N", scale=None, legend=None)
    return [marks.encode(x=across, y=alt.Y("up:Q", scale=up_scale), shape=shape, tooltip=_told(t="besides"))]


def _ends(rows: Sequence[Row], channel: str) -> list[float]:
    return [row[end] for row in rows for end in (channel, "low", "high") if row.get(end) is not None]


def _each(rows: Sequence[Row], channel: str) -> list[float]:
    """The positive values of rows, and of rows with columns."""
    found = (row.get(channel) for row in rows)
    return [one for some in found for one in (some if isinstance(some, list | tuple) else [some]) if one and one > 0]


def _scale(values: Sequence[float], axis: Axis) -> alt.Scale:
    """Logarithmic, of the numbers of a factor's levels to the base of two; linear near zero, where that is a value."""
    if axis.scale == "signed":
        reach = _signed_ticks(values)[-1] * 1.05
        return alt.Scale(type="symlog", constant=_LINEAR_UP_TO, domain=[-reach, reach], nice=False)
    if axis.scale == "close" and axis.quantity is not None:
        return alt.Scale(zero=False, nice=False, padding=_MARGIN)
    if axis.scale == "close":
        values = [*axis.labels] or values
        margin = (_HEADROOM - 1) * ((max(values) - min(values)) or max(values) or 1.0)
        return alt.Scale(domain=[min(values) - margin, max(values) + margin], nice=False)
    if axis.scale == "linear":
        return alt.Scale(domain=[0, max([1.0, *values]) * _HEADROOM], nice=False)
    if axis.quantity is None and min(values) > 0:
        return alt.Scale(type="log", base=2, domain=[min(values) / 1.15, max(values) * 1.15], nice=False)
    if values and min(values) == 0 < max(values):
        domain, linear = [0, 1.15 * max(values)], _LINEAR_BELOW * max(values)
        return alt.Scale(type="symlog", constant=linear, domain=domain, nice=False)
    return alt.Scale(type="log", domain=list(_domain(values)), nice=False)


def _signed_ticks(values: Sequence[float]) -> list[float]:
    """Positive ones, up to the next beyond what is drawn, so that the axis has both signs'."""
    most = max((abs(value) for value in values), default=0.0)
    beyond = next((place for place, tick in enumerate(_SIGNED_TICKS) if tick > most), len(_SIGNED_TICKS) - 1)
    return [*_SIGNED_TICKS[:beyond], max(_SIGNED_TICKS[beyond], most)]


def _axis(axis: Axis, values: Sequence[float]) -> alt.Axis:
    if axis.scale == "signed":
        ticks = _signed_ticks(values)
        at = [*(-tick for tick in reversed(ticks)), 0, *ticks]
        return alt.Axis(values=at, labelExpr=_SIGNED_LABEL, title=axis.title, labelOverlap=True)
    if axis.labels:  # of neighbours of one name the first has it
        numbers = [at for at, name in axis.labels.items() if axis.labels.get(at - 1) != name]
        named = json.dumps({number: axis.labels[number] for number in numbers})
        shown: Any = {"labelExpr": f"{named}[datum.value]", "labelOverlap": "greedy", "labelSeparation": 8}
        return alt.Axis(values=numbers, title=axis.title or None, grid=True, labelLimit=110, labelBound=True, **shown)
    if axis.quantity is None:
        return alt.Axis(values=sorted(set(values)), format="d", title=axis.title, grid=True, labelOverlap=True)
    if axis.quantity is DURATION:
        title = axis.title if axis.title != DURATION.unit else None
        placed: dict[str, Any] = {"tickCount": 6} if axis.scale in ("linear", "close") else {"values": _ticks(values)}
        return alt.Axis(labelExpr=_TIME_LABEL, title=title, labelOverlap=True, grid=True, **placed)
    if axis.scale in ("linear", "close"):
        unit = " %" if axis.quantity is SHARE else "×" if axis.quantity is RATIO else ""
        label = f"format(datum.value, '~g') + '{unit}'" if unit else _COUNT_LABEL
        return alt.Axis(labelExpr=label, title=axis.title, tickCount=6, grid=True)
    ticks = [*([0.0] if min(values, default=1.0) == 0 else []), *_ticks(values)]
    return alt.Axis(labelExpr=_COUNT_LABEL, values=ticks, title=axis.title, labelOverlap=True, grid=True)


def _domain(values: Iterable[float]) -> tuple[float, float]:
    """A logarithmic axis around these values, a little wider than they are; only positive ones can be drawn."""
    positive = [value for value in values if value > 0]
    if not positive:
        return 1.0, 10.0
    low, high = min(positive), max(positive)
    if high / low < 4:
        low, high = low / 2, high * 2
    return low / 1.15, high * 1.15


def _ticks(values: Iterable[float]) -> list[float]:
    """Of a logarithmic axis around these values: two decades need some in between, eight do not."""
    low, high = _domain(values)
    decades = math.log10(high / low)
    step = max(1, math.ceil(decades / _MOST_DECADES))
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1, 2, 5) if decades < 2 else (1, 3) if decades < 3 else (1,)
    ticks = [factor * 10.0**exponent for exponent in exponents if exponent % step == 0 for factor in factors]
    return [tick for tick in ticks if low <= tick <= high]
