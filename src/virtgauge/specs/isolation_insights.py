"""What is really of isolation: how well each resource is kept apart, what a share brings, and what policies became."""

from __future__ import annotations

import dataclasses
import enum
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from virtgauge.analysis.comparison import aa_band, resolution_of
from virtgauge.analysis.estimate import Estimate, median_estimate
from virtgauge.analysis.resources import smallest_setting
from virtgauge.ledger.records import ArmRecord
from virtgauge.results.columns import Cell
from virtgauge.results.formatting import joined
from virtgauge.results.quantities import COUNT, DURATION, RATIO, SHARE, Quantity
from virtgauge.specs import isolation_formatting as labels
from virtgauge.specs.blocks import Block, Column, Finding, Row, Shown, Text, Value, table_of
from virtgauge.specs.context import Context
from virtgauge.specs.headline import HeadlineFigure, Summary, Tone, figure
from virtgauge.specs.isolation_formatting import LOADING, NOTHING, TESTED, Policy, Resource
from virtgauge.specs.isolation_work import EFFORT, is_alone, is_free, reference, wake_tail

ISOLATED_FROM = 0.95  # Kept of what was promised: from here on a resource counts as isolated
FAIR_SHARE, FAIR_INTERVAL = 0.6, 0.75
"""A guest that keeps no more than this is not isolated: half is what a fair share gives two guests without a policy.
The second bounds the upper end of the interval."""
TARGET_Q = 0.9  # Of the smallest setting
CONSERVING = 0.95  # A guest that gets so much of what it gets without a policy is held back by nothing
SLICE_SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)

_STRENGTH = (
    *((policy, on) for on in (TESTED, LOADING) for policy in (Policy.BOTH, Policy.RESERVATION, Policy.WEIGHT)),
    *((Policy.LIMIT, TESTED), (Policy.LIMIT, LOADING), (NOTHING, NOTHING)),
)
_OF_DISKS = ((Policy.DISK_LIMIT, LOADING), (Policy.DISK_LIMIT, TESTED))
"""Policies and who has them, that which should protect the tested guest best first."""


class Degree(enum.StrEnum):
    """How well a resource is kept apart."""

    ISOLATED = "isolated"
    PARTLY = "partly isolated"
    NOT = "not isolated"
    UNDECIDED = "not decided"
    OPEN = "not measured"


_WORST_FIRST = (Degree.NOT, Degree.PARTLY, Degree.UNDECIDED, Degree.ISOLATED)


class Sentence(NamedTuple):
    """One resource on one arm."""

    arm: ArmRecord
    resource: Resource
    degree: Degree
    text: str  # what is kept, under what, beside what; of a resource that was not measured, why
    worst: Estimate  # what is kept of what was promised, under the load that costs most
    # what identical arms seem to differ by in that cell, as a factor; None where that is not known
    band: float | None = None


def degree_of(kept: Estimate, band: float | None = None) -> Degree:
    """How well a resource is kept apart; what lies within the band of identical arms, a factor, is no difference.

    With the interval that has the confidence for as many figures as it was chosen among.
    """
    if kept.point is None:
        return Degree.OPEN
    low = kept.point if kept.low is None else kept.low
    high = kept.point if kept.high is None else kept.high
    no_difference = high >= 1 or kept.point * (band or 1.0) >= 1
    if low >= ISOLATED_FROM or (kept.point >= ISOLATED_FROM and no_difference):
        return Degree.ISOLATED
    if no_difference:
        return Degree.UNDECIDED
    return Degree.NOT if kept.point <= FAIR_SHARE or high < FAIR_INTERVAL else Degree.PARTLY


def sentences(context: Context) -> list[Sentence]:
    """Every resource on every arm; what was not measured says why."""
    return [_sentence(context, arm, resource) for arm in context.own_arms for resource in Resource]


def measured_resources(found: Iterable[Sentence]) -> list[Resource]:
    """The resources of which anything was measured on any arm."""
    said = {one.resource for one in found if one.degree is not Degree.OPEN}
    return [resource for resource in Resource if resource in said]


def _sentence(context: Context, arm: ArmRecord, resource: Resource) -> Sentence:
    """By the worst of its benchmarks and placements, under the policy that protects it best."""
    tried = [cell for cell in context.cells if labels.about(cell) is resource and context.table.tried(cell, arm.name)]
    done = [cell for cell in tried if context.values("effort", cell, arm.name)]
    loaded = [cell for cell in done if not is_alone(cell)]
    kept = {cell: context.estimate("kept_of_promised", cell, arm.name) for cell in loaded}
    measured = [cell for cell in loaded if kept[cell].point is not None]

    def amount(cell: Cell) -> float:
        return kept[cell].point or 0.0

    if not measured:
        reason = f"the plan has no {'load beside it' if tried else 'benchmark of it'}"
        if loaded:
            reason = kept[loaded[-1]].method
        elif tried and not done:
            reason = context.table.missing_reason(EFFORT, tried[-1], arm.name)
        return Sentence(arm, resource, Degree.OPEN, reason, Estimate.missing("ratio", reason))
    groups = context.groups(measured, ("benchmark", "cores"))
    protected = [cell for group in groups.values() for cell in _best_protected(context, group, resource)]
    bands = {cell: aa_band(context.table.aa_ratio(EFFORT, cell)) for cell in protected}
    # The worst of several is bad by chance more often than one: all of them share the chance of a false one.
    wanted = 1 - (1 - context.table.confidence) / len(protected)
    degrees = {
        cell: degree_of(
            median_estimate([*context.values("kept_of_promised", cell, arm.name).values()], "ratio", wanted),
            bands[cell],
        )
        for cell in protected
    }
    degree = next(one for one in _WORST_FIRST if one in degrees.values())
    cell = min((cell for cell in protected if degrees[cell] is degree), key=amount)
    where = f"beside {labels.beside(cell)} ({labels.cores_text(cell.factors['cores'])})"
    said = labels.kept_text(kept[cell], resource)
    text = "" if is_free(cell) else f"with {labels.under(cell)}, "
    if resource is Resource.WAKE:
        text += f"wake-ups are {said} as without the load at their p{wake_tail(context.table) * 100:.0f}, {where}"
    else:
        of = "its unloaded work" if is_free(cell) or resource is Resource.DISK else "what is promised"
        text += f"{labels.benchmark_text(labels.benchmark_of(cell))} keeps {said} of {of} {where}"
    free = [one for one in groups[labels.benchmark_of(cell), cell.factors["cores"]] if is_free(one)]
    if free and not is_free(cell):
        text += f"; without a policy {labels.kept_text(kept[min(free, key=amount)], resource)}"
    return Sentence(arm, resource, degree, f"{text}.", kept[cell], bands[cell])


def _best_protected(context: Context, group: list[Cell], resource: Resource) -> list[Cell]:
    """The cells under that policy of those tried which should protect the tested guest best."""
    by_policy = context.groups(group, ("policy", "on"))
    order = (*_OF_DISKS, *_STRENGTH) if resource is Resource.DISK else _STRENGTH
    return next((by_policy[place] for place in order if place in by_policy), group)


def _kept_value(context: Context, one: Sentence) -> Value:
    """What is kept, in per cent; of waking up how many times as late it is."""
    name, place = f"resource:{one.resource}", context.place("", one.arm.name)
    coloured = one.degree in (Degree.NOT, Degree.PARTLY) and not one.arm.emulated
    note, hint = one.degree.value if coloured else "", f"{one.degree}: {one.text}"
    if one.resource is Resource.WAKE:
        return context.of(f"{name}.later", place, labels.inverse(one.worst), RATIO, note=note, hint=hint)
    kept = one.worst.mapped(lambda part: 100 * part, "%")
    return context.of(f"{name}.kept", place, kept, SHARE, note=note, hint=hint)


def glance(context: Context) -> Iterator[Block]:
    """What every platform keeps of each resource."""
    found = context.once(sentences)
    resources = measured_resources(found)
    by_arm = {(one.arm.name, one.resource): one for one in found}
    rows = (
        Row((), arm.name, tuple(_kept_value(context, by_arm[arm.name, resource]) for resource in resources))
        for arm in context.own_arms
    )
    tail = 100 * wake_tail(context.table)
    late = f"Of waking up, how many times as late it is at the p{tail:.0f}. " if Resource.WAKE in resources else ""
    if resources:
        yield from table_of(
            "Share of the promise that is kept, beside the load that costs most",
            (),
            (resource.capitalize() if resource is not Resource.CPU else resource for resource in resources),
            rows,
            "Where policies were tried, under that which protects the tested guest best. From "
            f"{ISOLATED_FROM:.0%} on a resource counts as isolated, up to {FAIR_SHARE:.0%} as not isolated. {late}"
            "Emulated platforms are never ranked.",
        )


def resources(context: Context) -> Iterator[Block]:
    """A sentence for each resource and platform."""
    found = context.once(sentences)
    rows = []
    for resource, one in itertools.product(measured_resources(found), found):
        if one.resource is resource:
            place, tail = context.place("", one.arm.name), wake_tail(context.table)
            shown = (
                Finding(f"resource:{resource}.degree", place, one.degree.value),
                _kept_value(context, one),
                Value.count(f"resource:{resource}.band", place, one.band, RATIO),
                Value.count("wake_tail", context.place(""), tail if resource is Resource.WAKE else None),
                one.text[:1].upper() + one.text[1:],
            )
            rows.append(Row((resource.value,), one.arm.name, shown))
    figures = ("kept", "identical arms differ by", "quantile")
    columns = (Column("is it isolated?", text=True), *figures, Column("by how much", text=True))
    yield from table_of("", ("Resource",), columns, rows)


def left_out(context: Context) -> Iterator[tuple[str, str]]:
    """Resources of which nothing is said of any platform."""
    found = context.once(sentences)
    said = measured_resources(found)
    reasons = {one.resource: one.text for one in found}
    yield from ((one.value, reasons[one]) for one in Resource if one in reasons and one not in said)


def said(context: Context, arm: ArmRecord, against: str) -> Summary:
    """The resource that is kept apart worst, and how the others fare."""
    order = _WORST_FIRST
    known = [one for one in context.once(sentences) if one.degree in order]
    own = [one for one in known if one.arm.name == arm.name]
    if not own:
        tried = [cell for cell in context.cells if context.table.tried(cell, arm.name)]
        if not any(context.values("effort", cell, arm.name) for cell in tried):
            reasons = [context.table.missing_reason(EFFORT, cell, arm.name) for cell in tried]
            return Summary(reasons[0] if reasons else "not measured yet", Tone.MISSING)
        if any(not is_alone(cell) for cell in tried):
            return Summary("nothing was measured without load and policy, which isolation is held against", Tone.SAME)
        return Summary("measured without any load, which says nothing of isolation", Tone.SAME)
    own.sort(key=lambda one: (order.index(one.degree), one.worst.point or 0.0))
    first, *others = own
    parts = [f"{first.resource} {first.degree}: {first.text.rstrip('.').partition('; ')[0]}"]
    for degree in order:
        if names := [one.resource.value for one in others if one.degree is degree]:
            parts.append(f"{joined(names)} {degree}")
    against_it = {one.resource: one.degree for one in known if one.arm.name == context.table.reference}

    def better_by(one: Sentence) -> int:
        """How many degrees better than on the reference; none where either is not decided."""
        both = one.degree, against_it.get(one.resource, one.degree)
        return 0 if Degree.UNDECIDED in both else order.index(both[0]) - order.index(both[1])

    steps = [*map(better_by, own)]
    tone = Tone.SLOWER if min(steps) < 0 else Tone.FASTER if max(steps) > 0 else Tone.SAME
    own.sort(key=better_by, reverse=tone is Tone.FASTER)  # What the tone is of comes first
    return Summary("; ".join(parts), tone, tuple(map(_measured, own)))


def _measured(one: Sentence) -> HeadlineFigure:
    """``disk not isolated, keeps 31 % (28–35 %)``, ``wake-up latency not isolated, 8.1× as late (7.9–8.4×)``."""
    keeps = "" if one.resource is Resource.WAKE else "keeps "
    value = f"{one.degree}, {keeps}{labels.kept_text(one.worst, one.resource)}"
    return figure(one.resource.value, value, known=resolution_of(one.worst, one.band))


def absolute(context: Context, cell: Cell, arm: str) -> Shown:
    """The benchmark's own figure in its own unit."""
    values = context.estimate("value", cell, arm)
    if values.point is None:
        return context.of("value", context.place(cell, arm), values, COUNT)
    unit = str(context.table.last_result(cell, arm).get("value_unit", ""))
    quantity = DURATION if unit == "ns" else Quantity(unit, unit, {unit: 1.0}, (unit,))
    return context.of("value", context.place(cell, arm), dataclasses.replace(values, unit=unit), quantity)


def _rates(slices: list[float] | None) -> npt.NDArray[np.float64]:
    return np.array(slices or (), dtype=np.float64)


def slice_of(share: float) -> Callable[[Context, Cell, str], Shown]:
    """Makes a column: a quantile of the rates of 100 ms of all repetitions, of the reference's rate in each."""

    def say(context: Context, cell: Cell, arm: str) -> Shown:
        references = context.values("work", reference(cell), context.table.reference)
        parts = [
            rates / references[block]
            for block, rates in context.table.details(cell, arm, (("slices",),), _rates).items()
            if references.get(block, 0) > 0
        ]
        slices = np.concatenate(parts) if parts else np.empty(0)
        if not slices.size:
            return None
        found = 100 * float(np.quantile(slices, share, method="inverted_cdf"))
        return Value.count(f"slices.p{100 * share:g}", context.place(cell, arm), found, SHARE)

    return say


def blind(context: Context, cell: Cell, arm: str) -> str:
    """A note of trials whose guest was stopped and saw nothing of it."""
    number = context.table.endings.flags([cell], arm).get("guest-blind", 0)
    return f"blind: {number}" if number else ""


def blind_guests(context: Context) -> Iterator[Block]:
    """Platforms whose guests were stopped and saw less than half of it."""
    told = tuple(
        f"{arm.label}: in {number} trials the guest was stopped and sees little or nothing of it. Figures from "
        "within it would be taken for those of more CPU time than it had."
        for arm in context.arms
        if (number := context.table.endings.flags(context.cells, arm.name).get("guest-blind"))
    )
    if told:
        yield Text(told, "Blind", "finding")


def conserving(context: Context, cell: Cell, arm: str) -> Shown:
    """Whether the tested guest gets everything that nobody else uses; nothing where that is open."""
    given = context.estimate("conservation.given", cell, arm)
    low, high = (given.low, given.high) if given.has_interval else (given.point, given.point)
    if low is None or high is None or (high >= CONSERVING and low < CONSERVING):
        return None
    return Finding("conservation.conserving", context.place(cell, arm), "yes" if low >= CONSERVING else "no")


def smallest(context: Context) -> Iterator[Block]:
    """The smallest share of the cores that gives the tested guest an efficiency, wherever several were tried."""
    cells = [
        cell for cell in context.cells if cell.factors["on"] == TESTED and labels.about(cell) in labels.OF_THE_CORES
    ]
    rows = []
    apart = ("benchmark", "cores", "policy", "load", "intensity")
    for group in context.groups([cell for cell in cells if labels.promised(cell) is not None], apart).values():
        for arm in context.own_arms:
            q = {cell: context.estimate("q", cell, arm.name) for cell in group}
            points = {
                float(cell.factors["share"]) / 100: one.point if one.low is None else one.low
                for cell, one in q.items()
                if one.point is not None
            }
            if len(points) > 1:
                heads = (context.text(group[0], "benchmark"), *(context.text(group[0], one) for one in apart[1:3]))
                shown = _smallest(context, group, arm.name, points)
                rows.append(Row((*heads, labels.beside(group[0])), arm.name, shown))
    yield from table_of(
        f"The smallest share that reaches q ≥ {TARGET_Q}",
        ("Benchmark", "Cores", "Policy", "Beside"),
        ("smallest share", Column("which rests on", text=True)),
        rows,
        "From there on the lower end of q’s interval reaches the target at every share that was tried; between two "
        "shares q is taken to change evenly.",
    )


def _smallest(context: Context, group: list[Cell], arm: str, points: Mapping[float, float]) -> tuple[Shown, ...]:
    share = smallest_setting(list(points.items()), TARGET_Q)
    tried = f"{len(points)} shares from {labels.percent(min(points))} to {labels.percent(max(points))}"
    if share is None:
        return "none", f"q is {points[max(points)]:.2f} at {labels.percent(max(points))}, the largest of {tried}"
    largest = next(cell for cell in group if float(cell.factors["share"]) / 100 == max(points))
    place = context.place(largest, arm, target_q=TARGET_Q)
    at_most = share == min(points)
    why = f"the smallest of {tried}; smaller ones may do too" if at_most else f"interpolated between {tried}"
    return Value.count("smallest_setting.share", place, 100 * share, SHARE, note="or less" if at_most else ""), why


def policies(context: Context) -> Iterator[Block]:
    """What was declared for the guest that has a policy, and what the platform said was in force."""
    rows = []
    for arm in context.own_arms:
        last: dict[tuple[str, ...], tuple[Cell, Mapping[str, Any]]] = {}
        for cell in (cell for cell in context.cells if not is_free(cell)):
            told = (context.table.last_result(cell, arm.name).get("policy_applied") or {}).get(cell.factors["on"])
            if told:
                last[tuple(cell.factors[name] for name in ("policy", "on", "share", "cores"))] = cell, told
        for (policy, on, share, cores), (cell, told) in last.items():
            place = context.place(f"*;cores={cores};on={on};policy={policy};share={share}", arm.name)
            knobs = (Finding(f"policy.{name}", place, _knobs(told.get(name))) for name in ("declared", "in_force"))
            said = ("; ".join(map(str, told.get(name) or ())) for name in ("no_effect", "notes"))
            shown = (*(one if one.text else None for one in knobs), *said)
            rows.append(Row((labels.under(cell), labels.cores_text(cores)), arm.name, shown))
    titles = ("declared", "in force", "without effect", "what it means here")
    columns = (Column(title, text=True) for title in titles)
    yield from table_of("", ("Policy", "Cores"), columns, sorted(rows, key=lambda row: row.heads))


def _knobs(told: Mapping[str, Any] | None, prefix: str = "") -> str:
    """``cores=0, 1 cpu_limit=0.5``; what is not bounded is left out."""
    found = []
    for name, value in (told or {}).items():
        if isinstance(value, Mapping):
            found.append(_knobs(value, f"{name}."))
        elif isinstance(value, list | tuple):
            found.append(f"{prefix}{name}={','.join(map(str, value))}")
        elif value is not None:
            found.append(f"{prefix}{name}={value:g}" if isinstance(value, float) else f"{prefix}{name}={value}")
    return " ".join(filter(None, found))
