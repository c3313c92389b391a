"""From imported trials to figures: estimates by measure, cell and arm, and what they are beside the reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from virtgauge.analysis.bootstrap import median_estimate
from virtgauge.analysis.comparison import compare, paired_ratio
from virtgauge.analysis.estimate import Estimate
from virtgauge.ledger.records import ArmRecord, TrialRecord
from virtgauge.ledger.statistics import NS_PER_UNIT
from virtgauge.measures.catalogue import MEASURES
from virtgauge.measures.figures import TrialFigures, figures_of
from virtgauge.report.imported.model import Figure, Origin, Series
from virtgauge.report.sections import SuiteRecords
from virtgauge.report.trial_results import CellTrials, why_missing
from virtgauge.results.measure import Measure

SUITE = "imported"
_SHOWN = ("p50", "p99", "p99.9", "max")
"""Of a distribution; the others are in the exports."""
_ASIDE = ("fio.submission", "fio.total")

Key = tuple[str, tuple[tuple[str, str], ...]]


def shown_measures() -> list[Measure]:
    """The measures that the report shows."""
    return [
        measure
        for measure in MEASURES[SUITE].values()
        if not measure.statistic or (measure.statistic in _SHOWN and not measure.name.startswith(_ASIDE))
    ]


class FigureBuilder:
    """Makes the figures of a run.

    Attributes:
        aa_ratios: of the headline measures, A/A arm to reference, of the cells that have been made so far.
    """

    def __init__(self, records: SuiteRecords, arms: Sequence[ArmRecord]) -> None:
        self._arms = arms
        self._nominal = records.nominal
        self._trials: CellTrials[Key] = CellTrials(records.trials, records.histograms, _key)
        self._reference = next((arm.name for arm in arms if arm.role == "reference"), None)
        self._aa = next((arm.name for arm in arms if arm.role == "aa"), None)
        self._distributions = _distributions(records)
        self.aa_ratios: list[Estimate] = []

    def figures(self) -> list[Figure]:
        """Cell by cell, and in it measure by measure; a measure that no arm has is left out."""
        found = []
        for key in self._trials.tried_keys:
            for measure in shown_measures():
                values = {arm.name: self._values(key, arm.name, measure) for arm in self._arms}
                if key[0] in measure.probes and any(values.values()):
                    found.append(self._figure(key, measure, values))
        return found

    def _figure(self, key: Key, measure: Measure, values: Mapping[str, Mapping[int, float]]) -> Figure:
        reference = values.get(self._reference or "", {})
        aa = values.get(self._aa or "", {})
        aa_ratio = paired_ratio(aa, reference, self._nominal) if aa and reference else None
        if aa_ratio is not None and measure.headline:
            self.aa_ratios.append(aa_ratio)
        unit = measure.quantity.unit
        series = []
        for arm in self._arms:
            own = values[arm.name]
            tried = self._trials.tried(key, arm.name)
            if not tried:
                continue
            estimate = (
                median_estimate([own[block] for block in sorted(own)], unit, self._nominal)
                if own
                else Estimate.missing(unit, why_missing(tried, measure.name))
            )
            beside = arm.name != self._reference and own and reference
            comparison = compare(own, reference, aa_ratio, unit, self._nominal) if beside else None
            series.append(Series(arm.name, estimate, comparison))
        probe, items = key
        better = measure.better.value
        return Figure(probe, dict(items), measure.name, measure.meaning, unit, better, measure.headline, tuple(series))

    def _values(self, key: Key, arm: str, measure: Measure) -> dict[int, float]:
        found = {}
        for block, trial in self._trials.counted(key, arm).items():
            of = self._distributions.get((trial.trial_id, measure.histogram or ""))
            value = measure.value(trial.result, None if of is None else of.statistics)
            if trial.probe in measure.probes and value is not None:
                found[block] = value
        return found


def origins(trials: Sequence[TrialRecord], arms: Sequence[ArmRecord]) -> tuple[Origin, ...]:
    """Which tools' files the trials of each arm were in."""
    files: dict[tuple[str, str], dict[str, None]] = {}
    for arm in arms:
        for trial in (trial for trial in trials if trial.arm == arm.name):
            named = files.setdefault((arm.name, str(trial.result.get("tool", trial.probe))), {})
            named.update(dict.fromkeys(str(source["name"]) for source in trial.result.get("sources", ())))
    return tuple(Origin(arm, tool, tuple(named)) for (arm, tool), named in files.items())


def _key(trial: TrialRecord) -> Key:
    return trial.probe, tuple(trial.factors.items())


def _distributions(records: SuiteRecords) -> dict[tuple[int, str], TrialFigures]:
    numbers = [trial.trial_id for trial in records.trials]
    found = {}
    for name in dict.fromkeys(measure.histogram for measure in shown_measures() if measure.histogram):
        for number, histogram in records.histograms(numbers, name):
            if histogram.unit in NS_PER_UNIT and histogram.n:
                found[number, name] = figures_of(histogram)
    return found
