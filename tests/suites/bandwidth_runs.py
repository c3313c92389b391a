"""Bandwidth runs of the simulated platform for tests: truth in, ledger out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from suites.simulated_runs import execute, plan_of, simulated

from virtgauge.ledger.records import TrialRecord, TrialStatus
from virtgauge.ledger.store import Ledger

QUICK = {"estimators": ["kite2"], "timings": ["hptime"], "cross_mbps": [0], "estimates": 10}
REFERENCE, TEST = "reference", "test"


def bandwidth_trials(
    folder: Path,
    *,
    repetitions: int = 1,
    attempts: int = 1,
    seed: int = 1,
    designs: Sequence[dict[str, Any]] = ({},),
    faults: Sequence[dict[str, Any]] = (),
    reference: dict[str, Any] | None = None,
    aa: bool = False,
    quick: dict[str, Any] = QUICK,
    **truth: Any,
) -> list[TrialRecord]:
    """The trials of a run.

    Args:
        designs: sections of the suite, each beside ``quick``.
        reference: truth of a reference arm; None: the arm under test is its own reference.
        aa: measure the reference once more.
        truth: of the arm under test.
    """
    platforms = [simulated(TEST, bandwidth=truth, faults=list(faults), seed=2 * seed)]
    if reference is not None:
        platforms = [simulated(REFERENCE, bandwidth=reference, seed=2 * seed + 1), *platforms]
    suite = {"bandwidth": [quick | design for design in designs]}
    plan = plan_of(*platforms, seed=seed, repetitions=repetitions, attempts=attempts, suite=suite, aa=aa)
    execute(plan, folder)
    with Ledger.open(folder) as ledger:
        return ledger.trials()


def valid(trials: Sequence[TrialRecord]) -> list[TrialRecord]:
    """The same, none of which may be anything but valid."""
    others = {one.key: (one.error, one.flags) for one in trials if one.status is not TrialStatus.VALID}
    assert not others, others
    return list(trials)


def only(trials: Sequence[TrialRecord], **factors: str) -> TrialRecord:
    """The only trial with these factors."""
    (found,) = [one for one in trials if factors.items() <= one.factors.items()]
    return found


def flags(trial: TrialRecord) -> set[str]:
    """The names of its flags."""
    return {flag.name for flag in trial.flags}
