"""How well packets are sent on time: what could be paced, the gaps between bursts, and how late these leave."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from virtgauge.analysis.distribution import Distribution, ccdf, samples_needed
from virtgauge.ledger.records import NS_PER_UNIT, ArmRecord, merged
from virtgauge.results.columns import Cell
from virtgauge.results.formatting import amount
from virtgauge.results.measure import Better
from virtgauge.results.quantities import BIT_RATE, DURATION, FACTOR, Quantity
from virtgauge.specs.bandwidth_figures import details
from virtgauge.specs.bandwidth_formatting import THROUGH, TIMINGS, timed_text
from virtgauge.specs.blocks import Axis, Block, Column, Place, Row, Shown, Value, chart_of, panels_of, table_of
from virtgauge.specs.context import Context, over_cells

_CURVE_POINTS = 100
_SHORTEST_GAP = 0.1  # Of what was planned; what is shorter would take most of a logarithmic axis, and tells little
_METHODS = ("send", "sendmmsg", "gso")
_UNITS: Mapping[str, Mapping[str, float]] = {"gap": {"permille": 1e-3}, "lateness": NS_PER_UNIT}

Merged = tuple[Distribution, float]  # Values, and what makes plain numbers of them


class Pacing(NamedTuple):
    """How well one arm sends when it should, with one timing and one way of sending; over all trials sent so."""

    arm: ArmRecord
    timing: str
    through: str
    method: str
    trials: list[tuple[Cell, int]]
    gap: Merged | None
    lateness: Merged | None

    @property
    def title(self) -> str:
        """``hptime, by send``."""
        return f"{timed_text(f'{self.timing}|{self.through}')}, by {self.method}"


def pacings(context: Context) -> list[Pacing]:
    """The pacing by arm, timing, way of swapping it, and method of sending."""
    found = []
    for arm in context.own_arms:
        groups: dict[tuple[str, str, str], list[tuple[Cell, int]]] = {}
        for cell in context.cells:
            for block, one in details(context, cell, arm.name).items():
                if one.method:
                    place = context.level(cell, "through"), context.level(cell, "timing"), one.method
                    groups.setdefault(place, []).append((cell, block))
        for through, timing, method in sorted(groups, key=_pacing_rank):
            trials = groups[through, timing, method]
            gap, late = (_merged(context, name, arm.name, trials) for name in _UNITS)
            found.append(Pacing(arm, timing, through, method, trials, gap, late))
    return found


def _pacing_rank(place: tuple[str, str, str]) -> tuple[object, ...]:
    orders = (THROUGH, TIMINGS, _METHODS)
    known = [order.index(one) if one in order else len(order) for order, one in zip(orders, place, strict=True)]
    return (*known, place)


def _merged(context: Context, name: str, arm: str, trials: Sequence[tuple[Cell, int]]) -> Merged | None:
    """All values of some trials' histograms; of several units, those of the first."""
    units, own, read = _UNITS[name], frozenset(trials), context.table.distributions.histograms
    of_cells = ((cell, read(name, cell, arm)) for cell in dict.fromkeys(cell for cell, _ in trials))
    told = (one for cell, found in of_cells for block, one in found if (cell, block) in own)
    found = merged([one for one in told if one.unit in units and one.n])
    return None if found is None else (found, units[found.unit])


def pacing(context: Context) -> Iterator[Block]:
    """The highest rate by way of sending, gaps and lateness."""
    rows = []
    for one in context.once(pacings):
        name, cells = one.arm.name, list(dict.fromkeys(cell for cell, _ in one.trials))
        place = context.place(f"*;through={one.through};timing={one.timing}", name, method=one.method)
        rates, refused = ({cell: context.values(of, cell, name) for cell in cells} for of in ("max_paced", "refused"))
        # A trial tells no more than it was asked for: the highest of each repetition counts.
        paced = over_cells(({block: rates[cell][block]} for cell, block in one.trials if block in rates[cell]), max)
        best = context.median(paced.values(), BIT_RATE) if paced else None
        shims = [details(context, cell, name)[block].shim for cell, block in one.trials]
        shown: list[Shown] = [
            context.of("pacing.max_paced", place, best, BIT_RATE, better=Better.HIGHER) if best else None,
            Value.count("pacing.refused", place, sum(refused[cell].get(block, 0.0) for cell, block in one.trials)),
            Value.count("pacing.trials", place, len(one.trials)),
            *_tails("pacing.gap", place, one.gap, FACTOR),
            *_tails("pacing.lateness", place, one.lateness, DURATION),
        ]
        for key, which in (("served", "answered"), ("passed", "passed")):
            number = sum(int(shim.get(key) or 0) for shim in shims) if any(shims) else None
            shown.append(Value.count(f"pacing.shim.{which}", place, number))
        rows.append(Row((timed_text(f"{one.timing}|{one.through}"), one.method), name, tuple(shown)))
    columns: list[Column | str] = [
        *("paced up to", "not paced", "of trials"),
        *(Column(name, group) for group in ("Gap", "Late") for name in ("p50", "p99", "mean")),
        *(Column(name, "Shim") for name in ("answered", "passed on")),
    ]
    yield from table_of("", ("Timing", "Sent by"), columns, rows)


def _tails(name: str, place: Place, merged: Merged | None, quantity: Quantity) -> Iterator[Shown]:
    if merged is None:
        yield from (None, None, None)
        return
    found, factor = merged
    for statistic, share in (("p50", 0.5), ("p99", 0.99)):
        value = found.quantile(share) * factor if found.n >= samples_needed(share) else None
        yield Value.count(f"{name}.{statistic}", place, value, quantity)
    yield Value.count(f"{name}.mean", place, found.mean * factor, quantity)


def curves(context: Context) -> Iterator[Block]:
    """Achieved gaps, and how late bursts leave."""
    found = context.once(pacings)
    late = ((one.title, [_curve(one.arm, one.lateness)]) for one in found if one.lateness is not None)
    yield from chart_of(
        *("ccdf", "Achieved gaps between bursts"),
        "How often the time between two bursts is longer than so many times what was planned (P(X > x)); all "
        "repetitions and rates together. A steep fall at 1 × is good pacing.",
        (Axis("times what was planned", FACTOR), Axis("")),
        panels_of((one.title, _gaps(_curve(one.arm, one.gap))) for one in found if one.gap is not None),
    )
    yield from chart_of(
        *("ccdf", "How late bursts leave"),
        "From a burst’s due time to its handover to the kernel: P(X > x), all repetitions and rates together.",
        (Axis(DURATION.unit, DURATION), Axis("share that is longer")),
        panels_of(late),
    )


def _curve(arm: ArmRecord, merged: Merged) -> dict[str, Any]:
    """How often values are larger than so many, in columns."""
    found, factor = merged
    values, shares = ccdf(found, _CURVE_POINTS)
    columns = {"x": (values * factor).tolist(), "y": shares.tolist(), "mean": found.mean * factor}
    return {"arm": arm.name, "label": arm.label} | columns


def _gaps(curve: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A point each, for gaps have words of their own."""
    row = {"arm": curve["arm"], "label": curve["label"]}
    for value, share in zip(curve["x"], curve["y"], strict=True):
        told = {"t": f"{amount(value)} × as planned", "s": f"{amount(100 * share)} %"}
        if value >= _SHORTEST_GAP:
            yield row | {"kind": "curve", "x": value, "y": share} | told
    yield row | {"kind": "mean", "x": curve["mean"], "t": f"{amount(curve['mean'])} ×", "at": "mean"}
