"""Validity: whether a trial may count, judged from outside the guest.

Pure functions of what was observed; the bounds come from the plan (:class:`~virtgauge.plan.model.ValidityLimits`).
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence

from virtgauge.host.load import IN_TICKS, TICK_NS, CpuLoad
from virtgauge.ledger.records import Flag
from virtgauge.plan.model import ValidityLimits
from virtgauge.suites.base import Elapsed

_EXACT_FLOOR_NS = 1_000_000
"""CPU time below which a share is not judged where busy time is exact: its parts are not read at the same instant."""
_STEAL_FLOOR_NS = 20_000_000
"""The same of a trial that is judged as a whole; of a slice, which is one of many, every tick is judged."""
_JUDGED_CPUS = 8
"""On a machine of more CPUs, limits are shares of so many, or of as many as the testbed uses: it uses one or two."""
_SLICE_STEAL = 0.01
"""There, where somewhere a tick is always stolen, a slice may hold a tick, or this share of one CPU's time."""
_GUEST_FAST_NS = 1_000_000
"""How far a guest's clock may run ahead of the controller's, beside ``clock_ppm``: its span lies within the
controller's, so it can never be the longer one."""
_GUEST_SLOW_SHARE, _GUEST_SLOW_NS = 0.20, 500_000_000
"""How far it may stay behind: what a loaded guest may need to begin, and to send its answer, at
each request."""


@dataclasses.dataclass(frozen=True)
class MachineUsage:
    """Who used the machine during a trial."""

    load: CpuLoad  # the whole machine
    guest_ns: int | None  # CPU time of what is under test, as accounted outside of it; None where that is not known
    peers_ns: int  # CPU time of what helps to measure it (a client, a tester, a switch)
    controller_ns: int  # CPU time of this controller
    # no guest under test runs on this machine (it is simulated, or another machine), whose other processes and whose
    # hypervisor therefore take nothing from it
    elsewhere: bool = False
    # what threads of the kernel did for the testbed is in no other field, and cannot be told from the work of other
    # processes
    kernel_work_hidden: bool = False

    @property
    def foreign_ns(self) -> int | None:
        """CPU time of neither guests, peers nor controller; None when the guests' is not known."""
        if self.guest_ns is None:
            return None
        return self.load.foreign_ns(self.guest_ns + self.peers_ns + self.controller_ns)

    @property
    def foreign_share(self) -> float:
        """CPU time of others as a share of what the judged CPUs could give during the trial."""
        return self._share(self.foreign_ns or 0)

    @property
    def stolen_share(self) -> float:
        """The same of what the hypervisor took, of the CPUs that this was counted of."""
        return self._share(self.load.steal_ns or 0, self.load.stolen_from)

    def judged_cpus(self, some: Sequence[int] = ()) -> int:
        """CPUs of which limits are shares: of all, or of some, up to eight, else as many as the testbed keeps busy."""
        own_ns = (self.guest_ns or 0) + self.peers_ns
        used = math.ceil(own_ns / self.load.elapsed_ns) if self.load.elapsed_ns else 0
        return min(len(some) or self.load.cpus, max(used, _JUDGED_CPUS))

    def _share(self, cpu_ns: int, some: Sequence[int] = ()) -> float:
        capacity_ns = self.load.elapsed_ns * self.judged_cpus(some)
        return cpu_ns / capacity_ns if capacity_ns else 0.0

    def __add__(self, other: MachineUsage) -> MachineUsage:
        return dataclasses.replace(
            self,
            load=self.load + other.load,
            guest_ns=None if self.guest_ns is None or other.guest_ns is None else self.guest_ns + other.guest_ns,
            peers_ns=self.peers_ns + other.peers_ns,
            controller_ns=self.controller_ns + other.controller_ns,
        )


def foreign_floor_ns(load: CpuLoad) -> float:
    """CPU time of others that is not told from none; counted in ticks, one, or three standard deviations of them.

    A tick is charged to what runs when it comes, all of it or nothing: n ticks, each of which finds a CPU busy with
    probability p, count np(1 − p) ≤ n/4 in variance.
    """
    if load.method != IN_TICKS:
        return _EXACT_FLOOR_NS
    return max(TICK_NS, 3 * math.sqrt(load.capacity_ns / TICK_NS / 4) * TICK_NS)


def machine_flags(usage: MachineUsage, limits: ValidityLimits, *, of_slice: bool = False) -> list[Flag]:
    """Foreign load and steal beyond the limits.

    Any steal spoils a short part of a trial (``of_slice``), unless ``limits.steal`` is 1: a tick within it may have
    delayed a single sample by all of itself.
    """
    if usage.elsewhere:
        return []
    flags = []
    foreign, steal, some = usage.foreign_ns or 0, usage.load.steal_ns or 0, usage.load.stolen_from
    if foreign > foreign_floor_ns(usage.load) and usage.foreign_share > limits.foreign_load:
        text = _share_text("other processes used", usage, usage.foreign_share, limits.foreign_load)
        if usage.kernel_work_hidden:
            text += ", not applied: a PID namespace hides the kernel's threads, which work for the guest"
        flags.append(Flag("foreign-load", text, fatal=not usage.kernel_work_hidden))
    if of_slice:
        many = usage.load.steal_cpus > _JUDGED_CPUS
        accepted_ns = max(TICK_NS, _SLICE_STEAL * usage.load.elapsed_ns) if many else 0
        if steal > accepted_ns and limits.steal < 1:
            text = f"the hypervisor took {steal / 1e6:g} ms in {usage.load.elapsed_ns / 1e6:.0f} ms"
            flags.append(Flag("steal", f"{text}; the limit is {accepted_ns / 1e6:g} ms"))
    elif steal > _STEAL_FLOOR_NS and usage.stolen_share > limits.steal:
        flags.append(Flag("steal", _share_text("the hypervisor took", usage, usage.stolen_share, limits.steal, some)))
    return flags


def clock_flags(
    clocks: Sequence[Elapsed], controller_elapsed_ns: int | None, limits: ValidityLimits, *, requests: int = 1
) -> list[Flag]:
    """Clocks of the guest that disagree with one another, or with the controller's.

    Their spans are the sums of those of so many requests, each of which may be answered late.
    """
    flags = []
    for first, second in itertools.combinations(clocks, 2):
        difference = abs(first.elapsed_ns - second.elapsed_ns)
        longest = max(first.elapsed_ns, second.elapsed_ns)
        tolerance = limits.clock_ppm * 1e-6 * longest + first.uncertainty_ns + second.uncertainty_ns
        if difference > tolerance:
            ppm = difference / longest * 1e6 if longest > 0 else float("inf")
            flags.append(
                Flag(
                    "clock-drift",
                    f"{first.clock} and {second.clock} differ by {ppm:.0f} ppm "
                    f"over {longest / 1e6:.1f} ms; the limit is {limits.clock_ppm:g} ppm",
                )
            )
    if clocks and controller_elapsed_ns is not None:
        guest = clocks[0].elapsed_ns
        ahead = guest - controller_elapsed_ns
        if ahead > _GUEST_FAST_NS + limits.clock_ppm * 1e-6 * controller_elapsed_ns:
            flags.append(Flag("clock-drift", f"the guest counted {ahead / 1e6:.1f} ms more than passed outside"))
        if -ahead > requests * _GUEST_SLOW_NS + _GUEST_SLOW_SHARE * controller_elapsed_ns:
            text = f"the guest counted {-ahead / 1e6:.0f} ms less than passed outside: answered late, or stood still"
            flags.append(Flag("late-answer", text, fatal=False))
    return flags


def _share_text(what: str, usage: MachineUsage, share: float, limit: float, some: Sequence[int] = ()) -> str:
    judged = usage.judged_cpus(some)
    of = "the machine's CPU time" if judged == usage.load.cpus else f"the time of {judged} CPUs"
    if judged == len(some):
        of = f"the time of CPU {', '.join(map(str, some))}, to which it is confined"
    return f"{what} {share:.1%} of {of}; the limit is {limit:.1%}"
