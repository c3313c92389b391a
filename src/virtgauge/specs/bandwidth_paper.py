"""Kirova et al. 2019: what its text states of estimators beside ours, and ours in the terms of its claims."""

from __future__ import annotations

import dataclasses
import functools
import statistics
from collections.abc import Iterator, Mapping, Sequence

from virtgauge.analysis.distribution import LEAST_VALUES, outliers
from virtgauge.claims.figures import LIMITED, Figure, Figures
from virtgauge.claims.model import Cells, Level, Range, claim_file
from virtgauge.claims.papers import check_claims
from virtgauge.claims.verdicts import ClaimCheck
from virtgauge.ledger.records import ArmRecord
from virtgauge.reference import BandwidthFigure, bandwidth_figures, table
from virtgauge.results.columns import Cell
from virtgauge.results.quantities import BIT_RATE
from virtgauge.specs.bandwidth_figures import at_least, cannot_pace, details, named
from virtgauge.specs.bandwidth_formatting import AS_IS, NO_TRAFFIC, PRECISE, SYSTEM, link_text, mbps
from virtgauge.specs.blocks import Block, Column, Row, Text, Value, table_of
from virtgauge.specs.context import Context

_CLOSE = 0.02  # Relative: shapers count the same capacity with more or fewer headers
_TOOLS = {"Yaz": "yaz-original", "Kite2": "kite2"}
_OURS = {ours: tool.lower() for tool, ours in _TOOLS.items()}  # As the claims call them
_TIMINGS = {"System Call": SYSTEM, "HighPerTimer": PRECISE}
_PLATFORMS = {"host": "Host OS", "qemu": "QEMU"}
Blocks = Mapping[int, float]


def _is_about(figure: BandwidthFigure, context: Context, cell: Cell) -> bool:
    """Whether a figure is of the same estimator, timing and path, on whatever platform."""
    if context.level(cell, "capacity_mbps") == AS_IS:
        return False
    capacity, cross = (float(context.level(cell, name)) for name in ("capacity_mbps", "cross_mbps"))
    return (
        _TOOLS[figure.tool] == context.level(cell, "estimator")
        and _TIMINGS[figure.timing] == context.level(cell, "timing")
        and abs(capacity / figure.capacity - 1) <= _CLOSE
        and abs(cross - figure.cross) <= _CLOSE * figure.capacity
    )


def published_of(context: Context, cell: Cell, arm: ArmRecord) -> Iterator[BandwidthFigure]:
    """Figures of the same kind of platform; the A/A arm has none of its own."""
    for figure in bandwidth_figures():
        if (
            arm.role != "aa"
            and figure.platform == _PLATFORMS.get(arm.hypervisor or arm.kind)
            and _is_about(figure, context, cell)
        ):
            yield figure


def published(context: Context) -> Iterator[Block]:
    """Every published figure, with ours of its kind."""
    rows, absent = [], []
    for figure in bandwidth_figures():
        where = f"{mbps(figure.capacity)}, {mbps(figure.cross)} cross traffic"
        name = f"{figure.tool}, {figure.timing}, {figure.platform}"
        key = f"{figure.tool}/{figure.timing}/{figure.platform}/{figure.capacity:g}/{figure.cross:g}"
        about = [cell for cell in context.cells if _is_about(figure, context, cell)]
        own = [(cell, arm.name) for cell in about for arm in context.own_arms if context.measured(cell, arm.name)]
        if not own:
            half = f" ± {figure.half_iqr:g}" if figure.half_iqr is not None else ""
            absent.append(f"{name}, {where}: {figure.median:g}{half} Mbit/s. Nothing of this kind was measured here.")
        for cell, arm in own:
            place = context.place(cell, arm, "paper", paper=key)
            spread, note = figure.half_iqr, cannot_pace(context, cell, arm)
            shown = (
                Value.count("published.estimate", place, 1e6 * figure.median, BIT_RATE),
                Value.count("published.searches.half_iqr", place, spread and 1e6 * spread, BIT_RATE),
                context.value("estimate", cell, arm, note=at_least(context, cell, arm)),
                context.value("searches.half_iqr", cell, arm),
                context.value("max_paced", cell, arm, note=note) if note else None,
            )
            of = "; ".join(filter(None, (f"{name}\n{where}", figure.note)))
            traffic = context.level(cell, "traffic")
            here = named(context, cell) + (f", {traffic}" if traffic not in ("constant", "none") else "")
            rows.append(Row((of, here), arm, shown))
    columns = [*(Column(name, group) for group in ("Published", "Here") for name in ("estimate", "half the IQR"))]
    yield from table_of("", ("Published", "Here"), [*columns, Column("paced up to", "Here")], rows)
    yield Text((*absent, table("bandwidth").source.citation))


def claims(context: Context) -> tuple[ClaimCheck, ...]:
    """Of each platform, by its own figures, those of the reference, and those of the other virtual platforms."""
    used = [arm for arm in context.usable_arms if not arm.emulated]
    known = {arm.name: [*_of_arm(context, arm)] for arm in used}
    return check_claims("bandwidth", {arm.name: _judging(context, arm, used, known) for arm in used})


def _judging(
    context: Context, arm: ArmRecord, arms: Sequence[ArmRecord], known: Mapping[str, Sequence[Figure]]
) -> Figures:
    reference = context.table.reference
    is_reference = arm.name == reference

    def missing_reason(measure: str, cells: Cells) -> str:
        about = {cells.get("kind"), cells.get("platform")}
        if is_reference and (about & {"virtual", "reference"} or measure == "impact"):
            return "said of platforms beside the host"
        if not is_reference and "host" in about:
            return "said of the host"
        if "other" in about:
            of = cells.get("hypervisor", "a platform")
            return f"said of {of} beside other guests, and not both were measured here"
        if cells.get("hypervisor", arm.hypervisor) != arm.hypervisor:
            return f"said of {cells['hypervisor']}, which this is not"
        if "virtual" in about and not arm.is_virtual:
            return "said of virtual machines, and this is none"
        return _not_measured(measure, cells)

    figures = []
    for other in [arm] if is_reference else arms:
        role = "own" if other is arm else "reference" if other.name == reference else "other"
        label = "" if other is arm else other.label
        for one in known[other.name]:
            figures.append(dataclasses.replace(one, facts={**one.facts, "platform": role}, label=label))
    return Figures(claim_file("bandwidth"), figures, context.table.claims_confidence, missing_reason)


def _not_measured(measure: str, cells: Cells) -> str:
    if measure in ("outliers", "low_outliers"):
        return f"of fewer than {LEAST_VALUES} searches in a trial no outliers are told, or nothing was measured"
    tool = next((ours for ours, tool in _OURS.items() if tool == cells.get("tool")), "yaz-original or kite2")
    bounds, capacity = "", cells.get("capacity_mbps")
    if isinstance(capacity, Range):
        bounds += f" from {mbps(capacity.at_least)}" if capacity.at_least > 0 else ""
        bounds += f" up to {mbps(capacity.at_most)}" if capacity.at_most < float("inf") else ""
    text = f"not measured: {tool}, {cells.get('timing', 'system or hptime')} timing"
    return text + (f", capacity{bounds}" if bounds else "") + (", with such cross traffic" if "cross" in cells else "")


def _of_arm(context: Context, arm: ArmRecord) -> Iterator[Figure]:
    chosen = context.where({"estimator": _OURS, "timing": (SYSTEM, PRECISE)})
    for cell in (one for one in chosen if context.level(one, "capacity_mbps") != AS_IS):
        facts: dict[str, Level] = {
            "tool": _OURS[context.level(cell, "estimator")],
            "capacity_mbps": float(context.level(cell, "capacity_mbps")),
            "kind": "host" if arm.name == context.table.reference else "virtual" if arm.is_virtual else "other",
            "hypervisor": arm.hypervisor,
        }
        # Of the estimator: there is at least that.
        ceiling = "ceiling" in context.table.endings.flags([cell], arm.name, counted=True)
        for measure in claim_file("bandwidth").measures:
            values = functools.partial(_values, context, cell, measure, arm.name)
            more = LIMITED if ceiling and measure == "median_mbps" else ""
            levels = _levels(context, cell)
            yield from context.claim_figure(measure, levels, values, arm, facts=facts, may_be_higher=more)


def _values(context: Context, cell: Cell, measure: str, of: str, arm: str) -> Blocks:
    """An arm's, for claims of another or itself, to which alone belongs what is relative; rates in Mbit/s."""
    instants = {block: one.instants for block, one in details(context, cell, arm).items() if one.instants}
    match measure:
        case "median_mbps" | "half_iqr_mbps":
            return context.claimed(measure, cell, arm)
        case "sent_mbps":
            paced, sent = (context.values(name, cell, arm, "Mbit/s") for name in ("max_paced", "estimate"))
            refused = {block for block, no in context.values("refused", cell, arm).items() if no}
            return {**sent, **{block: paced[block] for block in refused & paced.keys()}}
        case "error":
            return _errors(context, cell, arm)
        case "impact" if arm == of:
            reference = context.table.reference
            return {} if of == reference else _less(_off(context, cell, arm), _off(context, cell, reference))
        case "off" | "impact":
            return _off(context, cell, arm)
        case "gain":
            if arm != of or context.level(cell, "timing") != PRECISE:
                return {}
            return _less(_off(context, cell.at(timing=SYSTEM), arm), _off(context, cell, arm))
        case "mean_over_median":
            return {block: statistics.fmean(some) / statistics.median(some) for block, some in instants.items()}
    found = {block: one for block, some in instants.items() if (one := outliers(some)) is not None}
    return {block: sum(one) if measure == "outliers" else one[0] for block, one in found.items()}


def _errors(context: Context, cell: Cell, arm: str) -> dict[int, float]:
    """Of a rate that could not be paced the highest that could is all that can be told, as the paper does."""
    errors = {**context.values("signed_error", cell, arm, "ratio")}
    paced, truth = (context.values(name, cell, arm) for name in ("max_paced", "truth"))
    for block, refused in context.values("refused", cell, arm).items():
        if refused and block in paced and truth.get(block):
            errors[block] = min(paced[block] / truth[block] - 1, 0.0)
    return dict(sorted(errors.items()))


def _off(context: Context, cell: Cell, arm: str) -> dict[int, float]:
    return {block: abs(error) for block, error in _errors(context, cell, arm).items()}


def _less(one: Blocks, other: Blocks) -> dict[int, float]:
    return {block: one[block] - other[block] for block in sorted(one.keys() & other.keys())}


def _levels(context: Context, cell: Cell) -> dict[str, Level]:
    # Without cross traffic a path is of each kind of it: it stands with the one that was tried on this link.
    link, own = context.level(cell, "link"), context.level(cell, "traffic")
    tried = (context.level(one, "traffic") for one in context.where({"link": (link,)}))
    return {
        **{name: context.level(cell, name) for name in ("estimator", "timing", "through", "pacing")},
        "link": link_text(link),
        "cross": float(context.level(cell, "cross_mbps")),
        "traffic": next((kind for kind in tried if kind != NO_TRAFFIC), "") if own == NO_TRAFFIC else own,
    }
