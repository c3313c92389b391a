"""Where a command shall write and cannot: refused before anything is done, with code 2, option and path."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
from pathlib import Path

import pytest
from suites.simulated_runs import execute, plan_of, simulated
from typer.testing import CliRunner

from virtgauge import cli
from virtgauge.errors import ExitCode, UsageError, VirtgaugeError

COMMANDS = {
    "run": "run {plan} --out {place}",
    "run --junit": "run {plan} --out {folder}/new --junit {place}",
    "resume --junit": "resume {run} --junit {place}",
    "verdict --junit": "verdict {run} --junit {place}",
    "report text": "report {run} --out {place}",
    "report json": "report {run} --format json --out {place}",
    "report html": "report {run} --format html --out {place}",
    "export csv": "export {run} --format csv --out {place}",
    "export json": "export {run} --format json --out {place}",
    "export parquet": "export {run} --format parquet --out {place}",
    "import": "import fio {plan} --new {place} --arm a",
    "compare": "compare {other} {run} --out {place}",
    "archive": "archive add {run} --to {place}",
    "image": "image build --format iso --out {place}",
    "attach": "attach prepare --listen 127.0.0.1:7443 --out {place}",
    "fleet": "fleet run {plan} --out {place}",
    "shim": "shim --json {place} -- /bin/true",
}


@pytest.fixture(scope="module")
def finished_run(simulated_machine):
    for name in ("run", "other"):
        execute(plan_of(simulated("a"), simulated("b", seed=2), repetitions=2), simulated_machine / name)
    return simulated_machine / "run"


def invoke(command, folder, run, place):
    (folder / "p.toml").write_text(plan_of(simulated("a"), simulated("b"), repetitions=1).to_toml())
    words = command.format(
        plan=folder / "p.toml", folder=folder, run=run, other=run.with_name("other"), place=place
    ).split()
    return CliRunner().invoke(cli.app, words)


@pytest.mark.parametrize("below", ["x", "x/y"])
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_place_below_a_file_is_refused_before_anything_is_done(tmp_path, finished_run, command, below):
    (tmp_path / "file").touch()
    place = tmp_path / "file" / below
    before = sorted(finished_run.iterdir())
    result = invoke(command, tmp_path, finished_run, place)
    assert isinstance(result.exception, UsageError)
    assert result.exception.exit_code == ExitCode.USAGE == 2
    assert str(place.parent) in str(result.exception)
    assert "→" in str(result.exception)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "p.toml"]
    assert sorted(finished_run.iterdir()) == before


@pytest.mark.parametrize("command", [c for n, c in COMMANDS.items() if n in ("run", "import", "archive", "fleet")])
def test_a_folder_that_nobody_can_make_is_refused(tmp_path, finished_run, command):
    result = invoke(command, tmp_path, finished_run, "/proc/none/x")
    assert isinstance(result.exception, UsageError)
    assert "/proc/none/x: cannot be written" in str(result.exception)


@pytest.mark.parametrize("name", ["report json", "export csv", "run --junit", "shim", "image"])
def test_a_folder_in_a_files_place_is_refused(tmp_path, finished_run, name):
    (tmp_path / "taken").mkdir()
    result = invoke(COMMANDS[name], tmp_path, finished_run, tmp_path / "taken")
    assert isinstance(result.exception, UsageError)
    assert "taken" in str(result.exception)
    assert not (tmp_path / "new").exists()


def test_a_place_that_was_only_tried_is_left_as_it_was(tmp_path, finished_run):
    (tmp_path / "kept.json").write_text("kept")
    place = tmp_path / "a" / "b"
    result = invoke("import fio {plan} --new {place} --arm a", tmp_path, finished_run, place)  # no output of fio
    assert result.exit_code
    assert not (tmp_path / "a").exists()
    result = invoke("export {run} --format csv --measure no.such --out {place}", tmp_path, finished_run, tmp_path / "n")
    assert result.exit_code
    assert not (tmp_path / "n").exists()
    invoke("export {run} --measure no.such --format csv --out {place}", tmp_path, finished_run, tmp_path / "kept.json")
    assert (tmp_path / "kept.json").read_text() == "kept"


WHOLE = {name: COMMANDS[name] for name in COMMANDS if name.startswith(("verdict", "report", "export", "compare"))}
NEEDS_REQUIREMENTS = "verdict --junit"


@pytest.mark.parametrize("name", [name for name in WHOLE if name != NEEDS_REQUIREMENTS])
def test_a_pipe_that_is_named_is_written_to_and_not_replaced(tmp_path, finished_run, name):
    """As root, `--out /dev/null` must not make a file of it."""
    pipe, came = tmp_path / "pipe", tmp_path / "came"
    os.mkfifo(pipe)
    with came.open("wb") as file, subprocess.Popen(["cat", pipe], stdout=file) as reader:
        result = invoke(WHOLE[name], tmp_path, finished_run, pipe)
        assert result.exit_code == 0, result.output
        assert reader.wait(30) == 0
    assert stat.S_ISFIFO(pipe.lstat().st_mode)
    assert came.stat().st_size > 100


@pytest.mark.parametrize(
    ("command", "page"),
    [("report {run} --format html", "report.html"), ("compare {other} {run} --format html", "compare.html")],
)
def test_nothing_that_lies_in_a_runs_folder_is_written_through(tmp_path, finished_run, command, page):
    mine, pipe = tmp_path / "mine", finished_run / page
    mine.write_text("mine")
    (finished_run / f"{page}.partial").symlink_to(mine)
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe)
    result = invoke(command, tmp_path, finished_run, "")
    assert result.exit_code == 0, result.output
    assert mine.read_text() == "mine"
    assert pipe.is_file()
    pipe.unlink()
    assert not (finished_run / f"{page}.partial").is_symlink()


@pytest.mark.parametrize("name", [name for name in WHOLE if name != NEEDS_REQUIREMENTS])
def test_what_finds_no_room_is_one_error_and_leaves_nothing_half(tmp_path, finished_run, monkeypatch, name):
    def full(path, to):
        assert path.stat().st_size
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "old").write_text("old")
    monkeypatch.setattr(Path, "replace", full)
    result = invoke(WHOLE[name], tmp_path, finished_run, tmp_path / "old")
    assert isinstance(result.exception, VirtgaugeError)
    assert result.exception.exit_code == ExitCode.FAILED  # as of a run: nothing was wrong with what was asked
    assert "No space left" in str(result.exception)
    assert "free some space" in str(result.exception)
    assert (tmp_path / "old").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old", "p.toml"]


@pytest.mark.parametrize("name", [*WHOLE, "run --junit", "import"])
def test_a_place_without_room_for_its_name_is_no_wrong_option(tmp_path, finished_run, monkeypatch, name):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "p.toml").touch()
    with monkeypatch.context() as patch:
        for call in ("open", "mkdir"):
            real = getattr(Path, call)
            patch.setattr(
                Path, call, lambda path, *a, real=real, **b: full() if path.name == "new" else real(path, *a, **b)
            )
        result = invoke(COMMANDS[name], tmp_path, finished_run, tmp_path / "new")
    assert isinstance(result.exception, VirtgaugeError)
    assert result.exception.exit_code == ExitCode.FAILED
    assert "No space left" in str(result.exception)
    assert not (tmp_path / "new").exists()
