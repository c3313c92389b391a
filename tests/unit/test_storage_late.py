"""A cell is named after its share of late readings only where its trials hold them."""

from __future__ import annotations

from typing import Any

import pytest

from virtgauge.suites.storage.settings import StorageSettings
from virtgauge.suites.storage.trial import late_flags


@pytest.mark.parametrize(
    ("settings", "operation", "share", "across", "rows_each", "fatal"),
    [
        ({}, "single-write", 0.05, 0.0, 660, True),  # bound by flushes: the first late one would come after 2000
        ({}, "single-write", 0.05, 0.024, 24_000, True),
        ({}, "single-write", 0.05, 0.026, 24_000, False),
        ({}, "single-write", 0.0, None, 660, False),
        ({"late_run": 6, "late_by": 20}, "single-write", 0.05, 0.045, 660, False),
        ({}, "mixed", 0.05, 0.0, 1000, True),  # its writes are of one reading, whatever its reads are of
        ({"late_run": 1, "late_by": 100}, "mixed", 0.05, 0.0, 1000, True),
        ({"late_run": 1, "late_by": 100}, "multi-write", 0.05, 0.005, 50_000, False),  # late within a statement
        ({"late_by": 100}, "multi-write", 0.05, 0.0, 20_000, True),
        ({}, "multi-read", 0.05, None, 0, False),  # of 16 sensors' 10,000 readings
        ({"preload": 1000}, "multi-read", 0.05, None, 0, True),
        ({"sensors": 1}, "last-value", 0.05, None, 0, True),
        ({"sensors": 1, "preload": 12_000}, "last-value", 0.05, None, 0, False),
    ],
)
def test_a_trial_with_less_than_half_of_its_late_readings_does_not_count(
    settings: dict[str, Any],
    operation: str,
    share: float,
    across: float | None,
    rows_each: float,
    fatal: bool,
) -> None:
    plan = StorageSettings(**settings, late_share=(0.05,))
    found = list(late_flags(plan, {"operation": operation, "late_share": share}, across, rows_each))
    assert [(one.name, one.fatal) for one in found] == ([("few-late", True)] if fatal else [])


@pytest.mark.parametrize(
    ("settings", "operation", "across", "rows_each", "takes"),
    [
        ({}, "single-write", 0.0, 660, "it takes 24,000 of each"),
        ({"late_run": 6}, "single-write", 0.0, 660, "it takes 4,080 of each"),  # late_by is 17 times 6 / 0.05
        ({"late_run": 1, "late_by": 100}, "multi-write", 0.0, 190, "it takes 200 of each"),
        ({"preload": 1000}, "multi-read", None, 0, "it takes 7,500 of each"),  # ten runs among 16 sensors
    ],
)
def test_the_flag_says_how_many_readings_would_do(
    settings: dict[str, Any], operation: str, across: float | None, rows_each: float, takes: str
) -> None:
    plan = StorageSettings(**settings, late_share=(0.05,))
    (flag,) = late_flags(plan, {"operation": operation, "late_share": 0.05}, across, rows_each)
    assert takes in flag.detail
