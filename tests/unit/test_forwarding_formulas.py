"""Load vectors, latency, line rates and buffers of packet forwarding, against values reckoned by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virtgauge.analysis.packets import (
    bits_per_s,
    corrected_buffer_s,
    equal_shares,
    implied_buffer_s,
    jain_index,
    shares_of,
    two_level_shares,
    weighted_latency,
    wire_frames_per_s,
    zipf_shares,
)

PUBLISHED_J = (0.085, 0.170, 0.255, 0.340, 0.425, 0.510, 0.595, 0.680, 0.765, 0.850, 0.934, 1.0)


@pytest.mark.parametrize(("strong", "wanted"), list(enumerate(PUBLISHED_J, 1)))
def test_j_of_the_papers_twelve_vectors(strong: int, wanted: float) -> None:
    assert jain_index(two_level_shares(12, strong, 0.01)) == pytest.approx(wanted, abs=5e-4)


def test_j_by_hand() -> None:
    # N = 3, k = 1, q = 0.1: loads .9 .05 .05; 1 / (3 (.81 + .0025 + .0025)) = 1 / 2.445
    assert jain_index([0.9, 0.05, 0.05]) == pytest.approx(1 / 2.445)


@given(st.integers(1, 64), st.data())
def test_shares_of_two_levels_are_all_of_the_load_and_fair_to_some_degree(guests: int, data: st.DataObject) -> None:
    strong = data.draw(st.integers(1, guests))
    light_share = data.draw(st.floats(0, (guests - strong) / guests, exclude_max=strong < guests))
    shares = two_level_shares(guests, strong, light_share)
    assert math.fsum(shares) == pytest.approx(1)
    assert 1 / guests - 1e-12 <= jain_index(shares) <= 1 + 1e-12


def test_two_levels_by_hand() -> None:
    assert two_level_shares(12, 3, 0.01) == pytest.approx([0.33] * 3 + [0.01 / 9] * 9)
    assert two_level_shares(12, 12, 0.01) == pytest.approx([1 / 12] * 12)
    assert two_level_shares(4, 1, 0.1) == pytest.approx([0.9, 0.1 / 3, 0.1 / 3, 0.1 / 3])


def test_without_light_load_j_is_k_over_n() -> None:
    assert jain_index(two_level_shares(12, 5, 0.0)) == pytest.approx(5 / 12)
    assert jain_index(two_level_shares(12, 5, 1e-9)) == pytest.approx(5 / 12)


def test_light_guests_that_would_be_loaded_more_than_the_strong_ones_are_refused() -> None:
    with pytest.raises(ValueError, match=r"k = 11 .* at most 0\.08333"):
        two_level_shares(12, 11, 0.2)


def test_other_vectors() -> None:
    assert equal_shares(4) == (0.25,) * 4
    assert zipf_shares(3, 1.0) == pytest.approx([6 / 11, 3 / 11, 2 / 11])
    assert zipf_shares(5, 0.0) == pytest.approx(equal_shares(5))
    assert shares_of([2, 1, 1]) == (0.5, 0.25, 0.25)
    assert jain_index([5, 0, 0, 0, 0]) == pytest.approx(1 / 5)


def test_latency_by_hand() -> None:
    # q = 0.1, two strong guests at 100 and 120, one light at 50: 0.1 * 50 + 0.9 * 110
    assert weighted_latency([100, 120, 50], two_level_shares(3, 2, 0.1)) == pytest.approx(104)


def test_latency_of_equally_loaded_guests_is_the_plain_mean() -> None:
    assert weighted_latency([80, 100, 120], two_level_shares(3, 3, 0.01)) == pytest.approx(100)


def test_line_rates_of_gigabit_ethernet() -> None:
    assert wire_frames_per_s(64, 1e9) == pytest.approx(1_488_095, abs=1)
    assert wire_frames_per_s(1518, 1e9) == pytest.approx(81_274, abs=1)
    assert bits_per_s(wire_frames_per_s(512, 1e9), 512 + 20) == pytest.approx(1e9)


def test_buffer_time_by_hand() -> None:
    # a burst of 26,000 frames at 14.88 Mpps through a device of 11.0 Mpps
    assert implied_buffer_s(26_000, 14.88e6) == pytest.approx(1.7473e-3, rel=1e-4)
    assert corrected_buffer_s(26_000, 14.88e6, 11.0e6) == pytest.approx(1.7473e-3 * (1 - 11 / 14.88), rel=1e-4)
