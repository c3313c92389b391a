"""The isolation suite: what a neighbour's load costs a guest, and what a policy on either of them saves.

The paper is Rzecki, Niedźwiecki, Sośnicki and Martyna 2014, "Experimental verification of Hyper-V performance isolation
quality level".  A cell is one benchmark in the tested guest beside one load in the loading guest, both on the same CPUs
or each on its own, with one policy on one of them: a place in the paper's four-level array.

Histograms (ns): ``wake``, how late each wake-up was (benchmark ``wake``); ``disk``, how long each operation took (disk
benchmarks).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

from pydantic import BaseModel

from virtgauge.suites.base import Cell, Measurement, Suite
from virtgauge.suites.isolation.benchmarks import NO_LOAD, kind_of
from virtgauge.suites.isolation.blocks import block_bytes, largest_cache_bytes
from virtgauge.suites.isolation.kernel_work import unknown_cache
from virtgauge.suites.isolation.policies import NO_POLICY, NOBODY
from virtgauge.suites.isolation.settings import IsolationSettings
from virtgauge.suites.isolation.testbed import IsolationTestbed, TestbedSpec, testbed_of
from virtgauge.suites.isolation.trial import measure_cell, timeout_s
from virtgauge.suites.testbed import Stage, Testbed


def _expected_s(settings: IsolationSettings) -> float:
    return settings.warmup_s + settings.seconds + 0.3


class IsolationSuite(Suite):
    """See the module."""

    name: ClassVar[str] = "isolation"
    Settings: ClassVar[type[BaseModel]] = IsolationSettings

    def __init__(self, settings: IsolationSettings) -> None:
        self._settings = settings
        self._testbeds: dict[str, TestbedSpec] = {}

    @classmethod
    def create(cls, settings: Mapping[str, Any]) -> IsolationSuite:
        return cls(IsolationSettings.model_validate(settings))

    def missing_prerequisites(self) -> list[str]:
        """Blocks of so many caches, where nobody knows how large those are."""
        cache = largest_cache_bytes()
        return [
            unknown_cache(name) for name in sorted(set(self._settings.blocks())) if block_bytes(name, cache) is None
        ]

    def cells(self) -> list[Cell]:
        """The design's cells, and the reference of each benchmark."""
        found: dict[str, Cell] = {}
        for benchmark, block, cores in self._benchmarks():
            levels: list[tuple[str, int, str, str, float]] = [(NO_LOAD, 0, NO_POLICY, NOBODY, 100.0)]
            levels += [
                (load, intensity, *policy)
                for load, intensity in self._loads()
                for policy in self._policies(benchmark, load)
            ]
            for load, intensity, policy, on, share in levels:
                factors = {
                    "benchmark": benchmark,
                    "block": block,
                    "load": load,
                    "intensity": str(intensity),
                    "cores": cores,
                    "policy": policy,
                    "on": on,
                    "share": f"{share:g}",
                }
                cell = self._cell(factors)
                found.setdefault(cell.key, cell)
        return list(found.values())

    def _benchmarks(self) -> Iterator[tuple[str, str, str]]:
        """Benchmark, block and cores of every row of the array."""
        s = self._settings
        for benchmark, cores in itertools.product(s.benchmarks, s.cores):
            for block in s.memory_blocks if kind_of(benchmark).has_block else ("",):
                yield benchmark, block, cores

    def _loads(self) -> Iterator[tuple[str, int]]:
        for load in self._settings.loads:
            for intensity in (0,) if load == NO_LOAD else self._settings.intensities:
                yield load, intensity

    def _policies(self, benchmark: str, load: str) -> Iterator[tuple[str, str, float]]:
        """Policy, receiver and share; a limit of the disk only of a guest that uses it."""
        for policy in self._settings.policies:
            if policy == NO_POLICY:
                yield policy, NOBODY, 100.0
                continue
            for on, share in itertools.product(self._settings.on, self._settings.shares):
                does = benchmark if on == "tested" else load
                if policy != "disk-limit" or (does != NO_LOAD and kind_of(does).uses_disk):
                    yield policy, on, share

    def _cell(self, factors: dict[str, str]) -> Cell:
        testbed = testbed_of(self._settings, factors["cores"])
        self._testbeds[testbed.name] = testbed
        params = {
            **factors,
            "intensity": int(factors["intensity"]),
            "share": float(factors["share"]) / 100,
        }
        return Cell(
            self.name,
            "kernel",
            factors,
            params,
            timeout_s(self._settings, params),
            testbed.name,
            _expected_s(self._settings),
        )

    async def set_up(self, testbed: str, stage: Stage) -> Testbed:
        """Two guests, each with its disk where the design needs one."""
        return await IsolationTestbed.create(stage, self._testbeds[testbed])

    async def measure(self, cell: Cell, testbed: Testbed, on_progress: Callable[[float], None]) -> Measurement:
        """Measure one cell."""
        assert isinstance(testbed, IsolationTestbed)
        return await measure_cell(self._settings, testbed, cell, on_progress)
