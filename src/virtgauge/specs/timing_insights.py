"""What is really of clocks and sleeps: functions by name, tails over all repetitions, a first look, and loads."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from virtgauge.analysis.comparison import Comparison, resolution
from virtgauge.analysis.distribution import samples_needed
from virtgauge.analysis.estimate import Estimate
from virtgauge.ledger.records import TAILS
from virtgauge.results.columns import Cell
from virtgauge.results.formatting import count
from virtgauge.results.measure import Better, Column, Derived, Field, Measure, Statistic, field
from virtgauge.results.quantities import BYTE_RATE, COUNT, DURATION, EVENT_RATE, SHARE, Quantity
from virtgauge.specs import blocks
from virtgauge.specs.blocks import Block, Row, Shown, Value, table_of
from virtgauge.specs.context import Context, over_cells

_LOADS = {"cpu": "CPU load", "io": "I/O load"}
PROBES = {
    "timer_cost": ("Timer cost", "the time it takes to read a clock once"),
    "sleep_lateness": ("Sleep lateness", "how long after its deadline a sleep wakes"),
    "cycle": ("Cycles", "how long after its deadline a cycle begins, or of a gap between reads of the counter"),
}
"""What each measures, as a heading and in a clause."""
FIRST_CHOICE = {
    # What a program meets that does nothing special: the libc's clock through the vDSO, a plain sleep.
    "timer_cost": ("clock_gettime", "rdtscp", "rdtsc", "gettimeofday", "clock_gettime_syscall"),
    "sleep_lateness": ("usleep", "nanosleep", "clock_nanosleep"),
    "cycle": ("cycle", "stall"),
}
COMPARED = ("p50", "p99", "p99.9")  # Statistics that stand beside the reference's
USUAL = {"slack": ("default", "own"), "policy": ("other",), "idle_states": ("default",)}
"""As a program has them that does nothing about them; HPTSleep sees to its own slack."""
_NEWS = 1.5  # A ratio under load is worth telling when it differs from that without by more than this factor


def load_label(load: str) -> str:
    """``CPU load`` for ``cpu``; a load without a name of its own keeps its level's."""
    return _LOADS.get(load, load)


def probe_title(probe: str) -> str:
    """What a probe measures, as a heading."""
    return PROBES[probe][0] if probe in PROBES else probe.replace("_", " ")


def function_label(context: Context, cell: Cell) -> str:
    """What is measured, without the load: ``usleep 100 µs, minimal slack``; ``cycle of 1 ms``."""
    length, period = (context.text(cell, name) for name in ("target_ns", "period_ns"))
    function = " ".join(filter(None, (context.level(cell, "function"), length, period and f"of {period}")))
    more = context.spec.cell_name(cell, ("probe", "function", "target_ns", "period_ns", "load"))
    return ", ".join(filter(None, (function, more)))


def cell_label(context: Context, cell: Cell) -> str:
    """``usleep 100 µs, minimal slack, CPU load``."""
    return f"{function_label(context, cell)}, {context.text(cell, 'load')}"


def _counts(context: Context, cell: Cell, arm: str) -> Mapping[int, float]:
    """How many values each repetition has."""
    probes, source = frozenset({cell.probe}), Statistic(cell.probe, "n")
    measure = Measure("timing", f"{cell.probe}.values", COUNT, Better.NEITHER, "values", probes, source)
    return context.table.values(measure, cell, arm)


def statistic(name: str) -> Callable[[Context, Cell, str], Shown]:
    """A statistic, the median over repetitions; of a tail that no repetition can tell, that of all values together."""

    def say(context: Context, cell: Cell, arm: str) -> Shown:
        measure = f"{cell.probe}.{name}"
        shown = context.value(measure, cell, arm, compared=name in COMPARED)
        if name not in TAILS or context.values(measure, cell, arm) or not (counts := _counts(context, cell, arm)):
            return shown
        pooled = _pooled_tail(context, cell, arm, TAILS[name], counts)
        return dataclasses.replace(shown, measure=f"{measure}_of_all", estimate=pooled, compared=None)

    return say


def extreme(name: str) -> Callable[[Context, Cell, str], Shown]:
    """The smallest or the largest value of all repetitions, which grows with their number and has no interval."""

    def say(context: Context, cell: Cell, arm: str) -> Shown:
        found = list(context.values(f"{cell.probe}.{name}", cell, arm).values())
        if not found:
            return None
        reason = "over all repetitions; an extreme has no interval"
        most = Estimate.bare(min(found) if name == "min" else max(found), "ns", reason, len(found))
        return context.of(f"{cell.probe}.{name}_of_all", context.place(cell, arm), most, DURATION)

    return say


def _pooled_tail(context: Context, cell: Cell, arm: str, share: float, counts: Mapping[int, float]) -> Estimate:
    needed, samples = samples_needed(share), int(sum(counts.values()))
    if samples < needed:
        return Estimate.missing("ns", f"needs {needed:,} samples, has {samples:,}", len(counts))
    pooled = context.table.distributions.pooled(cell.probe, cell, arm)
    assert pooled is not None, "there are samples"
    values, ns, places, _ = pooled
    of = f"all {samples:,}" if values.n == samples else f"{values.n:,} of {samples:,}"
    reason = f"of {of} samples together; a repetition needs {needed:,} of its own for an interval"
    return Estimate.bare(values.quantile(share) * ns, "ns", reason, places.size)


def mean_of_all(context: Context, cell: Cell, arm: str) -> Shown:
    """The mean of all values, whatever their repetition."""
    mean = context.table.distributions.mean_ns(cell.probe, cell, arm)
    place = context.place(cell, arm)
    return None if mean is None else Value.count(f"{cell.probe}.curve.mean", place, mean, DURATION)


def samples(context: Context, cell: Cell, arm: str) -> Shown:
    """How many values there are, of how many repetitions."""
    counts = _counts(context, cell, arm)
    hint = count(len(counts), "repetition")
    place = context.place(cell, arm)
    return Value.count(f"{cell.probe}.samples", place, sum(counts.values()), hint=hint) if counts else None


def method(context: Context, cell: Cell, arm: str) -> Shown:
    """How the probe says that it measured."""
    return str(context.table.last_result(cell, arm).get("method") or "–")


def highlights(context: Context) -> list[tuple[str, Cell]]:
    """The cells for a first look, each with its measure: per probe one function, under each load."""
    chosen = []
    for probe, preferred in FIRST_CHOICE.items():
        candidates = context.where({"probe": (probe,)})

        def rank(cell: Cell, order: tuple[str, ...] = preferred) -> tuple[int, bool, bool, bool]:
            function = context.level(cell, "function")
            place = order.index(function) if function in order else len(order)
            apart = (context.level(cell, name) != "default" for name in ("slack", "idle_states"))
            return (place, next(apart), context.level(cell, "policy") != "other", next(apart))

        if candidates:
            first = function_label(context, min(candidates, key=rank))
            same = [cell for cell in candidates if function_label(context, cell) == first]
            chosen += [(f"{probe}.p50", cell) for cell in same]
    return chosen


def news(context: Context, arm: str, measured: list[tuple[str, Cell]]) -> list[tuple[str, Cell]]:
    """Of each probe the first, and under other loads what says something new, or could have shown less."""
    kept, first = [], dict[str, Comparison]()
    apart = arm == context.table.reference or not context.ranked(arm)
    for name, cell in measured:
        found = context.table.compared(context.spec.measure(name), cell, arm)
        usual = first.get(name)
        if usual is None or (not apart and _is_news(found, usual)):
            kept.append((name, cell))
        first.setdefault(name, found)
    return kept


def _is_news(found: Comparison, usual: Comparison) -> bool:
    if found.judgement is not usual.judgement:
        return True
    if not found.distinguishable:
        return resolution(found).widest > resolution(usual).widest
    assert found.ratio.point is not None and usual.ratio.point is not None
    return abs(math.log(found.ratio.point / usual.ratio.point)) > math.log(_NEWS)


def glance(context: Context) -> Iterator[Block]:
    """Platforms × the cells of a first look."""
    chosen = highlights(context)
    yield from table_of(
        "",
        (),
        (blocks.Column(context.text(cell, "load"), function_label(context, cell)) for _, cell in chosen),
        (
            Row((), arm.name, tuple(context.value(name, cell, arm.name, compared=True) for name, cell in chosen))
            for arm in (context.arms if chosen else ())
        ),
        "Medians of reading a clock, and of how late a sleep wakes, with the ratio to the reference in the same block. "
        "Coloured ratios differ by more than identical arms (A/A) do, pale ones by less than a tenth; grey ones were "
        "not shown to. An emulated processor shows that the method works, not what the platform can do on hardware, "
        "and is never ranked.",
    )


def _sum(*columns: Column) -> Column:
    """The sum of what is there; NaN where nothing is."""
    told = np.array(columns)
    return np.where(np.isnan(told).all(axis=0), np.nan, np.nansum(told, axis=0))


def _per_second(number: Column, elapsed_ns: Column) -> Column:
    return np.divide(1e9 * number, elapsed_ns, out=np.full_like(number, np.nan), where=elapsed_ns > 0)


def _no_load(cell: Cell) -> str:
    return "there is no load" if cell.factors.get("load", "") in ("idle", "") else ""


def _no_data(cell: Cell) -> str:
    return _no_load(cell) or ("the load moves no data" if cell.factors["load"] == "cpu" else "")


def _achieved(name: str, quantity: Quantity, meaning: str, source: Derived | Field) -> Measure:
    known = "timing", f"load.{name}", quantity, Better.NEITHER, meaning, frozenset(PROBES), source
    return Measure(*known, never=_no_data if name == "bytes" else _no_load)


_NOT_TOLD = Estimate.missing("", "not told")
_MOVED = tuple(field("load", name, factor=1e6) for name in ("read_mb_per_s", "written_mb_per_s"))
_OPERATIONS = Derived((field("load", "operations"), field("load", "elapsed_ns")), _per_second)
_BUSY = field("load", "achieved", "cpu_busy_share", factor=100)
_INTERRUPTS, _SWITCHES = (field("load", "achieved", f"{one}_per_s") for one in ("interrupts", "context_switches"))
ACHIEVED = {
    "CPU busy": _achieved("cpu_busy", SHARE, "of the guest's processors, beside a load", _BUSY),
    "read and written": _achieved("bytes", BYTE_RATE, "what the load read and wrote", Derived(_MOVED, _sum)),
    "operations": _achieved("operations", EVENT_RATE, "what the load did", _OPERATIONS),
    "interrupts": _achieved("interrupts", EVENT_RATE, "of the guest, beside a load", _INTERRUPTS),
    "context switches": _achieved("switches", EVENT_RATE, "of the guest, beside a load", _SWITCHES),
}


def loads(context: Context) -> Iterator[Block]:
    """What each load really achieved: one that could hardly run beside a probe explains its figures."""
    rows = []
    beside = [cell for cell in context.cells if not _no_load(cell)]
    for (load,), cells in context.groups(beside, ("load",)).items():
        for arm in context.arms:
            own = [cell for cell in cells if context.measured(cell, arm.name)]
            if not own:
                continue
            place = context.place(f"*;load={load}", arm.name)
            told = [context.table.last_result(cell, arm.name).get("load") for cell in own]
            named = [one for one in told if isinstance(one, Mapping)]
            service = ", ".join(dict.fromkeys(str(one["service"]) for one in named if one.get("service")))
            instead = "; ".join(dict.fromkeys(str(one["fallback"]) for one in named if one.get("fallback")))
            shown = []
            for one in ACHIEVED.values():
                # Of each repetition the mean over the cells beside the load.
                values = over_cells((context.table.values(one, cell, arm.name) for cell in own), statistics.fmean)
                found = context.median(values.values(), one.quantity) if values else _NOT_TOLD
                shown.append(context.of(one.name, place, found, one.quantity))
            trials = sum(len(context.table.numbers(cell, arm.name)) for cell in own)
            count = Value.count("load.trials", place, trials)
            text = f"{service}: {instead}" if instead else service or "–"
            rows.append(Row((load_label(load),), arm.name, (text, *shown, count)))
    yield from table_of("", ("Load",), (blocks.Column("service", text=True), *ACHIEVED, "trials"), rows)
