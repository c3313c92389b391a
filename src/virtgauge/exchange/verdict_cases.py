"""A run's verdicts as cases for JUnit XML: one for each requirement on each platform."""

from __future__ import annotations

from virtgauge.analysis.bounds import Outcome as Verdicted
from virtgauge.decisions.verdicts import Verdict
from virtgauge.exchange.junit import Case, Outcome
from virtgauge.report.arms import row_labels
from virtgauge.report.decisions.model import Decisions, ReportedRequirement
from virtgauge.report.decisions.words import conditions_text, margin_text, more_text
from virtgauge.report.model import Report

_OUTCOMES = {
    Verdicted.PASS: Outcome.PASS,
    Verdicted.FAIL: Outcome.FAIL,
    Verdicted.INCONCLUSIVE: Outcome.INCONCLUSIVE,
    None: Outcome.SKIPPED,
}


def verdict_cases(report: Report) -> list[Case]:
    """The cases of a report, platform by platform; empty of a run that requires nothing."""
    decisions = report.decisions
    required = {one.name: one for one in decisions.requirements}
    seconds = {trial.trial_id: trial.elapsed_ns / 1e9 for trial in report.trials}
    labels = row_labels([arm.record for arm in report.arms])
    return [
        _case(verdict, required[verdict.requirement], decisions, labels[verdict.arm], seconds)
        for verdict in sorted(decisions.verdicts, key=lambda one: list(labels).index(one.arm))
    ]


def _case(
    verdict: Verdict,
    required: ReportedRequirement,
    decisions: Decisions,
    label: str,
    seconds: dict[int, float],
) -> Case:
    trials = [number for cell in verdict.cells for number in cell.trials]
    properties = {
        "requirement": required.text,
        "figure": decisions.figure(verdict),
        "margin": margin_text(verdict.decisive),
        "cell": conditions_text(verdict.decisive),
        "repetitions": str(verdict.decisive.estimate.n) if verdict.decisive else "0",
        "trials": " ".join(map(str, trials)),
        "source": required.source,
    }
    return Case(
        suite=label,
        classname="virtgauge.requirements",
        name=required.name,
        outcome=_OUTCOMES[verdict.outcome],
        message="; ".join(filter(None, (verdict.reason, more_text(verdict)))),
        seconds=sum(seconds.get(number, 0.0) for number in trials),
        properties={name: value for name, value in properties.items() if value},
        detail=decisions.figure(verdict),
    )
