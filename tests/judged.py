"""Runs to judge by hand: how long an estimate took on the host, one for each repetition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from synthetic import arm_record, manifest

from virtgauge.ledger.records import HostRecord, TrialRecord, TrialStatus
from virtgauge.ledger.store import Ledger
from virtgauge.results.table import ResultTable
from virtgauge.specs.suites import find_measure

DURATION = find_measure("bandwidth", "duration")
HOST = arm_record("host", "host", "Host", "reference")
GVISOR = arm_record("gvisor", "oci", "gVisor")


def run_of(
    folder: Path,
    durations_ns: Mapping[int, float | None],
    hosts: Sequence[HostRecord] = (),
    gvisor_ns: Mapping[int, float | None] | None = None,
) -> ResultTable:
    """A run of one cell with these durations by block; None of a valid trial that has none."""
    told = {"host": durations_ns} | ({} if gvisor_ns is None else {"gvisor": gvisor_ns})
    with Ledger.create(folder, manifest([HOST, GVISOR][: len(told)], hosts=tuple(hosts))) as ledger:
        for arm, durations in told.items():
            for block, duration in durations.items():
                ledger.add_trial(_trial(arm, block, {} if duration is None else {"duration_ns": duration}))
    return ResultTable.open(folder)


def _trial(arm: str, block: int, result: dict[str, float]) -> TrialRecord:
    return TrialRecord(
        trial_id=0,
        key=f"b{block}/{arm}/estimate",
        suite="bandwidth",
        probe="estimate",
        arm=arm,
        platform="host",
        block=block,
        attempt=1,
        factors={"estimator": "kite2", "load": "idle"},
        status=TrialStatus.VALID,
        flags=(),
        result=result,
        accounting={},
        error=None,
        guest_id=None,
        started_at="2026-01-01T00:00:00.000+00:00",
        elapsed_ns=1,
    )
