"""What a load came to, where its clients ended before the measured span began."""

import dataclasses

import pytest

from virtgauge.suites.answers import decoded
from virtgauge.suites.storage.client import Measured, StoreError
from virtgauge.suites.storage.trial import figures


def test_a_span_without_time_keeps_the_cause_and_has_no_rate():
    told = {
        "elapsed_ns": 0,
        "cpu_ns": 0,
        "started_monotonic_ns": 5,
        "finished_ns": 6,
        "streams": (),
    }
    measured = decoded(Measured, told)
    assert (measured.operations_per_s, figures(measured)["operations_per_s"]) == (0.0, None)
    stream = type("Stream", (), {"errors": 3, "first_error_kind": "denied", "first_error": "no such user"})
    with pytest.raises(StoreError, match="3 operations failed, the first with: no such user"):
        dataclasses.replace(measured, streams=(stream,)).refuse_unusable()
