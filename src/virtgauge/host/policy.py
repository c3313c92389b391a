"""What a guest may use of the host: one statement for every platform, checked before anything is started."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping

from virtgauge.errors import UsageError

LEAST_WEIGHT, PLAIN_WEIGHT, LARGEST_WEIGHT = 1, 100, 10_000
"""Of Linux's cgroup v2; what other platforms call shares is converted, and what came of it is read back."""
LEAST_CPU_LIMIT = 0.01
"""In whole CPUs: the kernel accepts no quota below 1 ms in its period of 100 ms."""


@dataclasses.dataclass(frozen=True)
class DiskLimits:
    """Upper bounds for a guest's disk; None is no bound.

    Attributes:
        read_bps, write_bps: bytes a second.
        read_iops, write_iops: operations a second.
    """

    read_bps: int | None = None
    write_bps: int | None = None
    read_iops: int | None = None
    write_iops: int | None = None

    @property
    def bps(self) -> int | None:
        """Bytes a second, for a hypervisor that has one bound for both directions."""
        return self.read_bps or self.write_bps

    @property
    def iops(self) -> int | None:
        """Operations a second, likewise."""
        return self.read_iops or self.write_iops

    def given(self) -> dict[str, int]:
        """Those that are bounds."""
        return {name: value for name, value in dataclasses.asdict(self).items() if value is not None}


@dataclasses.dataclass(frozen=True)
class Policy:
    """What one guest may use; None is no bound, and what everybody gets.

    Attributes:
        cpu_limit: CPU time of all its processes and vCPUs together, in whole CPUs (0.5 is half of one).
        reservation: CPU time that it gets against any neighbour, in whole CPUs.
        weight: its part of what is shared, 1 … 10 000; 100 is everybody's.
        cores: the host's CPUs that it may run on.
        disk: bounds for its disk.
        available: the CPUs of the machine that it is for; None is this one.

    Raises:
        UsageError: a value that cannot be; the message names field, value and remedy.
    """

    cpu_limit: float | None = None
    reservation: float | None = None
    weight: int | None = None
    cores: tuple[int, ...] | None = None
    disk: DiskLimits = DiskLimits()
    available: dataclasses.InitVar[tuple[int, ...] | None] = None

    def __post_init__(self, available: tuple[int, ...] | None) -> None:
        present = sorted(os.sched_getaffinity(0) if available is None else available)
        if self.cores is not None and (not self.cores or not set(present).issuperset(self.cores)):
            raise UsageError(f"cores is {list(self.cores)}; this machine has the cores {present}", "name some of these")
        capacity = len(present)
        for field, value in (("cpu_limit", self.cpu_limit), ("reservation", self.reservation)):
            if value is not None and not LEAST_CPU_LIMIT <= value <= capacity:
                raise UsageError(
                    f"{field} is {value:g} CPUs; this machine has {capacity}, and less than {LEAST_CPU_LIMIT:g} "
                    "of one is not accepted by its kernel",
                    f"give a value from {LEAST_CPU_LIMIT:g} to {capacity}",
                )
        if self.cpu_limit is not None and self.reservation is not None and self.reservation > self.cpu_limit:
            raise UsageError(
                f"reservation is {self.reservation:g} CPUs, but cpu_limit allows {self.cpu_limit:g}",
                "reserve no more than the limit",
            )
        if self.weight is not None and not LEAST_WEIGHT <= self.weight <= LARGEST_WEIGHT:
            raise UsageError(f"weight is {self.weight}", f"give a whole number from {LEAST_WEIGHT} to {LARGEST_WEIGHT}")
        for field, bound in self.disk.given().items():
            if bound < 1:
                raise UsageError(f"{field} is {bound}", "give a bound of at least 1, or leave it out")

    def given(self) -> tuple[str, ...]:
        """The fields that ask for something."""
        nothing = Policy()
        names = (field.name for field in dataclasses.fields(self))
        return tuple(name for name in names if getattr(self, name) != getattr(nothing, name))

    @property
    def empty(self) -> bool:
        """Whether it asks for nothing."""
        return self == Policy()


@dataclasses.dataclass(frozen=True)
class Applied:
    """What became of a policy.

    Attributes:
        declared: what was asked for.
        in_force: by the knob's name, what the platform says is in force, read back after it was set.
        no_effect: knobs that were asked for and change nothing here, each with its reason.
        notes: what a knob means on this platform where that is not plain: what is limited together, what of it each
            virtual processor gets.
    """

    declared: Policy
    in_force: Mapping[str, str]
    no_effect: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class PolicyError(Exception):
    """A policy that cannot be applied: the knob, what was asked for, and what the platform said."""


def weight_for_share(share: float, others_weight: int = PLAIN_WEIGHT) -> int:
    """The weight that entitles to a share of the processors beside neighbours of a weight: a reservation by weights.

    Args:
        share: of what is shared, above 0; 1 asks for all of it, which no weight gives.
        others_weight: of all neighbours together.

    Returns:
        The nearest weight that there is.
    """
    wanted = LARGEST_WEIGHT if share >= 1 else share / (1 - share) * others_weight
    return min(max(round(wanted), LEAST_WEIGHT), LARGEST_WEIGHT)
