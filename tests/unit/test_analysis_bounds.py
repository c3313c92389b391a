"""Repetitions against a bound."""

from __future__ import annotations

import numpy as np
import pytest

from virtgauge.analysis.bounds import Bound, Outcome, decide

AT_MOST = Bound(at_most=100.0)


def outcome(values: list[float], bound: Bound = AT_MOST, **options: object) -> Outcome:
    return decide(values, bound, "ns", 0.95, **options).outcome  # type: ignore[arg-type]


def test_passes_and_fails_by_the_whole_interval() -> None:
    assert outcome([90, 91, 92, 93, 94, 95]) is Outcome.PASS
    assert outcome([101, 102, 103, 104, 105, 106]) is Outcome.FAIL
    assert outcome([98, 99, 99.5, 100.5, 101, 102]) is Outcome.INCONCLUSIVE


def test_a_value_at_the_bound_meets_it() -> None:
    assert outcome([100.0] * 6) is Outcome.PASS
    assert outcome([100.0] * 6, Bound(at_least=100.0)) is Outcome.PASS


def test_two_ends() -> None:
    both = Bound(at_least=90.0, at_most=100.0)
    assert outcome([92, 93, 94, 95, 96, 97], both) is Outcome.PASS
    assert outcome([80, 81, 82, 83, 84, 85], both) is Outcome.FAIL
    assert outcome([88, 89, 91, 92, 93, 94], both) is Outcome.INCONCLUSIVE


def test_five_repetitions_never_reach_95_percent_and_say_so() -> None:
    decision = decide([1.0, 2.0, 3.0, 4.0, 5.0], AT_MOST, "ns", 0.95)
    assert decision.outcome is Outcome.INCONCLUSIVE
    assert "93.8 %" in decision.reason
    assert decision.more == 1


def test_one_repetition_and_none() -> None:
    assert decide([1.0], AT_MOST, "ns", 0.95).more == 5
    nothing = decide([], AT_MOST, "ns", 0.95)
    assert nothing.outcome is Outcome.INCONCLUSIVE
    assert nothing.more == 6


def test_margin_is_of_the_bound_and_signed() -> None:
    assert decide([75.0] * 6, AT_MOST, "ns", 0.95).margin == pytest.approx(0.25)
    assert decide([150.0] * 6, AT_MOST, "ns", 0.95).margin == pytest.approx(-0.5)
    assert decide([0.0] * 6, Bound(at_most=0.0), "", 0.95).margin is None


def test_failing_by_one_of_many_cells_needs_more_than_failing_alone() -> None:
    values = [101.0, 102, 103, 104, 105, 106]
    assert outcome(values, cells=1) is Outcome.FAIL
    assert outcome(values, cells=20) is Outcome.INCONCLUSIVE
    assert outcome([90.0, 91, 92, 93, 94, 95], cells=20) is Outcome.PASS


def test_an_interval_beyond_the_bound_that_is_no_failure_yet_is_not_said_to_reach_over_it() -> None:
    decision = decide([101.0, 102.0, 103.0, 104.0, 105.0, 106.0], AT_MOST, "ns", 0.95, cells=4)
    assert decision.outcome is Outcome.INCONCLUSIVE
    assert "reaches over" not in decision.reason
    assert "one of 4 cells takes a confidence of 98.75 %" in decision.reason


def test_every_repetition() -> None:
    assert outcome([0, 0, 0, 0, 0, 7], Bound(at_most=0.0), every=True) is Outcome.FAIL
    passed = decide([0.0] * 8, Bound(at_most=0.0), "", 0.95, every=True)
    assert passed.outcome is Outcome.PASS
    assert "up to 31 % of further ones" in passed.reason
    assert decide([0.0] * 2, Bound(at_most=0.0), "", 0.95, every=True).more == 4


def test_looking_at_any_time_needs_more() -> None:
    seven = [90.0] * 7
    assert outcome(seven) is Outcome.PASS
    assert decide(seven, AT_MOST, "ns", 0.95, any_time_valid=True).more == 1
    assert outcome([90.0] * 8, any_time_valid=True) is Outcome.PASS


def test_how_many_more_is_what_it_then_takes() -> None:
    """Values that fall on both sides of the bound as before decide after about as many more as was said."""
    random = np.random.default_rng(3)
    values = list(random.normal(97, 5, 12))
    decision = decide(values, AT_MOST, "ns", 0.95, any_time_valid=True)
    assert decision.outcome is Outcome.INCONCLUSIVE
    assert decision.more is not None
    while decide(values, AT_MOST, "ns", 0.95, any_time_valid=True).outcome is Outcome.INCONCLUSIVE:
        values.append(float(random.normal(97, 5)))
    assert len(values) - 12 <= 4 * decision.more + 8


def test_a_tie_with_the_bound_cannot_be_decided_in_any_number() -> None:
    decision = decide([99.0, 101.0] * 100, AT_MOST, "ns", 0.95)
    assert decision.outcome is Outcome.INCONCLUSIVE
    assert decision.more is None


def test_wrong_verdicts_are_as_rare_as_promised() -> None:
    """The true median lies just beyond the bound; passing is an error."""
    random = np.random.default_rng(11)
    passes = sum(
        decide(list(random.normal(100.001, 5, 10)), AT_MOST, "ns", 0.95).outcome is Outcome.PASS for _ in range(800)
    )
    assert passes / 800 <= 0.05
