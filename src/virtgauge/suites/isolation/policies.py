"""What each guest is given by the policy of a cell (docs/policies.md says what each knob means)."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from virtgauge.host.policy import (
    LARGEST_WEIGHT,
    LEAST_CPU_LIMIT,
    LEAST_WEIGHT,
    PLAIN_WEIGHT,
    DiskLimits,
    Policy,
    weight_for_share,
)
from virtgauge.suites.isolation.placement import Placement, allowed_cpus

PolicyName = Literal["none", "limit", "reservation", "limit+reservation", "weight", "disk-limit"]
Receiver = Literal["tested", "loading"]
NO_POLICY: PolicyName = "none"
NOBODY = "none"
"""Who gets no policy."""

_LIMITS = ("limit", "limit+reservation")
_RESERVES = ("reservation", "limit+reservation")
_WEIGHS = ("reservation", "limit+reservation", "weight")


@dataclasses.dataclass(frozen=True)
class Given:
    """What both guests are given.

    Attributes:
        tested, loading: everybody has a weight, for weights count only among those that have one.
        asked: the fields that the cell's policy gives, on one of the guests.
        notes: how that is brought about where the policy's name does not say.
    """

    tested: Policy
    loading: Policy
    asked: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def given(policy: PolicyName, on: str, share: float, where: Placement, disk_full_bps: float) -> Given:
    """The policies of both guests.

    Args:
        policy: of the cell.
        on: who gets it: ``tested``, ``loading`` or :data:`NOBODY`.
        share: of the CPUs that a guest may run on, or of the disk; above 0, at most 1.
        where: the guests' CPUs.
        disk_full_bps: bytes a second that a share of 1 is of.

    Raises:
        UsageError: a value that no kernel accepts.
    """
    tested, loading = _plain(where.tested), _plain(where.loading)
    changes, notes = _changes(policy, share, where.capacity, disk_full_bps)
    if on == "tested":
        tested = dataclasses.replace(tested, **changes)
    elif on == "loading":
        loading = dataclasses.replace(loading, **changes)
    return Given(tested, loading, tuple(changes), notes)


def refusal(policy: PolicyName, share: float, capacity: int, disk_full_bps: float) -> str | None:
    """Why a share cannot be given by a policy, in words; None where it can."""
    if policy in _LIMITS and share * capacity < LEAST_CPU_LIMIT:
        return (
            f"a limit of {share:.3%} of {capacity} CPUs is {share * capacity:g} CPUs; "
            f"less than {LEAST_CPU_LIMIT:g} is not accepted by the kernel"
        )
    if policy in _WEIGHS and share < 1:
        exact = share / (1 - share) * PLAIN_WEIGHT
        if not LEAST_WEIGHT - 0.5 <= exact <= LARGEST_WEIGHT + 0.5:
            return (
                f"{share:.3%} beside a neighbour of weight {PLAIN_WEIGHT} is the weight {exact:g}; "
                f"weights go from {LEAST_WEIGHT} to {LARGEST_WEIGHT}"
            )
    if policy == "disk-limit" and share * disk_full_bps < 1:
        return f"{share:.3%} of {disk_full_bps:g} bytes a second is less than one"
    return None


def _plain(cpus: tuple[int, ...]) -> Policy:
    """Everybody's weight, on the CPUs of its own."""
    return Policy(weight=PLAIN_WEIGHT, cores=None if cpus == allowed_cpus() else cpus)


def _changes(
    policy: PolicyName, share: float, capacity: int, disk_full_bps: float
) -> tuple[dict[str, Any], tuple[str, ...]]:
    changes: dict[str, Any] = {}
    notes: list[str] = []
    if policy in _LIMITS:
        changes["cpu_limit"] = share * capacity
    if policy in _WEIGHS:
        changes["weight"] = weight_for_share(share)
    if policy in _RESERVES:
        changes["reservation"] = share * capacity
        notes.append(
            f"reservation: {share:.0%} by a weight of {changes['weight']} beside {PLAIN_WEIGHT}, which is a floor "
            "among these two guests alone; where the platform has reservations, one of that size"
        )
    if policy == "disk-limit":
        bound = round(share * disk_full_bps)
        changes["disk"] = DiskLimits(read_bps=bound, write_bps=bound)
    return changes, tuple(notes)
