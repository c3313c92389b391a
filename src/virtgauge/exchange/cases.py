"""What CI is told of a run: its verdicts, and without requirements, whether every cell has valid trials."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from virtgauge.analysis.bounds import Outcome as Verdicted
from virtgauge.decisions.verdicts import Verdict
from virtgauge.exchange.junit import Case, Outcome
from virtgauge.ledger.records import ArmRecord, TrialStatus
from virtgauge.report.arms import row_labels
from virtgauge.report.requirements import Decisions, ReportedRequirement, conditions_text, margin_text, more_text
from virtgauge.results.columns import Cell, Tried, read_marks
from virtgauge.results.table import ResultTable

_OUTCOMES = {
    Verdicted.PASS: Outcome.PASS,
    Verdicted.FAIL: Outcome.FAIL,
    Verdicted.INCONCLUSIVE: Outcome.INCONCLUSIVE,
    None: Outcome.SKIPPED,
}


def verdict_cases(decisions: Decisions, table: ResultTable) -> list[Case]:
    """The cases of a run, platform by platform; empty of one that requires nothing."""
    required = {one.name: one for one in decisions.requirements}
    judged = {number for verdict in decisions.verdicts for cell in verdict.cells for number in cell.trials}
    seconds = {mark.number: mark.elapsed_ns / 1e9 for mark in read_marks(table.ledger) if mark.number in judged}
    labels = row_labels(table.arms)
    return [
        _verdict_case(verdict, required[verdict.requirement], decisions, labels[verdict.arm], seconds)
        for verdict in sorted(decisions.verdicts, key=lambda one: list(labels).index(one.arm))
    ]


def _verdict_case(
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


def trial_cases(table: ResultTable) -> Iterator[Case]:
    """A case for each arm and cell, arm by arm; a platform that was skipped is one case.

    It passes if each of its repetitions has a valid trial.  Nothing is required, so nothing fails: it is skipped if the
    guest cannot do it, or if it was measured under wrong conditions only; an error if it brought no figure.
    """
    labels = row_labels(table.arms)
    elapsed = {mark.number: mark.elapsed_ns for mark in read_marks(table.ledger)}
    for arm in table.arms:
        if not arm.usable:
            yield Case(
                labels[arm.name], "virtgauge.platform", arm.name, Outcome.SKIPPED, arm.reason, detail=arm.fix or ""
            )
        for cell in table.cells():
            if table.tried(cell, arm.name):
                yield _trial_case(table, arm, labels[arm.name], cell, elapsed)


def _trial_case(table: ResultTable, arm: ArmRecord, label: str, cell: Cell, elapsed: Mapping[int, int]) -> Case:
    rows = table.trials.tried_at(cell, arm.name)
    blocks, attempts = table.trials.block[rows].tolist(), table.trials.attempt[rows].tolist()
    last = dict(zip(blocks, zip(attempts, table.attempts(cell, arm.name), strict=True), strict=True))
    valid = table.numbers(cell, arm.name)
    lacking = {block: one for block, one in last.items() if block not in valid}
    counted = f"{len(valid)} of {len(last)} repetitions have a valid trial"
    return Case(
        suite=label,
        classname=f"virtgauge.{cell.suite}.{cell.probe}",
        name=" ".join([cell.probe, *(f"{factor}={level}" for factor, level in cell.levels)]),
        outcome=_outcome_of({one.status for _, one in lacking.values()}),
        message=f"{counted}: {_why([*lacking.values()][-1][1])}" if lacking else counted,
        seconds=sum(elapsed[number] for number in table.trials.number[rows].tolist()) / 1e9,
        properties={"arm": arm.name, "platform": arm.kind, "emulated": "yes" if arm.emulated else "no"},
        detail="\n".join(
            f"repetition {block}, attempt {attempt}: {_why(one)}" for block, (attempt, one) in lacking.items()
        ),
    )


def _outcome_of(statuses: set[TrialStatus]) -> Outcome:
    if TrialStatus.FAILED in statuses:
        return Outcome.ERROR
    return Outcome.SKIPPED if statuses else Outcome.PASS


def _why(one: Tried) -> str:
    flags = "; ".join(f"{flag.name}: {flag.detail}" for flag in one.flags if flag.fatal)
    return f"{one.status.value}: {one.error or flags or 'no reason was recorded'}"
