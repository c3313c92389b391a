"""What the paper's text (Rzecki et al. 2014) states in figures, and our figures of the same kind beside it."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from virtgauge.claims.figures import Figure, Figures
from virtgauge.claims.model import Cells, Level, Range, claim_file
from virtgauge.claims.papers import RESOURCES, check_claims
from virtgauge.claims.verdicts import ClaimCheck
from virtgauge.ledger.records import ArmRecord
from virtgauge.reference import IsolationFigure, isolation_figures, table
from virtgauge.results.columns import Cell
from virtgauge.results.formatting import share
from virtgauge.results.quantities import RATIO
from virtgauge.specs import isolation_formatting as labels
from virtgauge.specs.blocks import Block, Row, Shown, Text, Value, table_of
from virtgauge.specs.context import Context
from virtgauge.specs.isolation_formatting import LOADING, NOTHING, TESTED, Policy, Resource
from virtgauge.specs.isolation_work import is_free, reference

_DHRYSTONE = "dhrystone"
_RESOURCES: dict[Resource, str] = {Resource.CPU: "cpu", Resource.MEMORY: "memory", Resource.DISK: "disk"}
_CROSS, _DIAMOND = "M-1,-1L1,1M-1,1L1,-1", "diamond"
_SMALLEST = 0.05  # The paper's smallest share; where it speaks of low ones without a figure, its lines begin here


def _is_about(figure: IsolationFigure, cell: Cell) -> bool:
    """Whether a figure is about what a cell of ours is of, with whatever share."""
    # A limit alone is no promise beside a load; without one it is all that acts.
    load, factors = RESOURCES.get(figure.load, figure.load), cell.factors
    return (
        paper_benchmark(cell) == RESOURCES.get(figure.benchmark, figure.benchmark)
        and load in paper_loads(factors["load"])
        and (figure.benchmark != _DHRYSTONE or factors["benchmark"] == "integer")
        and (figure.load != _DHRYSTONE or factors["load"] == "integer")
        and factors["intensity"] in labels.FULL_TIME
        and factors["policy"] in ((Policy.BOTH, Policy.LIMIT) if load == "none" else (Policy.BOTH,))
        and factors["on"] == figure.on
    )


def _stated(figure: IsolationFigure) -> dict[str, float]:
    """What a figure says of q, by how: ``at least``, ``at most``, or just that."""
    if figure.q_low == figure.q_high:
        return {} if figure.q_low is None else {"": figure.q_low}
    ends = {"at least": figure.q_low, "at most": figure.q_high}
    return {bound: q for bound, q in ends.items() if q is not None}


def paper_benchmark(cell: Cell) -> str | None:
    """What the paper would call a benchmark of ours; None for one that it does not have."""
    return _RESOURCES.get(labels.about(cell))


def paper_loads(load: str) -> frozenset[str]:
    """What the paper would call a load of ours; empty for one that it does not have."""
    if load == NOTHING:
        return frozenset({"none"})
    if load.startswith("memory-"):
        return frozenset({"memory", "memory-write"} if load.startswith("memory-write-") else {"memory"})
    if load == "flush" or labels.resource_of(load) is Resource.DISK:
        return frozenset({"disk"})
    return frozenset({"cpu"}) if load in ("integer", "floating") else frozenset()


def published(context: Context) -> Iterator[Block]:
    """Every published figure and those of each arm; of several the lowest, or the highest where it is an upper end."""
    arms = context.own_arms
    rows = []
    for figure in isolation_figures():
        parts = (figure.processor, figure.energy_saving, figure.benchmark, figure.load, figure.on, figure.share)
        name = "/".join(map(str, parts))
        low, high = figure.shares
        cells = [
            cell
            for cell in context.cells
            if _is_about(figure, cell) and low - 1e-9 <= float(cell.factors["share"]) / 100 <= high + 1e-9
        ]
        place = context.place("*", "", "paper", paper=name)
        shown = (
            Value.count("published.q_low", place, figure.q_low, RATIO),
            Value.count("published.q_high", place, figure.q_high, RATIO),
            *(_ours(context, figure, cells, arm.name, name) for arm in arms),
        )
        saving = "\nenergy saving" if figure.energy_saving else ""
        of = f"{figure.benchmark}, {'no' if figure.load == 'none' else figure.load} load"
        declared = "several" if figure.share is None else f"{labels.percent(figure.share)} on the {figure.on} guest"
        heads = figure.processor + saving, "\n".join(filter(None, (of, figure.note))), declared
        rows.append(Row(heads, "", shown))
    columns = ("published q", "to", *(arm.label for arm in arms))
    yield from table_of("", ("Published of", "Benchmark, load", "Declared"), columns, rows)
    yield Text((table("isolation").source.citation,))


def _ours(context: Context, figure: IsolationFigure, cells: list[Cell], arm: str, name: str) -> Shown:
    found = {cell: context.estimate("q", cell, arm) for cell in cells}
    own = {cell: one for cell, one in found.items() if one.point is not None}
    if not own:
        return None
    highest = figure.q_low is None and figure.q_high is not None
    cell = (max if highest else min)(own, key=lambda cell: own[cell].point or 0.0)
    declared = labels.percent(float(cell.factors["share"]) / 100)
    hint = f"{labels.benchmark_text(cell.factors['benchmark'])}, {labels.beside(cell)}, {declared}"
    of_several = f"the {'highest' if highest else 'lowest'} of {len(own)}: {hint}" if len(own) > 1 else ""
    place = context.place("*" if of_several else cell, arm, "paper", paper=name)
    return context.of("published.q", place, own[cell], RATIO, hint=of_several or hint)


def _left(declared: float, on: str) -> float:
    """The share that is meant for the tested guest."""
    return round(1 - declared, 9) if on == LOADING else declared


def _guides(context: Context, cells: Sequence[Cell], due: Callable[[float, str], float]) -> Iterator[dict[str, Any]]:
    """What was declared, and what the paper states of such cells: marks where it names the share, else lines."""
    cell = cells[0]
    if cell.factors["policy"] != Policy.DISK_LIMIT:
        for declared in (0.0, 1.0):
            up = due(declared, cell.factors["on"])
            yield {"kind": "guide", "of": "due", "across": 100 * declared, "up": up, "t": "as declared"}
    for figure in isolation_figures():
        if _is_about(figure, cell):
            yield from _published_rows(figure, due)


guides_of_q = functools.partial(_guides, due=lambda declared, on: 1.0)
guides_of_work = functools.partial(_guides, due=_left)
"""The same of the work itself."""


def _published_rows(figure: IsolationFigure, due: Callable[[float, str], float]) -> Iterator[dict[str, Any]]:
    for bound, q in _stated(figure).items():
        at = "" if figure.share is None else f" at {labels.percent(figure.share)}"
        saving = ", energy saving" if figure.energy_saving else ""
        told = {"t": f"{figure.processor}{saving}: q {f'{bound} ' if bound else ''}{share(q)}{at}", "name": ""}
        if figure.share is not None:
            shape = _DIAMOND if figure.energy_saving else _CROSS
            place = {"x": 100 * figure.share, "y": q * due(figure.share, figure.on)}
            yield {"kind": "published", "arm": "paper", "shape": shape} | place | told
            continue
        least, greatest = figure.shares
        for declared in (max(least, _SMALLEST), greatest):
            line = f"{figure.processor} {figure.benchmark} {figure.load} {bound}"
            place = {"across": 100 * declared, "up": q * due(declared, figure.on)}
            yield {"kind": "guide", "of": line} | place | told


_UNFIT = {
    "policy-no-effect": "whose policy was not in force",
    "fits-a-cache": "whose block a cache may hold",
    "one-core": "of guests on one core",
}
"""Flags of trials that tell nothing of a policy, of memory, or of guests that contend for it, and what they say."""
_OF_MEMORY = frozenset({"fits-a-cache", "one-core"})
_NOTHING_LOST = 0.001  # A loss that cannot be told from none
_CLOCK_CHANGED = 0.03
"""Relative: a smaller change of the clock within a trial is taken for none, as by the suite's flag."""


def claims(context: Context) -> tuple[ClaimCheck, ...]:
    """The conclusions, checked for each platform that is not emulated by its own figures."""
    used = [arm for arm in context.usable_arms if not arm.emulated]
    return check_claims("isolation", {arm.name: _figures(context, arm) for arm in used})


def _figures(context: Context, arm: ArmRecord) -> Figures:
    cells = [cell for cell in context.cells if context.values("effort", cell, arm.name)]
    references = [cell for cell in cells if cell == reference(cell) and labels.about(cell) is Resource.CPU]
    known: dict[str, bool] = {}
    for cell in references:
        if changes := context.values("frequency_ratio", cell, arm.name).values():
            changed = abs(statistics.median(changes) - 1) > _CLOCK_CHANGED
            known[_governor(cell)] = known.get(_governor(cell), False) or changed
    # Of a governor without a reference nothing is known but what the others do.
    saving = {_governor(cell): known.get(_governor(cell), any(known.values())) for cell in cells}
    cases = {*saving.values()} or {False}
    found = [
        (one, unfit)
        for cell in cells
        for unfit in (_unfit(context, cell, arm),)
        for one in _of_cell(context, cell, arm, saving[_governor(cell)])
    ]
    file, confidence = claim_file("isolation"), context.table.claims_confidence
    left_out = {flag: Figures(file, [one for one, unfit in found if flag in unfit], confidence) for flag in _UNFIT}

    def missing_reason(measure: str, at: Cells) -> str:
        if at.get("hypervisor", arm.hypervisor) != arm.hypervisor:
            return "said of Hyper-V, which this is not"
        wanted = at.get("energy_saving")
        if isinstance(wanted, bool) and wanted not in cases:
            verb, case = ("keeps", "with") if wanted else ("changes", "without")
            return f"the processor {verb} its clock here: the paper’s case {case} energy saving does not arise"
        share = at.get("share")
        where = f", a share of {labels.percent(share)}" if isinstance(share, float) else ""
        if isinstance(share, Range):
            ends = max(share.at_least, 0.0), min(share.at_most, 1.0)
            where = f", shares from {' to '.join(map(labels.percent, ends))}"
        named = {
            name: " or ".join(level) if isinstance(level, tuple) else str(level)
            for name in ("resource", "beside", "policy", "on")
            if (level := at.get(name, {"policy": Policy.BOTH, "on": TESTED}.get(name, "")))
        }
        loads = named.get("beside", "").split(" or ")
        others = " or ".join("no load" if load == "none" else f"{load} load" for load in loads)
        told = f"{named.get('resource', '')} beside {others}, {named['policy']} on the {named['on']} guest"
        cores = at.get("cores", ())
        levels = cores if isinstance(cores, tuple) else (str(cores),)
        placed = f", {' or '.join(map(labels.cores_text, levels))}" if levels else ""
        unfit = " or ".join(_UNFIT[flag] for flag, figures in left_out.items() if figures.select(measure, at))
        return f"not measured: {told}{where}{placed}{unfit and f'; trials {unfit} decide nothing'}"

    return Figures(file, [one for one, unfit in found if not unfit], confidence, missing_reason)


def _unfit(context: Context, cell: Cell, arm: ArmRecord) -> AbstractSet[str]:
    """The flags for which a cell decides nothing; empty where it does."""
    found = context.table.endings.flags([cell], arm.name, counted=True).keys() & _UNFIT.keys()
    return found if labels.about(cell) is Resource.MEMORY else found - _OF_MEMORY


def _governor(cell: Cell) -> str:
    """The governor of the processor's frequency; empty where the plan chose none."""
    return cell.factors.get("governor", "")


def _of_cell(context: Context, cell: Cell, arm: ArmRecord, saving: bool) -> Iterator[Figure]:
    resource, loads, factors = paper_benchmark(cell), paper_loads(cell.factors["load"]), cell.factors
    if resource is None or not loads or factors["intensity"] not in labels.FULL_TIME:
        return
    share = float(factors["share"]) / 100
    # Without a policy no guest has it and no share is declared: such a figure is of whichever is meant.
    levels: dict[str, Level] = {
        "benchmark": labels.benchmark_of(cell),
        "load": labels.beside(cell),
        "cores": factors["cores"],
        "policy": factors["policy"],
        "on": (TESTED, LOADING) if is_free(cell) else factors["on"],
        "share": Range() if is_free(cell) else share,
        "governor": _governor(cell),
    }
    facts: dict[str, Level] = {
        "resource": resource,
        "beside": tuple(sorted(loads)),
        "energy_saving": saving,
        "left": _left(share, factors["on"]),
        "hypervisor": arm.hypervisor,
    }
    for measure in claim_file("isolation").measures:
        values = functools.partial(_values, context, measure, cell)
        yield from context.claim_figure(measure, levels, values, arm, facts=facts)


def _values(context: Context, measure: str, cell: Cell, arm: str) -> Mapping[int, float]:
    found = context.claimed(measure, cell, arm)
    if measure != "loss":
        return found
    # the CPU's is what the memory's is set against, so it must be more than nothing
    lost = {block: 1 - q for block, q in found.items()}
    if labels.about(cell) is Resource.CPU:
        return lost if min(lost.values(), default=0) > _NOTHING_LOST else {}
    return {block: max(value, _NOTHING_LOST) for block, value in lost.items()}
