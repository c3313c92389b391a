"""Figures of the bandwidth suite over several cells: how far off each platform is, and what its timing does.

In each repetition the median over the cells is taken, so that repetitions stay the unit.
"""

from __future__ import annotations

import dataclasses
import enum
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from virtgauge.analysis import comparison
from virtgauge.analysis.comparison import Comparison, Difference, Judgement
from virtgauge.analysis.estimate import Estimate
from virtgauge.results.columns import Cell
from virtgauge.results.measure import Better, Column, Derived, Field, Measure, durations, field, measures
from virtgauge.results.quantities import BIT_RATE, COUNT, DURATION, SHARE, SIZE, Quantity
from virtgauge.specs.bandwidth_formatting import BASES
from virtgauge.specs.context import Context, over_cells

ESTIMATES = frozenset({"estimate"})
_LACKING = (
    "the sender could not pace the rate, the path gave no answer, the answer is a lower bound and the truth is above "
    "it, or nobody knows the truth, because the path is as it is"
)
_ERROR, _BOUND = field("error_ratio", factor=100), Field(("lower_bound",), flag=True)
_REFUSED = Field(("pacing", "refused"), flag=True)
_ANSWER, _HELD = field("median_mbps"), Field(("covered",), flag=True)
_WIDTH = "searches.half_iqr"


def _signed(error: Column, bound: Column) -> Column:
    """An answer that is a lower bound below the truth is right, and has no error."""
    return np.where((bound == 1) & (error < 0), np.nan, error)


def _covered(held: Column, *error: Column) -> Column:
    return np.where(np.isnan(_signed(*error)), np.nan, held)


def bandwidth_measures() -> Iterator[Measure]:
    """Estimates of available bandwidth, and the truth that was counted meanwhile."""

    def rate(*path: str) -> Field:
        return field(*path, factor=1e6)

    lower, higher, neither = Better.LOWER, Better.HIGHER, Better.NEITHER
    off = "how far the estimate is off the truth, without its sign; a lower bound below the truth has none"
    spread = "half the interquartile range of a trial’s searches"
    mad = "median distance of a trial’s searches from their median"
    refused = Derived((_REFUSED, _ANSWER), lambda no, at: np.where(np.isnan(at), no, 0.0))
    silent = Derived((_REFUSED, _ANSWER), lambda no, at: np.isnan(at) * (1 - np.nan_to_num(no)))
    bounds = Derived((_ERROR, _BOUND), lambda error, bound: (error < 0) * np.nan_to_num(bound))
    covered = Derived((_HELD, _ERROR, _BOUND), _covered)
    holds = "1 where the estimator's own interval holds the truth, 0 where not"
    link_late, dropped = (
        "99th percentile of how late the link emulator let packets go",
        "cross traffic that was dropped",
    )
    paced, carried = rate("pacing", "max_paced_mbps"), rate("pacing", "carried_mbps")
    found = measures(
        *("bandwidth", ESTIMATES),
        ("error", SHARE, lower, off, Derived((_ERROR, _BOUND), lambda *error: np.abs(_signed(*error)))),
        ("signed_error", SHARE, neither, "estimate ÷ truth − 1", Derived((_ERROR, _BOUND), _signed)),
        ("estimate", BIT_RATE, neither, "the available bandwidth as it was estimated", rate("median_mbps")),
        ("truth", BIT_RATE, neither, "the available bandwidth as it was counted", rate("truth_mbps")),
        ("searches.half_iqr", BIT_RATE, lower, spread, rate("half_iqr_mbps")),
        ("searches.mad", BIT_RATE, lower, mad, rate("mad_mbps")),
        ("duration", DURATION, lower, "how long an estimate took", field("duration_ns")),
        ("bytes_sent", SIZE, lower, "what an estimate sent over the path", field("bytes_sent")),
        ("max_paced", BIT_RATE, higher, "the highest rate that was paced, where a trial tells it", paced),
        ("carried", BIT_RATE, neither, "what the path carried at least, where a trial tells it", carried),
        ("refused", COUNT, lower, "1 where the sender could not pace what the path still carried, else 0", refused),
        ("no_answer", COUNT, lower, "1 where the path gave no answer, else 0", silent),
        ("bounds", COUNT, neither, "1 where the answer is a lower bound below the truth, else 0", bounds),
        ("intervals.covered", COUNT, higher, holds, covered),
        ("discarded", COUNT, lower, "trains that were repeated", field("discarded")),
        ("foreign_packets", COUNT, lower, "packets of others that came to the estimator", field("foreign_packets")),
        ("path.cross_dropped", COUNT, neither, dropped, field("cross", "dropped")),
        ("path.capacity", BIT_RATE, neither, "the capacity as it was measured", rate("capacity", "measured_mbps")),
        ("path.cross_traffic", BIT_RATE, neither, "the cross traffic as counted", rate("cross", "counted_mbps")),
        ("path.link_lateness.p99", DURATION, lower, link_late, field("link", "lateness_p99_ns")),
        headline=("error",),
    )
    # The ratio of two errors says little, and of counts most are 0.
    for one in found:
        of_estimate = one.quantity is not COUNT and not one.name.startswith("path.")
        lacking = _LACKING if of_estimate else ""
        yield dataclasses.replace(one, by_difference=one.quantity in (SHARE, COUNT), lacking=lacking)
    yield from durations("bandwidth", "send_lateness", "how late packets were sent", ESTIMATES, "lateness")


class Detail(NamedTuple):
    """What no measure has of a trial; instant estimates in bit/s."""

    instants: tuple[float, ...]
    method: str
    stamp: str
    refusal: str
    link: Mapping[str, Any]
    shim: Mapping[str, Any]


_PATHS = (("instants",), ("pacing", "method"), ("stamp",), ("hptime_fallback_reason",), ("link",), ("shim",))


def _detail(instants: Any, method: Any, stamp: Any, refusal: Any, link: Any, shim: Any) -> Detail:
    rates = tuple(float(one["mbps"]) * 1e6 for one in instants or ())
    return Detail(rates, str(method or ""), str(stamp or ""), str(refusal or ""), link or {}, shim or {})


def details(context: Context, cell: Cell, arm: str) -> dict[int, Detail]:
    """The details of each repetition."""
    return context.table.details(cell, arm, _PATHS, _detail)


def total(context: Context, name: str, cells: Sequence[Cell], arm: str) -> float:
    """The sum of what is counted, over all trials of some cells."""
    return sum(sum(context.values(name, cell, arm).values()) for cell in cells)


def estimated(context: Context, cell: Cell, arm: str) -> bool:
    """Whether most of the valid trials could pace what the path carries, and were answered."""
    return not _half(context, cell, arm, "refused", "no_answer")


def _half(context: Context, cell: Cell, arm: str, *names: str) -> bool:
    """Whether half of the valid trials or more are counted under these names."""
    return 2 * sum(total(context, name, [cell], arm) for name in names) >= len(context.table.numbers(cell, arm))


def at_least(context: Context, cell: Cell, arm: str) -> str:
    """A note where most answers are lower bounds, and where the path gave none."""
    bounds, silent = (round(total(context, name, [cell], arm)) for name in ("bounds", "no_answer"))
    trials = len(context.table.numbers(cell, arm))
    said = {"a lower bound": 2 * bounds > trials, f"no answer in {silent} of {trials}": silent > 0}
    return ", ".join(words for words, holds in said.items() if holds)


def cannot_pace(context: Context, cell: Cell, arm: str) -> str:
    """A note where the sender refused."""
    number = round(total(context, "refused", [cell], arm))
    return f"cannot pace more in {number} of {len(context.table.numbers(cell, arm))}" if number else ""


def named(context: Context, cell: Cell, *, timed: bool = True) -> str:
    """``kite2, hptime, gso``; the estimator where there are several, or where nothing else is said."""
    factors = ("estimator", "timed", "pacing") if timed else ("estimator", "pacing")
    several = len({context.level(one, "estimator") for one in context.cells}) > 1
    said = [context.text(cell, one) for one in factors if one != "estimator" or several or not timed]
    return ", ".join(filter(None, said))


PerCell = Mapping[Cell, Mapping[int, float]]  # A figure by cell and block


def _of(context: Context, name: str, cells: Sequence[Cell], arm: str, timing: str = "") -> PerCell:
    """A figure of those cells that have it; with a timing, of the cell that has that instead."""
    found = {cell: context.values(name, cell.at(timing=timing) if timing else cell, arm) for cell in cells}
    return {cell: values for cell, values in found.items() if values}


def _paired(test: PerCell, base: PerCell, figure: Callable[[float, float], float | None]) -> PerCell:
    """A figure of two, wherever a cell has both in a block and they have such a figure."""
    found: dict[Cell, dict[int, float]] = {}
    for cell in (one for one in test if one in base):
        own, other = test[cell], base[cell]
        for block in own.keys() & other.keys():
            if (value := figure(own[block], other[block])) is not None:
                found.setdefault(cell, {})[block] = value
    return found


def _first(one: float, other: float) -> float:
    return one


def _over(one: float, other: float) -> float | None:
    return one / other if other else None


def _from_zero(context: Context, differences: PerCell, identical: Sequence[Sequence[Cell]]) -> Difference:
    """With the band of what the A/A pair's errors, without their signs, differ by over cells."""
    found, nominal, bands = over_cells(differences.values()), context.table.confidence, []
    for cells in identical if found else ():
        again, once = (_of(context, "error", cells, arm) for arm in (context.table.aa, context.table.reference))
        apart = over_cells(_paired(again, once, operator.sub).values())
        bands.append(comparison.paired_difference(apart, dict.fromkeys(apart, 0.0), SHARE.unit, nominal))
    band = comparison.band_of(bands)
    return comparison.compare_differences(found, dict.fromkeys(found, 0.0), band, SHARE.unit, nominal)


def _median(context: Context, figures: PerCell, quantity: Quantity = SHARE) -> Estimate:
    return context.median(over_cells(figures.values()).values(), quantity)


class Accuracy(NamedTuple):
    """How far off one arm is with one estimator (or all), one timing, one way of swapping it."""

    arm: str
    estimators: tuple[str, ...]
    timing: str
    through: str
    cells: int  # with estimates; ``refused``: cells that cannot be paced
    refused: int
    off: Estimate  # error without its sign, in per cent
    no_truth: bool  # all its paths are as they are
    # covered, intervals: of all trials' own intervals those that hold the truth
    covered: int
    intervals: int
    sent: Estimate
    duration: Estimate
    # ``off`` less the reference's, over the cells that both have; None of the reference itself
    beside: Difference | None


def accuracies(context: Context) -> list[Accuracy]:
    """For every estimator, timing and way of swapping it, and then over all estimators together; by arm."""
    groups: dict[tuple[tuple[str, ...], str], list[Cell]] = {}
    for cell in context.cells:
        groups.setdefault(((context.level(cell, "estimator"),), context.level(cell, "timed")), []).append(cell)
    for timed in dict.fromkeys(timed for _, timed in groups):
        cells = context.where({"timed": (timed,)})
        groups.setdefault((tuple(dict.fromkeys(context.level(one, "estimator") for one in cells)), timed), cells)
    return [
        _accuracy(context, arm.name, estimators, own)
        for arm in context.own_arms
        for (estimators, _), cells in groups.items()
        if (own := [cell for cell in cells if context.measured(cell, arm.name)])
    ]


def _accuracy(context: Context, arm: str, estimators: tuple[str, ...], cells: Sequence[Cell]) -> Accuracy:
    errors, gave = (_of(context, name, cells, arm) for name in ("error", "estimate"))
    held = [one for values in _of(context, "intervals.covered", cells, arm).values() for one in values.values()]
    # Of the trials that gave an estimate.
    sent, duration = (_paired(_of(context, name, cells, arm), gave, _first) for name in ("bytes_sent", "duration"))
    beside = None
    if arm != context.table.reference and errors:
        reference = _of(context, "error", [*errors], context.table.reference)
        beside = _from_zero(context, _paired(errors, reference, operator.sub), [[*errors]])
    return Accuracy(
        *(arm, estimators, context.level(cells[0], "timing"), context.level(cells[0], "through")),
        cells=len(errors),
        refused=sum(_half(context, cell, arm, "refused") for cell in cells),
        off=_median(context, errors),
        no_truth=not any(_of(context, "truth", cells, arm).values()),
        covered=round(sum(held)),
        intervals=len(held),
        sent=_median(context, sent, SIZE),
        duration=_median(context, duration, DURATION),
        beside=beside,
    )


class Help(enum.StrEnum):
    """What another timing does for an estimate."""

    ENABLES = "makes it possible"
    HELPS = "helps"
    SAME = "no difference shown"
    HURTS = "hurts"
    LOST = "makes it impossible"
    REFUSED = "neither can pace it"
    SILENT = "neither gives an estimate"
    OPEN = "open"


class Effect(NamedTuple):
    """One timing against another on one arm, in pairs of trials of the same repetition, in one cell or over several."""

    arm: str
    cells: tuple[Cell, ...]  # with the tested timing
    through: str
    timing: str
    base: str
    pairs: int  # cells that have any
    # off, base_off: errors without their sign, in per cent, of the repetitions that have both
    off: Estimate
    base_off: Estimate
    error: Difference  # difference of these; less is better
    width: Estimate  # half the interquartile range with the tested timing
    spread: Comparison  # ratio of the half interquartile ranges
    # enabled, lost: cells in which only the tested, or only the other timing gives estimates
    enabled: int
    lost: int
    help: Help | None  # what follows in one cell; None over several


def effects(context: Context) -> list[Effect]:
    """Of every cell that was tried with a base timing, too."""
    found, tried = [], set(context.cells)
    for arm in (one.name for one in context.own_arms):
        for cell in context.cells:
            base = next((base for base in BASES if cell.at(timing=base) in tried), None)
            if base is None or context.level(cell, "timing") == base:
                continue
            if context.measured(cell, arm) and context.measured(cell.at(timing=base), arm):
                found.append(_effect(context, arm, [cell], base))
    return found


def pooled_effects(context: Context) -> list[Effect]:
    """The same over all cells of an arm, by timing and way of swapping it."""
    groups: dict[tuple[str, str, str, str], list[Effect]] = {}
    for one in context.once(effects):
        groups.setdefault((one.arm, one.through, one.timing, one.base), []).append(one)
    return [_effect(context, key[0], [one.cells[0] for one in group], key[3], group) for key, group in groups.items()]


def _effect(context: Context, arm: str, cells: Sequence[Cell], base: str, group: Sequence[Effect] = ()) -> Effect:
    """In one cell; over several, of whose effects ``group`` is."""
    off, base_off = _of(context, "error", cells, arm), _of(context, "error", cells, arm, base)
    paired = _paired(off, base_off, operator.sub)
    keys = [cell for cell in cells if cell in paired]
    error = _from_zero(context, paired, [keys, [cell.at(timing=base) for cell in keys]])
    first, other = cells[0], cells[0].at(timing=base)
    spread = context.table.compared(context.spec.measure(_WIDTH), first, arm, (other, arm))
    return Effect(
        *(arm, tuple(cells), context.level(first, "through"), context.level(first, "timing"), base),
        pairs=len(keys),
        off=_median(context, _paired(off, base_off, _first)),
        base_off=_median(context, _paired(base_off, off, _first)),
        error=error,
        width=_median(context, _of(context, _WIDTH, keys if group else cells, arm), BIT_RATE),
        spread=_pooled_spread(context, arm, keys, base) if group else spread,
        enabled=sum(one.help is Help.ENABLES for one in group),
        lost=sum(one.help is Help.LOST for one in group),
        help=None if group else _help(context, arm, first, other, error),
    )


def _pooled_spread(context: Context, arm: str, cells: Sequence[Cell], base: str) -> Comparison:
    table, both = context.table, [*cells, *(cell.at(timing=base) for cell in cells)]
    own, other = _of(context, _WIDTH, cells, arm), _of(context, _WIDTH, cells, arm, base)
    ratios = over_cells(_paired(own, other, _over).values())
    again, once = (_of(context, _WIDTH, both, name) for name in (table.aa, table.reference))
    found = over_cells(_paired(again, once, _over).values())
    aa = comparison.paired_ratio(found, dict.fromkeys(found, 1.0), table.confidence) if table.aa else None
    return comparison.compare(ratios, dict.fromkeys(ratios, 1.0), aa, "ratio", table.confidence)


def _help(context: Context, arm: str, cell: Cell, base: Cell, error: Difference) -> Help:
    gives, gave = (estimated(context, one, arm) for one in (cell, base))
    if not gives and not gave:
        return Help.SILENT if total(context, "no_answer", [cell, base], arm) else Help.REFUSED
    if gives != gave:
        return Help.ENABLES if gives else Help.LOST
    if not error.estimate.has_interval:
        return Help.OPEN
    return {Judgement.LOWER: Help.HELPS, Judgement.HIGHER: Help.HURTS}.get(error.judgement, Help.SAME)
