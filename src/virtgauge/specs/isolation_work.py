"""What the tested guest did, and beside what: the reference, the same without the load, and what was promised.

All figures here are of work, so that more is better in all of them: of the rate; of waking up, whose rate says nothing,
of the inverse of its lateness.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator

import numpy as np

from virtgauge.results.columns import Cell
from virtgauge.results.measure import (
    Across,
    Better,
    Column,
    Derived,
    Measure,
    Relative,
    Statistic,
    durations,
    field,
    measures,
)
from virtgauge.results.quantities import COUNT, CPUS, DURATION, RATIO, SHARE, WORK_RATE
from virtgauge.results.table import Blocks, ResultTable
from virtgauge.specs.isolation_formatting import LOADING, NOTHING, OF_THE_CORES, Policy, Resource, about, promised

TAILS = {"p99": 0.99, "p90": 0.9, "p50": 0.5}  # Of the lateness that stands for waking up, the best first
_KERNEL = frozenset({"kernel"})
_IDLE, _FREE = {"load": NOTHING, "intensity": "0"}, {"policy": NOTHING, "on": NOTHING, "share": "100"}


def is_alone(cell: Cell) -> bool:
    """Whether the loading guest does nothing."""
    return cell.factors["load"] == NOTHING


def is_free(cell: Cell) -> bool:
    """Whether there is no policy."""
    return cell.factors["policy"] == NOTHING


def unloaded(cell: Cell) -> Cell:
    """The cell without the load."""
    return cell.at(**_IDLE)


def reference(cell: Cell) -> Cell:
    """The paper's [host, benchmark, lack, number of cores]: neither load nor policy."""
    return cell.at(**_IDLE, **_FREE)


def _effort(rate: Column, *late: Column) -> Column:
    """The rate; of waking up the inverse of the lateness at the highest quantile that every trial can tell."""
    tail = late[_tail(late)]
    slowed = np.divide(1e9, tail, out=np.full_like(tail, np.nan), where=tail > 0)
    return np.where(np.isnan(late[-1]), rate, slowed)


def _tail(late: tuple[Column, ...]) -> int:
    waking = ~np.isnan(late[-1])
    return next((n for n, one in enumerate(late) if not np.isnan(one[waking]).any()), len(late) - 1)


def wake_tail(table: ResultTable) -> float:
    """The quantile of lateness that stands for waking up."""
    columns = tuple(table.column(WAKING[name]) for name in TAILS)
    return [*TAILS.values()][_tail(columns)]


def _beside_load(cell: Cell) -> list[tuple[Cell, float]]:
    """A policy on an idle loading guest bounds nothing, so that the cell without either does as well."""
    return [(one, 1.0) for one in (unloaded(cell), *([reference(cell)] if cell.factors["on"] == LOADING else []))]


def _due(cell: Cell) -> list[tuple[Cell, float]]:
    """What a share of the cores promises; by hand, nothing is measured without a limit."""
    share, beside = promised(cell), _beside_load(cell)
    if share is None or share == 1 or about(cell) not in OF_THE_CORES:
        return beside
    return [(reference(cell), share), *(beside if Policy.LIMIT in cell.factors["policy"] else [])]


def _kept(beside: Column, of_due: Column) -> Column:
    """Over no more than what was promised: losing the idle time of a neighbour is no lack of isolation."""
    return np.where(np.isnan(of_due), np.nan, np.fmax(beside, of_due))


def _promises(cell: Cell) -> bool:
    return about(cell) is not Resource.WAKE and (is_alone(cell) or not is_free(cell)) and bool(promised(cell))


def _unused(table: ResultTable, cell: Cell, arm: str) -> Blocks:
    capacity, tested, loading = (table.values(one, cell, arm) for one in (CAPACITY, RECEIVED, LOADING_CPUS))
    apart = cell.factors["cores"] == "1-apart"  # where the other guest's idle core is its own
    return {
        block: 100 * (1 - (cpus + (0.0 if apart else loading.get(block, 0.0))) / capacity[block])
        for block, cpus in tested.items()
        if capacity.get(block)
    }


def _memory_latency(threads: Column, rate: Column) -> Column:
    """Each thread follows a chain of its own."""
    return _over(1e9 * np.where(np.isnan(threads), 1.0, threads), rate)


def _over(part: Column, whole: Column) -> Column:
    return np.divide(part, whole, out=np.full_like(part, np.nan), where=whole != 0)


def _percent_of(part: Column, whole: Column) -> Column:
    return _over(100 * part, whole)


def _quotient(part: Column, whole: Column) -> Column:
    return np.where(part == 0, np.nan, _over(part, whole))


def _of_window(part: Column, elapsed: Column, threads: Column) -> Column:
    return _percent_of(part, elapsed * np.where(np.isnan(threads), 1.0, threads))


_measures = functools.partial(measures, "isolation", _KERNEL)
_HIGHER, _NEITHER = Better.HIGHER, Better.NEITHER
_CPU_TESTED, _ENTITLED, _CORES = field("cpu", "tested"), field("entitled", "tested"), field("capacity_cpus")
_LATE = tuple(durations("isolation", "wake", "how late the tested guest woke", _KERNEL, "wake", "p99"))
WAKING = {one.statistic: one for one in _LATE}
_WORK = Derived((field("rate"), *(Statistic("wake", name) for name in TAILS)), _effort)
_BESIDE = Relative(_WORK, lambda cell: [(reference(cell), 1.0)], of_reference=True)
_BESIDE_PER_CPU = dataclasses.replace(_BESIDE, of=Derived((field("rate"), _CPU_TESTED), _over))
_BESIDE_SHARE = dataclasses.replace(_BESIDE, to=lambda cell: [(reference(cell), promised(cell) or math.nan)])
_BESIDE_LOAD = Relative(_WORK, _beside_load)
_NEVER = {
    **dict.fromkeys(("kept", "work_beside_load", "kept_of_promised"), lambda cell: "there is no load" * is_alone(cell)),
    "q": lambda cell: "no share was declared that promises anything here" * (not _promises(cell)),
    "q_rate": lambda cell: "the rate of waking up says nothing" * (about(cell) is Resource.WAKE),
    "memory_latency": lambda cell: "another benchmark was measured" * (about(cell) is not Resource.CACHE),
}
_BY_RATIO = ("work_beside_load", "kept_of_promised", "conservation.given")
_BASIC = tuple(
    _measures(
        ("effort", WORK_RATE, _HIGHER, "the rate; of waking up the inverse of its lateness", _WORK),
        ("relative_work", RATIO, _HIGHER, "v / v_ref: beside the reference without load and policy", _BESIDE),
        ("received_cpus", CPUS, _NEITHER, "CPU time of the tested guest, from outside", _CPU_TESTED),
        ("loading_cpus", CPUS, _NEITHER, "CPU time of the loading guest, from outside", field("cpu", "loading")),
        ("capacity_cpus", CPUS, _NEITHER, "the cores that both share", _CORES),
    )
)
EFFORT, _, RECEIVED, LOADING_CPUS, CAPACITY = _BASIC


def isolation_measures() -> Iterator[Measure]:
    """Work beside a neighbour, what was promised, figures beside those of other cells, and the account from outside."""
    for one in _listed():
        lacking = "the CPU time is not known" if one.name == "q_rate" else one.lacking
        never = _NEVER.get(one.name, one.never)
        yield dataclasses.replace(one, lacking=lacking, never=never, by_ratio=one.name in _BY_RATIO)


def _listed() -> Iterator[Measure]:
    of_rate = "the work beside a load, of that without it in the same repetition"
    yield from _measures(
        ("work", WORK_RATE, _HIGHER, "what the tested guest did, in its benchmark's units", field("rate")),
        ("kept", SHARE, _HIGHER, of_rate, Relative(_WORK, lambda cell: [(unloaded(cell), 0.01)])),
        headline=("work", "kept"),
    )
    promise = Derived((_CPU_TESTED, _ENTITLED), _percent_of)
    yield from _measures(
        ("entitlement", SHARE, _HIGHER, "CPU time received of that which was promised", promise),
        ("neighbour_work", WORK_RATE, _HIGHER, "what the loading guest did, in its units", field("load", "rate")),
    )
    yield from _LATE
    yield from durations("isolation", "disk", "an operation on the tested guest's disk", _KERNEL, "disk", "p99")
    yield from _BASIC
    periods = tuple(field("throttling", "tested", name) for name in ("throttled", "periods"))
    throttled = Derived(periods, _percent_of)
    clocks = tuple(field("frequency", when) for when in ("after_hz", "before_hz"))
    stopped, seen = ((field("steal", one), field("elapsed_ns"), field("threads")) for one in ("stopped_ns", "seen_ns"))
    q = "efficiency: v / (v_ref · s), with the share s that was promised"
    kept, given = "the same, over no more than what was promised", "work under a policy, over that without it"
    waiting = field("io_wait_share", factor=100)
    clock = "the core's clock after the trial, over that before"
    wanted = "of the time, that in which its threads wanted to run and did not"
    late = "one load from memory that waits for the one before"
    latency = Derived((_CORES, field("rate")), _memory_latency)
    yield from _measures(
        ("value", COUNT, _NEITHER, "the benchmark's own figure in its own unit", field("value")),
        ("q", RATIO, _HIGHER, q, _BESIDE_SHARE),
        ("q_rate", RATIO, _HIGHER, "work per second of CPU time beside the reference's", _BESIDE_PER_CPU),
        ("work_beside_load", RATIO, _HIGHER, "work beside the load, over that without it", _BESIDE_LOAD),
        ("kept_of_promised", RATIO, _HIGHER, kept, Derived((_BESIDE_LOAD, Relative(_WORK, _due)), _kept)),
        ("conservation.given", RATIO, _HIGHER, given, Relative(_WORK, lambda cell: [(cell.at(**_FREE), 1.0)])),
        ("conservation.unused", SHARE, _NEITHER, "part of the cores that neither guest used", Across(_unused)),
        ("entitled_cpus", CPUS, _NEITHER, "what it is entitled to, by water-filling", _ENTITLED),
        ("guest_seen_cpus", CPUS, _NEITHER, "what its own kernel counted", field("cpu", "guest_seen")),
        ("throttled_share", SHARE, _NEITHER, "periods of its quota in which it was stopped", throttled),
        ("io_wait_share", SHARE, _NEITHER, "I/O wait of the host's CPU time", waiting),
        ("frequency_ratio", RATIO, _NEITHER, clock, Derived(clocks, _quotient)),
        ("stopped_share", SHARE, _NEITHER, wanted, Derived(stopped, _of_window)),
        ("steal_seen_share", SHARE, _NEITHER, "of the time, that which it saw stolen", Derived(seen, _of_window)),
        ("memory_latency", DURATION, Better.LOWER, late, latency),
    )
