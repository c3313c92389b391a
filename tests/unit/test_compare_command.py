"""``virtgauge compare``: what it refuses and why, what it writes, and with which code it ends."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from compared_runs import ARMS, DESIGN, GUEST, HOST, HOST_AA, ledger_of, plan_text
from synthetic import arm_record
from typer.testing import CliRunner

from virtgauge import cli
from virtgauge.console.reports import app
from virtgauge.errors import UsageError
from virtgauge.ledger.damage import DamagedError

Invoke = Callable[..., Result]


@pytest.fixture(scope="module")
def invoke() -> Invoke:
    # Of few commands only: building all of them takes longer than comparing.
    return lambda *arguments: CliRunner().invoke(app, ["compare", *map(str, arguments)])


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of five days: on the last two the guest is slower, on the last the host as well."""
    root = tmp_path_factory.mktemp("runs")
    for day, (guest, host) in enumerate([(1, 1), (1, 1), (1, 1), (1.3, 1), (1.3, 1.2)], 1):
        kernel = {"identity": {"kernel_release": f"6.1.{0 if day < 5 else 1}"}}
        ledger_of(root / f"day-{day}", day, guest=guest, host=host, day=day, fingerprint=kernel)
    return root


def refused(result: Result) -> UsageError:
    assert isinstance(result.exception, UsageError), result.output
    assert result.exception.remedy
    return result.exception


# -- what is refused -------------------------------------------------------------------------------------


def test_one_run_alone(invoke: Invoke, runs: Path) -> None:
    assert "nothing to compare it with" in refused(invoke(runs / "day-1")).message


def test_the_same_run_twice_and_its_copy(invoke: Invoke, runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "day-1", tmp_path / "copied")
    for other in (runs / "day-1", tmp_path / "copied"):
        error = refused(invoke(runs / "day-1", other))
        assert "hold the same run (day-1" in error.message
        assert "--arm" in error.remedy


def test_the_same_arm_twice(invoke: Invoke, runs: Path) -> None:
    assert "the same platform twice" in refused(invoke(runs / "day-1", "--arm", "guest")).message


def test_runs_without_a_common_arm(invoke: Invoke, runs: Path, tmp_path: Path) -> None:
    other = ledger_of(tmp_path / "other", 9, arms=[arm_record("bare", "host", "Bare", "reference")])
    error = refused(invoke(runs / "day-1", other))
    assert "no arm in common" in error.message
    assert "day-1: host, host-aa, guest; other: bare" in error.message
    assert "--arm BASE=OTHER" in error.remedy


def test_runs_without_a_common_cell(invoke: Invoke, runs: Path, tmp_path: Path) -> None:
    other = ledger_of(tmp_path / "other", 9, design=[("timer_cost", {"function": "rdtsc", "load": "idle"})])
    assert "no figure in common" in refused(invoke(runs / "day-1", other)).message


def test_a_measure_that_a_run_does_not_have(invoke: Invoke, runs: Path) -> None:
    error = refused(invoke(runs / "day-1", runs / "day-2", "--measure", "storage.throughput"))
    assert "day-1 has none of the measures asked for" in error.message


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("timing.sleep_latness.p99", "did you mean 'sleep_lateness.p99'"),
        ("sleep_lateness", "named with its suite"),
        ("timers.p99", "no such suite"),
    ],
)
def test_a_measure_that_is_not_known(invoke: Invoke, runs: Path, name: str, message: str) -> None:
    assert message in refused(invoke(runs / "day-1", runs / "day-2", "--measure", name)).message


def test_an_arm_that_is_not_there(invoke: Invoke, runs: Path) -> None:
    error = refused(invoke(runs / "day-1", runs / "day-2", "--arm", "guest=kata"))
    assert "has no arm 'kata'" in error.message
    assert "host, host-aa, guest" in error.remedy


def test_emulated_against_measured_figures(invoke: Invoke, runs: Path, tmp_path: Path) -> None:
    emulated = arm_record("guest", "qemu", "Guest", emulated=True)
    other = ledger_of(tmp_path / "other", 9, arms=[HOST, HOST_AA, emulated])
    error = refused(invoke(runs / "day-1", other, "--arm", "guest"))
    assert "emulated in other and measured in day-1" in error.message
    result = invoke(runs / "day-1", other, "--format", "json")
    found = json.loads(result.stdout)
    assert [arm["base"] for arm in found["arms"]] == ["host"]
    assert {"what": "Guest", "reason": "emulated in other and measured in day-1: the two are not comparable"} in found[
        "set_aside"
    ]


def test_another_minor_version_unless_asked_for(invoke: Invoke, runs: Path, tmp_path: Path) -> None:
    other = ledger_of(tmp_path / "other", 9, tool_version="0.2.0")
    error = refused(invoke(runs / "day-1", other))
    assert "0.1.0" in error.message
    assert "0.2.0" in error.message
    assert "--across-versions" in error.remedy
    found = json.loads(invoke(runs / "day-1", other, "--across-versions", "--format", "json").stdout)
    assert any("different versions of virtgauge" in caveat for caveat in found["caveats"])
    patch = ledger_of(tmp_path / "patch", 9, tool_version="0.1.7")
    assert invoke(runs / "day-1", patch).exit_code == 0


def test_another_ledger_version(invoke: Invoke, runs: Path, tmp_path: Path) -> None:
    other = ledger_of(tmp_path / "other", 9)
    with sqlite3.connect(other / "ledger.sqlite") as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    assert "99" in refused(invoke(runs / "day-1", other)).message


def test_cells_that_were_measured_otherwise_are_set_aside(invoke: Invoke, runs: Path, tmp_path: Path) -> None:
    other = ledger_of(tmp_path / "other", 9, plan_text=plan_text(sleep_samples=200))
    found = json.loads(invoke(runs / "day-1", other, "--format", "json").stdout)
    assert [cell["probe"] for cell in found["cells"]] == ["timer_cost"]
    (line,) = found["set_aside"]
    assert "sleep_samples 1000 and 200" in line["reason"]
    error = refused(invoke(runs / "day-1", other, "--measure", "timing.sleep_lateness.p50"))
    assert "sleep_samples 1000 and 200" in error.message


def test_a_plan_that_cannot_be_read_is_said(invoke: Invoke, runs: Path, tmp_path: Path) -> None:
    other = ledger_of(tmp_path / "other", 9, plan_text="from = 'a later version'")
    found = json.loads(invoke(runs / "day-1", other, "--format", "json").stdout)
    assert any("other: the plan cannot be read" in caveat for caveat in found["caveats"])


def test_a_run_without_a_valid_trial(invoke: Invoke, runs: Path, tmp_path: Path) -> None:
    other = ledger_of(tmp_path / "other", 9)
    with sqlite3.connect(other / "ledger.sqlite") as db:
        db.execute("UPDATE trials SET status = 'invalid'")
    db.close()
    error = refused(invoke(runs / "day-1", other))
    assert "not one of its 48 trials is valid" in error.message


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE manifest SET value = '{'",
        "UPDATE manifest SET value = '{}'",
        "UPDATE trials SET factors = '['",
        "UPDATE trials SET status = 'excellent'",
        "DELETE FROM summaries; UPDATE histograms SET bins = x'00'",
    ],
)
def test_a_ledger_that_was_damaged(invoke: Invoke, runs: Path, tmp_path: Path, damage: str) -> None:
    other = ledger_of(tmp_path / "other", 9, blocks=2)
    with sqlite3.connect(other / "ledger.sqlite") as db:
        db.executescript(damage)
    db.close()
    result = invoke(runs / "day-1", other)
    assert isinstance(result.exception, DamagedError), result.output
    assert result.exception.message.startswith(f"{other}/ledger.sqlite: table ")


def test_a_figure_that_is_no_number(invoke: Invoke, runs: Path, tmp_path: Path) -> None:
    other = ledger_of(tmp_path / "other", 9, blocks=2)
    with sqlite3.connect(other / "ledger.sqlite") as db:
        db.execute("UPDATE summaries SET mean = 9e999 WHERE trial_id = 3")
    db.close()
    result = invoke(runs / "day-1", other, "--measure", "timing.timer_cost.mean")
    assert isinstance(result.exception, DamagedError), result.output
    assert "table summaries, row 3: damaged: mean is inf; 11 of 12 trials can still be read" in result.exception.message


def test_an_emulated_platform_of_the_same_run(invoke: Invoke, tmp_path: Path) -> None:
    arms = [HOST, HOST_AA, arm_record("guest", "qemu", "Guest", emulated=True)]
    run = ledger_of(tmp_path / "run", 9, arms=arms, blocks=2)
    assert "one of the two is emulated" in refused(invoke(run, "--arm", "host=guest")).message


def test_a_folder_that_is_no_run(invoke: Invoke, runs: Path, tmp_path: Path) -> None:
    assert "no run in" in refused(invoke(runs / "day-1", tmp_path)).message
    assert "neither a run nor a folder of runs" in refused(invoke("--series", tmp_path)).message


def test_a_series_that_is_too_short(invoke: Invoke, runs: Path) -> None:
    error = refused(invoke("--series", *(runs / f"day-{day}" for day in (1, 2, 3))))
    assert "a series takes 4 at least" in error.message


# -- what is found ---------------------------------------------------------------------------------------


def test_the_summary_says_what_is_worse_and_what_else_differs(invoke: Invoke, runs: Path) -> None:
    result = invoke(runs / "day-1", runs / "day-5")
    assert result.exit_code == 0
    assert "day-5 against day-1: " in result.stdout
    assert "worse" in result.stdout
    assert "kernel release" in result.stdout
    assert "Benjamini–Hochberg" in result.stdout


def test_equal_runs_have_no_difference_and_pass(invoke: Invoke, runs: Path) -> None:
    result = invoke(runs / "day-1", runs / "day-2", "--fail-on", "worse", "--measure", "timing.timer_cost.p50")
    assert result.exit_code == 0
    assert "2 no difference (within ±5 %)" in result.stdout


@pytest.mark.parametrize(
    ("day", "fail_on", "code"),
    [
        (4, "worse", 1),
        (4, "worse-than-reference", 1),
        (4, "nothing", 0),
        (2, "worse", 0),
        (2, "worse-than-reference", 0),
    ],
)
def test_the_exit_code_says_whether_a_figure_is_worse(
    invoke: Invoke, runs: Path, day: int, fail_on: str, code: int
) -> None:
    arguments = ("--measure", "timing.timer_cost.p50", "--fail-on", fail_on)
    assert invoke(runs / "day-1", runs / f"day-{day}", *arguments).exit_code == code


def test_a_slower_host_alone_is_worse_and_not_worse_than_the_reference(invoke: Invoke, runs: Path) -> None:
    arguments = (runs / "day-4", runs / "day-5", "--measure", "timing.timer_cost.p50", "--fail-on")
    assert invoke(*arguments, "worse").exit_code == 1
    assert invoke(*arguments, "worse-than-reference").exit_code == 0


def test_another_agent_is_a_caveat(invoke: Invoke, runs: Path, tmp_path: Path) -> None:
    other = ledger_of(tmp_path / "other", 9, agent_sha256="00" * 32)
    assert "The agent in the guests was not the same" in invoke(runs / "day-1", other).stdout


def test_two_platforms_of_one_run(invoke: Invoke, runs: Path) -> None:
    found = json.loads(invoke(runs / "day-1", "--arm", "host=guest", "--format", "json").stdout)
    assert [arm["label"] for arm in found["arms"]] == ["Host → Guest"]
    medians = [change for change in found["changes"] if change["measure"].endswith("p50")]
    assert [change["own"]["finding"] for change in medians] == ["equivalent"] * 2
    assert all(change["relative"] is None for change in found["changes"])


def test_a_folder_of_runs_is_a_series_in_the_order_of_its_days(invoke: Invoke, runs: Path, tmp_path: Path) -> None:
    for day in range(1, 6):
        shutil.copytree(runs / f"day-{day}", tmp_path / f"{9 - day}")  # whose names are in no order
    result = invoke("--series", tmp_path, "--format", "json", "--measure", "timing.timer_cost.p50")
    found = json.loads(result.stdout)
    assert found["kind"] == "series"
    assert [run["run_id"] for run in found["runs"]] == [f"day-{day}" for day in range(1, 6)]
    (guest,) = [one for one in found["series"] if one["relative"] and found["arms"][one["arm"]]["base"] == "guest"]
    assert [step["after"] for step in guest["steps"]] == [2]
    arguments = ("--series", tmp_path, "--measure", "timing.timer_cost.p50", "--fail-on")
    assert invoke(*arguments, "worse-than-reference").exit_code == 1
    assert invoke(*arguments, "nothing").exit_code == 0


def test_nothing_in_the_runs_is_touched(invoke: Invoke, runs: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in runs.rglob("*")}
    invoke(runs / "day-1", runs / "day-2")
    assert {path: path.stat().st_mtime_ns for path in runs.rglob("*")} == before


def test_the_document_has_no_figure_that_is_no_number(invoke: Invoke, runs: Path) -> None:
    result = invoke(runs / "day-1", runs / "day-5", "--format", "json")
    found = json.loads(result.stdout, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert found["schema_version"] == 1
    assert len(found["changes"]) == 2 * 2 * len(DESIGN)
    assert {arm["base"] for arm in found["arms"]} == {"host", "guest"}


@pytest.mark.parametrize("format", ["text", "json", "html"])
def test_a_file_can_be_written_instead(invoke: Invoke, runs: Path, tmp_path: Path, format: str) -> None:
    out = tmp_path / "found"
    result = invoke(runs / "day-1", runs / "day-5", "--format", format, "--out", out)
    assert result.stdout.strip() == f"comparison: {out}"
    assert "day-5" in out.read_text()


def test_a_file_that_cannot_be_written(invoke: Invoke, runs: Path, tmp_path: Path) -> None:
    error = refused(invoke(runs / "day-1", runs / "day-5", "--out", tmp_path / "no" / "folder"))
    assert str(tmp_path / "no") in error.message
    assert "cannot be written" in error.message


def test_the_page_goes_to_the_last_run(invoke: Invoke, tmp_path: Path) -> None:
    one, other = ledger_of(tmp_path / "a", 1), ledger_of(tmp_path / "b", 2, day=2)
    assert invoke(one, other, "--format", "html").exit_code == 0
    assert (other / "compare.html").read_text().startswith("<!DOCTYPE html>")


def test_the_command_is_among_the_others_and_gives_an_example() -> None:
    assert "Example: virtgauge compare" in CliRunner().invoke(cli.app, ["compare", "--help"]).stdout


def test_arms_of_another_kind_under_one_name_are_shown(invoke: Invoke, runs: Path, tmp_path: Path) -> None:
    other = ledger_of(tmp_path / "other", 9, arms=[*ARMS[:2], arm_record(GUEST.name, "qemu", "QEMU")])
    found = json.loads(invoke(runs / "day-1", other, "--format", "json").stdout)
    lines = {line["what"]: line["values"] for line in found["environment"]}
    assert lines["guest: kind"] == ["oci", "qemu"]
    assert found["arms"][1]["label"] == "Guest → QEMU"
