"""Kirova et al. 2019: its figures of clocks and sleeps beside this run's, and this run's in the terms of its claims."""

from __future__ import annotations

import functools
import itertools
import math
import statistics
from collections.abc import Collection, Iterator
from typing import Any

from virtgauge.claims.figures import Figure, Figures, fits
from virtgauge.claims.model import Cells, CellTest, Level, claim_file
from virtgauge.claims.papers import check_claims
from virtgauge.claims.verdicts import ClaimCheck
from virtgauge.ledger.records import NS_PER_UNIT, TAILS, ArmRecord
from virtgauge.reference import TIMING, TimingFigure, timing_figures
from virtgauge.reference import table as paper_table
from virtgauge.results.columns import Cell
from virtgauge.results.formatting import duration
from virtgauge.results.quantities import DURATION
from virtgauge.results.table import Blocks
from virtgauge.specs.blocks import Block, Column, Row, Text, Value, table_of
from virtgauge.specs.context import Context
from virtgauge.specs.timing_insights import USUAL, cell_label, load_label, statistic

_TABLES = {"timer_cost": "timer_cost", "sleep_lateness": "sleep_miss"}  # The paper's table of each probe
_FUNCTIONS = {"rdtscp": "TSC", "clock_gettime": "System Call", "usleep": "uSleep", "highpertimer": "HPTSleep"}
_LOADS = {"idle": "Idle System", "cpu": "CPU-bound", "io": "IO/network-bound"}
_ORDER = [*_FUNCTIONS.values(), *_LOADS.values()]
_HYPERVISORS = {"qemu": "QEMU", "xen": "Xen", "vbox": "VBox", "esx": "ESXi"}
_WORDS = {"VBox": "Virtual Box", "ESXi": "VMware ESXi", "Host OS": "host"}
_PLAIN_RUNTIMES = ("runc", "crun", "youki")
_CPU_TIME = "sleep_lateness.cpu_per_sleep"
_CPU_SHARE = "cpu_share"  # CPU time of a sleep, of the time that it should take
_TAIL, _LEAST_TAIL = "p99.9", "at least p99.9"
_CONFIDENCE = 0.95  # Of what a trial's p99.9 is at least
_FEW = "trials of fewer than 10,000 sleeps tell only what the 99.9th percentile is at least"
_TARGET_NS = 1e7
"""Of the paper's sleeps, of which it says no length: longer than a tick, so that HPTSleep is asleep at first and awake
at last.  Where several were measured, the nearest one is taken."""

_LONGEST_NS = 1e12  # Any sleep is shorter
_LEAST_SHARED_NS = 67 * 10_000_000
"""From which length on HPTSleep, awake for a tick of at most 10 ms (100 Hz), may take the paper's 1.5 % of the CPU."""

_REFUSED = frozenset({"hptime-refused"})
_AWAKE = 0.9  # HPTSleep that is on the CPU for so much of its length, with nothing beside it, has only spun
_SHORTEST_TICK_NS = 1e6  # HighPerTimer takes the tick for this at least (1000 Hz)

Place = tuple[str, str, str, str]  # Table, function, arm and load


def _published(context: Context, cells: list[Cell]) -> Iterator[tuple[Cell, str, TimingFigure]]:
    """The paper's figures of the same function, load and kind of platform; the A/A arm has none of its own."""
    for cell in cells:
        if cell.probe not in _TABLES or not context.fits(cell, USUAL):
            continue
        function, load = _FUNCTIONS.get(context.level(cell, "function")), _LOADS.get(context.level(cell, "load"))
        for arm in context.own_arms:
            platform = "Host OS" if arm.kind == "host" or arm.physical else _HYPERVISORS.get(arm.hypervisor)
            if platform and context.table.tried(cell, arm.name):
                for one in timing_figures(_TABLES[cell.probe]):
                    if (one.function, one.load, one.platform) == (function, load, platform):
                        yield cell, arm.name, one


def published(context: Context) -> Iterator[Block]:
    """The paper's figures, and this run's beside them."""
    rows = []
    for cell, arm, one in _published(context, context.cells):
        of, table = (one.function, one.platform, one.load), f"{TIMING.short}, {paper_table(_TABLES[cell.probe]).place}"
        place = context.place("*", arm, "paper", paper="/".join((table, *of)))
        told = [
            Value.count(f"published.{part}", place, getattr(one, part), DURATION)
            for part in ("median_ns", "half_iqr_ns", "min_ns", "max_ns")
        ]
        ours = [statistic(part)(context, cell, arm) for part in ("p50", "half_iqr", "min", "max")]
        rows.append(Row((cell_label(context, cell),), arm, (", ".join(of), *told, *ours)))
    parts = ("median", "half IQR", "minimum", "maximum")
    columns = [Column(part, group) for group in ("published", "this run") for part in parts]
    yield from table_of("", ("Measured",), [Column("as", "published", text=True), *columns], rows)
    if rows:
        yield Text((TIMING.citation,))


def published_dots(context: Context, cells: list[Cell]) -> Iterator[dict[str, Any]]:
    """The paper's medians, in the band of their load."""
    order = list(dict.fromkeys(context.level(cell, "load") for cell in cells))
    for cell, _, one in _published(context, cells):
        load = context.level(cell, "load")
        told = f"{one.function}, {one.platform}, {one.load}: {duration(one.median_ns)}"
        mark = {"kind": "published", "arm": "paper", "shape": "cross", "label": "published", "t": told}
        yield mark | {"x": one.median_ns, "category": load_label(load), "place": order.index(load)}


def claims(context: Context) -> tuple[ClaimCheck, ...]:
    """The papers' conclusions, checked on all of a run's figures together."""
    cells, longest = _of_the_papers_kind(context), _of_the_papers_kind(context, math.inf)
    names = {place[2] for place in cells}
    measured = {arm.name: arm for arm in context.all_arms if arm.role != "aa" and arm.name in names}
    judged = {name: arm for name, arm in measured.items() if not arm.emulated}

    def missing_reason(measure: str, at: Cells) -> str:
        if why := next((why for why, some in left_out.items() if some.select(measure, at)), ""):
            return why
        if measure == _CPU_SHARE:
            return f"no CPU time of sleeps of {duration(_LEAST_SHARED_NS)} or more is known, and shorter ones take more"
        platform = at.get("platform")
        if isinstance(platform, str) and not any(paper_platform(arm) == platform for arm in judged.values()):
            name = _WORDS.get(platform, platform)
            if unranked := next((arm for arm in measured.values() if paper_platform(arm) == platform), None):
                return f"the only {name} of this run is {unranked.mark}, which decides nothing"
            return f"this run has no {name}"
        if not judged:
            return "emulated platforms decide nothing" if measured else "nothing of it was measured"
        return "not measured here, or with too few values in each trial"

    def cells_of(measure: str) -> dict[Place, Cell]:
        return longest if measure == _CPU_SHARE else cells

    @functools.cache
    def values(table: str, function: str, load: str, measure: str, decides: bool, arm: str) -> Blocks:
        place = table, function, arm, load
        cell = cells_of(measure).get(place)
        if cell is None:
            return {}
        unfit = _unfit(context, cell, arm)[1] if decides else ()
        return {block: value for block, value in measured_values(cell, measure, arm).items() if block not in unfit}

    def measured_values(cell: Cell, measure: str, arm: str) -> Blocks:
        if measure == _CPU_SHARE:
            told = context.level(cell, "target_ns")
            target_ns = int(told) if told.isdecimal() else 0
            if target_ns < _LEAST_SHARED_NS:
                return {}
            spent = context.values(_CPU_TIME, cell, arm)
            return {block: cpu_ns / target_ns for block, cpu_ns in spent.items()}
        if measure == _LEAST_TAIL:
            return _least_tail(context, cell, arm)
        return context.claimed(measure, cell, arm)

    tests = itertools.chain.from_iterable(claim.tests for claim in claim_file("timing").claim)
    tails = [test.cells for test in tests if isinstance(test, CellTest) and test.measure == _TAIL]
    figures: list[Figure] = []
    gaps: dict[str, list[Figure]] = {}
    for place in sorted(cells, key=lambda place: (_ORDER.index(place[1]), _ORDER.index(place[3]))):
        table, function, name, load = place
        asked = [one for one in claim_file("timing").measures if one != _CPU_SHARE or table == "sleep_miss"]
        for measure in asked if name in judged else ():
            arm = judged[name]
            own = paper_platform(arm)
            levels: dict[str, Level] = {"table": table, "function": function, "load": load, "platform": own or name}
            asked_for = measure == _TAIL and any(
                all(fits(level, at[factor]) for factor, level in levels.items() if factor in at) for at in tails
            )
            at_least = asked_for and table == "sleep_miss" and not values(table, function, load, measure, True, name)
            of, everything = (
                functools.partial(values, table, function, load, _LEAST_TAIL if at_least else measure, decides)
                for decides in (True, False)
            )
            plain = not arm.is_virtual and (arm.kind != "oci" or arm.settings.get("runtime") in _PLAIN_RUNTIMES)
            facts: dict[str, Level] = {
                "of_the_paper": own is not None,
                "virtual_or_host": own == "Host OS" or not plain,
            }
            figures += context.claim_figure(
                measure, levels, of, arm, facts=facts, label=arm.label, may_be_higher=_FEW if at_least else ""
            )
            kept, every = len(of(name)), len(everything(name))
            if kept < every:
                why = _unfit(context, cells_of(measure)[place], name)[0]
                lost = f", {load}: {every - kept} of {every} repetitions left out" if kept else " decides nothing"
                gap = context.claim_figure(measure, levels, everything, arm, facts=facts)
                gaps.setdefault(f"HPTSleep on {arm.label}{lost}: {why}", []).extend(gap)
    file, confidence = claim_file("timing"), context.table.claims_confidence
    left_out = {why: Figures(file, some, confidence) for why, some in gaps.items()}
    found = Figures(file, figures, confidence, missing_reason, left_out)
    return check_claims("timing", {"": found})


def _unfit(context: Context, cell: Cell, arm: str) -> tuple[str, Collection[int]]:
    """Why HPTSleep is not what the paper measured, and the blocks of which that is so; both empty where it is.

    No run records the tick of a guest's kernel, but the CPU time of a sleep shows one that is as long.
    """
    if cell.factors["function"] != "highpertimer":
        return "", ()
    if refused := context.table.endings.flagged(cell, arm, _REFUSED):
        return "its counter cannot be trusted, and the system’s clock was read instead", refused
    length_ns = int(context.level(cell, "target_ns"))
    spent = context.values(_CPU_TIME, cell.at(load="idle"), arm) or context.values(_CPU_TIME, cell, arm)
    if statistics.median(spent.values()) < _AWAKE * length_ns if spent else length_ns > _SHORTEST_TICK_NS:
        return "", ()
    why = f"its sleeps of {duration(length_ns)} are no longer than the kernel’s tick, so that it only spins"
    return why, context.table.numbers(cell, arm)


def _least_tail(context: Context, cell: Cell, arm: str) -> Blocks:
    """By block what the p99.9 is at least: few trials are long enough to tell it, and a short one may contradict."""
    return {
        block: one.quantile_at_least(TAILS[_TAIL], _CONFIDENCE) * NS_PER_UNIT[one.unit]
        for block, one in context.table.distributions.histograms(cell.probe, cell, arm)
        if one.n and one.unit in NS_PER_UNIT
    }


def paper_platform(arm: ArmRecord) -> str | None:
    """What the paper calls a platform of this kind; None for one that it does not have."""
    if arm.role == "reference" and arm.is_bare:
        return "Host OS"
    return _HYPERVISORS.get(arm.hypervisor)


def _of_the_papers_kind(context: Context, length_ns: float = _TARGET_NS) -> dict[Place, Cell]:
    """The cells that are the paper's: its functions with a program's default slack and class, and of one length."""
    chosen: dict[Place, tuple[float, Cell]] = {}
    for cell in context.where({**USUAL, "probe": _TABLES, "function": _FUNCTIONS, "load": _LOADS}):
        target = context.level(cell, "target_ns")
        asleep = target.isdigit() and int(target)
        distance = abs(math.log(int(target) / min(length_ns, _LONGEST_NS))) if asleep else 0.0
        for arm in context.arms:
            place = _TABLES[cell.probe], _FUNCTIONS[cell.factors["function"]], arm.name, _LOADS[cell.factors["load"]]
            if place in chosen and distance >= chosen[place][0]:
                continue
            if context.values(f"{cell.probe}.min", cell, arm.name):
                chosen[place] = distance, cell
    return {place: cell for place, (_, cell) in chosen.items()}
