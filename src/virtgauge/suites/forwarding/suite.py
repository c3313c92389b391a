"""The forwarding suite: throughput by load vector and frame size, latency, and where lost frames went.

A cell is one independent search for one load vector and frame size (Batalla et al. 2016, section 3.3), made on a fresh
laboratory of N guests; its throughput T|J is the highest total load with no loss in any guest.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from pydantic import BaseModel

from virtgauge.analysis.forwarding import jain_index
from virtgauge.suites.base import Cell, Measurement, Suite
from virtgauge.suites.forwarding.cell_measurement import measure_cell
from virtgauge.suites.forwarding.laboratories import set_up_laboratory
from virtgauge.suites.forwarding.laboratory import ForwardingLab
from virtgauge.suites.forwarding.settings import WORST, ForwardingSettings
from virtgauge.suites.testbed import Stage, Testbed

_OVERHEAD = 2.0
"""What a trial may take against its offered load: waiting for the last frames, reading counters, a crowded machine."""
_TRIAL_OVERHEAD_S = 2.0
_SET_UP_S = 60.0


class ForwardingSuite(Suite):
    """See the module."""

    name: ClassVar[str] = "forwarding"
    Settings: ClassVar[type[BaseModel]] = ForwardingSettings

    def __init__(self, settings: ForwardingSettings) -> None:
        self._settings = settings

    @classmethod
    def create(cls, settings: Mapping[str, Any]) -> ForwardingSuite:
        return cls(ForwardingSettings.model_validate(settings))

    def needs(self) -> tuple[str, ...]:
        return ("openvswitch",) if self._settings.switch == "openvswitch" else ()

    def cells(self) -> list[Cell]:
        names = [*self._settings.shares(), *([WORST] if WORST in self._settings.vectors else [])]
        return [self._cell(vector, size) for vector, size in itertools.product(names, self._settings.frame_bytes)]

    def _cell(self, vector: str, frame_bytes: int) -> Cell:
        s = self._settings
        shares = s.shares().get(vector)
        return Cell(
            suite=self.name,
            probe="throughput",
            factors={
                "vector": vector,
                "jain": "" if shares is None else f"{jain_index(shares):.3f}",
                "frame_bytes": str(frame_bytes),
                "guests": str(s.guests),
                "switch": s.switch,
                "cpu_limit": "none" if s.cpu_limit is None else f"{s.cpu_limit:g}",
                "search": s.search,
            },
            params={"vector": vector, "frame_bytes": frame_bytes},
            timeout_s=self._timeout_s(vector),
            testbed=f"forwarding-{s.guests}-{s.switch}-{s.cpu_limit or 0:g}-{s.memory_mib or 0}-{s.port}",
            expected_s=self._expected_s(vector),
        )

    def _timeout_s(self, vector: str) -> float:
        s = self._settings
        method = s.search_method()
        searches = len(s.strong) if vector == WORST else 1
        load_s = searches * method.longest_s(s.limits()) + 40 * s.calibration_s
        load_s += len({*s.latency_loads, *s.load_curve}) * s.latency_s * s.latency_repeats + 45 * s.back_to_back
        trials = load_s / min(s.length_of_trial_s, s.latency_s)
        return _OVERHEAD * load_s + _TRIAL_OVERHEAD_S * trials + _SET_UP_S

    def _expected_s(self, vector: str) -> float:
        """Of a search some ten trials; of mlrsearch, which repeats them, about four times what decides of one load."""
        s = self._settings
        search_s = 4 * s.duration_sum_s if s.search == "mlrsearch" else 10 * s.length_of_trial_s
        searches = len(s.strong) if vector == WORST else 1
        loads = len({*s.latency_loads, *s.load_curve})
        return searches * search_s + loads * s.latency_s * s.latency_repeats + 5 * s.calibration_s

    async def set_up(self, testbed: str, stage: Stage) -> Testbed:
        """Build the laboratory and prove that every flow reaches its own guest alone."""
        return await set_up_laboratory(self._settings, stage)

    async def measure(self, cell: Cell, testbed: Testbed, on_progress: Callable[[float], None]) -> Measurement:
        """Search, measure latency, and close the ledger of lost frames."""
        assert isinstance(testbed, ForwardingLab)
        return await measure_cell(
            self._settings, testbed, cell.params["vector"], cell.params["frame_bytes"], on_progress
        )
