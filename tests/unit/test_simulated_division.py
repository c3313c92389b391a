"""What two simulated guests get of one machine: of its processors, of its disk, and in work."""

from __future__ import annotations

import numpy as np
import pytest

from virtgauge.analysis.resources import Claim, entitled_cpus
from virtgauge.host.policy import DiskLimits, Policy
from virtgauge.platforms.simulated.isolation import IsolationTruth, Side, Want, Work, divided, division


@pytest.mark.parametrize(
    ("first", "second", "capacity", "expected"),
    [
        (Want(1), Want(0), 1, (1, 0)),
        (Want(1), Want(1), 1, (0.5, 0.5)),
        (Want(1), Want(1), 2, (1, 1)),
        (Want(2), Want(0.25), 2, (1.75, 0.25)),
        (Want(1, limit=0.75), Want(1), 1, (0.5, 0.5)),  # a limit is not a reservation
        (Want(1, limit=0.25), Want(1), 1, (0.25, 0.75)),
        (Want(1, weight=300), Want(1, weight=100), 1, (0.75, 0.25)),
        (Want(1, limit=0.75, weight=300), Want(1, weight=100), 1, (0.75, 0.25)),
        (Want(1, floor=0.75), Want(1), 1, (0.75, 0.25)),
        (Want(0.5, floor=0.75), Want(1), 1, (0.5, 0.5)),  # a floor is of what is wanted
        (Want(1), Want(1, floor=0.95), 1, (0.05, 0.95)),
        (Want(1), Want(1, limit=0.1), 1, (0.9, 0.1)),
    ],
)
def test_two_divide_what_there_is_by_limit_floor_and_weight(first, second, capacity, expected):
    assert divided(first, second, capacity) == pytest.approx(expected)
    assert divided(second, first, capacity) == pytest.approx(expected[::-1])


def test_the_closed_form_for_two_is_what_water_filling_comes_to():
    """Two implementations that know nothing of each other: the simulation's, and the one that judges."""
    random = np.random.default_rng(7)
    for _ in range(500):
        capacity = random.uniform(0.5, 4)
        demands, limits, weights = random.uniform(0, 4, 2), random.uniform(0.1, 4, 2), random.uniform(1, 500, 2)
        known = list(zip(demands, limits, weights, strict=True))
        wants = [Want(demand, limit, weight=weight) for demand, limit, weight in known]
        claims = [Claim(*values) for values in known]
        assert divided(*wants, capacity) == pytest.approx(tuple(entitled_cpus(claims, capacity)), abs=1e-9)


def work(kernel="integer", *, threads=1, intensity=1.0, **others):
    name = others.pop("name", kernel)
    return Work(kernel, name, threads, others.get("operation", ""), others.get("block_bytes", 0), 0, intensity)


def side(doing, cores=(0,), **policy):
    return Side(Policy(**policy, available=tuple(range(8))), doing, frozenset(cores))


def test_guests_on_cores_of_their_own_take_nothing_from_each_other():
    apart, theirs = division(IsolationTruth(), side(work(), (0,)), side(work(), (1,)))
    assert (apart.cpus, theirs.cpus, apart.crowd) == (1.0, 1.0, 0.0)
    together, theirs = division(IsolationTruth(), side(work()), side(work()))
    assert (together.cpus, theirs.cpus, together.crowd) == (0.5, 0.5, 0.5)
    four = (0, 1, 2, 3)
    wide, narrow = division(IsolationTruth(), side(work(threads=4), four), side(work(threads=1), four))
    assert (wide.cpus, narrow.cpus) == (3.0, 1.0)


def test_a_load_of_some_intensity_wants_that_part_of_its_cores():
    alone, theirs = division(IsolationTruth(), side(work()), side(work(intensity=0.2)))
    assert (alone.cpus, theirs.cpus) == pytest.approx((0.8, 0.2))


def test_memory_is_slower_by_what_the_neighbour_does_to_it_and_cpu_time_is_not():
    truth = IsolationTruth(memory_contention=0.5, rates={"memory": 1e9, "integer": 1e6, "latency": 1e7})
    reading, beside = side(work("memory"), (0,)), side(work("memory"), (1,))
    ours, _ = division(truth, reading, beside)
    assert (ours.cpus, ours.rate) == pytest.approx((1.0, 1e9 / 1.5))
    assert division(truth, reading, side(work(), (1,)))[0].rate == pytest.approx(1e9)
    assert division(truth, side(work(), (0,)), beside)[0].rate == pytest.approx(1e6)
    half = side(work("memory", intensity=0.5), (1,))
    assert division(truth, side(work("latency"), (0,)), half)[0].rate == pytest.approx(1e7 / 1.25)


def test_a_neighbour_that_writes_all_over_the_cache_costs_those_that_rely_on_it():
    truth = IsolationTruth(cache_contention=1.0, rates={"memory": 1e9, "integer": 1e6})
    beside = side(work("cache"), (1,))
    assert division(truth, side(work(), (0,)), beside)[0].rate == pytest.approx(5e5)
    assert division(truth, side(work("memory"), (0,)), beside)[0].rate == pytest.approx(1e9)


@pytest.mark.parametrize(("share", "q"), [(0.1, 0.25), (0.7, 0.25), (0.9, 0.625), (0.95, 1.0), (1.0, 1.0)])
def test_a_cpu_that_is_used_little_runs_slowly_as_the_papers_did(share, q):
    """Rzecki et al. 2014, figure 3: 25 to 28 % up to 70 % declared, 61 % at 90 %, 98 % at 95 %; all under load."""
    truth = IsolationTruth(idle_frequency=0.25, rates={"integer": 1e6})
    limited = side(work(), cpu_limit=share)
    alone, _ = division(truth, limited, side(None))
    assert alone.cpus == pytest.approx(share)
    assert alone.rate / (1e6 * share) == pytest.approx(q)
    loaded, _ = division(truth, limited, side(work()))
    assert loaded.rate / (1e6 * loaded.cpus) == pytest.approx(1.0)


def test_a_shared_disk_is_divided_and_separate_disks_are_not():
    writing = work("disk", operation="write", block_bytes=4096)
    rates = {"disk": 1e8}
    assert division(IsolationTruth(rates=rates), side(writing), side(writing))[0].rate == pytest.approx(5e7)
    apart = IsolationTruth(rates=rates, disk_shared=False)
    assert division(apart, side(writing), side(writing))[0].rate == pytest.approx(1e8)


def test_a_bound_on_the_neighbours_disk_leaves_the_rest_to_others():
    writing, truth = work("disk", operation="write", block_bytes=4096), IsolationTruth(rates={"disk": 1e8})
    bounded = side(writing, disk=DiskLimits(write_bps=20_000_000))
    ours, theirs = division(truth, side(writing), bounded)
    assert (ours.rate, theirs.rate) == pytest.approx((8e7, 2e7))
    only_reads = side(writing, disk=DiskLimits(read_bps=20_000_000))
    assert division(truth, side(writing), only_reads)[1].rate == pytest.approx(5e7)
    operations = side(writing, disk=DiskLimits(write_iops=100))
    assert division(truth, side(writing), operations)[1].rate == pytest.approx(100 * 4096)


def test_a_disk_waits_for_a_guest_that_has_too_little_cpu_time():
    truth = IsolationTruth(rates={"disk": 1e8}, disk_cpus=0.2)
    ours, _ = division(truth, side(work("disk", operation="read"), cpu_limit=0.1), side(None))
    assert (ours.cpus, ours.rate) == pytest.approx((0.1, 5e7))


def test_low_use_above_full_use_is_refused():
    with pytest.raises(ValueError, match="low_use"):
        IsolationTruth(low_use=0.9, full_use=0.8)
