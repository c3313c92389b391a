"""What the bandwidth suite shows beside measures: counts of a cell, accuracy, effects of timing, paths, and charts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from virtgauge.analysis.distribution import LEAST_VALUES, outliers
from virtgauge.analysis.estimate import Estimate
from virtgauge.ledger.records import ArmRecord
from virtgauge.results.columns import Cell
from virtgauge.results.formatting import interval_text
from virtgauge.results.measure import Better
from virtgauge.results.quantities import BIT_RATE, DURATION, SHARE, SIZE
from virtgauge.specs import bandwidth_figures as figures
from virtgauge.specs import bandwidth_formatting as labels
from virtgauge.specs import blocks
from virtgauge.specs.bandwidth_figures import Effect, named
from virtgauge.specs.bandwidth_paper import published_of
from virtgauge.specs.blocks import Axis, Block, Column, Finding, Row, Shown, Text, Value, chart_of, panels_of, table_of
from virtgauge.specs.context import Context, over_cells

LINK = ("capacity_mbps", "delay_ms", "loss")
PATH = (*LINK, "traffic", "cross_mbps")
LEAST_LEVELS = 3  # Amounts of cross traffic that make a curve; fewer are drawn as strips of the instant estimates
MOST_INSTANTS = 120  # Instant estimates of one strip


def _count(name: str, number: Callable[[Context, Cell, str], float]) -> Callable[[Context, Cell, str], Shown]:
    """A column of what is counted in all trials of a cell."""

    def say(context: Context, cell: Cell, arm: str) -> Shown:
        if not context.measured(cell, arm):
            return None
        return Value.count(name, context.place(cell, arm), number(context, cell, arm))

    return say


def counted(name: str) -> Callable[[Context, Cell, str], Shown]:
    """A column of what is summed up over the trials of a cell."""
    return _count(name, lambda context, cell, arm: figures.total(context, name, [cell], arm))


def _instants(context: Context, cell: Cell, arm: str) -> list[float]:
    return [rate for one in figures.details(context, cell, arm).values() for rate in one.instants]


searches = _count("searches", lambda context, cell, arm: len(_instants(context, cell, arm)))
intervals = _count("intervals", lambda context, cell, arm: len(context.values("intervals.covered", cell, arm)))
"""Trials that gave an interval of their own for an error."""


def beyond_fences(context: Context, cell: Cell, arm: str) -> Shown:
    """The share of outliers of all searches together."""
    values = _instants(context, cell, arm)
    found, n = outliers(values), len(values)
    estimate = Estimate.missing(SHARE.unit, f"needs {LEAST_VALUES} searches, has {n}", n)
    if found is not None:
        estimate = Estimate.bare(100 * sum(found), SHARE.unit, f"of all {n} searches together", n)
    return context.of("searches.outliers", context.place(cell, arm), estimate, SHARE)


def sent_and_stamped(context: Context, cell: Cell, arm: str) -> Shown:
    """How bursts were sent, and what stamped arrivals."""
    names = (name for one in figures.details(context, cell, arm).values() for name in (one.method, one.stamp))
    return ", ".join(dict.fromkeys(filter(None, names)))


def accuracy(context: Context) -> Iterator[Block]:
    """How far off each platform is by estimator and timing, and what an estimate costs."""
    rows = []
    for one in context.once(figures.accuracies):
        names = "+".join(one.estimators)
        place = context.place(f"*;estimator={names};through={one.through};timing={one.timing}", one.arm)
        beside = None if one.beside is None or one.beside.estimate.point is None else one.beside
        shown = (
            context.of("error", place, one.off, SHARE, compared=beside, better=Better.LOWER),
            Value.count("intervals.covered", place, one.covered),
            Value.count("intervals", place, one.intervals),
            Value.count("cells", place, one.cells),
            Value.count("refused", place, one.refused, note="cannot pace" if one.refused else ""),
            context.of("bytes_sent", place, one.sent, SIZE),
            context.of("duration", place, one.duration, DURATION),
        )
        estimators = one.estimators[0] if len(one.estimators) == 1 else "all estimators"
        rows.append(Row((estimators, labels.timed_text(f"{one.timing}|{one.through}")), one.arm, shown))
    order = list(dict.fromkeys(row.heads for row in rows))
    rows.sort(key=lambda row: (row.heads[0] == "all estimators", order.index(row.heads)))
    columns = ("error", "hold the truth", "of intervals", "paths", "not paced", "sent", "took")
    caption = (
        "How far an estimate is off the counted truth, without its sign: the median over paths and then over "
        "repetitions, its interval, and below it the difference from the reference in percentage points; how many "
        "of the estimator’s own intervals hold the truth; paths that cannot be paced; and what a trial with all "
        "its searches sends and takes."
    )
    yield from table_of("", ("Estimator", "Timing"), columns, rows, caption)


def timing(context: Context) -> Iterator[Block]:
    """One timing against another, over all cells and cell by cell."""
    refusals: dict[tuple[str, str], None] = {
        (arm.label, one.refusal): None
        for arm in context.own_arms
        for cell in context.cells
        for one in figures.details(context, cell, arm.name).values()
        if one.refusal
    }
    said = "hptime answers from the system’s clock, so that both timings are the same"
    pooled, single = (
        sorted(context.once(make), key=lambda one: context.cells.index(one.cells[0]))
        for make in (figures.pooled_effects, figures.effects)
    )
    if refusals and single:
        yield Text(tuple(f"{label}: {said}: {reason}" for label, reason in refusals), "Refused", "finding")
    sizes = ("error with it", "with the other", "half the IQR")
    columns = (*sizes, "paths", "made possible", "made impossible")
    rows = [_pooled_row(context, one) for one in pooled]
    yield from table_of("Over all paths and estimators", ("Timing",), columns, rows)
    rows, help_ = [_row(context, one) for one in single], Column("what it does", text=True)
    counts = ("not paced", "of trials", "with the other", "of trials", "paced up to", "with the other")
    yield from table_of("Path by path", ("Timing", "Path"), (help_, *sizes, *counts), rows, folded=len(rows) > 60)


def _sizes(context: Context, one: Effect, place: blocks.Place) -> Iterator[Value]:
    """Of an effect on the error, of the error with the other timing, and of the spread."""
    error = None if one.error.estimate.point is None else one.error
    spread = None if one.spread.difference.point is None else one.spread
    more = (Better.LOWER, context.ranked(one.arm))
    yield Value("timing_effect.error", place, one.off, SHARE, error, *more, hint=one.error.reason)
    yield Value("timing_effect.base_off", place, one.base_off, SHARE)
    yield Value("timing_effect.spread", place, one.width, BIT_RATE, spread, *more, hint=one.spread.reason)


def _pooled_row(context: Context, one: Effect) -> Row:
    place = context.place(f"*;through={one.through};timing={one.timing}", one.arm, f"timing={one.base}")
    counts = {"cells": one.pairs, "enabled": one.enabled, "lost": one.lost}
    shown = (Value.count(f"timing_effect.{name}", place, number) for name, number in counts.items())
    return Row((labels.versus(one.through, one.timing, one.base),), one.arm, (*_sizes(context, one, place), *shown))


def _row(context: Context, one: Effect) -> Row:
    cell, help_ = one.cells[0], "" if one.help is None else one.help.value
    place = context.place(cell, one.arm, f"timing={one.base}")
    counts, paced = list[Shown](), list[Shown]()
    for prefix, at in (("", cell), ("base_", cell.at(timing=one.base))):
        refused, rates = figures.total(context, "refused", [at], one.arm), context.values("max_paced", at, one.arm)
        counts.append(Value.count(f"timing_effect.{prefix}refused", place, refused))
        counts.append(Value.count(f"timing_effect.{prefix}blocks", place, len(context.table.numbers(at, one.arm))))
        paced.append(context.middle(f"timing_effect.{prefix}max_paced", place, rates, BIT_RATE) if rates else None)
    shown = (Finding("timing_effect.help", place, help_), *_sizes(context, one, place), *counts, *paced)
    path = f"{named(context, cell, timed=False)}: {context.text(cell, 'path')}"
    return Row((labels.versus(one.through, one.timing, one.base), path), one.arm, shown)


def paths(context: Context) -> Iterator[Block]:
    """What each path was, over all trials on it: capacity, cross traffic, what was left, and what makes the link."""
    rows = []
    for cells in context.groups(context.cells, PATH).values():
        levels = ";".join(f"{name}={context.level(cells[0], name)}" for name in sorted(PATH))
        for arm in context.own_arms:
            if not any(context.measured(cell, arm.name) for cell in cells):
                continue
            place = context.place(f"*;{levels}", arm.name)
            found = (one.link for cell in cells for one in figures.details(context, cell, arm.name).values())
            links = dict.fromkeys(filter(None, map(_link_text, found)))
            shown: list[Shown] = []
            for name in ("path.truth", "path.capacity", "path.cross_traffic", "path.link_lateness.p99"):
                asked = name.removeprefix("path.") if name == "path.truth" else name
                values = over_cells(context.values(asked, cell, arm.name) for cell in cells)
                quantity = context.spec.measure(asked).quantity
                shown.append(context.middle(name, place, values, quantity) if values else None)
            dropped = figures.total(context, "path.cross_dropped", cells, arm.name) if shown[0] else None
            shown.insert(3, Value.count("path.cross_dropped", place, dropped))
            rows.append(Row((f"{context.text(cells[0], 'path')}\n{' or '.join(links)}",), arm.name, tuple(shown)))
    columns = ("left", "capacity", "cross traffic", "frames of it dropped", "link late, p99")
    yield from table_of("", ("Path",), columns, rows)


def _link_text(link: Mapping[str, Any]) -> str:
    """``TBF, a bucket of 3.03 kB, a queue of 96.9 kB``."""
    kind = str(link.get("kind") or "")
    if kind == labels.AS_IS:
        return "nothing of ours: what it carries is not known"
    parts = [{"emulator": "link emulator"}.get(kind, kind if kind == "netem" else kind.upper())]
    parts += [f"a bucket of {SIZE.text(link['burst_bytes'])}"] if link.get("burst_bytes") else []
    parts += [f"a queue of {SIZE.text(link['limit_bytes'])}"] if link.get("limit_bytes") else []
    return ", ".join(filter(None, parts))


_LEGENDS = {
    "triangle-down": "Triangles: no estimate, the highest rate that could be paced.",
    "stroke": "Dashes: what was available, counted.",
    "cross": "Crosses: what the paper states, measured on other hardware.",
}


def against_cross(context: Context) -> Iterator[Block]:
    """Medians and spreads over the cross traffic, in the manner of the paper's Figure 16."""
    what = (
        ("estimate", "Medians", "(a).", "estimate"),
        ("searches.half_iqr", "Spread", "(b): half the interquartile range, which it calls MAD.", "half the IQR"),
    )
    for cells in context.groups(context.cells, LINK).values():
        for kind in dict.fromkeys(level for one in cells if (level := context.level(one, "traffic")) != "none"):
            own = [one for one in cells if context.level(one, "traffic") in (kind, "none")]
            if len({context.level(one, "cross_mbps") for one in own}) < LEAST_LEVELS:
                continue
            of = f"of the estimates against {kind} cross traffic: {labels.link_text(labels.link_of(own[0]))}"
            for name, title, caption, axis in what:
                yield from chart_of(
                    *("lines", f"{title} {of}", f"In the manner of the paper’s Figure 16 {caption}"),
                    (Axis("cross traffic, Mbit/s", None, "close"), Axis(f"{axis}, bit/s", BIT_RATE, "linear")),
                    panels_of((named(context, cell), _cross_rows(context, cell, name)) for cell in own),
                    _LEGENDS,
                )


def _cross_rows(context: Context, cell: Cell, name: str) -> Iterator[dict[str, Any]]:
    cross = float(context.level(cell, "cross_mbps"))
    at = labels.cross_text(context.level(cell, "cross_mbps"), context.level(cell, "traffic"))
    for arm in context.arms:
        estimate = context.estimate(name, cell, arm.name)
        if estimate.point is not None:
            base = {"kind": "other" if arm.role == "aa" else "ours", "arm": arm.name, "label": arm.label, "at": at}
            told = {"t": BIT_RATE.text(estimate.point, 4), "interval": interval_text(estimate, BIT_RATE)}
            yield base | told | {"x": cross, "y": estimate.point, "low": estimate.low, "high": estimate.high}
        elif name == "estimate":
            yield from _not_paced(context, cell, arm, cross)
    if name == "estimate":
        yield from _available(context, cell, cross)


def _not_paced(context: Context, cell: Cell, arm: ArmRecord, across: float) -> Iterator[dict[str, Any]]:
    paced = context.estimate("max_paced", cell, arm.name).point
    if figures.total(context, "refused", [cell], arm.name) and paced is not None:
        t = f"{arm.label} cannot pace more than {BIT_RATE.text(paced)}"
        yield {"kind": "mark", "own": True, "across": across, "up": paced, "shape": "triangle-down", "t": t}


def _available(context: Context, cell: Cell, across: float) -> Iterator[dict[str, Any]]:
    """Of the first arm that tells it, for all have the same path."""
    found = (context.estimate("truth", cell, arm.name).point for arm in context.arms)
    if (truth := next((one for one in found if one is not None), None)) is not None:
        t = f"available: {BIT_RATE.text(truth)}"
        yield {"kind": "mark", "across": across, "up": truth, "shape": "stroke", "t": t}


def strips(context: Context) -> Iterator[Block]:
    """The instant estimates of paths with few amounts of cross traffic, as in the paper's Figures 17 to 19."""
    for cells in context.groups(context.cells, LINK).values():
        if len({context.level(one, "cross_mbps") for one in cells}) >= LEAST_LEVELS:
            continue
        for own in context.groups(cells, PATH).values():
            arms = [arm for arm in context.arms if any(context.measured(cell, arm.name) for cell in own)]
            yield from chart_of(
                *("strips", f"Instant estimates: {context.text(own[0], 'path')}"),
                "In the manner of the paper’s Figures 17 to 19: the searches of all repetitions, a strip for each "
                "platform; bold, the median over repetitions.",
                (Axis(""), Axis("estimate, bit/s", BIT_RATE, "close")),
                panels_of((named(context, cell), _strips(context, cell, arms)) for cell in own),
                _LEGENDS,
            )


def _strips(context: Context, cell: Cell, arms: Sequence[ArmRecord]) -> Iterator[dict[str, Any]]:
    for place, arm in enumerate(arms):
        base = {"arm": arm.name, "label": arm.label}
        kept = thinned(_instants(context, cell, arm.name))
        for at, rate in enumerate(kept):
            # Even steps within the strip spread the values without hiding one behind another.
            x = round(place + 0.08 + 0.84 * (at + 0.5) / len(kept), 4)
            yield base | {"kind": "raw", "x": x, "y": rate, "t": BIT_RATE.text(rate)}
        median = context.estimate("estimate", cell, arm.name).point
        if median is not None:
            t, ends = f"median {BIT_RATE.text(median)}", {"x": place + 0.05, "x2": place + 0.95}
            yield base | ends | {"kind": "median", "y": median, "t": t, "at": ""}
        else:
            yield from _not_paced(context, cell, arm, place + 0.5)
        for figure in published_of(context, cell, arm):
            t = f"published: {figure.tool}, {figure.timing}, {figure.platform}: {labels.mbps(figure.median)}"
            yield {"kind": "mark", "across": place + 0.5, "up": figure.median * 1e6, "shape": "cross", "t": t}
    for place in range(len(arms)):
        yield from _available(context, cell, place + 0.5)


def thinned(values: Sequence[float]) -> list[float]:
    """Even steps through all, and both extremes: outliers are what such a chart is for."""
    if len(values) > MOST_INSTANTS:
        step = len(values) / (MOST_INSTANTS - 2)
        values = [*(values[int(at * step)] for at in range(MOST_INSTANTS - 2)), min(values), max(values)]
    return [float(f"{value:.5g}") for value in values]


def effects_chart(context: Context) -> Iterator[Block]:
    """What timing changes the error by, with its interval."""
    parts: list[tuple[str, list[dict[str, Any]]]] = []
    for one in context.once(figures.effects):
        change, arm = one.error.estimate, context.arm(one.arm)
        if change.point is None:
            continue
        estimator, path = context.level(one.cells[0], "estimator"), context.text(one.cells[0], "path")
        row = {"kind": "ours", "arm": arm.name, "label": arm.label, "hollow": not one.error.distinguishable}
        place = {"category": f"{named(context, one.cells[0], timed=False)}|{path}", "at": f"{estimator}, {path}"}
        told = {"t": f"{labels.points(change.point)} points", "interval": labels.points_interval(change) or "none"}
        ends = {"x": change.point, "low": change.low, "high": change.high}
        parts.append((labels.versus(one.through, one.timing, one.base), [row | place | told | ends]))
    yield from chart_of(
        *("dots", "What precise timing does to the error"),
        "Error without its sign, less that with the other timing in the same repetition, in percentage points: left "
        "of 0 precise timing helps. Filled: the interval excludes 0 and the effect exceeds what identical arms (A/A) "
        "differ by.",
        (Axis("percentage points", SHARE, "signed"), Axis("")),
        panels_of(parts),
    )


def absent(context: Context) -> Iterator[tuple[str, str]]:
    """What the report would compare, were it in the plan."""
    if not context.cells:
        return
    timings = {context.level(cell, "timing") for cell in context.cells}
    if len(timings) < 2:
        yield "what precise timing does", "the plan has a single timing"
    elif labels.PRECISE not in timings:
        yield "what hptime does", "the plan has no timing hptime"
    if all(context.level(cell, "through") != labels.SHIM for cell in context.cells):
        yield "the shim", "the plan has no cell with through = shim"
    if all(context.level(cell, "traffic") == "none" for cell in context.cells):
        yield "cross traffic", "the plan has none"
