"""The bandwidth suite: what an estimator in a guest finds of a shaped path, by which timing, and what is true.

The paper is Kirova, Karpov, Siemens, Zander, Vasylenko, Kachan and Maksymov 2019, "Impact of modern virtualization
methods on timing precision and performance of high-speed applications", sections 2.2 and 3.3.  A cell is one estimator
with one timing on one path; a trial is so many complete searches of it, and their median.

Histograms: ``gap``, achieved gap by planned one (permille); ``lateness``, of each burst (ns).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from pydantic import BaseModel

from virtgauge.suites.bandwidth.laboratory import set_up_laboratory
from virtgauge.suites.bandwidth.program import missing_prerequisite
from virtgauge.suites.bandwidth.settings import BandwidthSettings
from virtgauge.suites.bandwidth.simulated import set_up_simulation
from virtgauge.suites.bandwidth.testbed import BandwidthTestbed, TestbedSpec
from virtgauge.suites.bandwidth.trial import measure_cell, timeout_s
from virtgauge.suites.base import Cell, Measurement, Suite
from virtgauge.suites.testbed import Stage, Testbed


class BandwidthSuite(Suite):
    """See the module."""

    name: ClassVar[str] = "bandwidth"
    Settings: ClassVar[type[BaseModel]] = BandwidthSettings

    def __init__(self, settings: BandwidthSettings) -> None:
        self._settings = settings
        self._testbeds: dict[str, TestbedSpec] = {}

    @classmethod
    def create(cls, settings: Mapping[str, Any]) -> BandwidthSuite:
        return cls(BandwidthSettings.model_validate(settings))

    def needs(self) -> tuple[str, ...]:
        return ("bandwidth", "shim") if "shim" in self._settings.through else ()

    def missing_prerequisites(self) -> list[str]:
        """The program for ``shim``, where it is not there."""
        missing = missing_prerequisite() if "shim" in self._settings.through else None
        return [] if missing is None else [f"the bandwidth suite's cells through shim: {missing}"]

    def cells(self) -> list[Cell]:
        s = self._settings
        return [
            self._cell(estimator, *swap, capacity, *traffic, delay, loss, pacing)
            for estimator, swap, capacity, traffic, delay, loss, pacing in itertools.product(
                s.estimators, s.swaps(), s.capacities_mbps, s.traffics(), s.delays_ms, s.losses, s.pacings
            )
        ]

    def _cell(
        self,
        estimator: str,
        timing: str,
        through: str,
        capacity_mbps: float,
        cross_mbps: float,
        traffic: str,
        delay_ms: float,
        loss: float,
        pacing: str,
    ) -> Cell:
        testbed = TestbedSpec.of(self._settings, needs_link=delay_ms > 0 or loss > 0)
        self._testbeds[testbed.name] = testbed
        params: dict[str, Any] = {
            "estimator": estimator,
            "timing": timing,
            "through": through,
            "capacity_mbps": capacity_mbps,
            "cross_mbps": cross_mbps,
            "traffic": traffic,
            "delay_ms": delay_ms,
            "loss": loss,
            "pacing": pacing,
        }
        factors = {name: f"{level:g}" if isinstance(level, float) else level for name, level in params.items()}
        expected_s = 1 + 0.5 * self._settings.estimates + 2 * self._settings.capacity_s
        return Cell(self.name, "estimate", factors, params, timeout_s(self._settings), testbed.name, expected_s)

    async def set_up(self, testbed: str, stage: Stage) -> Testbed:
        """The path, who sends and who receives on it."""
        set_up = set_up_simulation if stage.platform.simulated else set_up_laboratory
        return await set_up(stage, self._testbeds[testbed])

    async def measure(self, cell: Cell, testbed: Testbed, on_progress: Callable[[float], None]) -> Measurement:
        """Measure one cell."""
        assert isinstance(testbed, BandwidthTestbed)
        return await measure_cell(self._settings, testbed, cell, on_progress)
