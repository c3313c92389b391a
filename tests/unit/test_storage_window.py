"""A rate is told only of a time that holds some operations of each client."""

from __future__ import annotations

import pytest

from virtgauge.suites.storage.client import Measured, Stream, StreamResult
from virtgauge.suites.storage.trial import window_flags

_OPEN = {"kind": "open", "rate_per_s": 1.0, "arrivals": "even"}


def measured(
    *per_client: int, loop: dict[str, object] | None = None, seconds: float = 0.5, pipeline: int = 1
) -> Measured:
    """What came of a load whose clients had so many answers."""
    stream = Stream("write", 1000, len(per_client), loop or {"kind": "closed"}, pipeline)
    done = sum(per_client)
    slices = (done,)
    result = StreamResult(stream, done, done, 1000 * done, 0, 0, 1.0, None, None, None, None, 0, 0, per_client, slices)
    return Measured(round(seconds * 1e9), 0, 0, 0, (result,))


def test_a_time_that_holds_eight_answers_of_each_client_counts() -> None:
    assert list(window_flags(measured(8, 9, 80))) == []


def test_an_open_loop_has_as_many_as_were_due() -> None:
    assert list(window_flags(measured(1, 0, loop=_OPEN))) == []


def test_a_client_whose_turn_hardly_comes_beside_the_others_thousands_makes_no_difference() -> None:
    assert list(window_flags(measured(1000, 3, 0))) == []


def test_answers_to_a_pipeline_are_one() -> None:
    assert list(window_flags(measured(8 * 32, pipeline=32))) == []
    assert "had 255 answers in 0.5 s, of the 256 needed" in next(window_flags(measured(255, pipeline=32))).detail


@pytest.mark.parametrize(("per_client", "seconds"), [((100, 3), 162), ((0,), 484)])
def test_a_client_that_had_too_few_spoils_the_trial_and_what_to_set_is_said(
    per_client: tuple[int, ...], seconds: int
) -> None:
    (found,) = window_flags(measured(*per_client, seconds=60.5))
    assert (found.name, found.fatal) == ("short-window", True)
    assert f"a client had {min(per_client)} answers in 60.5 s" in found.detail
    assert f"set seconds = {seconds}," in found.detail
