"""What validity left out of the trials that count, by arm, and what that can hide (docs/noise.md)."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from virtgauge.ledger.records import ArmRecord, TrialRecord
from virtgauge.results.formatting import share

_DIFFERS = 0.05
"""Shares that are further apart can make a difference between arms."""
_CHANCE = 0.05
"""How often at most a run, in which the same is taken from all arms, looks as if there were a difference."""


@dataclasses.dataclass(frozen=True)
class LeftOut:
    """What was measured on one arm and left out because of steal or foreign load.

    Attributes:
        arm: by name.
        takes: slices and whole trials that were left out.
        reasons: their number by reason.
        left_out_ns: how long they were.
        waited_ns: for quiet moments.
        kept_ns: how long the takes were that count.
        steal_at_most: share of the machine's CPU time in those that can have been stolen unnoticed; None where the
            kernel does not count steal.
    """

    arm: str
    takes: int
    reasons: dict[str, int]
    left_out_ns: int
    waited_ns: int
    kept_ns: int
    steal_at_most: float | None

    @property
    def share(self) -> float:
        """Of the time that was measured."""
        return self.left_out_ns / (self.left_out_ns + self.kept_ns) if self.left_out_ns else 0.0


@dataclasses.dataclass(frozen=True)
class Difference:
    """The arms of which most and least was left out in one suite.

    Attributes:
        load: what ran beside the measurement; None in suites without this factor.
    """

    suite: str
    load: str | None
    most: LeftOut
    least: LeftOut

    @property
    def points(self) -> float:
        """Between their shares."""
        return self.most.share - self.least.share


def left_out_by_arm(arms: Iterable[ArmRecord], trials: Sequence[TrialRecord]) -> tuple[LeftOut, ...]:
    """For every arm whose trials could be repeated in parts."""
    found = []
    for arm in arms:
        own = [trial for trial in trials if trial.arm == arm.name and "left_out" in trial.accounting]
        if own:
            found.append(_of_arm(arm.name, own))
    return tuple(found)


def left_out_differing(trials: Iterable[TrialRecord]) -> Difference | None:
    """Where arms differ most in what was left out of the same suite beside the same load; None where nowhere much.

    Whole arms would not do: an arm without one of the suites, or with longer trials, would differ by that alone.  A
    difference has to be more than chance makes: Fisher's exact test of the numbers of takes, with Bonferroni's
    correction for as many pairs of arms as there are.
    """
    groups: dict[tuple[str, str | None], dict[str, list[TrialRecord]]] = {}
    for trial in trials:
        if "left_out" in trial.accounting:
            of_arms = groups.setdefault((trial.suite, trial.factors.get("load")), {})
            of_arms.setdefault(trial.arm, []).append(trial)
    found = []
    for (suite, load), of_arms in groups.items():
        for pair in itertools.combinations(of_arms, 2):
            least, most = sorted((_of_arm(arm, of_arms[arm]) for arm in pair), key=lambda one: one.share)
            counts = np.array([_counts(of_arms[arm.arm]) for arm in (least, most)])
            found.append((Difference(suite, load, most, least), counts))
    apart = [(differ, counts) for differ, counts in found if differ.points > _DIFFERS]
    if not apart:
        return None
    from scipy.stats import fisher_exact  # more than a second, which almost all reports spare

    told = [differ for differ, counts in apart if fisher_exact(counts).pvalue * len(found) < _CHANCE]
    return max(told, key=lambda one: one.points, default=None)


def _counts(trials: Sequence[TrialRecord]) -> tuple[int, int]:
    """Takes that were left out, and that count; of a record that does not tell, one of each trial."""
    left_out = sum(len(trial.accounting["left_out"]) for trial in trials)
    return left_out, sum(trial.accounting.get("kept", 1) for trial in trials)


def _of_arm(arm: str, trials: Sequence[TrialRecord]) -> LeftOut:
    takes: list[dict[str, Any]] = [one for trial in trials for one in trial.accounting["left_out"]]
    kept = [trial for trial in trials if trial.accounting.get("processors")]
    told = [trial for trial in kept if trial.accounting["steal_at_most_ns"] is not None]
    capacity_ns = sum(trial.elapsed_ns * trial.accounting["processors"] for trial in told)
    stolen_ns = sum(trial.accounting["steal_at_most_ns"] for trial in told)
    return LeftOut(
        arm=arm,
        takes=len(takes),
        reasons=dict(Counter(one["reason"] for one in takes).most_common()),
        left_out_ns=sum(one["elapsed_ns"] for one in takes),
        waited_ns=sum(trial.accounting["waited_ns"] for trial in trials),
        kept_ns=sum(trial.elapsed_ns for trial in kept),
        steal_at_most=min(stolen_ns / capacity_ns, 1.0) if capacity_ns else None,
    )


def untold_steal_caveats(fingerprint: Mapping[str, Any], trials: Iterable[TrialRecord]) -> tuple[str, ...]:
    """That steal was perhaps not reported: nothing where the machine is not virtual, or has ever told of some."""
    hypervisor = (fingerprint.get("context") or {}).get("hypervisor") or {}
    steal = any(
        trial.accounting.get("steal_ns")
        or any(one["reason"] == "steal" for one in trial.accounting.get("left_out", ()))
        for trial in trials
    )
    if not hypervisor.get("present") or hypervisor.get("steal_ticks") != 0 or steal:
        return ()
    return (
        "This machine is virtual, and its kernel has counted no steal since boot: the hypervisor was quiet, or does "
        "not report what it takes (Hyper-V, VMware by default, KVM without steal time). What it took unreported is in "
        "the figures.",
    )


def left_out_caveats(found: Sequence[LeftOut], trials: Sequence[TrialRecord]) -> tuple[str, ...]:
    """What a reader must know of it; nothing where nothing was left out."""
    if not any(one.takes for one in found):
        return ()
    reasons = sum((Counter(one.reasons) for one in found), Counter[str]())
    listed = ", ".join(f"{name} ×{number}" for name, number in reasons.most_common())
    left_out_s, kept_s = sum(one.left_out_ns for one in found) / 1e9, sum(one.kept_ns for one in found) / 1e9
    said = [
        f"Others used this machine meanwhile ({listed}): {left_out_s:.1f} s of measuring were left out and repeated, "
        f"{kept_s:.1f} s count. What guests did in the moments left out is not in the figures."
    ]
    if (differ := left_out_differing(trials)) is not None:
        where = f"{differ.suite}, load {differ.load}" if differ.load else differ.suite
        said.append(
            f"More was left out on {differ.most.arm} ({share(differ.most.share)}) than on {differ.least.arm} "
            f"({share(differ.least.share)}) in {where}: if a platform itself provokes steal or foreign load, "
            "its worst moments are missing."
        )
    return tuple(said)
