"""The processors' governor: set, read back, and put back; what somebody else has changed since stays."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from synthetic import arm_record

from virtgauge.errors import UnavailableError
from virtgauge.execution import fitting
from virtgauge.execution.fitting import duration_of
from virtgauge.execution.prepare import check_plan
from virtgauge.host import reclaim
from virtgauge.host.lending import missing_governor, put_back, set_governor
from virtgauge.plan.load import parse_plan
from virtgauge.platforms.local import HostPlatform
from virtgauge.suites.isolation.suite import IsolationSuite


@pytest.fixture
def cpufreq(tmp_path: Path) -> Path:
    for number in (0, 1):
        policy = tmp_path / "cpufreq" / f"policy{number}"
        policy.mkdir(parents=True)
        (policy / "scaling_available_governors").write_text("performance powersave schedutil\n")
        (policy / "scaling_governor").write_text("schedutil\n")
    return tmp_path / "cpufreq"


def in_force(cpufreq: Path) -> list[str]:
    return [(policy / "scaling_governor").read_text().strip() for policy in sorted(cpufreq.iterdir())]


def records(folder: Path) -> list[Path]:
    return list(folder.glob("kernel-value*.json"))


def test_it_is_set_on_all_processors_and_put_back(cpufreq: Path, tmp_path: Path) -> None:
    put_back = set_governor("powersave", tmp_path, cpufreq)
    assert in_force(cpufreq) == ["powersave", "powersave"]
    put_back()
    assert in_force(cpufreq) == ["schedutil", "schedutil"]
    assert not records(tmp_path)


def test_after_a_kill_the_next_start_puts_it_back(cpufreq: Path, tmp_path: Path) -> None:
    folder = tmp_path / "vg00abcd"
    folder.mkdir()
    set_governor("powersave", folder, cpufreq)
    assert any("scaling_governor = schedutil" in line for line in reclaim.reclaim_folder(folder))
    assert in_force(cpufreq) == ["schedutil", "schedutil"]


def test_a_processor_that_went_offline_does_not_keep_the_others(cpufreq: Path, tmp_path: Path) -> None:
    set_governor("powersave", tmp_path, cpufreq)
    gone = cpufreq / "policy0"
    for file in gone.iterdir():
        file.unlink()
    gone.rmdir()
    assert put_back(tmp_path) == [f"put back {cpufreq}/policy1/scaling_governor = schedutil"]
    assert in_force(cpufreq) == ["schedutil"]
    assert not records(tmp_path)


def test_what_cannot_be_put_back_now_is_remembered(cpufreq: Path, tmp_path: Path) -> None:
    set_governor("powersave", tmp_path, cpufreq)
    file = cpufreq / "policy0" / "scaling_governor"
    file.unlink()
    file.mkdir()  # reading it fails, and not because it is gone
    assert put_back(tmp_path) == [f"put back {cpufreq}/policy1/scaling_governor = schedutil"]
    assert len(records(tmp_path)) == 1


def test_what_somebody_has_changed_since_stays(cpufreq: Path, tmp_path: Path) -> None:
    set_governor("powersave", tmp_path, cpufreq)
    (cpufreq / "policy1" / "scaling_governor").write_text("performance")
    put_back(tmp_path)
    assert in_force(cpufreq) == ["schedutil", "performance"]


@pytest.mark.parametrize(("name", "said"), [("turbo", "no 'turbo'"), ("performance", "no cpufreq")])
def test_what_cannot_be_set_is_refused_and_changes_nothing(name: str, said: str, cpufreq: Path, tmp_path: Path) -> None:
    where = tmp_path / "none" if name == "performance" else cpufreq
    with pytest.raises(UnavailableError, match=said):
        set_governor(name, tmp_path, where)
    assert in_force(cpufreq) == ["schedutil", "schedutil"]


def test_processors_of_which_none_tells_its_governors_have_none(cpufreq: Path) -> None:
    for file in cpufreq.glob("*/scaling_available_governors"):
        file.unlink()
    assert "no cpufreq" in str(missing_governor("powersave", cpufreq))


def test_what_a_machine_has_no_governor_for_is_refused_before_a_guest_is_launched_and_takes_no_time(
    cpufreq: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """
repetitions = 3
aa = false
[[platform]]
name = "host"
kind = "host"
[[suite.isolation]]
benchmarks = ["integer"]
loads = ["none"]
policies = ["none"]
governors = ["as-is", "powersave"]
"""
    monkeypatch.setattr(fitting, "costs_file", lambda: cpufreq / "durations.json")
    took = {}
    for where in (cpufreq / "none", cpufreq):
        monkeypatch.setattr(
            "virtgauge.suites.isolation.suite.missing_governor", partial(missing_governor, cpufreq=where)
        )
        plan = parse_plan(text, "my.toml")
        design = check_plan(plan, "my.toml")
        refused = {cell.factors.get("governor"): design.refusal(cell, HostPlatform()) for cell in design.cells}
        assert refused[None] is None
        assert ("no cpufreq" in (refused["powersave"] or "")) == (where != cpufreq)
        took[where] = duration_of(plan, design, [arm_record("host", "host", "Host", "reference")]).expected
    assert took[cpufreq] == pytest.approx(2 * took[cpufreq / "none"])


def test_it_is_a_factor_of_the_isolation_suite_that_takes_a_testbed_of_its_own() -> None:
    design = {"benchmarks": ["integer"], "loads": ["none"], "policies": ["none"]}
    plain = IsolationSuite.create(design).cells()
    both = IsolationSuite.create(design | {"governors": ["as-is", "powersave"]}).cells()
    assert [cell.key for cell in both][:1] == [cell.key for cell in plain]
    assert [cell.factors.get("governor") for cell in both] == [None, "powersave"]
    assert len({cell.testbed for cell in both}) == 2
