"""Entitlement and the smallest setting: known cases, and what holds for any."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virtgauge.analysis.resources import Claim, entitled_cpus, smallest_setting


def test_equal_weights_share_equally_and_a_small_demand_leaves_the_rest() -> None:
    assert entitled_cpus([Claim(2), Claim(2)], 2) == pytest.approx([1, 1])
    assert entitled_cpus([Claim(0.2), Claim(2)], 2) == pytest.approx([0.2, 1.8])


def test_a_limit_is_not_a_reservation() -> None:
    # The case seen in METHODS: a limit of 75 % beside a neighbour of equal weight gives half, not three quarters …
    assert entitled_cpus([Claim(1, limit=0.75), Claim(1)], 1) == pytest.approx([0.5, 0.5])
    # … which the matching weight does.
    assert entitled_cpus([Claim(1, limit=0.75, weight=3), Claim(1)], 1) == pytest.approx([0.75, 0.25])


_claims = st.lists(
    st.builds(
        Claim,
        demand=st.floats(0, 8),
        limit=st.none() | st.floats(0, 8),
        weight=st.floats(0.01, 100),
    ),
    min_size=1,
    max_size=6,
)


@given(_claims, st.floats(0.1, 16))
def test_nothing_is_wasted_and_nobody_is_above_its_cap(claims: list[Claim], capacity: float) -> None:
    entitled = entitled_cpus(claims, capacity)
    assert sum(entitled) == pytest.approx(min(capacity, sum(claim.cap for claim in claims)), abs=1e-6)
    for claim, cpus in zip(claims, entitled, strict=True):
        assert cpus <= claim.cap + 1e-9


@given(_claims, st.floats(0.1, 16))
def test_who_is_short_stands_as_high_by_weight_as_anybody(claims: list[Claim], capacity: float) -> None:
    entitled = entitled_cpus(claims, capacity)
    levels = [cpus / claim.weight for claim, cpus in zip(claims, entitled, strict=True)]
    for claim, cpus, level in zip(claims, entitled, levels, strict=True):
        if cpus < claim.cap - 1e-6:
            assert max(levels) <= level * (1 + 1e-6) + 1e-9


def test_the_smallest_setting_is_where_the_efficiency_stops_missing() -> None:
    points = [(0.25, 0.8), (0.5, 0.96), (0.75, 0.85), (1.0, 0.95)]
    assert smallest_setting(points, 0.9) == pytest.approx(0.875)  # half-way: .75 misses, and what is below it is no use
    assert smallest_setting(points, 0.7) == 0.25
    assert smallest_setting(points, 0.99) is None
    assert smallest_setting([], 0.5) is None
