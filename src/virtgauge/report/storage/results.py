"""The trial records of the storage suite, by cell and arm, and one repetition's figures out of them."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from virtgauge.analysis.distribution import Distribution
from virtgauge.ledger.records import Histogram, TrialRecord, TrialStatus
from virtgauge.report.storage.model import Key
from virtgauge.report.storage.vocabulary import LEVELS, OPERATIONS

_NS_PER_UNIT = {"ps": 1e-3, "ns": 1.0, "us": 1e3, "ms": 1e6}

Histograms = Callable[[Iterable[int], str], Iterator[tuple[int, Histogram]]]


@dataclasses.dataclass(frozen=True)
class Durations:
    """One trial's histogram, with the factor that makes nanoseconds of its unit."""

    distribution: Distribution
    ns_per_unit: float

    def quantile_ns(self, share: float) -> float:
        """The duration that so many do not exceed."""
        return self.distribution.quantile(share) * self.ns_per_unit


def key_of(trial: TrialRecord) -> Key:
    """The cell that a trial belongs to."""
    factors = trial.factors
    return Key(
        operation=factors.get("operation", trial.probe),
        of=factors.get("of") or factors.get("crash") or "",
        database=factors["database"],
        durability=factors.get("durability", ""),
        flushes=factors.get("flushes", "as-is"),
        clients=int(factors.get("clients", "1")),
        values=int(factors.get("values", "1")),
        index=factors.get("index", "yes") == "yes",
        loop=factors.get("loop", "closed"),
        write_mode=factors.get("write_mode", "default"),
    )


class Results:
    """All results of a run.

    Args:
        trials: the suite's, valid or not, in the order of the ledger.
        histograms: of trials, by a measure.
    """

    def __init__(self, trials: Sequence[TrialRecord], histograms: Histograms) -> None:
        self._trials: defaultdict[tuple[Key, str], list[TrialRecord]] = defaultdict(list)
        for trial in trials:
            self._trials[key_of(trial), trial.arm].append(trial)
        self._numbers = [trial.trial_id for trial in trials]
        self._histograms = histograms
        self._durations: dict[str, dict[int, Durations]] = {}

    @functools.cached_property
    def keys(self) -> list[Key]:
        """Every cell that was tried: by operation, level and flush profile, then database as in the plan."""
        tried = list(dict.fromkeys(key for key, _ in self._trials))
        databases = list(dict.fromkeys(key.database for key in tried))
        operations = [*OPERATIONS, *(key.operation for key in tried)]
        levels = [*LEVELS, *(key.durability for key in tried)]

        def rank(key: Key) -> tuple[Any, ...]:
            return (
                *(operations.index(key.operation), -levels.index(key.durability), key.flushes),
                *(databases.index(key.database), key.clients, key.values, not key.index),
                *(key.offered_per_s or 0.0, key.write_mode, key.of),
            )

        return sorted(tried, key=rank)

    def tried(self, key: Key, arm: str) -> list[TrialRecord]:
        """Every attempt of an arm in a cell."""
        return self._trials.get((key, arm), [])

    def of_arm(self, arm: str) -> list[TrialRecord]:
        """Every attempt of an arm."""
        return [trial for (_, name), trials in self._trials.items() if name == arm for trial in trials]

    def counted(self, key: Key, arm: str) -> dict[int, TrialRecord]:
        """The valid result of each block (the last, should there be several)."""
        return {trial.block: trial for trial in self.tried(key, arm) if trial.status is TrialStatus.VALID}

    def scalar(self, key: Key, arm: str, field: str) -> dict[int, float]:
        """A number of each block's result."""
        found = {block: trial.result.get(field) for block, trial in self.counted(key, arm).items()}
        return {block: float(value) for block, value in found.items() if isinstance(value, int | float)}

    def rates(self, key: Key, arm: str) -> dict[int, float]:
        """Operations per second, of statements with many values rows per second, by block."""
        return self.scalar(key, arm, "rows_per_s" if key.many_values else "operations_per_s")

    def durations(self, key: Key, arm: str, measure: str) -> dict[int, Durations]:
        """The histograms of a measure, by block."""
        if measure not in self._durations:
            found = self._histograms(self._numbers, measure)
            self._durations[measure] = {
                number: durations_of(one) for number, one in found if one.n and one.unit in _NS_PER_UNIT
            }
        known = self._durations[measure]
        counted = self.counted(key, arm).items()
        return {block: known[trial.trial_id] for block, trial in counted if trial.trial_id in known}


def durations_of(histogram: Histogram) -> Durations:
    """A histogram of durations as a distribution."""
    distribution = Distribution(
        histogram.values, histogram.counts, float(histogram.minimum), float(histogram.maximum), histogram.mean
    )
    return Durations(distribution, _NS_PER_UNIT[histogram.unit])


def flag_counts(trials: Sequence[TrialRecord]) -> dict[str, int]:
    """How many trials have each flag, the most frequent first."""
    return dict(Counter(name for trial in trials for name in {flag.name for flag in trial.flags}).most_common())


def settings_of(trials: Mapping[int, TrialRecord]) -> dict[str, str]:
    """What a level was set to, as the last result recorded it."""
    for trial in reversed(list(trials.values())):
        settings = trial.result.get("settings")
        if isinstance(settings, Mapping):
            return {str(name): str(value) for name, value in settings.items()}
        if settings:
            return {"profile": str(settings)}
    return {}


def why_missing(tried: Sequence[TrialRecord]) -> str:
    """One line on why there is no valid result."""
    last = tried[-1]
    reason = last.error or next((f"{flag.name}: {flag.detail}" for flag in last.flags if flag.fatal), "")
    if last.status is TrialStatus.VALID:
        return "the result has no rate"
    return f"{last.status.value}: {reason}" if reason else last.status.value
