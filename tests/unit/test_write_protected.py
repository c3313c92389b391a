"""What may not be written: runs of another user can be read, and everything else ends with code 2 and the remedy."""

from __future__ import annotations

from pathlib import Path

import pytest
from plain_user import virtgauge, write_protected
from suites.simulated_runs import execute, plan_of, simulated

from virtgauge.errors import ExitCode

pytestmark = pytest.mark.slow

REQUIRED = {"suite": "timing", "measure": "timer_cost.p50", "unit": "ns", "at_most": 1000}


@pytest.fixture(scope="module")
def run(simulated_machine: Path) -> Path:
    plan = plan_of(simulated("a"), simulated("b", seed=2), repetitions=8, require=[REQUIRED])
    execute(plan, simulated_machine / "run")
    return simulated_machine / "run"


@pytest.mark.parametrize("command", ["report {run}", "verdict {run}", "export {run} --format csv"])
def test_a_run_that_may_not_be_written_is_read(run: Path, command: str) -> None:
    with write_protected(run):
        done = virtgauge(*command.format(run=run).split())
    assert (done.returncode, done.stderr) == (ExitCode.OK, "")
    assert done.stdout


def test_a_run_that_may_not_be_written_is_not_resumed(run: Path) -> None:
    with write_protected(run):
        done = virtgauge("resume", run)
    assert done.returncode == ExitCode.USAGE
    assert "may not be written by this user; its ledger is intact" in done.stderr
    assert "chown" in done.stderr


@pytest.mark.parametrize("command", ["run --no-provision", "fleet run"])
def test_the_default_folder_is_tried_before_anything_is_done(tmp_path: Path, command: str) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "p.toml").write_text(plan_of(simulated("a"), repetitions=1).to_toml())
    with write_protected(tmp_path / "runs"):
        done = virtgauge(*command.split(), "p.toml", cwd=tmp_path)
    assert done.returncode == ExitCode.USAGE
    assert "cannot be written: Permission denied" in done.stderr
    assert "--out" in done.stderr


@pytest.mark.parametrize("below", ["", "new"])
def test_a_state_folder_that_may_not_be_written_is_refused(run: Path, tmp_path: Path, below: str) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "p.toml").write_text(plan_of(simulated("a"), repetitions=1).to_toml())
    with write_protected(tmp_path / "state"):
        state = str(tmp_path / "state" / below)
        done = virtgauge("run", "p.toml", "--no-provision", cwd=tmp_path, VIRTGAUGE_STATE=state)
    assert done.returncode == ExitCode.USAGE
    assert "cannot be written: Permission denied" in done.stderr
    assert "VIRTGAUGE_STATE" in done.stderr
