"""The isolation suite's parts of the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from virtgauge.ledger.records import ArmRecord
from virtgauge.report.isolation import accounting, tables, vocabulary
from virtgauge.report.isolation.figures import draw
from virtgauge.report.isolation.model import IsolationFindings
from virtgauge.report.isolation.published import by_figure
from virtgauge.report.isolation.ratios import CONSERVING, TARGET_Q
from virtgauge.report.isolation.sentences import FAIR_INTERVAL, FAIR_SHARE, ISOLATED_FROM
from virtgauge.report.sections import CLAIMS, Section, SuitePage
from virtgauge.report.verdicts import verdict_counts

if TYPE_CHECKING:
    from virtgauge.report.page_frame import PageFrame

_READING = {
    "Tested and loading guest": "Two guests of one platform with the same virtual processors and memory, each with a "
    "disk of its own. The benchmark runs in the tested one, the load in the loading one.",
    "Isolated, partly, not": "By what the tested guest keeps under the load that costs most, of what it was promised: "
    "of all loads, shares and numbers of cores. Where policies were tried with a benchmark on such cores, under that "
    "which protects it best: with a reservation, a weight, a limit, in this order; of a disk, with a bound for it. "
    f"Isolated: the interval lies above {ISOLATED_FROM:.0%}, or the median does and no difference was shown. Not "
    f"isolated: the median is {FAIR_SHARE:.0%} or less, or the interval lies below {FAIR_INTERVAL:.0%}, which is "
    "little more than a fair share that a guest has without any policy. Partly: all between.".replace("%", " %"),
    "Kept": "Work under the load over work without it, in the same block. Where a policy promises a share of the "
    "cores, over no more than that share: losing idle time of a neighbour is no lack of isolation. A share of the "
    "cores promises nothing of disks and of waking up; there it is the work without the load.",
    "Relative": "v / v_ref: work beside that of the reference platform without load and policy on as many cores, in "
    "the same block. Of latencies the inverse, so that more is always better; of waking up, of the p99 of its "
    "lateness, or of the p90 or the median where a trial has fewer than a thousand wake-ups, or a hundred.",
    "q": "Efficiency, v / (v_ref · s) with the declared share s (Rzecki et al. 2014, equation 1). Where the loading "
    "guest has the policy, s is what is left for the tested one. q = q_share · q_rate: CPU time received of that "
    "entitled to (the scheduler), and work per second of CPU time beside the reference’s (frequency, caches, memory, "
    "the cost of virtualization).",
    "Entitled": "By limits, weights and what each guest would use, as water fills vessels: nobody’s unused share is "
    "lost, a limit apart. A reservation is given as a weight where the platform has none.",
    "Blind": "The guest was stopped for more than 3 % of the time, seen from outside, and its own kernel counts "
    "nothing of it as stolen. Whoever looks at its counters sees a full core.",
}


def suite_page(found: IsolationFindings, arms: Sequence[ArmRecord], frame: PageFrame) -> SuitePage:
    """What the suite puts on the page.

    Args:
        found: by the suite.
        arms: with trials of the suite, in the order to show them in.
        frame: of the page.
    """
    drawn = draw(found, frame.arms)
    figures = frame.draw(drawn.figures, drawn.data, arms) if drawn.figures else ""
    shared = {"tables": tables, "say": vocabulary, "account": accounting, "found": found, "arms": arms}
    sections = []

    def add(anchor: str, title: str, template: str, **values: object) -> None:
        sections.append(Section(anchor, title, frame.render(f"isolation/{template}", **shared, **values)))

    if groups := tables.sentence_groups(found, arms):
        add("resources", "Resources", "resources.html", groups=groups)
    add("figures", "Figures", "figures.html", figures=figures)
    if latencies := tables.latencies(found, arms):
        add("latency", "Latency", "latency.html", latencies=latencies)
    smallest, conservation = tables.smallest(found, arms), tables.conservation(found, arms)
    if smallest.lines or conservation.lines:
        shares = {"smallest": smallest, "conservation": conservation}
        add("shares", "Shares", "shares.html", **shares, target=TARGET_Q, conserving=CONSERVING)
    if policies := tables.policies(found, arms):
        add("policies", "Policies", "policies.html", policies=policies)
    if accounts := accounting.account_tables(found, arms):
        blind = accounting.blind_words(found, arms)
        add("accounting", "Accounting", "accounting.html", accounts=accounts, blind=blind)
    add("tables", "The array", "array.html", array=tables.array(found, arms))
    if found.published:
        add("published", "Published", "published.html", published=by_figure(found.published))
    if found.not_measured:
        add("missing", "Not measured", "missing.html")
    counts = verdict_counts(claim.paper for claim in found.paper_claims)
    add(CLAIMS, "The paper", "claims.html", counts=counts, verdict_counts=verdict_counts)
    head = frame.render("isolation/glance.html", **shared, glance=tables.glance(found, arms))
    return SuitePage(head, tuple(sections), _READING)
