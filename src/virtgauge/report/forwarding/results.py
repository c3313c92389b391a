"""The trial records of the forwarding suite, by cell and arm, and one repetition's figures out of them."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from virtgauge.analysis.distribution import Distribution
from virtgauge.analysis.forwarding.line_rate import bits_per_s
from virtgauge.ledger.records import Histogram, TrialRecord, TrialStatus
from virtgauge.report.forwarding.model import Design, LossAccount

CellKey = tuple[Design, str, int]
"""Design, vector, frame size: what a result is of, whatever its arm and block."""

_TAILS = (0.5, 0.99)
_LEAST_FOR_P99 = 1000
_NS_PER_UNIT = {"ps": 1e-3, "ns": 1.0}


@dataclasses.dataclass(frozen=True)
class Quantiles:
    """Of one histogram, ns; ``p99`` is None with fewer than a thousand values."""

    p50: float
    p99: float | None


def key_of(trial: TrialRecord) -> CellKey:
    """The cell that a trial belongs to."""
    factors = trial.factors
    design = Design(int(factors["guests"]), factors["switch"], factors["cpu_limit"], factors["search"])
    return design, factors["vector"], int(factors["frame_bytes"])


class Results:
    """All results of a run.

    Args:
        trials: the suite's, valid or not, in the order of the ledger.
        histograms: of trials, by a measure.
    """

    def __init__(
        self,
        trials: Sequence[TrialRecord],
        histograms: Callable[[Iterable[int], str], Iterator[tuple[int, Histogram]]],
    ) -> None:
        self._trials: defaultdict[tuple[CellKey, str], list[TrialRecord]] = defaultdict(list)
        for trial in trials:
            self._trials[key_of(trial), trial.arm].append(trial)
        self._numbers = [trial.trial_id for trial in trials]
        self._histograms = histograms
        self._quantiles: dict[str, dict[int, Quantiles]] = {}

    @property
    def keys(self) -> list[CellKey]:
        """Every cell that was tried: by design as in the plan, then vector by fairness, then frame size."""
        tried = list(dict.fromkeys(key for key, _ in self._trials))
        designs = list(dict.fromkeys(design for design, _, _ in tried))
        fairness = {key: self.jain(key) or 0.0 for key in tried}

        def rank(key: CellKey) -> tuple[int, bool, float, str, int]:
            design, vector, size = key
            return designs.index(design), not vector.startswith("k="), fairness[key], vector, size

        return sorted(tried, key=rank)

    def tried(self, key: CellKey, arm: str) -> list[TrialRecord]:
        """Every attempt of an arm in a cell."""
        return self._trials.get((key, arm), [])

    def of_arm(self, arm: str) -> list[TrialRecord]:
        """Every attempt of an arm."""
        return [trial for (_, name), trials in self._trials.items() if name == arm for trial in trials]

    def counted(self, key: CellKey, arm: str) -> dict[int, TrialRecord]:
        """The valid result of each block (the last, should there be several)."""
        return {
            trial.block: trial
            for trial in self.tried(key, arm)
            if trial.status is TrialStatus.VALID and trial.result.get("throughput_pps") is not None
        }

    def jain(self, key: CellKey) -> float | None:
        """The vector's fairness, as found where the vector itself is a finding."""
        for (tried, _), trials in self._trials.items():
            if tried == key:
                for trial in trials:
                    if (found := trial.result.get("jain") or trial.factors.get("jain")) not in (None, ""):
                        return float(found)
        return None

    def scalar(self, key: CellKey, arm: str, field: str) -> dict[int, float]:
        """A number of each block's result."""
        found = {block: trial.result.get(field) for block, trial in self.counted(key, arm).items()}
        return {block: float(value) for block, value in found.items() if value is not None}

    def throughput_mbps(self, key: CellKey, arm: str) -> dict[int, float]:
        """T in Mbit/s, by block."""
        return {block: pps_as_mbps(pps, key[2]) for block, pps in self.scalar(key, arm, "throughput_pps").items()}

    def load_percents(self, key: CellKey, arm: str) -> list[float]:
        """The parts of the throughput at which latency was measured, ascending."""
        entries = (entry for trial in self.counted(key, arm).values() for entry in trial.result.get("latency", ()))
        return sorted({float(entry["load_percent"]) for entry in entries})

    def at_load(self, key: CellKey, arm: str, percent: float) -> dict[int, Mapping[str, Any]]:
        """What was measured at a part of the throughput, by block."""
        return {
            block: entry
            for block, trial in self.counted(key, arm).items()
            for entry in trial.result.get("latency", ())
            if entry["load_percent"] == percent
        }

    def latency_ns(self, key: CellKey, arm: str, percent: float) -> dict[int, float]:
        """L_tot of equation 7, by block."""
        entries = self.at_load(key, arm, percent).items()
        return {block: float(entry["total_ns"]) for block, entry in entries if entry["total_ns"] is not None}

    def load_mbps(self, key: CellKey, arm: str, percent: float) -> dict[int, float]:
        """What was offered at a part of the throughput, by block."""
        entries = self.at_load(key, arm, percent).items()
        return {block: pps_as_mbps(entry["rate_pps"], key[2]) for block, entry in entries}

    def quantiles(self, key: CellKey, arm: str, measure: str) -> dict[int, Quantiles]:
        """Of the histograms of a measure, by block."""
        if measure not in self._quantiles:
            found = self._histograms(self._numbers, measure)
            self._quantiles[measure] = {number: quantiles_of(one) for number, one in found if one.n}
        known = self._quantiles[measure]
        counted = self.counted(key, arm).items()
        return {block: known[trial.trial_id] for block, trial in counted if trial.trial_id in known}


def quantiles_of(histogram: Histogram) -> Quantiles:
    """Median and p99 of a histogram of durations."""
    scale = _NS_PER_UNIT[histogram.unit]
    distribution = Distribution(
        histogram.values, histogram.counts, float(histogram.minimum), float(histogram.maximum), histogram.mean
    )
    p50, p99 = (float(value) * scale for value in distribution.quantiles(_TAILS))
    return Quantiles(p50, p99 if histogram.n >= _LEAST_FOR_P99 else None)


def pps_as_mbps(pps: float, frame_bytes: int) -> float:
    """Frames/s of a size in Mbit/s, check sequence included."""
    return bits_per_s(pps, frame_bytes) / 1e6


def account_of(trials: Sequence[TrialRecord]) -> LossAccount:
    """The sum of the trials' ledgers of lost frames."""
    ledgers = [trial.result["loss_ledger"] for trial in trials if "loss_ledger" in trial.result]
    places: Counter[str] = Counter()
    for ledger in ledgers:
        places.update(ledger["places"])
    return LossAccount(
        trials=len(ledgers),
        unclosed=sum(not ledger["closed"] for ledger in ledgers),
        sent=sum(trial.result.get("frames_sent", 0) for trial in trials),
        lost=sum(ledger["lost"] for ledger in ledgers),
        places=dict(places.most_common()),
        unattributed=sum(ledger["unattributed"] for ledger in ledgers),
        excess=sum(ledger["excess"] for ledger in ledgers),
    )


def flag_counts(trials: Sequence[TrialRecord]) -> dict[str, int]:
    """How many trials have each flag, the most frequent first."""
    return dict(Counter(name for trial in trials for name in {flag.name for flag in trial.flags}).most_common())
