"""How a cell was measured is known from its plan, and only what concerns it."""

from __future__ import annotations

from typing import Any

import pytest
from compared_runs import plan_text
from synthetic import arm_record, manifest

from virtgauge.execution.prepare import check_plan
from virtgauge.plan.load import PlanError, parse_plan, preset_text
from virtgauge.plan.model import DesignScope, Plan
from virtgauge.suites.cell_settings import differing, plan_of, settings_of
from virtgauge.suites.registry import SUITES


def plan_with(suite: str, **settings: Any) -> Plan:
    platform = [{"name": "a", "kind": "simulated"}]
    return Plan.model_validate({"platform": platform, "reference": "a", "suite": {suite: [settings]}})


def changed(suite: str, common: dict[str, Any], one: dict[str, Any], other: dict[str, Any]) -> dict[str, list[str]]:
    """By probe and load, what two plans differ in."""
    first, second = (settings_of(plan_with(suite, **common, **settings)) for settings in (one, other))
    assert first.keys() == second.keys()
    return {
        f"{key[1]} {dict(key[2]).get('load', dict(key[2]).get('operation'))}": differing(first[key], second[key])
        for key in first
    }


@pytest.mark.parametrize(
    "preset", ["quick", "storage-quick", "forwarding-quick", "isolation-quick", "bandwidth-quick", "paper:all"]
)
def test_every_cell_of_a_preset_has_its_settings(preset: str) -> None:
    plan = parse_plan(preset_text(preset), preset)
    cells = {
        cell.figures_key
        for name, designs in plan.suite.items()
        for design in designs
        for cell in SUITES[name].create(DesignScope.split(design)[1]).cells()
    }
    assert settings_of(plan).keys() == cells
    assert all(settings_of(plan).values())


def test_the_number_of_sleeps_concerns_sleeps_only() -> None:
    common = {"timers": ["rdtsc"], "sleeps": ["usleep"], "slacks": ["default"], "loads": ["idle", "cpu"]}
    found = changed("timing", common, {"sleep_samples": 500}, {"sleep_samples": 5000})
    assert {cell for cell, words in found.items() if words} == {"sleep_lateness idle", "sleep_lateness cpu"}
    assert found["sleep_lateness cpu"] == ["sleep_samples 500 and 5000"]
    found = changed("timing", common, {"cpu_threads": 10}, {})
    assert {cell for cell, words in found.items() if words} == {"timer_cost cpu", "sleep_lateness cpu"}


def test_the_objective_concerns_the_knee_only() -> None:
    common = {"databases": ["sqlite"], "operations": ["single-write", "knee"]}
    found = changed("storage", common, {"objective_ms": 5.0}, {})
    assert {cell.split()[0] for cell, words in found.items() if words} == {"knee"}


def test_what_no_figure_depends_on_does_not_matter_and_durations_do() -> None:
    assert not any(changed("timing", {}, {"reservoir": 7}, {}).values())
    assert all(changed("isolation", {}, {"seconds": 1.0}, {}).values())


def test_which_platforms_a_design_is_for_is_no_setting_of_its_cells() -> None:
    found = changed("timing", {}, {"platforms": ["a"], "aa": False}, {})
    assert found
    assert not any(found.values())


def test_the_first_design_of_a_cell_counts_as_it_was_measured() -> None:
    design = {"timers": ["rdtsc"], "sleeps": [], "loads": ["idle"]}
    plan = plan_with("timing", **design, reads=1000)
    twice = plan.model_copy(update={"suite": {"timing": (*plan.suite["timing"], design | {"reads": 9999})}})
    (found,) = settings_of(twice).values()
    assert found["reads"] == 1000


def test_a_section_of_a_later_version_is_left_out_and_a_plan_of_one_is_none() -> None:
    assert settings_of(plan_with("timing", warp=9)) == {}
    assert settings_of(plan_with("telepathy", minds=2)) == {}
    arms = [arm_record("host", "host", "Host", "reference")]
    assert plan_of(manifest(arms, plan_text="warp = 9")) is None
    assert plan_of(manifest(arms, plan_text=plan_text())) is not None


@pytest.mark.parametrize(
    ("suite", "common", "one", "other", "refused"),
    [
        ("timing", {"loads": ["cpu"]}, {"cpu_threads": 100}, {"cpu_threads": 10}, True),
        ("timing", {"loads": ["idle"]}, {"cpu_threads": 100}, {"cpu_threads": 10}, False),
        ("bandwidth", {}, {"queue_ms": 10}, {"queue_ms": 100}, True),
        ("bandwidth", {"estimators": ["kite2", "yaz-original"]}, {"first_gap_us": 10}, {"first_gap_us": 40}, True),
        ("forwarding", {}, {"duration_sum_s": 21}, {"duration_sum_s": 42}, True),
        ("forwarding", {"guests": 2}, {"user_vectors": {"a": [1, 2]}}, {"user_vectors": {"a": [2, 1]}}, True),
        ("forwarding", {"guests": 2}, {"latency_loads": [50, 90]}, {"latency_loads": [90]}, False),
        ("forwarding", {"guests": 2}, {"load_curve": [30]}, {}, False),
        ("forwarding", {"guests": 3, "vectors": ["worst"]}, {"k": [1, 2]}, {"k": [3]}, True),
        ("forwarding", {"guests": 3, "vectors": ["worst"]}, {"k": [2, 1, 3]}, {}, False),
        ("forwarding", {"guests": 3}, {"k": [1, 2]}, {"k": [2, 3]}, False),
        ("isolation", {"benchmarks": ["integer"]}, {"cpus": [0]}, {}, True),
        ("isolation", {"benchmarks": ["integer"]}, {"seconds": 1}, {"seconds": 5}, True),
        (
            "isolation",
            {"benchmarks": ["integer"], "loads": ["none"]},
            {"disk_file_mib": 8},
            {"disk_file_mib": 9},
            False,
        ),
        ("isolation", {"policies": ["none"], "loads": ["none"]}, {"seconds": 1}, {"seconds": 5}, False),
        ("isolation", {"policies": ["none"], "loads": ["none"]}, {"memory_mib": 512}, {"memory_mib": 600}, False),
        ("timing", {"timers": ["rdtsc"]}, {}, {"cycles": {"periods_us": [1000], "seconds": 1}}, False),
        ("storage", {"databases": ["sqlite"]}, {"pipeline": 64, "write_modes": ["default"]}, {"pipeline": 32}, False),
        ("forwarding", {"guests": 2, "k": [1]}, {"user_vectors": {"a": [1, 2]}}, {}, False),
        ("bandwidth", {"cross_mbps": [0]}, {"cross_packet_bytes": 200}, {"cross_packet_bytes": 1500}, False),
    ],
)
def test_designs_of_the_same_cells_in_which_something_differs_that_concerns_them_are_refused(
    suite: str, common: dict[str, Any], one: dict[str, Any], other: dict[str, Any], refused: bool
) -> None:
    """Else the first would be measured for both."""
    designs = [common | one, common | other]
    platform = [{"name": "a", "kind": "simulated"}]
    plan = Plan.model_validate({"platform": platform, "reference": "a", "suite": {suite: designs}})
    if not refused:
        check_plan(plan, "my.toml")
        return
    with pytest.raises(PlanError, match=f"the same cells with {next(iter(one))}") as caught:
        check_plan(plan, "my.toml")
    assert "one of them would not be measured" in str(caught.value)


@pytest.mark.parametrize("further", [{"latency_loads": [50, 90]}, {"latency_loads": [50], "load_curve": [90]}])
def test_a_load_that_the_first_design_of_a_cell_has_not_is_named(further: dict[str, Any]) -> None:
    """Cells of several designs are measured as the first says: loads of a later one would be lost."""
    designs = [{"guests": 2, "latency_loads": [50]}, {"guests": 2, **further}]
    platform = [{"name": "a", "kind": "simulated"}]
    plan = Plan.model_validate({"platform": platform, "reference": "a", "suite": {"forwarding": designs}})
    with pytest.raises(PlanError, match="does not measure at 90 % of the throughput"):
        check_plan(plan, "my.toml")
    check_plan(plan.model_copy(update={"suite": {"forwarding": tuple(reversed(designs))}}), "my.toml")


def test_two_existing_servers_of_one_name_in_two_designs_are_refused() -> None:
    common = {"databases": [], "operations": ["single-write"]}
    one, other = (
        common | {"server": [{"name": "mine", "database": "postgresql", "uri": f"postgresql://127.0.0.1:{port}/db"}]}
        for port in (5432, 5433)
    )
    plan = Plan.model_validate(
        {"platform": [{"name": "a", "kind": "host"}], "reference": "a", "suite": {"storage": [one, other]}}
    )
    with pytest.raises(PlanError, match="another server of the name 'mine'"):
        check_plan(plan, "my.toml")
    check_plan(plan.model_copy(update={"suite": {"storage": (one, one)}}), "my.toml")
