"""The parts of an isolation trial that need no guest: policies, entitlement, CPU time in a span, slices, histograms."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest

from virtgauge.host.cgroup_policy import Throttling
from virtgauge.host.policy import DiskLimits, Policy
from virtgauge.ledger.records import Histogram
from virtgauge.suites.isolation import kernel_work
from virtgauge.suites.isolation.benchmarks import KINDS
from virtgauge.suites.isolation.kernel_work import in_nanoseconds, slices_of, work_of
from virtgauge.suites.isolation.outside import GuestCounts, Outside, Span, received_cpus
from virtgauge.suites.isolation.policies import Demand, Placement, entitled, entitled_without_limit, given
from virtgauge.suites.isolation.settings import IsolationSettings
from virtgauge.suites.testbed import CpuRecord

MS = 1_000_000
ONE = Placement((0,), (0,))
APART = Placement((0,), (1,))
MBPS = 100e6


# -- policies --------------------------------------------------------------------------------------------------------


def test_everybody_has_a_weight_because_weights_count_only_among_those_that_have_one():
    both = given("none", "none", 1.0, ONE, MBPS)
    assert both.tested.weight == both.loading.weight == 100
    assert both.tested.cpu_limit is both.loading.cpu_limit is None
    assert both.asked == ()


@pytest.mark.parametrize(
    ("policy", "share", "expected"),
    [
        ("limit", 0.5, {"cpu_limit": 0.5, "weight": 100}),
        ("weight", 0.5, {"weight": 100}),
        ("weight", 0.75, {"weight": 300}),
        ("weight", 0.05, {"weight": 5}),  # the nearest
        ("reservation", 0.05, {"reservation": 0.05, "weight": 6}),  # no less than was reserved
        ("reservation", 0.2, {"reservation": 0.2, "weight": 25}),
        ("limit+reservation", 0.95, {"cpu_limit": 0.95, "reservation": 0.95, "weight": 1900}),
        ("limit+reservation", 1.0, {"cpu_limit": 1.0, "reservation": 1.0, "weight": 10_000}),
        ("disk-limit", 0.2, {"weight": 100, "disk": DiskLimits(read_bps=20_000_000, write_bps=20_000_000)}),
    ],
)
@pytest.mark.parametrize("on", ["tested", "loading"])
def test_the_policy_of_a_cell_is_on_one_guest(policy, share, expected, on):
    found = given(policy, on, share, ONE, MBPS)
    has, other = (found.tested, found.loading) if on == "tested" else (found.loading, found.tested)
    for field, value in expected.items():
        assert getattr(has, field) == pytest.approx(value) if isinstance(value, float) else getattr(has, field) == value
    assert (other.cpu_limit, other.reservation, other.weight, other.disk) == (None, None, 100, DiskLimits())
    assert bool(found.notes) == ("reservation" in policy)


def test_a_share_is_of_all_cpus_that_a_guest_has(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    assert given("limit", "tested", 0.75, Placement((0, 1), (0, 1)), MBPS).tested.cpu_limit == 1.5
    assert given("limit", "tested", 0.75, APART, MBPS).tested.cpu_limit == 0.75


# -- entitlement -----------------------------------------------------------------------------------------------------


def busy(cpus=1.0):
    return Demand(cpus, None)


@pytest.mark.parametrize(
    ("tested", "loading", "expected"),
    [
        ((Policy(weight=100), busy()), (Policy(weight=100), Demand(0.0, 0.0)), 1.0),
        ((Policy(weight=100), busy()), (Policy(weight=100), busy()), 0.5),
        ((Policy(weight=100), busy()), (Policy(weight=100), busy(0.2)), 0.8),  # a load of 20 % intensity
        ((Policy(weight=300), busy()), (Policy(weight=100), busy()), 0.75),
        ((Policy(weight=100, cpu_limit=0.75), busy()), (Policy(weight=100), busy()), 0.5),  # a limit is no reservation
        ((Policy(weight=300, cpu_limit=0.75), busy()), (Policy(weight=100), busy()), 0.75),
        ((Policy(weight=100), busy()), (Policy(weight=1900, cpu_limit=0.95), busy()), 0.05),  # the paper's 5 %
        ((Policy(weight=100), busy()), (Policy(weight=100), Demand(None, 0.1)), 0.9),  # a disk load, as observed
        ((Policy(weight=100), Demand(None, 0.3)), (Policy(weight=100), busy()), None),
        ((Policy(weight=100), busy()), (Policy(weight=100), Demand(None, None)), None),
    ],
)
def test_what_a_guest_is_entitled_to_beside_its_neighbour(tested, loading, expected):
    assert entitled(ONE, tested, loading) == (None if expected is None else pytest.approx(expected))


def test_a_guest_on_a_cpu_of_its_own_is_entitled_to_it_whatever_its_neighbour_wants():
    light = (Policy(weight=1), busy())
    assert entitled(APART, light, (Policy(weight=10_000), busy())) == 1.0
    assert entitled(APART, light, (Policy(), Demand(None, None))) == 1.0
    assert entitled(APART, (Policy(cpu_limit=0.3), busy()), (Policy(), busy())) == 0.3


def test_without_its_limit_a_guest_would_have_what_its_weight_gives():
    limited = (Policy(weight=100, cpu_limit=0.2), busy())
    assert entitled_without_limit(ONE, limited, (Policy(weight=100), busy())) == pytest.approx(0.5)
    assert entitled_without_limit(ONE, limited, (Policy(weight=100), Demand(0.0, 0.0))) == pytest.approx(1.0)


def test_demand_is_known_of_threads_that_never_wait():
    assert Demand.of(KINDS["integer"], 2, 100, None).cpus == 2
    assert Demand.of(KINDS["cache"], 2, 25, None).cpus == 0.5
    assert Demand.of(KINDS["flush"], 2, 100, 0.1) == Demand(None, 0.1)
    assert Demand.of(KINDS["wake"], 1, 100, None).cpus is None
    assert Demand.of(None, 4, 0, 0.0).cpus == 0.0


# -- CPU time in a span ----------------------------------------------------------------------------------------------


def record_of(monkeypatch, readings):
    """A record of these (time, CPU time) pairs."""
    times, charged = zip(*readings, strict=True)
    moments, account = iter(times), iter(charged)
    monkeypatch.setattr(time, "monotonic_ns", lambda: next(moments))
    record = CpuRecord(lambda: next(account))
    for _ in readings[1:]:
        record.read()
    return record


def test_what_a_guest_received_in_a_span_is_found_between_the_readings(monkeypatch):
    steady = [(at * MS, at * MS // 2) for at in range(0, 1100, 100)]  # half a CPU …
    record = record_of(monkeypatch, [*steady, (1500 * MS, 500 * MS)])  # … and then nothing
    assert received_cpus(record, Span(200 * MS, 600 * MS, 0)) == 0.5
    assert received_cpus(record, Span(900 * MS, 1100 * MS, 0)) == pytest.approx(0.25)


def test_where_no_time_passes_all_of_a_record_is_that_of_warm_up_and_span(monkeypatch):
    record = record_of(monkeypatch, [(0, 0), (1 * MS, 3_000 * MS)])
    assert received_cpus(record, Span(MS, 5_001 * MS, warmup_ns=1_000 * MS)) == 0.5


def test_an_account_that_nobody_keeps_is_missing_and_not_zero():
    record = CpuRecord(lambda: None)
    record.read()
    assert received_cpus(record, Span(0, MS, 0)) is None


def answer(began_ms, ended_ms):
    clocks = ({"monotonic_ns": at * MS} for at in (began_ms, ended_ms))
    return dict(zip(("clocks_start", "clocks_end"), clocks, strict=True)) | {"elapsed_ns": 500 * MS}


def test_the_span_of_a_guest_with_the_hosts_clock_is_exact():
    span = Span.of_answer(answer(1_000, 1_720), 200 * MS, sent_ns=900 * MS, finished_ns=2_500 * MS)
    assert (span.start_ns, span.end_ns) == (1_200 * MS, 1_700 * MS)


def test_the_span_of_a_guest_with_a_clock_of_its_own_ends_at_its_answer():
    span = Span.of_answer(answer(50, 770), 200 * MS, sent_ns=9_000 * MS, finished_ns=9_800 * MS)
    assert span.elapsed_ns == 500 * MS
    assert span.start_ns >= 9_000 * MS
    assert 9_700 * MS < span.end_ns < 9_800 * MS


# -- the probe's answer ----------------------------------------------------------------------------------------------


def test_slices_of_threads_that_close_them_at_different_times_add_up_on_one_grid():
    even = {"slice_units": [100, 100, 100], "slice_ns": [100 * MS] * 3}
    stopped = {"slice_units": [50, 50], "slice_ns": [150 * MS, 150 * MS]}  # did not run when its slices ended
    assert slices_of([even], 300 * MS, 100 * MS) == pytest.approx((1000, 1000, 1000))
    together = slices_of([even, stopped], 300 * MS, 100 * MS)
    assert together == pytest.approx((1000 + 1000 / 3,) * 3)
    assert sum(together) * 0.1 == pytest.approx(400)
    assert len(slices_of([even], 299 * MS, 100 * MS)) == 2  # what is left over is no slice


def test_a_histogram_of_picoseconds_becomes_one_of_nanoseconds():
    values = np.array([1_400, 1_600, 2_300, 5_000_000], dtype=np.int64)
    counts = np.array([1, 2, 3, 4], dtype=np.uint64)
    found = in_nanoseconds(Histogram(values, counts, 1_400, 5_000_000, 2_001_000.0, "ps"))
    assert found.unit == "ns"
    assert found.values.tolist() == [1, 2, 5_000]
    assert found.counts.tolist() == [1, 5, 4]
    assert (found.minimum, found.maximum, found.mean, found.n) == (1, 5_000, 2_001.0, 10)
    with pytest.raises(ValueError, match="ns"):
        in_nanoseconds(found)


def test_what_an_agent_is_asked_for(tmp_path):
    settings = IsolationSettings(disk_file_mib=8, wake_period_us=250)

    def params(name, block=""):
        return work_of(settings, KINDS[name], block=block, threads=2, folder=tmp_path, seed=7)

    assert params("integer") == {"kernel": "integer", "threads": 2, "seed": 7}
    assert params("memory-copy-simd", "3MiB")["block_bytes"] == 3 * 2**20
    assert params("wake")["period_ns"] == 250_000
    sequential, small = params("disk-sequential-read"), params("flush")
    assert (sequential["block_bytes"], small["block_bytes"]) == (65536, 4096)
    assert (small["order"], small["operation"]) == ("random", "write-flush")
    assert sequential["file_bytes"] == 8 * 2**20
    assert sequential["folder"] == str(tmp_path)


def test_blocks_of_so_many_caches_are_the_papers_where_a_host_does_not_tell_their_size(monkeypatch):
    monkeypatch.setattr(kernel_work, "largest_cache_bytes", lambda: None)
    asked = work_of(IsolationSettings(), KINDS["latency"], block="4xLLC", threads=1, folder=None, seed=1)
    assert asked["block_bytes"] == 64 * 2**20


# -- what the host counts --------------------------------------------------------------------------------------------


def test_only_what_was_counted_during_the_trial_is_told():
    before = GuestCounts(Throttling(10, 5, 50), 1)
    assert GuestCounts(Throttling(30, 20, 300), 3).since(before) == GuestCounts(Throttling(20, 15, 250), 2)
    assert GuestCounts(None, None).since(before) == GuestCounts(None, None)
    assert GuestCounts(Throttling(3, 1, 9), 1).since(GuestCounts(None, None)) == GuestCounts(Throttling(3, 1, 9), 1)


def test_waiting_for_a_disk_is_told_as_a_part_of_the_hosts_time():
    counts = itertools.repeat(GuestCounts(None, None))
    before = Outside(next(counts), next(counts), (100, 0, 50, 800, 50, 0, 0, 0))
    after = Outside(next(counts), next(counts), (150, 0, 50, 830, 70, 0, 0, 0))
    assert after.since(before).io_wait_share == pytest.approx(0.2)
    assert before.since(before).io_wait_share is None
