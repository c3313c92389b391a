"""Validity: whether a trial may count, judged from outside the guest.

Pure functions of what was observed; the bounds come from the plan (:class:`~virtgauge.plan.model.ValidityLimits`).
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

from virtgauge.host.load import CpuLoad
from virtgauge.ledger.records import Flag
from virtgauge.plan.model import ValidityLimits
from virtgauge.suites.base import Elapsed

_CPU_FLOOR_NS = 10_000_000
"""CPU time below which a share is not judged: one tick of the kernel's own accounting."""
_STEAL_FLOOR_NS = 20_000_000
_GUEST_FAST_NS = 1_000_000
"""How far a guest's clock may run ahead of the controller's, beside ``clock_ppm``: its span lies within the
controller's, so it can never be the longer one."""
_GUEST_SLOW_SHARE, _GUEST_SLOW_NS = 0.20, 500_000_000
"""How far it may stay behind: what a loaded guest may need to begin, and to send its answer."""


@dataclasses.dataclass(frozen=True)
class MachineUsage:
    """Who used the machine during a trial.

    Attributes:
        load: the whole machine.
        guest_ns: CPU time of what is under test, as accounted outside of it; None where that is not known.
        peers_ns: CPU time of what helps to measure it (a client, a tester, a switch).
        controller_ns: CPU time of this controller.
        elsewhere: no guest under test runs on this machine (it is simulated, or another machine), whose other
            processes and whose hypervisor therefore take nothing from it.
    """

    load: CpuLoad
    guest_ns: int | None
    peers_ns: int
    controller_ns: int
    elsewhere: bool = False

    @property
    def foreign_ns(self) -> int | None:
        """CPU time of neither guests, peers nor controller; None when the guests' is not known."""
        if self.guest_ns is None:
            return None
        return self.load.foreign_ns(self.guest_ns + self.peers_ns + self.controller_ns)

    def share(self, cpu_ns: int) -> float:
        """CPU time as a share of what the machine could give during the trial."""
        return cpu_ns / self.load.capacity_ns if self.load.capacity_ns else 0.0


def machine_flags(usage: MachineUsage, limits: ValidityLimits) -> list[Flag]:
    """Foreign load and steal beyond the limits."""
    if usage.elsewhere:
        return []
    flags = []
    foreign, steal = usage.foreign_ns or 0, usage.load.steal_ns or 0
    if foreign > _CPU_FLOOR_NS and usage.share(foreign) > limits.foreign_load:
        text = _share_text("other processes used", usage.share(foreign), limits.foreign_load)
        flags.append(Flag("foreign-load", text))
    if steal > _STEAL_FLOOR_NS and usage.share(steal) > limits.steal:
        flags.append(Flag("steal", _share_text("the hypervisor took", usage.share(steal), limits.steal)))
    return flags


def clock_flags(clocks: Sequence[Elapsed], controller_elapsed_ns: int | None, limits: ValidityLimits) -> list[Flag]:
    """Clocks of the guest that disagree with one another, or with the controller's."""
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
        if -ahead > _GUEST_SLOW_NS + _GUEST_SLOW_SHARE * controller_elapsed_ns:
            text = f"the guest counted {-ahead / 1e6:.0f} ms less than passed outside: answered late, or stood still"
            flags.append(Flag("late-answer", text, fatal=False))
    return flags


def _share_text(what: str, share: float, limit: float) -> str:
    return f"{what} {share:.1%} of the machine's CPU time; the limit is {limit:.1%}"
