"""The knee: the highest rate of an open loop at which nearly all responses still come within the objective.

Response time counts from when an operation was due, so that a database which falls behind cannot hide it.  The closed
loop tells where to look; then the rate is bisected by ratio, each step measured on a table as empty as the first.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from virtgauge.ledger.records import Flag, Histogram
from virtgauge.specs.storage_formatting import WRITES
from virtgauge.suites.base import Cell, Measurement
from virtgauge.suites.storage import trial
from virtgauge.suites.storage.client import Measured, StreamResult
from virtgauge.suites.storage.flushes import probe_disk, watch_disk
from virtgauge.suites.storage.laboratory import StorageTestbed
from virtgauge.suites.storage.settings import StorageSettings

_LOWEST_SHARE = 1 / 64  # Of the closed loop's rate: where nothing below is searched
_HIGHEST_SHARE = 1.25
_ACHIEVED = 0.95  # Of what was due: where less of it was done, a rate is beyond the knee


@dataclasses.dataclass(frozen=True)
class LatencyPoint:
    """One rate; response times are None where nothing was answered."""

    rate_per_s: float
    achieved_per_s: float
    p50_ms: float | None
    p99_ms: float | None
    p999_ms: float | None
    met: bool  # whether the objective was


async def find_knee(
    measure: Callable[[float], Awaitable[LatencyPoint]], closed_per_s: float, steps: int
) -> list[LatencyPoint]:
    """Bisect the rate, by ratio, between bounds that follow from what the closed loop comes to.

    Every rate that was tried, ascending.
    """
    low, high = closed_per_s * _LOWEST_SHARE, closed_per_s * _HIGHEST_SHARE
    points: list[LatencyPoint] = []
    for _ in range(steps):
        rate = math.sqrt(low * high)
        point = await measure(rate)
        points.append(point)
        low, high = (rate, high) if point.met else (low, rate)
    return sorted(points, key=lambda point: point.rate_per_s)


def knee_of(curve: Sequence[LatencyPoint]) -> float | None:
    """The highest rate that met the objective; None: not even the lowest that was tried."""
    return max((point.rate_per_s for point in curve if point.met), default=None)


def latency_point(rate: float, measured: Measured, objective_ms: float) -> LatencyPoint:
    """One rate's outcome, judged by the objective."""
    (result,) = measured.streams
    p50 = p99 = p999 = None
    if result.response is not None:
        p50, p99, p999 = (float(value) / 1e6 for value in result.response.quantiles((0.5, 0.99, 0.999)))
    due = result.operations + result.unstarted  # by chance: of 84 arrivals a standard deviation is 11 %
    met = p99 is not None and p99 <= objective_ms and result.operations >= _ACHIEVED * due
    return LatencyPoint(rate, measured.operations_per_s, p50, p99, p999, met and not result.errors and not result.wrong)


async def measure_knee(
    settings: StorageSettings, testbed: StorageTestbed, cell: Cell, on_progress: Callable[[float], None]
) -> Measurement:
    """Search the knee of one operation. Raises StoreError: there is no figure."""
    params, data, operation = cell.params, trial.data_of(settings, cell.params), cell.params["of"]
    target = await testbed.target(params)
    results: list[StreamResult] = []
    histograms: dict[str, Histogram] = {}

    async def at(loop: dict[str, Any]) -> Measured:
        if operation in WRITES and results:  # a read leaves the table as it was
            await target.client.drop()
            await target.client.prepare(data, index=params["index"], drop=target.may_drop, preload=0, within_s=60.0)
        stream = trial.stream_of(settings, params, operation, loop)
        measured = await target.client.measure(data, [stream], warmup_s=settings.warmup_s, seconds=settings.seconds)
        measured.refuse_unusable()
        results.extend(measured.streams)
        on_progress(len(results) / (settings.knee_steps + 1))
        return measured

    async def at_rate(rate: float) -> LatencyPoint:
        measured = await at(trial.open_loop(rate))
        point = latency_point(rate, measured, settings.objective_ms)
        if point.met:
            histograms.update(trial.histograms_of(measured))  # the last is the nearest below
        return point

    async with trial.filled(settings, testbed, target, params):
        disk_before = await probe_disk(target, settings.disk_probe_s)
        closed = await at({"kind": "closed"})
        closed_per_s = closed.operations_per_s
        curve = await find_knee(at_rate, closed_per_s, settings.knee_steps) if closed_per_s else []
        disk = await watch_disk(target, settings.disk_probe_s, disk_before)
    flags = [
        *trial.answer_flags(results),
        *trial.window_flags(closed),
        *disk.flags(waits=target.waits and operation in WRITES),
    ]
    knee_per_s = knee_of(curve)
    if knee_per_s is None and not any(flag.fatal for flag in flags):
        words = f"at no rate that was tried did 99 % of the responses come within {settings.objective_ms:g} ms"
        flags.append(Flag("no-knee", words, fatal=False))
    result = trial.described(target) | {
        "knee_per_s": knee_per_s,
        "objective_ms": settings.objective_ms,
        "closed_per_s": closed_per_s,
        "steps": [dataclasses.asdict(point) for point in curve],
        **disk.figures(),
        "preload": trial.preload_of(settings, params),
        "sensors": settings.sensors,
    }
    return Measurement(result, histograms, {}, tuple(flags))
