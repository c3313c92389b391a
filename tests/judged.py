"""Runs to judge by hand: how long an estimate took on the host, one for each repetition."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from synthetic import arm_record, manifest

from virtgauge.ledger.records import HostRecord, TrialRecord, TrialStatus
from virtgauge.ledger.store import Ledger
from virtgauge.results.table import ResultTable
from virtgauge.specs.suites import find_measure

DURATION = find_measure("bandwidth", "duration")
HOST = arm_record("host", "host", "Host", "reference")
AA = arm_record("host-aa", "host", "Host (A/A)", "aa")
GVISOR = arm_record("gvisor", "oci", "gVisor")


def run_of(
    folder: Path,
    durations_ns: Mapping[int, float | None],
    hosts: Sequence[HostRecord] = (),
    gvisor_ns: Mapping[int, float | None] | None = None,
    *,
    aa_ns: Mapping[int, float | None] | None = None,
    failed: Collection[int] = (),
) -> ResultTable:
    """A run of one cell with these durations by block; None of a valid trial that has none.

    Before some blocks of the host's are tried with success, if they ever are, they fail.
    """
    by_arm = {"host": durations_ns, "host-aa": aa_ns, "gvisor": gvisor_ns}
    arms = [arm for arm in (HOST, AA, GVISOR) if by_arm[arm.name] is not None]
    with Ledger.create(folder, manifest(arms, hosts=tuple(hosts))) as ledger:
        for block in failed:
            ledger.add_trial(_trial("host", block, {}, TrialStatus.FAILED))
        for arm in arms:
            for block, duration in (by_arm[arm.name] or {}).items():
                told = {} if duration is None else {"duration_ns": duration}
                ledger.add_trial(_trial(arm.name, block, told, attempt=1 + (block in failed)))
    return ResultTable.open(folder)


def _trial(
    arm: str,
    block: int,
    result: dict[str, float],
    status: TrialStatus = TrialStatus.VALID,
    attempt: int = 1,
) -> TrialRecord:
    return TrialRecord(
        trial_id=0,
        key=f"b{block}/{arm}/estimate",
        suite="bandwidth",
        probe="estimate",
        arm=arm,
        platform="host",
        block=block,
        attempt=attempt,
        factors={"estimator": "kite2", "load": "idle"},
        status=status,
        flags=(),
        result=result,
        accounting={},
        error=None if status is TrialStatus.VALID else "the guest died",
        guest_id=None,
        started_at="2026-01-01T00:00:00.000+00:00",
        elapsed_ns=1,
    )
