"""The timing suite's parts of the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from virtgauge.ledger.records import ArmRecord
from virtgauge.report.charts import PanelData
from virtgauge.report.sections import CLAIMS, Section, SuitePage
from virtgauge.report.timing import factor_tables, tables
from virtgauge.report.timing.causes import summary
from virtgauge.report.timing.figures import curve_data, distribution_figures, median_data, median_figures, raw_data
from virtgauge.report.timing.model import TimingFindings

if TYPE_CHECKING:
    from virtgauge.report.page_frame import PageFrame

_READING = {
    "Distribution figures": "The height of a line says how often a value larger than the one below occurs. They hold "
    "all valid repetitions together. Dashed lines are emulated platforms, dotted the A/A arm; vertical rules are "
    "means. A wake-up before its deadline is negative and has no place on a logarithmic axis; the tables count it.",
}


def suite_page(found: TimingFindings, arms: Sequence[ArmRecord], frame: PageFrame) -> SuitePage:
    """What the suite puts on the page.

    Args:
        found: by the suite.
        arms: with trials of the suite, in the order to show them in.
        frame: of the page.
    """
    glance = tables.glance(found, arms)
    sections = [
        Section("figures", "Figures", frame.render("timing/figures.html", figures=_figures(found, arms, frame)))
    ]

    def add(anchor: str, title: str, template: str, **values: object) -> None:
        sections.append(Section(anchor, title, frame.render(f"timing/{template}", **values)))

    if found.causes:
        advice = {name: summary(causes) for name, causes in found.causes.items()}
        add("causes", "Why", "causes.html", arms=arms, causes=found.causes, advice=advice)
    if found.factors:
        add("factors", "Factors", "factors.html", factors=factor_tables.factor_sections(found, frame.arms))
    if found.loads:
        add("loads", "Loads", "loads.html", loads=found.loads)
    add("tables", "Tables", "detail.html", detail=tables.detail(found, arms), aside=tables.aside)
    if found.published:
        lines = tables.published(found, arms)
        add("published", "Published", "published.html", published=lines, citations=found.citations)
    claims = {
        "groups": factor_tables.claim_groups(found.paper_claims),
        "counts": factor_tables.claim_counts(found.paper_claims),
    }
    add(CLAIMS, "The paper", "claims.html", **claims)
    head = frame.render("timing/glance.html", glance=glance, summary_of=frame.summary_of)
    return SuitePage(head, tuple(sections), _READING)


def _figures(found: TimingFindings, arms: Sequence[ArmRecord], frame: PageFrame) -> str:
    data: dict[str, PanelData] = {}
    for index, cell in enumerate(found.cells):
        if cell.curves:
            data[f"ccdf-{index}"] = PanelData("curves", curve_data(found, index))
        if cell.scatters:
            data[f"raw-{index}"] = PanelData("raw", raw_data(found, frame.arms, index))
    data |= {name: PanelData("medians", rows) for name, rows in median_data(found, frame.arms).items()}
    figures = [*distribution_figures(found, frame.arms), *median_figures(found, frame.arms)]
    return frame.draw(figures, data, arms) if figures else ""
