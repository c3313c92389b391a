"""Valid trials without the figure: they count against what the others say."""

from __future__ import annotations

import tempfile
from collections.abc import Collection
from pathlib import Path

import pytest
from judged import DURATION, run_of

from virtgauge.analysis.bounds import Outcome
from virtgauge.decisions.requirements import resolve
from virtgauge.decisions.verdicts import Judge, Verdict
from virtgauge.plan.requirements import Requirement
from virtgauge.report.requirements import margin_text, more_text
from virtgauge.specs.suites import MEASURES


def verdict(
    figures: int, silent: int, value: float, *, end: str = "at_most", failed: Collection[int] = (), of: str = "median"
) -> Verdict:
    """On "at most 100 ns" after so many repetitions with a figure, and so many without; some failed at first."""
    durations = {block: value + 0.01 * block if block < figures else None for block in range(figures + silent)}
    required = Requirement.model_validate(
        {"suite": "bandwidth", "measure": DURATION.name, "unit": "ns", "of": of, end: 100}
    )
    requirements = resolve([required], None, ["host"], 0.95, "test")
    with tempfile.TemporaryDirectory() as folder:
        table = run_of(Path(folder) / "run", durations, failed=failed)
        (found,) = Judge(requirements, table, any_time_valid=True).verdicts()
        table.ledger.close()
    return found


def test_a_bound_is_not_met_where_many_repetitions_are_silent() -> None:
    found = verdict(figures=18, silent=3, value=50)
    assert found.outcome is Outcome.INCONCLUSIVE
    assert "3 of 21 valid repetitions have no such figure" in found.reason
    assert "the answer is a lower bound" in found.reason
    assert "longer trials" not in found.reason, "which would not help here"
    assert found.more is None
    assert not found.cells[0].open, "more repetitions would be as silent"


def test_what_a_path_does_not_tell_is_not_put_down_to_the_estimate() -> None:
    lacking = {name: MEASURES["bandwidth"][name].lacking for name in ("error", "path.link_lateness.p99", "discarded")}
    assert "the answer is a lower bound" in lacking.pop("error")
    assert set(lacking.values()) == {""}


def test_no_number_of_repetitions_is_promised_where_every_one_is_silent() -> None:
    found = verdict(figures=0, silent=6, value=50)
    assert found.outcome is Outcome.INCONCLUSIVE
    assert "6 of 6 valid repetitions have no such figure" in found.reason
    assert (found.cells[0].open, found.more, more_text(found)) == (False, None, "")


def test_what_the_reference_does_not_tell_counts_as_silent_in_a_ratio(tmp_path: Path) -> None:
    required = Requirement(suite="bandwidth", measure=DURATION.name, unit="x", at_most=2, compared_with="reference")
    requirements = resolve([required], None, ["host", "gvisor"], 0.95, "test")
    of_reference = {block: 100.0 if block < 12 else 0.0 for block in range(20)}
    table = run_of(tmp_path / "run", of_reference, gvisor_ns={block: 100.0 for block in range(20)})
    (found,) = Judge(requirements, table, any_time_valid=True).verdicts()
    table.ledger.close()
    assert found.outcome is Outcome.INCONCLUSIVE
    assert "8 of 20 valid repetitions have no such figure beside the reference" in found.reason


def test_repetitions_that_failed_whatever_was_tried_are_silent() -> None:
    found = verdict(figures=18, silent=0, value=50, failed=[18, 19, 20])
    assert found.outcome is Outcome.INCONCLUSIVE
    assert "3 of 21 repetitions have no such figure, and 3 of them failed (failed: the guest died)" in found.reason
    assert found.cells[0].open, "others may not fail"
    assert not verdict(figures=18, silent=3, value=50, failed=[21]).cells[0].open, "those that lack it are as many"
    assert verdict(figures=18, silent=0, value=50, failed=[18, 19]).outcome is Outcome.PASS
    assert verdict(figures=18, silent=0, value=50, failed=[0, 1, 2]).outcome is Outcome.PASS, "valid when tried again"
    assert verdict(figures=18, silent=0, value=150, failed=[18, 19, 20]).outcome is Outcome.FAIL


def test_of_every_repetition_nothing_is_known_where_one_is_silent() -> None:
    assert verdict(figures=80, silent=0, value=50, of="every").outcome is Outcome.PASS
    found = verdict(figures=80, silent=1, value=50, of="every")
    assert (found.outcome, found.reason.partition(":")[0]) == (
        Outcome.INCONCLUSIVE,
        "1 of 81 valid repetitions have no such figure",
    )


def test_a_ratio_of_zero_is_not_held_against_differences(tmp_path: Path) -> None:
    """A single repetition of identical arms gives no band; their difference is none of a ratio."""
    required = Requirement(suite="bandwidth", measure=DURATION.name, unit="x", at_most=1, compared_with="reference")
    requirements = resolve([required], None, ["host", "gvisor"], 0.95, "test")
    of = {block: 100.0 for block in range(20)}
    for identical, outcome in ({0: 100.0}, Outcome.INCONCLUSIVE), ({**of, 0: 99.0}, Outcome.PASS):
        table = run_of(tmp_path / outcome, of, gvisor_ns=dict.fromkeys(of, 0.0), aa_ns=identical)
        found = next(one for one in Judge(requirements, table, any_time_valid=True).verdicts() if one.arm == "gvisor")
        table.ledger.close()
        assert found.outcome is outcome
        assert ("the A/A pair gave no interval yet" in found.reason) is (outcome is Outcome.INCONCLUSIVE)


@pytest.mark.parametrize("silent", [0, 2])
def test_few_silent_repetitions_change_nothing(silent: int) -> None:
    assert verdict(figures=18, silent=silent, value=50).outcome is Outcome.PASS


def test_a_bound_that_is_not_met_stays_so() -> None:
    assert verdict(figures=18, silent=6, value=150).outcome is Outcome.FAIL


def test_what_a_few_repetitions_leave_undecided_stays_open_unless_they_are_silent() -> None:
    undecided = verdict(figures=2, silent=0, value=50)
    assert (undecided.outcome, undecided.cells[0].open) == (Outcome.INCONCLUSIVE, True)
    hopeless = verdict(figures=2, silent=6, value=50)
    assert (hopeless.outcome, hopeless.cells[0].open, hopeless.more) == (Outcome.INCONCLUSIVE, False, None)


def test_what_is_far_from_its_bound_is_told_as_a_multiple_of_it() -> None:
    assert margin_text(verdict(figures=18, silent=0, value=2900, end="at_least").decisive) == "29.0 times the bound"
    assert margin_text(verdict(figures=18, silent=0, value=1190).decisive) == "11.9 times the bound"
    assert margin_text(verdict(figures=18, silent=0, value=150).decisive) == "50.1 % beyond the bound"
