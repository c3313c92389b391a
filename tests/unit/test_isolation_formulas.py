"""Entitlement, efficiency and the smallest setting: known cases, and what holds for any."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virtgauge.analysis.isolation.efficiency import efficiency
from virtgauge.analysis.isolation.entitlement import Claim, entitled_cpus
from virtgauge.analysis.isolation.smallest_setting import smallest_setting


def test_equal_weights_share_equally_and_a_small_demand_leaves_the_rest() -> None:
    assert entitled_cpus([Claim(2), Claim(2)], 2) == pytest.approx([1, 1])
    assert entitled_cpus([Claim(0.2), Claim(2)], 2) == pytest.approx([0.2, 1.8])


def test_a_limit_is_not_a_reservation() -> None:
    # The case seen in METHODS: a limit of 75 % beside a neighbour of equal weight gives half, not three quarters …
    assert entitled_cpus([Claim(1, limit=0.75), Claim(1)], 1) == pytest.approx([0.5, 0.5])
    # … which the matching weight does.
    assert entitled_cpus([Claim(1, limit=0.75, weight=3), Claim(1)], 1) == pytest.approx([0.75, 0.25])


def test_a_reservation_holds_against_any_weight_and_is_lent_while_it_is_not_wanted() -> None:
    assert entitled_cpus([Claim(1, reservation=0.75), Claim(1, weight=100)], 1) == pytest.approx([0.75, 0.25])
    assert entitled_cpus([Claim(0, reservation=0.75), Claim(1)], 1) == pytest.approx([0, 1])


def test_promises_beyond_what_there_is_are_cut_in_proportion() -> None:
    assert entitled_cpus([Claim(2, reservation=2), Claim(1, reservation=1)], 2) == pytest.approx([4 / 3, 2 / 3])


_claims = st.lists(
    st.builds(
        Claim,
        demand=st.floats(0, 8),
        limit=st.none() | st.floats(0, 8),
        reservation=st.floats(0, 4),
        weight=st.floats(0.01, 100),
    ),
    min_size=1,
    max_size=6,
)


@given(_claims, st.floats(0.1, 16))
def test_nothing_is_wasted_and_nobody_is_above_its_cap_or_below_its_promise(
    claims: list[Claim], capacity: float
) -> None:
    entitled = entitled_cpus(claims, capacity)
    assert sum(entitled) == pytest.approx(min(capacity, sum(claim.cap for claim in claims)), abs=1e-6)
    for claim, cpus in zip(claims, entitled, strict=True):
        assert cpus <= claim.cap + 1e-9
    if sum(claim.floor for claim in claims) <= capacity:
        for claim, cpus in zip(claims, entitled, strict=True):
            assert cpus >= claim.floor - 1e-9


@given(_claims, st.floats(0.1, 16))
def test_who_is_short_stands_as_high_by_weight_as_anybody_above_its_promise(
    claims: list[Claim], capacity: float
) -> None:
    entitled = entitled_cpus(claims, capacity)
    levels = [cpus / claim.weight for claim, cpus in zip(claims, entitled, strict=True)]
    for claim, cpus, level in zip(claims, entitled, levels, strict=True):
        if cpus < claim.cap - 1e-6:
            for other, its_cpus, its_level in zip(claims, entitled, levels, strict=True):
                assert its_level <= level * (1 + 1e-6) + 1e-9 or its_cpus <= other.floor + 1e-6


def test_the_papers_equation_and_its_two_parts() -> None:
    # Half of a core, and each of its seconds does nine tenths of the work.
    found = efficiency(rate=45, reference_rate=100, share=0.5, received_cpus=0.5, entitled_cpus=0.5, reference_cpus=1.0)
    assert (found.relative, found.q) == pytest.approx((0.45, 0.9))
    assert (found.q_share, found.q_rate) == pytest.approx((1.0, 0.9))


def test_a_slow_clock_shows_in_the_rate_and_a_thief_in_the_share() -> None:
    # The paper's AMD case: the share is kept, and a second of CPU time is worth a quarter.
    slow = efficiency(rate=12.5, reference_rate=100, share=0.5, received_cpus=0.5, entitled_cpus=0.5, reference_cpus=1)
    assert (slow.q, slow.q_share, slow.q_rate) == pytest.approx((0.25, 1, 0.25))
    robbed = efficiency(rate=25, reference_rate=100, share=0.5, received_cpus=0.25, entitled_cpus=0.5, reference_cpus=1)
    assert (robbed.q, robbed.q_share, robbed.q_rate) == pytest.approx((0.5, 0.5, 1))


def test_what_is_not_known_stays_unknown() -> None:
    found = efficiency(rate=50, reference_rate=100, share=None, received_cpus=None, entitled_cpus=0.5, reference_cpus=1)
    assert (found.relative, found.q, found.q_share, found.q_rate) == (0.5, None, None, None)
    with pytest.raises(ValueError, match="reference"):
        efficiency(rate=1, reference_rate=0, share=1, received_cpus=1, entitled_cpus=1, reference_cpus=1)


def test_the_smallest_setting_is_where_the_efficiency_stops_missing() -> None:
    points = [(0.25, 0.8), (0.5, 0.96), (0.75, 0.85), (1.0, 0.95)]
    assert smallest_setting(points, 0.9) == pytest.approx(0.875)  # half-way: .75 misses, and what is below it is no use
    assert smallest_setting(points, 0.7) == 0.25
    assert smallest_setting(points, 0.99) is None
    assert smallest_setting([], 0.5) is None
