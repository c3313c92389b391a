"""The paper's figures, and ours of the platform with the same interfaces beside them."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence

from virtgauge.ledger.records import ArmRecord
from virtgauge.reference import table
from virtgauge.reference.forwarding_claims import Interfaces, Range
from virtgauge.report.forwarding.interfaces import interfaces_of
from virtgauge.report.forwarding.measured import Measured, Quantities, Where, along
from virtgauge.report.forwarding.model import Beside, InterfaceRatio, PublishedFigure

_INTERFACES: dict[str, Interfaces] = {"full emulation": "emulated", "virtio": "paravirtual"}
_NEAR = 0.1
"""A load of ours within a tenth of the paper's is taken for it."""


def published_figures() -> tuple[PublishedFigure, ...]:
    """What the paper's text states in figures."""
    return tuple(
        PublishedFigure(
            platform=row["platform"],
            nic=row["nic"],
            quantity=row["quantity"],
            condition=row["condition"],
            low=float(row["low"]) if row["low"] else None,
            high=float(row["high"]) if row["high"] else None,
            unit=row["unit"],
            note=row["note"],
            smallest_bytes=_sizes(row["condition"]).at_least,
            largest_bytes=_sizes(row["condition"]).at_most,
            load_mbps=_load(row["condition"]),
        )
        for row in table("forwarding").rows
    )


def beside_ours(
    quantities: Quantities, arms: Sequence[ArmRecord], ratios: Sequence[InterfaceRatio]
) -> tuple[Beside, ...]:
    """Every published figure with every arm of ours that has the same interfaces."""
    usable = [arm for arm in arms if arm.usable and arm.role != "aa"]
    rows = []
    for figure in published_figures():
        if interfaces_in(figure) is None:
            rows += _of_two(figure, ratios)
        for arm in usable:
            if interfaces_of(arm) is not None and interfaces_of(arm) == interfaces_in(figure):
                rows.append(_of_one(figure, arm, quantities))
    return tuple(rows)


def interfaces_in(figure: PublishedFigure) -> Interfaces | None:
    """Of the figure's platform; None for a figure about two."""
    return _INTERFACES.get(figure.nic)


def _of_two(figure: PublishedFigure, ratios: Sequence[InterfaceRatio]) -> list[Beside]:
    rows = []
    for paravirtual, emulated in dict.fromkeys((ratio.paravirtual, ratio.emulated) for ratio in ratios):
        of_pair = [
            ratio.throughput for ratio in ratios if (ratio.paravirtual, ratio.emulated) == (paravirtual, emulated)
        ]
        points = [ratio.point for ratio in of_pair if ratio.point is not None]
        rows.append(_beside(figure, paravirtual, points, f"to {emulated}, cell by cell"))
    return rows


def _of_one(figure: PublishedFigure, arm: ArmRecord, quantities: Quantities) -> Beside:
    where: Where = {"frame_bytes": Range(at_least=figure.smallest_bytes, at_most=figure.largest_bytes)}
    if figure.quantity == "latency":
        over_load = figure.load_mbps is not None
        found = quantities.select("latency_us", arm.name, where, over_load=over_load)
        if figure.load_mbps is not None:
            found = [one for one in found if abs(one.load_mbps / figure.load_mbps - 1) <= _NEAR]
            return _beside(figure, arm.name, _medians(found), "at loads within a tenth of that")
        return _beside(figure, arm.name, _medians(found), "L_tot at the throughput, over all J")
    found = quantities.select("throughput_mbps", arm.name, where)
    if figure.unit == "ratio":
        ends = [(group[-1], group[0]) for group in along(found, "jain") if len(group) > 1]
        points = [_median(high) / _median(low) for high, low in ends if _median(low) > 0]
        lowest = min((low.jain for _, low in ends), default=0.0)
        return _beside(figure, arm.name, points, f"from J {lowest:.3f} to the highest, by frame size")
    return _beside(figure, arm.name, _medians(found), "T, over all J")


def _beside(figure: PublishedFigure, arm: str, points: Sequence[float], what: str) -> Beside:
    if not points:
        return Beside(figure, arm, None, None, f"no figure of ours {what}")
    return Beside(figure, arm, min(points), max(points), what)


def _medians(found: Sequence[Measured]) -> list[float]:
    return [_median(one) for one in found]


def _median(one: Measured) -> float:
    return statistics.median(one.values.values())


def _sizes(condition: str) -> Range:
    """``64 B frame``, ``below 512 B frame``, ``1024 B frame or larger``, ``every frame size``."""
    found = re.search(r"(\d+) B frame", condition)
    if found is None:
        return Range()
    size = float(found[1])
    if condition.startswith("below"):
        return Range(at_most=size - 1)
    return Range(at_least=size, at_most=None if "or larger" in condition else size)


def _load(condition: str) -> float | None:
    found = re.search(r"at (\d+) Mbit/s", condition)
    return None if found is None else float(found[1])
