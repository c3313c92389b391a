"""What each guest is entitled to by its policy, its threads and its neighbour: analysis.isolation.entitlement, applied.

A reservation is a weight here (docs/policies.md), so that weights and limits say all of it.
"""

from __future__ import annotations

import dataclasses

from virtgauge.analysis.isolation import Claim, entitled_cpus
from virtgauge.host.policy import PLAIN_WEIGHT, Policy
from virtgauge.suites.isolation.benchmarks import Kind
from virtgauge.suites.isolation.placement import Placement


@dataclasses.dataclass(frozen=True)
class Demand:
    """What a guest does, by its processors.

    Attributes:
        cpus: that it would use alone; None where that depends on a disk or a timer.
        received_cpus: that it used; None where that is not known.
    """

    cpus: float | None
    received_cpus: float | None

    @classmethod
    def of(cls, kind: Kind | None, threads: int, intensity_percent: int, received_cpus: float | None) -> Demand:
        """Of so many threads of a kind; None is a guest that does nothing."""
        if kind is None:
            return cls(0.0, received_cpus)
        return cls(threads * intensity_percent / 100 if kind.always_runs else None, received_cpus)


def entitled(where: Placement, one: tuple[Policy, Demand], other: tuple[Policy, Demand]) -> float | None:
    """What the first of two guests is entitled to, in whole CPUs.

    A neighbour whose demand is not known is supposed to want what it used.

    Returns:
        None where the guest's own demand is not known, or nothing of the neighbour's.
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


def entitled_without_limit(where: Placement, one: tuple[Policy, Demand], other: tuple[Policy, Demand]) -> float | None:
    """What the first would be entitled to if it had no limit."""
    policy, demand = one
    return entitled(where, (dataclasses.replace(policy, cpu_limit=None, reservation=None), demand), other)


def _claim(policy: Policy, demand: float) -> Claim:
    weight = PLAIN_WEIGHT if policy.weight is None else policy.weight
    return Claim(demand=demand, limit=policy.cpu_limit, weight=float(weight))
