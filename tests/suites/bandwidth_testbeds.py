"""Benches of a real path for tests: built from a design, measured cell by cell, and gone afterwards."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import pytest
from platforms.conftest import require, traces
from platforms.disk_checks import PLATFORMS

from virtgauge.agent import find_agent
from virtgauge.execution.trial import Outcome, run_trial
from virtgauge.host.scope import Scope
from virtgauge.ledger.records import TrialStatus
from virtgauge.plan.model import ValidityLimits
from virtgauge.platforms import create
from virtgauge.suites.bandwidth.settings import BandwidthSettings
from virtgauge.suites.bandwidth.suite import BandwidthSuite, conditions_of
from virtgauge.suites.bandwidth.testbed import BandwidthTestbed, Conditions
from virtgauge.suites.base import Cell
from virtgauge.suites.testbed import Stage

QUICK = {
    "estimators": ["kite2"],
    "timings": ["hptime"],
    "capacities_mbps": [50],
    "cross_mbps": [25],
    "estimates": 2,
    "capacity_s": 0,
}
ANYTHING = ValidityLimits(foreign_load=1.0, steal=1.0)
"""What others do on this machine meanwhile is not what is tested."""
BEFORE_OTHERS = {"fifo": 50}
"""For a sender on the host: a machine that is busy with other tests does not keep it from its time."""
IP = 1500 / 1514


@dataclasses.dataclass(frozen=True)
class Laid:
    """A testbed and the design that it was built from."""

    suite: BandwidthSuite
    settings: BandwidthSettings
    testbed: BandwidthTestbed
    stage: Stage

    def cell(self, **factors: str) -> Cell:
        """The only cell of the design with these factors."""
        (found,) = [cell for cell in self.suite.cells() if factors.items() <= cell.factors.items()]
        return found

    def conditions(self, cell: Cell) -> Conditions:
        """What a cell says of the path."""
        return conditions_of(self.settings, cell.params)

    async def measure(self, **factors: str) -> Outcome:
        """Measure it as a run would."""
        return await run_trial(self.cell(**factors), self.suite, self.testbed, ANYTHING, lambda _: None)


@contextlib.asynccontextmanager
async def path(name: str, **design: Any) -> AsyncIterator[Laid]:
    """The testbed of the first cell on one of the platforms that every machine here has; then nothing is left."""
    kind, settings = PLATFORMS[name]
    platform = create(kind, settings)
    require(await platform.probe(), name)
    design_settings = BandwidthSettings.model_validate(QUICK | design)
    suite = BandwidthSuite(design_settings)
    with Scope() as scope:
        stage = Stage(platform, scope, find_agent(), "testbed")
        try:
            testbed = await suite.set_up(suite.cells()[0].testbed, stage)
            assert isinstance(testbed, BandwidthTestbed)
            yield Laid(suite, design_settings, testbed, stage)
        finally:
            await stage.close()
            assert traces(f"{scope.tag}-testbed") == []
        tag = scope.tag
    assert traces(tag) == []


def check_against_truth(outcome: Outcome, capacity_mbps: float, cross_mbps: float, within: float) -> bool:
    """Whether there is an estimate that is near; a machine that is busy may refuse, and must say so rightly.

    Everything that is counted has to be right in either case.
    """
    assert outcome.status in (TrialStatus.VALID, TrialStatus.INVALID), outcome.error
    assert not outcome.guest_lost
    result, fatal = outcome.result, {flag.name for flag in outcome.flags if flag.fatal}
    counted = result["cross"]["counted_mbps"]
    assert result["truth_mbps"] == pytest.approx((capacity_mbps - counted) * IP)
    assert (abs(counted - cross_mbps) > max(1.0, 0.03 * cross_mbps)) == ("cross-traffic-short" in fatal)
    if result["pacing"]["refused"]:
        assert result["median_mbps"] is None
        assert "cannot-pace" in {flag.name for flag in outcome.flags}
        assert result["pacing"]["max_paced_mbps"] < 1.1 * result["truth_mbps"]
        return False
    assert result["low_mbps"] <= result["median_mbps"] <= result["high_mbps"]
    return not fatal and abs(result["error_ratio"]) < within
