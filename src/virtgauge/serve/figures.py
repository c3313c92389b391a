"""Running medians: what the headline measures say so far, per arm and cell, each repetition one value.

Only the repetitions in which trials ended since the last look are read, so a look at a long run costs no more.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import defaultdict
from collections.abc import Sequence

from virtgauge.analysis.bootstrap import median_estimate
from virtgauge.analysis.estimate import Estimate
from virtgauge.ledger.records import ArmRecord, TrialRecord
from virtgauge.ledger.store import Ledger
from virtgauge.measures.catalogue import headline_measures
from virtgauge.results.columns import Cell
from virtgauge.results.measure import Measure
from virtgauge.results.table import ResultTable
from virtgauge.serve.formatting import interval_text, plain

_Place = tuple[str, Cell, str]
ROWS = 60
"""Of one measure on the page; the report has them all."""


@dataclasses.dataclass(frozen=True)
class RunningFigure:
    """An arm's median in one cell so far.

    Attributes:
        point: empty without a value.
        interval: empty with fewer than two repetitions.
        reached: the confidence of that interval where it is less than was asked for: ``75 %``.
        n: repetitions behind it.
    """

    point: str = ""
    interval: str = ""
    reached: str = ""
    n: int = 0


@dataclasses.dataclass(frozen=True)
class FigureRow:
    """One cell: the levels in which the rows differ, and a figure for every arm."""

    levels: str
    figures: tuple[RunningFigure, ...]


@dataclasses.dataclass(frozen=True)
class FigureTable:
    """One measure.

    Attributes:
        name: ``timing.sleep_lateness.p99``.
        meaning: in a clause.
        better: which way, in a clause.
        common: the levels that all rows share.
        arms: labels of the columns.
        rows: the first :data:`ROWS`.
        further: how many there are beyond.
    """

    name: str
    meaning: str
    better: str
    common: str
    arms: tuple[str, ...]
    rows: tuple[FigureRow, ...]
    further: int


class RunningFigures:
    """The headline figures of a run that grows."""

    def __init__(self, confidence: float) -> None:
        self._confidence = confidence
        self._blocks: defaultdict[_Place, dict[int, float]] = defaultdict(dict)
        self._estimates: dict[_Place, Estimate] = {}
        self._cells: defaultdict[str, dict[Cell, None]] = defaultdict(dict)

    def add(self, ledger: Ledger, trials: Sequence[TrialRecord]) -> None:
        """Take in the repetitions in which trials ended since the last time."""
        if not trials:
            return
        blocks = [trial.block for trial in trials]
        ledger.blocks = min(blocks), max(blocks)
        table = ResultTable(ledger)
        measures = [measure for measure in headline_measures() if measure.suite in table.suites]
        table.read(measures)
        for measure in measures:
            for cell, arm in itertools.product(table.cells(measure.suite), table.trials.arms):
                if values := table.values(measure, cell, arm):
                    place = measure.full_name, cell, arm
                    self._blocks[place].update(values)
                    self._estimates.pop(place, None)
                    self._cells[measure.full_name][cell] = None

    def tables(self, arms: Sequence[ArmRecord]) -> tuple[FigureTable, ...]:
        """A table for every measure that has a figure, in the order of the catalogue."""
        return tuple(
            self._table(measure, arms) for measure in headline_measures() if self._cells.get(measure.full_name)
        )

    def _table(self, measure: Measure, arms: Sequence[ArmRecord]) -> FigureTable:
        cells = list(self._cells[measure.full_name])
        shared = set.intersection(*(set(items) for _, _, items in cells)) if len(cells) > 1 else set()
        probes = {probe for _, probe, _ in cells}
        rows = []
        for cell in cells[:ROWS]:
            _, probe, items = cell
            levels = [f"{factor} {level}" for factor, level in items if (factor, level) not in shared]
            named = [probe, *levels] if len(probes) > 1 or not levels else levels
            figures = tuple(self._figure(measure, cell, arm.name) for arm in arms)
            rows.append(FigureRow(plain(", ".join(named)), figures))
        common = [f"{factor} {level}" for factor, level in cells[0][2] if (factor, level) in shared]
        return FigureTable(
            name=measure.full_name,
            meaning=measure.meaning,
            better=measure.better.clause,
            common=plain(", ".join(common)),
            arms=tuple(plain(arm.label) + (", emulated" if arm.emulated else "") for arm in arms),
            rows=tuple(rows),
            further=max(0, len(cells) - ROWS),
        )

    def _figure(self, measure: Measure, cell: Cell, arm: str) -> RunningFigure:
        place = measure.full_name, cell, arm
        values = self._blocks.get(place)
        if not values:
            return RunningFigure()
        estimate = self._estimates.get(place)
        if estimate is None:
            estimate = median_estimate(list(values.values()), measure.quantity.unit, self._confidence)
            self._estimates[place] = estimate
        less = estimate.confidence is not None and estimate.confidence < self._confidence
        return RunningFigure(
            point=measure.quantity.text(estimate.point),
            interval=interval_text(estimate, measure.quantity),
            reached=f"{100 * estimate.confidence:.3g} %" if less and estimate.confidence is not None else "",
            n=estimate.n,
        )
