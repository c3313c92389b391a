"""What CI can be told of a run without requirements: whether every repetition of every cell has a valid trial."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from virtgauge.exchange.junit import Case, Outcome
from virtgauge.ledger.records import ArmRecord, TrialRecord, TrialStatus
from virtgauge.ledger.store import Ledger
from virtgauge.measures.values import CellKey, cell_key
from virtgauge.report.arms import row_labels


def trial_cases(ledger: Ledger) -> Iterator[Case]:
    """A case for each arm and cell, arm by arm; a platform that was skipped is one case.

    It passes if each of its repetitions has a valid trial.  It fails if one has none for being measured under wrong
    conditions only; it is an error if the last attempt brought no figure at all; skipped, if the guest cannot do it.
    """
    by_arm: dict[str, dict[CellKey, list[TrialRecord]]] = {}
    for trial in ledger.trials():
        by_arm.setdefault(trial.arm, {}).setdefault(cell_key(trial), []).append(trial)
    arms = ledger.manifest().arms
    labels = row_labels(arms)
    for arm in arms:
        if not arm.usable:
            skipped = Case(labels[arm.name], "virtgauge.platform", arm.name, Outcome.SKIPPED, arm.reason)
            yield dataclasses.replace(skipped, detail=arm.fix or "")
        for (suite, probe, levels), trials in by_arm.get(arm.name, {}).items():
            name = " ".join([probe, *(f"{factor}={level}" for factor, level in levels)])
            yield _case(arm, labels[arm.name], f"virtgauge.{suite}.{probe}", name, trials)


def _case(arm: ArmRecord, label: str, classname: str, name: str, trials: Sequence[TrialRecord]) -> Case:
    last = {trial.block: trial for trial in trials}
    valid = {trial.block for trial in trials if trial.status is TrialStatus.VALID}
    lacking = [trial for block, trial in last.items() if block not in valid]
    outcome = _outcome(lacking)
    counted = f"{len(valid)} of {len(last)} repetitions have a valid trial"
    message = counted if not lacking else f"{counted}: {_why(lacking[-1])}"
    return Case(
        suite=label,
        classname=classname,
        name=name,
        outcome=outcome,
        message=message,
        seconds=sum(trial.elapsed_ns for trial in trials) / 1e9,
        properties={"arm": arm.name, "platform": arm.kind, "emulated": "yes" if arm.emulated else "no"},
        detail="\n".join(f"repetition {one.block}, attempt {one.attempt}: {_why(one)}" for one in lacking),
    )


def _outcome(lacking: Sequence[TrialRecord]) -> Outcome:
    statuses = {trial.status for trial in lacking}
    if TrialStatus.FAILED in statuses:
        return Outcome.ERROR
    if TrialStatus.INVALID in statuses:
        return Outcome.FAIL
    return Outcome.SKIPPED if statuses else Outcome.PASS


def _why(trial: TrialRecord) -> str:
    flags = "; ".join(f"{flag.name}: {flag.detail}" for flag in trial.flags if flag.fatal)
    return f"{trial.status.value}: {trial.error or flags or 'no reason was recorded'}"
