from __future__ import annotations

import re
from pathlib import Path

import pytest
from provision_machine import Machine
from typer.testing import CliRunner, Result

from virtgauge.cli import app
from virtgauge.errors import UsageError
from virtgauge.execution.prepare import check_plan
from virtgauge.plan.load import load_plan
from virtgauge.provision.parts import GROUPS, PARTS, named


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def provision(*words: str) -> Result:
    return CliRunner().invoke(app, ["provision", *words])


def steps(done: Result) -> dict[str, str]:
    """State by step."""
    return dict(re.findall(r"^(\S+) +(ok|made|skipped):", done.stderr, re.MULTILINE))


@pytest.mark.slow
def test_it_goes_on_when_nothing_can_be_had_and_says_so_in_one_line_each(machine: Machine) -> None:
    machine.as_root(False)
    done = provision("guests")
    assert done.exit_code == 3
    expected = ("packages", "kernel", "gvisor", "ganesha", "image", "duckdb")
    assert steps(done) == dict.fromkeys(expected, "skipped")
    assert len(done.stderr.splitlines()) == len(expected)


def test_a_skipped_part_names_its_log_or_the_remedy(machine: Machine) -> None:
    done = provision("kernel")
    assert done.exit_code == 3
    assert "check /etc/apt/sources.list" in done.stderr


def test_what_a_plan_needs_is_provided_and_nothing_else(machine: Machine) -> None:
    machine.as_root(False)
    assert set(steps(provision("--plan", "forwarding-quick"))) >= {"kernel"}
    needed = {part.name for part in named(check_plan(*load_plan("forwarding-quick")).needs())}
    assert not needed & {"ganesha", "image", "duckdb", "sensorstore", "flushes", "bandwidth", "shim", "gvisor"}


def test_quick_needs_no_boot_loader_shim_or_bandwidth_program() -> None:
    needed = set(check_plan(*load_plan("quick")).needs())
    assert needed >= {"agent", "runc", "gvisor", "qemu", "kernel", "ganesha", "sensorstore", "flushes"}
    assert not needed & {"image", "shim", "bandwidth", "uml", "openvswitch", "postgresql"}


def test_a_simulated_plan_needs_no_more_than_the_library_of_its_report() -> None:
    text = '[[platform]]\nname = "host"\nkind = "simulated"\n[[suite.timing]]\ntimers = ["rdtsc"]\n'
    from virtgauge.plan.load import parse_plan

    assert check_plan(parse_plan(text, "x"), "x").needs() == ["page"]


def test_an_unknown_part_is_refused_with_the_nearest_name(machine: Machine) -> None:
    done = provision("gviser")
    assert done.exit_code != 0
    assert "did you mean 'gvisor'" in str(done.exception)
    assert machine.calls == []


def test_the_kernels_flavour_is_a_part_of_its_own(machine: Machine) -> None:
    assert set(steps(provision("kernel", "--flavour", "rt"))) == {"kernel-rt"}


@pytest.mark.parametrize(
    "words", [("kernel", "--flavour", "cloud"), ("gvisor", "--flavour", "rt"), ("--flavour", "rt")]
)
def test_a_flavour_of_nothing_is_refused(machine: Machine, words: tuple[str, ...]) -> None:
    done = provision(*words)
    assert isinstance(done.exception, UsageError)
    assert "--flavour rt" in str(done.exception.remedy)
    assert machine.calls == []


def test_every_group_names_parts() -> None:
    for group in GROUPS:
        assert named([group])


def test_the_list_says_of_every_part_whether_it_is_there(machine: Machine) -> None:
    done = provision("--list")
    assert done.exit_code == 0
    for name in PARTS:
        assert re.search(rf"^{re.escape(name)} .*(there|missing)", done.stdout, re.MULTILINE), name


def test_a_cache_that_cannot_be_made_is_said_with_the_remedy(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    (machine.folder / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(machine.folder / "file"))
    done = provision("kernel")
    assert done.exit_code == 3
    assert "XDG_CACHE_HOME" in done.stderr
