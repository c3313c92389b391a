"""Knee and mixed load on real databases: what the search found holds; both parts of the mix are there and checked."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from sampled import sampled
from suites.storage_testbeds import each, on_testbed, require

from virtgauge.ledger.records import Histogram
from virtgauge.suites.base import Cell, Measurement
from virtgauge.suites.storage.client import run
from virtgauge.suites.storage.laboratory import StorageTestbed
from virtgauge.suites.storage.suite import StorageSuite
from virtgauge.suites.testbed import Stage

pytestmark = pytest.mark.slow

OBJECTIVE_MS = 150.0
VALUES = 1000
PRELOAD, SENSORS = 1000, 4
PARTS = ("write", "read")

FALSIFY = f"""
until [ "$("$@" 'SELECT count(*) FROM virtgauge_readings' 2>/dev/null)" -ge {PRELOAD * SENSORS} ] 2>/dev/null; do
  sleep 0.02
done
"$@" 'UPDATE virtgauge_readings SET value = value + 1'
"""
IN_SQLITE = """
import sqlite3, sys
connection = sqlite3.connect(f"file:{sys.argv[1]}?mode=rw", uri=True, timeout=10, isolation_level=None)
print((connection.execute(sys.argv[2]).fetchone() or [""])[0])
"""


def quantile_ns(histogram: Histogram, share: float) -> float:
    """The smallest value that so many do not exceed."""
    reached = np.cumsum(histogram.counts) >= share * histogram.counts.sum()
    return float(histogram.values[reached][0])


@pytest.mark.parametrize(("database", "of"), [("sqlite", "single-write"), ("postgresql", "multi-read")])
def test_a_knee_is_a_rate_whose_responses_were_within_the_objective(database: str, of: str) -> None:
    require(database)
    design = {"databases": [database], "operations": ["knee"], "knee_of": [of], "flushes": ["rotational:7200"]}
    design |= {"knee_steps": 4, "objective_ms": OBJECTIVE_MS, "seconds": 0.5, "sensors": SENSORS}
    measured = on_testbed(design, each)["knee"]
    result, steps = measured.result, measured.result["steps"]
    assert not measured.flags
    assert len(steps) == 4 and steps == sorted(steps, key=lambda step: step["rate_per_s"])
    assert result["closed_per_s"] / 64 < result["knee_per_s"] < 1.25 * result["closed_per_s"]
    assert result["knee_per_s"] == max(step["rate_per_s"] for step in steps if step["met"])
    assert all(step["p99_ms"] <= OBJECTIVE_MS for step in steps if step["met"])
    # The histograms kept are those of the knee itself, and hold the objective by themselves.
    response, service = measured.histograms["response"], measured.histograms["service"]
    assert quantile_ns(response, 0.99) <= OBJECTIVE_MS * 1e6
    assert response.counts.sum() >= service.counts.sum() > 0  # of what was due and never begun, too
    if of == "single-write":  # one client, a flush for each: no more than the platter's turns
        assert result["closed_per_s"] < 126


MIX = {
    "operations": ["mixed"],
    "mixed": {"writes_per_s": 100.0, "burst_every_ms": 300, "burst_reads": 5, "readers": 2},
    "clients": [2],
    "seconds": 1.5,
    "preload": PRELOAD,
    "sensors": SENSORS,
}


@pytest.mark.parametrize("database", sampled(["sqlite"], ["postgresql"]))
def test_a_mixed_load_has_both_of_its_parts_with_checked_answers(database: str) -> None:
    require(database)
    measured = on_testbed({"databases": [database], "durability": ["os"]} | MIX, each)["mixed"]
    result = measured.result
    assert {flag.name for flag in measured.flags} <= {"disk-changed"}
    assert set(measured.histograms) == {f"{what}/{part}" for what in ("service", "response") for part in PARTS}
    count = {name: int(histogram.counts.sum()) for name, histogram in measured.histograms.items()}
    writes, reads = count["service/write"], count["service/read"]
    # Poisson with a mean of 150, and bursts of 5 at the times 0, 300 … 1200 ms of the span or of the warm-up before it.
    assert 90 < writes < 210
    assert 20 <= reads <= 30 and reads % 5 == 0
    assert result["operations"] == writes + reads and result["rows"] == writes + VALUES * reads
    assert len(result["per_client"]) == 2 + 2 and all(result["per_client"])
    assert result["wrong"] == result["errors"] == 0
    for part in PARTS:  # counts from when an operation was due, and never less than it took
        assert count[f"response/{part}"] >= count[f"service/{part}"]
        assert quantile_ns(measured.histograms[f"response/{part}"], 0.5) >= quantile_ns(
            measured.histograms[f"service/{part}"], 0.5
        )


@pytest.mark.parametrize("database", sampled(["sqlite"], ["postgresql"]))
def test_other_values_than_were_written_are_found_out_in_the_middle_of_a_mixed_load(database: str) -> None:
    require(database)

    async def work(suite: StorageSuite, cells: list[Cell], testbed: StorageTestbed, _: Stage) -> Measurement:
        store = (await testbed.target(cells[0].params)).client.store
        assert store is not None
        trial = asyncio.ensure_future(suite.measure(cells[0], testbed, lambda _: None))
        done = (await run(testbed.guest.channel, falsification(store), within_s=60)).value
        assert done["exit_code"] == 0, done["stderr"]
        return await trial

    measured = on_testbed({"databases": [database], "durability": ["os"]} | MIX | {"seconds": 3.0}, work)
    assert measured.result["wrong"] > 0
    (wrong,) = (flag for flag in measured.flags if flag.name == "wrong-answer")
    assert wrong.fatal


def falsification(store: Mapping[str, Any]) -> list[str]:
    """A command that waits until all rows are there, and then changes their values behind the load's back."""
    if store["driver"] == "sqlite":
        statement = [sys.executable, "-c", IN_SQLITE, store["path"]]
    else:
        address = ["-h", store["address"], "-p", str(store["port"]), "-U", store["user"]]
        statement = ["/usr/bin/env", f"PGPASSWORD={store['password']}"]
        statement += ["psql", "-XAtq", *address, store["database"], "-c"]
    return ["/bin/sh", "-c", FALSIFY, "sh", *statement]
