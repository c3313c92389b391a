"""The verdicts as a section of the page."""

from __future__ import annotations

import markupsafe

from virtgauge.report.arms import row_labels
from virtgauge.report.decisions.formatting import conditions_text, margin_text, more_text, sentence
from virtgauge.report.decisions.model import Decisions
from virtgauge.report.page_frame import PageFrame


def requirements_section(decisions: Decisions, frame: PageFrame) -> markupsafe.Markup:
    """The section of the page; empty markup of a run that requires nothing."""
    if not decisions.requirements:
        return markupsafe.Markup()
    judged = {verdict.arm for verdict in decisions.verdicts}
    arms = [arm for arm in frame.arms if arm.name in judged and arm.usable]
    ranks = {(ranking.requirement, rank.arm): rank.rank for ranking in decisions.rankings for rank in ranking.ranks}
    return frame.render(
        "requirements.html",
        decisions=decisions,
        arms=arms,
        labels=row_labels(frame.arms),
        verdicts={(verdict.requirement, verdict.arm): verdict for verdict in decisions.verdicts},
        ranks=ranks,
        sentence=sentence(decisions),
        margin=margin_text,
        conditions=conditions_text,
        more_text=more_text,
    )
