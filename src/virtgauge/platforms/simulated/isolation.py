"""The known truth of a simulated machine that two guests share: what each gets of it, and what it does with that.

First the processors are divided, by limits, reservations and weights as far as they are honoured; then what a second of
CPU time is worth follows from the clock frequency and from what the neighbour does meanwhile.  The formulas are those
of this simulation alone: what judges real guests is computed elsewhere, and is compared with these.
"""

from __future__ import annotations

import enum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from virtgauge.platforms.simulated import kernels
from virtgauge.platforms.simulated.kernels import Work

Share = Annotated[float, Field(ge=0, le=1)]
Sigma = Annotated[float, Field(ge=0, le=2)]
Positive = Annotated[float, Field(gt=0)]

_RATES = {
    "integer": 2e7,
    "floating": 400.0,
    "memory": 1e10,
    "latency": 1e7,
    "disk": 2e8,
    "cache": 1e8,
    "fork": 2000.0,
}
_USES_MEMORY = ("memory", "latency")
_USES_CACHE = ("integer", "floating", "latency")


class Knob(enum.StrEnum):
    """What becomes of a setting."""

    HONOURED = "honoured"
    IGNORED = "ignored"  # read back as it was set, and without effect: only measuring finds that out
    ABSENT = "absent"  # said to have no effect
    REFUSED = "refused"


class IsolationTruth(BaseModel):
    """What the machine is; its CPUs are those of the real one, because a policy can name no others.

    Rates are of one CPU at its full frequency, without a neighbour.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    rates: dict[str, Positive] = Field(default_factory=dict)
    """Units of a kernel in a second of CPU time, by benchmark (``memory-read-simd``) or kernel (``memory``); of
    ``disk``, bytes a second of the whole disk."""
    bench_sigma: Sigma = 0.0
    """Every bench has a factor of its own on all rates (of waking up: on its lateness), lognormal with median 1."""
    slice_sigma: Sigma = 0.0
    """… and every slice of a trial one with mean 1, but for waking up."""
    share_sigma: Sigma = 0.0
    """What a guest is given less than it wants differs from trial to trial by such a factor, with median 1."""

    cpu_limit: Knob = Knob.HONOURED
    reservation: Knob = Knob.HONOURED
    weight: Knob = Knob.HONOURED
    disk_limit: Knob = Knob.HONOURED
    limit_overshoot: Positive = 1.0
    """What a limit lets through, of what it says."""

    memory_contention: Annotated[float, Field(ge=0)] = 0.0
    """How much longer ``memory`` and ``latency`` take for each CPU with which the neighbour works on memory."""
    cache_contention: Annotated[float, Field(ge=0)] = 0.0
    """How much longer ``integer``, ``floating`` and ``latency`` take for each CPU of the neighbour's ``cache``."""

    frequency_hz: Positive = 3e9
    idle_frequency: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Part of the full frequency at which CPUs run while they are used little (Rzecki et al. 2014, figure 3) …"""
    low_use: Share = 0.85
    """… which is up to this part of their time; from there on it rises evenly …"""
    full_use: Share = 0.95
    """… until it is the full one."""
    frequency_drift: Positive = 1.0
    """Frequency at the end of a trial, of that at its beginning."""

    disk_shared: bool = True
    """Both guests' disks are one; else each has one of its own."""
    disk_cpus: Annotated[float, Field(gt=0, le=1)] = 0.1
    """CPU time a second that keeps a disk fully busy."""
    disk_direct: bool = True
    """The guest's page cache is left out."""

    wake_us: Positive = 50.0
    """Median lateness of a wake-up …"""
    wake_sigma: Annotated[float, Field(ge=0, le=5)] = 0.2
    wake_inflation: Annotated[float, Field(ge=0)] = 0.0
    """… which grows by this part of itself for each CPU that the neighbour uses of the same cores."""
    wake_cpu_us: Positive = 5.0
    """CPU time of one."""

    guest_sees: Literal["steal", "nothing", "itself"] = "steal"
    """What its own kernel tells a guest of the time in which it was stopped: that it was stolen; nothing, as in a
    container; or that it ran itself, as in a virtual machine that is not told."""

    @model_validator(mode="after")
    def _rises(self) -> IsolationTruth:
        if self.low_use >= self.full_use:
            raise ValueError("low_use is to be below full_use")
        return self

    def rate(self, work: Work) -> float:
        """Units a second of one CPU, of the whole disk for a disk's."""
        return self.rates.get(work.name, self.rates.get(work.kernel, _RATES[work.kernel]))

    def demand(self, work: Work, disk_time: float) -> float:
        """CPUs that it would use if each of its threads had one, and it had so much of its disk's time."""
        match work.kernel:
            case kernels.DISK:
                return self.disk_cpus * disk_time
            case kernels.WAKE:
                return work.threads * min(self.wake_cpu_us * 1e3 / work.period_ns, 1.0) * work.intensity
            case _:
                return work.threads * work.intensity

    def frequency(self, use: float) -> float:
        """Part of the full frequency at which CPUs run that are used for such a part of their time."""
        rise = (use - self.low_use) / (self.full_use - self.low_use)
        return self.idle_frequency + (1 - self.idle_frequency) * min(max(rise, 0.0), 1.0)

    def worth(self, work: Work, use: float, neighbour: Work | None, neighbour_cpus: float) -> float:
        """What a second of CPU time brings, of what it brings at the full frequency without a neighbour."""
        slower = 1.0
        if neighbour is not None and neighbour.kernel == kernels.MEMORY and work.kernel in _USES_MEMORY:
            slower += self.memory_contention * neighbour_cpus
        if neighbour is not None and neighbour.kernel == kernels.CACHE and work.kernel in _USES_CACHE:
            slower += self.cache_contention * neighbour_cpus
        return self.frequency(use) / slower

    def lateness_ns(self, neighbour_cpus: float) -> float:
        """Median lateness of a wake-up beside a neighbour that uses so many of the same CPUs."""
        return self.wake_us * 1e3 * (1 + self.wake_inflation * neighbour_cpus)
