"""Timing: what reading a clock costs, and how late a sleep wakes (Kirova et al. 2019, sections 2.1, 2.3, 3.1, 3.2).

Timer cost is the time to read a clock once, sampled read by read.  Sleep lateness (the paper's miss time) is
the signed distance of a wake-up from its absolute target.  Both are measured idle, beside a CPU-bound load in the
guest, and beside one that is bound by I/O and network (:mod:`virtgauge.suites.file_load`).
"""

from __future__ import annotations

import dataclasses
import itertools
import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from virtgauge.agent.channel import AgentError, Channel, Reply
from virtgauge.analysis.distribution import merge
from virtgauge.errors import UnavailableError
from virtgauge.host import tracing
from virtgauge.ledger.records import Flag, Histogram
from virtgauge.plan import Section
from virtgauge.specs.timing import watched_in
from virtgauge.suites import spikes
from virtgauge.suites.answers import added_up, decode_histogram, documented, elapsed_by_clock
from virtgauge.suites.base import Cell, Distinct, Levels, Measurement, Sliced, Suite
from virtgauge.suites.file_load import LONGEST_START_S, FileLoadSettings, FileTestbed, load_flags
from virtgauge.suites.testbed import Stage, Testbed

Timer = Literal["rdtsc", "rdtscp", "hptime", "clock_gettime", "clock_gettime_syscall", "gettimeofday"]
Sleep = Literal["usleep", "nanosleep", "clock_nanosleep", "hptime", "highpertimer", "spin"]
IdleStates = Literal["default", "shallow"]

_OWN_SLACK = {"hptime", "highpertimer", "spin"}
"""Sleeps that set the slack themselves, or need none: the plan's slacks are no factor of theirs."""
_SET_UP_S = 30.0  # for the load to start and stop and the answer to arrive, on a crowded guest
_READ_NS, _WAKE_NS, _OVERHEAD_S = 60, (60_000, 5_000_000), 0.1
"""What a read takes, what a sleep takes beyond its target (idle; beside a load of the CPU), and a trial beside both."""
_SETTLING_S, _LEARNING_S = 0.25, 0.3  # Of a load, and of hptime, before the first sample
_AWAKE = {"highpertimer", "spin"}  # Sleeps most of which the thread is awake: it waits for its turns beside others
_CPUS = 2  # Of a guest, as far as a plan's estimate goes
_LEAST_NS = 100_000_000  # Of reading a clock: a million reads may fit between two turns of a load
_RAW = {"distribution", "clocks_start", "clocks_end"}
_SUMMED = {
    *("backward", "interrupted", "elapsed_ns", "cpu_ns", "steal_ns"),
    *("voluntary_switches", "involuntary_switches", "major_faults"),
}


class CycleSettings(Section):
    """Cycles of a control loop, as a soft PLC has them: threads that are to begin at a fixed period."""

    periods_us: Levels[Annotated[int, Field(ge=50, le=1_000_000)]] = (1000,)
    """Periods of the deadlines."""
    kinds: Levels[Literal["cycle", "stall"]] = ("cycle",)
    """``cycle`` sleeps until each deadline. ``stall`` never sleeps and tells gaps between reads of the counter: what
    others take from a thread that only wants to run; it has no period."""
    classes: Levels[Literal["other", "fifo", "deadline"]] = ("fifo",)
    """Scheduling class of the threads."""
    priority: Annotated[int, Field(ge=1, le=98)] = 90
    """Of the class ``fifo``."""
    idle_states: Levels[IdleStates] = ("default",)
    """``shallow``: the guest's kernel enters no idle state that takes time to leave. A ``stall`` has the first."""
    cpus: Distinct[Annotated[int, Field(ge=0, le=1023)]] = ()
    """The guest's CPUs, with one thread each; none: one thread that its kernel places."""
    staggered: bool = False
    """Whether the threads' deadlines are spread over the period, or are the same."""
    work_share: Annotated[float, Field(ge=0, le=0.9)] = 0.0
    """Of the period, for which each cycle works once it has begun; time that others take from it is no work."""
    seconds: Annotated[float, Field(ge=0.1, le=3600)] = 60.0
    """Of one trial: what a kill costs at most. A soak is many repetitions."""
    worst: Annotated[int, Field(ge=0, le=1000)] = 20
    """Cycles of each trial whose time is kept, the latest first."""
    trace: bool = False
    """Whether the kernels of the host and of guests are traced meanwhile, so that the report says why the latest cycles
    were late. It takes root, and a little of each event's time: cells with and without it are not the same."""

    def _problems(self) -> Iterator[str]:
        """What kernels refuse of SCHED_DEADLINE is said before anything starts."""
        if "deadline" in self.classes:
            if self.cpus:
                yield "cpus: the class deadline runs on no chosen CPU; leave them out, or take fifo"
            if min(self.periods_us) < 100:
                yield "periods_us: the class deadline takes 100 or more; leave the shorter ones out"
            if self.kinds == ("stall",) and self.classes == ("deadline",):
                yield "classes: a stall has no deadlines; take the class fifo"


class TimingSettings(Section):
    """One design: timers × loads, sleeps × slacks × policies × idle states × targets × loads, and cycles × loads."""

    timers: tuple[Timer, ...] = ("rdtscp", "clock_gettime")
    """Clocks that are read; see [timing.md](timing.md)."""
    reads: Annotated[int, Field(ge=1000, le=10**10)] = 1_000_000
    """Reads of the clock in one trial; more of them, until 0.1 s has passed."""
    sleeps: tuple[Sleep, ...] = ("usleep", "clock_nanosleep")
    """Ways to sleep; see [timing.md](timing.md)."""
    slacks: Annotated[tuple[Literal["default", "minimal"], ...], Field(min_length=1)] = ("default", "minimal")
    """Timer slack of the sleeping thread: Linux's default of 50 µs, or the minimum of 1 ns."""
    policies: Annotated[tuple[Literal["other", "fifo"], ...], Field(min_length=1)] = ("other",)
    """Scheduling policy of the sleeping thread."""
    idle_states: Annotated[tuple[IdleStates, ...], Field(min_length=1)] = ("default",)
    """``shallow``: the guest's kernel enters no idle state that takes time to leave."""
    targets_us: Annotated[tuple[Annotated[int, Field(ge=1, le=10_000_000)], ...], Field(min_length=1)] = (100,)
    """Intended lengths of a sleep."""
    sleep_samples: Annotated[int, Field(ge=1, le=10**8)] = 1000
    """Sleeps in one trial."""
    cycles: CycleSettings | None = None
    """Cycles of a control loop; without it none are measured."""
    loads: Annotated[tuple[Literal["idle", "cpu", "io"], ...], Field(min_length=1)] = ("idle", "cpu")
    """What runs beside the measurement: nothing, square roots, or a file service in the guest that a peer uses."""
    cpu_threads: Annotated[int, Field(ge=1, le=4096)] = 100
    """Threads of square roots in the load ``cpu`` (100 in the paper)."""
    io: FileLoadSettings = FileLoadSettings()
    """The load ``io``: what the peer does to the files that the guest serves."""
    max_seconds: Annotated[float, Field(ge=0.1, le=86_400)] = 20.0
    """A trial that takes longer ends with the samples it has and is flagged ``short``."""
    reservoir: Annotated[int, Field(ge=0, le=500_000)] = 2000
    """Raw values kept of each trial."""


class TimingSuite(Suite):
    """See the module."""

    name = "timing"
    Settings = TimingSettings
    settings: TimingSettings

    def cells(self) -> list[Cell]:
        s = self.settings
        timers = [
            self._cell(
                "timer_cost",
                {"function": function, "load": load},
                {"function": function, "samples": s.reads, "least_ns": _LEAST_NS},
            )
            for function, load in itertools.product(s.timers, s.loads)
        ]
        return [*timers, *self._sleep_cells(), *self._cycle_cells()]

    def needs(self) -> tuple[str, ...]:
        return ("ganesha",) if "io" in self.settings.loads else ()

    def lacking(self, cell: Cell) -> str | None:
        return tracing.refused() if "trace" in cell.factors else None

    def _sleep_cells(self) -> Iterator[Cell]:
        s = self.settings
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
                "slack_ns": 1 if factors["slack"] == "minimal" else 0,
                "policy": policy,
                "idle_states": idle_states,
            }
            yield self._cell("sleep_lateness", factors, params)

    def _cycle_cells(self) -> Iterator[Cell]:
        s = self.settings.cycles
        if s is None:
            return
        for kind, policy, period_us, idle_states, load in itertools.product(
            s.kinds, s.classes, s.periods_us, s.idle_states, self.settings.loads
        ):
            further = (period_us, idle_states) != (s.periods_us[0], s.idle_states[0])
            if kind == "stall" and (policy == "deadline" or further):
                continue  # which has no period, and never idles
            factors: dict[str, str] = {"function": kind, "policy": policy, "load": load}
            if kind == "cycle":
                factors["period_ns"] = str(period_us * 1000)
            if idle_states != "default":
                factors["idle_states"] = idle_states
            if s.trace:  # which a cell without this factor is not
                factors["trace"] = "on"
            params = {
                "kind": "sleep" if kind == "cycle" else kind,
                "cpus": list(s.cpus),
                "period_ns": period_us * 1000,
                "class": policy,
                "priority": s.priority,
                "idle_states": idle_states,
                "staggered": s.staggered,
                "work_permille": round(s.work_share * 1000),
                "trace": s.trace,
                "worst": s.worst,
                "max_ns": int(s.seconds * 1e9),
            }
            yield self._of_probe("cycle", factors, params, s.seconds, s.seconds)

    def _cell(self, probe: str, factors: dict[str, str], params: dict[str, Any]) -> Cell:
        max_seconds = self.settings.max_seconds
        common = {"max_ns": int(max_seconds * 1e9), "reservoir": self.settings.reservoir}
        timer, function, beside = probe == "timer_cost", factors["function"], factors["load"] == "cpu"
        each_ns: float = _READ_NS if timer else params["target_ns"] + _WAKE_NS[beside]
        if beside and (timer or function in _AWAKE):
            each_ns *= 1 + self.settings.cpu_threads / _CPUS
        expected_s = min(max(params["samples"] * each_ns, params.get("least_ns", 0)) / 1e9, max_seconds)
        expected_s += _LEARNING_S * (function == "hptime" and not timer)
        return self._of_probe(probe, factors, params | common, max_seconds, expected_s)

    def _of_probe(
        self, probe: str, factors: dict[str, str], params: dict[str, Any], max_seconds: float, expected_s: float
    ) -> Cell:
        used = factors["load"] == "io"  # by the peer of a file service
        return Cell(
            suite=self.name,
            probe=probe,
            factors=factors,
            params=params,
            timeout_s=2 * max_seconds + _SET_UP_S + LONGEST_START_S * used,
            testbed=f"io-{self.settings.io.file_mib}" if used else "guest",
            expected_s=_OVERHEAD_S + _SETTLING_S * (factors["load"] != "idle") + expected_s,
            beside_peer=used,
            in_peace=probe != "cycle",
        )

    async def set_up(self, testbed: str, stage: Stage) -> Testbed:
        """Cells with the I/O- and network-bound load have a peer and a network to it; the others a plain guest."""
        if testbed == "guest" or stage.platform.simulated:  # which invents the load too
            return await Testbed.of_one_guest(stage)
        made = FileTestbed(stage)
        await made.set_up(self.settings.io)
        return made

    def sliced(self, cell: Cell, testbed: Testbed, on_progress: Callable[[float], None]) -> TimingTrial | None:
        """Idle cells only: a load starts with each request, and settles for longer than a slice may last.

        Nor are cycles: what others take of the machine is what they are there to see.
        """
        if cell.factors["load"] != "idle" or cell.probe == "cycle":
            return None
        return TimingTrial(cell, testbed.guest.channel, None, on_progress)

    async def measure(self, cell: Cell, testbed: Testbed, on_progress: Callable[[float], None]) -> Measurement:
        """Run the cell's probe beside its load, in one piece, and beside a trace of this machine where it has one."""
        if "trace" not in cell.factors or testbed.stage.platform.simulated:
            return await self._measured(cell, testbed, on_progress)
        if not testbed.stage.accounting().of_this_machine:
            raise AgentError("unsupported", "trace: its guests are on another machine, whose kernel is not traced")
        try:
            watched = await spikes.Watched.begin(testbed.guest)
            cpus = () if watched.offset else cell.params["cpus"]  # which are the guest's own numbers
            with tracing.traced(testbed.stage.scope.folder, cpus) as trace:
                measured = await self._measured(cell, testbed, on_progress)
                trace.stop()
                told = await watched.told(measured.result, trace)
        except UnavailableError as error:
            raise AgentError("unsupported", str(error)) from error
        result = {name: value for name, value in measured.result.items() if name not in spikes.OF_INSIDE}
        return dataclasses.replace(measured, result=result | {"spikes": told})

    async def _measured(self, cell: Cell, testbed: Testbed, on_progress: Callable[[float], None]) -> Measurement:
        load = cell.factors["load"]
        beside = None if load == "idle" else {"name": load, "params": {"threads": self.settings.cpu_threads}}
        if not isinstance(testbed, FileTestbed):
            trial = TimingTrial(cell, testbed.guest.channel, beside, on_progress)
            trial.keep(await trial.measure(None))
            return trial.joined()
        trial = TimingTrial(cell, testbed.guest.channel, None, on_progress)
        client = await testbed.start(self.settings.io)
        try:
            trial.keep(await trial.measure(None))
        finally:
            trial.file_load = await testbed.stop(client)
        return trial.joined()


class TimingTrial(Sliced):
    """A cell on a guest, as far as it has been measured; slice by slice only where nothing runs beside it."""

    def __init__(
        self, cell: Cell, channel: Channel, beside: Mapping[str, Any] | None, on_progress: Callable[[float], None]
    ) -> None:
        self._cell, self._channel, self._beside, self._on_progress = cell, channel, beside, on_progress
        self._kept: list[Measurement] = []
        self._wanted, self._max_ns = int(cell.params.get("samples", 0)), int(cell.params["max_ns"])
        self._least_ns = int(cell.params.get("least_ns", 0))
        self._n = self._elapsed_ns = 0
        self._begun = False  # whether hptime has learnt beside it, in a slice that was kept or not
        self.file_load: dict[str, Any] | None = None  # what the file load beside it came to, once it was stopped

    @property
    def done(self) -> float:
        taken = self._n / self._wanted if self._wanted else 0.0
        if self._least_ns:
            taken = min(taken, self._elapsed_ns / self._least_ns)
        return max(taken, self._elapsed_ns / self._max_ns)

    async def measure(self, seconds: float | None) -> Measurement:
        seed = random.getrandbits(63)  # which raw values are kept and how sleeps are dephased: no part of the design
        before, left_ns = self.done, self._max_ns - self._elapsed_ns
        limit_ns = left_ns if seconds is None else min(left_ns, int(seconds * 1e9))
        params = dict(self._cell.params) | {"max_ns": limit_ns}
        if self._wanted:
            params |= {"samples": max(self._wanted - self._n, 1), "seed": seed}
        if self._least_ns:
            params["least_ns"] = max(self._least_ns - self._elapsed_ns, 1)
        if self._begun and self._cell.probe == "sleep_lateness":
            params["continued"] = True
        self._begun = True
        reply = await self._channel.request(
            "probe",
            name=self._cell.probe,
            params=params,
            load=self._beside,
            on_progress=lambda share: self._on_progress(before + (1 - before) * share * limit_ns / left_ns),
        )
        return _slice(self._cell, reply)

    def keep(self, slice_: Measurement) -> None:
        self._kept.append(slice_)
        self._n += slice_.histograms[self._cell.probe].n
        self._elapsed_ns += int(slice_.result["usage"]["elapsed_ns"])
        self._on_progress(min(self.done, 1.0))

    def joined(self) -> Measurement:
        counts = [int(one.result["n"]) for one in self._kept]
        with documented(f"the result of {self._cell.probe}"):
            histogram = merge(one.histograms[self._cell.probe] for one in self._kept)
            result = _joined([one.result for one in self._kept], counts) | {"n": histogram.n}
            if self._wanted:
                result["requested"] = self._wanted
            flags = [*_flags(histogram, self._wanted, result)]
        if self.file_load is not None:
            result["load"] = self.file_load | {"achieved": result["usage"].get("machine")}
            flags += load_flags(self.file_load)
        return Measurement(
            result=result,
            histograms={self._cell.probe: histogram},
            samples=_joined_samples(self._kept, counts),
            flags=tuple(flags),
            guest_clocks=added_up([one.guest_clocks for one in self._kept]),
            controller_elapsed_ns=_total([one.controller_elapsed_ns for one in self._kept]),
            guest_steal_ns=_total([one.guest_steal_ns for one in self._kept]),
        )


def _slice(cell: Cell, reply: Reply) -> Measurement:
    value = reply.value
    with documented(f"the result of {cell.probe}"):
        histogram = decode_histogram(value["distribution"])
        clocks = elapsed_by_clock(value["clocks_start"], value["clocks_end"])
        steal = value["usage"].get("steal_ns")
        if int(value["usage"]["elapsed_ns"]) < 0 or (steal is not None and int(steal) < 0):
            raise ValueError(f"usage is {value['usage']}")
        if cell.probe == "cycle":
            watched_in(value)
    return Measurement(
        result={k: v for k, v in value.items() if k not in _RAW} | {"n": histogram.n},
        histograms={cell.probe: histogram},
        samples=reply.samples,
        guest_clocks=clocks,
        controller_elapsed_ns=reply.finished_ns - reply.sent_ns,
        guest_steal_ns=None if steal is None else int(steal),
    )


def _flags(histogram: Histogram, wanted: int, result: Mapping[str, Any]) -> Iterator[Flag]:
    if histogram.n < wanted:
        yield Flag("short", f"{histogram.n} of {wanted} samples in the time allowed", fatal=False)
    if result.get("hptime_fallback_reason"):
        detail = f"hptime answered from the system's clock: {result['hptime_fallback_reason']}"
        yield Flag("hptime-refused", detail, fatal=False)
    if (backward := int(result.get("backward") or 0)) > 0:
        yield Flag("clock-backward", f"{backward} reads gave an earlier time than the one before", fatal=False)


def _joined(slices: Sequence[Mapping[str, Any]], weights: Sequence[float]) -> dict[str, Any]:
    """The scalars of several slices as those of one: counts add up, shares and rates are those of all, by weight."""
    if len(slices) == 1:
        return dict(slices[0])
    joined: dict[str, Any] = {}
    for name, first in slices[0].items():
        values = [one.get(name) for one in slices]
        known = [value for value in values if value is not None]
        if isinstance(first, Mapping):  # ``usage``, and what is within it: of all the time
            joined[name] = _joined(known, [float(one.get("elapsed_ns") or 0) for one in known])
        elif name == "resolution_ps":  # the smallest step that was seen
            joined[name] = min(known, default=None)
        elif name == "overhead_ps":
            joined[name] = statistics.median_low(known) if known else None
        elif name in _SUMMED:
            joined[name] = _total(values)
        elif name.endswith(("_share", "_per_s", "_per_sleep")):
            whole = len(known) == len(values) and sum(weights) > 0
            joined[name] = float(np.average(known, weights=weights)) if whole else None
        else:
            joined[name] = known[0] if known else None
    return joined


def _joined_samples(slices: Sequence[Measurement], counts: Sequence[int]) -> dict[str, npt.NDArray[np.int64]]:
    """Raw values of all slices, each of which is represented by its share of the samples.

    A slice's own are a uniform choice among ``counts`` values, so a choice among those is one too.
    """
    joined = {}
    for series in slices[0].samples:
        kept = [one.samples.get(series, np.empty(0, dtype=np.int64)) for one in slices]
        capacity = max(map(len, kept))
        if len(slices) > 1 and sum(counts) > capacity:
            generator = np.random.default_rng()
            shares = generator.multinomial(capacity, np.array(counts) / sum(counts))
            kept = [
                generator.choice(values, min(share, len(values)), replace=False)
                for values, share in zip(kept, shares, strict=True)
            ]
        joined[series] = np.concatenate(kept)
    return joined


def _total(values: Sequence[Any]) -> Any:
    return None if None in values else sum(values)
