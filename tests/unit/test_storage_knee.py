"""The search of the knee on loads whose knee is known, and CPU time over a span between readings."""

from __future__ import annotations

import time
import types
from typing import Any

import numpy as np
import pytest

from virtgauge.ledger.records import Histogram
from virtgauge.suites.storage.knee import LatencyPoint, find_knee, knee_of, latency_point
from virtgauge.suites.testbed import CpuRecord


def point(rate: float, met: bool) -> LatencyPoint:
    return LatencyPoint(rate, rate, 1.0, 1.0, 1.0, met)


@pytest.mark.parametrize("knee", [30.0, 500.0, 900.0])
async def test_the_knee_is_bracketed_ever_closer(knee):
    tried = []

    async def measure(rate: float) -> LatencyPoint:
        tried.append(rate)
        return point(rate, rate <= knee)

    found = await find_knee(measure, 1000.0, steps=12)
    assert knee * 0.99 <= knee_of(found) <= knee
    assert len(tried) == len(found) == 12
    assert [one.rate_per_s for one in found] == sorted(tried)


@pytest.mark.parametrize(("done", "unstarted", "met"), [(70, 0, True), (70, 3, True), (70, 10, False)])
def test_a_rate_is_met_by_what_was_due_and_not_by_the_luck_of_its_arrivals(done: int, unstarted: int, met: bool):
    """Of 16.8 a second 84 are due in 5 s on the average, and 70 in one of ten trials."""
    quick = Histogram(np.array([1000]), np.array([done], dtype=np.uint64), 1000, 1000, 1000.0, "ns")
    stream: Any = types.SimpleNamespace(operations=done, unstarted=unstarted, response=quick, errors=0, wrong=0)
    measured: Any = types.SimpleNamespace(streams=(stream,), operations_per_s=done / 5)
    assert latency_point(16.8, measured, 10.0).met is met


async def test_where_no_rate_meets_the_objective_there_is_no_knee():
    async def measure(rate: float) -> LatencyPoint:
        return point(rate, False)

    found = await find_knee(measure, 1000.0, steps=5)
    assert knee_of(found) is None
    assert len(found) == 5


def test_cpu_time_of_a_span_lies_on_the_line_between_the_readings(monkeypatch):
    moments = iter([1000, 2000, 4000])
    monkeypatch.setattr(time, "monotonic_ns", lambda: next(moments))
    charged = iter([10**18, 10**18 + 500, 10**18 + 2500])
    record = CpuRecord(lambda: next(charged))
    record.read()
    record.read()
    assert record.between(1000, 4000) == 2500
    assert record.between(1500, 3000) == 250 + 1000
    assert record.between(500, 3000) is None  # before anything was read
    assert record.between(1500, 4001) is None


def test_an_account_that_is_not_known_gives_no_figure():
    record = CpuRecord(lambda: None)
    record.read()
    assert record.between(0, 1) is None
