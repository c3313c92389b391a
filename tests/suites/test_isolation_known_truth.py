"""The isolation suite through the whole pipeline: what the simulated machine was told to be is what the report says."""

from __future__ import annotations

import math
import os

import pytest
from isolation_reports import rows_of, sentence_of
from suites.isolation_runs import QUICK, TEST, cell, isolation_trials
from suites.simulated_runs import execute, plan_of, report_of, simulated

from virtgauge.execution.progress import RunStarted, TrialEnded
from virtgauge.ledger.records import TrialStatus
from virtgauge.specs.isolation_formatting import Resource
from virtgauge.specs.isolation_insights import Degree

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("private_state", "any_agent")]

WRITE = "memory-write-integer"
READ = "memory-read-simd"
LOADED = {"loads": ["none", "integer"]}


def measured(folder, **told):
    """The report of a run, none of whose trials may be anything but valid."""
    trials = isolation_trials(folder, **told)
    assert [(one.key, one.error, one.flags) for one in trials if one.status is not TrialStatus.VALID] == []
    return report_of(folder)


def flags(trial):
    return {flag.name for flag in trial.flags}


# -- CPU time --------------------------------------------------------------------------------------------------------


def test_a_limit_is_no_reservation_and_a_reservation_is_one(tmp_path):
    design = LOADED | {"policies": ["none", "limit", "limit+reservation"], "shares": [75]}
    cells = measured(tmp_path / "run", design=design)
    for policy in ("limit", "limit+reservation"):
        assert cell(cells, policy=policy).efficiencies == pytest.approx((1, 1, 1))
    unprotected = cell(cells, load="integer", policy="limit")
    assert unprotected.efficiencies == pytest.approx((2 / 3, 1, 1))  # it got what it was entitled to: half
    assert unprotected.at("received_cpus") == pytest.approx(0.5)
    protected = cell(cells, load="integer", policy="limit+reservation")
    assert protected.efficiencies == pytest.approx((1, 1, 1))
    assert (protected.at("received_cpus"), protected.at("loading_cpus")) == pytest.approx((0.75, 0.25))
    assert cell(cells, load="integer").at("relative_work") == pytest.approx(0.5)


@pytest.mark.parametrize("benchmark", ["integer", "floating", READ, "latency"])
def test_every_benchmark_has_the_rate_that_the_machine_was_told(tmp_path, benchmark):
    rates = {"integer": 1757e4, "floating": 420.0, READ: 9.5e9, "latency": 1.25e7}
    expected = {"integer": 1e4, "floating": 42.0, READ: 9500.0, "latency": 80.0}
    cells = measured(tmp_path / "run", design={"benchmarks": [benchmark]}, rates=rates)
    series = cell(cells, benchmark=benchmark)
    assert series.at("value") == pytest.approx(expected[benchmark], rel=1e-3)
    assert (
        series["value"].estimate.unit
        == {"integer": "DMIPS", "floating": "MWIPS", READ: "MB/s", "latency": "ns"}[benchmark]
    )


def test_the_share_that_is_declared_is_the_share_that_is_got_whatever_it_is(tmp_path):
    design = LOADED | {"policies": ["limit+reservation"], "shares": [10, 25, 50, 90, 100]}
    cells = measured(tmp_path / "run", design=design, reservation="absent")  # weights leave the neighbour something
    for share in (0.1, 0.25, 0.5, 0.9, 1.0):
        for load in ("none", "integer"):
            series = cell(cells, load=load, policy="limit+reservation", share=share)
            assert series.at("q") == pytest.approx(1, rel=0.01)
            assert series.at("received_cpus") == pytest.approx(share, rel=0.01)


def test_a_reservation_for_the_neighbour_leaves_what_is_left_and_idle_time_is_given_on(tmp_path):
    """The paper's figure 2, where a limit of 95 % on the loading guest left 8 % in place of 5 % for the tested one."""
    design = LOADED | {"policies": ["limit+reservation"], "on": ["loading"], "shares": [95]}
    told = {"policy": "limit+reservation", "on": "loading"}
    exact = measured(tmp_path / "exact", design=design)
    assert cell(exact, load="integer", **told).at("q") == pytest.approx(1, rel=0.01)
    assert cell(exact, **told).at("relative_work") == pytest.approx(1)
    loose = cell(measured(tmp_path / "loose", design=design, limit_overshoot=0.92 / 0.95), load="integer", **told)
    assert (loose.at("received_cpus"), loose.at("q"), loose.at("entitlement") / 100) == pytest.approx(
        (0.08, 1.6, 1.6), rel=0.01
    )


def test_a_weight_conserves_work_and_a_limit_does_not(tmp_path):
    design = LOADED | {"policies": ["weight", "limit"], "shares": [25]}
    cells = measured(tmp_path / "run", design=design)
    assert cell(cells, policy="weight").at("relative_work") == pytest.approx(1)
    assert cell(cells, policy="limit").at("relative_work") == pytest.approx(0.25)
    assert cell(cells, policy="weight", load="integer").at("relative_work") == pytest.approx(0.25, rel=0.01)


@pytest.mark.parametrize("cores", ["1", "all"])
def test_on_all_cores_a_share_is_of_all_of_them(tmp_path, cores):
    design = LOADED | {"policies": ["limit"], "shares": [40], "cores": [cores]}
    trials = isolation_trials(tmp_path / "run", design=design)
    capacity = {trial.result["capacity_cpus"] for trial in trials}.pop()
    series = cell(report_of(tmp_path / "run"), policy="limit")
    assert series.at("received_cpus") == pytest.approx(0.4 * capacity)
    assert series.efficiencies == pytest.approx((1, 1, 1))


def test_a_load_of_less_intensity_leaves_more(tmp_path):
    design = LOADED | {"intensities": [10, 30, 50, 100]}
    cells = measured(tmp_path / "run", design=design)
    for intensity, left in ((10, 0.9), (30, 0.7), (50, 0.5), (100, 0.5)):
        series = cell(cells, load="integer", intensity=intensity)
        assert series.at("relative_work") == pytest.approx(left)
        assert series.at("loading_cpus") == pytest.approx(1 - left)


# -- knobs that do not do what they say ------------------------------------------------------------------------------


def test_an_ignored_limit_is_found_out_by_measuring(tmp_path):
    design = {"policies": ["limit"], "shares": [50]}
    trials = isolation_trials(tmp_path / "run", design=design, cpu_limit="ignored")
    limited = next(trial for trial in trials if trial.factors["policy"] == "limit")
    assert limited.status is TrialStatus.VALID
    assert flags(limited) == {"limit-unbound", "never-throttled"}
    assert limited.result["policy_applied"]["tested"]["in_force"]["cpu_limit"] == "0.5"
    assert cell(report_of(tmp_path / "run"), policy="limit").efficiencies == pytest.approx((2, 2, 1))


def test_a_limit_that_holds_is_not_accused(tmp_path):
    design = LOADED | {"policies": ["limit", "limit+reservation"], "shares": [5, 30, 75, 95]}
    for trial in isolation_trials(tmp_path / "run", design=design):
        assert flags(trial) == set()


def test_a_limit_that_overshoots_by_little_is_a_result_and_by_much_a_flag(tmp_path):
    design = {"policies": ["limit"], "shares": [20]}
    for overshoot, accused in ((1.08, set()), (1.4, {"limit-unbound"})):
        folder = tmp_path / str(overshoot)
        trials = isolation_trials(folder, design=design | {"seconds": 20}, limit_overshoot=overshoot)
        assert [flags(trial) for trial in trials if trial.factors["policy"] == "limit"] == [accused]
        assert cell(report_of(folder), policy="limit").at("entitlement") / 100 == pytest.approx(overshoot)


def test_ignored_weights_show_in_the_share_and_not_in_the_rate(tmp_path):
    design = LOADED | {"policies": ["limit+reservation"], "shares": [75]}
    cells = measured(tmp_path / "run", design=design, weight="ignored", reservation="ignored")
    series = cell(cells, load="integer", policy="limit+reservation")
    assert series.efficiencies == pytest.approx((2 / 3, 2 / 3, 1))


def test_a_platform_without_reservations_has_them_by_weights(tmp_path):
    design = LOADED | {"policies": ["reservation"], "shares": [75]}
    cells = measured(tmp_path / "run", design=design, reservation="absent")
    series = cell(cells, load="integer", policy="reservation")
    assert series.efficiencies == pytest.approx((1, 1, 1))
    assert series.flags == "1 valid"


def test_a_setting_that_a_platform_does_not_have_is_named(tmp_path):
    design = {"policies": ["limit"], "shares": [50]}
    trials = isolation_trials(tmp_path / "run", design=design, cpu_limit="absent")
    (limited,) = [trial for trial in trials if trial.factors["policy"] == "limit"]
    (said,) = [flag.detail for flag in limited.flags if flag.name == "policy-no-effect"]
    assert "cpu_limit" in said


def test_a_setting_that_is_refused_is_unsupported_in_words_and_the_run_goes_on(tmp_path):
    design = {"policies": ["none", "limit"], "shares": [50]}
    trials = isolation_trials(tmp_path / "run", design=design, attempts=3, cpu_limit="refused")
    by_policy = {trial.factors["policy"]: trial for trial in trials}
    assert len(trials) == 2  # what cannot be done is not tried again
    assert by_policy["none"].status is TrialStatus.VALID
    assert by_policy["limit"].status is TrialStatus.UNSUPPORTED
    assert "cpu_limit" in by_policy["limit"].error
    reasons = {row.heads: str(row.cells[-1]) for row in rows_of(report_of(tmp_path / "run"), "missing")}
    assert "cpu_limit" in reasons["integer",]


def test_what_a_machine_cannot_do_at_all_is_expected_to_take_no_time(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    plan = plan_of(simulated(TEST), repetitions=2, suite={"isolation": [QUICK | {"cores": ["1-apart"]}]})
    complete, recorder = execute(plan, tmp_path / "run")
    assert complete
    (started,) = [event for event in recorder.events if isinstance(event, RunStarted)]
    assert (started.trials_total, started.about) == (2, "no time: nothing is left that takes any")
    ended = [event.status for event in recorder.events if isinstance(event, TrialEnded)]
    assert ended == ["unsupported"] * 2


# -- what CPU time is worth ------------------------------------------------------------------------------------------


def test_memory_contention_shows_in_the_rate_and_not_in_the_share(tmp_path):
    design = {"benchmarks": ["integer", READ], "loads": ["none", "integer", WRITE]}
    cells = measured(tmp_path / "run", design=design, memory_contention=0.5)
    assert cell(cells, benchmark=READ, load=WRITE).efficiencies[1:] == pytest.approx((1, 0.8))  # half a CPU of it
    assert cell(cells, benchmark=READ, load="integer").efficiencies[1:] == pytest.approx((1, 1))
    assert cell(cells, benchmark="integer", load=WRITE).efficiencies[1:] == pytest.approx((1, 1))
    assert cell(cells, benchmark=READ, load=WRITE).at("relative_work") == pytest.approx(0.4)


def test_the_cache_is_lost_to_a_neighbour_that_fills_it(tmp_path):
    design = {"benchmarks": ["integer", READ, "latency"], "loads": ["none", "cache"], "load_cache_block": "32MiB"}
    cells = measured(tmp_path / "run", design=design, cache_contention=2.0)
    assert cell(cells, benchmark="integer", load="cache").at("q_rate") == pytest.approx(0.5)
    assert cell(cells, benchmark="latency", load="cache").at("q_rate") == pytest.approx(0.5)
    assert cell(cells, benchmark=READ, load="cache").at("q_rate") == pytest.approx(1)


def test_the_papers_frequency_case_shows_in_the_rate_and_vanishes_under_load(tmp_path):
    """Figure 3: a limit is of time, and a CPU that is used little runs at a quarter of its speed."""
    design = LOADED | {"policies": ["limit+reservation"], "shares": [40, 70, 90, 95, 100]}
    cells = measured(tmp_path / "run", design=design, idle_frequency=0.25, reservation="absent")
    for share, q in ((0.4, 0.25), (0.7, 0.25), (0.9, 0.625), (0.95, 1.0), (1.0, 1.0)):
        alone = cell(cells, policy="limit+reservation", share=share)
        assert alone.efficiencies == pytest.approx((q, 1, q), rel=0.01)
        beside = cell(cells, policy="limit+reservation", share=share, load="integer")
        assert beside.at("q_rate") == pytest.approx(1)


def test_a_frequency_that_changes_meanwhile_is_said(tmp_path):
    (trial,) = isolation_trials(tmp_path / "run", frequency_drift=0.9)
    assert trial.status is TrialStatus.VALID
    assert flags(trial) == {"frequency-changed"}
    assert cell(report_of(tmp_path / "run")).at("frequency_ratio") == pytest.approx(0.9)


def test_a_slower_platform_is_slower_by_its_factor_beside_the_reference(tmp_path):
    design = LOADED | {"policies": ["none", "limit"], "shares": [50]}
    told = {"reference": {"rates": {"integer": 2e7}}, "rates": {"integer": 1.6e7}}
    cells = measured(tmp_path / "run", design=design, repetitions=6, **told)
    assert cell(cells).at("relative_work") == pytest.approx(0.8)
    assert cell(cells, policy="limit").efficiencies == pytest.approx((0.8, 1, 0.8))
    assert cell(cells, load="integer")["relative_work"].compared.ratio.point == pytest.approx(0.8)


# -- what is seen from inside ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sees", "seen", "blind"), [("steal", 0.5, False), ("nothing", 0.5, False), ("itself", 1, True)]
)
def test_a_guest_that_believes_to_run_all_the_time_is_blind(tmp_path, sees, seen, blind):
    design = {"policies": ["limit"], "shares": [50]}
    cells = measured(tmp_path / "run", design=design, guest_sees=sees)
    series = cell(cells, policy="limit")
    assert series.at("guest_seen_cpus") == pytest.approx(seen)
    assert series.at("stopped_share") == pytest.approx(50)
    assert series.at("received_cpus") == pytest.approx(0.5)
    assert ("guest-blind" in series.flags) == blind


def test_throttled_periods_are_those_in_which_the_limit_stopped_it(tmp_path):
    design = LOADED | {"policies": ["limit"], "shares": [75]}
    cells = measured(tmp_path / "run", design=design)
    assert cell(cells, policy="limit").at("throttled_share") == 100
    assert cell(cells, policy="limit", load="integer").at("throttled_share") == 0  # the neighbour came first


# -- disk and waking up ----------------------------------------------------------------------------------------------

DISK = "disk-sequential-write"
DISK_DESIGN = {"benchmarks": [DISK], "loads": ["none", DISK], "policies": ["none", "disk-limit"], "shares": [25]}


@pytest.mark.parametrize(("shared", "left"), [(True, 0.5), (False, 1.0)])
def test_a_shared_disk_is_shared_and_an_isolated_one_is_not(tmp_path, shared, left):
    cells = measured(tmp_path / "run", design=DISK_DESIGN, rates={"disk": 1e8}, disk_shared=shared)
    assert cell(cells, benchmark=DISK).at("value") == pytest.approx(100, rel=0.001)
    beside = cell(cells, benchmark=DISK, load=DISK)
    assert beside.at("relative_work") == pytest.approx(left, rel=0.001)
    assert beside.at("disk.p50") == pytest.approx(math.log(2) * 65536 / (1e8 * left) * 1e9, rel=0.1)
    bounded = cell(cells, benchmark=DISK, policy="disk-limit")
    assert bounded.at("value") == pytest.approx(25, rel=0.001)


def test_a_bound_on_the_neighbours_disk_leaves_the_rest(tmp_path):
    cells = measured(tmp_path / "run", design=DISK_DESIGN | {"on": ["loading"]}, rates={"disk": 1e8})
    series = cell(cells, benchmark=DISK, load=DISK, policy="disk-limit", on="loading")
    assert series.at("relative_work") == pytest.approx(0.75, rel=0.001)


def test_a_page_cache_in_between_is_said(tmp_path):
    design = {"benchmarks": [DISK]}
    (trial,) = isolation_trials(tmp_path / "run", design=design, disk_direct=False)
    assert trial.status is TrialStatus.VALID
    assert flags(trial) == {"disk-cached"}


def test_waking_up_is_late_by_what_was_told_and_later_under_load(tmp_path):
    design = LOADED | {"benchmarks": ["wake"]}
    cells = measured(tmp_path / "run", design=design, wake_us=40.0, wake_sigma=0.3, wake_inflation=4.0)
    tail = math.exp(0.3 * 2.3263)
    for load, median in (("none", 40e3), ("integer", 40e3 * (1 + 4 * 0.995))):  # waking up itself uses 0.5 %
        series = cell(cells, benchmark="wake", load=load)
        assert series.at("wake.p50") == pytest.approx(median, rel=0.05)
        assert series.at("wake.p99") == pytest.approx(median * tail, rel=0.1)
    # What is kept is the inverse of the lateness: the rate of waking up is the same beside any load.
    assert cell(cells, benchmark="wake", load="integer").at("kept") == pytest.approx(100 / 4.98, rel=0.1)


def test_simulated_time_is_not_held_against_the_real_machine(tmp_path):
    """A guest's simulated seconds pass in milliseconds, in which anything may run beside it."""
    trials = isolation_trials(tmp_path / "run", design={"benchmarks": ["integer", "wake"]})
    assert [trial.accounting["foreign_ns"] for trial in trials] == [None, None]
    assert all(trial.result["cpu"]["tested"] is not None for trial in trials)


# -- what is concluded -----------------------------------------------------------------------------------------------

EVERYTHING = {"benchmarks": ["integer", READ, "latency", DISK, "wake"], "loads": ["none", "integer", WRITE, DISK]}
EVERYTHING |= {"policies": ["none", "limit+reservation"], "shares": [50]}


@pytest.mark.parametrize(
    ("told", "resource", "degree"),
    [
        ({}, None, Degree.ISOLATED),
        ({"memory_contention": 0.5}, Resource.MEMORY, Degree.PARTLY),  # 80 % is left beside half a CPU of writing
        pytest.param({"memory_contention": 2.0}, Resource.MEMORY, Degree.NOT, marks=pytest.mark.slow),  # half
        pytest.param({"disk_shared": True}, Resource.DISK, Degree.NOT, marks=pytest.mark.slow),
        pytest.param({"wake_inflation": 9.0}, Resource.WAKE, Degree.NOT, marks=pytest.mark.slow),
        ({"weight": "ignored", "reservation": "ignored"}, Resource.CPU, Degree.NOT),  # of 90 %, half a core
    ],
)
def test_each_resource_is_judged_by_what_the_machine_does_with_it_and_no_other_is(tmp_path, told, resource, degree):
    design = EVERYTHING | ({"shares": [90]} if "weight" in told else {})
    measured(tmp_path / "run", design=design, repetitions=6, **{"disk_shared": False} | told)
    found = report_of(tmp_path / "run")
    degrees = {resource: sentence_of(found, TEST, resource).degree for resource in Resource}
    if resource is None:
        assert set(degrees.values()) == {degree}
        return
    assert degrees[resource] is degree
    unconcerned = {Resource.CPU, Resource.DISK, Resource.WAKE} - {resource}
    assert {degrees[one] for one in unconcerned} == {Degree.ISOLATED}


# -- uncertainty -----------------------------------------------------------------------------------------------------


def test_slices_spread_as_the_machine_does(tmp_path):
    cells = measured(tmp_path / "run", design={"seconds": 200}, slice_sigma=0.2)
    low, median, high = (cell(cells).at(f"slices.p{at}") / 100 for at in (5, 50, 95))
    mean = math.exp(-(0.2**2) / 2)  # of the logarithm, where that of the values is one
    assert median == pytest.approx(mean, rel=0.02)
    assert low == pytest.approx(mean * math.exp(-0.2 * 1.645), rel=0.04)
    assert high == pytest.approx(mean * math.exp(0.2 * 1.645), rel=0.04)


@pytest.mark.full
@pytest.mark.timeout(600)
def test_intervals_cover_the_truth_as_often_as_they_say(tmp_path):
    """Counted over many seeds: testbeds that differ by 10 %, and what is scheduled by 5 % from trial to trial."""
    noise = {"testbed_sigma": 0.1, "slice_sigma": 0.1, "share_sigma": 0.05, "memory_contention": 0.5}
    design = {"benchmarks": [READ], "loads": ["none", WRITE], "policies": ["limit", "limit+reservation"]}
    design |= {"shares": [60], "seconds": 1.0}
    # By hand: a limit of 60 % beside an equal weight gives half of the core, and half of it to the neighbour's writing.
    truths = {
        ("limit", "none"): {"q": 0.8, "q_share": 1.0, "q_rate": 0.8},
        ("limit+reservation", "none"): {"q": 0.8, "q_share": 1.0, "q_rate": 0.8},
        ("limit", WRITE): {"q": 0.8 / 1.25 * 0.5 / 0.6, "q_share": 1.0, "q_rate": 0.8 / 1.25},
        ("limit+reservation", WRITE): {"q": 0.8 / 1.2, "q_share": 1.0, "q_rate": 0.8 / 1.2},
    }
    covered, total, confidences = dict.fromkeys(("q", "q_share", "q_rate"), 0), 0, set()
    for seed in range(45):
        folder = tmp_path / str(seed)
        slower, reference = ({"rates": {"memory": rate}} | noise for rate in (8e9, 1e10))
        cells = measured(folder, design=design, repetitions=6, seed=seed, reference=reference, **slower)
        for (policy, load), truth in truths.items():
            series = cell(cells, policy=policy, load=load)
            total += 1
            for name, expected in truth.items():
                interval = series["entitlement" if name == "q_share" else name].estimate
                scale = 100 if name == "q_share" else 1
                covered[name] += interval.low <= scale * expected <= interval.high
                confidences.add(interval.confidence)
    shares = {name: round(count / total, 3) for name, count in covered.items()}
    print(f"coverage of {total} intervals each: {shares}")
    stated = min(confidences)
    tolerance = 4 * math.sqrt(stated * (1 - stated) / total)
    assert stated >= 0.95
    assert all(share >= stated - tolerance for share in shares.values())


# -- a policy that is set by hand ------------------------------------------------------------------------------------


def by_hand(policy, on="tested", share=50, **more):
    policies = {"policies": [policy]} | ({} if policy == "none" else {"on": [on], "shares": [share]})
    return LOADED | {"policy_set_by_hand": True} | policies | more


@pytest.mark.parametrize(
    ("policy", "on", "alone", "beside"),
    [
        ("limit", "tested", (0.3, 0.3), (0.3, 0.3)),
        ("limit", "loading", (0.3, 0.3), (0.3, 0.3)),
        ("weight", "tested", (1, 1), (0.3, 0.3)),
        ("limit+reservation", "tested", (0.3, 0.3), (0.3, 0.3)),
    ],
)
def test_a_policy_that_is_in_force_is_seen_from_inside(tmp_path, policy, on, alone, beside):
    """What the loop receives is what the simulated machine gives; no cell is without the policy."""
    trials = isolation_trials(tmp_path / "run", design=by_hand(policy, on, 30), reservation="absent")
    assert {trial.factors["policy"] for trial in trials} == {policy}
    for trial in trials:
        assert trial.status is TrialStatus.VALID, trial.flags
        seen = trial.result["policy_applied"][on]["in_force"]
        neighbour = trial.result["policy_applied"]["loading" if on == "tested" else "tested"]["in_force"]
        assert neighbour["as the busy neighbour"].startswith(f"{1 - beside[0]:.2f} CPUs by a busy loop")
        for words, (received, entitled) in (("alone", alone), ("beside a busy neighbour", beside)):
            assert seen[words].startswith(f"{received:.2f} CPUs by a busy loop")
            assert seen[words].endswith(f"entitled to {entitled:.2f}")
        assert trial.result["policy_applied"][on]["no_effect"] == []


@pytest.mark.parametrize("truth", [{"cpu_limit": "ignored"}, {"limit_overshoot": 1.5}, {"limit_overshoot": 0.5}])
def test_without_the_policy_that_is_declared_no_trial_counts(tmp_path, truth):
    (one, two) = isolation_trials(tmp_path / "run", design=by_hand("limit"), **truth)
    for trial in (one, two):
        assert trial.status is TrialStatus.INVALID
        (flag,) = [flag for flag in trial.flags if flag.fatal]
        assert flag.name == "policy-not-in-force"
        received = 1.0 if "cpu_limit" in truth else 0.5 * truth["limit_overshoot"]
        assert f"alone, the tested guest received {received:.2f} CPUs by a busy loop" in flag.detail
        assert "entitled to 0.50" in flag.detail
        assert "Set it at the hypervisor, and give each machine one processor" in flag.detail


@pytest.mark.parametrize("policy", ["none", "limit", "limit+reservation"])
def test_two_guests_on_cores_of_their_own_are_no_neighbours(tmp_path, policy):
    """Under a limit of a half the tested guest receives its half there, too; what both receive together tells."""
    trials = isolation_trials(tmp_path / "run", design=by_hand(policy), cores_apart=True)
    flags = [flag for trial in trials for flag in trial.flags if flag.fatal]
    assert len(flags) == len(trials) > 0
    for flag in flags:
        assert flag.name == "policy-not-in-force"
        assert (
            "as the busy neighbour, the loading guest received 1.00 CPUs by a busy loop; entitled to 0.50"
            in flag.detail
        )
        assert flag.detail.endswith("give each machine one processor, which both share")


def test_a_policy_that_changes_nothing_is_said_to_be_unseen(tmp_path):
    for trial in isolation_trials(tmp_path / "run", design=by_hand("weight", share=50)):
        assert trial.status is TrialStatus.VALID
        assert trial.result["policy_applied"]["tested"]["no_effect"] == [
            "weight: it entitles to about what no policy does, so that it cannot be seen from inside"
        ]


def test_two_machines_without_a_policy_are_their_own_reference(tmp_path):
    design = LOADED | {"policy_set_by_hand": True, "policies": ["none"]}
    cells = measured(tmp_path / "run", design=design)
    assert cell(cells, load="integer").at("relative_work") == pytest.approx(0.5)


def test_work_beside_a_load_is_held_against_that_under_the_same_limit_alone(tmp_path):
    """Nothing is measured without the limit; beside a neighbour of equal weight, 75 % of a CPU become 50 %."""
    cells = measured(tmp_path / "run", design=by_hand("limit", share=75), repetitions=6)
    assert cell(cells, load="integer", policy="limit").at("kept_of_promised") == pytest.approx(2 / 3)
    weighed = measured(tmp_path / "weighed", design=by_hand("weight", share=30), repetitions=6)
    (said,) = weighed.suite("isolation").headlines
    assert said.text == "nothing was measured without load and policy, which isolation is held against."


def test_a_second_pair_without_a_policy_is_the_reference_of_one_with_a_policy(tmp_path):
    free = QUICK | LOADED | {"platforms": ["free"], "policy_set_by_hand": True, "policies": ["none"]}
    bound = QUICK | by_hand("weight", share=30) | {"platforms": [TEST]}
    plan = plan_of(simulated("free"), simulated(TEST), repetitions=1, suite={"isolation": [free, bound]})
    assert execute(plan, tmp_path / "run")[0]
    assert cell(report_of(tmp_path / "run"), load="integer", policy="weight").at("q") == pytest.approx(1, rel=0.01)
