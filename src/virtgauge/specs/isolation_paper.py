"""What the paper's text (Rzecki et al. 2014) states in figures, and our figures of the same kind beside it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from virtgauge.reference import table
from virtgauge.results.columns import Cell
from virtgauge.results.formatting import share
from virtgauge.results.quantities import RATIO
from virtgauge.specs.blocks import Block, Column, Row, Shown, Table, Text, Value
from virtgauge.specs.context import Context
from virtgauge.specs.isolation_formatting import (
    BOTH,
    DISK_LIMIT,
    FULL_TIME,
    LIMIT,
    LOADING,
    NOTHING,
    TESTED,
    Resource,
    about,
    benchmark_words,
    beside,
    percent,
    resource_of,
)

_DHRYSTONE = "dhrystone"
_BENCHMARKS: dict[str, str] = {_DHRYSTONE: "cpu", "CPU": "cpu", "RAM read/write": "memory", "disk": "disk"}
_LOADS: dict[str, str] = {
    **{"none": "none", _DHRYSTONE: "cpu", "CPU": "cpu"},
    **{"RAM write": "memory-write", "disk": "disk"},
}
_ON_LOADING = "loading VM holds limit and reservation"
_RANGES = {
    "for declared limits below": (0.0, 0.7),
    "too high at low declared limits": (0.0, 0.5),
    "falls to 80 % at high declared limits": (0.5, 1.0),
}
"""The shares that a note speaks of; where the text says low or high, a half of them (ours)."""
_RESOURCES: dict[Resource, str] = {Resource.CPU: "cpu", Resource.MEMORY: "memory", Resource.DISK: "disk"}
_CROSS, _DIAMOND = "M-1,-1L1,1M-1,1L1,-1", "diamond"
_SMALLEST = 0.05
"""The paper's smallest share; where it speaks of low ones without a figure, its lines begin here."""


@dataclasses.dataclass(frozen=True)
class PublishedFigure:
    """What the paper's text states in figures; shares and efficiencies 0 … 1 and beyond.

    Attributes:
        on: the guest that has limit and reservation.
        share: declared; None for a statement about many.
        q_low, q_high: as stated; None where one end or both are not.
    """

    processor: str
    energy_saving: bool
    benchmark: str
    load: str
    on: str
    share: float | None
    q_low: float | None
    q_high: float | None
    note: str

    @property
    def shares(self) -> tuple[float, float]:
        """The least and the greatest declared share that it is about."""
        if self.share is not None:
            return self.share, self.share
        return next((found for words, found in _RANGES.items() if self.note.startswith(words)), (0.0, 1.0))

    def is_about(self, cell: Cell) -> bool:
        """Whether it is about what a cell of ours is of, with whatever share."""
        # A limit alone is no promise beside a load; without one it is all that acts.
        load, factors = _LOADS[self.load], cell.factors
        return (
            paper_benchmark(cell) == _BENCHMARKS[self.benchmark]
            and load in paper_loads(factors["load"])
            and (self.benchmark != _DHRYSTONE or factors["benchmark"] == "integer")
            and (self.load != _DHRYSTONE or factors["load"] == "integer")
            and factors["intensity"] in FULL_TIME
            and factors["policy"] in ((BOTH, LIMIT) if load == "none" else (BOTH,))
            and factors["on"] == self.on
        )

    @property
    def stated(self) -> dict[str, float]:
        """What it says of q, by how: ``at least``, ``at most``, or just that."""
        if self.q_low == self.q_high:
            return {} if self.q_low is None else {"": self.q_low}
        ends = {"at least": self.q_low, "at most": self.q_high}
        return {bound: q for bound, q in ends.items() if q is not None}


@functools.cache
def published_figures() -> tuple[PublishedFigure, ...]:
    """In the order of the table."""
    return tuple(_figure(row) for row in table("isolation").rows)


def _figure(row: dict[str, str]) -> PublishedFigure:
    on_loading = row["note"].startswith(_ON_LOADING)
    declared = float(row["declared_percent"]) / 100 if row["declared_percent"] else None
    if on_loading and declared is not None:
        declared = 1 - declared  # the table has the share that is left for the tested guest
    about_many = any(row["note"].startswith(words) for words in _RANGES)
    return PublishedFigure(
        processor=row["processor"],
        energy_saving=row["energy_saving"] == "on",
        benchmark=row["benchmark"],
        load=row["load"],
        on=LOADING if on_loading else TESTED,
        share=None if about_many else declared,
        q_low=float(row["q_low_percent"]) / 100 if row["q_low_percent"] else None,
        q_high=float(row["q_high_percent"]) / 100 if row["q_high_percent"] else None,
        note=row["note"],
    )


def paper_benchmark(cell: Cell) -> str | None:
    """What the paper would call a benchmark of ours; None for one that it does not have."""
    return _RESOURCES.get(about(cell))


def paper_loads(load: str) -> frozenset[str]:
    """What the paper would call a load of ours; empty for one that it does not have."""
    if load == NOTHING:
        return frozenset({"none"})
    if load.startswith("memory-"):
        return frozenset({"memory", "memory-write"} if load.startswith("memory-write-") else {"memory"})
    if load == "flush" or resource_of(load) is Resource.DISK:
        return frozenset({"disk"})
    return frozenset({"cpu"}) if load in ("integer", "floating") else frozenset()


def published(context: Context) -> Iterator[Block]:
    """Every published figure and those of each arm; of several the lowest, or the highest where it is an upper end."""
    arms = context.own_arms
    rows = []
    for figure in published_figures():
        parts = (figure.processor, figure.energy_saving, figure.benchmark, figure.load, figure.on, figure.share)
        name = "/".join(map(str, parts))
        low, high = figure.shares
        cells = [
            cell
            for cell in context.cells
            if figure.is_about(cell) and low - 1e-9 <= float(cell.factors["share"]) / 100 <= high + 1e-9
        ]
        place = context.place("*", "", "paper", paper=name)
        ends = (("published.q_low", figure.q_low), ("published.q_high", figure.q_high))
        stated: list[Shown] = [None if q is None else Value.count(end, place, q, RATIO) for end, q in ends]
        stated += [_ours(context, figure, cells, arm.name, name) for arm in arms]
        saving = "\nenergy saving" if figure.energy_saving else ""
        of = f"{figure.benchmark}, {'no' if figure.load == 'none' else figure.load} load"
        declared = "several" if figure.share is None else f"{percent(figure.share)} on the {figure.on} guest"
        rows.append(
            Row((figure.processor + saving, "\n".join(filter(None, (of, figure.note))), declared), "", tuple(stated))
        )
    columns = (Column("published q"), Column("to"), *(Column(arm.label) for arm in arms))
    yield Table("", ("Published of", "Benchmark, load", "Declared"), columns, tuple(rows))
    yield Text((table("isolation").source.citation,))


def _ours(context: Context, figure: PublishedFigure, cells: list[Cell], arm: str, name: str) -> Shown:
    found = {cell: context.estimate("q", cell, arm) for cell in cells}
    own = {cell: one for cell, one in found.items() if one.point is not None}
    if not own:
        return None
    highest = figure.q_low is None and figure.q_high is not None
    pick: Callable[[Cell], float] = lambda cell: own[cell].point or 0.0  # noqa: E731
    cell = max(own, key=pick) if highest else min(own, key=pick)
    hint = (
        f"{benchmark_words(cell.factors['benchmark'])}, {beside(cell)}, {percent(float(cell.factors['share']) / 100)}"
    )
    of_several = f"the {'highest' if highest else 'lowest'} of {len(own)}: {hint}" if len(own) > 1 else ""
    place = context.place("*" if of_several else cell, arm, "paper", paper=name)
    shown = context.of("published.q", place, own[cell], RATIO)
    return dataclasses.replace(shown, hint=of_several or hint)


# -- beside ours in charts against the declared share ----------------------------------------------------


def guides_of_q(context: Context, cells: list[Cell]) -> Iterator[dict[str, Any]]:
    """What was declared, and what the paper states of such cells: marks where it names the share, else lines."""
    yield from _guides(cells, lambda declared, on: 1.0)


def guides_of_work(context: Context, cells: list[Cell]) -> Iterator[dict[str, Any]]:
    """The same of the work itself."""
    yield from _guides(cells, _left)


def _left(declared: float, on: str) -> float:
    """The share that is meant for the tested guest."""
    return round(1 - declared, 9) if on == LOADING else declared


def _guides(cells: Sequence[Cell], due: Callable[[float, str], float]) -> Iterator[dict[str, Any]]:
    cell = cells[0]
    if cell.factors["policy"] != DISK_LIMIT:
        for declared in (0.0, 1.0):
            up = due(declared, cell.factors["on"])
            yield {"kind": "guide", "of": "due", "across": 100 * declared, "up": up, "t": "as declared"}
    for figure in published_figures():
        if figure.is_about(cell):
            yield from _published_rows(figure, due)


def _published_rows(figure: PublishedFigure, due: Callable[[float, str], float]) -> Iterator[dict[str, Any]]:
    for bound, q in figure.stated.items():
        at = "" if figure.share is None else f" at {percent(figure.share)}"
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
