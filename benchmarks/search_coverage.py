"""Searches for a rate on simulated devices whose capacity is known: whether the interval of several holds it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from virtgauge.analysis.estimate import median_estimate
from virtgauge.suites.forwarding.mlrsearch import MlrSearch
from virtgauge.suites.forwarding.searches import NO_DROP, PARTIAL_DROP, Limits, Rfc2544Search
from virtgauge.suites.forwarding.trial import FlowResult, Offer, TrialResult
from virtgauge.suites.storage.knee import LatencyPoint, find_knee, knee_of

Values = npt.NDArray[np.float64]
_Found = TypeVar("_Found")

SEARCHES = 10  # of a run
CAPACITY = 1e5  # median over runs; that of one search is divided by its repetition's level
_RESOLUTION = 0.00504  # of the searches: 0.5 % of the load above
_STALLS_PER_S, _LOST_IN_STALL, _LOST_ANYWAY = 0.2, 0.05, 1e-6
_VARIATION = 0.01  # from trial to trial, as a logarithm


def holds_capacity(found: Sequence[float], room: float = 0.0) -> bool:
    """Whether the interval of what was found holds the capacity.

    A search finds the highest load that passed, so that the capacity lies above it by up to the search's resolution.

    Args:
        room: by how much the figure may lie above the capacity by its definition.
    """
    estimate = median_estimate(found, "1/s", 0.95)
    assert estimate.low is not None and estimate.high is not None
    return estimate.low <= CAPACITY * (1 + room) and estimate.high * (1 + _RESOLUTION) >= CAPACITY


def no_drop(capacity: float) -> float:
    """By bisection, of a device that loses all above its capacity."""

    async def offer(rate_pps: float, duration_s: float) -> TrialResult:
        return _trial(rate_pps, duration_s, max(0, round(rate_pps * duration_s) - round(capacity * duration_s)))

    return _rate(_run(Rfc2544Search(trial_s=1.0).find(offer, Limits(1e3, 1e6), [NO_DROP]))[0].rate_pps)


def knee(capacity: float) -> float:
    async def measure(rate: float) -> LatencyPoint:
        return LatencyPoint(rate, min(rate, capacity), None, None, None, rate <= capacity)

    return _rate(knee_of(_run(find_knee(measure, 1.1 * CAPACITY, 10))))


def stalling(capacity: float, rng: np.random.Generator) -> Offer:
    """A device that stalls now and then, at any load, and loses one of a million frames besides."""

    async def offer(rate_pps: float, duration_s: float) -> TrialResult:
        sent = round(rate_pps * duration_s)
        lost = max(0, sent - round(capacity * duration_s)) + int(rng.poisson(_LOST_ANYWAY * sent))
        stalled = rng.random() < 1 - math.exp(-_STALLS_PER_S * duration_s)
        return _trial(rate_pps, duration_s, lost + stalled * round(_LOST_IN_STALL * sent))

    return offer


def varying(capacity: float, rng: np.random.Generator) -> Offer:
    """A device whose capacity differs from trial to trial."""

    async def offer(rate_pps: float, duration_s: float) -> TrialResult:
        carried = round(capacity * math.exp(rng.normal(0, _VARIATION)) * duration_s)
        return _trial(rate_pps, duration_s, max(0, round(rate_pps * duration_s) - carried))

    return offer


def mlr_outcomes(
    device: Callable[[float, np.random.Generator], Offer], levels: Values, rng: np.random.Generator
) -> tuple[list[bool], list[bool]]:
    """Of every run, a row of levels, whether the intervals of NDR and of PDR hold the capacity.

    PDR may lose 0.5 %, so that its load lies above the capacity by that.
    """

    async def searched() -> list[list[tuple[float, float]]]:
        search, limits, ratios = MlrSearch(), Limits(2e4, 1e6), (NO_DROP, PARTIAL_DROP)
        return [
            [
                (_rate(ndr.rate_pps), _rate(pdr.rate_pps))
                for level in run
                for ndr, pdr in [await search.find(device(CAPACITY / level, rng), limits, ratios)]
            ]
            for run in levels
        ]

    runs = asyncio.run(searched())
    ndr = [holds_capacity([found for found, _ in run]) for run in runs]
    return ndr, [holds_capacity([found for _, found in run], PARTIAL_DROP) for run in runs]


def _trial(rate_pps: float, duration_s: float, lost: int) -> TrialResult:
    sent = round(rate_pps * duration_s)
    return TrialResult(rate_pps, duration_s, duration_s, (FlowResult(sent, min(lost, sent)),))


def _rate(found: float | None) -> float:
    assert found is not None
    return float(found)


def _run(coroutine: Coroutine[Any, Any, _Found]) -> _Found:
    """What a coroutine that waits for nothing returns; an event loop for each would take most of the time."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        found: _Found = end.value
        return found
    raise AssertionError("it waited")
