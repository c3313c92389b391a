"""The tester first: what generator and analyser can do on a bare loop, before anything is said of a platform."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any

from virtgauge.suites.answers import merged
from virtgauge.suites.forwarding.trial import TrialResult

_FIRST_TRIAL_S = 0.01
_BACK_OFF = 0.95
_MOST_STEPS = 40


@dataclasses.dataclass(frozen=True)
class TesterCalibration:
    """The tester with one frame size.

    Attributes:
        limit_pps: highest rate that it sends as asked and receives without loss; None: not even the lowest tried.
        port: kind of port that it used.
        latency_mean_ns, latency_max_ns: its own, at half of that rate; None where nothing was timed.
        late_share: part of the frames that left late at half of that rate.
    """

    limit_pps: float | None
    port: str
    latency_mean_ns: float | None
    latency_max_ns: float | None
    late_share: float | None

    def record(self) -> dict[str, Any]:
        """For the ledger."""
        return dataclasses.asdict(self)


async def calibrate(
    loop: Callable[[float, float], Awaitable[TrialResult]], highest_pps: float, duration_s: float
) -> TesterCalibration:
    """Find the tester's limit, coming from above.

    Args:
        loop: a trial on the bare loop, by rate and duration.
        highest_pps: no higher rate is tried.
        duration_s: of the trials that decide.
    """
    rate = highest_pps
    # A short trial far beyond the limit stretches, and so tells the rate at which it was really sent.
    first = await loop(rate, _FIRST_TRIAL_S)
    if not first.passes(0.0):
        rate = min(rate, first.received_pps)
    for _ in range(_MOST_STEPS):
        if rate * duration_s < 1:
            break
        trial = await loop(rate, duration_s)
        if trial.passes(0.0):
            half = await loop(rate / 2, duration_s)
            latency = merged([flow.latency for flow in half.flows if flow.latency is not None])
            return TesterCalibration(
                limit_pps=rate,
                port=trial.port,
                latency_mean_ns=latency.mean / 1000 if latency else None,
                latency_max_ns=latency.maximum / 1000 if latency else None,
                late_share=half.late / half.sent if half.sent else None,
            )
        rate = min(rate, max(trial.received_pps, rate / 2)) * _BACK_OFF
    return TesterCalibration(None, first.port, None, None, None)
