"""What is true of a shaped path: by hand, as its shaper and as IP packets count."""

from __future__ import annotations

import pytest

from virtgauge.analysis.packets import SHAPER_BYTES, available_bps, error_ratio, ip_bps, occupied_bps
from virtgauge.network.links import LinkCount
from virtgauge.network.shaper import Bucket
from virtgauge.suites.bandwidth import laboratory
from virtgauge.suites.bandwidth.laboratory import ShapedPath, emulation, impairments, queue_bytes, told_by_emulator
from virtgauge.suites.bandwidth.settings import BandwidthSettings
from virtgauge.suites.bandwidth.testbed import Conditions, Counted, Placement


def conditions(**changes) -> Conditions:
    known = {"capacity_bps": 1e9, "shaper": "tbf", "burst_us": 100.0, "queue_ms": 10.0, "cross_bps": 0.0}
    return Conditions(**known | {"traffic": "none", "delay_ms": 0.0, "loss": 0.0} | changes)


@pytest.mark.parametrize(
    ("capacity", "cross", "packet", "left"),
    [
        (300e6, 0, 1500, 300e6 * 1500 / 1514),
        (300e6, 150e6, 1500, 150e6 * 1500 / 1514),
        (1e9, 0, 1500, 990_752_972.3),  # what docs/bandwidth.md says of 1 Gbit/s
        (1e9, 500e6, 86, 500e6 * 0.86),
        (1e9, 1.2e9, 1500, -0.2e9 * 1500 / 1514),
    ],
)
def test_what_is_left_is_the_capacity_less_the_counted_cross_traffic_as_ip_packets(capacity, cross, packet, left):
    assert available_bps(capacity, cross, packet) == pytest.approx(left, abs=1)


def test_the_layers_are_each_others_inverse():
    for packet in (64, 576, 1500):
        assert occupied_bps(ip_bps(1e8, packet), packet, SHAPER_BYTES) == pytest.approx(1e8)


def test_an_error_is_signed_and_none_of_nothing():
    assert error_ratio(110e6, 100e6) == pytest.approx(0.1)
    assert error_ratio(90e6, 100e6) == pytest.approx(-0.1)
    assert error_ratio(1e6, 0.0) is None
    assert error_ratio(1e6, -1.0) is None


def test_counted_bytes_are_a_rate_of_their_span():
    assert Counted(1_250_000, 826, 0, 10**9).cross_bps == pytest.approx(10e6)
    assert Counted(0, 0, 0, 0).cross_bps == 0.0


def test_a_bucket_has_two_frames_and_its_queue_64_at_least():
    small, large = Bucket.of("tbf", 1e6, 100, 10), Bucket.of("htb", 1e9, 100, 10)
    assert (small.burst_bytes, small.limit_bytes) == (2 * 1514, 64 * 1514)
    assert (large.burst_bytes, large.limit_bytes) == (12_500, 1_250_000)
    usual = BandwidthSettings().burst_us
    assert [Bucket.of("tbf", rate, usual, 10).burst_bytes for rate in (1e6, 1e9, 1e10)] == [2 * 1514, 6050, 60_500]


def test_half_of_a_delay_is_added_each_way_and_frames_are_lost_on_the_way_there_only():
    asked = conditions(delay_ms=20, loss=0.01)
    there, back = impairments(asked)
    assert (there.delay_us, there.loss, back.delay_us, back.loss) == (10_000, 0.01, 10_000, 0.0)
    told = emulation(asked)
    assert (told["delay_ns"], told["loss"], told["both"], told["rate_bps"]) == (10_000_000, 0.01, True, None)
    under_way = 1e9 / 8 * 10e-3
    assert queue_bytes(asked) > 2 * under_way
    assert there.limit_frames * 64 >= queue_bytes(asked) - 64


def test_a_link_tells_how_late_it_was_and_what_it_lost_itself_on_both_ways():
    way = {"missed": 1, "dropped_queue": 2, "dropped_offloaded": 3, "refused": 4, "dropped_loss": 100, "abandoned": 50}
    assert told_by_emulator({**way, "back": way, "lateness": {"p50_ns": 800, "p99_ns": 9000}}) == (9000, 20)
    assert told_by_emulator({**way, "back": None, "lateness": None}) == (None, 10)


@pytest.mark.parametrize(
    ("cpus", "sender", "router", "others", "crowded"),
    [
        ([0], None, None, None, True),
        ([2, 5], (2,), 5, 5, True),
        ([0, 1, 2], (0,), 2, 1, False),
        ([0, 1, 2, 3], (0, 1), 3, 2, False),
    ],
)
def test_the_sender_has_processors_of_its_own_where_there_are_any(cpus, sender, router, others, crowded):
    where = Placement.of(cpus)
    assert (where.sender, where.router, where.others, where.crowded) == (sender, router, others, crowded)


async def test_what_the_link_loses_of_a_flood_is_not_told_of_the_estimate(monkeypatch):
    class Link:
        kind, at_work, lost = "emulator", False, 0

        async def begin(self, asked):
            self.at_work, self.lost = True, 0

        async def end(self):
            self.at_work = False
            return 9000, self.lost

        def floods(self):
            self.lost += 100 * self.at_work

    class Counters:
        def read(self, interface):
            return LinkCount(0, 0, 0, 0, 0, 0)

    monkeypatch.setattr(laboratory, "shape", lambda *_: None)
    monkeypatch.setattr(laboratory, "dropped_frames", lambda *_: 0)
    link = Link()
    path = ShapedPath(None, Counters(), link, None, crowded=False)
    for lost in (3, 0):
        await path.set(conditions(delay_ms=20))
        link.floods()
        async with path.counting():
            assert link.at_work
            link.lost += lost
        link.floods()
        assert (await path.rest()).overrun == lost
