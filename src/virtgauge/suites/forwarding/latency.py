"""Latency at parts of the throughput: of every guest, and of all as equation 7 weights them."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from virtgauge.analysis.forwarding import weighted_latency
from virtgauge.ledger.records import Histogram
from virtgauge.suites.answers import merged
from virtgauge.suites.forwarding.trial import TrialResult


@dataclasses.dataclass(frozen=True)
class LatencyAtLoad:
    """Trials at one load.

    Attributes:
        load_percent: of the throughput.
        trials: the repeats.
    """

    load_percent: float
    trials: tuple[TrialResult, ...]

    def guest_histograms(self) -> list[Histogram | None]:
        """By guest, over the repeats; None where no frame came back."""
        by_guest = zip(*(trial.flows for trial in self.trials), strict=True)
        return [merged([flow.latency for flow in flows if flow.latency is not None]) for flows in by_guest]

    def record(self, shares: Sequence[float]) -> dict[str, Any]:
        """Scalars for the ledger.

        ``total_ns`` is L_tot of equation 7, over the guests that carried traffic; for any vector, the mean latencies of
        the guests weighted with their shares.
        """
        means = [None if histogram is None else histogram.mean / 1000 for histogram in self.guest_histograms()]
        carried = [(mean, share) for mean, share in zip(means, shares, strict=True) if mean is not None and share > 0]
        sent, lost = sum(t.sent for t in self.trials), sum(t.lost for t in self.trials)
        return {
            "load_percent": self.load_percent,
            "rate_pps": self.trials[0].rate_pps,
            "total_ns": weighted_latency([m for m, _ in carried], [s for _, s in carried]) if carried else None,
            "guest_mean_ns": means,
            "sent": sent,
            "lost": lost,
            "loss_ratio": lost / sent if sent else 0.0,
            "worst_loss_ratio": max(trial.worst_loss_ratio for trial in self.trials),
            "late": sum(trial.late for trial in self.trials),
            "stretched": sum(trial.stretched for trial in self.trials),
        }

    def histograms(self) -> dict[str, Histogram]:
        """All guests together, and at the throughput itself each guest."""
        each = self.guest_histograms()
        name = f"latency@{self.load_percent:g}%"
        together = merged([histogram for histogram in each if histogram is not None])
        found = {} if together is None else {name: together}
        if self.load_percent == 100:
            found |= {f"{name}/guest{i}": histogram for i, histogram in enumerate(each) if histogram is not None}
        return found


async def latency_at_loads(
    measure: Callable[[float, float], Awaitable[TrialResult]],
    throughput_pps: float,
    percents: Sequence[float],
    *,
    duration_s: float,
    repeats: int,
    highest_pps: float,
    on_progress: Callable[[float], None],
) -> list[LatencyAtLoad]:
    """One after the other, from the lowest load to the highest; loads beyond the highest rate are left out.

    Args:
        measure: a trial by rate and duration.
    """
    possible = [percent for percent in sorted(set(percents)) if throughput_pps * percent / 100 <= highest_pps * 1.0001]
    found = []
    for index, percent in enumerate(possible):
        rate = throughput_pps * percent / 100
        trials = []
        for repeat in range(repeats):
            on_progress((index + repeat / repeats) / len(possible))
            trials.append(await measure(rate, duration_s))
        found.append(LatencyAtLoad(percent, tuple(trials)))
    return found
