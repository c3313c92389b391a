from __future__ import annotations

from pathlib import Path

import pytest
from provision_machine import Machine
from typer.testing import CliRunner

from virtgauge.provision.command import app


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_all_goes_on_when_nothing_can_be_had_and_says_so_in_one_line_each(machine: Machine) -> None:
    machine.as_root(False)
    done = CliRunner().invoke(app, ["all"])
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["packages", "skipped:"],
        ["kernel", "skipped:"],
        ["gvisor", "skipped:"],
        ["ganesha", "skipped:"],
        ["image", "skipped:"],
        ["duckdb", "skipped:"],
    ]


@pytest.mark.slow
def test_all_brings_the_database_servers_only_where_they_were_asked_for(machine: Machine) -> None:
    machine.as_root(False)
    done = CliRunner().invoke(app, ["all", "--for", "databases"])
    assert done.exit_code == 0
    steps = [line.split()[0] for line in done.stdout.splitlines()]
    assert steps[-6:] == ["duckdb", "mongodb", "cassandra", "influxdb", "victoriametrics", "questdb"]


@pytest.mark.parametrize("step", ["packages", "kernel", "gvisor", pytest.param("databases", marks=pytest.mark.slow)])
def test_a_single_step_that_was_skipped_ends_with_the_status_for_unavailable(machine: Machine, step: str) -> None:
    machine.as_root(False)
    assert CliRunner().invoke(app, [step]).exit_code == 3


def test_packages_for_an_unknown_purpose_are_refused(machine: Machine) -> None:
    done = CliRunner().invoke(app, ["packages", "--for", "fun"])
    assert done.exit_code == 2
    assert machine.calls == []


@pytest.mark.parametrize("step", ["packages", "kernel", "gvisor", "databases", "all"])
def test_help_shows_an_example(step: str) -> None:
    done = CliRunner().invoke(app, [step, "--help"])
    assert done.exit_code == 0
    assert "virtgauge provision " in done.stdout.partition("Example:")[2]


def test_a_cache_that_cannot_be_made_is_said_with_the_remedy(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    (machine.folder / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(machine.folder / "file"))
    done = CliRunner().invoke(app, ["kernel"])
    assert done.exit_code == 3
    assert "XDG_CACHE_HOME" in done.stdout
