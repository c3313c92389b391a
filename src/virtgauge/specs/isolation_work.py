"""What the tested guest did, and beside what: the reference, the same without the load, and what was promised.

All figures here are of work, so that more is better in all of them: of the rate; of waking up, whose rate says nothing,
of the inverse of its lateness.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator

import numpy as np

from virtgauge.results.columns import Cell
from virtgauge.results.measure import Across, Better, Column, Derived, Measure, Statistic, durations, field, measures
from virtgauge.results.quantities import COUNT, CPUS, DURATION, RATIO, SHARE, WORK_RATE
from virtgauge.results.table import Blocks, ResultTable
from virtgauge.specs.isolation_formatting import LATENCY, LOADING, NOTHING, OF_THE_CORES, WAKE, Policy, about, promised

TAILS = {"p99": 0.99, "p90": 0.9, "p50": 0.5}  # Of the lateness that stands for waking up, the best first
_KERNEL = frozenset({"kernel"})
_IDLE, _FREE = {"load": NOTHING, "intensity": "0"}, {"policy": NOTHING, "on": NOTHING, "share": "100"}
_NO_PAIR = "no block has a valid trial of this cell and of its reference"
_NOT_POSITIVE = "a ratio needs positive figures; see the difference"


def is_alone(cell: Cell) -> bool:
    """Whether the loading guest does nothing."""
    return cell.factors["load"] == NOTHING


def is_free(cell: Cell) -> bool:
    """Whether there is no policy."""
    return cell.factors["policy"] == NOTHING


def unbounded(cell: Cell) -> Cell:
    """The cell without the policy."""
    return cell.at(**_FREE)


def unloaded(cell: Cell) -> Cell:
    """The cell without the load."""
    return cell.at(**_IDLE)


def reference(cell: Cell) -> Cell:
    """The paper's [host, benchmark, lack, number of cores]: neither load nor policy."""
    return cell.at(**_IDLE, **_FREE)


def effort(table: ResultTable, cell: Cell, arm: str) -> Blocks:
    """What was done, by block, the more the better."""
    return table.values(EFFORT, cell, arm)


def alone(table: ResultTable, cell: Cell, arm: str) -> Blocks:
    """The work without the load, by block.

    A policy on the loading guest bounds nothing while that one is idle, so that the cell without either does as well.
    """
    own = effort(table, unloaded(cell), arm)
    return own or (effort(table, reference(cell), arm) if cell.factors["on"] == LOADING else {})


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


def _relative(table: ResultTable, cell: Cell, arm: str) -> Blocks | str:
    if apart := table.elsewhere(arm):
        return f"measured {apart}, whose work tells nothing of this one’s"
    base = effort(table, reference(cell), table.reference)
    found = {block: work / base[block] for block, work in effort(table, cell, arm).items() if base.get(block, 0) > 0}
    return found or _NO_PAIR


def _q(table: ResultTable, cell: Cell, arm: str) -> Blocks | str:
    share = promised(cell)
    if cell.factors["benchmark"] == WAKE or (is_free(cell) and not is_alone(cell)) or not share:
        return "no share was declared that promises anything here"
    return {block: work / share for block, work in table.values(RELATIVE, cell, arm).items()} or _NO_PAIR


def _q_rate(table: ResultTable, cell: Cell, arm: str) -> Blocks | str:
    if cell.factors["benchmark"] == WAKE:
        return "the CPU time is not known"
    received, of_reference = (table.values(RECEIVED, *at) for at in ((cell, arm), (reference(cell), table.reference)))
    found = {
        block: work * of_reference[block] / received[block]
        for block, work in table.values(RELATIVE, cell, arm).items()
        if received.get(block) and of_reference.get(block)
    }
    return found or "the CPU time is not known"


def _paired(test: Blocks, base: Blocks, what: str) -> Blocks | str:
    if not base:
        return f"the same {what} has no valid result"
    both = sorted(test.keys() & base.keys())
    if any(test[block] <= 0 or base[block] <= 0 for block in both):
        return _NOT_POSITIVE
    return {block: test[block] / base[block] for block in both}


def _beside_load(table: ResultTable, cell: Cell, arm: str) -> Blocks | str:
    if is_alone(cell):
        return "there is no load"
    return _paired(effort(table, cell, arm), alone(table, cell, arm), "without the load")


def _kept(table: ResultTable, cell: Cell, arm: str) -> Blocks | str:
    """Over no more than what was promised: losing the idle time of a neighbour is no lack of isolation."""
    share = promised(cell)
    if is_alone(cell) or share is None or share == 1 or about(cell) not in OF_THE_CORES:
        return _beside_load(table, cell, arm)
    idle, whole = alone(table, cell, arm), effort(table, reference(cell), arm)
    if not whole and Policy.LIMIT in cell.factors["policy"]:  # by hand, nothing is measured without it
        return _beside_load(table, cell, arm)
    due = {block: min(share * work, idle.get(block, math.inf)) for block, work in whole.items()}
    return _paired(effort(table, cell, arm), due, "without load and policy")


def _kept_of_rate(table: ResultTable, cell: Cell, arm: str) -> Blocks:
    idle = unloaded(cell)
    base: Blocks = {} if idle == cell else effort(table, idle, arm)
    return {block: 100 * work / base[block] for block, work in effort(table, cell, arm).items() if base.get(block)}


def _given(table: ResultTable, cell: Cell, arm: str) -> Blocks | str:
    return _paired(effort(table, cell, arm), effort(table, unbounded(cell), arm), "without the policy")


def _unused(table: ResultTable, cell: Cell, arm: str) -> Blocks:
    capacity, tested, loading = (table.values(one, cell, arm) for one in (CAPACITY, RECEIVED, LOADING_CPUS))
    apart = cell.factors["cores"] == "1-apart"  # where the other guest's idle core is its own
    return {
        block: 100 * (1 - (cpus + (0.0 if apart else loading.get(block, 0.0))) / capacity[block])
        for block, cpus in tested.items()
        if capacity.get(block)
    }


def _memory_latency(table: ResultTable, cell: Cell, arm: str) -> Blocks | str:
    if cell.factors["benchmark"].partition(" ")[0] != LATENCY:
        return "another benchmark was measured"
    threads, rates = table.values(CAPACITY, cell, arm), effort(table, cell, arm)  # each follows a chain of its own
    return {block: threads.get(block, 1) * 1e9 / loads for block, loads in rates.items() if loads > 0}


def _percent_of(part: Column, whole: Column) -> Column:
    return np.divide(100 * part, whole, out=np.full_like(part, np.nan), where=whole != 0)


def _quotient(part: Column, whole: Column) -> Column:
    return np.divide(part, whole, out=np.full_like(part, np.nan), where=(whole != 0) & (part != 0))


def _of_window(part: Column, elapsed: Column, threads: Column) -> Column:
    return _percent_of(part, elapsed * np.where(np.isnan(threads), 1.0, threads))


_measures = functools.partial(measures, "isolation", _KERNEL)
_HIGHER, _NEITHER = Better.HIGHER, Better.NEITHER
_CPU_TESTED, _ENTITLED = field("cpu", "tested"), field("entitled", "tested")
_LATE = tuple(durations("isolation", "wake", "how late the tested guest woke", _KERNEL, "wake", "p99"))
WAKING = {one.statistic: one for one in _LATE}
_WORK = Derived((field("rate"), *(Statistic("wake", name) for name in TAILS)), _effort)
_BASIC = tuple(
    _measures(
        ("effort", WORK_RATE, _HIGHER, "the rate; of waking up the inverse of its lateness", _WORK),
        ("relative_work", RATIO, _HIGHER, "v / v_ref: beside the reference without load and policy", Across(_relative)),
        ("received_cpus", CPUS, _NEITHER, "CPU time of the tested guest, from outside", _CPU_TESTED),
        ("loading_cpus", CPUS, _NEITHER, "CPU time of the loading guest, from outside", field("cpu", "loading")),
        ("capacity_cpus", CPUS, _NEITHER, "the cores that both share", field("capacity_cpus")),
    )
)
EFFORT, RELATIVE, RECEIVED, LOADING_CPUS, CAPACITY = _BASIC


def isolation_measures() -> Iterator[Measure]:
    """Work beside a neighbour, what was promised, figures beside those of other cells, and the account from outside."""
    yield from _measures(
        ("work", WORK_RATE, _HIGHER, "what the tested guest did, in its benchmark's units", field("rate")),
        headline=("work",),
    )
    meaning = "the work beside a load, of that without it in the same repetition"
    yield Measure("isolation", "kept", SHARE, _HIGHER, meaning, _KERNEL, Across(_kept_of_rate), _IDLE, headline=True)
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
    yield from _measures(
        ("value", COUNT, _NEITHER, "the benchmark's own figure in its own unit", field("value")),
        ("q", RATIO, _HIGHER, q, Across(_q)),
        ("q_rate", RATIO, _HIGHER, "work per second of CPU time beside the reference's", Across(_q_rate)),
        ("work_beside_load", RATIO, _HIGHER, "work beside the load, over that without it", Across(_beside_load, True)),
        ("kept_of_promised", RATIO, _HIGHER, kept, Across(_kept, True)),
        ("conservation.given", RATIO, _HIGHER, given, Across(_given, True)),
        ("conservation.unused", SHARE, _NEITHER, "part of the cores that neither guest used", Across(_unused)),
        ("entitled_cpus", CPUS, _NEITHER, "what it is entitled to, by water-filling", _ENTITLED),
        ("guest_seen_cpus", CPUS, _NEITHER, "what its own kernel counted", field("cpu", "guest_seen")),
        ("throttled_share", SHARE, _NEITHER, "periods of its quota in which it was stopped", throttled),
        ("io_wait_share", SHARE, _NEITHER, "I/O wait of the host's CPU time", waiting),
        ("frequency_ratio", RATIO, _NEITHER, clock, Derived(clocks, _quotient)),
        ("stopped_share", SHARE, _NEITHER, wanted, Derived(stopped, _of_window)),
        ("steal_seen_share", SHARE, _NEITHER, "of the time, that which it saw stolen", Derived(seen, _of_window)),
        ("memory_latency", DURATION, Better.LOWER, late, Across(_memory_latency)),
    )
