"""One quantity of one arm at one place of the design, repetition by repetition: what the paper's tests are made on."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence

from virtgauge.reference.forwarding_claims import Factor, Quantity, Range
from virtgauge.report.forwarding.cells import AT_THROUGHPUT
from virtgauge.report.forwarding.model import Cell, Design
from virtgauge.report.forwarding.rates import bit_rate
from virtgauge.report.forwarding.results import Results

Where = Mapping[Factor, Range]


@dataclasses.dataclass(frozen=True)
class Measured:
    """Values by block.

    Attributes:
        load_percent: of the throughput, and ``load_mbps``, the median of what that was; of T itself, T.
        values: in the quantity's unit: Mbit/s, frames/s, or µs.
    """

    arm: str
    design: Design
    vector: str
    jain: float
    frame_bytes: int
    load_percent: float
    load_mbps: float
    values: Mapping[int, float]

    def level(self, factor: Factor) -> float:
        """The factor's level here."""
        levels: dict[Factor, float] = {
            "jain": self.jain,
            "frame_bytes": float(self.frame_bytes),
            "load_mbps": self.load_mbps,
        }
        return levels[factor]

    def place(self, without: Factor | None = None) -> tuple[object, ...]:
        """Everything that is fixed here but the arm, and but one factor."""
        vector = "" if without == "jain" else self.vector
        size = 0 if without == "frame_bytes" else self.frame_bytes
        return self.design, vector, size, 0.0 if without == "load_mbps" else self.load_percent

    def describe(self, without: Factor | None = None) -> str:
        """The same in words: ``64 B, J 0.085``."""
        parts = [f"{self.frame_bytes} B"] if without != "frame_bytes" else []
        parts += [f"J {self.jain:.3f}"] if without != "jain" else []
        if self.load_percent != AT_THROUGHPUT and without != "load_mbps":
            parts.append(bit_rate(self.load_mbps))
        return ", ".join(parts)


class Quantities:
    """Everything that was measured with the paper's load vectors.

    Args:
        cells: of the report, whatever their vector.
        results: that they were made from.
    """

    def __init__(self, cells: Sequence[Cell], results: Results) -> None:
        self._cells = [cell for cell in cells if cell.two_level and cell.jain is not None]
        self._results = results

    @property
    def designs(self) -> list[Design]:
        """Of those cells."""
        return list(dict.fromkeys(cell.design for cell in self._cells))

    def select(self, quantity: Quantity, arm: str, where: Where, *, over_load: bool = False) -> list[Measured]:
        """An arm's figures of a quantity, where every factor has a wanted level.

        Args:
            over_load: at every load up to the throughput, and not at the throughput alone.
        """
        found = [one for one in self._all(quantity, arm, over_load or "load_mbps" in where) if one.values]
        return [one for one in found if all(bounds.includes(one.level(factor)) for factor, bounds in where.items())]

    def _all(self, quantity: Quantity, arm: str, over_load: bool) -> Iterator[Measured]:
        for cell in self._cells:
            key = (cell.design, cell.vector, cell.frame_bytes)

            def at(
                percent: float, load: Mapping[int, float], values: Mapping[int, float], cell: Cell = cell
            ) -> Measured:
                assert cell.jain is not None
                middle = statistics.median(load.values()) if load else 0.0
                return Measured(
                    arm, cell.design, cell.vector, cell.jain, cell.frame_bytes, percent, middle, dict(values)
                )

            throughput = self._results.throughput_mbps(key, arm)
            if quantity == "throughput_mbps":
                yield at(AT_THROUGHPUT, throughput, throughput)
            elif quantity == "throughput_pps":
                yield at(AT_THROUGHPUT, throughput, self._results.scalar(key, arm, "throughput_pps"))
            else:
                for percent in self._results.load_percents(key, arm):
                    if percent == AT_THROUGHPUT or (over_load and percent < AT_THROUGHPUT):
                        latency = self._results.latency_ns(key, arm, percent)
                        in_us = {block: value / 1e3 for block, value in latency.items()}
                        yield at(percent, self._results.load_mbps(key, arm, percent), in_us)


def grouped(figures: Sequence[Measured], key: Callable[[Measured], object]) -> list[list[Measured]]:
    """Figures that share a key, in the order of the first of each."""
    groups: dict[object, list[Measured]] = {}
    for one in figures:
        groups.setdefault(key(one), []).append(one)
    return list(groups.values())


def along(figures: Sequence[Measured], factor: Factor) -> list[list[Measured]]:
    """Groups in which only the factor differs, each in the order of its levels."""
    groups = grouped(figures, lambda one: one.place(without=factor))
    return [sorted(group, key=lambda one: one.level(factor)) for group in groups]


def median_of(figures: Sequence[Measured]) -> dict[int, float]:
    """The median over several figures of one arm, by block."""
    blocks = {block for one in figures for block in one.values}
    return {
        block: statistics.median(one.values[block] for one in figures if block in one.values)
        for block in sorted(blocks)
    }
