"""Cycles on the host and in a container at once, each on CPUs of its own."""

from __future__ import annotations

import asyncio
import datetime
from pathlib import Path

import pytest
from platforms.conftest import require
from suites.simulated_runs import execute, plan_of

from virtgauge.ledger.store import Ledger
from virtgauge.platforms import create
from virtgauge.suites import testbed

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.usefixtures("root", "private_state")]

CYCLES = {"timers": [], "sleeps": [], "loads": ["idle"], "cycles": {"seconds": 2, "classes": ["other"]}}


def test_guests_at_the_same_time_are_on_cpus_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require(asyncio.run(create("oci", {"runtime": "runc"}).probe()), "runc")
    confined, set_up = list[tuple[int, ...]](), testbed.Testbed.of_one_guest.__func__  # type: ignore[attr-defined]

    async def watched(cls: type, stage: testbed.Stage) -> testbed.Testbed:
        made: testbed.Testbed = await set_up(cls, stage)
        confined.append(made.guest.confinement().cpus or ())
        return made

    monkeypatch.setattr(testbed.Testbed, "of_one_guest", classmethod(watched))
    platforms = {"name": "host", "kind": "host"}, {"name": "runc", "kind": "oci", "runtime": "runc"}
    plan = plan_of(*platforms, repetitions=2, design=CYCLES, at_the_same_time=True, aa=False)
    execute(plan, tmp_path / "run")
    assert all(set(one).isdisjoint(other) for one, other in (confined[:2], confined[2:]))
    assert len(set(confined)) == 2, "each has had both shares"
    with Ledger.open(tmp_path / "run") as ledger:
        trials = ledger.trials()
    assert [trial.status for trial in trials] == ["valid"] * 4
    one, other = (trial for trial in trials if trial.block == 0)
    began = [datetime.datetime.fromisoformat(trial.started_at) for trial in (one, other)]
    apart_ns = abs((began[0] - began[1]).total_seconds()) * 1e9
    assert apart_ns < min(one.elapsed_ns, other.elapsed_ns), "the second began while the first was under way"
