"""What each guest is given by the policy of a cell: its CPUs, its policy, and what it is entitled to by both.

docs/policies.md says what each knob means.  A reservation is a weight here, so that weights and limits say all of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

from virtgauge.analysis.resources import Claim, entitled_cpus
from virtgauge.host.policy import (
    LARGEST_WEIGHT,
    LEAST_CPU_LIMIT,
    LEAST_WEIGHT,
    PLAIN_WEIGHT,
    DiskLimits,
    Policy,
    weight_for_share,
)
from virtgauge.suites.isolation.benchmarks import Kind
from virtgauge.suites.testbed import allowed_cpus, core_of

Cores = Literal["1", "1-apart", "all"]
PolicyName = Literal["none", "limit", "reservation", "limit+reservation", "weight", "disk-limit"]
_LIMITS = ("limit", "limit+reservation")
_RESERVES = ("reservation", "limit+reservation")
_WEIGHS = ("reservation", "limit+reservation", "weight")


@dataclasses.dataclass(frozen=True)
class Placement:
    """The processors that the guests are on."""

    # tested, loading: the host's CPUs of each
    tested: tuple[int, ...]
    loading: tuple[int, ...]

    @property
    def capacity(self) -> int:
        """CPUs of the host that one guest has, shared or not: what a share is of.

        As many are the virtual processors of each guest, and the threads of each benchmark and load.
        """
        return len(self.tested)

    @property
    def shared(self) -> bool:
        return self.tested == self.loading

    @property
    def on_one_core(self) -> bool:
        """Whether all of these CPUs are threads of one core of this machine."""
        return len({core_of(cpu) for cpu in (*self.tested, *self.loading)}) == 1


def placement(cores: str, cpus: Sequence[int]) -> Placement:
    """Place both guests, by :data:`Cores`, on CPUs that may be used.

    The last ones are taken first, because a machine's interrupts are served by the first as a rule; for ``1-apart``
    such of different cores, where there are any.  Where there is one CPU alone, both share it also then.
    """
    last = tuple(cpus[-1:])
    if cores == "all":
        return Placement(tuple(cpus), tuple(cpus))
    if cores == "1":
        return Placement(last, last)
    core = core_of(last[0])
    apart = next((cpu for cpu in reversed(cpus) if core_of(cpu) != core), cpus[-2:][0])
    return Placement(last, (apart,))


@dataclasses.dataclass(frozen=True)
class Given:
    """What both guests are given."""

    # tested, loading: everybody has a weight, for weights count only among those that have one
    tested: Policy
    loading: Policy
    asked: tuple[str, ...] = ()  # the fields that the cell's policy gives, on one of the guests
    notes: tuple[str, ...] = ()  # how that is brought about where the policy's name does not say


def given(
    policy: PolicyName, on: str, share: float, where: Placement, disk_full_bps: float, *, as_is: bool = False
) -> Given:
    """The policies of both guests.

    Args:
        on: who gets it: ``tested``, ``loading`` or ``none``.
        share: of the CPUs that a guest may run on, or of the disk; above 0, at most 1.
        disk_full_bps: bytes a second that a share of 1 is of.
        as_is: of machines that exist already, whose CPUs are those of another host.
    Raises UsageError: a value that no kernel accepts.
    """
    changes: dict[str, Any] = {}
    notes = []
    if policy in _LIMITS:
        changes["cpu_limit"] = share * where.capacity
    if policy in _WEIGHS:
        changes["weight"] = weight_for_share(share, nearest=policy not in _RESERVES)
    if policy in _RESERVES:
        changes["reservation"] = share * where.capacity
        notes.append(
            f"reservation: {share:.0%} by a weight of {changes['weight']} beside {PLAIN_WEIGHT}, which is a floor "
            "among these two guests alone; where the platform has reservations, one of that size"
        )
    if policy == "disk-limit":
        bound = round(share * disk_full_bps)
        changes["disk"] = DiskLimits(read_bps=bound, write_bps=bound)
    tested, loading = (
        Policy(
            **{"weight": PLAIN_WEIGHT, **(changes if on == name else {})},
            cores=None if as_is or cpus == allowed_cpus() else cpus,
            available=tuple(range(max(cpus) + 1)) if as_is else None,
        )
        for name, cpus in (("tested", where.tested), ("loading", where.loading))
    )
    return Given(tested, loading, tuple(changes), tuple(notes))


def refusal(policy: PolicyName, share: float, capacity: int, disk_full_bps: float) -> str | None:
    """Why a share cannot be given by a policy, in words; None where it can."""
    if policy in _LIMITS and share * capacity < LEAST_CPU_LIMIT:
        return (
            f"a limit of {share:.3%} of {capacity} CPUs is {share * capacity:g} CPUs; "
            f"less than {LEAST_CPU_LIMIT:g} is not accepted by the kernel"
        )
    if policy in _WEIGHS and share < 1:
        exact = share / (1 - share) * PLAIN_WEIGHT
        if not LEAST_WEIGHT - 0.5 <= exact <= LARGEST_WEIGHT:
            return (
                f"{share:.3%} beside a neighbour of weight {PLAIN_WEIGHT} is the weight {exact:g}; "
                f"weights go from {LEAST_WEIGHT} to {LARGEST_WEIGHT}"
            )
    if policy == "disk-limit" and share * disk_full_bps < 1:
        return f"{share:.3%} of {disk_full_bps:g} bytes a second is less than one"
    return None


@dataclasses.dataclass(frozen=True)
class Demand:
    """What a guest does, by its processors."""

    cpus: float | None  # that it would use alone; None where that depends on a disk or a timer
    received_cpus: float | None  # that it used; None where that is not known

    @classmethod
    def of(cls, kind: Kind | None, threads: int, intensity_percent: int, received_cpus: float | None) -> Demand:
        """Of so many threads of a kind; None is a guest that does nothing."""
        if kind is None:
            return cls(0.0, received_cpus)
        return cls(threads * intensity_percent / 100 if kind.always_runs else None, received_cpus)


Claimant = tuple[Policy, Demand]  # A guest beside another


def entitled(where: Placement, one: Claimant, other: Claimant) -> float | None:
    """What the first of two guests is entitled to, in whole CPUs; None where its demand is not known.

    A neighbour whose demand is not known is supposed to want what it used; where not even that is known, it is None.
    """
    demand, neighbour = one[1].cpus, other[1].cpus
    if neighbour is None:
        neighbour = other[1].received_cpus
    if demand is None or (where.shared and neighbour is None):
        return None
    claims = [_claim(one[0], demand)]
    if where.shared:
        claims.append(_claim(other[0], neighbour or 0.0))
    return entitled_cpus(claims, float(where.capacity))[0]


def entitled_without_limit(where: Placement, one: Claimant, other: Claimant) -> float | None:
    """What the first would be entitled to if it had no limit."""
    policy, demand = one
    return entitled(where, (dataclasses.replace(policy, cpu_limit=None, reservation=None), demand), other)


def _claim(policy: Policy, demand: float) -> Claim:
    weight = PLAIN_WEIGHT if policy.weight is None else policy.weight
    return Claim(demand=demand, limit=policy.cpu_limit, weight=float(weight))
