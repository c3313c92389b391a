"""A policy set by hand: what the neighbour may receive while the other guest is not busy is no breach of it."""

from __future__ import annotations

import pytest

from virtgauge.suites.isolation.by_hand import Look


@pytest.mark.parametrize(
    ("received", "alone", "in_force"), [(0.14, 0.0, False), (0.14, 0.03, True), (0.06, 0.03, False)]
)
def test_a_neighbour_that_was_alone_for_a_moment_may_have_received_more_and_not_less(received, alone, in_force):
    look = Look("loading", "as the busy neighbour", received, 0.1, 0.5, None, alone)
    assert look.in_force is in_force
