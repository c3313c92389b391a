"""What two simulated guests get of the machine that they share: of its processors, of its disk, and in work.

First the processors are divided, by limits, reservations and weights as far as they are honoured; then what a second of
CPU time is worth follows from the clock frequency and from what the neighbour does meanwhile.  The formulas are those
of this simulation alone: what judges real guests is computed elsewhere, and is compared with these.  For two the shares
by limit, floor and weight have a closed form, so that nothing here rests on the water-filling by which
:mod:`virtgauge.analysis.resources` judges.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from virtgauge.agent.channel import AgentError
from virtgauge.host.policy import PLAIN_WEIGHT, Policy
from virtgauge.plan import Section
from virtgauge.platforms.simulated.truth import NotNegative, Positive, Share, Sigma

# Requests for the agent's kernels as docs/protocol.md has them: what is asked for, checked as the agent checks it.

MEMORY, CACHE, DISK, WAKE, SHARE = "memory", "cache", "disk", "wake", "share"


class _Kernel(NamedTuple):
    unit: str  # in which its work is counted
    rate: float = 0.0  # units a second of one CPU, of a disk bytes; none where a timer's or time itself is counted
    needs: tuple[str, ...] = ()  # besides the number of its threads and a seed


_KERNELS = {
    "integer": _Kernel("dhrystones", 2e7),
    "floating": _Kernel("whetstone cycles", 400.0),
    MEMORY: _Kernel("bytes", 1e10, ("access", "element", "block_bytes")),
    "latency": _Kernel("loads", 1e7, ("block_bytes",)),
    DISK: _Kernel("bytes", 2e8, ("order", "operation", "folder", "block_bytes", "file_bytes")),
    WAKE: _Kernel("wake-ups", needs=("period_ns",)),
    CACHE: _Kernel("lines", 1e8, ("block_bytes",)),
    "fork": _Kernel("processes", 2000.0),
    SHARE: _Kernel("received ns"),
}
_PARTS = ("access", "element", "order", "operation")  # Of what they need, that which their names are made of
_TEXTS = (*_PARTS, "folder")


def work_name(params: Mapping[str, Any]) -> str:
    """The kernel that parameters ask for, and what of it is done: ``memory-read-simd``, ``disk-random-write``."""
    kernel = _KERNELS.get(params.get("kernel", ""))
    parts = [part for part in _PARTS if kernel is not None and part in kernel.needs]
    return "-".join(str(params.get(name)) for name in ("kernel", *parts))


@dataclasses.dataclass(frozen=True)
class Work:
    """What the threads of a kernel do."""

    kernel: str
    name: str  # as :func:`work_name` has it
    threads: int
    operation: str  # of a disk; else empty
    block_bytes: int  # of one operation of a disk, or of memory; 0 for others
    period_ns: int  # of wake-ups; 0 for others
    intensity: float = 1.0  # part of the time in which it works

    @property
    def unit(self) -> str:
        return _KERNELS[self.kernel].unit

    @classmethod
    def from_params(cls, params: Mapping[str, Any], further: tuple[str, ...]) -> Work:
        """Read the parameters of a probe or a load, which requires further whole numbers.
        Raises AgentError: ``bad-request``, as the agent says it.
        """
        kernel = params.get("kernel")
        if kernel not in _KERNELS:
            raise AgentError("bad-request", f"kernel is {kernel!r}; it is one of {', '.join(_KERNELS)}")
        required = ("threads", "seed", *further, *_KERNELS[kernel].needs)
        for name in required:
            value = params.get(name)
            if not isinstance(value, str) if name in _TEXTS else not (isinstance(value, int) and value >= 0):
                raise AgentError("bad-request", f"{name} is {value!r}, which kernel {kernel} cannot use")
        return cls(
            kernel=kernel,
            name=work_name(params),
            threads=params["threads"],
            operation=params["operation"] if kernel == DISK else "",
            block_bytes=params["block_bytes"] if "block_bytes" in required else 0,
            period_ns=params["period_ns"] if kernel == WAKE else 0,
            intensity=params["intensity_percent"] / 100 if "intensity_percent" in required else 1.0,
        )


class Knob(enum.StrEnum):
    """What becomes of a setting."""

    HONOURED = "honoured"
    IGNORED = "ignored"  # read back as it was set, and without effect: only measuring finds that out
    ABSENT = "absent"  # said to have no effect
    REFUSED = "refused"


class IsolationTruth(Section):
    """The machine that two guests share. Its CPUs are those of the real one, because a policy can name no others.

    Rates are of one CPU at its full frequency, without a neighbour.
    """

    rates: dict[str, Positive] = Field(default_factory=dict)
    """Units of a kernel per second of CPU time, by benchmark (``memory-read-simd``) or kernel (``memory``); of
    ``disk``, bytes per second of the whole disk."""
    testbed_sigma: Sigma = 0.0
    """Every testbed draws a factor on all rates (of ``wake``: on its lateness), lognormal with median 1 and this
    sigma."""
    slice_sigma: Sigma = 0.0
    """Every slice of a trial draws a factor with mean 1 and this sigma (except ``wake``)."""
    share_sigma: Sigma = 0.0
    """A guest's shortfall of CPU time differs from trial to trial by such a factor with median 1."""

    cpu_limit: Knob = Knob.HONOURED
    """Whether a CPU limit holds, is ignored, does not exist, or is refused."""
    reservation: Knob = Knob.HONOURED
    """The same of a reservation."""
    weight: Knob = Knob.HONOURED
    """The same of a weight."""
    disk_limit: Knob = Knob.HONOURED
    """The same of a disk limit."""
    limit_overshoot: Positive = 1.0
    """What a limit lets through, as a factor on its setting."""

    memory_contention: NotNegative = 0.0
    """How much longer ``memory`` and ``latency`` take for each CPU that the neighbour spends on memory."""
    cache_contention: NotNegative = 0.0
    """How much longer ``integer``, ``floating`` and ``latency`` take for each CPU of the neighbour's ``cache``."""

    frequency_hz: Positive = 3e9
    """Full clock frequency of the CPUs."""
    idle_frequency: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the full frequency at which little-used CPUs run (Rzecki et al. 2014, figure 3)."""
    low_use: Share = 0.85
    """CPU use up to which ``idle_frequency`` holds; above it the frequency rises evenly."""
    full_use: Share = 0.95
    """CPU use from which the full frequency holds."""
    frequency_drift: Positive = 1.0
    """Frequency at the end of a trial ÷ at its beginning."""

    cores_apart: bool = False
    """Each guest has cores of its own, whatever it was asked for."""
    disk_shared: bool = True
    """Both guests share one disk; ``false``: each has its own."""
    disk_cpus: Annotated[float, Field(gt=0, le=1)] = 0.1
    """CPU time per second that keeps a disk fully busy."""
    disk_direct: bool = True
    """The guest's page cache is bypassed."""

    wake_us: Positive = 50.0
    """Median lateness of a wake-up."""
    wake_sigma: Annotated[float, Field(ge=0, le=5)] = 0.2
    """Standard deviation of its logarithm."""
    wake_inflation: NotNegative = 0.0
    """The lateness grows by this share for each CPU that the neighbour uses on the same cores."""
    wake_cpu_us: Positive = 5.0
    """CPU time of a wake-up."""

    guest_sees: Literal["steal", "nothing", "itself"] = "steal"
    """What the guest's kernel reports of time in which the guest was stopped: steal; nothing, as in a container; or CPU
    time of its own, as in a virtual machine that is not told."""

    def _problems(self) -> Iterator[str]:
        if self.low_use >= self.full_use:
            yield "low_use is to be below full_use"

    def rate(self, work: Work) -> float:
        """Units a second of one CPU, of the whole disk for a disk's."""
        return self.rates.get(work.name, self.rates.get(work.kernel, _KERNELS[work.kernel].rate))

    def demand(self, work: Work, disk_time: float) -> float:
        """CPUs that it would use if each of its threads had one, and it had so much of its disk's time."""
        if work.kernel == DISK:
            return self.disk_cpus * disk_time
        each = min(self.wake_cpu_us * 1e3 / work.period_ns, 1.0) if work.kernel == WAKE else 1.0
        return work.threads * each * work.intensity

    def frequency(self, use: float) -> float:
        """Part of the full frequency at which CPUs run that are used for such a part of their time."""
        rise = (use - self.low_use) / (self.full_use - self.low_use)
        return self.idle_frequency + (1 - self.idle_frequency) * min(max(rise, 0.0), 1.0)

    def worth(self, work: Work, use: float, neighbour: Work | None, neighbour_cpus: float) -> float:
        """What a second of CPU time brings, of what it brings at the full frequency without a neighbour."""
        slower = 1.0
        if neighbour is not None and neighbour.kernel == MEMORY and work.kernel in (MEMORY, "latency"):
            slower += self.memory_contention * neighbour_cpus
        if neighbour is not None and neighbour.kernel == CACHE and work.kernel in ("integer", "floating", "latency"):
            slower += self.cache_contention * neighbour_cpus
        return self.frequency(use) / slower


@dataclasses.dataclass(frozen=True)
class Side:
    """One of the two guests."""

    policy: Policy
    work: Work | None
    cores: frozenset[int]


@dataclasses.dataclass(frozen=True)
class Given:
    """What a guest gets."""

    demand: float  # CPUs that it would use alone
    cpus: float
    withheld: float  # CPUs that its own limit keeps from it
    crowd: float  # CPUs that the other one uses of the same cores
    frequency: float  # at which its cores run, as a part of the full one
    rate: float  # units a second of its work


@dataclasses.dataclass(frozen=True)
class Want:
    """What a guest would use of something that is shared, and what it may; all in the same unit."""

    demand: float  # if it were alone
    limit: float = float("inf")  # at most
    floor: float = 0.0  # at least, as far as it wants it
    weight: float = 1.0  # beside the other's

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
    """What both get; the first is scheduled for so much of what is due to it, where that is less than it wants."""
    shared = not truth.cores_apart and not first.cores.isdisjoint(second.cores)
    disks = _disk_want(truth, first), _disk_want(truth, second)
    disk_times = divided(*disks, 1.0) if truth.disk_shared else (disks[0].most, disks[1].most)
    wants = (_processor_want(truth, first, disk_times[0]), _processor_want(truth, second, disk_times[1]))
    capacities = [len(first.cores | second.cores)] * 2 if shared else [len(first.cores), len(second.cores)]

    def cpus_of(ours: Want, theirs: Want) -> tuple[float, float]:
        if shared:
            return divided(ours, theirs, capacities[0])
        return min(ours.most, capacities[0]), min(theirs.most, capacities[1])

    due = cpus_of(*wants)
    free = [dataclasses.replace(want, limit=float("inf")) for want in wants]
    unlimited = cpus_of(free[0], wants[1])[0], cpus_of(wants[0], free[1])[1]
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
    if work.kernel == DISK:
        return truth.rate(work) * disk_time * cpus / demand
    if work.kernel == WAKE:
        return work.threads * 1e9 / work.period_ns * work.intensity * cpus / demand
    return 1e9 * cpus if work.kernel == SHARE else truth.rate(work) * cpus * worth


def _processor_want(truth: IsolationTruth, side: Side, disk_time: float) -> Want:
    if side.work is None:
        return Want(0.0)
    policy = side.policy
    limit, floor, weight = policy.cpu_limit, policy.reservation, policy.weight
    return Want(
        demand=min(truth.demand(side.work, disk_time), len(side.cores) * side.work.intensity),
        limit=limit * truth.limit_overshoot if limit is not None and truth.cpu_limit is Knob.HONOURED else float("inf"),
        floor=floor if floor is not None and truth.reservation is Knob.HONOURED else 0.0,
        weight=weight if weight is not None and truth.weight is Knob.HONOURED else PLAIN_WEIGHT,
    )


def _disk_want(truth: IsolationTruth, side: Side) -> Want:
    work, bounds = side.work, side.policy.disk
    if work is None or work.kernel != DISK:
        return Want(0.0)
    if truth.disk_limit is not Knob.HONOURED:
        return Want(work.intensity)
    reads = work.operation == "read"
    bytes_a_second = bounds.read_bps if reads else bounds.write_bps
    operations = bounds.read_iops if reads else bounds.write_iops
    limits = [bytes_a_second, None if operations is None else operations * work.block_bytes]
    limit = min((float(one) for one in limits if one is not None), default=float("inf"))
    return Want(work.intensity, limit=limit / truth.rate(work))
