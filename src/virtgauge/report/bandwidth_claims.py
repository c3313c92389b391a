"""A run's bandwidth figures in the terms of the paper's claims, as each platform is judged by them."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence

from virtgauge.analysis.outliers import LEAST_VALUES, outliers
from virtgauge.claims.figures import Figure, Figures, measured
from virtgauge.claims.model import Cells, Level, Range, claim_file
from virtgauge.ledger.records import ArmRecord
from virtgauge.results.columns import Cell
from virtgauge.specs.bandwidth_figures import details, told
from virtgauge.specs.bandwidth_formatting import NO_TRAFFIC, PRECISE, SYSTEM, link_words, mbps
from virtgauge.specs.context import Context

_TOOLS = {"yaz-original": "yaz", "kite2": "kite2"}
Blocks = Mapping[int, float]


def claim_figures(context: Context) -> dict[str, Figures]:
    """By arm: its own figures, those of the reference, and those of the other virtual platforms."""
    used = [arm for arm in context.all_arms if arm.usable and not arm.emulated and arm.role != "aa"]
    known = {arm.name: [*_of_arm(context, arm)] for arm in used}
    return {arm.name: _judging(context, arm, used, known) for arm in used}


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
        if "other" in about or ("hypervisor" in cells and cells["hypervisor"] != arm.kind):
            return (
                f"said of {cells.get('hypervisor', 'a platform')} beside other guests, and not both were measured here"
            )
        return _not_measured(measure, cells)

    figures = []
    for other in arms:
        role = "own" if other is arm else "reference" if other.name == reference else "other"
        if not (is_reference and role != "own"):
            label = "" if other is arm else other.label
            figures += [_as(one, role, label) for one in known[other.name]]
    return Figures(claim_file("bandwidth"), figures, context.table.confidence, missing_reason)


def _as(figure: Figure, role: str, label: str) -> Figure:
    facts = {**figure.facts, "platform": role}
    return dataclasses.replace(figure, facts=facts, label=label)


def _not_measured(measure: str, cells: Cells) -> str:
    if measure in ("outliers", "low_outliers"):
        return f"of fewer than {LEAST_VALUES} searches in a trial no outliers are told, or nothing was measured"
    tool = {"yaz": "yaz-original", "kite2": "kite2"}.get(str(cells.get("tool")), "yaz-original or kite2")
    timing = f"{cells['timing']} timing" if "timing" in cells else "system or hptime timing"
    bounds, capacity = [], cells.get("capacity_mbps")
    if isinstance(capacity, Range):
        bounds += [f"from {mbps(capacity.at_least)}"] if capacity.at_least > 0 else []
        bounds += [f"up to {mbps(capacity.at_most)}"] if capacity.at_most < float("inf") else []
    text = f"not measured: {tool}, {timing}" + (f", capacity {' '.join(bounds)}" if bounds else "")
    return text + (", with such cross traffic" if "cross" in cells else "")


def _of_arm(context: Context, arm: ArmRecord) -> Iterator[Figure]:
    is_reference, file = arm.name == context.table.reference, claim_file("bandwidth")
    chosen = context.where({"estimator": _TOOLS, "timing": (SYSTEM, PRECISE)})
    for cell in chosen:
        values = dict(_values(context, cell, arm.name))
        off = values["off"]
        if not is_reference:
            values["impact"] = _subtracted(off, _off(context, cell, context.table.reference))
        if context.level(cell, "timing") == PRECISE:
            values["gain"] = _subtracted(_off(context, cell.at(timing=SYSTEM), arm.name), off)
        facts: dict[str, Level] = {
            "tool": _TOOLS[context.level(cell, "estimator")],
            "capacity_mbps": float(context.level(cell, "capacity_mbps")),
            "kind": "host" if is_reference else "virtual",
            "hypervisor": arm.kind,
        }
        alike = [dict(_values(context, cell, name)) for name in (context.table.aa, context.table.reference)]
        for name, found in values.items():
            if found:
                estimate = measured(found, file.measures[name].unit, context.table.confidence)
                aa, reference = (one.get("off" if name == "impact" else name, {}) for one in alike)
                levels = _levels(context, cell)
                yield Figure(name, levels, estimate, found, facts, arm.name, identical=(aa, reference))


def _values(context: Context, cell: Cell, arm: str) -> Iterator[tuple[str, Blocks]]:
    """By the claims' name; rates in Mbit/s, errors as shares."""
    median = _scaled(told(context, "estimate", cell, arm), 1e-6)
    yield "median_mbps", median
    yield "half_iqr_mbps", _scaled(told(context, "searches.half_iqr", cell, arm), 1e-6)
    yield "error", _errors(context, cell, arm)
    yield "off", _off(context, cell, arm)
    paced = _scaled(told(context, "max_paced", cell, arm), 1e-6)
    refused = {block for block, no in told(context, "refused", cell, arm).items() if no}
    yield "sent_mbps", median | {block: paced[block] for block in refused & paced.keys()}
    instants = {block: one.instants for block, one in details(context, cell, arm).items()}
    found = {block: one for block, values in instants.items() if (one := outliers(values)) is not None}
    yield "outliers", {block: one.all for block, one in found.items()}
    yield "low_outliers", {block: one.below for block, one in found.items()}
    mean: Callable[[Sequence[float]], float] = lambda some: statistics.fmean(some) / statistics.median(some)  # noqa: E731
    yield "mean_over_median", {block: mean(some) for block, some in instants.items() if some}


def _scaled(values: Blocks, factor: float) -> dict[int, float]:
    return {block: value * factor for block, value in values.items()}


def _errors(context: Context, cell: Cell, arm: str) -> dict[int, float]:
    """Of a rate that could not be paced the highest that could is all that can be told, as the paper does."""
    errors = _scaled(told(context, "signed_error", cell, arm), 0.01)
    paced, truth = (told(context, name, cell, arm) for name in ("max_paced", "truth"))
    for block, refused in told(context, "refused", cell, arm).items():
        if refused and block in paced and truth.get(block):
            errors[block] = min(paced[block] / truth[block] - 1, 0.0)
    return dict(sorted(errors.items()))


def _off(context: Context, cell: Cell, arm: str) -> dict[int, float]:
    return {block: abs(error) for block, error in _errors(context, cell, arm).items()}


def _levels(context: Context, cell: Cell) -> dict[str, Level]:
    # Without cross traffic a path is of each kind of it: it stands with the one that was tried on this link.
    link, own = context.level(cell, "link"), context.level(cell, "traffic")
    tried = (context.level(one, "traffic") for one in context.where({"link": (link,)}))
    kinds = [kind for kind in tried if kind != NO_TRAFFIC]
    return {
        "estimator": context.level(cell, "estimator"),
        "timing": context.level(cell, "timing"),
        "through": context.level(cell, "through"),
        "pacing": context.level(cell, "pacing"),
        "link": link_words(link),
        "cross": float(context.level(cell, "cross_mbps")),
        "traffic": next(iter(kinds), "") if own == NO_TRAFFIC else own,
    }


def _subtracted(one: Blocks, other: Blocks) -> dict[int, float]:
    return {block: one[block] - other[block] for block in sorted(one.keys() & other.keys())}
