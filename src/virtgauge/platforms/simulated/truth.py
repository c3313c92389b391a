"""What is true of a simulated machine: clock, sleeps, and bursts of foreign load.

Bursts stretch what is measured, and the machine's counters show them.  Its time is its own: it passes only as measuring
or waiting needs it, so that minutes are simulated in milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from virtgauge.host.load import IN_TICKS, TICK_NS, CpuSnapshot, WatchedMachine
from virtgauge.plan import Section

Share = Annotated[float, Field(ge=0, le=1)]
Sigma = Annotated[float, Field(ge=0, le=2)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
_CPUS = 2
_GUEST_SHARE = 0.3  # Of its CPU that the guest uses
_SECOND_NS = 1_000_000_000


def lognormal(sigma: float, random: np.random.Generator) -> float:
    """A factor with median 1, as each testbed and each guest draws one."""
    return float(np.exp(sigma * random.standard_normal()))


class Bursts(Section):
    """Bursts that begin at random moments; between them nothing is taken."""

    taken: Annotated[float, Field(gt=0, lt=1)]
    """Share of the machine's CPU time in the long run."""
    duration_ms: Positive = 40.0
    """Of each burst."""
    share: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Of the machine's CPUs during a burst, and so the probability that the guest's is among them."""
    by: Literal["hypervisor", "neighbour"] = "hypervisor"
    """Counted as steal, or as CPU time of another process."""
    ticks: bool = False
    """``true``: busy time is counted in ticks, of what each CPU does at the moment; else exactly."""

    def _problems(self) -> Iterator[str]:
        if self.taken >= self.share:
            yield f"taken = {self.taken:g}: bursts of share = {self.share:g} cannot take so much; lower it"

    @property
    def mean_gap_ns(self) -> float:
        """From the end of a burst to the beginning of the next."""
        return self.duration_ms * 1e6 * (self.share / self.taken - 1)


class BurstMachine(WatchedMachine):
    """The machine of all guests of a simulated platform."""

    def __init__(self, bursts: Bursts, seed: int) -> None:
        self._bursts, self._random = bursts, np.random.default_rng(seed)
        self._now_ns = float(_SECOND_NS)
        self._taken_ns = self._guest_ns = 0.0
        self._busy_ticks = 0
        self._lasting_ns = bursts.duration_ms * 1e6
        self._begin_burst_after(self._now_ns)

    def snapshot(self) -> CpuSnapshot:
        """Steal in whole ticks, as a kernel tells it; busy time exact or in ticks."""
        stolen = self._bursts.by == "hypervisor"
        busy_ns = self.guest_ns + (0 if stolen else round(self._taken_ns))
        return CpuSnapshot(
            busy_ns=self._busy_ticks * TICK_NS if self._bursts.ticks else busy_ns,
            steal_ns=int(self._taken_ns // TICK_NS) * TICK_NS if stolen else 0,
            taken_at=round(self._now_ns),
            cpus=_CPUS,
            method=IN_TICKS if self._bursts.ticks else "simulated",
        )

    @property
    def guest_ns(self) -> int:
        return round(self._guest_ns)

    def controller_ns(self) -> int:
        return 0

    async def wait(self, seconds: float) -> None:
        self.pass_time(seconds * _SECOND_NS)

    def pass_time(self, elapsed_ns: float) -> None:
        """Let time pass in which nothing is measured."""
        until_ns = self._now_ns + elapsed_ns
        while self._pass_burst(until_ns) < until_ns:
            pass

    def work(self, lasting_ns: npt.NDArray[np.float64], within_ns: float) -> npt.NDArray[np.float64]:
        """Do pieces of work one after the other on the guest's CPU; how much bursts have lengthened each that was done.

        Each lasts so long by itself, and the piece that is under way after ``within_ns`` is the last one.
        """
        ends_ns = np.cumsum(lasting_ns)
        lengthened_ns = np.zeros(len(ends_ns))
        began_ns, stopped_ns = self._now_ns, 0.0
        while True:
            # Where the work stands when the next burst begins, or now, if it has begun.
            from_ns, until_ns = max(self._burst_ns, self._now_ns), self._burst_ns + self._lasting_ns
            last = min(int(np.searchsorted(ends_ns, within_ns - stopped_ns)), len(ends_ns) - 1)
            at = int(np.searchsorted(ends_ns, from_ns - began_ns - stopped_ns, side="right"))
            hit = self._hits
            if at > last or (not hit and began_ns + float(ends_ns[last]) + stopped_ns <= until_ns):
                break
            self._pass_burst(math.inf)
            if hit:
                lengthened_ns[at] += until_ns - from_ns
                stopped_ns += until_ns - from_ns
                if began_ns + within_ns <= until_ns:
                    last = at
                    break
        self.pass_time(began_ns + float(ends_ns[last]) + stopped_ns - self._now_ns)
        return lengthened_ns[: last + 1]

    def _pass_burst(self, until_ns: float) -> float:
        """Let time pass to the end of the next burst, but not beyond a moment; the time then."""
        end_ns = self._burst_ns + self._lasting_ns
        to_ns = min(end_ns, until_ns)
        if to_ns > self._now_ns:
            within_ns = max(self._now_ns, min(self._burst_ns, to_ns))  # from there on
            self._taken_ns += (to_ns - within_ns) * self._bursts.share * _CPUS
            self._guest_ns += _GUEST_SHARE * ((within_ns if self._hits else to_ns) - self._now_ns)
            if self._bursts.ticks:
                self._count_ticks(within_ns, to_ns)
            self._now_ns = to_ns
        if self._now_ns >= end_ns:
            self._begin_burst_after(end_ns)
        return self._now_ns

    def _count_ticks(self, within_ns: float, to_ns: float) -> None:
        """Of each CPU, when it finds a task there: the guest between bursts, its neighbour within them."""
        before, then, now = (int(at_ns // TICK_NS) for at_ns in (self._now_ns, within_ns, to_ns))
        of_guest = (then if self._hits else now) - before
        of_neighbour = (now - then) * _CPUS if self._bursts.by == "neighbour" else 0
        draw = self._random.binomial
        self._busy_ticks += int(draw(of_guest, _GUEST_SHARE) + draw(of_neighbour, self._bursts.share))

    def _begin_burst_after(self, end_ns: float) -> None:
        self._burst_ns = end_ns + self._random.exponential(self._bursts.mean_gap_ns)
        self._hits = bool(self._random.random() < self._bursts.share)


class Distribution(Section):
    """Lognormal values with a known median, plus rare stalls.

    Every guest draws a factor of its own, lognormal with median 1 and ``guest_sigma``: repetitions on fresh guests
    differ, as they do in reality, and the median over guests is still ``median_ns``.
    """

    median_ns: Positive
    """Median over guests."""
    sigma: Annotated[float, Field(ge=0, le=5)] = 0.1
    """Standard deviation of the values' logarithms, within a guest."""
    guest_sigma: Annotated[float, Field(ge=0, le=5)] = 0.02
    """Standard deviation of the logarithm of a guest's own factor."""
    stall_probability: Share = 0.0
    """Probability that a value has a stall added."""
    stall_ns: NotNegative = 1_000_000.0
    """Length of a stall."""

    def draw(self, n: int, factor: float, random: np.random.Generator) -> npt.NDArray[np.int64]:
        """``n`` values in picoseconds, for a guest with this factor."""
        values = self.median_ns * factor * np.exp(self.sigma * random.standard_normal(n))
        if self.stall_probability > 0:
            values += self.stall_ns * (random.random(n) < self.stall_probability)
        return np.maximum(np.rint(values * 1000), 1).astype(np.int64)
