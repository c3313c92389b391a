"""Bisection with long trials (RFC 2544, section 26.1): one trial decides about a load, and 60 s are its usual length.

A single rare stall of a software device fails a trial at any load whose frames it cannot queue, so that the result can
be a fraction of what the device forwards.  That is why it is not the default here.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import ClassVar

from virtgauge.suites.forwarding.searches.base import Limits, Search, Throughput
from virtgauge.suites.forwarding.trial import Device, TrialResult


@dataclasses.dataclass(frozen=True)
class Rfc2544Search(Search):
    """See the module.

    Attributes:
        trial_s: length of every trial.
        resolution: relative distance of the bounds at which the search ends.
    """

    name: ClassVar[str] = "rfc2544"

    trial_s: float = 60.0
    resolution: float = 0.005

    async def find(self, device: Device, limits: Limits, loss_ratios: Sequence[float]) -> list[Throughput]:
        trials: list[TrialResult] = []
        return [await self._bisect(device, limits, ratio, trials) for ratio in loss_ratios]

    def longest_s(self, limits: Limits) -> float:
        return 2 * self.trial_s * (2 + bisections(limits, self.resolution))

    async def _bisect(self, device: Device, limits: Limits, loss_ratio: float, trials: list[TrialResult]) -> Throughput:
        """Bisect between what earlier trials, made for another loss ratio, already decide."""
        if not trials:
            trials.append(await device.measure(limits.max_pps, self.trial_s))
        upper: float | None = min((t.rate_pps for t in trials if not t.passes(loss_ratio)), default=None)
        passed = [t for t in trials if t.passes(loss_ratio) and (upper is None or t.rate_pps < upper)]
        best = max(passed, key=lambda trial: trial.rate_pps, default=None)
        while upper is not None:
            low = best.rate_pps if best else 0.0
            if upper - low <= self.resolution * upper or upper <= limits.min_pps:
                break
            trial = await device.measure(max((low + upper) / 2, limits.min_pps), self.trial_s)
            trials.append(trial)
            if trial.passes(loss_ratio):
                best = trial
            else:
                upper = trial.rate_pps
        return decided(loss_ratio, best, upper, limits)


def decided(loss_ratio: float, best: TrialResult | None, upper_pps: float | None, limits: Limits) -> Throughput:
    """The throughput when the best trial that passed and the bound above it are known."""
    if best is None:
        reason = f"a guest lost more than {loss_ratio:.1%}, or sending stretched, down to {limits.min_pps:g} frames/s"
        return Throughput(loss_ratio, None, None, upper_pps, reason)
    forwarded = best.rate_pps * (1 - best.worst_loss_ratio)
    return Throughput(loss_ratio, forwarded, best.rate_pps, upper_pps)


def bisections(limits: Limits, resolution: float) -> int:
    """Halvings of the whole range until its parts are as narrow as the resolution of the lowest load."""
    return math.ceil(math.log2(limits.max_pps / (limits.min_pps * resolution)))
