"""What the charts of all suites share: panels and figures, axes of time, and the arms' colours and lines.

Every panel is a chart of its own, so that the page can lay panels out to its width; the panels of one figure share
their axes' domains.  Data comes by name from the page's one copy of it.  Text and lines of the axes are coloured by the
page's style sheet, which knows light from dark.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import altair as alt

from virtgauge.ledger.records import ArmRecord
from virtgauge.report.arms import arm_colours, arm_dashes

# Vega measures labels in this font before it places them; the page uses the same.
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"

_TIME_LABEL = (
    "datum.value >= 1e9 ? format(datum.value / 1e9, ',~g') + ' s'"
    " : datum.value >= 1e6 ? format(datum.value / 1e6, '~g') + ' ms'"
    " : datum.value >= 1e3 ? format(datum.value / 1e3, '~g') + ' µs'"
    " : format(datum.value, '~g') + ' ns'"
)

ROWS = "rows"  # The name that a specification gives to its panel's data
Row = dict[str, Any]  # What a mark is drawn from


@dataclasses.dataclass(frozen=True)
class Panel:
    """One chart of a figure: its title, and the name of its data."""

    title: str
    data: str


@dataclasses.dataclass(frozen=True)
class PanelData:
    """What a panel draws."""

    # how the page's script makes rows of it: ``curves`` (CCDFs in columns), ``raw`` (strips of values in columns) or
    # ``rows`` (as they are)
    kind: Literal["curves", "raw", "rows"]
    rows: Sequence[Mapping[str, Any]]  # JSON-able


@dataclasses.dataclass(frozen=True)
class Figure:
    """Panels that belong together and are drawn alike."""

    # title, caption: what the figure shows and how to read it
    title: str
    caption: str
    spec: dict[str, Any]  # the chart of every panel; its data is called :data:`ROWS`
    panels: tuple[Panel, ...]  # one for each function
    text: str = ""  # what it shows, for those who do not see it; the caption where it is empty


def domain_of(values: Iterable[float]) -> tuple[float, float]:
    """A logarithmic axis around these values, a little wider than they are; only positive ones can be drawn."""
    positive = [value for value in values if value > 0]
    if not positive:
        return 1.0, 10.0
    low, high = min(positive), max(positive)
    if high / low < 4:
        low, high = low / 2, high * 2
    return low / 1.15, high * 1.15


def time_ticks(domain: tuple[float, float]) -> alt.Axis:
    """An axis of durations in ns on a logarithmic scale."""
    return alt.Axis(labelExpr=_TIME_LABEL, values=log_ticks(domain), title=None, labelOverlap=True, grid=True)


def log_ticks(domain: tuple[float, float], most_decades: float = 6) -> list[float]:
    """Where an axis on a logarithmic scale has its ticks.

    Two orders of magnitude need ticks between the decades, eight do not.

    Args:
        domain: of the axis.
        most_decades: of more than these not every one has a tick.
    """
    decades = math.log10(domain[1] / domain[0])
    step = max(1, math.ceil(decades / most_decades))
    exponents = range(math.floor(math.log10(domain[0])), math.ceil(math.log10(domain[1])) + 1)
    factors = (1, 2, 5) if decades < 2 else (1, 3) if decades < 3 else (1,)
    ticks = [factor * 10.0**exponent for exponent in exponents if exponent % step == 0 for factor in factors]
    return [tick for tick in ticks if domain[0] <= tick <= domain[1]]


def arm_colour(arms: Sequence[ArmRecord]) -> alt.Color:
    """The channel that gives every arm its colour."""
    return alt.Color("arm:N", scale=_scale(arm_colours(arms)), legend=None)


def arm_stroke(arms: Sequence[ArmRecord]) -> alt.Stroke:
    """The same for outlines."""
    return alt.Stroke("arm:N", scale=_scale(arm_colours(arms)), legend=None)


def arm_dash(arms: Sequence[ArmRecord]) -> alt.StrokeDash:
    """The channel that tells emulated arms and the A/A arm by their lines."""
    return alt.StrokeDash("arm:N", scale=_scale(arm_dashes(arms)), legend=None)


def _scale(values: Mapping[str, Any]) -> alt.Scale:
    return alt.Scale(domain=list(values), range=list(values.values()))


def finished(chart: alt.LayerChart | alt.FacetChart, height: int) -> dict[str, Any]:
    """The specification of a panel, as wide as its place on the page."""
    config = alt.Config(
        background="transparent",
        font=FONT,
        view=alt.ViewConfig(stroke="transparent"),
        axis=alt.AxisConfig(labelFontSize=11, titleFontSize=11, titleFontWeight="normal", tickSize=4, domain=True),
    )
    # At once, for every change to a chart of layers copies all of them.
    whole = chart.properties(width="container", height=height, config=config)
    spec: dict[str, Any] = whole.to_dict(validate=False)  # takes half a second in all; the tests validate what is drawn
    spec.pop("$schema", None)  # an address; the page has no use for one
    return spec
