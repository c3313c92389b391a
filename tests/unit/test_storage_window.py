"""A rate is told only of a time that holds some operations of each client."""

from __future__ import annotations

import numpy as np
import pytest

from virtgauge.ledger.records import Histogram
from virtgauge.suites.storage.client import Measured, Stream, StreamResult
from virtgauge.suites.storage.trial import window_flags


def measured(*services_s: float | None, seconds: float = 0.5) -> Measured:
    """What came of loads whose operations took so long; None of one that did none."""

    def result(service_s: float | None) -> StreamResult:
        ns = round((service_s or 0) * 1e9)
        one = np.array([ns], dtype=np.int64), np.array([3], dtype=np.uint64)
        service = None if service_s is None else Histogram("ns", *one, ns, ns, float(ns))
        return StreamResult(Stream("write", 1000, 16), 3, 3000, 0, 0, None, None, service, None, 0, 0, (3,), (3,))

    return Measured(round(seconds * 1e9), 0, 0, 0, tuple(map(result, services_s)))


@pytest.mark.parametrize("services_s", [(), (None,), (0.1,), (0.25, 0.01)])
def test_a_time_that_holds_two_operations_of_a_client_counts(services_s: tuple[float | None, ...]) -> None:
    assert list(window_flags(measured(*services_s))) == []


@pytest.mark.parametrize("services_s", [(0.54,), (0.001, 0.26)])
def test_a_time_that_hardly_holds_one_does_not_count_and_what_to_set_is_said(services_s: tuple[float, ...]) -> None:
    (found,) = window_flags(measured(*services_s))
    assert (found.name, found.fatal) == ("short-window", True)
    assert f"set seconds = {int(8 * max(services_s)) + 1}" in found.detail
    assert list(window_flags(measured(*services_s, seconds=5.0))) == []
