"""What each host found, drawn: ratios to the reference on the same host, one panel for each headline measure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import altair as alt

from virtgauge.ledger.records import ArmRecord
from virtgauge.report.arms import row_labels
from virtgauge.report.charts import (
    ROWS,
    Made,
    Row,
    arm_colour,
    arm_stroke,
    domain_of,
    figure_of_rows,
    finished,
    log_ticks,
)
from virtgauge.report.hosts.model import HostFigure, HostFindings, HostRow
from virtgauge.results.formatting import ratio, ratio_interval

_HEIGHT_OF_HOST, _HEIGHT_AROUND = 26, 40


def host_figure(findings: HostFindings, arms: Sequence[ArmRecord]) -> Made | None:
    """Every ratio of every host; None where there is none, or only one host."""
    hosts = [host.name for host in findings.hosts if host.measured]
    if len(hosts) < 2:
        return None
    labels = row_labels(arms)
    panels: dict[str, list[Row]] = {}
    for row in findings.rows:
        panels.setdefault(row.measure, []).extend(_marks(row, labels[row.arm]))

    def spec(rows: list[Row]) -> dict[str, Any]:
        return _spec(arms, hosts, domain_of([1.0, *_values(rows)]))

    return figure_of_rows(
        "hosts",
        "Ratio to the reference, host by host",
        "Each mark is a cell on one host: the median of its repetitions' ratios to the reference there, with its "
        "interval. 1 is the reference itself.",
        panels,
        spec,
        ours={"ours"},
        published="",
    )


def _marks(row: HostRow, label: str) -> Iterable[Row]:
    for one in row.figures:
        if one.ratio is not None and one.ratio.point is not None and one.ratio.point > 0:
            yield _mark(row, one, label)


def _mark(row: HostRow, one: HostFigure, label: str) -> Row:
    assert one.ratio is not None
    mark: Row = {"kind": "ours", "host": one.host, "arm": row.arm, "label": label, "at": row.cell}
    mark |= {"x": one.ratio.point, "t": ratio(one.ratio), "low": None, "high": None, "interval": "none"}
    if one.ratio.has_interval:
        mark |= {"low": one.ratio.low, "high": one.ratio.high, "interval": ratio_interval(one.ratio)}
    return mark


def _values(rows: Iterable[Row]) -> Iterable[float]:
    for row in rows:
        yield from (row[end] for end in ("x", "low", "high") if row[end] is not None)


def _spec(arms: Sequence[ArmRecord], hosts: Sequence[str], domain: tuple[float, float]) -> dict[str, Any]:
    axis = alt.Axis(values=log_ticks(domain), format="~g", title=None, grid=True)
    scale = alt.Scale(type="log", domain=list(domain), nice=False)
    across = alt.X("x:Q", scale=scale, axis=axis)
    up = alt.Y("host:N", sort=list(hosts), scale=alt.Scale(domain=list(hosts)), axis=alt.Axis(title=None))
    beside = alt.YOffset("arm:N", sort=[arm.name for arm in arms])
    colour = arm_colour(arms)
    tooltip = [
        alt.Tooltip("host:N", title="host"),
        alt.Tooltip("label:N", title="platform"),
        alt.Tooltip("at:N", title="at"),
        alt.Tooltip("t:N", title="ratio"),
        alt.Tooltip("interval:N", title="interval"),
    ]
    base = alt.Chart(alt.NamedData(name=ROWS))
    intervals = (
        base.transform_filter("isValid(datum.low)")
        .mark_rule(strokeWidth=3, opacity=0.35, clip=True)
        .encode(
            x=alt.X("low:Q", scale=scale, axis=axis), x2="high:Q", y=up, yOffset=beside, color=colour, tooltip=tooltip
        )
    )
    dots = base.mark_point(filled=True, size=34, opacity=0.9, clip=True).encode(
        x=across, y=up, yOffset=beside, color=colour, stroke=arm_stroke(arms), tooltip=tooltip
    )
    return finished(alt.layer(intervals, dots), _HEIGHT_AROUND + _HEIGHT_OF_HOST * len(hosts))
