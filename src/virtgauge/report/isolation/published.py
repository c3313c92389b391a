"""What the paper's text states in figures, in its terms and ours, and our figures of the same kind beside it."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

from virtgauge.analysis.estimate import Estimate
from virtgauge.ledger.records import ArmRecord
from virtgauge.reference import table
from virtgauge.reference.isolation_claims import Benchmark, Load, Range
from virtgauge.report.isolation.model import Beside, Cell, Key, PublishedFigure, Series
from virtgauge.report.isolation.vocabulary import (
    BOTH,
    LIMIT,
    LOADING,
    NOTHING,
    TESTED,
    Resource,
    percent,
    resource_of,
    short_benchmark,
)

_DHRYSTONE = "dhrystone"
_BENCHMARKS: dict[str, Benchmark] = {_DHRYSTONE: "cpu", "CPU": "cpu", "RAM read/write": "memory", "disk": "disk"}
_LOADS: dict[str, Load] = {
    "none": "none",
    _DHRYSTONE: "cpu",
    "CPU": "cpu",
    "RAM write": "memory-write",
    "disk": "disk",
}
_ON_LOADING = "loading VM holds limit and reservation"
_RANGES = {
    "for declared limits below": Range(at_most=0.7),
    "too high at low declared limits": Range(at_most=0.5),
    "falls to 80 % at high declared limits": Range(at_least=0.5),
}
"""What a note says of shares; where the text says low or high, a half of them (ours)."""
_RESOURCES: dict[Resource, Benchmark] = {Resource.CPU: "cpu", Resource.MEMORY: "memory", Resource.DISK: "disk"}


@functools.cache
def published_figures() -> tuple[PublishedFigure, ...]:
    """What the paper's text states, in the order of the table."""
    return tuple(_figure(row) for row in table("isolation").rows)


def _figure(row: dict[str, str]) -> PublishedFigure:
    beside = row["note"].startswith(_ON_LOADING)
    declared = float(row["declared_percent"]) / 100 if row["declared_percent"] else None
    if beside and declared is not None:
        declared = 1 - declared  # the table has the share that is left for the tested guest
    about_many = any(row["note"].startswith(words) for words in _RANGES)
    return PublishedFigure(
        processor=row["processor"],
        energy_saving=row["energy_saving"] == "on",
        benchmark=row["benchmark"],
        load=row["load"],
        on=LOADING if beside else TESTED,
        share=None if about_many else declared,
        q_low=float(row["q_low_percent"]) / 100 if row["q_low_percent"] else None,
        q_high=float(row["q_high_percent"]) / 100 if row["q_high_percent"] else None,
        note=row["note"],
    )


def shares_of(figure: PublishedFigure) -> Range:
    """The declared shares that a figure is about."""
    if figure.share is not None:
        return Range(at_least=figure.share, at_most=figure.share)
    return next((found for words, found in _RANGES.items() if figure.note.startswith(words)), Range())


def benchmark_of(figure: PublishedFigure) -> Benchmark:
    """In the terms of the paper's conclusions."""
    return _BENCHMARKS[figure.benchmark]


def load_of(figure: PublishedFigure) -> Load:
    """In the terms of the paper's conclusions."""
    return _LOADS[figure.load]


def paper_benchmark(key: Key) -> Benchmark | None:
    """What the paper would call a benchmark of ours; None for one that it does not have."""
    return _RESOURCES.get(key.resource)


def paper_loads(load: str) -> frozenset[Load]:
    """What the paper would call a load of ours; empty for one that it does not have."""
    if load == NOTHING:
        return frozenset({"none"})
    if load.startswith("memory-"):
        return frozenset({"memory", "memory-write"} if load.startswith("memory-write-") else {"memory"})
    if load == "flush" or resource_of(load) is Resource.DISK:
        return frozenset({"disk"})
    return frozenset({"cpu"}) if load in ("integer", "floating") else frozenset()


def is_about(figure: PublishedFigure, key: Key) -> bool:
    """Whether a figure is about what a result of ours is of, with whatever share."""
    # A limit alone is no promise beside a load; without one it is all that acts.
    policies = (BOTH, LIMIT) if load_of(figure) == "none" else (BOTH,)
    return (
        paper_benchmark(key) == benchmark_of(figure)
        and load_of(figure) in paper_loads(key.load)
        and (figure.benchmark != _DHRYSTONE or key.benchmark == "integer")
        and (figure.load != _DHRYSTONE or key.load == "integer")
        and key.intensity in (0, 100)
        and key.policy in policies
        and key.on == figure.on
    )


def beside_ours(cells: Sequence[Cell], arms: Sequence[ArmRecord]) -> tuple[Beside, ...]:
    """Every published figure with those of each arm; one line without an arm where there is nothing comparable."""
    return tuple(row for figure in published_figures() for row in _beside(figure, cells, arms))


def by_figure(rows: Sequence[Beside]) -> list[tuple[PublishedFigure, dict[str, Beside]]]:
    """Every figure with ours by arm; empty where there is nothing comparable."""
    grouped: dict[PublishedFigure, dict[str, Beside]] = {}
    for row in rows:
        grouped.setdefault(row.figure, {}).update({row.arm: row} if row.arm else {})
    return list(grouped.items())


def _beside(figure: PublishedFigure, cells: Sequence[Cell], arms: Sequence[ArmRecord]) -> Iterator[Beside]:
    shares = shares_of(figure)
    comparable = [cell for cell in cells if is_about(figure, cell.key) and shares.includes(cell.key.share)]
    found = False
    for arm in arms:
        if arm.usable and arm.role != "aa":
            own = [
                (cell.key, series)
                for cell in comparable
                if (series := cell.of(arm.name)) is not None and series.q.point is not None
            ]
            if own:
                found = True
                yield _row(figure, arm.name, own)
    if not found:
        what = "no figure of ours of such a benchmark and load"
        why = f"{what} at a share of {percent(figure.share)}" if figure.share is not None else what
        yield Beside(figure, "", None, Estimate.missing("ratio", why), why)


def _row(figure: PublishedFigure, arm: str, own: Sequence[tuple[Key, Series]]) -> Beside:
    highest = figure.q_low is None and figure.q_high is not None
    chosen = max if highest else min
    key, series = chosen(own, key=lambda one: one[1].q.point or 0.0)
    if len(own) == 1:
        return Beside(figure, arm, key, series.q, _words(key))
    extreme = "highest" if highest else "lowest"
    return Beside(figure, arm, None, series.q, f"the {extreme} of {len(own)}: {_words(key)}")


def _words(key: Key) -> str:
    return f"{short_benchmark(key.benchmark)}, {key.load_label}, {percent(key.share)}"
