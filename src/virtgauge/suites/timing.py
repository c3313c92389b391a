"""Timing: what reading a clock costs, and how late a sleep wakes (Kirova et al. 2019, sections 2.1, 2.3, 3.1, 3.2).

Timer cost is the time to read a clock once, sampled read by read.  Sleep lateness (the paper's miss time) is
the signed distance of a wake-up from its absolute target.  Both are measured idle, beside a CPU-bound load in the
guest, and beside one that is bound by I/O and network (:mod:`virtgauge.suites.file_load`).
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from virtgauge.agent.channel import Reply
from virtgauge.agent.frames import ProtocolError
from virtgauge.ledger.records import Flag, Histogram
from virtgauge.suites.answers import decode_histogram, elapsed_by_clock
from virtgauge.suites.base import Cell, Measurement, Suite
from virtgauge.suites.bench import Bench, Stage
from virtgauge.suites.file_load import FileBench, FileLoadSettings, load_flags, set_up_file_bench

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


class TimingSettings(BaseModel):
    """One factorial design: timers × loads, and sleeps × slacks × policies × idle states × targets × loads."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    timers: tuple[Timer, ...] = ("rdtscp", "clock_gettime")
    reads: Annotated[int, Field(ge=1000, le=10**10)] = 1_000_000
    """Reads of the clock in one trial."""
    sleeps: tuple[Sleep, ...] = ("usleep", "clock_nanosleep")
    slacks: Annotated[tuple[Slack, ...], Field(min_length=1)] = ("default", "minimal")
    policies: Annotated[tuple[Policy, ...], Field(min_length=1)] = ("other",)
    idle_states: Annotated[tuple[IdleStates, ...], Field(min_length=1)] = ("default",)
    """``shallow``: the guest's kernel enters no idle state that takes time to leave."""
    targets_us: Annotated[tuple[Annotated[int, Field(ge=1, le=10_000_000)], ...], Field(min_length=1)] = (100,)
    sleep_samples: Annotated[int, Field(ge=10, le=10**8)] = 1000
    """Sleeps in one trial."""
    loads: Annotated[tuple[Load, ...], Field(min_length=1)] = ("idle", "cpu")
    cpu_threads: Annotated[int, Field(ge=1, le=4096)] = 100
    """Threads of square roots that are the CPU-bound load (the paper's 100)."""
    io: FileLoadSettings = FileLoadSettings()
    """The I/O- and network-bound load: what a peer does to the files that the guest serves."""
    max_seconds: Annotated[float, Field(ge=0.1, le=86_400)] = 20.0
    """A trial that takes longer ends with the samples it has, and says so."""
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
        return Cell(
            suite=self.name,
            probe=probe,
            factors=factors,
            params=params | common,
            timeout_s=2 * max_seconds + _SET_UP_S,
            bench=f"io-{self._settings.io.file_mib}" if factors["load"] == "io" else "guest",
        )

    async def set_up(self, bench: str, stage: Stage) -> Bench:
        """Cells with the I/O- and network-bound load have a peer and a network; the others a plain guest."""
        if bench == "guest" or stage.platform.kind == "simulated":  # which invents the load too
            return await Bench.of_one_guest(stage)
        return await set_up_file_bench(stage, self._settings.io)

    async def measure(self, cell: Cell, bench: Bench, on_progress: Callable[[float], None]) -> Measurement:
        """Run the cell's probe beside its load."""
        seed = random.getrandbits(63)  # which raw values are kept and how sleeps are dephased: no part of the design
        load = cell.factors["load"]
        beside = None if load == "idle" else {"name": load, "params": {"threads": self._settings.cpu_threads}}
        params = dict(cell.params) | {"seed": seed}
        probe = functools.partial(
            bench.guest.channel.request, "probe", name=cell.probe, params=params, on_progress=on_progress
        )
        if not isinstance(bench, FileBench):
            return _measurement(cell, await probe(load=beside))
        client = await bench.start(self._settings.io)
        try:
            reply = await probe(load=None)
        finally:
            done = await bench.stop(client)
        measured = _measurement(cell, reply)
        achieved = measured.result["usage"].get("machine")
        return dataclasses.replace(
            measured,
            result=measured.result | {"load": done | {"achieved": achieved}},
            flags=(*measured.flags, *load_flags(done)),
        )


def _measurement(cell: Cell, reply: Reply) -> Measurement:
    value = reply.value
    try:
        histogram = decode_histogram(value["distribution"])
        usage, start, end = value["usage"], value["clocks_start"], value["clocks_end"]
        clocks = elapsed_by_clock(start, end)
        steal = usage.get("steal_ns")
        flags = _flags(cell, histogram, value)
    except (KeyError, TypeError, ValueError) as error:
        raise ProtocolError(f"the result of {cell.probe} is not what docs/protocol.md says: {error!r}") from error
    passed_on = {k: v for k, v in value.items() if k not in {"distribution", "clocks_start", "clocks_end"}}
    return Measurement(
        result=passed_on | {"n": histogram.n},
        histograms={cell.probe: histogram},
        samples=reply.samples,
        flags=flags,
        guest_clocks=clocks,
        controller_elapsed_ns=reply.finished_ns - reply.sent_ns,
        guest_steal_ns=steal,
    )


def _flags(cell: Cell, histogram: Histogram, value: dict[str, Any]) -> tuple[Flag, ...]:
    flags = []
    wanted = int(cell.params["samples"])
    if histogram.n == 0:
        flags.append(Flag("empty", "the probe brought no sample"))
    elif histogram.n < wanted:
        flags.append(Flag("short", f"{histogram.n} of {wanted} samples in the time allowed", fatal=False))
    if value.get("hptime_refusal"):
        detail = f"hptime answered from the system's clock: {value['hptime_refusal']}"
        flags.append(Flag("hptime-refused", detail, fatal=False))
    if (backward := int(value.get("backward") or 0)) > 0:
        flags.append(Flag("clock-backward", f"{backward} reads gave an earlier time than the one before", fatal=False))
    return tuple(flags)
