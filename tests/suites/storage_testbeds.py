"""Benches of real databases for tests: built from a design, worked with, and gone afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
import unittest.mock
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from virtgauge.agent import find_agent
from virtgauge.host.scope import Scope
from virtgauge.host.tag import scratch_root
from virtgauge.platforms import create
from virtgauge.suites.base import Cell, Measurement
from virtgauge.suites.storage.databases import database
from virtgauge.suites.storage.databases.base import Found
from virtgauge.suites.storage.laboratory import StorageTestbed
from virtgauge.suites.storage.suite import StorageSuite
from virtgauge.suites.testbed import Stage, Testbed

QUICK = {
    "operations": ["single-write"],
    "seconds": 0.3,
    "warmup_s": 0.05,
    "calibration_s": 0.05,
    "disk_probe_s": 0.03,
    "preload": 1000,
    "disk_mib": 512,
    "timeout_ms": 3000,
}


Work = Callable[[StorageSuite, list[Cell], StorageTestbed, Stage], Awaitable[Any]]


@contextlib.contextmanager
def passable_state() -> Iterator[None]:
    """A state folder of the test's own that servers, which are not root, can pass through."""
    with tempfile.TemporaryDirectory(prefix="vg-state-") as folder:
        Path(folder).chmod(0o711)
        with unittest.mock.patch.dict(os.environ, VIRTGAUGE_STATE=f"{folder}/state"):
            yield


def on_testbed(design: dict[str, Any], work: Work, kind: str = "host", **platform: Any) -> Any:
    """Do something with a testbed of this design; then nothing of it is left."""

    async def inside() -> Any:
        suite = StorageSuite.create(QUICK | design)
        cells = suite.cells()
        with Scope() as scope:
            stage = Stage(create(kind, platform), scope, find_agent(), "testbed")
            try:
                testbed = await suite.set_up(cells[0].testbed, stage)
                assert isinstance(testbed, StorageTestbed)
                return await work(suite, cells, testbed, stage)
            finally:
                await stage.close()
                tag = scope.tag
                assert not list((scratch_root() / tag).glob("testbed-*")), "its disk is left"
                assert tag not in Path("/proc/mounts").read_text(), "its mount is left"
                assert not list(Path("/run/netns").glob(f"{tag}-*")), "its namespace is left"

    with passable_state():
        return asyncio.run(asyncio.wait_for(inside(), 240))


async def each(suite: StorageSuite, cells: list[Cell], testbed: Testbed, _: Stage) -> dict[str, Measurement]:
    return {cell.factors["operation"]: await suite.measure(cell, testbed, lambda _: None) for cell in cells}


def require(name: str) -> None:
    """A server that is missing is a failure with its remedy: the set-up of the tests gets it."""
    found = database(name).find()
    assert isinstance(found, Found), found
