"""What validity left out of the trials that count, by arm, and what that can hide (docs/noise.md)."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from virtgauge.ledger.records import ArmRecord
from virtgauge.results.columns import Account, Cell, Integers
from virtgauge.results.formatting import share
from virtgauge.results.quantities import running_time

_DIFFERS = 0.05  # Shares that are further apart can make a difference between arms
_CHANCE = 0.05  # How often at most a run, in which the same is taken from all arms, looks as if there were a difference


@dataclasses.dataclass
class LeftOut:
    """What was measured on one arm and left out because of steal or foreign load."""

    arm: str  # by name
    # slices and whole trials that were left out, by reason; the most frequent first
    reasons: Counter[str] = dataclasses.field(default_factory=Counter)
    left_out_ns: int = 0  # how long they were
    waited_ns: int = 0  # for quiet moments
    kept_ns: int = 0  # how long the takes were that count
    kept_takes: int = 0  # how many these are; of a record that does not tell, one of each trial
    told_ns: float = 0  # CPU time of which steal was bounded, in trials where it was, and ``stolen_ns`` that bound
    stolen_ns: float = 0

    @property
    def takes(self) -> int:
        """How many takes were left out."""
        return self.reasons.total()

    @property
    def share(self) -> float:
        """What was left out as a share of the time that was measured."""
        return self.left_out_ns / (self.left_out_ns + self.kept_ns) if self.left_out_ns else 0.0

    @property
    def steal_at_most(self) -> float | None:
        """Share of the CPU time in what counts that can have been stolen unnoticed; None where untold."""
        return min(self.stolen_ns / self.told_ns, 1.0) if self.told_ns else None

    def add(self, told: Account) -> None:
        """Some trials more, of which all tell what was left out."""
        for one in itertools.chain.from_iterable(told.left_out):
            self.reasons[one["reason"]] += 1
            self.left_out_ns += one["elapsed_ns"]
        self.kept_takes += int(np.where(np.isnan(told.kept), 1, told.kept).sum())
        self.waited_ns += int(np.nansum(told.waited_ns))
        kept = told.processors > 0
        self.kept_ns += int(told.elapsed_ns[kept].sum())
        bounded = kept & ~np.isnan(told.steal_at_most_ns)
        self.told_ns += float((told.elapsed_ns * told.steal_processors)[bounded].sum())
        self.stolen_ns += float(told.steal_at_most_ns[bounded].sum())

    def __add__(self, other: LeftOut) -> LeftOut:
        mine, theirs = vars(self), vars(other)
        return LeftOut(self.arm, **{name: mine[name] + theirs[name] for name in mine if name != "arm"})


class Difference(NamedTuple):
    """The arms of which most and least was left out in one suite, beside one load (None in suites without any)."""

    suite: str
    load: str | None
    most: LeftOut
    least: LeftOut


@dataclasses.dataclass(frozen=True)
class Tallies:
    """What was left out of a run, and whether any steal was ever told."""

    groups: Mapping[tuple[str, str | None], Mapping[str, LeftOut]]  # by suite and load, and in each by arm
    steal: bool

    @classmethod
    def of(cls, accounts: Iterable[tuple[Cell, str, Integers, Account]]) -> Tallies:
        """Sum up what was counted beside trials, by cell and arm."""
        groups: dict[tuple[str, str | None], dict[str, LeftOut]] = {}
        steal = False
        for cell, arm, _, account in accounts:
            steal = steal or bool(np.nansum(account.steal_ns))
            known = np.flatnonzero([one is not None for one in account.left_out])
            if known.size:
                of_arms = groups.setdefault((cell.suite, cell.factors.get("load")), {})
                of_arms.setdefault(arm, LeftOut(arm)).add(account.at(known))
        told = any(one.reasons["steal"] for of_arms in groups.values() for one in of_arms.values())
        return cls(groups, steal or told)


def left_out_by_arm(arms: Iterable[ArmRecord], tallies: Tallies) -> tuple[LeftOut, ...]:
    """What was left out, for every arm whose trials could be repeated in parts."""
    of_arm = {
        arm.name: [of_arms[arm.name] for of_arms in tallies.groups.values() if arm.name in of_arms] for arm in arms
    }
    return tuple(sum(own, LeftOut(arm)) for arm, own in of_arm.items() if own)


def left_out_differing(tallies: Tallies) -> Difference | None:
    """Where arms differ most in what was left out of the same suite beside the same load; None where nowhere much.

    Whole arms would not do: an arm without one of the suites, or with longer trials, would differ by that alone.  A
    difference has to be more than chance makes: Fisher's exact test of the numbers of takes, with Bonferroni's
    correction for as many pairs of arms as there are.
    """
    pairs, apart = 0, []
    for (suite, load), of_arms in tallies.groups.items():
        for pair in itertools.combinations(of_arms.values(), 2):
            least, most = sorted(pair, key=lambda one: one.share)
            pairs += 1
            if most.share - least.share > _DIFFERS:
                apart.append(Difference(suite, load, most, least))
    if not apart:
        return None
    from scipy.stats import fisher_exact  # more than a second, which almost all reports spare

    def is_told(found: Difference) -> bool:
        counts = np.array([(one.takes, one.kept_takes) for one in (found.least, found.most)])
        return bool(fisher_exact(counts).pvalue * pairs < _CHANCE)

    return max(filter(is_told, apart), key=lambda one: one.most.share - one.least.share, default=None)


def untold_steal_caveats(fingerprint: Mapping[str, Any], tallies: Tallies) -> tuple[str, ...]:
    """That steal was perhaps not reported: nothing where the machine is not virtual, or has ever told of some."""
    hypervisor = (fingerprint.get("context") or {}).get("hypervisor") or {}
    if not hypervisor.get("present") or hypervisor.get("steal_ticks") != 0 or tallies.steal:
        return ()
    return (
        "This machine is virtual, and its kernel has counted no steal since boot: the hypervisor was quiet, or does "
        "not report what it takes (Hyper-V, VMware by default, KVM without steal time). What it took unreported is in "
        "the figures.",
    )


def left_out_caveats(found: Sequence[LeftOut], tallies: Tallies) -> tuple[str, ...]:
    """What a reader must know of it; nothing where nothing was left out."""
    if not any(one.takes for one in found):
        return ()
    whole = sum(found, LeftOut(""))
    listed = ", ".join(f"{number} for {name}" for name, number in whole.reasons.most_common())
    said = [
        f"Others used this machine meanwhile: parts of trials were left out and repeated ({listed}), "
        f"{whole.left_out_ns / 1e9:.1f} s together; {running_time(whole.kept_ns / 1e9)} count. What guests did in the "
        "moments left out is not in the figures."
    ]
    if (differ := left_out_differing(tallies)) is not None:
        where = f"{differ.suite}, load {differ.load}" if differ.load else differ.suite
        said.append(
            f"More was left out on {differ.most.arm} ({share(differ.most.share)}) than on {differ.least.arm} "
            f"({share(differ.least.share)}) in {where}: if a platform itself provokes steal or foreign load, "
            "its worst moments are missing."
        )
    return tuple(said)
