"""Batalla et al. 2016: its charts with this run's figures, and its own figures beside ours with the same interfaces."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from virtgauge.claims.figures import LIMITED, Figure, Figures, fits
from virtgauge.claims.model import Cells, Level, Range, claim_file
from virtgauge.claims.papers import check_claims
from virtgauge.claims.verdicts import ClaimCheck
from virtgauge.ledger.records import ArmRecord
from virtgauge.reference import ForwardingFigure, forwarding_figures, table
from virtgauge.results.columns import Cell
from virtgauge.results.formatting import interval_text
from virtgauge.results.measure import Measure
from virtgauge.results.quantities import BIT_RATE, DURATION, RATIO, SHARE, significant
from virtgauge.results.table import Blocks
from virtgauge.specs import forwarding_insights as insights
from virtgauge.specs.blocks import Axis, Block, Chart, Column, Row, Text, Value, chart_of, panels_of, table_of
from virtgauge.specs.context import Context
from virtgauge.specs.forwarding_insights import counted, interfaces_of, jain_of, loads, two_level
from virtgauge.specs.forwarding_measures import AT_THROUGHPUT, at_load

_INTERFACES: dict[str, insights.Interfaces] = {"full emulation": "emulated", "virtio": "paravirtual"}
_QUANTITIES = {"us": DURATION, "Mbit/s": BIT_RATE, "ratio": RATIO}
_Curve = Callable[[Cell, float, str], Mapping[int, Sequence[tuple[float, float]]]]
_NEAR = 0.1  # A load of ours within a tenth of the paper's is taken for it
_SAME_MBPS = (5.0, 10.0, 20.0, 40.0)  # Loads at which latencies of platforms of other throughputs are compared
_APART = 1.5
"""Between loads further apart than by this factor nothing is interpolated.  A line in logarithms lies up to 2 % above a
latency that grows with the square of the load; a wider one lies higher, which made a difference of equals."""
_MOST_FAIRNESSES, _LOSS_FAIRNESSES, _MOST_POINTS = 6, 2, 120
_FAR_BELOW = 75.0
"""Per cent of a throughput up to which latency decides though that is but an upper figure; above frames may queue."""
_MOST_BEYOND = 2.0
"""Times the throughput: loads beyond are left out of the loss curve, for nearly all of them is lost anyway."""


def published(context: Context) -> Iterator[Block]:
    """Every published figure with every arm of ours that has the same interfaces."""
    rows = []
    for figure in forwarding_figures():
        for arm, points, what in _ours(context, figure):
            name = "/".join((figure.platform, figure.nic, figure.quantity, figure.condition))
            place = context.place("*", arm.name, "paper", paper=name)
            shown = (
                _stated(figure),
                Value.count("published.low", place, min(points, default=None), _QUANTITIES[figure.unit]),
                Value.count("published.high", place, max(points, default=None), _QUANTITIES[figure.unit]),
                what if points else f"no figure of ours {what}",
            )
            rows.append(Row((f"{figure.platform}, {figure.nic}", figure.quantity, figure.condition), arm.name, shown))
    columns = ("published", "ours, smallest", "largest", Column("what ours are", text=True))
    yield from table_of("", ("Published of", "Quantity", "Where"), columns, rows)
    if rows:
        yield Text((table("forwarding").source.citation,))


def _stated(figure: ForwardingFigure) -> str:
    """``more than 80.0 µs``, ``5.00×``."""
    quantity = _QUANTITIES[figure.unit]
    low, high = (
        "" if end is None else f"{significant(end)}×" if quantity is RATIO else quantity.text(end)
        for end in (figure.low, figure.high)
    )
    if low and high:
        return low if low == high else f"{low} to {high}"
    return f"more than {low}" if low else f"up to {high}"


def _ours(context: Context, figure: ForwardingFigure) -> Iterator[tuple[ArmRecord, list[float], str]]:
    """Of each arm with the figure's interfaces our medians, and what these are."""
    kind = _INTERFACES.get(figure.nic)
    if kind is None:
        for first, second in insights.pairs(context.all_arms):
            ratios = insights.throughput_ratios(context, first, second).values()
            points = [one.point for one in ratios if one.point is not None]
            yield first, points, f"to {second.name}, cell by cell"
        return
    cells = [
        cell
        for cell in context.where({"vector": two_level})
        if figure.sizes[0] <= _size(context, cell) <= figure.sizes[1]
    ]
    for arm in context.usable_arms:
        if interfaces_of(arm) == kind:
            yield arm, *_of_one(context, figure, cells, arm.name)


def _of_one(context: Context, figure: ForwardingFigure, cells: list[Cell], arm: str) -> tuple[list[float], str]:
    def points(measure: str | Measure, chosen: Sequence[Cell] = cells) -> list[float]:
        found = (context.estimate(measure, cell, arm).point for cell in chosen)
        return [point for point in found if point is not None]

    if figure.quantity == "latency" and figure.load is not None:
        near = []
        for cell in cells:
            for entry in (at_load(percent) for percent in loads(context, [cell]) if percent <= 100):
                for offered in points(entry["offered"], [cell]):
                    near += points(entry["latency"], [cell]) if abs(offered / figure.load - 1) <= _NEAR else []
        return near, "at loads within a tenth of that"
    if figure.quantity == "latency":
        return points(AT_THROUGHPUT), "L_tot at the throughput, over all J"
    if figure.unit != "ratio":
        return points("ndr_bits"), "T, over all J"
    ratios, lowest = [], [0.0]
    for group in context.groups(cells, ("design", "frame_bytes")).values():
        known = sorted((cell for cell in group if points("ndr_bits", [cell])), key=lambda c: _jain(context, c))
        if len(known) > 1:
            low, high = points("ndr_bits", [known[0], known[-1]])
            ratios.append(high / low)
            lowest.append(_jain(context, known[0]))
    return ratios, f"from J {min(lowest[1:], default=0.0):.3f} to the highest, by frame size"


def _jain(context: Context, cell: Cell) -> float:
    return jain_of(context, cell) or 0.0


Mark = dict[str, Any]
Parts = Iterator[tuple[str, Iterable[Mark]]]
"""Of panels, by their titles."""
At = Callable[[Cell, str], tuple[float | None, str]]
"""Where along the horizontal axis a cell's figure of an arm lies, and that in words."""
_CROSSES = "Crosses: the paper’s figures, measured on other hardware; triangles point to where its bounds leave room."
_J, _SIZE, _LATE, _OFFERED = (
    *(Axis("J", RATIO), Axis("frame size, B")),
    *(Axis("ns", DURATION), Axis("bit/s offered", BIT_RATE)),
)


def charts(context: Context) -> Iterator[Block]:
    """Throughput and latency against J, frame size and load, and what the searches lost."""
    cells = _of_fairnesses(context, _MOST_FAIRNESSES)
    yield from _chart(
        "Throughput against fairness of the load",
        "Highest total load that every guest forwards without loss, against the fairness of its distribution (Jain’s "
        "index: 1 is alike for all, the lowest loads one guest nearly alone), with intervals over independent "
        "searches. In the manner of the paper’s Figures 2 and 3. Hollow marks are load vectors that the paper does not "
        "have.",
        (_J, Axis("bit/s", BIT_RATE)),
        _over_fairness(context, "ndr_bits", _throughputs),
    )
    yield from _chart(
        "Latency against frame size",
        "Mean latency at the throughput, every guest’s weighted with its share of the load (L_tot, equation 7), "
        "against the frame size. In the manner of the paper’s Figures 4 and 6.",
        (_SIZE, _LATE),
        _over_size(context, cells),
    )
    yield from _chart(
        "Latency against fairness of the load",
        "The same against the fairness of the load, for each frame size. In the manner of the paper’s Figures 5 and 7.",
        (_J, _LATE),
        _over_fairness(context, AT_THROUGHPUT, lambda size: _bounds(size, [size], 1.0)),  # for every J: at the highest
    )
    largest = max((_size(context, cell) for cell in cells), default=0.0)
    lowest = min((_jain(context, cell) for cell in cells), default=0.0)
    of_largest = [cell for cell in cells if _size(context, cell) == largest]
    unfair = [cell for cell in cells if _jain(context, cell) == lowest]
    for what, own, panel, figure in (
        (f"{largest:g} B frames", of_largest, "jain", "Figure 8"),
        (f"J {lowest:.3f}", unfair, "frame_bytes", "Figure 9"),
    ):
        yield from _chart(
            f"Latency against load, {what}",
            f"L_tot at parts of the throughput, against the load that this is. In the manner of the paper’s {figure}; "
            "beyond the throughput, where frames are lost, it is the latency of those that come through.",
            (_OFFERED, _LATE),
            _over_load(context, own, panel),
        )
    yield from _chart(
        "Loss against load",
        "Part of the frames that the worst guest lost in every trial of the searches, all repetitions together. "
        "Vertical rules stand at the throughput; loads beyond twice that are left out. Near zero the axis is linear.",
        (_OFFERED, Axis("% lost", SHARE)),
        _losses(context),
    )


def _chart(title: str, caption: str, axes: tuple[Axis, Axis], parts: Parts) -> Iterator[Chart]:
    return chart_of("lines", title, caption, axes, panels_of(parts), {"published": _CROSSES})


def _size(context: Context, cell: Cell) -> float:
    return float(context.level(cell, "frame_bytes"))


def _marks(context: Context, cells: list[Cell], measure: str | Measure, at: At) -> list[Mark]:
    """The figures of some cells, of each arm."""
    asked = context.spec.measure(measure)
    marks = []
    for cell, arm in itertools.product(cells, context.arms):
        found, (x, words) = context.table.estimate(asked, cell, arm.name), at(cell, arm.name)
        if found.point is not None and x is not None:
            kind = "ours" if two_level(context.level(cell, "vector")) else "other"
            told = {"t": asked.quantity.text(found.point), "interval": interval_text(found, asked.quantity)}
            place: Mark = {"x": x, "y": float(f"{found.point:.5g}"), "low": found.low, "high": found.high, "at": words}
            marks.append({"kind": kind, "arm": arm.name, "label": arm.label} | place | told)
    return marks


def _panels(context: Context, cells: list[Cell], factors: tuple[str, ...]) -> Iterator[tuple[str, list[Cell]]]:
    """Cells by their levels of some factors, and by design where a run has several; with a title."""
    several = len({context.level(cell, "design") for cell in context.cells}) > 1
    for group in context.groups(cells, (*factors, "design") if several else factors).values():
        words = [context.text(group[0], factor) for factor in factors]
        yield ", ".join([*words, context.level(group[0], "design")] if several else words), group


def _over_fairness(context: Context, measure: str, published: Callable[[float], Iterable[Mark]]) -> Parts:
    def at(cell: Cell, arm: str) -> tuple[float | None, str]:
        return jain_of(context, cell), context.spec.cell_name(cell, ("frame_bytes", "design"))

    for title, cells in _panels(context, context.cells, ("frame_bytes",)):
        yield title, [*_marks(context, cells, measure, at), *published(_size(context, cells[0]))]


def _throughputs(size: float) -> Iterator[Mark]:
    for figure in forwarding_figures():
        if figure.quantity == "throughput" and figure.sizes[0] == size:
            yield from (_published(jain, figure.high or 0.0, "cross", figure) for jain in (0.085, 1.0))


def _over_size(context: Context, cells: list[Cell]) -> Parts:
    def at(cell: Cell, arm: str) -> tuple[float | None, str]:
        return _size(context, cell), context.text(cell, "frame_bytes")

    sizes = sorted({_size(context, cell) for cell in cells})
    published = [mark for size in sizes for mark in _bounds(size, sizes, size)]
    for title, own in _panels(context, cells, ("jain",)):
        yield title, [*_marks(context, own, AT_THROUGHPUT, at), *published]


def _over_load(context: Context, cells: list[Cell], panel: str) -> Parts:
    for title, own in _panels(context, cells, (panel,)):
        for percent in loads(context, own):

            def at(cell: Cell, arm: str, percent: float = percent) -> tuple[float | None, str]:
                load = context.table.estimate(at_load(percent)["offered"], cell, arm).point
                return load, f"{BIT_RATE.text(load)}, {percent:g} % of the throughput"

            yield title, _marks(context, own, at_load(percent)["latency"], at)
        for one in forwarding_figures():
            if one.quantity == "latency" and one.load is not None and one.sizes[0] == _size(context, own[0]):
                yield title, [_published(one.load, one.high or 0.0, "cross", one)]


def _losses(context: Context) -> Parts:
    for title, cells in _panels(context, _of_fairnesses(context, _LOSS_FAIRNESSES), ("frame_bytes", "jain")):
        for cell, arm in itertools.product(cells, context.arms):
            bits, told = 8 * int(context.level(cell, "frame_bytes")), counted(context, cell, arm.name)
            limit = context.estimate("ndr_bits", cell, arm.name).point
            if told is None or limit is None:
                continue
            base = {"arm": arm.name, "label": arm.label}
            tried = sorted(one for one in told.curve if one[0] * bits <= _MOST_BEYOND * limit)
            for rate, _, worst, stretched in tried[:: max(1, -(-len(tried) // _MOST_POINTS))]:
                load, lost = rate * bits, SHARE.text(100 * worst) + (", stretched" if stretched else "")
                place = {"kind": "other", "x": load, "y": 100 * worst, "at": BIT_RATE.text(load), "t": lost}
                yield title, [base | place]
            yield title, [base | {"kind": "rule", "x": limit, "t": BIT_RATE.text(limit)}]


def _of_fairnesses(context: Context, most: int) -> list[Cell]:
    """The paper's load vectors of so many J at even steps, the ends among them; with figures only."""
    cells = [
        cell
        for cell in context.where({"vector": two_level})
        if any(context.values("ndr", cell, arm.name) for arm in context.arms)
    ]
    levels = sorted({_jain(context, cell) for cell in cells})
    if len(levels) > most:
        levels = [levels[round(place * (len(levels) - 1) / (most - 1))] for place in range(most)]
    return [cell for cell in cells if _jain(context, cell) in levels]


def _bounds(size: float, drawn: Sequence[float], x: float) -> Iterator[Mark]:
    """The paper's bounds at a frame size: a triangle points to where the figure may lie.

    Of the sizes that are drawn together only the largest of a bound has its name.
    """
    for figure in forwarding_figures():
        inside = [one for one in drawn if figure.sizes[0] <= one <= figure.sizes[1]]
        if figure.quantity == "latency" and figure.load is None and size in inside:
            for bound, shape in ((figure.low, "triangle-up"), (figure.high, "triangle-down")):
                if bound is not None:
                    named = {} if size == max(inside) else {"name": ""}
                    yield _published(x, bound, shape, figure) | named


def _published(x: float, y: float, shape: str, figure: ForwardingFigure) -> Mark:
    bound = {"triangle-up": "above ", "triangle-down": "up to "}.get(shape, "")
    quantity = DURATION if figure.quantity == "latency" else BIT_RATE
    told = {"name": figure.platform, "t": f"{figure.platform}: {bound}{quantity.text(y)}"}
    return {"kind": "published", "x": x, "y": y, "shape": shape} | told


def claims(context: Context) -> tuple[ClaimCheck, ...]:
    """Of what was measured with the paper's load vectors, on platforms with interfaces of their own: T and L_tot."""
    arms = [arm for arm in context.usable_arms if interfaces_of(arm) is not None]
    cells = [cell for cell in context.where({"vector": two_level}) if jain_of(context, cell) is not None]
    throughput, found, silent = context.spec.measure("ndr_bits"), list[Figure](), list[Mapping[str, Level | None]]()
    curve = functools.cache(functools.partial(_curve, context))
    for cell, arm in itertools.product(cells, arms):
        if context.table.may_be_lower(throughput, cell, arm.name):
            levels = {"frame_bytes": _size(context, cell), "jain": _jain(context, cell)}
            silent.append({"platform": str(interfaces_of(arm)), **levels})
        else:
            found += _claimed(context, cell, arm, curve)

    def missing_reason(measure: str, cells: Cells) -> str:
        words = insights.INTERFACES.get(cells.get("platform"), "")  # type: ignore[call-overload]
        if _any_of([one.get for one in silent], cells) and not _any_of([one.level for one in found], cells):
            lost = "the lowest load lost frames in more than a tenth of the results"
            return (f"with {words} " if words else "") + f"{lost}, so that the others do not stand for all"
        if cells.get("own_processor") and found and not any(one.facts["own_processor"] for one in found):
            return "what J does is not told: guests shared processors, or light ones carried too few frames"
        unjudged = [one for one in found if one.level("judged") is False and one.measure == measure]
        if _any_of([one.level for one in unjudged if fits(one.level("load"), cells.get("load", Range()))], cells):
            return (f"with {words} " if words else "") + "some guests carried too few frames to judge their loss"
        if not words or any(one.facts["platform"] == cells.get("platform") for one in found):
            near = f"none of its loads lies between two measured ones that are at most {_APART:g} times apart"
            what = near if measure == "latency_at_rate_us" else "no figures at the levels that it is about"
            return what + (f", with {words}" if words else "")
        unknown = ", ".join(arm.label for arm in context.usable_arms if insights.hides_interfaces(arm))
        return f"no platform with {words}" + (f"; nothing says which those of {unknown} are" if unknown else "")

    figures = Figures(claim_file("forwarding"), found, context.table.claims_confidence, missing_reason)
    return check_claims("forwarding", {"": figures})


def _any_of(places: Iterable[Callable[[str], Level | None]], asked: Cells) -> bool:
    """Whether a place is of the platform, frame size and fairness that are asked for, where they are."""
    wanted = [(name, asked[name]) for name in ("platform", "frame_bytes", "jain") if name in asked]
    return any(all(fits(level(name), its) for name, its in wanted) for level in places)


def _claimed(context: Context, cell: Cell, arm: ArmRecord, curve: _Curve) -> Iterator[Figure]:
    told, throughput = insights.results(context).told[cell, arm.name], context.spec.measure("ndr_bits")
    levels: dict[str, Level] = {
        "design": context.level(cell, "design"),
        "settings": f"{arm.kind} {sorted(insights.settings_of(arm).items(), key=str)}",
        "frame_bytes": _size(context, cell),
        "jain": _jain(context, cell),
    }
    facts: dict[str, Level] = {
        "platform": str(interfaces_of(arm)),
        "own_processor": told.own_processors and told.enough_frames,
    }
    figure = functools.partial(context.claim_figure, arm=arm, facts=facts, label=arm.label)
    values: Callable[[str], Blocks] = functools.partial(context.claimed, "throughput_mbps", cell)
    limited = LIMITED * context.table.may_be_higher(throughput, cell, arm.name)
    told_by = {**facts, "judged": told.enough_frames, "search": insights.search_of(cell)}
    yield from figure("throughput_mbps", {**levels, "load": 100.0}, values, facts=told_by, may_be_higher=limited)
    for percent in loads(context, [cell]):
        latency = at_load(percent)["latency"]
        values = functools.partial(context.values, latency, cell, unit="us")
        limited = LIMITED * context.table.may_be_higher(latency, cell, arm.name)
        near = facts | {"judged": told.enough_frames or percent <= _FAR_BELOW}
        yield from figure("latency_us", {**levels, "load": percent}, values, facts=near, may_be_higher=limited)
    for mbps in _SAME_MBPS:
        at: dict[str, Level] = {**levels, "at_mbps": mbps}
        at_rate = functools.partial(_at_rate, curve, cell, mbps)
        for judged in {True, told.enough_frames}:  # What decides nothing is there all the same, and is the reason
            most = _FAR_BELOW if judged and not told.enough_frames else 100
            some = functools.partial(at_rate, most)
            yield from figure("latency_at_rate_us", at, some, facts=facts | {"judged": judged})


def _curve(context: Context, cell: Cell, most: float, arm: str) -> dict[int, list[tuple[float, float]]]:
    """By block the loads (Mbit/s) up to a share (%) of the throughput, ascending, with L_tot (µs) at each."""
    found: dict[int, list[tuple[float, float]]] = {}
    for entry in (at_load(percent) for percent in loads(context, [cell]) if percent <= most):
        offered = context.values(entry["offered"], cell, arm, "Mbit/s")
        for block, latency in context.values(entry["latency"], cell, arm, "us").items():
            found.setdefault(block, []).append((offered[block], latency))
    return {block: sorted(points) for block, points in found.items()}


def _at_rate(curve: _Curve, cell: Cell, mbps: float, most: float, arm: str) -> dict[int, float]:
    """L_tot in µs at a load, by block: between the loads beside it that were measured, in logarithms."""
    between: dict[int, float] = {}
    for block, points in curve(cell, most, arm).items():
        for (low, one), (high, other) in itertools.pairwise(points):
            if low <= mbps <= high <= _APART * low * (1 + 1e-9):
                part = math.log(mbps / low) / math.log(high / low)
                between[block] = one ** (1 - part) * other**part
    return between
