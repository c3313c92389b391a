from __future__ import annotations

from collections.abc import Collection

from virtgauge.execution.prepare import check_plan, first_figures
from virtgauge.plan.load import load_plan, parse_plan
from virtgauge.plan.model import Plan


def before(plan: Plan, missing: Collection[str]) -> Plan | None:
    return first_figures(plan, check_plan(plan, "x"), missing)


def test_host_and_container_come_before_what_has_to_be_built() -> None:
    plan, _ = load_plan("quick")
    first = before(plan, ["gvisor", "kernel", "sensorstore", "ganesha"])
    assert first is not None
    assert [section.name for section in first.platform] == ["host", "runc"]
    assert first.suite == {"timing": plan.suite["timing"][:1]}
    assert (first.repetitions, first.aa, first.requirements, first.budget) == (plan.repetitions, False, (), None)
    assert check_plan(first, "x").cells


def test_where_nothing_is_missing_the_run_itself_comes_first() -> None:
    plan, _ = load_plan("quick")
    assert before(plan, []) is None


def test_a_reference_alone_is_no_figure() -> None:
    plan, _ = load_plan("quick")
    assert before(plan, ["runc", "gvisor", "kernel"]) is None


def test_a_reference_that_has_to_be_built_is_waited_for() -> None:
    plan, _ = load_plan("quick")
    assert before(plan.model_copy(update={"reference": "gvisor"}), ["gvisor"]) is None


def test_a_design_that_lacks_something_or_leaves_a_platform_out_is_passed_over() -> None:
    text = """
        [[platform]]
        name = "host"
        kind = "host"
        [[platform]]
        name = "runc"
        kind = "oci"
        [[platform]]
        name = "gvisor"
        kind = "oci"
        runtime = "runsc"
        [[suite.timing]]
        loads = ["io"]
        [[suite.timing]]
        loads = ["cpu"]
        platforms = ["host", "gvisor"]
        [[suite.timing]]
        loads = ["idle"]
    """
    plan = parse_plan(text, "x")
    first = before(plan, ["gvisor", "ganesha"])
    assert first is not None
    assert first.suite == {"timing": plan.suite["timing"][2:]}


def test_a_design_of_hours_is_no_first_look() -> None:
    plan, _ = load_plan("quick")
    long = {"timing": ({**plan.suite["timing"][0], "max_seconds": 60.0, "reads": 10_000_000_000},)}
    assert before(plan.model_copy(update={"suite": long}), ["gvisor"]) is None
    many = before(plan.model_copy(update={"repetitions": 500}), ["gvisor"])
    assert many is not None
    assert many.repetitions == 6
