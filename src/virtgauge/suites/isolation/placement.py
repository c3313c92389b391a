"""Which of the host's CPUs the two guests run on, and how many virtual processors each has."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Literal

Cores = Literal["1", "1-apart", "all"]


@dataclasses.dataclass(frozen=True)
class Placement:
    """Where the guests are.

    Attributes:
        tested, loading: the host's CPUs of each.
    """

    tested: tuple[int, ...]
    loading: tuple[int, ...]

    @property
    def capacity(self) -> int:
        """CPUs of the host that one guest has, shared or not: what a share is of."""
        return len(self.tested)

    @property
    def vcpus(self) -> int:
        """Virtual processors of each guest, and threads of each benchmark and load."""
        return len(self.tested)

    @property
    def shared(self) -> bool:
        """Whether the guests compete for the same CPUs."""
        return self.tested == self.loading


def allowed_cpus() -> tuple[int, ...]:
    """The CPUs that this process may use."""
    return tuple(sorted(os.sched_getaffinity(0)))


def placement(cores: str, cpus: Sequence[int]) -> Placement:
    """Place both guests.

    Args:
        cores: of :data:`Cores`: ``1``, both on the same CPU; ``1-apart``, each on one of its own; ``all``, both on
            all.
        cpus: that may be used.  The last ones are taken first, because a machine's interrupts are served by the first
            as a rule.

    Raises:
        ValueError: there are not as many.
    """
    last = tuple(cpus[-1:])
    if cores == "all":
        return Placement(tuple(cpus), tuple(cpus))
    if cores == "1":
        return Placement(last, last)
    if len(cpus) < 2:
        raise ValueError(f"each guest needs a CPU of its own, but there is only CPU {cpus[0]}")
    return Placement(last, tuple(cpus[-2:-1]))
