"""The commands: what they print, and with which code they end."""

import dataclasses
import json

import pytest
from suites.simulated_runs import execute, plan_of, simulated
from typer.testing import CliRunner

from virtgauge import cli
from virtgauge.errors import ExitCode, UsageError, VirtgaugeError
from virtgauge.execution.run import run_to_ourselves
from virtgauge.host import reclaim
from virtgauge.provision import parts

pytestmark = pytest.mark.slow


@pytest.fixture
def invoke():
    return lambda *arguments: CliRunner().invoke(cli.app, [str(a) for a in arguments])


@pytest.fixture
def finished_run(tmp_path, private_state, any_agent):
    execute(plan_of(simulated("a"), simulated("b", seed=2), repetitions=2), tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.parametrize("command", [[], ["run"], ["resume"], ["report"], ["doctor"], ["clean"], ["plan"]])
def test_every_command_explains_itself(invoke, command):
    result = invoke(*command, "--help")
    assert result.exit_code == 0
    assert "Usage" in result.stdout


@pytest.mark.parametrize("command", ["run", "resume", "report", "doctor"])
def test_help_gives_an_example(invoke, command):
    told = invoke(command, "--help").stdout
    assert f"Example: virtgauge {command}" in told or f"Examples: virtgauge {command}" in told


def test_plan_list_names_every_preset(invoke):
    output = invoke("plan", "list").stdout
    assert "quick" in output
    assert "timing-2019" in output


def test_a_shown_preset_is_a_plan_of_its_own(invoke, tmp_path):
    (tmp_path / "mine.toml").write_text(invoke("plan", "show", "quick").stdout)
    result = invoke("plan", "check", tmp_path / "mine.toml")
    assert result.exit_code == 0
    assert "trials" in result.stdout


def test_the_shown_plan_with_defaults_says_the_seed(invoke):
    assert "seed = " in invoke("plan", "show", "quick", "--resolved").stdout


def test_plan_check_counts_the_design(invoke, tmp_path):
    (tmp_path / "p.toml").write_text(plan_of(simulated("a"), simulated("b"), repetitions=5, aa=True).to_toml())
    assert (
        "2 platforms and the A/A arm × 2 cells × 5 repetitions = 30 trials"
        in invoke("plan", "check", tmp_path / "p.toml").stdout
    )


def test_plan_check_counts_what_run_would_measure_of_some_platforms(invoke, tmp_path):
    (tmp_path / "p.toml").write_text(plan_of(simulated("a"), simulated("b"), simulated("c"), repetitions=5).to_toml())
    told = invoke("plan", "check", tmp_path / "p.toml", "--platform", "c").stdout
    assert "2 platforms × 2 cells × 5 repetitions = 20 trials" in told


def test_plan_check_names_what_says_why_a_platform_is_left_out(invoke, tmp_path, private_state, any_agent):
    file = tmp_path / "p.toml"
    file.write_text(plan_of(simulated("a"), simulated("b", seed=2, usable=False)).to_toml())
    assert (
        f"without b, which cannot be used here: `virtgauge doctor --plan {file}`"
        in invoke("plan", "check", file).stdout
    )


def test_an_unknown_platform_option_is_refused_with_the_known_ones(invoke):
    for command in (["run"], ["plan", "check"]):
        result = invoke(*command, "quick", "--platform", "vmware")
        assert isinstance(result.exception, UsageError)
        assert "use one of host, runc, gvisor, qemu-microvm" in str(result.exception)


def test_json_is_one_document_on_standard_output(invoke, finished_run):
    result = invoke("report", finished_run, "--format", "json")
    assert {cell["probe"] for cell in json.loads(result.stdout)["cells"]} == {"timer_cost"}


def test_a_report_goes_where_it_is_sent(invoke, finished_run, tmp_path):
    for name, beginning in (("x.html", "<!doctype html>"), ("x.txt", ""), ("x.json", "{")):
        kind = {"html": "html", "txt": "text", "json": "json"}[name.split(".")[1]]
        assert invoke("report", finished_run, "--format", kind, "--out", tmp_path / name).exit_code == 0
        assert (tmp_path / name).read_text().lower().startswith(beginning)


def test_a_report_that_cannot_be_written_names_the_file(invoke, finished_run, tmp_path):
    result = invoke("report", finished_run, "--format", "html", "--out", tmp_path / "no" / "such" / "folder.html")
    assert isinstance(result.exception, UsageError)
    assert "folder.html" in str(result.exception)


@pytest.mark.parametrize("kind", ["refuse", "unsupported"])
def test_a_run_without_a_single_valid_trial_is_no_success(invoke, tmp_path, private_state, any_agent, kind):
    faults = [{"kind": kind}]
    plan = plan_of(simulated("a", faults=faults), simulated("b", faults=faults), attempts=1, repetitions=2)
    (tmp_path / "p.toml").write_text(plan.to_toml())
    for words in (("run", tmp_path / "p.toml", "--out", tmp_path / "run"), ("resume", tmp_path / "run")):
        result = invoke(*words, "--quiet")
        assert type(result.exception) is VirtgaugeError
        assert result.exception.exit_code == ExitCode.FAILED == 1
        assert "not a single trial is valid" in str(result.exception)
        assert str(tmp_path / "run" / "report.html") in str(result.exception)
    assert (tmp_path / "run" / "report.html").exists()


def test_a_run_is_a_success_where_one_platform_has_a_valid_trial(invoke, tmp_path, private_state, any_agent):
    plan = plan_of(simulated("a"), simulated("b", faults=[{"kind": "refuse"}]), attempts=1, repetitions=2)
    (tmp_path / "p.toml").write_text(plan.to_toml())
    assert invoke("run", tmp_path / "p.toml", "--out", tmp_path / "run", "--quiet").exit_code == 0


def test_a_quiet_run_prints_nothing(invoke, tmp_path, private_state, any_agent):
    plan = plan_of(simulated("a"), simulated("b"), simulated("gone", usable=False), repetitions=1)
    (tmp_path / "p.toml").write_text(plan.to_toml())
    told = invoke("run", tmp_path / "p.toml", "--out", tmp_path / "told").output
    assert "skipped gone" in told
    assert invoke("run", tmp_path / "p.toml", "--out", tmp_path / "quiet", "--quiet").output == ""
    assert (tmp_path / "quiet" / "report.html").exists()


@pytest.mark.parametrize(("words", "asked"), [((), ["page"]), (("--no-provision",), [])])
def test_resuming_provides_what_the_machine_has_lost_since(
    invoke, tmp_path, private_state, any_agent, monkeypatch, words, asked
):
    plan = plan_of(simulated("a"), simulated("b"), repetitions=2)
    (tmp_path / "p.toml").write_text(plan.to_toml())
    assert invoke("run", tmp_path / "p.toml", "--out", tmp_path / "run", "--quiet").exit_code == 0
    provided: list[str] = []
    lost = dataclasses.replace(parts.PARTS["page"], find=lambda: None)
    monkeypatch.setitem(parts.PARTS, "page", lost)
    monkeypatch.setattr(parts, "provide", lambda wanted, steps: provided.extend(part.name for part in wanted))
    monkeypatch.delenv("VIRTGAUGE_NO_PROVISION")
    assert invoke("resume", tmp_path / "run", "--quiet", *words).exit_code == 0
    assert provided == asked


@pytest.fixture
def nobody_else(private_state, monkeypatch):
    """As on a machine where no other run ever died: its folders, processes and cgroups are not these tests' concern."""
    find_all = reclaim.find_dead_scopes
    monkeypatch.setattr(reclaim, "find_dead_scopes", lambda: [scope for scope in find_all() if scope.own])


def test_clean_says_when_there_was_nothing(invoke, nobody_else, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert "nothing was left behind" in invoke("clean").stdout


def test_clean_removes_what_a_worker_has_kept_only_when_it_is_told_to(invoke, nobody_else, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kept = tmp_path / "virtgauge" / "fleet" / "0123456789abcdef"
    kept.mkdir(parents=True)
    (kept / "ledger.sqlite").write_bytes(bytes(3 * 2**20))
    assert "kept 3.0 MiB of trials of the fleet's run 0123456789abcdef" in invoke("clean").stdout
    assert kept.exists()
    assert "removed 3.0 MiB" in invoke("clean", "--fleets").stdout
    assert not kept.exists()
    assert "nothing was left behind" in invoke("clean", "--fleets").stdout


def test_clean_leaves_what_a_worker_is_writing(invoke, nobody_else, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kept = tmp_path / "virtgauge" / "fleet" / "0123456789abcdef" / "000000000"
    kept.mkdir(parents=True)
    (kept / "ledger.sqlite").write_bytes(bytes(10))
    with run_to_ourselves(kept):
        assert "a worker here is at work on it" in invoke("clean", "--fleets").stdout
    assert kept.exists()
    assert "removed" in invoke("clean", "--fleets").stdout
    assert not kept.exists()


def test_main_prints_message_and_remedy_and_ends_with_the_errors_code(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["virtgauge", "report", "/no/such/run"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == ExitCode.USAGE
    assert "→ `virtgauge run` makes one" in capsys.readouterr().err


def test_a_defect_is_called_one(monkeypatch, capsys):
    def broken():
        raise ZeroDivisionError

    monkeypatch.setattr(cli, "app", broken)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == ExitCode.DEFECT
    assert "defect of virtgauge itself" in capsys.readouterr().err


WITHOUT_RUNC = """
repetitions = 1
[[platform]]
name = "host"
kind = "host"
[[platform]]
name = "runc"
kind = "oci"
runtime = "/no/such/runc"
[[platform]]
name = "other"
kind = "simulated"
usable = {usable}
[[suite.timing]]
timers = ["rdtsc"]
sleeps = []
"""


@pytest.mark.parametrize(
    ("options", "usable", "wanted"),
    [
        (["--platform", "runc"], "true", ["--platform runc", "/no/such/runc is not installed"]),
        (["--platform", "runc", "--platform", "other"], "true", ["--platform runc", "is not installed"]),
        ([], "false", ["no platform of the plan can be compared with host", "runc:", "other:", "set usable = true"]),
    ],
)
def test_a_run_that_cannot_measure_what_was_asked_ends_before_it_starts_anything(
    invoke, tmp_path, private_state, any_agent, options, usable, wanted
):
    (tmp_path / "p.toml").write_text(WITHOUT_RUNC.format(usable=usable))
    result = invoke("run", tmp_path / "p.toml", "--out", tmp_path / "run", *options)
    assert isinstance(result.exception, VirtgaugeError)
    assert result.exception.exit_code == ExitCode.UNAVAILABLE == 3
    for words in wanted:
        assert words in str(result.exception)
    assert not (tmp_path / "run").exists()


def test_other_platforms_of_a_plan_may_be_missing(invoke, tmp_path, private_state, any_agent):
    plan = plan_of(simulated("a"), simulated("b"), simulated("gone", usable=False), repetitions=1)
    (tmp_path / "p.toml").write_text(plan.to_toml())
    result = invoke("run", tmp_path / "p.toml", "--out", tmp_path / "run", "--progress", "lines")
    assert result.exit_code == 0
    assert "skipped gone" in result.output
    alone = invoke("run", tmp_path / "p.toml", "--out", tmp_path / "alone", "--platform", "a", "--quiet")
    assert alone.exit_code == 0


def test_a_run_without_a_plan_says_first_what_it_measures_and_how_to_choose_another(invoke):
    refused = ("--platform", "none-such", "--progress", "lines")  # so that nothing is started
    told = invoke("run", *refused).output
    for words in ("no plan was named: quick", "under ten minutes", "`virtgauge plan list` has others"):
        assert words in told
    assert "no plan was named" not in invoke("run", "quick", *refused).output
    assert "no plan was named" not in invoke("run", *refused, "--quiet").output


def test_a_misspelt_platform_option_is_answered_with_the_nearest(invoke):
    assert "did you mean 'gvisor'?" in str(invoke("run", "quick", "--platform", "gviser").exception)


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["run", "quik"], "did you mean 'quick'?"),
        (["plan", "show", "quik"], "did you mean 'quick'?"),
        (["plan", "show", "/tmp"], "cannot read the plan /tmp"),
        (["plan", "check", "/no/such.toml"], "cannot read the plan /no/such.toml"),
        (["doctor", "--plan", "platfroms"], "did you mean 'platforms'?"),
        (["measures", "timin"], "did you mean 'timing'?"),
        (["profiles", "iiot-gatway"], "did you mean 'iiot-gateway'?"),
        (["run", "quick", "--profile", "iiot-gatway"], "did you mean 'iiot-gateway'?"),
        (["run", "--platfrom", "host"], "run: no such option: --platfrom; did you mean '--platform'?"),
        (["plan", "chekc", "quick"], "plan: no such command 'chekc'. Did you mean 'check'?"),
        (["run", "--minutes", "soon"], "run: invalid value for '--minutes'"),
        (["report"], "report: missing argument 'RUN'"),
        (["run", "quick", "more"], "unexpected extra argument"),
        (["run", "--out"], "'--out' requires an argument"),
        *(([command, "/tmp"], "no run in /tmp") for command in ("report", "resume", "verdict", "export")),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, list) else "",
)
def test_typical_mistakes_are_answered_with_code_2_and_a_way_on(invoke, words, wanted):
    result = invoke(*words)
    assert isinstance(result.exception, UsageError)
    assert wanted in str(result.exception)
    assert result.exception.remedy
