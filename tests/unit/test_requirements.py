"""Requirements of a plan: what is refused before anything is started, and what is understood."""

from __future__ import annotations

from typing import Any

import pytest
from suites.simulated_runs import plan_of, simulated

from virtgauge.decisions.requirements import resolve
from virtgauge.errors import UsageError
from virtgauge.execution.prepare import check_plan
from virtgauge.plan.load import load_plan, parse_plan, preset_names
from virtgauge.plan.requirements import Requirement, load_profile, profile_names
from virtgauge.results.columns import Cell
from virtgauge.results.measure import Better

CELLS: list[Cell] = [
    Cell("timing", "timer_cost", (("function", "rdtsc"), ("load", "idle"))),
    Cell("timing", "timer_cost", (("function", "rdtsc"), ("load", "cpu"))),
    Cell("timing", "sleep_lateness", (("function", "usleep"), ("target_ns", "100000"), ("load", "idle"))),
]
TIMER = {"suite": "timing", "measure": "timer_cost.p50", "at_most": 100, "unit": "ns"}


def required(**fields: Any) -> Requirement:
    return Requirement.model_validate(TIMER | fields)


def refusal(*requirements: Requirement) -> str:
    with pytest.raises(UsageError) as refused:
        resolve(requirements, CELLS, ["host", "gvisor"], 0.95, "my.toml")
    assert refused.value.remedy
    return str(refused.value)


def test_what_is_understood() -> None:
    (one,) = resolve([required(at_most=2.5, unit="µs")], CELLS, ["host", "gvisor"], 0.95, "my.toml")
    assert one.bound.at_most == 2500
    assert one.better is Better.LOWER
    assert one.platforms == ("host", "gvisor")
    assert [one.covers(cell) for cell in CELLS] == [True, True, False]


def test_a_bound_over_hours_is_one_of_its_time() -> None:
    never = required(measure="cycle.max", at_most=120, unit="us", during="1.5 d")
    seldom = required(measure="cycle.missed_count", at_most=1, unit="", per="1 h")
    cells = [Cell("timing", "cycle", (("function", "cycle"), ("load", "idle")))]
    found = resolve([never, seldom], cells, ["host"], 0.95, "my.toml")
    assert [one.required.over_s for one in found] == [129_600, 3600]
    assert [one.text for one in found] == ["cycle.max ≤ 120 us during 1.5 d", "cycle.missed_count ≤ 1 per 1 h"]
    assert all(one.watch is not None for one in found)


def test_conditions_narrow_and_may_have_several_levels() -> None:
    idle, both = resolve(
        [required(conditions={"load": "idle"}), required(conditions={"load": ["idle", "cpu"]})],
        *(CELLS, ["host"], 0.95, "my.toml"),
    )
    assert [idle.covers(cell) for cell in CELLS] == [True, False, False]
    assert [both.covers(cell) for cell in CELLS] == [True, True, False]
    assert idle.name != both.name, "each has a name of its own"


def test_numbers_may_be_levels() -> None:
    (one,) = resolve(
        [required(measure="sleep_lateness.p50", conditions={"target_ns": 100_000})], CELLS, ["host"], 0.95, "my.toml"
    )
    assert one.covers(CELLS[2])


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"suite": "timming"}, ["require[0].suite = 'timming'", "use one of timing"]),
        ({"measure": "timer_cost.p5"}, ["measure = 'timer_cost.p5'", "did you mean 'timer_cost.p50'"]),
        ({"unit": "nsec"}, ["unit = 'nsec'", "duration", "ns, µs"]),
        ({"unit": "op/s"}, ["unit = 'op/s'"]),
        ({"platforms": ["xen"]}, ["platforms: 'xen' is no platform of the plan", "host, gvisor"]),
        ({"conditions": {"lod": "idle"}}, ["conditions.lod", "did you mean 'load'"]),
        ({"conditions": {"load": "io"}}, ["conditions.load = io: no trial of the plan has it", "cpu, idle"]),
        (
            {"measure": "sleep_lateness.max", "unit": "us", "during": "24 h"},
            ["during = '24 h': sleep_lateness.max is of no trial that watches for a time", "require cycle.max"],
        ),
        (
            {"measure": "cycle.longest_missed", "unit": "", "at_most": 2, "per": "1 h"},
            ["per = '1 h': cycle.longest_missed counts no events", "require cycle.missed_count"],
        ),
        (
            {"measure": "cycle.missed_count", "unit": "", "at_most": 37, "per": "1 h"},
            ["per = '1 h': so many are not told apart", "at most 36 an hour"],
        ),
        ({"suite": "storage", "measure": "throughput", "unit": "op/s"}, ["no trial of the plan measures storage"]),
    ],
)
def test_refusals_name_field_value_and_remedy(fields: dict[str, Any], words: list[str]) -> None:
    text = refusal(required(**fields))
    for word in ["my.toml", *words]:
        assert word in text


def test_conditions_that_no_trial_has_at_once() -> None:
    text = refusal(required(measure="sleep_lateness.p50", conditions={"load": "cpu"}))
    assert "conditions.load = cpu" in text


def test_contradictions_are_refused() -> None:
    text = refusal(required(name="low"), required(name="high", at_most=None, at_least=200, conditions={"load": "cpu"}))
    assert "contradict" in text
    assert "'low'" in text and "'high'" in text
    assert "200 ns" in text and "100 ns" in text


def test_bounds_on_different_cells_or_platforms_do_not_contradict() -> None:
    low = required(conditions={"load": "idle"}, platforms=["host"])
    elsewhere = required(at_most=None, at_least=200, conditions={"load": "cpu"})
    other = required(at_most=None, at_least=200, platforms=["gvisor"])
    assert len(resolve([low, elsewhere], CELLS, ["host", "gvisor"], 0.95, "my.toml")) == 2
    assert len(resolve([low, other], CELLS, ["host", "gvisor"], 0.95, "my.toml")) == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('suite="timing"\nmeasure="timer_cost.p50"\nunit="ns"', "needs a bound"),
        ('suite="timing"\nmeasure="timer_cost.p50"\nunit="ns"\nat_least=5\nat_most=4', "nothing can meet both"),
        ('suite="timing"\nmeasure="timer_cost.p50"\nat_most=4', "require[0].unit: missing"),
        ('suite="timing"\nmeasure="timer_cost.p50"\nunit="ns"\nat_mots=4', "at_mots"),
        ('suite="timing"\nmeasure="timer_cost.p50"\nunit="ns"\nat_most=4\nconfidence=1.2', "confidence = 1.2"),
        (
            'suite="timing"\nmeasure="cycle.max"\nunit="us"\nat_most=4\nduring="24"',
            "during = '24': give a number above 0",
        ),
        ('suite="timing"\nmeasure="cycle.max"\nunit="us"\nat_most=4\nduring="0 h"', "during = '0 h'"),
        ('suite="timing"\nmeasure="cycle.max"\nunit="us"\nat_least=4\nduring="24 h"', "go with at_most"),
        ('suite="timing"\nmeasure="cycle.max"\nunit="us"\nat_most=4\nduring="1 h"\nper="1 h"', "give one of them"),
        ('suite="timing"\nmeasure="cycle.missed_count"\nunit=""\nat_most=0\nper="1 h"', "can be shown for no time"),
    ],
)
def test_malformed_requirements_name_the_field(text: str, words: str) -> None:
    plan = '[[platform]]\nname="host"\nkind="host"\n[[suite.timing]]\n[[require]]\n' + text
    with pytest.raises(UsageError) as refused:
        parse_plan(plan, "my.toml")
    assert words in str(refused.value)


def test_a_budget_must_fit() -> None:
    with pytest.raises(ValueError, match="nothing to decide"):
        plan_of(simulated("a"), budget={"repetitions": 9})
    with pytest.raises(ValueError, match="is less than repetitions = 6"):
        plan_of(simulated("a"), budget={"repetitions": 3}, require=[TIMER])


def test_an_unknown_profile_is_refused_with_the_nearest() -> None:
    plan = plan_of(simulated("a"), profile=["iot-gateway"])
    with pytest.raises(UsageError, match="did you mean 'iiot-gateway'"):
        check_plan(plan, "my.toml")


def test_every_profile_names_its_sources_and_has_a_preset_that_covers_it() -> None:
    assert profile_names() == [
        *("edge-soft-realtime", "iiot-gateway", "multi-tenant-edge", "sensor-store", "time-critical-network"),
        *("vpac-substation", "vplc"),
    ]
    for name in profile_names():
        assert all(one.source and one.name for one in load_profile(name).require)
        assert name in preset_names()
        plan, source = load_plan(name)
        assert plan.profile == (name,)
        assert len(check_plan(plan, source).requirements) == len(load_profile(name).require)


@pytest.mark.parametrize("name", ["vplc", "vpac-substation", "edge-soft-realtime"])
def test_a_profile_of_hours_has_a_short_form_of_ten_minutes_and_a_full_one_that_can_decide(name: str) -> None:
    (short, source), (full, _) = load_plan(name), load_plan(f"full:{name}")
    assert full.profile == short.profile == (name,)
    seconds = sum(cell.expected_s for cell in check_plan(short, source).cells)
    assert 8 * 60 < seconds * short.repetitions * len(short.platform) < 10 * 60
    assert full.budget is not None and full.repetitions_per_guest > 1
    (cell,) = check_plan(full, source).cells
    watched_s = full.budget.repetitions * cell.params["max_ns"] / 1e9
    assert all(watched_s >= (one.over_s or 0) * (4.6 if one.per else 1) for one in full.requirements)
