"""Statistics of the trials' histograms, as columns."""

from __future__ import annotations

import functools
from collections.abc import Set as AbstractSet

import numpy as np

from virtgauge.ledger.statistics import NS_PER_UNIT, STATISTICS, statistics_of
from virtgauge.ledger.store import Ledger
from virtgauge.results.columns import Trials, chunks
from virtgauge.results.measure import Column


class HistogramStatistics:
    """Read from the ledger when one is asked for, once."""

    def __init__(self, ledger: Ledger, trials: Trials) -> None:
        self._ledger = ledger
        self._trials = trials
        self._known: dict[str, dict[str, Column]] = {}

    def of(self, histogram: str, wanted: AbstractSet[str] = frozenset()) -> dict[str, Column]:
        """Of every trial, in nanoseconds, by the statistic's name; ``n`` is the number of values."""
        known = self._known.get(histogram, {})
        if known and wanted <= known.keys():
            return known
        # Those that are wanted; once that was too few, all.
        names = ["n", *(name for name in STATISTICS if known or not wanted or name in wanted)]
        numbers = self._trials.number
        told = np.full((numbers.size + 1, len(names)), np.nan)  # the last row for trials of other hosts
        places = np.full(int(numbers.max(initial=0)) + 1, -1, dtype=np.int64)
        places[numbers] = np.arange(numbers.size)
        if self._first <= self._trials.span[1]:
            columns = ", ".join(["trial_id", "unit", *(f'"{name}"' for name in names)])
            asked = f"SELECT {columns} FROM summaries WHERE measure = ? AND trial_id BETWEEN ? AND ?"
            for some in chunks(self._ledger.rows(asked, (histogram, *self._trials.span))):
                rows = np.array([row[2:] for row in some], dtype=np.float64)
                scale = np.array([NS_PER_UNIT.get(row[1], np.nan) for row in some])
                rows[np.isnan(scale)] = np.nan
                rows[:, 1:] *= scale[:, None]
                told[places[[row[0] for row in some]]] = rows
        for number, one in self._ledger.histograms(numbers[numbers < self._first].tolist(), histogram):
            if one.n and one.unit in NS_PER_UNIT:
                found = statistics_of(one)
                values = np.array([found[name] for name in names[1:]], dtype=np.float64)
                told[places[number]] = (one.n, *values * NS_PER_UNIT[one.unit])
        self._known[histogram] = dict(zip(names, told[:-1].T, strict=True))
        return self._known[histogram]

    @functools.cached_property
    def _first(self) -> int:
        """The first trial with them; of earlier ones a former version recorded none, or others."""
        recorded = self._ledger.rows("SELECT 1 FROM sqlite_master WHERE name = 'summaries'").fetchall()
        first = self._ledger.rows("SELECT min(trial_id) FROM summaries").fetchone()[0] if recorded else None
        return self._trials.span[1] + 1 if first is None else int(first)
