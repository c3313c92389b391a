"""Probes of the data disk around a trial: longer while it seems to be another disk, since it may be at work still."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from virtgauge.suites.storage.client import DiskProbe, FlushCount
from virtgauge.suites.storage.flushes import DiskWatch, probe_disk, watch_disk
from virtgauge.suites.storage.laboratory import Target


class Disk:
    """Flushes at the next of these rates each time it is probed."""

    def __init__(self, *rates: float) -> None:
        self.rates, self.asked = list(rates), []

    async def disk(self, folder: Path, seconds: float) -> DiskProbe:
        self.asked.append(round(seconds, 3))
        rate = self.rates.pop(0)
        return DiskProbe(round(rate * seconds), seconds * 1e9, tuple(rate * (1 + 0.001 * burst) for burst in range(10)))


def watched(*rates: float) -> tuple[DiskWatch, list[float]]:
    disk = Disk(*rates)
    target = cast(Target, SimpleNamespace(inside=disk, disk=Path("/disk")))

    async def work() -> DiskWatch:
        return await watch_disk(target, 0.1, await probe_disk(target, 0.1))

    return asyncio.run(work()), disk.asked


def test_a_disk_that_is_the_same_is_probed_once_after_the_trial() -> None:
    watch, asked = watched(1000, 1500)
    assert asked == [0.1, 0.1]
    assert not [*watch.flags(waits=True)]
    assert watch.figures() == {"disk_before_per_s": pytest.approx(1000), "disk_after_per_s": pytest.approx(1500)}


def test_a_disk_that_was_only_still_at_work_is_the_same_after_a_longer_look() -> None:
    watch, asked = watched(1000, 100, 1000)
    assert asked == [0.1, 0.1, 0.2]
    assert not [*watch.flags(waits=True)]


def test_a_disk_that_stays_another_one_is_named_with_both_rates() -> None:
    watch, asked = watched(1000, 100, 100, 100)
    assert asked == [0.1, 0.1, 0.2, 0.4]
    (flag,) = watch.flags(waits=True)
    assert flag.name == "disk-changed" and flag.fatal
    assert "1,0" in flag.detail and "100 after" in flag.detail
    (unmoved,) = watch.flags(waits=False)
    assert not unmoved.fatal  # what waits for no flush does not notice


def test_where_there_is_no_disk_of_ours_nothing_is_said() -> None:
    target = cast(Target, SimpleNamespace(inside=None, disk=None))
    watch = asyncio.run(watch_disk(target, 0.1, asyncio.run(probe_disk(target, 0.1))))
    assert watch.figures() == {"disk_before_per_s": None, "disk_after_per_s": None}
    assert not [*watch.flags(waits=True)]


def test_the_mean_of_a_flush_leaves_those_out_whose_time_was_not_seen() -> None:
    before = FlushCount(total=10, time_ns=1000, untimed=0)
    assert FlushCount(total=30, time_ns=9000, untimed=10).since(before) == FlushCount(20, 8000, 10)
    assert FlushCount(20, 8000, 10).mean_ns == 800
    assert FlushCount(20, 0, 20).mean_ns is None
