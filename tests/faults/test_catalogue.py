"""Every scenario of the catalogue leads to the outcome that stands in its file, and so in docs/faults.md."""

from __future__ import annotations

from pathlib import Path

import pytest
from fault_catalogue import Outcome, Scenario, merged, scenarios, table

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("private_state", "any_agent")]

PAGE = Path(__file__).parents[2] / "docs/faults.md"


def _marked(scenario: Scenario) -> object:
    marks = [pytest.mark.slow] if scenario.told.get("slow") else []
    return pytest.param(scenario, id=scenario.name, marks=marks)


@pytest.mark.parametrize("scenario", [_marked(one) for one in scenarios()])
def test_the_report_makes_of_it_what_the_catalogue_says(scenario: Scenario, tmp_path: Path) -> None:
    faulty, control = (scenario.execute(tmp_path / str(fault), fault=fault) for fault in (True, False))
    judged = scenario.judge(faulty, control)
    assert judged.outcome is scenario.outcome, judged
    if scenario.knows_figures:
        without = scenario.judge(control, faulty)
        assert without.claimed, "the control has no such figure, so that its absence would prove nothing"


def test_what_is_not_right_says_what_can_be_relied_on() -> None:
    for one in scenarios():
        assert (one.outcome is Outcome.RIGHT) != bool(one.expected.get("bound")), one.name


def test_the_numbers_go_on_without_a_gap() -> None:
    assert [int(one.name[:2]) for one in scenarios()] == list(range(1, len(scenarios()) + 1))


def test_the_page_has_the_table_and_its_counts() -> None:
    assert PAGE.read_text() == table()


def test_a_fault_changes_what_it_names_and_leaves_the_rest() -> None:
    assert merged({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 4}}) == {"a": {"b": 4, "c": 2}, "d": 3}
