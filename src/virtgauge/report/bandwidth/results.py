"""The trial records of the bandwidth suite, by cell and arm, and one repetition's figures out of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from virtgauge.analysis.comparison import paired_difference
from virtgauge.analysis.estimate import Estimate
from virtgauge.ledger.records import Histogram, TrialRecord
from virtgauge.report.bandwidth.keys import Key, Link, Path
from virtgauge.report.bandwidth.vocabulary import ESTIMATORS, INSIDE, NO_TRAFFIC, THROUGH, TIMINGS
from virtgauge.report.trial_results import CellTrials, Histograms

Result = Mapping[str, Any]


def key_of(trial: TrialRecord) -> Key:
    """The cell that a trial belongs to."""
    return key_of_factors(trial.factors)


def key_of_factors(factors: Mapping[str, str]) -> Key:
    """The cell that these levels name."""
    link = Link(
        float(factors.get("capacity_mbps", "0")),
        float(factors.get("delay_ms", "0")),
        float(factors.get("loss", "0")),
    )
    return Key(
        estimator=factors.get("estimator", ""),
        timing=factors.get("timing", ""),
        through=factors.get("through", INSIDE),
        pacing=factors.get("pacing", "auto"),
        path=Path(link, float(factors.get("cross_mbps", "0")), factors.get("traffic", NO_TRAFFIC)),
    )


class Results(CellTrials[Key]):
    """All results of a run.

    Args:
        trials: the suite's, valid or not, in the order of the ledger.
        histograms: of trials, by a measure.
        reference: the arm that the others are compared with.
        aa: the same once more; None without.
        nominal: the confidence wanted.
    """

    def __init__(
        self,
        trials: Sequence[TrialRecord],
        histograms: Histograms,
        reference: str,
        aa: str | None,
        nominal: float,
    ) -> None:
        super().__init__(trials, histograms, key_of)
        self.reference, self.aa, self.nominal = reference, aa, nominal

    @functools.cached_property
    def keys(self) -> list[Key]:
        """Every cell that was tried: by estimator, path, way of swapping and timing."""
        return sorted(self.tried_keys, key=rank)

    def told(self, key: Key, arm: str, figure: Callable[[Result], float | None]) -> dict[int, float]:
        """What is reckoned from each block's valid result, where it is known."""
        found = {block: figure(trial.result) for block, trial in self.counted(key, arm).items()}
        return {block: value for block, value in found.items() if value is not None}

    def off(self, key: Key, arm: str) -> dict[int, float]:
        """The error without its sign, by block."""
        return {block: abs(value) for block, value in self.told(key, arm, error_of).items()}

    def estimated(self, key: Key, arm: str) -> bool:
        """Whether most of the valid trials gave an estimate."""
        counted = self.counted(key, arm)
        return bool(counted) and 2 * self.refusals(key, arm) < len(counted)

    def refusals(self, key: Key, arm: str) -> int:
        """How many of the valid trials could not pace the rate."""
        return sum(is_refusal(trial.result) for trial in self.counted(key, arm).values())

    def distributions(self, measure: str) -> Iterator[tuple[int, Histogram]]:
        """The histograms of a measure, by trial number."""
        return self._histograms(self._numbers, measure)

    def aa_difference(self, key: Key) -> Estimate:
        """What identical arms' errors, without their signs, differ by in a cell."""
        if self.aa is None:
            return Estimate.missing("share", "there is no A/A arm")
        return paired_difference(self.off(key, self.aa), self.off(key, self.reference), "share", self.nominal)


def rank(key: Key) -> tuple[Any, ...]:
    """By which cells are sorted."""
    return (
        *_place(ESTIMATORS, key.estimator),
        *key.path.rank,
        *_place(THROUGH, key.through),
        *_place(TIMINGS, key.timing),
        key.pacing,
    )


def _place(order: Sequence[str], name: str) -> tuple[int, str]:
    return (order.index(name), "") if name in order else (len(order), name)


def is_refusal(result: Result) -> bool:
    """Whether the sender could not pace the rate, so that there is no estimate."""
    return bool((result.get("pacing") or {}).get("refused")) and result.get("median_mbps") is None


def is_bound(result: Result) -> bool:
    """Whether the answer is a lower bound below the truth: right, and no estimate of it."""
    error = result.get("error_ratio")
    return bool(result.get("lower_bound")) and error is not None and error < 0


def error_of(result: Result) -> float | None:
    """(median ÷ truth) − 1; None of a refusal, and of a lower bound below the truth."""
    error = result.get("error_ratio")
    return None if error is None or is_bound(result) else float(error)


def nested(result: Result, *path: str) -> float | None:
    """A number within a result."""
    value: Any = result
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def instants_of(result: Result) -> list[float]:
    """The instant estimates of a trial, Mbit/s."""
    return [float(one["mbps"]) for one in result.get("instants") or []]
