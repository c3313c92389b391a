"""The section of the page that holds the papers' conclusions."""

from __future__ import annotations

import dataclasses

import markupsafe

from virtgauge.report.page_frame import PageFrame
from virtgauge.report.replay.model import Replay, ReplayedClaim, in_words
from virtgauge.report.sections import CLAIMS, SuitePage
from virtgauge.report.verdicts import Hearing, Verdict


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
        if one.examined.verdict is not Verdict.UNTESTABLE or any(found.measured for found in one.examined.evidence)
    ]


def without_claims(page: SuitePage) -> SuitePage:
    """A suite's page without the section about its paper, whose conclusions stand together in a replay."""
    return dataclasses.replace(page, sections=tuple(one for one in page.sections if one.anchor != CLAIMS))
