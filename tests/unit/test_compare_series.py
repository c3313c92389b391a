"""A series of runs: steps are found where they are, and days that differ are no steps."""

from __future__ import annotations

import numpy as np
import pytest
from compared_runs import MEDIAN, run_in_memory

from virtgauge.analysis.estimate import Estimate
from virtgauge.compare import changes
from virtgauge.compare.changes import Criteria, find_series
from virtgauge.compare.matching import match
from virtgauge.compare.model import Finding, Series
from virtgauge.compare.runs import ReadRun
from virtgauge.results.columns import Cell
from virtgauge.results.measure import Measure
from virtgauge.specs.suites import MEASURES

CRITERIA = Criteria(nominal=0.95, equivalent=0.05)


def made(guest: list[float], host: list[float] | None = None, seed: int = 0, **fields: object) -> list[ReadRun]:
    """A series by the factors of its guest and host."""
    host = [1.0] * len(guest) if host is None else host
    return [
        run_in_memory(f"run-{n}", 1000 * seed + n, {"host": 20 * h, "host-aa": 20 * h, "guest": 30 * h * g}, **fields)
        for n, (g, h) in enumerate(zip(guest, host, strict=True))
    ]


def series(runs: list[ReadRun], measure: Measure = MEDIAN) -> dict[tuple[int, bool], Series]:
    """By the place of the arm, and whether it is relative."""
    matched = match(runs, [measure], ())
    labels = [pair.label for pair in matched.arms]
    found = find_series(runs, matched, CRITERIA, 1, lambda what: None)
    return {(labels.index(one.arm), one.relative): one for one in found}


@pytest.mark.parametrize("after", [1, 3, 5])
def test_a_step_is_found_within_one_run_with_its_size(after: int) -> None:
    right = []
    for seed in range(20):
        found = series(made([1.0] * (after + 1) + [1.2] * (7 - after), seed=seed))
        steps = found[1, False].steps
        assert found[0, False].steps == ()
        right.append(len(steps) == 1 and abs(steps[0].after - after) <= 1 and steps[0].finding == Finding.WORSE)
        if steps:
            assert steps[0].size.point == pytest.approx(1.2, rel=0.03)
    assert np.mean(right) >= 0.9


def test_a_step_of_the_host_is_in_all_figures_and_in_no_ratio() -> None:
    found = series(made([1.0] * 8, host=[1.0] * 4 + [1.3] * 4))
    assert [step.after for step in found[0, False].steps] == [3]
    assert [step.after for step in found[1, False].steps] == [3]
    assert found[1, True].steps == ()


def test_a_guest_that_changed_under_a_host_that_drifts_is_seen_in_the_ratio() -> None:
    rng = np.random.default_rng(4)
    found = series(made([1.0] * 4 + [1.2] * 4, host=rng.lognormal(0, 0.15, 8).tolist()))
    assert found[1, False].steps == ()
    assert [step.after for step in found[1, True].steps] == [3]


@pytest.mark.parametrize("after", [0.6, 1.0])
def test_a_ratio_that_was_zero_grows_by_what_it_is_now(after: float) -> None:
    work = MEASURES["isolation"]["relative_work"]
    runs = [
        run_in_memory(f"run-{n}", n, {"host": 1.0, "host-aa": 1.0, "guest": 0.0 if n < 4 else after}, measure=work)
        for n in range(8)
    ]
    (step,) = series(runs, work)[1, False].steps
    assert (step.after, step.finding, step.grows) == (3, Finding.BETTER, True)
    assert step.size.point == pytest.approx(after, abs=0.02)


def test_a_lone_run_goes_and_comes_back() -> None:
    found = series(made([1.0, 1.0, 1.0, 1.4, 1.0, 1.0, 1.0]))[1, False]
    assert [(step.after, step.finding) for step in found.steps] == [(2, Finding.WORSE), (3, Finding.BETTER)]


def test_constant_series_seldom_have_a_step() -> None:
    alarms = [any(one.steps for one in series(made([1.0] * 6, seed=seed)).values()) for seed in range(40)]
    assert np.mean(alarms) <= 0.05


@pytest.mark.slow
def test_days_that_differ_by_chance_are_seldom_steps() -> None:
    """Repetitions of a run share its day: by their ranks alone nearly every such series would change."""
    alarms: list[bool] = []
    doubtful = 0
    for seed in range(30):
        days = np.random.default_rng(seed).lognormal(0, 0.1, 8).tolist()
        found = series(made([1.0] * 8, host=days, seed=seed))
        alarms.append(bool(found[1, False].steps))
        doubtful += found[1, False].doubtful > 0
    assert doubtful > 20
    assert sum(alarms) <= 3


def test_a_step_within_what_makes_no_difference_is_none() -> None:
    found = series(made([1.0] * 4 + [1.03] * 4, spread=0.002))[1, False]
    assert (found.steps, found.doubtful) == ((), 1)
    assert "no more than" in found.reason


def test_runs_without_the_figure_are_left_out_and_few_are_not_examined() -> None:
    runs = made([1.0] * 3 + [1.3] * 3)
    without = run_in_memory("none", 77, {"host": 20.0, "host-aa": 20.0})
    found = series([*runs[:3], without, *runs[3:]])[1, False]
    (step,) = found.steps
    assert (step.after, found.between(step, "abcdefg")) == (2, "between c and e")
    assert found.levels[3].point is None
    found = series([runs[0], without, runs[1], runs[2]])[1, False]
    assert found.p is None
    assert "only 3 runs" in found.reason


def test_the_largest_step_comes_first_and_the_same_seed_finds_the_same() -> None:
    runs = made([1.0] * 4 + [1.6] * 4, host=[1.0] * 4 + [1.2] * 4)
    matched = match(runs, [MEDIAN], ())
    first, again = (find_series(runs, matched, CRITERIA, 5, lambda what: None) for _ in range(2))
    assert first == again
    sizes = [step.size.point for one in first for step in one.steps]
    assert sizes == sorted(sizes, reverse=True)


def test_one_series_that_changes_alone_among_hundreds_is_found() -> None:
    """As many permutations as the first p comes of have none below a ten-thousandth, and 0.05 of 600 is less."""
    random = np.random.default_rng(1)

    missing = Estimate.missing("ns", "")

    def course(arm: int) -> changes._Course:
        values = random.normal(100, 1, (6, 4)) + (30 * (np.arange(6) >= 3)[:, None] if arm == 300 else 0)
        cell = Cell("timing", "timer_cost", ())
        one = Series(measure=MEDIAN, cell=cell, arm=str(arm), runs=tuple(range(6)), levels=(missing,) * 6)
        return changes._Course(one, True, list(np.log(values)), 0.0)

    found = changes._examined([course(arm) for arm in range(600)], CRITERIA, 1)
    assert [one.arm for one in found if one.steps] == ["300"]
