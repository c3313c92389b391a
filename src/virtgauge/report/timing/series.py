"""From trials to series: each repetition's statistics, the estimates over repetitions, and the comparisons."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from virtgauge.analysis import distribution as dist
from virtgauge.analysis.bootstrap import median_estimate
from virtgauge.analysis.comparison import Comparison, compare, paired_ratio
from virtgauge.analysis.estimate import Estimate
from virtgauge.ledger.records import ArmRecord, TrialRecord, TrialStatus
from virtgauge.measures.figures import STATISTICS, TAILS, TrialFigures
from virtgauge.measures.values import CellKey, cell_key
from virtgauge.report.timing.model import COMPARED, SCALARS, Cell, Curve, Scatter, Series

_RAW = "reservoir"
_NS_PER_RAW = 1e-3
_MOST_POINTS, _POINTS_A_SERIES = 9000, (15, 150)
"""Raw values in all scatters together, and in each at least and at most."""

# The order of a person's interest; what is not named here follows, sorted.
_PROBE_ORDER = ("timer_cost", "sleep_lateness")
_FUNCTION_ORDER = (
    *("rdtsc", "rdtscp", "hptime", "clock_gettime", "clock_gettime_syscall", "gettimeofday"),
    *("usleep", "nanosleep", "clock_nanosleep", "highpertimer", "spin"),
)
_LOAD_ORDER = ("idle", "cpu", "io")


def ordered_cells(trials: Iterable[TrialRecord]) -> list[CellKey]:
    """Every cell that was tried, in the order in which to show them."""

    def place(order: Sequence[str], name: str) -> tuple[int, str]:
        return (order.index(name), "") if name in order else (len(order), name)

    def rank(key: CellKey) -> tuple[object, ...]:
        suite, probe, items = key
        factors = dict(items)
        target = factors.get("target_ns", "")
        return (
            suite,
            place(_PROBE_ORDER, probe),
            place(_LOAD_ORDER, factors.get("load", "")),
            place(_FUNCTION_ORDER, factors.get("function", "")),
            int(target) if target.isdigit() else 0,
            items,
        )

    return sorted({cell_key(trial) for trial in trials}, key=rank)


class CellBuilder:
    """Makes the cells of a report from the run's trials.

    Args:
        arms: of the manifest; those that were skipped get no series.
        trials: all of the ledger's.
        figures: by trial number.
        nominal: the confidence wanted.
        raw: the raw values that were kept of a trial, by its number and the series' name.
    """

    def __init__(
        self,
        arms: Sequence[ArmRecord],
        trials: Sequence[TrialRecord],
        figures: Mapping[int, TrialFigures],
        nominal: float,
        raw: Callable[[int, str], npt.NDArray[np.int64]],
    ) -> None:
        self._arms = [arm for arm in arms if arm.usable]
        self._nominal = nominal
        self._trials: defaultdict[tuple[CellKey, str], list[TrialRecord]] = defaultdict(list)
        for trial in trials:
            self._trials[cell_key(trial), trial.arm].append(trial)
        self._figures = figures
        self._reference = next((arm.name for arm in arms if arm.role == "reference"), None)
        self._aa = next((arm.name for arm in arms if arm.role == "aa"), None)
        self._raw = raw
        fewest, most = _POINTS_A_SERIES
        self._points = min(max(_MOST_POINTS // max(len(self._trials), 1), fewest), most)
        self.aa_ratios: list[Estimate] = []
        """Of the medians, one for each cell where both arms of the A/A pair were measured."""

    def cell(self, key: CellKey) -> Cell:
        """One cell, with the series and curves of all arms."""
        suite, probe, factors = key
        by_arm = {arm.name: self.measured(key, arm.name) for arm in self._arms}
        reference = by_arm.get(self._reference or "", {})
        aa = self._aa_ratios(by_arm, reference)
        if "p50" in aa and aa["p50"].point is not None:
            self.aa_ratios.append(aa["p50"])
        series, curves, scatters = [], [], []
        for arm in self._arms:
            measured = by_arm[arm.name]
            if not self._trials[key, arm.name]:
                continue
            series.append(self._series(key, arm, measured, reference, aa))
            if measured:
                curves.append(_curve(arm.name, list(measured.values())))
                scatters += self._scatter(key, arm.name, measured, series[-1].statistics["p50"])
        return Cell(suite, probe, dict(factors), tuple(series), tuple(curves), tuple(scatters))

    def _scatter(self, key: CellKey, arm: str, measured: Mapping[int, TrialFigures], median: Estimate) -> list[Scatter]:
        """One, or none where no raw values were kept."""
        middle = median.point
        if middle is None:
            return []
        trials = {trial.block: trial.trial_id for trial in self._counted(key, arm)}
        block = min(measured, key=lambda block: abs((measured[block].statistics["p50"] or 0.0) - middle))
        raw = self._raw(trials[block], _RAW)
        if not raw.size:
            return []
        # A reservoir is in no order, but one that was never full is in order of time: even steps serve both.
        places = np.linspace(0, raw.size - 1, min(self._points, raw.size)).astype(np.int64)
        extremes = [measured[block].statistics[name] for name in ("min", "max")]
        values = [float(value) * _NS_PER_RAW for value in raw[places]]
        values[len(values) // 2 : len(values) // 2] = [one for one in extremes if one is not None]
        return [Scatter(arm, block, tuple(float(f"{value:.3g}") for value in values), middle)]

    def _counted(self, key: CellKey, arm: str) -> list[TrialRecord]:
        """The valid trial of each block (the last, should there be several) that brought a histogram."""
        by_block = {
            trial.block: trial
            for trial in self._trials[key, arm]
            if trial.status is TrialStatus.VALID and trial.trial_id in self._figures
        }
        return list(by_block.values())

    def measured(self, key: CellKey, arm: str) -> dict[int, TrialFigures]:
        """The valid figures of one arm in one cell, by block."""
        return {trial.block: self._figures[trial.trial_id] for trial in self._counted(key, arm)}

    def _aa_ratios(
        self, by_arm: Mapping[str, Mapping[int, TrialFigures]], reference: Mapping[int, TrialFigures]
    ) -> dict[str, Estimate]:
        if self._aa is None or self._aa not in by_arm:
            return {}
        again = by_arm[self._aa]
        return {name: paired_ratio(_values(again, name), _values(reference, name), self._nominal) for name in COMPARED}

    def _series(
        self,
        key: CellKey,
        arm: ArmRecord,
        measured: Mapping[int, TrialFigures],
        reference: Mapping[int, TrialFigures],
        aa: Mapping[str, Estimate],
    ) -> Series:
        counted = self._counted(key, arm.name)
        comparisons: dict[str, Comparison] = {}
        if arm.role != "reference" and measured:
            for name in COMPARED:
                comparisons[name] = compare(
                    _values(measured, name), _values(reference, name), aa.get(name), "ns", self._nominal
                )
        return Series(
            arm=arm.name,
            blocks=tuple(sorted(measured)),
            samples=sum(figures.samples for figures in measured.values()),
            statistics=_estimates(measured, self._nominal),
            comparisons=comparisons,
            scalars=_scalars(counted, self._nominal),
            methods=tuple(sorted({str(trial.result["method"]) for trial in counted if "method" in trial.result})),
            missing=None if measured else _why_missing(self._trials[key, arm.name]),
        )


def _values(measured: Mapping[int, TrialFigures], statistic: str) -> dict[int, float]:
    return {block: value for block, figures in measured.items() if (value := figures.statistics[statistic]) is not None}


def _estimates(measured: Mapping[int, TrialFigures], nominal: float) -> dict[str, Estimate]:
    if not measured:
        return {name: Estimate.missing("ns", "no valid trial") for name in STATISTICS}
    estimates = {}
    for name in STATISTICS:
        values = list(_values(measured, name).values())
        if name in ("min", "max"):
            extreme = min(values) if name == "min" else max(values)
            reason = "over all repetitions; an extreme has no interval"
            estimates[name] = Estimate.bare(extreme, "ns", reason, len(values))
        elif len(values) == len(measured):
            estimates[name] = median_estimate(values, "ns", nominal)
        else:
            estimates[name] = _pooled_tail(list(measured.values()), TAILS[name])
    return estimates


def _scalars(counted: Sequence[TrialRecord], nominal: float) -> dict[str, Estimate]:
    estimates = {}
    for field, (name, unit, factor) in SCALARS.items():
        values = [trial.result[field] for trial in counted if isinstance(trial.result.get(field), int | float)]
        if values:
            estimates[name] = median_estimate([value * factor for value in values], unit, nominal)
    return estimates


def _pooled_tail(figures: Sequence[TrialFigures], share: float) -> Estimate:
    """A tail quantile for which single trials are too small: of all repetitions together, then without interval."""
    needed, samples = dist.samples_needed(share), sum(one.samples for one in figures)
    if samples < needed:
        return Estimate.missing("ns", f"needs {needed:,} samples, has {samples:,}", len(figures))
    point = dist.merge(one.distribution for one in figures).quantile(share) * figures[0].ns_per_unit
    reason = f"of all {samples:,} samples together; a repetition needs {needed:,} of its own for an interval"
    return Estimate.bare(point, "ns", reason, len(figures))


def _curve(arm: str, figures: Sequence[TrialFigures]) -> Curve:
    pooled, scale = dist.merge(one.distribution for one in figures), figures[0].ns_per_unit
    values, shares = dist.ccdf(pooled)
    return Curve(
        arm,
        tuple(float(f"{value * scale:.4g}") for value in values),
        tuple(float(f"{share:.4g}") for share in shares),
        float(f"{pooled.mean * scale:.4g}"),
    )


def _why_missing(trials: Sequence[TrialRecord]) -> str:
    """One line on why there is no valid trial."""
    last = trials[-1]
    reason = last.error or next((f"{flag.name}: {flag.detail}" for flag in last.flags if flag.fatal), "")
    if last.status is TrialStatus.VALID:
        return "the trial brought no histogram"
    return f"{last.status.value}: {reason}" if reason else last.status.value
