"""The pipeline against a known truth: what the simulation was told to be is what the report says."""

import math

import pytest
from shown import tables, told, value
from suites.simulated_runs import TIMERS, execute, plan_of, report_of, simulated

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("private_state", "any_agent")]


def estimate(report, arm, function, statistic="p50"):
    return value(report, "timing", f"timer_cost.{statistic}", arm, f"function={function}").estimate


def ratio(report, arm, function, statistic="p50"):
    return value(report, "timing", f"timer_cost.{statistic}", arm, f"function={function}").compared.ratio


def test_medians_and_ratios_come_back(tmp_path):
    fast = {"*": {"median_ns": 25.0, "guest_sigma": 0.01}}
    slow = {"*": {"median_ns": 100.0, "guest_sigma": 0.01}}
    plan = plan_of(simulated("fast", truth=fast, seed=1), simulated("slow", truth=slow, seed=2), repetitions=10)
    assert execute(plan, tmp_path / "run")[0]
    report = report_of(tmp_path / "run")
    assert estimate(report, "fast", "rdtsc").point == pytest.approx(25.0, rel=0.02)
    assert estimate(report, "slow", "rdtsc").point == pytest.approx(100.0, rel=0.02)
    assert ratio(report, "slow", "rdtsc").point == pytest.approx(4.0, rel=0.03)


def test_a_lognormals_quantiles_come_back(tmp_path):
    truth = {"*": {"median_ns": 1000.0, "sigma": 0.5, "guest_sigma": 0.0}}
    plan = plan_of(simulated("only", truth=truth), repetitions=6, design={"reads": 20_000})
    execute(plan, tmp_path / "run")
    report = report_of(tmp_path / "run")
    for statistic, deviations in (("p90", 1.2815515655), ("p99", 2.3263478740), ("p99.9", 3.0902323062)):
        expected = 1000.0 * math.exp(0.5 * deviations)
        assert estimate(report, "only", "rdtsc", statistic).point == pytest.approx(expected, rel=0.06)
    upper_quartile, lower_quartile = 1000 * math.exp(0.5 * 0.67449), 1000 * math.exp(-0.5 * 0.67449)
    half_iqr = (upper_quartile - lower_quartile) / 2
    assert estimate(report, "only", "rdtsc", "half_iqr").point == pytest.approx(half_iqr, rel=0.03)


def test_stalls_show_in_the_tail_and_not_in_the_median(tmp_path):
    calm = {"*": {"median_ns": 25.0, "guest_sigma": 0.0}}
    stalling = {"*": {"median_ns": 25.0, "guest_sigma": 0.0, "stall_probability": 0.005, "stall_ns": 1e6}}
    plan = plan_of(
        simulated("calm", truth=calm), simulated("stalling", truth=stalling, seed=5), design={"reads": 20_000}
    )
    execute(plan, tmp_path / "run")
    report = report_of(tmp_path / "run")
    assert ratio(report, "stalling", "rdtsc").point == pytest.approx(1.0, rel=0.02)
    assert estimate(report, "calm", "rdtsc", "p99.9").point < 50
    assert estimate(report, "stalling", "rdtsc", "p99.9").point == pytest.approx(1e6, rel=0.01)


def test_cycles_tell_how_late_they_were_and_which_deadlines_were_missed(tmp_path):
    truth = {"*": {"median_ns": 1e5, "guest_sigma": 0.0, "stall_probability": 0.01, "stall_ns": 2.5e6}}
    design = {"timers": [], "sleeps": [], "cycles": {"seconds": 10, "worst": 3}}
    execute(plan_of(simulated("only", truth=truth, seed=3), design=design), tmp_path / "run")
    report = report_of(tmp_path / "run")

    def point(name):
        return value(report, "timing", f"cycle.{name}", "only", "function=cycle").estimate.point

    assert point("p50") == pytest.approx(1e5, rel=0.02)
    assert point("max") == pytest.approx(2.6e6, rel=0.1)
    assert point("missed") == pytest.approx(100 * 0.02 / 1.02, rel=0.4)
    assert point("longest_missed") in {2, 4, 6}  # two for each stall, and stalls follow one another


def test_a_setting_that_helps_is_ranked_and_one_that_changes_nothing_is_not_shown(tmp_path):
    truth = {"*": {"median_ns": 1e5}, "cycle": {"median_ns": 8e5, "sigma": 0.3}}
    known = {"truth": truth, "setting_factors": {"fifo": 0.25}}
    idle_states = ["default", "shallow"]
    design = {
        **{"timers": [], "sleeps": ["usleep"], "slacks": ["default"], "sleep_samples": 2000},
        **{"policies": ["other", "fifo"], "idle_states": idle_states},
        "cycles": {"classes": ["other", "fifo"], "idle_states": idle_states, "seconds": 3},
    }
    arms = simulated("bare", seed=1, **known), simulated("slow", seed=2, emulated=True, **known)
    assert execute(plan_of(*arms, repetitions=10, aa=True, design=design), tmp_path / "run")[0]
    report = report_of(tmp_path / "run")
    (table,) = tables(report, "timing", "bought")
    assert [(row.heads[0], row.heads[1], row.arm) for row in table.rows[:2]] == [
        ("1", "SCHED_FIFO", "bare"),
        ("2", "SCHED_FIFO", "bare"),
    ]
    assert {row.heads[0] for row in table.rows[2:]} == {"–"}
    assert table.caption.startswith("14 figures are judged") and "up to 0.35 of them" in table.caption

    def effect(arm, *levels):
        return told(report, "timing", "setting.effect", arm, *levels).text

    assert effect("bare", "cycle", "policy=fifo") == "helps: p99, max, median, missed"
    assert effect("bare", "sleep_lateness", "policy=fifo") == "helps: p99, max, median"
    for probe in ("cycle", "sleep_lateness"):
        assert effect("bare", probe, "idle_states=shallow") == "not shown"
        assert effect("slow", probe, "policy=fifo") == "not judged: emulated"
    for row in table.rows[:2]:
        p99 = row.cells[1].compared.ratio
        assert p99.low < p99.point < p99.high and p99.point == pytest.approx(0.25, rel=0.05)
    (missed,) = (row.cells[-1].compared.estimate for row in table.rows[:2] if row.cells[-1] is not None)
    assert missed.high < -10  # of 19 in a hundred deadlines


def test_load_multiplies_what_it_was_told_to(tmp_path):
    truth = {"*": {"median_ns": 30.0, "guest_sigma": 0.0}}
    plan = plan_of(
        simulated("only", truth=truth, load_factor=3.0), design={"timers": ["rdtsc"], "loads": ["idle", "cpu"]}
    )
    execute(plan, tmp_path / "run")
    built = report_of(tmp_path / "run")
    by_load = {
        load: value(built, "timing", "timer_cost.p50", "only", f"load={load}").estimate.point
        for load in ("idle", "cpu")
    }
    assert by_load["cpu"] / by_load["idle"] == pytest.approx(3.0, rel=0.02)


def test_identical_arms_are_told_to_be_identical(tmp_path):
    truth = {"*": {"median_ns": 30.0, "guest_sigma": 0.05}}
    plan = plan_of(simulated("reference", truth=truth), repetitions=8, aa=True)
    execute(plan, tmp_path / "run")
    report = report_of(tmp_path / "run")
    assert [arm.record.role for arm in report.arms] == ["reference", "aa"]
    interval = ratio(report, "reference-aa", "rdtsc")
    assert interval.low <= 1.0 <= interval.high


def test_intervals_cover_the_truth_as_often_as_they_say(tmp_path):
    """Counted over many seeds, for medians and for ratios, with guests that differ by 10 %."""
    truths = {function: {"median_ns": 20.0 * (i + 1), "guest_sigma": 0.1} for i, function in enumerate(TIMERS)}
    doubled = {function: truth | {"median_ns": 2 * truth["median_ns"]} for function, truth in truths.items()}
    covered, ratios_covered, total, confidences = 0, 0, 0, set()
    for seed in range(60):
        plan = plan_of(
            simulated("reference", truth=truths, seed=2 * seed),
            simulated("double", truth=doubled, seed=2 * seed + 1),
            seed=seed,
            repetitions=6,
            design={"timers": TIMERS, "reservoir": 0},
        )
        execute(plan, tmp_path / str(seed))
        report = report_of(tmp_path / str(seed))
        for function in TIMERS:
            interval = estimate(report, "reference", function)
            paired = ratio(report, "double", function)
            total += 1
            covered += interval.low <= truths[function]["median_ns"] <= interval.high
            ratios_covered += paired.low <= 2.0 <= paired.high
            confidences |= {interval.confidence, paired.confidence}
    print(f"coverage of {total} intervals: medians {covered / total:.3f}, ratios {ratios_covered / total:.3f}")
    stated = min(confidences)
    tolerance = 4 * math.sqrt(stated * (1 - stated) / total)
    assert stated >= 0.95
    assert covered / total >= stated - tolerance
    assert ratios_covered / total >= stated - tolerance
