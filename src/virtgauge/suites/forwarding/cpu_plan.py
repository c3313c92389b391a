"""Which CPUs of the host the tester, the switch and the guests of a forwarding laboratory run on."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Self

from virtgauge.host.process import all_pids, cpu_ticks, process_name


@dataclasses.dataclass(frozen=True)
class CpuPlan:
    """Tester and guests apart, as far as there are CPUs.

    Attributes:
        transmit, receive: of the tester's two threads; None leaves it to the scheduler.
        guests: of all guests together, and of the switch.
        shared: tester and guests cannot be kept apart here, and disturb each other.
    """

    transmit: int | None
    receive: int | None
    guests: tuple[int, ...]
    shared: bool

    @classmethod
    def of_this_machine(cls) -> Self:
        """The plan for the CPUs that this process may use."""
        return cls.of(sorted(os.sched_getaffinity(0)))

    @classmethod
    def of(cls, cpus: Sequence[int]) -> Self:
        """Two CPUs for the tester and the rest for the guests; with fewer than four, one for each side.

        On a single CPU nothing can be kept apart.
        """
        match len(cpus):
            case 0 | 1:
                return cls(None, None, tuple(cpus), shared=True)
            case 2 | 3:
                return cls(cpus[0], cpus[0], tuple(cpus[1:]), shared=False)
            case _:
                return cls(cpus[0], cpus[1], tuple(cpus[2:]), shared=False)

    @classmethod
    def beside(cls, tester: Sequence[int]) -> Self:
        """The plan for guests on this machine and a tester on another, whose CPUs are given."""
        own = sorted(os.sched_getaffinity(0))
        return cls(tester[0], tester[min(1, len(tester) - 1)], tuple(own), shared=False)

    @property
    def tester(self) -> tuple[int, ...] | None:
        """CPUs of the tester's agent; None where it shares them."""
        own = {cpu for cpu in (self.transmit, self.receive) if cpu is not None}
        return tuple(sorted(own)) or None

    def interrupt_threads_ns(self) -> int | None:
        """CPU time of the kernel's threads that work off what senders left; no guest is charged with it."""
        ticks = [cpu_ticks(pid) or 0 for pid in all_pids() if (process_name(pid) or "").startswith("ksoftirqd/")]
        return sum(ticks) * (1_000_000_000 // os.sysconf("SC_CLK_TCK"))
