"""Benches of two real guests for tests: built from a design, measured cell by cell, and gone afterwards."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator
from typing import Any

from platforms.conftest import left_behind, require
from platforms.disk_checks import PLATFORMS

from virtgauge.agent import find_agent
from virtgauge.execution.trial import Outcome, run_trial
from virtgauge.host.scope import Scope
from virtgauge.host.tag import scratch_root
from virtgauge.plan.model import ValidityLimits
from virtgauge.platforms import create
from virtgauge.suites.base import Cell
from virtgauge.suites.isolation.suite import IsolationSuite
from virtgauge.suites.isolation.testbed import IsolationTestbed
from virtgauge.suites.testbed import Stage

QUICK = {
    "benchmarks": ["integer"],
    "loads": ["none"],
    "policies": ["none"],
    "warmup_s": 0.2,
    "seconds": 1.0,
    "disk_file_mib": 4,
}
ANYTHING = ValidityLimits(foreign_load=1.0, steal=1.0)
"""What others do on this machine meanwhile is not what is tested."""


@dataclasses.dataclass(frozen=True)
class Pair:
    """A testbed and the design that it was built from."""

    suite: IsolationSuite
    testbed: IsolationTestbed
    stage: Stage

    def cell(self, **factors: str) -> Cell:
        """The only cell of the design with these factors, without load and policy but those named."""
        plain = {"load": "none", "policy": "none", "share": "100"}
        if "policy" in factors:
            plain = {"load": "none", "on": "tested"}
        wanted = (plain | factors).items()
        (found,) = [cell for cell in self.suite.cells() if wanted <= cell.factors.items()]
        return found

    async def measure(self, **factors: str) -> Outcome:
        """Measure it as a run would."""
        return await run_trial(self.cell(**factors), self.suite, self.testbed, ANYTHING, lambda _: None)


@contextlib.asynccontextmanager
async def pair(name: str, **design: Any) -> AsyncIterator[Pair]:
    """The testbed of the first cell on one of the platforms that every machine here has; then nothing is left."""
    kind, settings = PLATFORMS[name]
    platform = create(kind, settings)
    require(await platform.probe(), name)
    suite = IsolationSuite.create(QUICK | design)
    with Scope() as scope:
        stage = Stage(platform, scope, find_agent(), "testbed")
        try:
            testbed = await suite.set_up(suite.cells()[0].testbed, stage)
            assert isinstance(testbed, IsolationTestbed)
            yield Pair(suite, testbed, stage)
        finally:
            await stage.close()
            assert not list((scratch_root() / scope.tag).glob("testbed-*")), "a disk is left"
            left = left_behind(f"{scope.tag}/testbed")
            assert not left, left
        tag = scope.tag
    left = left_behind(tag)
    assert not left, left


def flags(outcome: Outcome) -> set[str]:
    """The names of its flags."""
    return {flag.name for flag in outcome.flags}
