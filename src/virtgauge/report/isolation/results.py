"""The trial records of the isolation suite, by cell and arm, and one repetition's figures out of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from virtgauge.analysis.comparison import paired_ratio
from virtgauge.analysis.estimate import Estimate
from virtgauge.analysis.isolation.efficiency import Efficiency, efficiency
from virtgauge.ledger.records import TrialRecord
from virtgauge.report.isolation.model import Key
from virtgauge.report.isolation.vocabulary import (
    BENCHMARK_ORDER,
    CORES,
    LOADING,
    NOTHING,
    POLICIES,
    TESTED,
    WAKE,
    Resource,
)
from virtgauge.report.trial_results import CellTrials, Durations, Histograms

_TAILS = (0.99, 0.9, 0.5)
"""Of the lateness that stands for waking up, the best first."""


def key_of(trial: TrialRecord) -> Key:
    """The cell that a trial belongs to."""
    factors = trial.factors
    return Key(
        benchmark=factors["benchmark"],
        block=factors.get("block", ""),
        load=factors.get("load", NOTHING),
        intensity=int(float(factors.get("intensity", "0"))),
        cores=factors.get("cores", "1"),
        policy=factors.get("policy", NOTHING),
        on=factors.get("on", NOTHING),
        share=float(factors.get("share", "100")) / 100,
    )


def baselines(key: Key) -> tuple[Key, ...]:
    """What a cell with a load is compared with, the first that was measured: the same without the load.

    A policy on the loading guest bounds nothing while that one is idle, so that the cell without either does as well.
    """
    return (key.unloaded, key.reference) if key.on == LOADING else (key.unloaded,)


class Results(CellTrials[Key]):
    """All results of a run.

    Args:
        trials: the suite's, valid or not, in the order of the ledger.
        histograms: of trials, by a measure.
        reference: the arm that every result is related to.
        aa: the same once more; None without.
    """

    def __init__(
        self, trials: Sequence[TrialRecord], histograms: Histograms, reference: str, aa: str | None = None
    ) -> None:
        super().__init__(trials, histograms, key_of)
        self.reference, self._aa = reference, aa
        self._work: dict[tuple[Key, str], dict[int, float]] = {}

    @functools.cached_property
    def keys(self) -> list[Key]:
        """Every cell that was tried: by benchmark, cores and policy, then by load as in the plan."""
        tried = self.tried_keys
        benchmarks = list(dict.fromkeys(key.benchmark for key in tried))
        loads = [NOTHING, *dict.fromkeys(key.load for key in tried)]

        def rank(key: Key) -> tuple[Any, ...]:
            return (
                *(_place(BENCHMARK_ORDER, key.benchmark), benchmarks.index(key.benchmark), key.block),
                *(_place(CORES, key.cores), _place(POLICIES, key.policy), key.on != TESTED, key.share),
                *(loads.index(key.load), key.intensity),
            )

        return sorted(tried, key=rank)

    def work(self, key: Key, arm: str) -> dict[int, float]:
        """What was done, by block, the more the better: the rate; of waking up, the inverse of its lateness."""
        if (key, arm) not in self._work:
            self._work[key, arm] = self._work_of(key, arm)
        return self._work[key, arm]

    def _work_of(self, key: Key, arm: str) -> dict[int, float]:
        if key.benchmark != WAKE:
            return self.scalar(key, arm, "rate")
        late = self.lateness_ns(key, arm, self.wake_tail).items()
        return {block: 1e9 / ns for block, ns in late if ns > 0}

    def unloaded(self, key: Key, arm: str) -> dict[int, float]:
        """The work without the load, by block."""
        return next((work for base in baselines(key) if (work := self.work(base, arm))), {})

    @functools.cached_property
    def wake_tail(self) -> float:
        """The quantile of lateness that stands for waking up: as high as every valid trial has values enough for."""
        arms = {arm for _, arm in self._trials}
        waking = [key for key in self.keys if key.benchmark == WAKE]
        found = [one for key in waking for arm in arms for one in self.latencies(key, arm).values()]
        return next((tail for tail in _TAILS if all(one.tail_ns(tail) is not None for one in found)), _TAILS[-1])

    def latencies(self, key: Key, arm: str) -> dict[int, Durations]:
        """How late wake-ups were, or how long operations of a disk took, by block; of other benchmarks nothing."""
        measure = {Resource.WAKE: "wake", Resource.DISK: "disk"}.get(key.resource)
        return self.durations(key, arm, measure) if measure else {}

    def lateness_ns(self, key: Key, arm: str, share: float) -> dict[int, float]:
        """The same at a quantile, where there are values enough to say it."""
        found = {block: one.tail_ns(share) for block, one in self.latencies(key, arm).items()}
        return {block: ns for block, ns in found.items() if ns is not None}

    def aa_ratio(self, key: Key, nominal: float) -> Estimate | None:
        """Of the work of the A/A pair in a cell; None without such a pair."""
        if self._aa is None:
            return None
        return paired_ratio(self.work(key, self._aa), self.work(key, self.reference), nominal)

    def efficiencies(self, key: Key, arm: str) -> dict[int, Efficiency]:
        """Beside the reference cell of the reference arm, by the blocks that have both."""
        references = self.work(key.reference, self.reference)
        reference_cpus = self.nested(key.reference, self.reference, "cpu", TESTED)
        received, entitled = self.nested(key, arm, "cpu", TESTED), self.nested(key, arm, "entitled", TESTED)
        undeclared = key.benchmark == WAKE or (key.free and not key.alone)
        share = None if undeclared else key.promised
        return {
            block: efficiency(
                rate=work,
                reference_rate=references[block],
                share=share,
                received_cpus=received.get(block) if key.benchmark != WAKE else None,
                entitled_cpus=entitled.get(block),
                reference_cpus=reference_cpus.get(block),
            )
            for block, work in self.work(key, arm).items()
            if references.get(block, 0) > 0
        }

    def nested(self, key: Key, arm: str, *path: str) -> dict[int, float]:
        """A number within each block's result: ``nested(key, arm, "cpu", "tested")``."""
        return self.told(key, arm, lambda result: _within(result, path))

    def told(self, key: Key, arm: str, figure: Callable[[Mapping[str, Any]], float | None]) -> dict[int, float]:
        """What is reckoned from each block's result, where it is known."""
        found = {block: figure(trial.result) for block, trial in self.counted(key, arm).items()}
        return {block: value for block, value in found.items() if value is not None}


def _within(result: Mapping[str, Any], path: Sequence[str]) -> float | None:
    value: Any = result
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return float(value) if isinstance(value, int | float) else None


def _place(order: Sequence[str], name: str) -> int:
    """Of the entry that the name begins with; behind all others without one."""
    exact = (place for place, entry in enumerate(order) if entry == name)
    begun = (place for place, entry in enumerate(order) if entry.endswith("-") and name.startswith(entry))
    return next(exact, next(begun, len(order)))
