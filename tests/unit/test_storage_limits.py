"""What limits a rate: resources that are busy nearly all the time, or the round trip of a single client."""

from __future__ import annotations

import pytest

from virtgauge.analysis.resources import (
    Limit,
    Load,
    durability_share,
    explain,
    flush_limit_per_s,
    round_trip_parts,
    spread,
)


def test_a_7200_rpm_disk_completes_120_flushes_a_second_and_an_ssd_of_100_us_ten_thousand() -> None:
    assert flush_limit_per_s("rotational:7200", 2000.0) == 120
    assert flush_limit_per_s("rotational-seek:7200:8500", 2000.0) == pytest.approx(
        1 / (8.5e-3 + 30 / 7200)
    )  # 79 a second
    assert flush_limit_per_s("latency:100", 2000.0) == 10_000
    assert flush_limit_per_s("as-is", 2000.0) == 2000
    assert flush_limit_per_s("at-once", 2000.0) is None
    assert flush_limit_per_s("as-configured", None) is None


def test_one_flush_for_each_write_at_the_disks_pace_is_flush_bound() -> None:
    found = explain(Load(119.0, flushes_per_operation=1.0, flush_limit_per_s=120.0, service_ns=8.4e6))
    assert found.limit is Limit.FLUSHES
    assert found.shares["flushes"] == pytest.approx(119 / 120)
    assert found.operations_per_flush == 1


def test_a_group_commit_is_flush_bound_although_there_are_more_writes_than_flushes() -> None:
    found = explain(Load(930.0, clients=16, flushes_per_operation=120 / 930, flush_limit_per_s=120.0))
    assert found.limit is Limit.FLUSHES
    assert found.operations_per_flush == pytest.approx(7.75)


def test_what_nobody_acknowledges_is_a_rate_of_sending_whatever_else_is_busy() -> None:
    assert explain(Load(34_000.0, acknowledged=False, client_limit_per_s=35_000)).limit is Limit.SENDING


@pytest.mark.parametrize(("limit_per_s", "wanted"), [(18_000, Limit.CLIENT), (50_000, Limit.SERVER_CPU)])
def test_the_client_is_blamed_within_half_of_its_own_limit(limit_per_s: float, wanted: Limit) -> None:
    load = Load(16_000.0, clients=16, client_limit_per_s=limit_per_s, server_cpu_ns=120_000, server_cpus=2)
    assert explain(load).limit is wanted


def test_a_single_client_that_keeps_no_resource_busy_is_limited_by_its_round_trip() -> None:
    load = Load(5000.0, server_cpu_ns=60_000, client_cpu_ns=20_000, server_cpus=2, service_ns=195_000)
    assert explain(load).limit is Limit.ROUND_TRIP
    parts = round_trip_parts(load)
    assert parts["server CPU"] == pytest.approx(60 / 195)
    assert sum(parts.values()) == pytest.approx(1)


def test_many_clients_with_idle_resources_are_not_explained_away() -> None:
    load = Load(5000.0, clients=16, server_cpu_ns=60_000, server_cpus=2, service_ns=3_200_000)
    assert explain(load).limit is Limit.NONE_FOUND


def test_durability_takes_all_of_a_ranking_away_half_of_it_or_nothing() -> None:
    assert durability_share(100.0, 1.0) == 1
    assert durability_share(100.0, 10.0) == pytest.approx(0.5)
    assert durability_share(100.0, 200.0) == 0
    assert durability_share(1.0, 1.0) is None


def test_a_spread_is_of_the_largest_over_the_smallest() -> None:
    assert spread([120.0, 34_000.0, 3200.0]) == pytest.approx(283.3, rel=0.001)
