"""The histograms and raw values of a run's trials: the statistics of each as columns, and repetitions together."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from virtgauge.analysis.distribution import Distribution
from virtgauge.ledger.records import NS_PER_UNIT, STATISTICS, Histogram, merged, statistics_of
from virtgauge.ledger.store import Ledger
from virtgauge.results.columns import Cell, Integers, Trials, chunks
from virtgauge.results.measure import Column

_FEWEST_POOLED, _ENOUGH_POOLED = 32, 1_000_000
"""How many repetitions, and how many values, are taken together at least, where there are so many."""


class Pooled(NamedTuple):
    """The values of repetitions together."""

    values: Distribution
    ns: float  # that their unit has
    places: Integers  # of their trials in :class:`Trials`
    of: int  # so many repetitions as have values


class Distributions:
    """Read from the ledger when one is asked for; statistics and what is pooled, once."""

    def __init__(self, ledger: Ledger, trials: Trials) -> None:
        self._ledger = ledger
        self._trials = trials
        self._statistics: dict[str, dict[str, Column]] = {}
        self._pooled: dict[tuple[str, Cell, str], Pooled | None] = {}

    def histograms(self, name: str, cell: Cell, arm: str) -> Iterator[tuple[int, Histogram]]:
        """The block and the histogram of each repetition that has one of that name."""
        rows = self._trials.counting_at(cell, arm)
        numbers = self._trials.number[rows].tolist()
        blocks = dict(zip(numbers, self._trials.block[rows].tolist(), strict=True))
        return ((blocks[number], one) for number, one in self._ledger.histograms(numbers, name))

    def samples(self, series: str, cell: Cell, arm: str, block: int) -> npt.NDArray[np.int64]:
        """The raw values of a repetition that counts; empty when none were kept.  Raises DamagedError."""
        rows = self._trials.counting_at(cell, arm)
        number = self._trials.number[rows[self._trials.block[rows] == block]]
        return self._ledger.samples(int(number[0]), series)

    def pooled(self, histogram: str, cell: Cell, arm: str) -> Pooled | None:
        """The values of repetitions together; None without any.

        They are those of all repetitions, or, as to decode them would take minutes, of one drawn from each of as many
        equal stretches of the run as have a million values on the average (a hundred beyond the quantile at 0.9999),
        and from 32 at least.  Drawn, because a fixed step may meet one repetition of each guest only.
        """
        key = histogram, cell, arm
        if key not in self._pooled:
            rows = self._trials.counting_at(cell, arm)
            values = self.statistics(histogram, {"n"})["n"][rows]
            rows, enough = rows[values > 0], _FEWEST_POOLED
            of = rows.size
            if of > enough:
                enough = max(enough, math.ceil(_ENOUGH_POOLED * of / np.nansum(values)))
            if of > enough:
                stretches = np.linspace(0, of, enough + 1).astype(np.int64)
                rows = rows[np.random.default_rng(enough).integers(stretches[:-1], stretches[1:])]
            numbers = self._trials.number[rows].tolist()
            found = merged([one for _, one in self._ledger.histograms(numbers, histogram)])
            self._pooled[key] = None if found is None else Pooled(found, NS_PER_UNIT[found.unit], rows, of)
        return self._pooled[key]

    def mean_ns(self, histogram: str, cell: Cell, arm: str) -> float | None:
        """The mean of all values of all repetitions, in nanoseconds; None without any."""
        rows = self._trials.counting_at(cell, arm)
        n, means = (self.statistics(histogram, {"mean"})[name][rows] for name in ("n", "mean"))
        total = np.nansum(n)
        return float(np.nansum(n * means) / total) if total else None

    def statistics(self, histogram: str, wanted: AbstractSet[str] = frozenset()) -> dict[str, Column]:
        """The statistics of every trial, in nanoseconds, by their names; ``n`` is the number of values."""
        known = self._statistics.get(histogram, {})
        if known and wanted <= known.keys():
            return known
        # Those that are wanted; once that was too few, all.
        names = ["n", *(name for name in STATISTICS if known or not wanted or name in wanted)]
        numbers = self._trials.number
        told = np.full((numbers.size + 1, len(names)), np.nan)  # the last row for trials of other hosts
        places = np.full(int(numbers.max(initial=0)) + 1, -1, dtype=np.int64)
        places[numbers] = np.arange(numbers.size)
        if self._first <= self._trials.span[1]:
            scale = f"CASE unit {'WHEN ? THEN ? ' * len(NS_PER_UNIT)}END"
            columns = ", ".join(["trial_id", scale, *(f'"{name}"' for name in names)])
            asked = f"SELECT {columns} FROM summaries WHERE measure = ? AND trial_id BETWEEN ? AND ?"
            bound = (*itertools.chain(*NS_PER_UNIT.items()), histogram, *self._trials.span)
            for some in chunks(self._ledger.rows(asked, bound)):
                rows = np.fromiter(itertools.chain.from_iterable(some), np.float64).reshape(len(some), -1)
                rows[:, 3:] *= rows[:, 1:2]
                rows[np.isnan(rows[:, 1]), 2] = np.nan
                told[places[rows[:, 0].astype(np.int64)]] = rows[:, 2:]
        for number, one in self._ledger.histograms(numbers[numbers < self._first].tolist(), histogram):
            if one.n and one.unit in NS_PER_UNIT:
                found = statistics_of(one)
                values = np.array([found[name] for name in names[1:]], dtype=np.float64)
                told[places[number]] = (one.n, *values * NS_PER_UNIT[one.unit])
        self._statistics[histogram] = dict(zip(names, told[:-1].T, strict=True))
        return self._statistics[histogram]

    @functools.cached_property
    def _first(self) -> int:
        """The first trial with them; of earlier ones a former version recorded none, or others."""
        recorded = self._ledger.rows("SELECT 1 FROM sqlite_master WHERE name = 'summaries'").fetchall()
        first = self._ledger.rows("SELECT min(trial_id) FROM summaries").fetchone()[0] if recorded else None
        return self._trials.span[1] + 1 if first is None else int(first)
