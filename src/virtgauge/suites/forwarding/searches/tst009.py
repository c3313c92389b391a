"""Binary search with loss verification (ETSI GS NFV-TST 009, clause 12.3).

The loads are a grid.  A trial with loss is repeated before it is believed: only loss in every repetition is the
device's; loss that does not come again was transient, and the load counts as carried.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import ClassVar

from virtgauge.suites.forwarding.searches.base import Limits, Search, Throughput
from virtgauge.suites.forwarding.searches.rfc2544 import decided
from virtgauge.suites.forwarding.trial import Device, TrialResult


@dataclasses.dataclass(frozen=True)
class Tst009Search(Search):
    """See the module.

    Attributes:
        trial_s: length of every trial.
        resolution: relative step of the grid.
        verifications: how often a trial with loss is repeated at most.
    """

    name: ClassVar[str] = "tst009"

    trial_s: float = 60.0
    resolution: float = 0.005
    verifications: int = 2

    async def find(self, device: Device, limits: Limits, loss_ratios: Sequence[float]) -> list[Throughput]:
        grid = self._grid(limits)
        lowest = 0
        found = []
        for ratio in loss_ratios:  # what passes with little loss passes with more: the next search starts there
            best, upper = None, len(grid)
            left, right = lowest, len(grid) - 1
            while left <= right:
                middle = (left + right) // 2
                trial = await self._verified(device, grid[middle], ratio)
                if trial is None:
                    upper, right = middle, middle - 1
                else:
                    best, lowest, left = trial, middle, middle + 1
            found.append(decided(ratio, best, grid[upper] if upper < len(grid) else None, limits))
        return found

    def longest_s(self, limits: Limits) -> float:
        depth = math.ceil(math.log2(len(self._grid(limits)) + 1))
        return 2 * depth * self.trial_s * (1 + self.verifications)

    async def _verified(self, device: Device, rate_pps: float, loss_ratio: float) -> TrialResult | None:
        """A trial that passed, the first or one of its repetitions; None when all failed."""
        for _ in range(1 + self.verifications):
            trial = await device.measure(rate_pps, self.trial_s)
            if trial.passes(loss_ratio):
                return trial
        return None

    def _grid(self, limits: Limits) -> list[float]:
        """Loads to choose from, ascending; each is lower than the next by the resolution."""
        ratio = 1 - self.resolution
        count = math.floor(math.log(limits.min_pps / limits.max_pps, ratio))
        between = [limits.max_pps * ratio**index for index in range(count, -1, -1)]
        return [limits.min_pps, *between] if between[0] > limits.min_pps else between
