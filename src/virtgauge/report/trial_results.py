"""A suite's trial records by cell and arm, and one repetition's figures out of them: what the suites' reports share."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

from virtgauge.analysis.distribution import Distribution, samples_needed
from virtgauge.ledger.records import Histogram, TrialRecord, TrialStatus
from virtgauge.ledger.statistics import NS_PER_UNIT

Histograms = Callable[[Iterable[int], str], Iterator[tuple[int, Histogram]]]
"""The histograms of a measure, of the trials with these numbers, as pairs with the number."""
K = TypeVar("K", bound=Hashable)


@dataclasses.dataclass(frozen=True)
class Durations:
    """One trial's histogram, with the factor that makes nanoseconds of its unit."""

    distribution: Distribution
    ns_per_unit: float

    def quantile_ns(self, share: float) -> float:
        """The duration that so many do not exceed."""
        return self.distribution.quantile(share) * self.ns_per_unit

    def tail_ns(self, share: float) -> float | None:
        """The same, where there are values enough to say it."""
        return self.quantile_ns(share) if self.distribution.n >= samples_needed(share) else None


class CellTrials(Generic[K]):
    """All results of a suite in a run, by cell and arm.

    Args:
        trials: the suite's, valid or not, in the order of the ledger.
        histograms: of trials, by a measure.
        key_of: the cell that a trial belongs to, whatever its arm and block.
    """

    def __init__(
        self, trials: Sequence[TrialRecord], histograms: Histograms, key_of: Callable[[TrialRecord], K]
    ) -> None:
        self._trials: defaultdict[tuple[K, str], list[TrialRecord]] = defaultdict(list)
        for trial in trials:
            self._trials[key_of(trial), trial.arm].append(trial)
        self._numbers = [trial.trial_id for trial in trials]
        self._histograms = histograms
        self._durations: dict[str, dict[int, Durations]] = {}

    @property
    def tried_keys(self) -> list[K]:
        """Every cell that was tried, in the order of the ledger."""
        return list(dict.fromkeys(key for key, _ in self._trials))

    def tried(self, key: K, arm: str) -> list[TrialRecord]:
        """Every attempt of an arm in a cell."""
        return self._trials.get((key, arm), [])

    def of_arm(self, arm: str) -> list[TrialRecord]:
        """Every attempt of an arm."""
        return [trial for (_, name), trials in self._trials.items() if name == arm for trial in trials]

    def counted(self, key: K, arm: str) -> dict[int, TrialRecord]:
        """The valid result of each block (the last, should there be several)."""
        return {trial.block: trial for trial in self.tried(key, arm) if trial.status is TrialStatus.VALID}

    def scalar(self, key: K, arm: str, field: str) -> dict[int, float]:
        """A number of each block's result; blocks without one are left out."""
        found = {block: trial.result.get(field) for block, trial in self.counted(key, arm).items()}
        return {block: float(value) for block, value in found.items() if isinstance(value, int | float)}

    def durations(self, key: K, arm: str, measure: str) -> dict[int, Durations]:
        """The histograms of a measure, by block."""
        if measure not in self._durations:
            found = self._histograms(self._numbers, measure)
            self._durations[measure] = {
                number: _durations_of(one) for number, one in found if one.n and one.unit in NS_PER_UNIT
            }
        known = self._durations[measure]
        counted = self.counted(key, arm).items()
        return {block: known[trial.trial_id] for block, trial in counted if trial.trial_id in known}


def _durations_of(histogram: Histogram) -> Durations:
    distribution = Distribution(
        histogram.values, histogram.counts, float(histogram.minimum), float(histogram.maximum), histogram.mean
    )
    return Durations(distribution, NS_PER_UNIT[histogram.unit])


def flag_counts(trials: Sequence[TrialRecord]) -> dict[str, int]:
    """How many trials have each flag, the most frequent first."""
    return dict(Counter(name for trial in trials for name in {flag.name for flag in trial.flags}).most_common())


def why_missing(tried: Sequence[TrialRecord], figure: str) -> str:
    """One line on why there is no valid result.

    Args:
        tried: every attempt; one at least.
        figure: that a valid result must have: ``rate``.
    """
    last = tried[-1]
    reason = last.error or next((f"{flag.name}: {flag.detail}" for flag in last.flags if flag.fatal), "")
    if last.status is TrialStatus.VALID:
        return f"the result has no {figure}"
    return f"{last.status.value}: {reason}" if reason else last.status.value
