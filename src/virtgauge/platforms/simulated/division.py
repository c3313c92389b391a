"""What two guests get of a simulated machine at one moment: of its processors, of its disk, and in work.

For two the shares by limit, floor and weight have a closed form, so that nothing here rests on the water-filling by
which :mod:`virtgauge.analysis.isolation.entitlement` judges.
"""

from __future__ import annotations

import dataclasses

from virtgauge.host.policy import PLAIN_WEIGHT, Policy
from virtgauge.platforms.simulated import kernels
from virtgauge.platforms.simulated.isolation import IsolationTruth, Knob
from virtgauge.platforms.simulated.kernels import Work


@dataclasses.dataclass(frozen=True)
class Side:
    """One of the two guests.

    Attributes:
        work: what it does; None is nothing.
        cores: that it may run on.
    """

    policy: Policy
    work: Work | None
    cores: frozenset[int]


@dataclasses.dataclass(frozen=True)
class Given:
    """What a guest gets.

    Attributes:
        demand: CPUs that it would use alone.
        cpus: that it gets.
        withheld: CPUs that its own limit keeps from it.
        crowd: CPUs that the other one uses of the same cores.
        frequency: at which its cores run, as a part of the full one.
        rate: units a second of its work.
    """

    demand: float
    cpus: float
    withheld: float
    crowd: float
    frequency: float
    rate: float


@dataclasses.dataclass(frozen=True)
class Want:
    """What a guest would use of something that is shared, and what it may; all in the same unit.

    Attributes:
        demand: if it were alone.
        limit: at most.
        floor: at least, as far as it wants it.
        weight: beside the other's.
    """

    demand: float
    limit: float = float("inf")
    floor: float = 0.0
    weight: float = 1.0

    @property
    def most(self) -> float:
        return min(self.demand, self.limit)


def divided(first: Want, second: Want, capacity: float) -> tuple[float, float]:
    """What each gets: by weight, but no more than it can use, no less than its floor; what is wanted is not idle."""
    if first.most + second.most <= capacity:
        return first.most, second.most
    lowest = max(min(first.floor, first.most), capacity - second.most)
    highest = min(max(capacity - min(second.floor, second.most), lowest), first.most)
    ours = min(max(capacity * first.weight / (first.weight + second.weight), lowest), highest)
    return ours, capacity - ours


def division(truth: IsolationTruth, first: Side, second: Side, scheduled: float = 1.0) -> tuple[Given, Given]:
    """What both get.

    Args:
        scheduled: what the first is given of what is due to it, where that is less than it wants.
    """
    sides, shared = (first, second), not first.cores.isdisjoint(second.cores)
    disk_times = _disk_times(truth, first, second)
    wants = (_processor_want(truth, first, disk_times[0]), _processor_want(truth, second, disk_times[1]))
    capacities = [len(first.cores | second.cores)] * 2 if shared else [len(side.cores) for side in sides]

    def cpus_of(ours: Want, theirs: Want) -> tuple[float, float]:
        if shared:
            return divided(ours, theirs, capacities[0])
        return min(ours.most, capacities[0]), min(theirs.most, capacities[1])

    due = cpus_of(*wants)
    unlimited = (
        cpus_of(dataclasses.replace(wants[0], limit=float("inf")), wants[1])[0],
        cpus_of(wants[0], dataclasses.replace(wants[1], limit=float("inf")))[1],
    )
    scarce = due[0] < wants[0].demand
    cpus = (min(due[0] * scheduled, wants[0].demand) if scarce else due[0], due[1])
    given = []
    for index, (side, other) in enumerate(((first, second), (second, first))):
        crowd = cpus[1 - index] if shared else 0.0
        use = min((cpus[index] + crowd) / capacities[index], 1.0)
        worth = 0.0 if side.work is None else truth.worth(side.work, use, other.work, cpus[1 - index])
        given.append(
            Given(
                demand=wants[index].demand,
                cpus=cpus[index],
                withheld=unlimited[index] - due[index],
                crowd=crowd,
                frequency=truth.frequency(use),
                rate=_rate(truth, side.work, cpus[index], wants[index].demand, disk_times[index], worth),
            )
        )
    return given[0], given[1]


def _rate(
    truth: IsolationTruth, work: Work | None, cpus: float, demand: float, disk_time: float, worth: float
) -> float:
    if work is None or demand == 0:
        return 0.0
    match work.kernel:
        case kernels.DISK:
            return truth.rate(work) * disk_time * cpus / demand
        case kernels.WAKE:
            return work.threads * 1e9 / work.period_ns * work.intensity * cpus / demand
        case _:
            return truth.rate(work) * cpus * worth


def _processor_want(truth: IsolationTruth, side: Side, disk_time: float) -> Want:
    if side.work is None:
        return Want(0.0)
    policy = side.policy
    limited = policy.cpu_limit is not None and truth.cpu_limit is Knob.HONOURED
    reserved = policy.reservation is not None and truth.reservation is Knob.HONOURED
    weighed = policy.weight is not None and truth.weight is Knob.HONOURED
    return Want(
        demand=min(truth.demand(side.work, disk_time), len(side.cores) * side.work.intensity),
        limit=(policy.cpu_limit or 0.0) * truth.limit_overshoot if limited else float("inf"),
        floor=(policy.reservation or 0.0) if reserved else 0.0,
        weight=float((policy.weight or 0) if weighed else PLAIN_WEIGHT),
    )


def _disk_times(truth: IsolationTruth, first: Side, second: Side) -> tuple[float, float]:
    """What part of the time each has its disk."""
    ours, theirs = _disk_want(truth, first), _disk_want(truth, second)
    return divided(ours, theirs, 1.0) if truth.disk_shared else (ours.most, theirs.most)


def _disk_want(truth: IsolationTruth, side: Side) -> Want:
    if side.work is None or side.work.kernel != kernels.DISK:
        return Want(0.0)
    return Want(side.work.intensity, limit=_disk_limit(truth, side.policy, side.work))


def _disk_limit(truth: IsolationTruth, policy: Policy, work: Work) -> float:
    """What part of a disk's time its limits allow."""
    if truth.disk_limit is not Knob.HONOURED:
        return float("inf")
    reads = work.operation == "read"
    bytes_a_second = policy.disk.read_bps if reads else policy.disk.write_bps
    operations = policy.disk.read_iops if reads else policy.disk.write_iops
    bounds = [float("inf") if bytes_a_second is None else float(bytes_a_second)]
    bounds += [] if operations is None else [float(operations) * work.block_bytes]
    return min(bounds) / truth.rate(work)
