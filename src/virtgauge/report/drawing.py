"""From charts to Vega-Lite: how each kind is drawn, and its axes.

Every panel is a chart of its own, so that the page can lay panels out to its width; the panels of one chart share its
axes' domains.  Data comes by name from the page's one copy of it.  Text and lines of the axes are coloured by the
page's style sheet, which knows light from dark.  Only the tests compare what is made here with Vega-Lite's schema.

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
Spec = dict[str, Any]  # A part of a specification, as Vega-Lite has it in JSON
Drawn = tuple[list[Spec], int]  # The layers of a panel, and how high it is


def specification(chart: Chart, arms: Arms) -> Spec:
    """How every panel of a chart is drawn, as wide as its place; its data is :data:`ROWS`, its colours the arms'."""
    rows = [row for panel in chart.panels for row in panel.rows]
    draw = {"dots": _dots, "lines": _lines, "ccdf": _curves, "heat_map": _squares, "strips": _strips, "spans": _spans}
    layers, height = draw[chart.kind](chart, rows, arms)
    axes = {"labelFontSize": 11, "titleFontSize": 11, "titleFontWeight": "normal", "tickSize": 4, "domain": True}
    config = {"background": "transparent", "font": FONT, "view": {"stroke": "transparent"}, "axis": axes}
    return {"data": {"name": ROWS}, "layer": layers, "width": "container", "height": height, "config": config}


def _numbers(field: str, **how: Any) -> Spec:
    """A channel that shows the numbers of a field."""
    return {"field": field, "type": "quantitative", **how}


def _names(field: str, **how: Any) -> Spec:
    """A channel that shows the names, or texts, of a field."""
    return {"field": field, "type": "nominal", **how}


def _told(**titles: str) -> list[Spec]:
    return [_names(field, title=title) for field, title in titles.items()]


def _arm_in(looks: Mapping[str, Any]) -> Spec:
    """The channel that tells arms by these colours, or dashes."""
    return _names("arm", scale={"domain": [*looks], "range": [*looks.values()]}, legend=None)


def _layer(mark: str, encoding: Spec, **style: Any) -> Spec:
    return {"mark": {"type": mark, **style}, "encoding": encoding}


def _rows(kinds: str, mark: str, encoding: Spec, **style: Any) -> Spec:
    """Marks of the rows of some kinds."""
    wanted = " || ".join(f"datum.kind == '{kind}'" for kind in kinds.split())
    return {**_layer(mark, encoding, clip=True, **style), "transform": [{"filter": wanted}]}


def _figures(rows: Sequence[Row], arms: Arms, places: Spec, along: str, at: str) -> list[Spec]:
    """Points with their intervals, and published ones, at channels of which ``along`` is the value's.

    No layer that has nothing to draw, for it would have no extent.
    """
    colour, told = _arm_in(arm_colours(arms)), _told(label="platform", **{at: at}, t="median", interval="interval")
    hollow = {"condition": {"test": "datum.hollow || datum.kind == 'other'", "value": 0}, "value": 1}
    shown = {**places, "color": colour, "stroke": colour, "fillOpacity": hollow, "tooltip": told}
    layers = [_rows("ours other", "point", shown, filled=True, size=44, opacity=1, strokeWidth=1.4)]
    if any(row.get("low") is not None for row in rows):
        ends = {along: {**places[along], "field": "low"}, f"{along}2": {"field": "high"}}
        shown = {**places, **ends, "color": colour, "tooltip": told}
        layers.insert(0, _rows("ours other", "rule", shown, strokeWidth=3, opacity=0.4))
        layers[0]["transform"].append({"filter": "isValid(datum.low)"})
    if any(row["kind"] == "published" for row in rows):
        layers.append(_shapes("published", places, "published, other hardware", size=56))
    return layers


def _shapes(kind: str, places: Spec, title: str, size: int) -> Spec:
    """Points that each have a shape of their own, and a text of this title."""
    shown = {**places, "shape": _names("shape", scale=None, legend=None), "tooltip": _told(t=title)}
    style = {"strokeWidth": 1.6, "opacity": 0.9, "color": "currentColor", "filled": False}
    return _rows(kind, "point", shown, size=size, **style)


def _dots(chart: Chart, rows: Sequence[Row], arms: Arms) -> Drawn:
    """Figures along an axis, a band for each category and a lane within it for each arm."""
    ordered = sorted(rows, key=lambda row: row.get("place", 0))
    categories = list(dict.fromkeys(row["category"] for row in ordered))
    present = {row["arm"] for row in rows if row["kind"] == "ours"}
    lanes = [arm.name for arm in arms if arm.name in present]
    lanes += [_PAPER_LANE] if any(row["kind"] == "published" for row in rows) else []
    ends = _ends(rows, "x")
    across = {"scale": _scale(ends, chart.x), "axis": _axis(chart.x, ends)}
    up = _names(
        "category",
        sort=categories,
        scale={"domain": categories, "paddingInner": _BAND_PADDING, "paddingOuter": _BAND_PADDING / 2},
        axis={"title": None, "labelLimit": 150, "ticks": False, "grid": False, "labelExpr": _CATEGORY_LABEL},
    )
    places = {"x": _numbers("x", **across), "y": up, "yOffset": _names("arm", scale={"domain": lanes})}
    layers = _figures(rows, arms, places, "x", "category")
    if chart.x.scale == "signed":
        zero = {"x": {"datum": 0, **across}}
        layers.insert(0, _layer("rule", zero, strokeDash=[3, 3], color="currentColor", opacity=0.6))
    height = max(_LEAST_BAND, _ROW_HEIGHT * len(lanes)) * max(len(categories), 1) + 16
    return layers, height


def _lines(chart: Chart, rows: Sequence[Row], arms: Arms) -> Drawn:
    """A line for each arm through its points, with intervals; rules at rows of the kinds ``rule`` and ``bound``."""
    points = [row for row in rows if row["kind"] not in ("rule", "bound")]
    along = [row[name] for row in rows for name in ("x", "across") if name in row]
    ends = [*_ends(points, "y"), *(row["y"] for row in rows if row["kind"] == "bound"), *_ends(rows, "up")]
    x = {"scale": _scale(along, chart.x), "axis": _axis(chart.x, along)}
    y = {"scale": _scale(ends, chart.y), "axis": _axis(chart.y, ends)}
    places, colour = {"x": _numbers("x", **x), "y": _numbers("y", **y)}, _arm_in(arm_colours(arms))
    besides = {"x": _numbers("across", **x), "y": _numbers("up", **y)}
    joined = {**places, "color": colour, "strokeDash": _arm_in(arm_dashes(arms)), "order": _numbers("x")}
    layers = [_rows("ours", "line", joined, strokeWidth=1.7), *_figures(rows, arms, places, "y", "at")]
    layers += _marks(rows, besides["x"], y["scale"])
    kinds, dashed = {row["kind"] for row in rows}, {"color": "currentColor", "strokeWidth": 1.2}
    name = {**places, "text": _names("name")}
    guide = {**besides, "detail": _names("of"), "tooltip": _told(t="line")}
    rule = {"x": places["x"], "color": colour, "tooltip": _told(label="platform", t="at")}
    bound = {"y": places["y"], "tooltip": _told(t="bound")}
    further = {
        "published": _rows("published", "text", name, dy=-9, fontSize=10, color="currentColor"),
        "guide": _rows("guide", "line", guide, **dashed, opacity=0.6, strokeDash=[2, 3]),
        "rule": _rows("rule", "rule", rule, strokeWidth=1.4, opacity=0.8),
        "bound": _rows("bound", "rule", bound, **dashed, opacity=0.8, strokeDash=[3, 4]),
    }
    return [*layers, *(further[kind] for kind in further if kind in kinds)], _LINES_HEIGHT


def _curves(chart: Chart, rows: Sequence[Row], arms: Arms) -> Drawn:
    """P(X > x), a curve for each arm, with a rule at its mean."""
    values = _each(rows, "x")
    bottom = 10 ** math.floor(math.log10(min(_each(rows, "y"))))
    decades = [10.0**-k for k in range(round(-math.log10(bottom)) + 1)]
    shown = {"labelExpr": _SHARE_LABEL, "values": decades[:: 2 if len(decades) > 5 else 1], "title": None}
    across = _numbers("x", scale=_scale(values, chart.x), axis=_axis(chart.x, values))
    up = _numbers("y", scale={"type": "log", "domain": [bottom, 1], "nice": False}, axis=shown)
    means = {"x": across, "color": _arm_in(arm_colours(arms)), "tooltip": _told(label="platform", t="mean")}
    told = _told(label="platform", t="above", s="share")
    curves = {**means, "y": up, "strokeDash": _arm_in(arm_dashes(arms)), "tooltip": told}
    return [
        _rows("mean", "rule", means, strokeDash=[3, 4], strokeWidth=1.1, opacity=0.75),
        _rows("curve", "line", curves, interpolate="step-after", strokeWidth=1.9),
    ], _LINES_HEIGHT


def _squares(chart: Chart, rows: Sequence[Row], arms: Arms) -> Drawn:
    """A coloured square, with its figure, for each pair of levels."""
    placed = {
        "x": _names("x", sort=None, axis={"title": chart.x.title, "orient": "top", "labelAngle": 0}),
        "y": _names("y", sort=None, axis={"title": None}),
    }
    domain = [min(row["value"] for row in rows), max(row["value"] for row in rows)]
    # A number is to be readable on the strongest one, on light pages and dark ones.
    strength = _numbers("value", scale={"domain": domain, "range": [0.05, 0.55]}, legend=None)
    squares = {**placed, "fillOpacity": strength, "tooltip": _told(at="at", t=chart.y.title)}
    return [
        _layer("rect", squares, cornerRadius=2, color=_SQUARE),
        _layer("text", {**placed, "text": _names("t")}, fontSize=11, color="currentColor"),
    ], 24 * len({row["y"] for row in rows}) + 30


def _strips(chart: Chart, rows: Sequence[Row], arms: Arms) -> Drawn:
    values = [*_each(rows, "y"), *_ends(rows, "up")]
    up = _numbers("y", scale=_scale(values, chart.y), axis=_axis(chart.y, values))
    placed = {"x": _numbers("x", axis=None), "y": up, "color": _arm_in(arm_colours(arms))}
    points = {**placed, "tooltip": _told(label="platform", t="value")}
    medians = {**placed, "x2": {"field": "x2"}, "strokeDash": _arm_in(arm_dashes(arms))}
    return [
        _rows("raw", "point", points, filled=True, size=5, opacity=0.35),
        _rows("median", "rule", medians, strokeWidth=2.6),
        *_marks(rows, _numbers("across", axis=None), up["scale"]),
    ], _LINES_HEIGHT


def _spans(chart: Chart, rows: Sequence[Row], arms: Arms) -> Drawn:
    """What followed what from one beginning, a band for each event and a lane within it for each who saw it."""
    bands, lanes = (list(dict.fromkeys(row[part] for row in rows)) for part in ("category", "lane"))
    ends, causes = _ends(rows, "x2"), list(dict.fromkeys(row["cause"] for row in rows))
    shown = {"labelExpr": _TIME_LABEL, "title": chart.x.title, "tickCount": 6, "grid": True}
    legend = {"orient": "bottom", "title": None, "columns": 4}
    bars = {
        "x": _numbers("x", scale=_scale(ends, chart.x), axis=shown),
        "x2": {"field": "x2"},
        "y": _names("category", sort=bands, axis={"title": None, "ticks": False, "labelExpr": _CATEGORY_LABEL}),
        "yOffset": _names("lane", scale={"domain": lanes}),
        "color": _names("cause", scale={"domain": causes, "scheme": "tableau10"}, legend=legend),
        "tooltip": _told(at="seen by", t="what"),
    }
    height = _LANE_HEIGHT * max(len(lanes), 2) * len(bands) + 16
    return [_rows("ours", "bar", bars, height={"band": 0.9})], height


def _marks(rows: Sequence[Row], across: Spec, up_scale: Spec) -> list[Spec]:
    """What is drawn besides, at ``across`` and ``up``, in a shape of its own."""
    if not any(row.get("kind") == "mark" for row in rows):
        return []
    return [_shapes("mark", {"x": across, "y": _numbers("up", scale=up_scale)}, "besides", size=64)]


def _ends(rows: Sequence[Row], channel: str) -> list[float]:
    return [row[end] for row in rows for end in (channel, "low", "high") if row.get(end) is not None]


def _each(rows: Sequence[Row], channel: str) -> list[float]:
    """The positive values of rows, and of rows with columns."""
    found = (row.get(channel) for row in rows)
    return [one for some in found for one in (some if isinstance(some, list | tuple) else [some]) if one and one > 0]


def _scale(values: Sequence[float], axis: Axis) -> Spec:
    """Logarithmic, of the numbers of a factor's levels to the base of two; linear near zero, where that is a value."""
    if axis.scale == "signed":
        reach = _signed_ticks(values)[-1] * 1.05
        return {"type": "symlog", "constant": _LINEAR_UP_TO, "domain": [-reach, reach], "nice": False}
    if axis.scale == "close" and axis.quantity is not None:
        return {"zero": False, "nice": False, "padding": _MARGIN}
    if axis.scale == "close":
        values = [*axis.labels] or values
        margin = (_HEADROOM - 1) * ((max(values) - min(values)) or max(values) or 1.0)
        return {"domain": [min(values) - margin, max(values) + margin], "nice": False}
    if axis.scale == "linear":
        return {"domain": [0, max([1.0, *values]) * _HEADROOM], "nice": False}
    if axis.quantity is None and min(values) > 0:
        return {"type": "log", "base": 2, "domain": [min(values) / 1.15, max(values) * 1.15], "nice": False}
    if values and min(values) == 0 < max(values):
        domain, linear = [0, 1.15 * max(values)], _LINEAR_BELOW * max(values)
        return {"type": "symlog", "constant": linear, "domain": domain, "nice": False}
    return {"type": "log", "domain": list(_domain(values)), "nice": False}


def _signed_ticks(values: Sequence[float]) -> list[float]:
    """Positive ones, up to the next beyond what is drawn, so that the axis has both signs'."""
    most = max((abs(value) for value in values), default=0.0)
    beyond = next((place for place, tick in enumerate(_SIGNED_TICKS) if tick > most), len(_SIGNED_TICKS) - 1)
    return [*_SIGNED_TICKS[:beyond], max(_SIGNED_TICKS[beyond], most)]


def _axis(axis: Axis, values: Sequence[float]) -> Spec:
    if axis.scale == "signed":
        ticks = _signed_ticks(values)
        at = [*(-tick for tick in reversed(ticks)), 0, *ticks]
        return {"values": at, "labelExpr": _SIGNED_LABEL, "title": axis.title, "labelOverlap": True}
    if axis.labels:  # of neighbours of one name the first has it
        numbers = [at for at, name in axis.labels.items() if axis.labels.get(at - 1) != name]
        named = json.dumps({number: axis.labels[number] for number in numbers})
        shown = {"labelExpr": f"{named}[datum.value]", "labelOverlap": "greedy", "labelSeparation": 8}
        shown |= {"labelLimit": 110, "labelBound": True}
        return {**shown, "values": numbers, "title": axis.title or None, "grid": True}
    if axis.quantity is None:
        return {"values": sorted(set(values)), "format": "d", "title": axis.title, "grid": True, "labelOverlap": True}
    if axis.quantity is DURATION:
        title = axis.title if axis.title != DURATION.unit else None
        placed = {"tickCount": 6} if axis.scale in ("linear", "close") else {"values": _ticks(values)}
        return {"labelExpr": _TIME_LABEL, "title": title, "labelOverlap": True, "grid": True, **placed}
    if axis.scale in ("linear", "close"):
        unit = " %" if axis.quantity is SHARE else "×" if axis.quantity is RATIO else ""
        label = f"format(datum.value, '~g') + '{unit}'" if unit else _COUNT_LABEL
        return {"labelExpr": label, "title": axis.title, "tickCount": 6, "grid": True}
    ticks = [*([0.0] if min(values, default=1.0) == 0 else []), *_ticks(values)]
    return {"labelExpr": _COUNT_LABEL, "values": ticks, "title": axis.title, "labelOverlap": True, "grid": True}


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
