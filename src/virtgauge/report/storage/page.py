"""The storage suite's parts of the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from virtgauge.ledger.records import ArmRecord
from virtgauge.report.sections import CLAIMS, Section, SuitePage
from virtgauge.report.storage import tables, vocabulary
from virtgauge.report.storage.figures import draw
from virtgauge.report.storage.model import StorageFindings
from virtgauge.report.verdicts import verdict_counts

if TYPE_CHECKING:
    from virtgauge.report.page_frame import PageFrame

_READING = {
    "Levels of durability": "What an acknowledged write has outlived. None: it may be lost with the server’s process. "
    "In the OS: the process, not the machine. Periodic: it is flushed within a set time. Flushed: it was flushed to "
    "the device before the acknowledgement. Rates are compared and ranked within a level only.",
    "Single, multiple": "A statement of one reading, and of many (the plan’s values), whose rows are counted as in "
    "the paper’s Table V.",
    "Service and response time": "From sending to the answer, and, in an open loop, from the moment at which the "
    "operation was meant to start: an operation that waits for others before it counts with its wait.",
    "Knee": "The highest offered rate at which 99 % of the responses meet the objective.",
    "Client-limited": "The rate lies within half of what the same client reaches against a server that stores nothing: "
    "the server may be able to do more.",
    "Flushes": "Counted at the server’s calls (fsync and its kin). A flush profile stands for a device: a disk of so "
    "many turns a minute completes a flush at its next turn.",
    "Limit": "What a rate is the rate of, reckoned from what was counted: flushes near what the device completes; CPU "
    "time near what the server may use; one client waiting for each answer (round trip).",
}


def suite_page(found: StorageFindings, arms: Sequence[ArmRecord], frame: PageFrame) -> SuitePage:
    """What the suite puts on the page.

    Args:
        found: by the suite.
        arms: with trials of the suite, in the order to show them in.
        frame: of the page.
    """
    drawn = draw(found, frame.arms)
    figures = frame.draw(drawn.figures, drawn.data, arms) if drawn.figures else ""
    shared = {"tables": tables, "say": vocabulary, "found": found}
    sections = []

    def add(anchor: str, title: str, template: str, **values: object) -> None:
        sections.append(Section(anchor, title, frame.render(f"storage/{template}", **shared, **values)))

    if levels := tables.durability_by_arm(found, arms):
        add("durability", "Durability", "durability.html", levels=levels)
    add("figures", "Figures", "figures.html", figures=figures)
    add("replay", "Tables IV and V", "replay.html")
    add("tables", "Tables", "detail.html", detail=tables.detail(found, arms))
    latencies = {
        "mixed": tables.mixed_rows(found, arms),
        "open": tables.open_rows(found, arms),
        "knees": tables.knee_rows(found, arms),
    }
    if any(latencies.values()):
        add("latency", "Latency", "latency.html", **latencies)
    if found.not_measured:
        add("missing", "Not measured", "missing.html")
    add(CLAIMS, "The paper", "claims.html", verdict_counts=verdict_counts)
    head = frame.render("storage/glance.html", **shared, glance=tables.glance(found, arms))
    return SuitePage(head, tuple(sections), _READING)
