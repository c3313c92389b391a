"""All papers' conclusions beside what one run measured."""

from __future__ import annotations

from collections.abc import Sequence

from virtgauge.claims.papers import SOURCES, on_paper
from virtgauge.claims.verdicts import CheckedClaim, ClaimCheck, Verdict
from virtgauge.ledger.records import ArmRecord
from virtgauge.plan.paper_presets import PAPER_PREFIX
from virtgauge.report.replay.judgement import NOT_PART, judge
from virtgauge.report.replay.model import Replay, ReplayedClaim, ReplayedPart
from virtgauge.report.spec_report import SpecReport


def replay_of(plan_name: str, arms: Sequence[ArmRecord], suites: Sequence[SpecReport]) -> Replay | None:
    """Every conclusion of every paper, where a run is a replay: its plan is named so; else None.

    Args:
        plan_name: of the manifest.
        arms: of the manifest.
        suites: that were measured.
    """
    if not plan_name.startswith(PAPER_PREFIX):
        return None
    measured = {suite.suite: suite for suite in suites}
    confidences = [one.confidence for suite in suites for one in suite.estimates if one.confidence is not None]
    return Replay(
        parts=tuple(_part(suite, measured.get(suite), arms) for suite in SOURCES),
        emulated=tuple(arm.label for arm in arms if arm.usable and arm.emulated and arm.role != "aa"),
        lowest_confidence=min(confidences, default=None),
    )


def _part(name: str, suite: SpecReport | None, arms: Sequence[ArmRecord]) -> ReplayedPart:
    if suite is None:
        claims = [_untested(paper) for paper in on_paper(name)]
    else:
        labels = {arm.name: arm.label for arm in arms}
        emulated = any(arm.emulated for arm in suite.arms)
        claims = [_claim(checks, labels, emulated=emulated) for checks in suite.claims]
    source, subject = SOURCES[name]
    return ReplayedPart(name, f"{source.short}: {subject}", source.citation, suite is not None, tuple(claims))


def _untested(paper: CheckedClaim) -> ReplayedClaim:
    return ReplayedClaim(paper.name, paper.place, paper.text, paper.note, paper, (), Verdict.UNTESTABLE, NOT_PART)


def _claim(checks: ClaimCheck, labels: dict[str, str], *, emulated: bool) -> ReplayedClaim:
    paper = checks.paper
    verdict, reason = judge(checks.run, labels, emulated=emulated)
    return ReplayedClaim(paper.name, paper.place, paper.text, paper.note, paper, checks.run, verdict, reason)
