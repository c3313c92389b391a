"""Estimates carry their uncertainty, and a missing figure is not zero."""

from __future__ import annotations

import math

from virtgauge.analysis.estimate import Estimate

MEASURED = Estimate(20_000.0, 19_000.0, 22_000.0, 0.95, 6, "ps", "given")


def test_an_increasing_function_maps_every_figure_and_the_unit() -> None:
    mapped = MEASURED.mapped(math.sqrt, "√ps")
    assert (mapped.point, mapped.low, mapped.high) == tuple(map(math.sqrt, (20_000, 19_000, 22_000)))
    assert (mapped.unit, mapped.confidence, mapped.n) == ("√ps", 0.95, 6)


def test_missing_stays_missing() -> None:
    missing = Estimate.missing("log", "the guest died").mapped(math.exp, "ratio")
    assert (missing.point, missing.low, missing.high) == (None, None, None)
    assert missing.method == "the guest died"


def test_only_an_interval_excludes() -> None:
    assert MEASURED.excludes(18_999)
    assert not MEASURED.excludes(19_000)
    assert not Estimate.bare(1.0, "ns", "one repetition").excludes(5)
