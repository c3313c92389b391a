"""What makes an isolation trial invalid, and what is only said with it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from virtgauge.host.cgroup_policy import Throttling
from virtgauge.host.policy import Applied, Policy
from virtgauge.ledger.records import Flag
from virtgauge.suites.isolation.benchmarks import KINDS
from virtgauge.suites.isolation.kernel_work import Answer, LoadResult
from virtgauge.suites.isolation.outcome import GuestConditions, Trial
from virtgauge.suites.isolation.outside import GuestCounts, Outside
from virtgauge.suites.isolation.policies import Given, Placement
from virtgauge.suites.isolation.testbed import TestbedSpec

SECOND = 10**9
MIB = 2**20


@dataclasses.dataclass(frozen=True)
class Steal:
    """Of five seconds of one thread: stolen and missed by the guest's own account, and received from outside."""

    seen_ns: int | None = 0
    missed_ns: int = 0
    stopped_ns: int | None = 0


QUIET = Steal()
NONE_STOPPED, OFTEN_STOPPED = Throttling(50, 0, 0), Throttling(50, 49, 2 * SECOND)


def load(name: str, units: int | None, error: str | None) -> LoadResult:
    return LoadResult(name, "operations", units, None, None, error)


def guest(
    name="tested", *, policy: Policy | None = None, no_effect=(), throttling=NONE_STOPPED, kills=0, **changes: Any
) -> GuestConditions:
    applied = Applied(policy or Policy(weight=100), {}, tuple(no_effect))
    known = {"received_cpus": 1.0, "entitled_cpus": 1.0, "unlimited_cpus": 1.0} | changes
    return GuestConditions(name=name, applied=applied, counts=GuestCounts(throttling, kills), **known)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Seen(Trial):
    """A trial whose guests' conditions are given, and not worked out."""

    conditions: tuple[GuestConditions, GuestConditions]
    guests = property(lambda self: self.conditions)


PAIR = (guest(), guest("loading"))


def found_flags(
    *,
    guests=PAIR,
    asked=(),
    load=None,
    steal=QUIET,
    frequencies_hz=(3e9, 3e9),
    buffered=False,
    benchmark="integer",
    block_bytes=None,
    **blocks: Any,
) -> list[Flag]:
    before, after = frequencies_hz
    answer = Answer(
        unit="operations",
        units=10**6,
        elapsed_ns=5 * SECOND,
        cpu_ns=5 * SECOND,
        missed_ns=steal.missed_ns,
        threads=1,
        slices=(),
        direct=not buffered,
        latency=None,
        frequency_before_hz=before,
        frequency_after_hz=after,
        steal_ns=steal.seen_ns,
    )
    policy, counts = Policy(weight=100), GuestCounts(NONE_STOPPED, 0)
    trial = Seen(
        params={},
        spec=TestbedSpec("1", Placement((0,), (0,)), memory_mib=256, disk_mib=None),
        benchmark=KINDS[benchmark],
        load=None,
        block_bytes=block_bytes,
        seed=1,
        slice_ns=SECOND,
        disk=None,
        method="cgroup",
        policies=Given(policy, policy, asked),
        applied=(Applied(policy, {}, ()), Applied(policy, {}, ())),
        answer=answer,
        load_result=load,
        tested_cpus=None if steal.stopped_ns is None else 1 - steal.stopped_ns / (5 * SECOND),
        loading_cpus=None,
        outside=Outside(counts, counts),
        conditions=guests,
        **blocks,
    )
    return list(trial.flags())


def flags(**seen: Any) -> dict[str, tuple[bool, str]]:
    """Fatal or not and the words, by name."""
    return {flag.name: (flag.fatal, flag.detail) for flag in found_flags(**seen)}


def limited(*, received, throttling, limit=0.5, unlimited=1.0) -> dict[str, tuple[bool, str]]:
    one = guest(
        policy=Policy(cpu_limit=limit, weight=100),
        received_cpus=received,
        entitled_cpus=limit,
        unlimited_cpus=unlimited,
        throttling=throttling,
    )
    return flags(guests=(one, guest("loading")), asked=("cpu_limit",))


def test_nothing_is_said_of_a_trial_in_which_nothing_was_wrong():
    assert flags() == {}
    assert flags(load=load("integer", 10**6, None)) == {}
    assert limited(received=0.5, throttling=OFTEN_STOPPED) == {}


def test_a_guest_that_was_starved_by_its_neighbour_is_a_result_and_no_fault():
    starved = guest(received_cpus=0.05, entitled_cpus=0.5)
    assert flags(guests=(starved, guest("loading")), load=load("integer", 1, None)) == {}


@pytest.mark.parametrize(
    ("loader", "said"),
    [
        (load("flush", 10, "writing block 7: No space left on device"), "No space left on device"),
        (load("flush", None, "the agent went away"), "the agent went away"),
        (load("flush", 0, None), "did nothing at all"),
    ],
)
def test_a_load_that_was_not_there_makes_the_trial_invalid(loader, said):
    fatal, detail = flags(load=loader)["loader-died"]
    assert fatal
    assert "flush" in detail
    assert said in detail


@pytest.mark.parametrize("name", ["tested", "loading"])
def test_a_process_killed_for_want_of_memory_makes_the_trial_invalid_and_tells_whose(name):
    guests = tuple(guest(one, kills=2 if one == name else None) for one in ("tested", "loading"))
    fatal, detail = flags(guests=guests)["out-of-memory"]
    assert fatal
    assert f"2 processes of the {name} guest at its memory limit of 256 MiB" in detail


def test_a_guest_that_gets_more_than_its_limit_is_told_with_a_margin_of_two_periods():
    assert limited(received=0.56, throttling=OFTEN_STOPPED) == {}  # less than 0.5 · (1.1 + 0.2 s / 5 s)
    fatal, detail = limited(received=0.60, throttling=OFTEN_STOPPED)["limit-unbound"]
    assert not fatal
    assert "0.60 CPUs in spite of its limit of 0.5" in detail


def test_a_limit_that_never_stopped_anybody_is_told_only_where_it_had_to():
    fatal, detail = limited(received=0.5, throttling=NONE_STOPPED)["never-throttled"]
    assert not fatal
    assert "would have used 1.00 CPUs" in detail
    # Beside a neighbour of the same weight half is all that there is, and a limit of 75 % has nothing to stop.
    assert limited(received=0.5, throttling=NONE_STOPPED, limit=0.75, unlimited=0.5) == {}
    assert limited(received=0.3, throttling=NONE_STOPPED, limit=0.3, unlimited=43 / 143) == {}  # nor beside its weight
    # Others of the machine held it back before its limit could.
    assert limited(received=0.3, throttling=NONE_STOPPED) == {}
    assert limited(received=0.5, throttling=None) == {}  # nobody counts
    assert limited(received=0.5, throttling=NONE_STOPPED, unlimited=None) == {}  # demand not known


def test_only_knobs_that_the_cell_asks_for_are_told_to_have_no_effect():
    reasons = ("cpu_limit: it has no use for more", "cores: they are all that the machine has")
    one = guest(policy=Policy(cpu_limit=1.0, weight=100), no_effect=reasons, throttling=OFTEN_STOPPED)
    found = found_flags(guests=(one, guest("loading")), asked=("cpu_limit",))
    assert [(flag.name, flag.fatal, flag.detail) for flag in found] == [
        ("policy-no-effect", False, "tested: cpu_limit: it has no use for more")
    ]


def test_a_reservation_by_weight_is_not_said_to_have_no_effect():
    reasons = ("reservation: there is no such setting",)
    by_weight = guest(policy=Policy(reservation=0.5, weight=100), no_effect=reasons)
    assert flags(guests=(by_weight, guest("loading")), asked=("reservation", "weight")) == {}
    alone = guest(policy=Policy(reservation=0.5), no_effect=reasons)
    assert "policy-no-effect" in flags(guests=(alone, guest("loading")), asked=("reservation",))


def test_bounds_that_do_not_hold_for_buffered_writes_are_told_where_writes_are_buffered():
    reasons = ("disk writes: cgroup v1 bounds direct and flushed ones, and not those that are buffered",)
    guests = (guest(no_effect=reasons), guest("loading"))
    assert flags(guests=guests, asked=("disk",)) == {}
    assert "policy-no-effect" in flags(guests=guests, asked=("disk",), buffered=True)
    bypassed = (guest(no_effect=("disk: the sandbox opens no file for direct I/O",)), guest("loading"))
    assert "policy-no-effect" in flags(guests=bypassed, asked=("disk",))


def test_a_change_of_the_clock_frequency_by_more_than_three_per_cent_is_told():
    assert flags(frequencies_hz=(3e9, 2.92e9)) == {}
    fatal, detail = flags(frequencies_hz=(3e9, 1.5e9))["frequency-changed"]
    assert not fatal
    assert detail == "3.00 GHz before the trial, 1.50 GHz after it"
    assert "frequency-changed" in flags(frequencies_hz=(3e9, 3.1e9))
    assert flags(frequencies_hz=(0.0, 3e9)) == {}  # not known


@pytest.mark.parametrize(
    ("steal", "blind"),
    [
        (Steal(seen_ns=0, missed_ns=0, stopped_ns=SECOND), True),
        (Steal(seen_ns=None, missed_ns=0, stopped_ns=SECOND), True),
        (Steal(seen_ns=SECOND, missed_ns=0, stopped_ns=SECOND), False),
        (Steal(seen_ns=0, missed_ns=SECOND, stopped_ns=SECOND), False),  # a container
        (Steal(seen_ns=0, missed_ns=0, stopped_ns=SECOND // 10), False),  # 2 %
        (Steal(seen_ns=0, missed_ns=0, stopped_ns=None), False),  # not known
    ],
)
def test_a_guest_is_blind_that_sees_nothing_of_the_time_in_which_it_was_stopped(steal, blind):
    assert flags(steal=steal) == (
        {"guest-blind": (False, "the tested guest was stopped for 20% of its time, which it sees little or nothing of")}
        if blind
        else {}
    )


def test_a_block_that_caches_may_serve_is_told_with_their_size():
    cache = {"cache_bytes": 32 * MIB}
    fatal, detail = flags(benchmark="memory-read-simd", block_bytes=64 * MIB, **cache)["fits-a-cache"]
    assert not fatal
    assert detail == "the benchmark's block of 64 MiB is less than 4 times the last-level cache of 32 MiB"
    assert flags(benchmark="latency", block_bytes=128 * MIB, **cache) == {}
    assert flags(benchmark="latency", block_bytes=64 * MIB) == {}  # of a cache that is not known
    assert "the load's block of 64 MiB" in flags(load_block_bytes=64 * MIB, **cache)["fits-a-cache"][1]
    assert flags(benchmark="disk-random-write", block_bytes=4096, file_bytes=MIB, **cache) == {}


def test_a_cache_of_an_unknown_size_is_told_where_a_block_is_of_so_many():
    assert flags(cache_assumed=True)["cache-unknown"] == (
        False,
        "this host tells the size of no cache: 16 MiB stand for the largest",
    )


def test_two_guests_on_one_core_are_told():
    fatal, detail = flags(one_core=True)["one-core"]
    assert not fatal
    assert "threads of one core" in detail


def test_a_file_is_told_that_the_disk_may_have_kept():
    fatal, detail = flags(benchmark="disk-sequential-write", file_bytes=400_000)["fits-a-cache"]
    assert not fatal
    assert detail == "the file of 0.38147 MiB was written 2.5 times: its device may have kept a part"
    assert flags(benchmark="disk-sequential-write", file_bytes=MIB) == {}
    assert "was written just before" in flags(benchmark="disk-random-read", file_bytes=4 * MIB)["fits-a-cache"][1]
    assert flags(benchmark="disk-sequential-write-flush", file_bytes=400_000) == {}


def test_a_page_cache_that_is_not_left_out_is_told():
    assert flags(benchmark="flush", buffered=True)["disk-cached"][0] is False
