"""The guests of one simulated machine: what each was told, what it does, and what it has been given so far.

Only a probe lets time pass, as much as it was asked to measure and none of it real; accounts and loads go on with it.
"""

from __future__ import annotations

import dataclasses
import itertools
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from virtgauge.agent.channel import AgentError
from virtgauge.host.cgroup_policy import Throttling
from virtgauge.host.policy import Applied, Policy, PolicyError
from virtgauge.platforms.simulated.answers import distribution_message
from virtgauge.platforms.simulated.isolation import DISK, SHARE, WAKE, Given, IsolationTruth, Knob, Side, Work, division
from virtgauge.platforms.simulated.truth import lognormal

_PERIOD_NS = 100_000_000  # Of a quota, as in Linux
_NOTHING = 1e-9  # CPUs; what is less is rounding


@dataclasses.dataclass
class Load:
    """A load under way."""

    work: Work
    breaks: str | None  # kind of the :class:`~virtgauge.platforms.simulated.agent.Fault` that befalls it; None for none
    guest_ends: Callable[[], None]  # ends its guest
    elapsed_ns: float = 0.0
    cpu_ns: float = 0.0
    units: float = 0.0
    over: bool = False  # it works no longer


class Tenant:
    """One guest of a machine, on these cores where no policy says others."""

    def __init__(self, machine: Machine, cores: frozenset[int]) -> None:
        self.machine, self.cores = machine, cores
        # None while it has neither policy nor work, so that nothing is accounted for
        self.cpu_ns: float | None = None
        self.kills: int | None = None  # processes that were killed for want of memory
        self.load: Load | None = None
        self._policy = Policy()
        self._quota_ns = self._throttled_quota_ns = self._throttled_ns = 0.0

    def apply(self, policy: Policy) -> Applied:
        """Be told what it may use.  Raises PolicyError: the simulation was told to refuse it."""
        truth = self.machine.truth
        knobs = {"cpu_limit": truth.cpu_limit, "reservation": truth.reservation, "weight": truth.weight}
        knobs |= {"cores": Knob.HONOURED, "disk": truth.disk_limit}
        asked = {field: knobs[field] for field in policy.given()}
        for field, knob in asked.items():
            if knob is Knob.REFUSED:
                raise PolicyError(f"{field} = {getattr(policy, field)}: the simulation was told to refuse it")
        self._policy = policy
        self.account()
        absent = [field for field, knob in asked.items() if knob is Knob.ABSENT]
        in_force = {field: str(getattr(policy, field)) for field in asked if field not in absent}
        return Applied(policy, in_force, tuple(f"{field}: the simulation has no such setting" for field in absent))

    def account(self) -> None:
        """Begin its accounts, where they have not begun."""
        self.cpu_ns, self.kills = self.cpu_ns or 0.0, self.kills or 0

    def kill(self) -> None:
        """Lose a process for want of memory."""
        self.kills = (self.kills or 0) + 1

    def throttling(self) -> Throttling | None:
        """How often its limit has stopped it; None where it has none."""
        if self._policy.cpu_limit is None or self.machine.truth.cpu_limit is Knob.ABSENT:
            return None
        periods, throttled = (round(time / _PERIOD_NS) for time in (self._quota_ns, self._throttled_quota_ns))
        return Throttling(periods, throttled, round(self._throttled_ns))

    def start(self, load: Load) -> None:
        """Begin a load.  Raises AgentError: ``unsupported``: there is one already, and no two at a time are known."""
        if self.load is not None:
            raise AgentError("unsupported", "a simulated guest has one load at a time")
        self.account()
        self.load = load

    def stop(self) -> Load:
        """End the load.  Raises AgentError: ``not-found``: there is none."""
        if self.load is None:
            raise AgentError("not-found", "there is no such load")
        load, self.load = self.load, None
        return load

    def side(self, work: Work | None) -> Side:
        """What decides about its part of the machine."""
        cores = self._policy.cores
        return Side(self._policy, work, self.cores if cores is None else frozenset(cores))

    def charge(self, given: Given, ns: int) -> None:
        """Account for a stretch of time."""
        self.cpu_ns = (self.cpu_ns or 0.0) + given.cpus * ns
        self._quota_ns += ns if given.demand > 0 else 0
        if given.withheld > _NOTHING:
            self._throttled_quota_ns += ns
            self._throttled_ns += given.withheld * ns


@dataclasses.dataclass(frozen=True)
class Slice:
    """One slice of a trial."""

    units: float  # of work, of all threads
    ns: int
    given: Given


class Machine:
    """A machine of that truth, for the two guests of one testbed, which hold it: it ends with the last of them."""

    def __init__(self, truth: IsolationTruth, seed: int) -> None:
        self.truth = truth
        self.random = np.random.default_rng(seed)
        self.factor = lognormal(truth.testbed_sigma, self.random)  # of this testbed, on all rates
        self._tenants: weakref.WeakSet[Tenant] = weakref.WeakSet()

    def tenant(self, cores: Collection[int]) -> Tenant:
        """A further guest.  Raises ValueError: there are two already."""
        if len(self._tenants) == 2:
            raise ValueError("a simulated machine has no more than two guests")
        tenant = Tenant(self, frozenset(cores))
        self._tenants.add(tenant)
        return tenant

    def trial(self, tenant: Tenant, work: Work, *, warmup_ns: int, duration_ns: int, slice_ns: int) -> list[Slice]:
        """Have a guest work, and its neighbour go on with its load, for so long; the warm-up is in no slice."""
        tenant.account()
        other = next((one for one in self._tenants if one is not tenant), None) or Tenant(self, tenant.cores)
        scheduled = lognormal(self.truth.share_sigma, self.random)
        if warmup_ns:
            self._slice(tenant, work, other, warmup_ns, 0.0, scheduled)
        slices = []
        for start in range(0, duration_ns, slice_ns):
            ns = min(slice_ns, duration_ns - start)
            middle = (start + ns / 2) / duration_ns
            if other.load is not None and middle > 0.5:
                _break(other, other.load)
            slices.append(self._slice(tenant, work, other, ns, middle, scheduled))
        return slices

    def _slice(self, tenant: Tenant, work: Work, other: Tenant, ns: int, middle: float, scheduled: float) -> Slice:
        truth, load = self.truth, other.load
        beside = None if load is None or load.over or load.breaks == "loader-idle" else load.work
        given, neighbour = division(truth, tenant.side(work), other.side(beside), scheduled)
        tenant.charge(given, ns)
        other.charge(neighbour, ns)
        if load is not None and not load.over:
            load.elapsed_ns += ns
            load.cpu_ns += neighbour.cpus * ns
            load.units += neighbour.rate * self.factor * ns / 1e9
        units = given.rate * ns / 1e9
        if work.kernel not in (WAKE, SHARE):  # which wait for a timer, or count time and not work
            drift = 1 + (truth.frequency_drift - 1) * middle
            noise = np.exp(truth.slice_sigma * self.random.standard_normal() - truth.slice_sigma**2 / 2)
            units *= self.factor * drift * float(noise)
        return Slice(units, ns, given)


def _break(tenant: Tenant, load: Load) -> None:
    """What its fault does to a load half-way through a trial, and to its guest."""
    if load.over:
        return
    load.over = load.breaks in ("loader-dies", "loader-lost", "killed")
    if load.breaks in ("out-of-memory", "killed"):
        tenant.kill()
    if load.breaks == "out-of-memory":
        load.breaks = None  # its other processes go on
    if load.breaks in ("loader-lost", "killed"):
        load.guest_ends()


# The simulated agent's answers to the probe ``kernel`` and to the load of that name, as docs/protocol.md has them.

_DRAWN = 2000  # Latencies of a trial; each stands for as many as it takes to make up all


def kernel_trial(tenant: Tenant, params: Mapping[str, Any]) -> dict[str, Any]:
    """One trial, without the clocks.  Raises AgentError: ``bad-request``."""
    spans = ("warmup_ns", "duration_ns", "slice_ns")
    work, machine = Work.from_params(params, spans), tenant.machine
    warmup_ns, duration_ns, slice_ns = (int(params[name]) for name in spans)
    slices = machine.trial(tenant, work, warmup_ns=warmup_ns, duration_ns=duration_ns, slice_ns=slice_ns)
    cpus = sum(one.given.cpus * one.ns for one in slices) / duration_ns
    wanted = sum(one.given.demand * one.ns for one in slices) / duration_ns
    seen = wanted if machine.truth.guest_sees == "itself" else cpus
    stolen_ns = round((wanted - cpus) * duration_ns) if machine.truth.guest_sees == "steal" else 0
    units = _counted([one.units for one in slices])
    hertz = machine.truth.frequency_hz
    return {
        "unit": work.unit,
        "units": sum(units),
        "elapsed_ns": duration_ns,
        "cpu_ns": round(seen * duration_ns),
        "threads": _threads(work, units, [one.ns for one in slices], seen),
        "direct": machine.truth.disk_direct if work.kernel == DISK else None,
        "latency": _latency(machine, work, slices, sum(units)),
        "frequency_before_hz": hertz * slices[0].given.frequency,
        "frequency_after_hz": hertz * slices[-1].given.frequency * machine.truth.frequency_drift,
        "usage": {
            "cpu_ns": 0,
            "steal_ns": None if machine.truth.guest_sees == "nothing" else stolen_ns,
            "elapsed_ns": warmup_ns + duration_ns,
        },
        "load": None,
    }


def load_result(load: Load) -> dict[str, Any]:
    """What ``load_stop`` answers."""
    return {
        "name": "kernel",
        "unit": load.work.unit,
        "threads": load.work.threads,
        "intensity_percent": round(load.work.intensity * 100),
        "elapsed_ns": round(load.elapsed_ns),
        "cpu_ns": round(load.cpu_ns),
        "units": round(load.units),
        "error": "the simulation was told to die" if load.breaks == "loader-dies" else None,
        "achieved": {"elapsed_ns": round(load.elapsed_ns), "cpu_busy_share": None},
    }


def _counted(units: Sequence[float]) -> list[int]:
    """Whole units by slice; what a slice leaves over is counted in the next."""
    whole = [round(total) for total in itertools.accumulate(units)]
    return [after - before for before, after in itertools.pairwise([0, *whole])]


def _threads(work: Work, units: Sequence[int], slice_ns: Sequence[int], cpus: float) -> list[dict[str, Any]]:
    """The threads share evenly; what cannot be is the first ones'."""
    duration_ns = sum(slice_ns)
    time = {"elapsed_ns": duration_ns, "cpu_ns": round(cpus * duration_ns / work.threads), "slice_ns": list(slice_ns)}
    shares = [
        [count // work.threads + (number < count % work.threads) for count in units] for number in range(work.threads)
    ]
    return [{"units": sum(own), "slice_units": own, **time} for own in shares]


def _latency(machine: Machine, work: Work, slices: Sequence[Slice], units: int) -> dict[str, Any] | None:
    """Of a disk's operations, exponential; of wake-ups, lognormal about what the neighbour makes of the median."""
    truth, random = machine.truth, machine.random
    count = units // work.block_bytes if work.kernel == DISK else units
    if work.kernel not in (DISK, WAKE) or count == 0:
        return None
    values: npt.NDArray[np.float64]
    if work.kernel == DISK:
        duration_ns = sum(one.ns for one in slices)
        values = random.exponential(work.threads * duration_ns / count, min(_DRAWN, count))
    else:
        crowd = sum(one.given.crowd * one.ns for one in slices) / sum(one.ns for one in slices)
        spread = np.exp(truth.wake_sigma * random.standard_normal(min(_DRAWN, count)))
        values = truth.wake_us * 1e3 * (1 + truth.wake_inflation * crowd) / machine.factor * spread
    return distribution_message(np.maximum(np.rint(values * 1000), 1).astype(np.int64), total=count)
