"""The section of the page that holds the papers' conclusions."""

from __future__ import annotations

import dataclasses

import markupsafe

from virtgauge.claims.papers import SOURCES, printed_beside_table
from virtgauge.claims.verdicts import Hearing, Verdict, verdict_counts
from virtgauge.report.page_frame import PageFrame
from virtgauge.report.replay.model import Replay, ReplayedClaim, in_words
from virtgauge.report.sections import CLAIMS, Section, SuitePage
from virtgauge.report.spec_report import SpecReport


def replay_section(replay: Replay | None, frame: PageFrame) -> markupsafe.Markup | None:
    """Every conclusion once; None where the run is no replay."""
    if replay is None:
        return None
    labels = {arm.name: arm.label for arm in frame.arms}
    return frame.render("replay.html", replay=replay, labels=labels, told=told_hearings, in_words=in_words)


def told_hearings(claim: ReplayedClaim) -> list[Hearing]:
    """Those that have figures; why others have none is the verdict's reason."""
    return [
        one
        for one in claim.run
        if one.checked.verdict is not Verdict.UNTESTABLE or any(found.measured for found in one.checked.evidence)
    ]


def with_claims(suite: SpecReport, page: SuitePage, frame: PageFrame) -> SuitePage:
    """A suite's page with a section about its paper; a replay has the conclusions of all papers together instead."""
    if not suite.claims:
        return page
    html = frame.render(
        "suite_claims.html",
        source=SOURCES[suite.suite][0],
        claims=suite.claims,
        printed=printed_beside_table(suite.suite),
        labels={arm.name: arm.label for arm in frame.arms},
        counts=verdict_counts,
    )
    return dataclasses.replace(page, sections=(*page.sections, Section(CLAIMS, "The paper", html)))
