"""Replays of the papers as plans: in short, on the platforms at hand, and each design for its own."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from suites.simulated_runs import execute, plan_of, simulated
from typer.testing import CliRunner

from virtgauge.cli import app
from virtgauge.errors import UsageError
from virtgauge.execution.prepare import check_plan
from virtgauge.execution.run import new_run_folder
from virtgauge.ledger.records import TrialStatus
from virtgauge.ledger.store import Ledger
from virtgauge.plan.load import ALL, load_plan, parse_plan, preset_names, preset_text
from virtgauge.plan.model import DesignScope, scopes_of

pytestmark = pytest.mark.slow

SUITES = {"timing", "bandwidth", "forwarding", "storage", "isolation"}
PAPERS = tuple(name for name in preset_names() if name.startswith("paper:"))
PARTS = tuple(name for name in PAPERS if name != ALL)
BASE = """
[[platform]]
name = "host"
kind = "host"
[[suite.timing]]
"""


def test_there_is_one_for_each_suite_and_one_of_all() -> None:
    assert {name.removeprefix("paper:") for name in PARTS} == SUITES
    with pytest.raises(UsageError, match="did you mean 'paper:timing'"):
        preset_text("paper:timings")


def test_all_has_the_designs_of_every_part_for_its_platforms() -> None:
    composed, source = load_plan(ALL)
    assert set(composed.suite) == SUITES
    design = check_plan(composed, source)
    arms = {(name, False) for name in design.platforms} | {(composed.reference, True)}
    for name in PARTS:
        part, part_source = load_plan(name)
        (suite,) = part.suite
        own = check_plan(part, part_source)
        mine = {cell.key for cell in design.cells if cell.suite == suite}
        assert mine == {cell.key for cell in own.cells}
        for key, (platform, aa) in ((key, arm) for key in mine for arm in arms):
            measured = any(scope.is_for(platform, aa=aa, emulated=False) for scope in design.scopes[key])
            alone = any(scope.is_for(platform, aa=aa, emulated=False) for scope in own.scopes[key])
            there = platform in own.platforms and (not aa or part.aa) and alone
            assert measured == there, (key, platform, aa)


def test_all_measures_what_its_parts_measure_and_nothing_else() -> None:
    plans = {name: load_plan(name)[0] for name in PAPERS}
    trials = {}
    for name, plan in plans.items():  # of all of them there is one reference, and so one A/A arm
        alike = plan.model_copy(update={"aa": plan.aa and plan.reference == plans[ALL].reference})
        trials[name] = check_plan(alike, name).trials_of_a_repetition(alike)
    assert trials[ALL] == sum(trials[name] for name in PARTS)


def test_a_server_of_one_processor_has_all_databases_and_one_client() -> None:
    design = check_plan(*load_plan("paper:storage"))
    own = [cell.factors for cell in design.cells_of("uml")]
    assert {one["database"] for one in own} == {"postgresql", "mongodb", "cassandra"}
    assert {one["clients"] for one in own} == {"1"}
    others = [cell.factors for cell in design.cells_of("qemu-microvm")]
    assert own == [one for one in others if one["clients"] == "1"], "of which each cell has its physical server"


@pytest.mark.parametrize("platform", ["host", "qemu-microvm", "uml"])
@pytest.mark.parametrize("name", ["paper:storage", "storage-2012"])
def test_two_servers_are_compared_by_writes_to_the_machines_own_disk(name: str, platform: str) -> None:
    own = [cell.factors for cell in check_plan(*load_plan(name)).cells_of(platform)]
    writes = {(one["database"], one["operation"]) for one in own if one["flushes"] == "as-is"}
    assert writes == {("postgresql", "single-write"), ("postgresql", "multi-write")}


@pytest.mark.parametrize("platform", ["host", "qemu-microvm", "uml"])
def test_the_afternoons_design_of_storage_has_all_that_the_short_form_has_and_nothing_that_decides_nothing(
    platform: str,
) -> None:
    short, longer = (
        [cell.factors for cell in check_plan(*load_plan(name)).cells_of(platform)]
        for name in ("paper:storage", "storage-2012")
    )
    assert not [one for one in short if one not in longer]
    assert ({one["clients"] for one in longer} == {"1"}) is (platform == "uml"), "of one processor"


@pytest.mark.parametrize("name", PAPERS)
def test_a_replay_can_decide_at_the_confidence_it_asks_for(name: str) -> None:
    plan, _ = load_plan(name)
    # The smallest to the largest of n values holds the median with the confidence 1 − 2^(1 − n).
    assert plan.budget is not None
    asked = plan.budget.claims_confidence(plan.confidence, plan.repetitions)
    assert 1 - 2 ** (1 - plan.repetitions) >= asked
    assert 1 - 2 ** (2 - plan.repetitions) < asked


def test_a_replay_that_is_shown_and_written_out_is_the_same_plan() -> None:
    plan = parse_plan(preset_text(ALL), "shown")
    again = parse_plan(plan.to_toml(), "again")
    assert again == plan
    assert tomllib.loads(preset_text(ALL))["name"] == ALL


def test_the_folder_of_a_replay_has_a_plain_name(tmp_path: Path) -> None:
    assert ":" not in new_run_folder(tmp_path, ALL).name


@pytest.mark.parametrize("name", PAPERS)
def test_the_commands_take_a_replay_as_any_preset(name: str) -> None:
    runner = CliRunner()
    assert name in runner.invoke(app, ["plan", "list"]).stdout
    shown = runner.invoke(app, ["plan", "show", name])
    assert tomllib.loads(shown.stdout)["name"] == name
    checked = runner.invoke(app, ["plan", "check", name])
    assert checked.exit_code == 0
    plan, source = load_plan(name)
    trials = check_plan(plan, source).trials_of_a_repetition(plan) * plan.repetitions
    assert f" {trials} trials" in checked.stdout


# -- designs for some platforms ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('platforms = ["hsot"]', "suite.timing[0].platforms: 'hsot' is no platform of the plan"),
        ("platforms = []", "suite.timing[0].platforms"),
        ('emulated = "perhaps"', "suite.timing[0].emulated"),
    ],
)
def test_a_scope_that_makes_no_sense_is_refused(lines: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_plan(parse_plan(f"{BASE}{lines}\n", "my.toml"), "my.toml")
    assert said in str(caught.value)
    assert caught.value.remedy


def test_a_scope_tells_platform_identical_arm_and_emulation_apart() -> None:
    scope = DesignScope(platforms=("host", "qemu"), aa=False, emulated=False)
    assert scope.is_for("host", aa=False, emulated=False)
    assert not scope.is_for("host", aa=True, emulated=False)
    assert not scope.is_for("qemu", aa=False, emulated=True)
    assert not scope.is_for("runc", aa=False, emulated=False)
    assert DesignScope().is_for("runc", aa=True, emulated=True)


@pytest.mark.parametrize("text", ["", "no TOML [", 'suite = "x"', "[[suite.timing]]\nplatforms = 7"])
def test_a_plan_that_cannot_be_read_limits_nothing(text: str) -> None:
    assert scopes_of(text, "timing") == []


def test_a_cell_is_measured_on_the_platforms_of_its_designs_alone(tmp_path: Path) -> None:
    plan = plan_of(simulated("a"), simulated("b"), simulated("c"), repetitions=2, aa=True)
    design = plan.suite["timing"][0]
    one = design | {"timers": ["rdtsc"], "platforms": ["a", "b"], "aa": False}
    other = design | {"timers": ["rdtscp"], "platforms": ["c"]}
    both = design | {"timers": ["clock_gettime"]}
    plan = plan.model_copy(update={"suite": {"timing": (one, other, both)}})
    complete, _ = execute(plan, tmp_path / "run")
    assert complete
    with Ledger.open(tmp_path / "run") as ledger:
        trials = [trial for trial in ledger.trials() if trial.status is TrialStatus.VALID]
    arms = {
        function: {trial.arm for trial in trials if trial.factors["function"] == function}
        for function in ("rdtsc", "rdtscp", "clock_gettime")
    }
    assert arms == {"rdtsc": {"a", "b"}, "rdtscp": {"c"}, "clock_gettime": {"a", "a-aa", "b", "c"}}
    assert len(trials) == 2 * check_plan(plan, "test").trials_of_a_repetition(plan)
