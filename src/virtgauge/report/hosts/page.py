"""The hosts of a fleet as a section of the page."""

from __future__ import annotations

import itertools

import markupsafe

from virtgauge.report.arms import row_labels
from virtgauge.report.charts import drawn
from virtgauge.report.hosts.charts import host_figure
from virtgauge.report.hosts.formatting import figure_text, probability, sentence, test_text
from virtgauge.report.hosts.model import HostFindings
from virtgauge.report.page_frame import PageFrame


def hosts_section(findings: HostFindings | None, frame: PageFrame) -> markupsafe.Markup:
    """The section of the page; empty markup of the run of one host."""
    if findings is None:
        return markupsafe.Markup()
    made = drawn(filter(None, [host_figure(findings, frame.arms)]))
    ordered = sorted(findings.rows, key=lambda row: row.measure)  # a stable sort: cells stay in the plan's order
    return frame.render(
        "hosts.html",
        findings=findings,
        figures=frame.draw(
            made.figures, made.data, [arm for arm in frame.arms if arm.usable and arm.role != "reference"]
        ),
        labels=row_labels(frame.arms),
        measures=[(name, list(rows)) for name, rows in itertools.groupby(ordered, key=lambda row: row.measure)],
        sentence=sentence(findings),
        figure=figure_text,
        test=test_text,
        probability=probability,
        by_host=lambda row: {one.host: one for one in row.figures},
    )
