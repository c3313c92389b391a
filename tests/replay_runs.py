"""Ledgers of replays: runs of the papers' suites with a known truth, put together into one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import synthetic
from synthetic import SyntheticArm, arm_record, manifest

from virtgauge.ledger.records import TrialRecord
from virtgauge.ledger.store import Ledger

PAPER_TIMERS = ("rdtscp", "clock_gettime")
PAPER_SLEEPS = (("usleep", "default"), ("highpertimer", "own"))
PAPER_TRUTH_NS = {"rdtscp": 12.0, "clock_gettime": 30.0, "usleep": 62_000.0, "highpertimer": 90.0}


def replay_arms(*others: SyntheticArm) -> list[SyntheticArm]:
    """The host with its A/A arm, and others."""
    return [
        SyntheticArm(arm_record("host", "host", "Host", "reference")),
        SyntheticArm(arm_record("host-aa", "host", "Host (A/A)", "aa")),
        *others,
    ]


def timing_replay(
    folder: Path,
    truth_ns: dict[str, float] | None = None,
    arms: Sequence[SyntheticArm] | None = None,
    name: str = "paper:timing",
    loads: Sequence[str] = ("idle", "cpu"),
    **options: object,
) -> Ledger:
    """A run of the timing paper's two clocks and two sleeps.

    Args:
        truth_ns: medians by function, instead of :data:`PAPER_TRUTH_NS`.
        options: of :func:`synthetic.synthetic_ledger`.
    """
    truth = PAPER_TRUTH_NS | (truth_ns or {})
    timers = {function: truth[function] for function in PAPER_TIMERS}
    sleeps = {key: truth[key[0]] for key in PAPER_SLEEPS}
    design = list(synthetic.cells(PAPER_TIMERS, PAPER_SLEEPS, loads))
    known = synthetic.TIMERS_NS.copy(), synthetic.SLEEPS_NS.copy()
    synthetic.TIMERS_NS.update(timers)
    synthetic.SLEEPS_NS.update(sleeps)
    try:
        return synthetic.synthetic_ledger(
            folder, replay_arms() if arms is None else arms, design=design, run={"plan_name": name}, **options
        )
    finally:
        synthetic.TIMERS_NS.clear()
        synthetic.SLEEPS_NS.clear()
        synthetic.TIMERS_NS.update(known[0])
        synthetic.SLEEPS_NS.update(known[1])


def put_together(
    folder: Path,
    parts: Sequence[Ledger],
    name: str = "paper:all",
    change: Callable[[TrialRecord], TrialRecord] = lambda trial: trial,
) -> Ledger:
    """One run of several: the arms of all, by name, and all trials; its plan says which arms each suite is for.

    ``change`` makes of each trial what it is to be.
    """
    arms = {arm.name: arm for part in parts for arm in part.manifest().arms}
    # A run has one reference; what another suite refers to is a platform like any other here.
    first = next(arm.name for arm in arms.values() if arm.role == "reference")
    roles = {arm.name: "test" if arm.role == "reference" and arm.name != first else arm.role for arm in arms.values()}
    records = [dataclasses.replace(arm, role=roles[arm.name]) for arm in arms.values()]
    plan = f"name = {name!r}\n"
    for part in parts:
        platforms = [arm.name for arm in part.manifest().arms if arm.role != "aa"]
        aa = any(arm.role == "aa" for arm in part.manifest().arms)
        plan += f"[[suite.{part.trials()[0].suite}]]\nplatforms = {platforms}\naa = {str(aa).lower()}\n"
    ledger = Ledger.create(folder, manifest(records, plan_name=name, plan_text=plan))
    ledger.add_event("started", "")
    with ledger.together():
        for part in parts:
            for trial in part.trials():
                ledger.add_trial(
                    change(dataclasses.replace(trial, guest_id=None)), part.histograms_of(trial.trial_id), {}
                )
    ledger.add_event("completed", "")
    return ledger
