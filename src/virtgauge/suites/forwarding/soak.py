"""A soak: one load for long, how many frames are lost at it, and the load at which one in ten million would be."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

from virtgauge.analysis.critical_rate import REPEATED, LossCount, critical_rate, dispersion, loss_ratio
from virtgauge.analysis.estimate import Estimate
from virtgauge.suites.forwarding.searches import LossPoint
from virtgauge.suites.forwarding.trial import Offer, TrialResult

CRITICAL_RATIO = 1e-7  # PLRsearch's target
_CONFIDENCE = 0.95  # Of both intervals; that of a figure over repetitions is the plan's
_TRIAL_S = 10.0  # Longest trial of a soak: by so many its losses' dispersion is told


async def soak(
    offer: Offer, rate_pps: float, seconds: float, on_progress: Callable[[float], None]
) -> tuple[TrialResult, ...]:
    """Trials at one load that last so long together."""
    number = max(math.ceil(seconds / _TRIAL_S), REPEATED)
    trials = []
    for done in range(number):
        on_progress(done / number)
        trials.append(await offer(rate_pps, seconds / number))
    return tuple(trials)


def soak_record(trials: Sequence[TrialResult], searched: Sequence[LossPoint]) -> dict[str, Any]:
    """Figures for the ledger, of all flows together; the critical rate is told by the search's trials too.

    A trial that was stretched never offered its load, and counts for nothing.
    """
    counts = [LossCount(t.rate_pps, t.duration_s, t.sent, t.lost) for t in trials if not t.stretched]
    of_search = [
        LossCount(point.rate_pps, point.duration_s, sent, round(point.loss_ratio * sent))
        for point in searched
        if not point.stretched and (sent := round(point.rate_pps * point.duration_s))
    ]
    record: dict[str, Any] = {
        "rate_pps": trials[0].rate_pps,
        "seconds": sum(one.duration_s for one in counts),
        "sent": sum(one.sent for one in counts),
        "lost": sum(one.lost for one in counts),
        "lossy_trials": sum(one.lost > 0 for one in counts),
        "trials": len(counts),
        "stretched": len(trials) - len(counts),
        "confidence": _CONFIDENCE,
        "critical_ratio": CRITICAL_RATIO,
    }
    if not record["sent"]:
        return record | {"reason": "every trial of the soak was stretched: its load was never offered"}
    critical = critical_rate([*of_search, *counts], CRITICAL_RATIO, _CONFIDENCE)
    return record | {
        "dispersion": dispersion(counts),
        "loss_ratio": dataclasses.asdict(loss_ratio(counts, _CONFIDENCE)),
        "critical_pps": dataclasses.asdict(critical) if isinstance(critical, Estimate) else None,
        "reason": critical if isinstance(critical, str) else "",
    }
