"""Trials to judge by hand: a timer's cost on the host, one for each repetition."""

from __future__ import annotations

from synthetic import arm_record

from virtgauge.ledger.records import TrialRecord, TrialStatus
from virtgauge.measures.catalogue import find_measure

P50 = find_measure("timing", "timer_cost.p50")
HOST = arm_record("host", "host", "Host", "reference")


def trial(number: int, block: int) -> TrialRecord:
    return TrialRecord(
        trial_id=number,
        key=f"b{block}/host/timer",
        suite="timing",
        probe="timer_cost",
        arm="host",
        platform="host",
        block=block,
        attempt=1,
        factors={"function": "rdtsc", "load": "idle"},
        status=TrialStatus.VALID,
        flags=(),
        result={},
        accounting={},
        error=None,
        guest_id=None,
        started_at="2026-01-01T00:00:00.000+00:00",
        elapsed_ns=1,
    )
