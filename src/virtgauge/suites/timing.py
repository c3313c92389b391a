"""Timing: what reading a clock costs, and how late a sleep wakes (Kirova et al. 2019, sections 2.1, 2.3, 3.1, 3.2).

Timer cost is the time to read a clock once, sampled read by read.  Sleep lateness (the paper's miss time) is
the signed distance of a wake-up from its absolute target.  Both are measured idle, beside a CPU-bound load in the
guest, and beside one that is bound by I/O and network (:mod:`virtgauge.suites.file_load`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from virtgauge.suites.base import Cell, Measurement, Suite
from virtgauge.suites.file_load import FileLoadSettings, FileTestbed, set_up_file_testbed
from virtgauge.suites.testbed import Stage, Testbed
from virtgauge.suites.timing_trial import TimingTrial

Timer = Literal["rdtsc", "rdtscp", "hptime", "clock_gettime", "clock_gettime_syscall", "gettimeofday"]
Sleep = Literal["usleep", "nanosleep", "clock_nanosleep", "hptime", "highpertimer", "spin"]
Slack = Literal["default", "minimal"]
Policy = Literal["other", "fifo"]
IdleStates = Literal["default", "shallow"]
Load = Literal["idle", "cpu", "io"]

_MINIMAL_SLACK_NS = 1
_OWN_SLACK = {"hptime", "highpertimer", "spin"}
"""Sleeps that set the slack themselves, or need none: the plan's slacks are no factor of theirs."""
_SET_UP_S = 30.0  # for the load to start and stop and the answer to arrive, on a crowded guest
_READ_NS, _WAKE_NS, _OVERHEAD_S = 60, (60_000, 5_000_000), 0.1
"""What a read takes, what a sleep takes beyond its target (idle; beside a load of the CPU), and a trial beside both."""


class TimingSettings(BaseModel):
    """One design: timers × loads, and sleeps × slacks × policies × idle states × targets × loads."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    timers: tuple[Timer, ...] = ("rdtscp", "clock_gettime")
    """Clocks that are read; see [timing.md](timing.md)."""
    reads: Annotated[int, Field(ge=1000, le=10**10)] = 1_000_000
    """Reads of the clock in one trial."""
    sleeps: tuple[Sleep, ...] = ("usleep", "clock_nanosleep")
    """Ways to sleep; see [timing.md](timing.md)."""
    slacks: Annotated[tuple[Slack, ...], Field(min_length=1)] = ("default", "minimal")
    """Timer slack of the sleeping thread: Linux's default of 50 µs, or the minimum of 1 ns."""
    policies: Annotated[tuple[Policy, ...], Field(min_length=1)] = ("other",)
    """Scheduling policy of the sleeping thread."""
    idle_states: Annotated[tuple[IdleStates, ...], Field(min_length=1)] = ("default",)
    """``shallow``: the guest's kernel enters no idle state that takes time to leave."""
    targets_us: Annotated[tuple[Annotated[int, Field(ge=1, le=10_000_000)], ...], Field(min_length=1)] = (100,)
    """Intended lengths of a sleep."""
    sleep_samples: Annotated[int, Field(ge=10, le=10**8)] = 1000
    """Sleeps in one trial."""
    loads: Annotated[tuple[Load, ...], Field(min_length=1)] = ("idle", "cpu")
    """What runs beside the measurement: nothing, square roots, or a file service in the guest that a peer uses."""
    cpu_threads: Annotated[int, Field(ge=1, le=4096)] = 100
    """Threads of square roots in the load ``cpu`` (100 in the paper)."""
    io: FileLoadSettings = FileLoadSettings()
    """The load ``io``: what the peer does to the files that the guest serves."""
    max_seconds: Annotated[float, Field(ge=0.1, le=86_400)] = 20.0
    """A trial that takes longer ends with the samples it has and is flagged ``short``."""
    reservoir: Annotated[int, Field(ge=0, le=1_000_000)] = 2000
    """Raw values kept of each trial."""


class TimingSuite(Suite):
    """See the module."""

    name: ClassVar[str] = "timing"
    Settings: ClassVar[type[BaseModel]] = TimingSettings

    def __init__(self, settings: TimingSettings) -> None:
        self._settings = settings

    @classmethod
    def create(cls, settings: Mapping[str, Any]) -> TimingSuite:
        return cls(TimingSettings.model_validate(settings))

    def cells(self) -> list[Cell]:
        return [*self._timer_cells(), *self._sleep_cells()]

    def needs(self) -> tuple[str, ...]:
        return ("ganesha",) if "io" in self._settings.loads else ()

    def _timer_cells(self) -> Iterator[Cell]:
        for function, load in itertools.product(self._settings.timers, self._settings.loads):
            params = {"function": function, "samples": self._settings.reads}
            yield self._cell("timer_cost", {"function": function, "load": load}, params, self._settings.max_seconds)

    def _sleep_cells(self) -> Iterator[Cell]:
        s = self._settings
        for function, slack, policy, idle_states, target, load in itertools.product(
            s.sleeps, s.slacks, s.policies, s.idle_states, s.targets_us, s.loads
        ):
            if function in _OWN_SLACK and slack != s.slacks[0]:
                continue
            target_ns = target * 1000
            factors = {
                "function": function,
                "target_ns": str(target_ns),
                "slack": "own" if function in _OWN_SLACK else slack,
                "policy": policy,
                "load": load,
            }
            if idle_states != "default":  # which is what a cell without this factor has
                factors["idle_states"] = idle_states
            params = {
                "function": function,
                "samples": s.sleep_samples,
                "target_ns": target_ns,
                "slack_ns": _MINIMAL_SLACK_NS if factors["slack"] == "minimal" else 0,
                "policy": policy,
                "idle_states": idle_states,
            }
            yield self._cell("sleep_lateness", factors, params, s.max_seconds)

    def _cell(self, probe: str, factors: dict[str, str], params: dict[str, Any], max_seconds: float) -> Cell:
        common = {"max_ns": int(max_seconds * 1e9), "reservoir": self._settings.reservoir}
        each_ns = _READ_NS if probe == "timer_cost" else params["target_ns"] + _WAKE_NS[factors["load"] == "cpu"]
        return Cell(
            suite=self.name,
            probe=probe,
            factors=factors,
            params=params | common,
            timeout_s=2 * max_seconds + _SET_UP_S,
            testbed=f"io-{self._settings.io.file_mib}" if factors["load"] == "io" else "guest",
            expected_s=_OVERHEAD_S + min(params["samples"] * each_ns / 1e9, max_seconds),
        )

    async def set_up(self, testbed: str, stage: Stage) -> Testbed:
        """Cells with the I/O- and network-bound load have a peer and a network; the others a plain guest."""
        if testbed == "guest" or stage.platform.simulated:  # which invents the load too
            return await Testbed.of_one_guest(stage)
        return await set_up_file_testbed(stage, self._settings.io)

    def sliced(self, cell: Cell, testbed: Testbed, on_progress: Callable[[float], None]) -> TimingTrial | None:
        """Idle cells only: a load starts with each request, and while its threads settle, sleeps wake too early."""
        return TimingTrial(cell, testbed.guest.channel, None, on_progress) if cell.factors["load"] == "idle" else None

    async def measure(self, cell: Cell, testbed: Testbed, on_progress: Callable[[float], None]) -> Measurement:
        """Run the cell's probe beside its load, in one piece."""
        load, channel = cell.factors["load"], testbed.guest.channel
        if isinstance(testbed, FileTestbed):
            trial = TimingTrial(cell, channel, None, on_progress)
            client = await testbed.start(self._settings.io)
            try:
                trial.keep(await trial.measure(None))
            finally:
                trial.file_load = await testbed.stop(client)
            return trial.joined()
        beside = {"name": load, "params": {"threads": self._settings.cpu_threads}} if load != "idle" else None
        trial = TimingTrial(cell, channel, beside, on_progress)
        trial.keep(await trial.measure(None))
        return trial.joined()
