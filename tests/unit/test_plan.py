"""Plans: good ones load with their defaults, bad ones are refused with file, field, value and remedy."""

import textwrap
import tomllib

import pytest

from virtgauge.console.runs import overridden
from virtgauge.errors import UsageError
from virtgauge.execution.prepare import check_plan, load_checked
from virtgauge.ledger.store import LedgerWriteError
from virtgauge.plan.load import PlanError, load_plan, parse_plan, preset_names
from virtgauge.plan.model import without_platforms
from virtgauge.plan.requirements import Requirement
from virtgauge.platforms import KINDS
from virtgauge.suites.timing import TimingSuite

MINIMAL = """
[[platform]]
name = "host"
kind = "host"
[[suite.timing]]
"""


def refusal(text: str) -> str:
    with pytest.raises(UsageError) as caught:
        check_plan(parse_plan(textwrap.dedent(text), "my.toml"), "my.toml")
    return str(caught.value)


def test_a_minimal_plan_is_complete():
    plan = parse_plan(MINIMAL, "my.toml")
    design = check_plan(plan, "my.toml")
    assert plan.reference == "host"
    assert plan.seed is not None
    assert {cell.probe for cell in design.cells} == {"timer_cost", "sleep_lateness"}


def test_a_plan_written_out_reads_back_as_itself():
    plan = parse_plan(MINIMAL, "my.toml")
    assert parse_plan(plan.to_toml(), "again") == plan


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_passes_its_own_check(name):
    plan, source = load_plan(name)
    assert check_plan(plan, source).cells
    assert plan.name == name
    assert plan.description


@pytest.mark.parametrize("preset", ["paper:all", "storage-2012"])
@pytest.mark.parametrize("others", [[], ["uml"], ["qemu-microvm", "virtualbox"]])
def test_a_preset_is_narrowed_to_some_of_its_platforms(preset, others):
    plan, source = load_plan(preset)
    known = [section.name for section in plan.platform]
    kept = ["host", *(name for name in others if name in known)]
    narrowed = plan.narrowed_to(others)
    assert [section.name for section in narrowed.platform] == kept
    assert check_plan(narrowed, source).cells
    scopes = [design.get("platforms", kept) for designs in narrowed.suite.values() for design in designs]
    assert all(scope and set(scope) <= set(kept) for scope in scopes)


def test_what_is_of_left_out_platforms_alone_is_left_out_with_them():
    text = """
        repetitions = 3
        budget = {repetitions = 9}
        [[platform]]
        name = "host"
        kind = "host"
        [[platform]]
        name = "box"
        kind = "oci"
        [[suite.timing]]
        platforms = ["host", "box"]
        [[suite.bandwidth]]
        platforms = ["box"]
        [[require]]
        suite = "timing"
        measure = "timer_cost.p50"
        unit = "ns"
        at_most = 100
        platforms = ["box"]
    """
    plan = parse_plan(textwrap.dedent(text), "my.toml")
    alone = plan.narrowed_to(["host"])
    assert list(alone.suite) == ["timing"]
    assert (alone.require, alone.budget) == ((), None)
    assert parse_plan(alone.to_toml(), "again") == alone
    assert plan.narrowed_to(["box"]).require == plan.require
    assert not plan.model_copy(update={"suite": {"bandwidth": plan.suite["bandwidth"]}}).narrowed_to(["host"]).suite


@pytest.mark.parametrize("named", ["box", [["box"]], [{"box": 1}], [], 3])
def test_a_list_of_platforms_that_is_none_is_told_of_and_not_narrowed(named):
    design = {"platforms": named, "clients": 1}
    assert without_platforms(design, {"box"}) == design


def test_a_design_that_names_nothing_is_for_every_platform():
    plan = parse_plan(MINIMAL, "my.toml")
    assert plan.narrowed_to(["host"]).suite == plan.suite == {"timing": ({},)}


def test_options_narrow_a_plan_before_they_set_its_budget():
    plan, source = load_plan("paper:storage")
    more = overridden(plan, source, 100, None, ["uml"])
    assert (more.repetitions, more.budget and more.budget.repetitions) == (100, 100)
    assert parse_plan(more.to_toml(), "again") == more
    required = {"suite": "storage", "measure": "throughput", "unit": "/s", "at_least": 1, "platforms": ["uml"]}
    budget = plan.budget.model_copy(update={"claims": False})
    decided = plan.model_copy(update={"require": (Requirement.model_validate(required),), "budget": budget})
    alone = overridden(decided, source, 100, None, ["host"])
    assert (alone.repetitions, alone.budget, alone.require) == (100, None, ())
    assert overridden(decided, source, None, None, ["uml"]).budget == budget
    mistaken = plan.model_copy(update={"require": (Requirement.model_validate(required | {"suite": "storag"}),)})
    assert overridden(mistaken, source, None, None, ["uml"]).require == mistaken.require


def test_the_doctors_preset_has_every_kind_of_platform_that_needs_no_address():
    plan, _ = load_plan("platforms")
    assert {section.kind for section in plan.platform} == set(KINDS) - {"simulated", "attached"}


def test_the_papers_design_has_its_two_clocks_and_its_loads():
    plan, source = load_plan("full:timing-2019")
    cells = check_plan(plan, source).cells
    timers = {cell.factors["function"] for cell in cells if cell.probe == "timer_cost"}
    sleeps = {cell.factors["function"] for cell in cells if cell.probe == "sleep_lateness"}
    assert timers >= {"rdtscp", "clock_gettime"}
    assert sleeps >= {"usleep", "highpertimer"}
    assert {cell.factors["target_ns"] for cell in cells if cell.probe == "sleep_lateness"} == {
        *("10000", "100000", "1000000", "10000000")
    }
    assert {cell.factors["policy"] for cell in cells if "policy" in cell.factors} == {"other", "fifo"}
    assert {cell.factors["load"] for cell in cells} == {"idle", "cpu", "io"}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("not toml [", ["my.toml is not TOML"]),
        ("", ["my.toml", "platform: missing", "suite: missing"]),
        (MINIMAL.replace('"host"\nkind', '"vm one"\nkind'), ["platform[0].name = 'vm one'", "letters, digits"]),
        (MINIMAL.replace('name = "host"', 'name = "host-aa"'), ["host-aa", "A/A arm"]),
        (MINIMAL.replace('kind = "host"', 'kind = "vmware"'), ["platform[0].kind = 'vmware'", "use one of", "qemu"]),
        ("repetitons = 3\n" + MINIMAL, ["repetitons: unknown field", "did you mean 'repetitions'"]),
        ("repetitions = 0\n" + MINIMAL, ["repetitions = 0", "greater than or equal to 1"]),
        ("confidence = 1.5\n" + MINIMAL, ["confidence = 1.5", "less than 1"]),
        ('reference = "xen"\n' + MINIMAL, ["reference = 'xen'", "choose one of ['host']"]),
        (MINIMAL + 'timers = ["rdtcs"]', ["suite.timing[0].timers[0] = 'rdtcs'", "'rdtscp'"]),
        (MINIMAL + '[suite.timing.cycles]\nidle_states = ["deep"]', ["cycles.idle_states[0] = 'deep'", "'shallow'"]),
        (MINIMAL + "reads = 10", ["suite.timing[0].reads = 10", "1000"]),
        (MINIMAL + "targets_us = []", ["suite.timing[0].targets_us", "at least 1"]),
        (MINIMAL + "read = 5000", ["suite.timing[0].read: unknown field", "did you mean 'reads'"]),
        (MINIMAL + "timers = []\nsleeps = []", ["no cell to measure"]),
        (
            MINIMAL.replace("suite.timing", "suite.tming"),
            ["suite.tming", "use one of bandwidth, forwarding, isolation, storage, timing"],
        ),
        (MINIMAL + '[[platform]]\nname = "host"\nkind = "host"', ["two platforms are named 'host'"]),
        (MINIMAL + '[[platform]]\nname = "q"\nkind = "qemu"\nmachine = "mircovm"', ["platform[1].machine", "microvm"]),
        (MINIMAL + "[validity]\nforeign_load = 3.0", ["validity.foreign_load = 3.0"]),
    ],
)
def test_a_bad_plan_is_refused_with_field_value_and_remedy(text, wanted):
    message = refusal(text)
    for part in wanted:
        assert part in message
    assert "→" in message


def test_every_problem_is_told_at_once():
    message = refusal("repetitions = 0\nattempts = 0\n" + MINIMAL)
    assert "2 problems" in message


def test_an_unknown_preset_is_answered_with_the_nearest():
    with pytest.raises(UsageError, match="did you mean 'quick'"):
        load_plan("quik")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"cannot read the plan .*none\.toml"):
        load_plan(str(tmp_path / "none.toml"))


def test_a_file_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "x.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="cannot read the plan"):
        load_plan(str(tmp_path / "x.toml"))


def test_one_design_may_be_written_as_a_single_table():
    plan = parse_plan(MINIMAL.replace("[[suite.timing]]", "[suite.timing]"), "my.toml")
    assert len(plan.suite["timing"]) == 1


def test_two_designs_that_share_a_cell_measure_it_once():
    plan = parse_plan(MINIMAL + "[[suite.timing]]\n", "my.toml")
    keys = [cell.key for cell in check_plan(plan, "my.toml").cells]
    assert len(keys) == len(set(keys))


def test_a_written_out_plan_is_toml():
    assert tomllib.loads(parse_plan(MINIMAL, "x").to_toml())["name"] == "plan"


def test_a_cell_names_its_idle_states_only_where_they_are_not_the_default():
    settings = {"timers": [], "sleeps": ["usleep"], "slacks": ["default"], "loads": ["idle"]}
    plain = [cell.key for cell in TimingSuite.create(settings).cells()]
    both = [cell.key for cell in TimingSuite.create(settings | {"idle_states": ["default", "shallow"]}).cells()]
    assert both == [*plain, f"{plain[0]},idle_states=shallow"]
    assert "idle_states" not in plain[0]  # so that a run from before this factor can be resumed


MANY_MISTAKES = """
repetitons = 3
confidence = 1.5
[[platform]]
name = "host"
kind = "host"
[[platform]]
name = "vm one"
kind = "qemu"
[[platform]]
name = "q"
kind = "qemu"
machine = "mircovm"
[[platform]]
name = "w"
kind = "vmwar"
[[suite.timing]]
timers = ["rdtcs"]
platforms = ["hots"]
[[suite.tming]]
[[require]]
suite = "timing"
measure = "sleep_latenes.p99"
at_most = 1
unit = "us"
"""


def test_all_that_is_wrong_with_a_plan_is_told_at_once_a_line_each(tmp_path):
    (tmp_path / "p.toml").write_text(MANY_MISTAKES)
    with pytest.raises(UsageError) as caught:
        load_checked(str(tmp_path / "p.toml"))
    assert caught.value.exit_code == 2
    head, *lines = caught.value.message.splitlines()
    wanted = [
        ("repetitons", "did you mean 'repetitions'"),
        ("confidence = 1.5", "less than 1"),
        ("platform[1].name = 'vm one'", "letters"),
        ("platform[2].machine = 'mircovm'", "microvm"),
        ("platform[3].kind = 'vmwar'", "use one of"),
        ("suite.timing[0].platforms: 'hots'", "did you mean 'host'"),
        ("suite.timing[0].timers[0] = 'rdtcs'", "'rdtscp'"),
        ("suite.tming", "did you mean 'timing'"),
        ("require[0]", "sleep_lateness.p99"),
    ]
    assert [[field in line and remedy in line for line in lines].count(True) for field, remedy in wanted] == [1] * 9
    assert len(lines) == len(wanted)
    assert "9 problems" in head


DECIDED = (
    MINIMAL
    + """
[budget]
repetitions = 9
[[require]]
suite = "timing"
measure = "timer_cost.p50"
at_most = 1
unit = "us"
"""
)


@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        ("[[platform]]", "[[platfrom]]", "platfrom: unknown field; did you mean 'platform'?"),
        ("[[suite.timing]]", "[[siute.timing]]", "siute: unknown field; did you mean 'suite'?"),
        ("[[require]]", "[[requires]]", "requires: unknown field; did you mean 'require'?"),
        ("measure =", "measures =", "require[0].measures: unknown field; did you mean 'measure'?"),
        ("repetitions = 9", "repetition = 9", "budget.repetition: unknown field; did you mean 'repetitions'?"),
        ("[[suite.timing]]", '[[suite.timing]]\nloads = ["idel"]', "suite.timing[0].loads[0] = 'idel': "),
        ("[[suite.timing]]", "[[suite.timing]]\ntagets_us = [9]", "suite.timing[0].tagets_us: unknown field"),
    ],
)
def test_one_mistake_is_one_problem(tmp_path, right, wrong, told):
    (tmp_path / "p.toml").write_text(DECIDED)
    load_checked(str(tmp_path / "p.toml"))
    (tmp_path / "p.toml").write_text(DECIDED.replace(right, wrong))
    with pytest.raises(PlanError) as caught:
        load_checked(str(tmp_path / "p.toml"))
    (line,) = caught.value.lines
    assert line.startswith(told)


def test_what_does_not_fit_together_is_told_beside_a_wrong_field(tmp_path):
    twice = MINIMAL + MINIMAL.replace("[[suite.timing]]", "") + "[budget]\nrepetitions = 2\n"
    (tmp_path / "p.toml").write_text('confidence = 1.5\nreference = "hots"\n' + twice)
    with pytest.raises(UsageError) as caught:
        load_checked(str(tmp_path / "p.toml"))
    for words in (
        "confidence = 1.5",
        "two platforms are named 'host'",
        "did you mean 'host'?",
        "budget: there is nothing to decide",
        "budget.repetitions = 2 is less than",
    ):
        assert words in str(caught.value)


@pytest.mark.parametrize("name", ["a b/c", "../../evil", "", "-x", "a" * 81, "a\\nb"])
def test_a_plans_name_names_one_folder(tmp_path, name):
    (tmp_path / "p.toml").write_text(f'name = "{name}"\n{MINIMAL}')
    with pytest.raises(UsageError, match=r"name = .*: use 1 to 80 letters, digits"):
        load_plan(str(tmp_path / "p.toml"))


def test_a_scalar_in_place_of_a_list_is_shown_as_a_list():
    text = refusal(MINIMAL + "targets_us = 10000\nloads = 'cpu'\n")
    assert "targets_us = 10000: write a list: [10000]" in text
    assert 'write a list: ["cpu"]' in text


def test_type_in_place_of_kind_is_told():
    assert "kind: missing; write kind instead of type" in refusal(MINIMAL.replace("kind", "type"))


def test_the_folder_of_a_run_is_no_plan(tmp_path):
    (tmp_path / "ledger.sqlite").touch()
    with pytest.raises(UsageError, match="is the folder of a run") as caught:
        load_plan(str(tmp_path))
    assert f"virtgauge resume {tmp_path}" in str(caught.value)
    assert f"{tmp_path}/plan.toml" in str(caught.value)


def test_a_command_to_copy_names_a_folder_as_a_shell_takes_it(tmp_path):
    folder = tmp_path / "my run;reboot"
    folder.mkdir()
    (folder / "ledger.sqlite").touch()
    with pytest.raises(UsageError) as caught:
        load_plan(str(folder))
    assert f"`virtgauge resume '{folder}'`" in str(caught.value)
    assert f"`virtgauge run '{folder}/plan.toml'`" in str(caught.value)
    assert f"`virtgauge resume '{folder}'`" in str(LedgerWriteError(folder, OSError(28, "no space left")))
