"""The figures of a run's valid trials, by measure, cell, arm and block."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from virtgauge.ledger.records import TrialRecord, TrialStatus
from virtgauge.ledger.store import Ledger
from virtgauge.measures.figures import NS_PER_UNIT, TrialFigures, figures_of
from virtgauge.measures.measure import Measure

CellKey = tuple[str, str, tuple[tuple[str, str], ...]]
"""Suite, probe, and the levels of the factors in the order of the plan."""


def cell_key(trial: TrialRecord) -> CellKey:
    """What trials have in common that differ in arm and repetition only."""
    return trial.suite, trial.probe, tuple(trial.factors.items())


@dataclasses.dataclass(frozen=True)
class MeasuredValue:
    """One trial's figure, in the measure's base unit."""

    measure: Measure
    trial: TrialRecord
    value: float


class MeasuredValues:
    """What some measures say of a run: valid trials only, the last of each block should there be several."""

    def __init__(self, values: Iterable[MeasuredValue]) -> None:
        self._by_place: defaultdict[str, defaultdict[tuple[CellKey, str], dict[int, MeasuredValue]]] = defaultdict(
            lambda: defaultdict(dict)
        )
        for value in values:
            self._by_place[value.measure.full_name][cell_key(value.trial), value.trial.arm][value.trial.block] = value

    @classmethod
    def read(
        cls, ledger: Ledger, measures: Iterable[Measure], trials: Sequence[TrialRecord] | None = None
    ) -> MeasuredValues:
        """Read them from a ledger.

        Args:
            ledger: of a run, also of one in progress.
            measures: which; each histogram that they need is read once.
            trials: the ledger's, where they have been read already.
        """
        return cls(read_values(ledger, measures, trials))

    def measures(self) -> list[Measure]:
        """Those that have a figure."""
        return [next(iter(next(iter(places.values())).values())).measure for places in self._by_place.values()]

    def cells(self, measure: Measure) -> list[CellKey]:
        """The cells in which any arm has a figure, in the order of the ledger."""
        return list(dict.fromkeys(cell for cell, _ in self._by_place.get(measure.full_name, {})))

    def blocks(self, measure: Measure, cell: CellKey, arm: str) -> dict[int, float]:
        """An arm's figures in a cell, by block; empty where it has none."""
        return {block: one.value for block, one in self.found(measure, cell, arm).items()}

    def found(self, measure: Measure, cell: CellKey, arm: str) -> Mapping[int, MeasuredValue]:
        """The same with the trials behind them."""
        places = self._by_place.get(measure.full_name)
        return {} if places is None else places.get((cell, arm), {})


def read_values(
    ledger: Ledger, measures: Iterable[Measure], trials: Sequence[TrialRecord] | None = None
) -> list[MeasuredValue]:
    """Every figure of every valid trial; see :meth:`MeasuredValues.read`."""
    wanted = list(measures)
    trials = ledger.trials() if trials is None else trials
    valid = [trial for trial in trials if trial.status is TrialStatus.VALID]
    figures = _figures(ledger, valid, {m.histogram for m in wanted if m.histogram is not None})
    found = []
    for measure in wanted:
        for trial in valid:
            if trial.suite == measure.suite:
                value = measure.value(trial, figures.get((trial.trial_id, measure.histogram)))
                if value is not None:
                    found.append(MeasuredValue(measure, trial, value))
    return [*(one for one in found if one.measure.baseline is None), *_related(found)]


def _related(found: Iterable[MeasuredValue]) -> Iterator[MeasuredValue]:
    """Those of measures with a baseline, in per cent of the baseline's of the same arm and block."""
    own = [one for one in found if one.measure.baseline is not None]
    places = {
        (one.measure.full_name, one.trial.arm, one.trial.block, frozenset(one.trial.factors.items())): one.value
        for one in own
    }
    for one in own:
        assert one.measure.baseline is not None
        levels = one.measure.baseline(one.trial.factors)
        if levels is not None:
            base = places.get((one.measure.full_name, one.trial.arm, one.trial.block, frozenset(levels.items())))
            if base:
                yield dataclasses.replace(one, value=100 * one.value / base)


def _figures(
    ledger: Ledger, trials: Sequence[TrialRecord], names: Iterable[str]
) -> dict[tuple[int, str | None], TrialFigures]:
    numbers = [trial.trial_id for trial in trials]
    found: dict[tuple[int, str | None], TrialFigures] = {}
    for name in names:
        for number, histogram in ledger.histograms(numbers, name):
            if histogram.unit in NS_PER_UNIT and histogram.n:
                found[number, name] = figures_of(histogram)
    return found
