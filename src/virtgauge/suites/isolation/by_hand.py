"""A policy that a person has set at a hypervisor: its words, and whether it is in force, seen from inside.

Nothing outside tells what the two machines receive.  So a busy loop, calibrated by the median of its rounds, finds in
what share of the time it went on (docs/protocol.md, kernel ``share``), alone and beside a neighbour that is as busy,
and the neighbour finds the same: what both receive together shows whether they share processors at all, which a limit
alone does not.  What the machine's own kernel counts as stolen meanwhile is kept beside it, where it counts any.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from virtgauge.agent.channel import AgentError
from virtgauge.host.cgroup import QUOTA_PERIOD_US
from virtgauge.host.policy import Applied, Policy
from virtgauge.platforms.base import Platform
from virtgauge.specs.isolation_formatting import LOADING, TESTED
from virtgauge.suites.answers import documented, running
from virtgauge.suites.isolation.benchmarks import KINDS
from virtgauge.suites.isolation.kernel_work import LoadResult
from virtgauge.suites.isolation.policies import Demand, Given, Placement, entitled
from virtgauge.suites.isolation.testbed import IsolationTestbed

LOOK_S = 2.0
_WARMUP_S = 0.2
_OFF = 0.1
_OFF_S = 2 * QUOTA_PERIOD_US / 1e6  # Of a limit by periods, at both ends of a look
_BUSY = KINDS["integer"]  # As the loop is: it would use all that there is


@dataclasses.dataclass(frozen=True)
class Look:
    """What a guest received by its busy loop, in whole CPUs."""

    guest: str  # ``tested`` or ``loading``
    beside: str  # ``alone``, ``beside a busy neighbour`` or, of that neighbour, ``as the busy neighbour``
    received_cpus: float
    entitled_cpus: float  # by the policy
    plain_cpus: float  # that it would be entitled to without the policy
    stolen_cpus: float | None  # that its own kernel counted as stolen; None where it counts none
    alone_cpus: float = 0.0  # what it may have received above that before and after the other guest was busy

    @property
    def in_force(self) -> bool:
        """Whether it received what it is entitled to, within a tenth and two periods of a quota."""
        off = self.entitled_cpus * (_OFF + _OFF_S / LOOK_S)
        return -off <= self.received_cpus - self.entitled_cpus <= off + self.alone_cpus

    @property
    def tells(self) -> bool:
        """Whether the policy makes a difference that can be seen."""
        off = 2 * self.entitled_cpus * (_OFF + _OFF_S / LOOK_S)
        return abs(self.entitled_cpus - self.plain_cpus) > off + self.alone_cpus

    def words(self) -> str:
        stolen = "" if self.stolen_cpus is None else f", {self.stolen_cpus:.2f} stolen by its own account"
        return f"{self.received_cpus:.2f} CPUs by a busy loop{stolen}; entitled to {self.entitled_cpus:.2f}"


async def look(testbed: IsolationTestbed, policies: Given, on: str) -> tuple[Look, ...]:
    """What the guest with the policy receives, alone and beside the other, and what that one receives then.

    Without a policy it is the tested guest that is looked at.
    Raises AgentError, ChannelClosedError, ProtocolError: one of them cannot be asked.
    """
    where, threads = testbed.spec.where, testbed.spec.where.capacity
    both = [(TESTED, testbed.tested, policies.tested), (LOADING, testbed.loading, policies.loading)]
    (name, guest, own), (neighbours_name, other, others) = both if on != LOADING else reversed(both)
    busy = {"kernel": "share", "threads": threads, "seed": 1}
    span = {"warmup_ns": _WARMUP_S * 1e9, "duration_ns": LOOK_S * 1e9, "slice_ns": LOOK_S * 1e9}
    demand, idle = Demand.of(_BUSY, threads, 100, None), Demand.of(None, threads, 100, 0.0)

    def entitling(mine: Policy, theirs: Policy, neighbour: Demand) -> tuple[float, float]:
        due, plain = (entitled(where, (a, demand), (b, neighbour)) for a, b in ((mine, theirs), (Policy(), Policy())))
        assert due is not None and plain is not None  # both demands are known
        return due, plain

    async def looked(beside: str, neighbour: Demand) -> tuple[Look, int]:
        params = busy | {name: round(ns) for name, ns in span.items()}
        reply = await guest.channel.request("probe", name="kernel", params=params, load=None)
        with documented("the result of the probe kernel"):
            steal_ns = reply.value["usage"]["steal_ns"]
            elapsed_ns = int(reply.value["elapsed_ns"])
            received = int(reply.value["units"]) / elapsed_ns
            stolen = None if steal_ns is None else int(steal_ns) / int(reply.value["usage"]["elapsed_ns"])
        return Look(name, beside, received, *entitling(own, others, neighbour), stolen), elapsed_ns

    alone, _ = await looked("alone", idle)
    async with running(other.channel, "kernel", busy | {"intensity_percent": 100}, "the busy neighbour") as load:
        together, busy_ns = await looked("beside a busy neighbour", demand)
    if (work := LoadResult.of("share", load)).error is not None or not work.elapsed_ns:
        raise AgentError("failed", f"the busy neighbour: {work.error or 'it did not run'}")
    due, plain = entitling(others, own, demand)
    # It was busy before it was asked of the other, and after its answer; of the warm-up both are.
    apart = max(0.0, 1 - (busy_ns + _WARMUP_S * 1e9) / work.elapsed_ns)
    more = apart * max(0.0, entitling(others, own, idle)[0] - due)
    received = (work.units or 0) / work.elapsed_ns
    return alone, together, Look(neighbours_name, "as the busy neighbour", received, due, plain, None, more)


def applied(policies: Given, looks: tuple[Look, ...], on: str) -> tuple[Applied, Applied]:
    """What is known of both guests' policies, for the record."""
    seen = {name: {one.beside: one.words() for one in looks if one.guest == name} for name in (TESTED, LOADING)}
    same = "it entitles to about what no policy does, so that it cannot be seen from inside"
    unseen = () if any(one.tells for one in looks) else tuple(f"{knob}: {same}" for knob in policies.asked)
    tested, loading = (
        Applied(policy, seen[name], unseen if name == on else (), ("set by hand, seen from inside",))
        for name, policy in ((TESTED, policies.tested), (LOADING, policies.loading))
    )
    return tested, loading


def not_in_force(looks: tuple[Look, ...], where: Placement) -> str | None:
    """Why the policy is not in force, in words; None where it is."""
    wrong = [f"{one.beside}, the {one.guest} guest received {one.words()}" for one in looks if not one.in_force]
    if not wrong:
        return None
    processors = "one processor" if where.capacity == 1 else f"{where.capacity} processors"
    shared = ", which both share" if where.shared else ""
    return f"{'; '.join(wrong)}. Set it at the hypervisor, and give each machine {processors}{shared}"


def to_do(platform: Platform, policies: Given, on: str, where: Placement) -> tuple[str, ...]:
    """What a person has to set before such a platform is measured."""
    machine, policy = (platform, policies.tested) if on == TESTED else (platform.peer or platform, policies.loading)
    told: dict[str, Any] = {name: getattr(policy, name) for name in policies.asked}
    listed = ", ".join(f"{name} = {value:g}" for name, value in told.items())
    cpus = tuple(sorted({*where.tested, *where.loading}))
    words = machine.policy_text(Policy(**told, available=tuple(range(max(cpus) + 1))), where.capacity)
    lines = "".join(f"\n  {line}" for line in words)
    return (f"set by hand on the {on} machine, {machine.label}, before its trials begin: {listed}{lines}",)
