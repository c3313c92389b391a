"""The trial records of the forwarding suite, by cell and arm, and one repetition's figures out of them."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from virtgauge.analysis.forwarding.line_rate import bits_per_s
from virtgauge.ledger.records import TrialRecord
from virtgauge.report.forwarding.model import Design, LossAccount
from virtgauge.report.trial_results import CellTrials, Histograms

CellKey = tuple[Design, str, int]
"""Design, vector, frame size: what a result is of, whatever its arm and block."""


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


class Results(CellTrials[CellKey]):
    """All results of a run.

    Args:
        trials: the suite's, valid or not, in the order of the ledger.
        histograms: of trials, by a measure.
    """

    def __init__(self, trials: Sequence[TrialRecord], histograms: Histograms) -> None:
        super().__init__(trials, histograms, key_of)

    @property
    def keys(self) -> list[CellKey]:
        """Every cell that was tried: by design as in the plan, then vector by fairness, then frame size."""
        tried = self.tried_keys
        designs = list(dict.fromkeys(design for design, _, _ in tried))
        fairness = {key: self.jain(key) or 0.0 for key in tried}

        def rank(key: CellKey) -> tuple[int, bool, float, str, int]:
            design, vector, size = key
            return designs.index(design), not vector.startswith("k="), fairness[key], vector, size

        return sorted(tried, key=rank)

    def counted(self, key: CellKey, arm: str) -> dict[int, TrialRecord]:
        """The valid result of each block that has a throughput."""
        found = super().counted(key, arm).items()
        return {block: trial for block, trial in found if trial.result.get("throughput_pps") is not None}

    def jain(self, key: CellKey) -> float | None:
        """The vector's fairness, as found where the vector itself is a finding."""
        for (tried, _), trials in self._trials.items():
            if tried == key:
                for trial in trials:
                    if (found := trial.result.get("jain") or trial.factors.get("jain")) not in (None, ""):
                        return float(found)
        return None

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
        found = self.durations(key, arm, measure).items()
        return {block: Quantiles(one.quantile_ns(0.5), one.tail_ns(0.99)) for block, one in found}


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
