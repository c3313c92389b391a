"""Every search finds the truth of a simulated device, and rare stalls are the ruin of the plain one alone."""

from __future__ import annotations

import asyncio
import dataclasses
import threading

import pytest
from forwarding_offers import simulated_offer

from virtgauge.analysis.packets import equal_shares, two_level_shares
from virtgauge.platforms.simulated.forwarding import ForwardingDevice, ForwardingTruth
from virtgauge.suites.forwarding.at_throughput import back_to_back
from virtgauge.suites.forwarding.laboratory import TesterCalibration
from virtgauge.suites.forwarding.mlrsearch import MlrSearch
from virtgauge.suites.forwarding.searches import (
    PARTIAL_DROP,
    Limits,
    LossPoint,
    Rfc2544Search,
    Search,
    SearchResult,
    Throughput,
    Tst009Search,
    _carries,
    find_worst,
)
from virtgauge.suites.forwarding.suite import _limits_met
from virtgauge.suites.forwarding.trial import FlowResult, TrialResult

SEARCHES: list[Search] = [Rfc2544Search(), Tst009Search(), MlrSearch()]
LIMITS = Limits(min_pps=1000, max_pps=2e6)
EQUAL = equal_shares(12)
STALLS = {"frame_ns": 1e9 / 430e3, "stalls_per_s": 0.2, "stall_ms": 5.0, "queue_frames": 1024}

by_name = pytest.mark.parametrize("search", SEARCHES, ids=lambda search: search.name)


def load(shares=EQUAL, frame_bytes=64, seed=1, **truth):
    return simulated_offer(ForwardingDevice(ForwardingTruth(**truth), seed), shares, frame_bytes)


@by_name
@pytest.mark.parametrize("capacity", [12_345.0, 430e3, 1.9e6])
async def test_a_hard_limit_is_found_to_the_resolution(search, capacity):
    result = await search.run(load(frame_ns=1e9 / capacity, queue_frames=0), LIMITS)
    assert result.ndr.lower_pps <= capacity <= result.ndr.upper_pps
    assert result.ndr.rate_pps == pytest.approx(capacity, rel=0.011)
    assert result.maximum_receive_pps == pytest.approx(capacity, rel=0.001)


@by_name
async def test_a_loss_slope_separates_ndr_from_pdr(search):
    truth = ForwardingTruth(frame_ns=2000, knee=0.6, slope=0.05, queue_frames=0)  # 0.5 % of loss at 1.1 × the knee
    result = await search.run(simulated_offer(ForwardingDevice(truth, 3), EQUAL, 64), LIMITS)
    assert result.ndr.rate_pps == pytest.approx(truth.throughput_pps(EQUAL, 64), rel=0.012)
    assert result.pdr.lower_pps == pytest.approx(truth.throughput_pps(EQUAL, 64, PARTIAL_DROP), rel=0.03)
    assert result.pdr.lower_pps == pytest.approx(1.1 * result.ndr.lower_pps, rel=0.04)
    # What is allowed to be lost is not forwarded.
    at_bound = next(point for point in result.points if point.rate_pps == pytest.approx(result.pdr.lower_pps))
    lost = min(at_bound.worst_loss_ratio, PARTIAL_DROP)
    assert lost > 0.003
    assert result.pdr.rate_pps == pytest.approx(result.pdr.lower_pps * (1 - lost), rel=1e-4)
    assert result.maximum_receive_pps == pytest.approx(500e3, rel=0.01)


@by_name
async def test_loss_is_judged_by_the_guest_that_loses_most(search):
    truth = ForwardingTruth(frame_ns=500, guest_frame_ns=10_000, queue_frames=0)  # 2 Mpps in all, 100 kpps a guest
    for strong in (1, 3, 12):
        shares = two_level_shares(12, strong, 0.01)
        result = await search.run(simulated_offer(ForwardingDevice(truth, 1), shares, 64), LIMITS)
        assert result.ndr.rate_pps == pytest.approx(100e3 / max(shares), rel=0.011)


@by_name
async def test_a_device_faster_than_the_tester_is_bounded_below_only(search):
    result = await search.run(load(frame_ns=100), LIMITS)
    assert result.ndr.lower_pps == pytest.approx(LIMITS.max_pps, rel=1e-6)
    assert result.ndr.upper_pps is None
    assert result.pdr.upper_pps is None


@by_name
async def test_a_device_that_forwards_nothing_has_no_throughput_and_a_reason(search):
    result = await search.run(load(frame_ns=1e8, queue_frames=0), LIMITS)
    assert result.ndr.rate_pps is None
    assert result.ndr.upper_pps == pytest.approx(1000)
    assert "down to 1000" in result.ndr.reason or "at 1000" in result.ndr.reason


@by_name
async def test_a_stretched_trial_has_failed_though_nothing_was_lost(search):
    result = await search.run(load(frame_ns=2000, stretches=True), LIMITS)
    assert all(point.loss_ratio == 0 for point in result.points)
    assert result.stretched > 0
    # What sends at most 500 kpps is called stretched from a hundredth above it.
    assert result.ndr.rate_pps == pytest.approx(500e3, rel=0.02)


@pytest.mark.parametrize("seed", range(5))
async def test_rare_stalls_ruin_the_plain_bisection(seed):
    result = await Rfc2544Search().run(load(seed=seed, **STALLS), LIMITS)
    assert 20e3 < result.ndr.rate_pps < 150e3


@pytest.mark.parametrize("seed", range(5))
async def test_rare_stalls_do_not_deceive_mlrsearch(seed):
    result = await MlrSearch().run(load(seed=seed, **STALLS), LIMITS)
    assert result.ndr.rate_pps == pytest.approx(430e3, rel=0.015)


@pytest.mark.slow
async def test_loss_that_does_not_come_again_is_not_believed():
    plain = [await Rfc2544Search(trial_s=3).run(load(seed=seed, **STALLS), LIMITS) for seed in range(20)]
    verified = [await Tst009Search(trial_s=3).run(load(seed=seed, **STALLS), LIMITS) for seed in range(20)]
    right = [sum(r.ndr.rate_pps > 0.98 * 430e3 for r in results) for results in (plain, verified)]
    assert right[0] < 10
    assert right[1] > 15


async def test_what_has_passed_without_loss_has_passed_with_some():
    """Though the load loses more in every later trial."""
    carries, loses = load(frame_ns=100, queue_frames=0), load(frame_ns=1e7, queue_frames=0)
    passed = []

    async def offer(rate_pps, seconds):
        first = rate_pps == LIMITS.min_pps and not passed
        passed.extend([True] if first else [])
        return await (carries if first else loses)(rate_pps, seconds)

    result = await Tst009Search(trial_s=1).run(offer, LIMITS)
    assert (result.ndr.lower_pps, result.pdr.lower_pps) == (LIMITS.min_pps, LIMITS.min_pps)


@by_name
async def test_the_same_seed_gives_the_same_search(search):
    one, other = [await search.run(load(seed=7, **STALLS), LIMITS) for _ in range(2)]
    assert one == other


@by_name
async def test_no_search_takes_longer_than_it_says(search):
    for seed in range(4):
        result = await search.run(load(seed=seed, **STALLS), LIMITS)
        assert result.measuring_s <= search.longest_s(LIMITS)


async def test_a_search_beyond_its_budget_finds_nothing_by_name_and_keeps_its_trials():
    result = await MlrSearch(budget_s=5).run(load(), LIMITS)
    assert result.failure == result.ndr.reason == "the search did not end within 5 s of offered load"
    assert (result.ndr.rate_pps, result.pdr.rate_pps, result.measuring_s) == (None, None, 5.0)
    assert (await MlrSearch(budget_s=0.5).run(load(), LIMITS)).maximum_receive_pps is None


async def test_no_vector_is_the_worst_where_a_search_had_no_end():
    search = MlrSearch(budget_s=5)
    found = await find_worst({"k=1": load(), "k=2": load()}, search, LIMITS, challenge_s=1.0)
    assert found == ("k=1", await search.run(load(), LIMITS), ("k=1",))


class Hangs:
    def __init__(self):
        self.asked = asyncio.Event()
        self.cancelled = False

    async def offer(self, rate_pps, duration_s):
        self.asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise


@by_name
async def test_a_cancelled_search_ends_its_trial_and_leaves_no_thread_at_work(search):
    device = Hangs()
    task = asyncio.create_task(search.run(device.offer, LIMITS))
    await asyncio.wait_for(device.asked.wait(), 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 30)
    assert device.cancelled
    done = threading.Event()
    await asyncio.wait_for(asyncio.to_thread(done.set), 30)  # the pool's thread is free again
    assert done.is_set()


@by_name
async def test_what_a_device_raises_comes_out_of_the_search(search):
    async def dies(rate_pps, duration_s):
        raise ConnectionError("the guest is gone")

    with pytest.raises(ConnectionError, match="the guest is gone"):
        await search.run(dies, LIMITS)


def test_a_trial_passes_only_if_every_guest_and_the_sender_did():
    def trial(*flows, stretched=False):
        return TrialResult(1e5, 1.0, 1.0, tuple(FlowResult(s, n) for s, n in flows), stretched)

    assert trial((99_000, 0), (100, 0), (0, 0)).passes(0.0)
    assert not trial((99_000, 0), (600, 9)).passes(0.005)  # one guest's, though 9e-5 of all
    assert trial((99_000, 0), (600, 4)).passes(0.005)  # of which chance loses so many once in three times
    assert trial((100, 3), *[(100, 0)] * 11).passes(0.005)  # and of twelve guests one, once in six
    assert not trial((99_000, 0), (100, 1)).passes(0.0)
    assert trial((99_000, 0), (100, 1)).passes(0.005)  # one of a hundred is no evidence of more than 0.5 %
    assert not trial((99_000, 0), (100, 3)).passes(0.005)  # chance loses three of them once in 70 times
    assert not trial((99_000, 0), (2, 2)).passes(0.005)  # nor does a guest that forwards nothing go unseen
    assert trial((99_000, 0), (1000, 5)).passes(0.005)
    assert not trial((99_000, 0), stretched=True).passes(0.005)


@pytest.mark.parametrize(("lost", "carries"), [([0, 0], True), ([5, 0, 0], True), ([5, 0, 5], False), ([5, 5], False)])
async def test_a_vector_carries_a_load_that_most_trials_pass(lost, carries):
    """One that passes two trials of five would be spared its search by the better of three, in four cases of five."""
    pending = list(lost)

    async def offer(rate_pps, duration_s):
        return TrialResult(rate_pps, duration_s, duration_s, (FlowResult(1000, pending.pop(0)),))

    assert await _carries(offer, 1e5, 1.0) is carries
    assert not pending


def bursts(offer):
    return lambda frames, rate_pps: offer(rate_pps, frames / rate_pps)


async def test_the_longest_burst_is_the_queue_and_what_is_forwarded_meanwhile():
    # 1 Mpps into 400 kpps: 60 % of a burst has to wait, and 1200 frames can
    found = await back_to_back(bursts(load(frame_ns=2500, queue_frames=1200)), 1e6, 400e3, repeats=3)
    assert found.bursts == pytest.approx([2000] * 3, abs=2)
    assert found.corrected_buffer_s == pytest.approx(1200 / 1e6, rel=0.01)


async def test_a_device_as_fast_as_the_tester_has_no_longest_burst():
    found = await back_to_back(bursts(load(frame_ns=100)), 1e6, 1e6, repeats=3)
    assert found.corrected_buffer_s is None
    assert "highest rate" in found.reason


@pytest.mark.parametrize(("room", "own"), [(300, True), (3000, False)])
async def test_a_burst_that_the_tester_itself_lost_is_not_told_as_the_devices(room, own):
    """It has room for so many frames of what comes back; the device, at 400 kpps, holds 1200 back."""
    device = load(frame_ns=2500, queue_frames=1200)

    async def burst(frames, rate_pps):
        trial = await device(rate_pps, frames / rate_pps)
        missed = max(frames - trial.lost - room, 0)
        flows = (FlowResult(frames, trial.lost + missed),)
        return dataclasses.replace(trial, flows=flows, drops={"receive ring": missed})

    found = await back_to_back(burst, 1e6, 400e3, repeats=1)
    assert [found.bursts == (), found.corrected_buffer_s is None, "the tester itself lost" in found.reason] == [own] * 3


async def test_one_frame_has_no_rate():
    async def burst(frames, rate_pps):
        return TrialResult(rate_pps, 0.1, 1e-9, (FlowResult(frames, frames - 1),))

    found = await back_to_back(burst, 1e6, 400e3, repeats=2)
    assert (found.bursts, found.rate_pps) == ((1, 1), 1e6)


async def test_the_worst_vector_is_found_without_searching_all():
    truth = ForwardingTruth(frame_ns=500, guest_frame_ns=10_000, queue_frames=0)
    device = ForwardingDevice(truth, 1)
    vectors = {f"k={k}": simulated_offer(device, two_level_shares(12, k, 0.01), 64) for k in range(1, 13)}
    name, _, searched = await find_worst(vectors, MlrSearch(), LIMITS, challenge_s=1.0)
    assert (name, searched) == ("k=1", ("k=1",))
    name, _, searched = await find_worst(dict(reversed(vectors.items())), MlrSearch(), LIMITS, challenge_s=1.0)
    assert name == "k=1"
    assert len(searched) == 12


def test_what_is_lost_may_be_the_testers_up_to_the_frame_that_left_late():
    lost = 7 / 25  # 7.000000000000001 of 25 frames
    point = LossPoint(25.0, 1.0, 18.0, lost, lost, stretched=False)
    own = [(6, 0), (7, 0), (0, 6), (0, 7), (4, 3)]
    may_be = [dataclasses.replace(point, late=late, overrun=overrun).may_be_testers for late, overrun in own]
    assert may_be == [False, True, False, True, True]


async def test_losses_for_which_the_testers_own_receiving_end_had_no_room_are_said():
    """What its interface refused to send is the device's."""

    async def flags(*places):
        async def offer(rate_pps, duration_s):
            flows = (FlowResult(round(rate_pps * duration_s), 7 if rate_pps > 1e6 else 0),)
            return TrialResult(rate_pps, duration_s, duration_s, flows, drops=dict.fromkeys(places, 4))

        search = await Rfc2544Search(trial_s=1).run(offer, LIMITS)
        return list(_limits_met(search, TesterCalibration(9e6, "xdp_live"), None))

    (flag,) = await flags("receive ring", "receive socket")
    assert (flag.name, flag.fatal) == ("late-losses", False)
    assert "had no room for" in flag.detail
    assert await flags("transmit queue", "receive ring") == []


@pytest.mark.parametrize(
    ("rates", "limits"),
    [
        ((None, None, 0.1e6), ["no-throughput"]),
        ((None, None, 0.95e6), ["no-throughput", "received-limited"]),
        ((0.8e6, 0.8e6, 0.8e6), []),
        ((0.8e6, 0.8e6, 0.95e6), ["received-limited"]),
        ((0.8e6, 0.95e6, 0.95e6), ["pdr-limited"]),
        ((0.95e6, 0.95e6, 0.95e6), ["switch-limited"]),
        ((1.9e6, 1.9e6, 1.9e6), ["generator-limited"]),
    ],
)
def test_what_is_near_a_limit_beside_the_device_says_so_and_counts(rates, limits):
    ndr, pdr = (Throughput(ratio, rate, rate, None) for ratio, rate in zip((0.0, 0.005), rates, strict=False))
    search = SearchResult("mlrsearch", ndr, pdr, rates[2], ())
    found = list(_limits_met(search, TesterCalibration(2e6, "xdp_live", switch_pps=1e6), None))
    assert [(flag.name, flag.fatal) for flag in found] == [(limit, False) for limit in limits]
