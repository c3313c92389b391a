"""Multiple Loss Ratio search (RFC 9971) by the library of its authors: many short trials, a quantile of which decides.

A load counts as carried when no more than half of its trial time (``exceed_ratio``) shows too much loss, so that rare
stalls cost a trial but not the result; NDR and PDR are searched at the same time.

The library calls its measurer and waits; it runs in a thread, and its trials in the caller's event loop.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import dataclasses
import math
from collections.abc import Sequence
from typing import Any, ClassVar

from MLRsearch import Config, MeasurementResult, MultipleLossRatioSearch, SearchGoal

from virtgauge.suites.forwarding.searches import Limits, Search, SearchError, Throughput
from virtgauge.suites.forwarding.trial import Offer, TrialResult

_NEVER_BY_THE_CLOCK_S = 1e9
"""The library's own limit is on the wall clock; ours is on offered load, which a simulated device's trials have too."""


@dataclasses.dataclass(frozen=True)
class MlrSearch(Search):
    """See the module."""

    name: ClassVar[str] = "mlrsearch"

    trial_s: float = 1.0
    duration_sum_s: float = 21.0  # trial time after which a load is decided
    exceed_ratio: float = 0.5  # part of that time which may be bad
    resolution: float = 0.005  # relative distance of the bounds at which the search ends
    budget_s: float = 1200.0  # offered load in all, after which the search fails

    async def find(self, offer: Offer, limits: Limits, loss_ratios: Sequence[float]) -> list[Throughput]:
        goals = [self._goal(ratio) for ratio in loss_ratios]
        config = Config(
            goals=goals,
            min_load=limits.min_pps,
            max_load=limits.max_pps,
            search_duration_max=_NEVER_BY_THE_CLOCK_S,
            warmup_duration=None,
        )
        measurer = _Measurer(offer, max(loss_ratios), self.budget_s, asyncio.get_running_loop())
        search = MultipleLossRatioSearch(config=config).search
        thread = asyncio.create_task(asyncio.to_thread(search, measurer=measurer, debug=lambda _: None))
        try:
            results = await asyncio.shield(thread)
        except asyncio.CancelledError:
            measurer.stop()  # a trial under way is cancelled, and the library's thread ends with it
            await asyncio.wait([thread])
            raise
        return [_throughput(goal.loss_ratio, results[goal], limits) for goal in goals]

    def longest_s(self, limits: Limits) -> float:
        return self.budget_s + self.trial_s

    def _goal(self, loss_ratio: float) -> Any:
        return SearchGoal(
            loss_ratio=loss_ratio,
            exceed_ratio=self.exceed_ratio,
            relative_width=self.resolution,
            initial_trial_duration=self.trial_s,
            final_trial_duration=self.trial_s,
            duration_sum=self.duration_sum_s,
            preceding_targets=2,
            expansion_coefficient=2,
            fail_fast=False,
        )


class _Measurer:
    """The library's measurer: asks the device from another thread, in the event loop where the device lives."""

    def __init__(self, offer: Offer, largest_ratio: float, budget_s: float, loop: asyncio.AbstractEventLoop) -> None:
        self._offer, self._largest_ratio, self._loop = offer, largest_ratio, loop
        self._budget_s = self._left_s = budget_s
        self._stopped = False
        self._trial: concurrent.futures.Future[TrialResult] | None = None

    def measure(self, intended_duration: float, intended_load: float) -> Any:
        """One trial; called in the library's thread.
        Raises SearchError: the budget is spent; concurrent.futures.CancelledError: the search was cancelled.
        """
        if self._left_s < intended_duration:
            raise SearchError(f"the search did not end within {self._budget_s:g} s of offered load")
        self._left_s -= intended_duration
        self._trial = asyncio.run_coroutine_threadsafe(self._offer(intended_load, intended_duration), self._loop)
        if self._stopped:
            self._trial.cancel()
        return self._converted(self._trial.result(), intended_duration, intended_load)

    def stop(self) -> None:
        self._stopped = True
        if self._trial is not None:
            self._trial.cancel()

    def _converted(self, trial: TrialResult, duration_s: float, load_pps: float) -> Any:
        """A trial with the loss of its worst guest: a load that is lower by that ratio is one that this guest carries.

        Losses that show no more than what is allowed count as they are, at most as what is allowed, and as one frame at
        least, which a load without loss has not.  A stretched trial has failed for every goal; the load that could be
        offered is the hint for the next.
        """
        ratio = trial.excess_loss_ratio(self._largest_ratio)
        if trial.stretched:
            ratio = max(ratio, 1 - trial.offered_pps / load_pps, 2 * self._largest_ratio)
        frames = max(round(load_pps * duration_s), 1)
        lost = round(ratio * frames) or math.floor(min(trial.worst_loss_ratio, self._largest_ratio) * frames)
        return MeasurementResult(
            intended_duration=duration_s,
            intended_load=load_pps,
            offered_count=frames,
            loss_count=max(lost, min(trial.lost, 1)),
        )


def _throughput(loss_ratio: float, result: Any, limits: Limits) -> Throughput:
    lower, upper = result.relevant_lower_bound, result.relevant_upper_bound
    upper_pps = None if upper is None else float(upper)
    if lower is None:
        reason = (
            f"more than {loss_ratio:.1%} was lost, or the load could not be offered, at {limits.min_pps:g} frames/s"
        )
        return Throughput(loss_ratio, None, None, upper_pps, reason)
    return Throughput(loss_ratio, float(result.conditional_throughput), float(lower), upper_pps)
