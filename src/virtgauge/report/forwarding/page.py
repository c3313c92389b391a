"""The forwarding suite's parts of the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from virtgauge.ledger.records import ArmRecord
from virtgauge.report.forwarding import rates, tables
from virtgauge.report.forwarding.figures import draw
from virtgauge.report.forwarding.model import ForwardingFindings
from virtgauge.report.sections import CLAIMS, Section, SuitePage
from virtgauge.report.verdicts import verdict_counts

if TYPE_CHECKING:
    from virtgauge.report.page_frame import PageFrame

_READING = {
    "Throughput (T)": "The highest total load of which no guest loses a frame, as one independent search on a fresh "
    "laboratory found it (the no-drop rate). Bits are those of frames with their check sequence.",
    "J": "Jain’s fairness index of the load’s distribution over the guests: 1 when all carry the same, 1/N when one "
    "carries everything. T|J is the throughput at that distribution.",
    "PDR, maximum receive rate": "The load of which no guest loses more than 0.5 %; the highest rate at which frames "
    "came back in any trial, whatever was lost.",
    "L_tot": "Every guest’s mean latency weighted with its share of the load (Batalla et al. 2016, equation 7).",
    "Generator-limited, stretched, late": "The result lies within a tenth of the tester’s own limit on a bare loop; "
    "the load could not be sent in its time, which counts as loss; frames left later than they should. The first and "
    "the last make a result invalid.",
    "Ledger of lost frames": "Every lost frame is set against a counter that admits to have dropped it. A result whose "
    "ledger does not close is invalid.",
}


def suite_page(found: ForwardingFindings, arms: Sequence[ArmRecord], frame: PageFrame) -> SuitePage:
    """What the suite puts on the page.

    Args:
        found: by the suite.
        arms: with trials of the suite, in the order to show them in.
        frame: of the page.
    """
    drawn = draw(found, frame.arms)
    figures = frame.draw(drawn.figures, drawn.data, arms) if drawn.figures else ""
    sections = []

    def add(anchor: str, title: str, template: str, **values: object) -> None:
        shared = {"rates": rates, "tables": tables, "found": found}
        sections.append(Section(anchor, title, frame.render(f"forwarding/{template}", **shared, **values)))

    add("figures", "Figures", "figures.html", figures=figures)
    if interfaces := tables.interface_tables(found, arms):
        add("interfaces", "Interfaces", "interfaces.html", interfaces=interfaces)
    add("tables", "Tables", "detail.html", detail=tables.detail(found, arms))
    if guests := tables.guests(found, arms):
        add("guests", "Guests", "guests.html", guests=guests)
    add("losses", "Losses", "losses.html", accounts=tables.accounts(found, arms))
    if found.published:
        add("published", "Published", "published.html")
    add(CLAIMS, "The paper", "claims.html", counts=verdict_counts(found.paper_claims))
    head = frame.render(
        "forwarding/glance.html", rates=rates, tables=tables, glance=tables.glance(found, arms), found=found
    )
    return SuitePage(head, tuple(sections), _READING)
