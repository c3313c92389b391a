"""Estimates carry their uncertainty, and a missing figure is not zero."""

from __future__ import annotations

import math

import pytest

from virtgauge.analysis.estimate import Estimate

MEASURED = Estimate(20_000.0, 19_000.0, 22_000.0, 0.95, 6, "ps", "given")


def test_scaling_changes_the_unit_and_every_figure() -> None:
    scaled = MEASURED.scaled(1e-3, "ns")
    assert (scaled.point, scaled.low, scaled.high, scaled.unit) == (20.0, 19.0, 22.0, "ns")
    assert (scaled.confidence, scaled.n) == (0.95, 6)


@pytest.mark.parametrize("factor", [0.0, -1.0, math.inf, math.nan])
def test_scaling_by_nonsense_is_refused(factor: float) -> None:
    with pytest.raises(ValueError, match="factor"):
        MEASURED.scaled(factor, "ns")


def test_missing_stays_missing() -> None:
    missing = Estimate.missing("ps", "the guest died").scaled(1e-3, "ns")
    assert (missing.point, missing.low, missing.high) == (None, None, None)
    assert missing.method == "the guest died"


def test_only_an_interval_excludes() -> None:
    assert MEASURED.excludes(18_999)
    assert not MEASURED.excludes(19_000)
    assert not Estimate.bare(1.0, "ns", "one repetition").excludes(5)
