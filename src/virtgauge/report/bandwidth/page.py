"""The bandwidth suite's parts of the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from virtgauge.ledger.records import ArmRecord
from virtgauge.report.bandwidth import tables, vocabulary
from virtgauge.report.bandwidth.figures import draw
from virtgauge.report.bandwidth.model import BandwidthFindings
from virtgauge.report.sections import CLAIMS, Section, SuitePage
from virtgauge.report.verdicts import verdict_counts

if TYPE_CHECKING:
    from virtgauge.report.page_frame import PageFrame

_READING = {
    "Available bandwidth": "What a path still carries without queueing: the least over its hops of capacity − cross "
    "traffic. All rates are of IP packets; a shaper counts 1514 B, and Ethernet 1538, where these are 1500.",
    "Estimate, truth, error": "A trial makes several searches, each an instant estimate; their median is the trial’s. "
    "The truth is the declared capacity less the cross traffic that was counted meanwhile. The error is median ÷ truth "
    "− 1; an answer that is a lower bound (≥) below the truth is right, and has none.",
    "Half the IQR": "Half the interquartile range of a trial’s instant estimates, which Kirova et al. 2019 call MAD "
    "and draw as the variance. MAD here is the usual one, the median of the distances from the median.",
    "Holds the truth": "Of the intervals that the estimator itself gives, those in which the counted truth lies; as "
    "many as its confidence says should.",
    "Built in, by the shim": "Timing is swapped within the estimator (clock and sleep), or by preloading hptime’s "
    "library to a program of plain system calls, as the paper did; “without the shim” is that program as it is.",
    "Helps, hurts": "Errors without their signs, one timing less the other in the same repetition. It helps or hurts "
    "where the interval excludes 0 and the difference exceeds what identical arms (A/A) differ by; it makes it "
    "possible where the other timing cannot pace the rate at all.",
    "Cannot pace": "The sender refused to report: the path carried all that it sends on time. The highest honest rate "
    "is the one that it kept within 1 %, with at most one of 100 bursts late.",
}


def suite_page(found: BandwidthFindings, arms: Sequence[ArmRecord], frame: PageFrame) -> SuitePage:
    """What the suite puts on the page.

    Args:
        found: by the suite.
        arms: with trials of the suite, in the order to show them in.
        frame: of the page.
    """
    drawn = draw(found, frame.arms)
    figures = frame.draw(drawn.figures, drawn.data, arms) if drawn.figures else ""
    shared = {"tables": tables, "say": vocabulary, "found": found, "arms": arms}
    sections = []

    def add(anchor: str, title: str, template: str, **values: object) -> None:
        sections.append(Section(anchor, title, frame.render(f"bandwidth/{template}", **shared, **values)))

    if found.effects:
        effects, pooled = tables.effects(found, arms), tables.pooled(found, arms)
        refusals = tables.hptime_refusals(found, arms)
        add("timing", "Timing", "timing.html", pooled=pooled, effects=effects, refusals=refusals)
    add("figures", "Figures", "figures.html", figures=figures)
    if pacing := tables.pacing(found, arms):
        shims = any(one.answered is not None for one in found.pacing)
        add("pacing", "Pacing", "pacing.html", pacing=pacing, shims=shims)
    costs = tables.costs(found, arms)
    if costs.lines:
        add("cost", "Cost", "cost.html", costs=costs)
    paths = tables.paths(found, arms)
    if paths.lines:
        add("paths", "Paths", "paths.html", paths=paths)
    add("tables", "Estimates", "detail.html", detail=tables.detail(found, arms))
    add("published", "Published", "published.html", published=tables.published(found))
    if found.not_measured:
        add("missing", "Not measured", "missing.html")
    add(CLAIMS, "The paper", "claims.html", verdict_counts=verdict_counts)
    head = frame.render("bandwidth/glance.html", **shared, glance=tables.glance(found, arms))
    return SuitePage(head, tuple(sections), _READING)
