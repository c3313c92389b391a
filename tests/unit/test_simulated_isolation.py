"""Two simulated guests of one machine: each gets and does what the simulation was told, and breaks as it was told."""

from __future__ import annotations

import contextlib
import errno
import math
import os

import numpy as np
import pytest

from virtgauge.agent import find_agent
from virtgauge.agent.channel import AgentError, ChannelClosedError
from virtgauge.host.policy import DiskLimits, Policy, PolicyError
from virtgauge.host.scope import Scope
from virtgauge.platforms import create
from virtgauge.platforms.base import GuestSpec
from virtgauge.suites.answers import decode_histogram

CORE = max(os.sched_getaffinity(0))
SECOND = 1_000_000_000
MEMORY = {"kernel": "memory", "access": "read", "element": "simd", "block_bytes": 2**20}
DISK = {"kernel": "disk", "order": "sequential", "operation": "write", "folder": "/", "file_bytes": 2**28}
DISK |= {"block_bytes": 65536}


@pytest.fixture
def scope(private_state, any_agent):
    with Scope() as scope:
        yield scope


@contextlib.asynccontextmanager
async def pair(scope, *, testbed="g1", faults=(), **truth):
    """The two guests of a testbed, both on one core."""
    platform = create("simulated", {"isolation": truth, "faults": faults, "seed": 3})
    guests = []
    for part in ("tested", "loading"):
        guests.append(await platform.launch(GuestSpec(name=f"{testbed}-{part}", scope=scope, agent=find_agent())))
        await guests[-1].apply(Policy(weight=100, cores=(CORE,)))
    try:
        yield guests
    finally:
        for guest in guests:
            await guest.close()


async def probed(guest, kernel="integer", *, seconds=2, warmup=1, threads=1, **params):
    asked = {"kernel": kernel, "threads": threads, "seed": 1} | params
    asked |= {"warmup_ns": warmup * SECOND, "duration_ns": seconds * SECOND, "slice_ns": SECOND // 10}
    reply = await guest.channel.request("probe", name="kernel", params=asked, load=None, timeout_s=10)
    return reply.value


async def loaded(guest, kernel="integer", *, intensity=100, **params):
    asked = {"kernel": kernel, "threads": 1, "seed": 1, "intensity_percent": intensity} | params
    return (await guest.channel.request("load_start", name="kernel", params=asked, timeout_s=10)).value["load"]


async def stopped(guest, number):
    return (await guest.channel.request("load_stop", load=number, timeout_s=10)).value


def rate(value):
    return value["units"] * SECOND / value["elapsed_ns"]


async def test_a_load_takes_half_of_a_core_from_its_neighbour_and_both_are_accounted_for(scope):
    async with pair(scope, rates={"integer": 1e6}) as (tested, loading):
        assert rate(await probed(tested)) == pytest.approx(1e6)
        number = await loaded(loading)
        before = [guest.accounting().cpu_ns for guest in (tested, loading)]
        value = await probed(tested, seconds=2, warmup=1)
        after = [guest.accounting().cpu_ns for guest in (tested, loading)]
        assert rate(value) == pytest.approx(5e5)
        assert [now - then for now, then in zip(after, before, strict=True)] == pytest.approx([1.5 * SECOND] * 2)
        done = await stopped(loading, number)
        assert (done["elapsed_ns"], done["cpu_ns"], done["units"]) == (3 * SECOND, 1.5 * SECOND, 1_500_000)
        assert rate(await probed(tested)) == pytest.approx(1e6)


async def test_guests_of_other_testbeds_do_not_know_each_other(scope):
    async with pair(scope, testbed="g1") as (tested, _), pair(scope, testbed="g2") as (_, loading):
        alone = rate(await probed(tested))
        await loaded(loading)
        assert rate(await probed(tested)) == alone


async def test_slices_and_threads_add_up_to_the_work_and_the_time(scope):
    async with pair(scope, slice_sigma=0.3, rates={"floating": 423.7}) as (tested, _):
        value = await probed(tested, "floating", threads=3)
    assert value["unit"] == "whetstone cycles"
    assert value["units"] == sum(thread["units"] for thread in value["threads"])
    for thread in value["threads"]:
        assert thread["units"] == sum(thread["slice_units"])
        assert thread["elapsed_ns"] == sum(thread["slice_ns"]) == 2 * SECOND
    assert len({tuple(thread["slice_units"]) for thread in value["threads"]}) > 1


async def test_noise_has_the_mean_that_it_was_told(scope):
    async with pair(scope, slice_sigma=0.5, rates={"integer": 1e6}) as (tested, _):
        value = await probed(tested, seconds=400)
    slices = np.array(value["threads"][0]["slice_units"]) / 1e5
    assert slices.mean() == pytest.approx(1.0, abs=4 * 0.53 / math.sqrt(len(slices)))
    assert np.log(slices).std() == pytest.approx(0.5, rel=0.1)


async def test_a_limit_throttles_in_every_period_and_says_for_how_long(scope):
    async with pair(scope) as (tested, loading):
        assert tested.throttling() is None
        applied = await tested.apply(Policy(weight=100, cores=(CORE,), cpu_limit=0.3))
        assert applied.in_force["cpu_limit"] == "0.3"
        assert applied.no_effect == ()
        await probed(tested, seconds=2, warmup=1)
        once = tested.throttling()
        assert (once.periods, once.throttled) == (30, 30)
        assert once.throttled_ns == pytest.approx(0.7 * 3 * SECOND)
        await tested.apply(Policy(weight=100, cores=(CORE,), cpu_limit=0.75))
        number = await loaded(loading)
        await probed(tested, seconds=2, warmup=1)
        span = tested.throttling().since(once)
        assert (span.periods, span.throttled, span.throttled_ns) == (30, 0, 0)  # the neighbour stops it, not the limit
        await stopped(loading, number)
        assert loading.throttling() is None


async def test_an_overshooting_limit_lets_through_what_it_was_told(scope):
    """The paper's figure 2: a limit of 5 % that gives 8 %."""
    async with pair(scope, limit_overshoot=1.6) as (tested, _):
        await tested.apply(Policy(cpu_limit=0.05, cores=(CORE,)))
        value = await probed(tested)
    assert value["cpu_ns"] / value["elapsed_ns"] == pytest.approx(0.08)


async def test_an_ignored_limit_is_read_back_and_does_nothing(scope):
    async with pair(scope, cpu_limit="ignored") as (tested, _):
        applied = await tested.apply(Policy(cpu_limit=0.3))
        assert applied.in_force["cpu_limit"] == "0.3"
        assert applied.no_effect == ()
        value = await probed(tested)
        assert value["cpu_ns"] == value["elapsed_ns"]
        assert tested.throttling().throttled == 0


async def test_an_absent_knob_is_named_and_a_refused_one_is_an_error(scope):
    async with pair(scope, reservation="absent", disk_limit="refused") as (tested, _):
        applied = await tested.apply(Policy(reservation=0.5, weight=100))
        assert applied.no_effect == ("reservation: the simulation has no such setting",)
        assert applied.in_force == {"weight": "100"}
        with pytest.raises(PolicyError, match="told to refuse"):
            await tested.apply(Policy(disk=DiskLimits(read_bps=1)))


@pytest.mark.parametrize(
    ("told", "policy", "expected"),
    [
        ({}, {"reservation": 0.75}, 0.75),
        ({"reservation": "ignored"}, {"reservation": 0.75}, 0.5),
        ({"reservation": "ignored"}, {"reservation": 0.75, "weight": 300}, 0.75),
        ({"reservation": "ignored", "weight": "ignored"}, {"reservation": 0.75, "weight": 300}, 0.5),
    ],
)
async def test_reservation_and_weight_hold_as_far_as_they_are_honoured(scope, told, policy, expected):
    async with pair(scope, **told) as (tested, loading):
        await tested.apply(Policy(**policy, cores=(CORE,)))
        await loaded(loading)
        value = await probed(tested)
    assert value["cpu_ns"] / value["elapsed_ns"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("sees", "cpus", "steal_ns"), [("steal", 0.25, 1.5), ("nothing", 0.25, None), ("itself", 1, 0)]
)
async def test_a_guest_sees_of_its_limit_what_the_simulation_lets_it(scope, sees, cpus, steal_ns):
    async with pair(scope, guest_sees=sees) as (tested, _):
        await tested.apply(Policy(cpu_limit=0.25))
        value = await probed(tested, seconds=2)
        assert value["cpu_ns"] / value["elapsed_ns"] == pytest.approx(cpus)
        assert value["usage"]["steal_ns"] == (None if steal_ns is None else steal_ns * SECOND)


async def test_wake_ups_are_late_by_what_was_told_and_later_beside_a_neighbour(scope):
    async with pair(scope, wake_us=40.0, wake_inflation=4.0, wake_cpu_us=10.0) as (tested, loading):
        calm = await probed(tested, "wake", period_ns=1_000_000)
        await loaded(loading)
        crowded = await probed(tested, "wake", period_ns=1_000_000)
    assert (calm["units"], crowded["units"]) == (2000, 2000)
    assert median_us(calm) == pytest.approx(40, rel=0.03)
    assert median_us(crowded) == pytest.approx(40 * (1 + 4 * 0.99), rel=0.03)  # of a core that waking up uses 1 % of


def median_us(value):
    return decode_histogram(value["latency"]).quantile(0.5) / 1e6


async def test_a_slower_testbed_wakes_up_as_often_and_later(scope):
    told = {"wake_us": 40.0, "testbed_sigma": 0.5, "rates": {"integer": 1e6}}
    async with pair(scope, **told) as (tested, _):
        factor = rate(await probed(tested)) / 1e6
        value = await probed(tested, "wake", period_ns=1_000_000)
    assert abs(factor - 1) > 0.02
    assert value["units"] == 2000
    assert median_us(value) == pytest.approx(40 / factor, rel=0.03)


async def test_a_disks_operations_take_the_time_that_its_rate_leaves_them(scope):
    async with pair(scope, rates={"disk": 65536 * 1000.0}) as (tested, loading):
        alone = await probed(tested, **DISK)
        number = await loaded(loading, **DISK)
        beside = await probed(tested, **DISK)
        assert (await stopped(loading, number))["unit"] == "bytes"
    assert alone["direct"] is True
    assert (alone["units"], beside["units"]) == (65536 * 2000, 65536 * 1000)
    latencies = [decode_histogram(value["latency"]) for value in (alone, beside)]
    assert [one.n for one in latencies] == [2000, 1000]
    assert [one.mean / 1e9 for one in latencies] == pytest.approx([1.0, 2.0], rel=0.15)  # ms


async def test_a_frequency_that_changes_is_told_and_felt(scope):
    async with pair(scope, frequency_drift=0.8, frequency_hz=2e9, rates={"integer": 1e6}) as (tested, _):
        value = await probed(tested)
    assert (value["frequency_before_hz"], value["frequency_after_hz"]) == pytest.approx((2e9, 1.6e9))
    assert rate(value) == pytest.approx(0.9e6)


async def test_the_same_seed_gives_the_same_figures(scope):
    noisy = {"testbed_sigma": 0.2, "slice_sigma": 0.1, "share_sigma": 0.05}
    figures = []
    for testbed in ("g1", "g2"):
        async with pair(scope, testbed=testbed, **noisy) as (tested, loading):
            await loaded(loading, **MEMORY)
            figures.append((await probed(tested))["units"])
    assert figures[0] == figures[1]


@pytest.mark.parametrize(
    "wrong",
    [
        {"kernel": "dhrystone"},
        {"kernel": "memory"},
        {"threads": None},
        {"threads": -1},
        {"kernel": "disk"} | {key: value for key, value in DISK.items() if key not in ("kernel", "folder")},
        {"kernel": "wake"},
    ],
)
async def test_what_the_real_agent_would_refuse_is_refused(scope, wrong):
    async with pair(scope) as (tested, loading):
        with pytest.raises(AgentError) as failure:
            await probed(tested, **wrong)
        assert failure.value.code == "bad-request"
        with pytest.raises(AgentError, match="bad-request"):
            await loaded(loading, **wrong)
        with pytest.raises(AgentError, match="not-found"):
            await stopped(loading, 1)


# -- faults ----------------------------------------------------------------------------------------------------------


def fault(kind, **of):
    return [{"kind": kind} | of]


async def test_a_loader_that_dies_half_way_says_so_and_leaves_its_share_to_the_other(scope):
    async with pair(scope, faults=fault("loader-dies"), rates={"integer": 1e6}) as (tested, loading):
        number = await loaded(loading)
        value = await probed(tested, seconds=2, warmup=0)
        done = await stopped(loading, number)
    assert rate(value) == pytest.approx(0.75e6)  # which looks better than a whole trial beside the load would
    assert done["error"]
    assert (done["elapsed_ns"], done["units"]) == (SECOND, 500_000)


async def test_an_idle_loader_does_nothing_without_a_word(scope):
    async with pair(scope, faults=fault("loader-idle")) as (tested, loading):
        number = await loaded(loading)
        await probed(tested)
        done = await stopped(loading, number)
    assert (done["units"], done["cpu_ns"], done["error"]) == (0, 0, None)


async def test_a_lost_loader_is_lost_with_its_guest(scope):
    async with pair(scope, faults=fault("loader-lost", function="integer")) as (tested, loading):
        number = await loaded(loading)
        await probed(tested)
        with pytest.raises(ChannelClosedError):
            await stopped(loading, number)
        assert loading.channel.closed
        assert not tested.channel.closed


@pytest.mark.parametrize("of_the_load", [False, True])
async def test_what_is_killed_for_want_of_memory_is_counted_where_it_was_killed(scope, of_the_load):
    kernel = "memory-read-simd" if of_the_load else "integer"
    async with pair(scope, faults=fault("out-of-memory", function=kernel)) as (tested, loading):
        assert (tested.out_of_memory_kills(), loading.out_of_memory_kills()) == (0, 0)
        number = await loaded(loading, **MEMORY)
        await probed(tested)
        assert (await stopped(loading, number))["error"] is None
        assert (tested.out_of_memory_kills(), loading.out_of_memory_kills()) == ((0, 1) if of_the_load else (1, 0))


async def test_an_agent_that_is_killed_is_lost_and_the_kill_is_counted(scope):
    async with pair(scope, faults=fault("killed", function="integer")) as (tested, _):
        with pytest.raises(ChannelClosedError):
            await probed(tested)
        assert tested.out_of_memory_kills() == 1


@pytest.mark.parametrize(
    ("kind", "code", "number"), [("wrong-result", "wrong-result", None), ("disk-full", "os", errno.ENOSPC)]
)
async def test_work_that_cannot_be_done_is_an_error_of_that_kernel_alone(scope, kind, code, number):
    async with pair(scope, faults=fault(kind, function="disk-sequential-write")) as (tested, _):
        with pytest.raises(AgentError) as failure:
            await probed(tested, **DISK)
        assert (failure.value.code, failure.value.errno) == (code, number)
        assert (await probed(tested))["units"] > 0


async def test_a_trial_takes_no_time_of_its_own(scope):
    """The clocks, which tell a late answer, are the real ones."""
    async with pair(scope) as (tested, _):
        value = await probed(tested, seconds=600)
    passed = value["clocks_end"]["monotonic_ns"] - value["clocks_start"]["monotonic_ns"]
    assert value["elapsed_ns"] == 600 * SECOND
    assert 0 <= passed < value["elapsed_ns"] / 10


async def test_nothing_is_accounted_for_where_no_kernel_works(scope):
    """The timing suite's guests invent samples; CPU time of nothing would be judged as foreign load."""
    platform = create("simulated", {})
    guest = await platform.launch(GuestSpec(name="g1", scope=scope, agent=find_agent()))
    try:
        assert guest.accounting().cpu_ns is None
        assert guest.out_of_memory_kills() is None
    finally:
        await guest.close()
