"""Runs at the same time, of two users and of two checkouts: none disturbs another or sweeps what another needs."""

import contextlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import virtgauge
from virtgauge.errors import VirtgaugeError
from virtgauge.ledger.read_only import ReadOnlyLedger

pytestmark = pytest.mark.slow

PLAN = """
name = "at-once"
repetitions = {repetitions}
attempts = 3
[[platform]]
name = "host"
kind = "host"
[[suite.timing]]
loads = ["idle"]
timers = ["rdtscp"]
reads = 200_000
sleeps = ["usleep"]
slacks = ["default"]
sleep_samples = 200
[validity]
foreign_load = 1.0
steal = 1.0
"""
TRIALS = 10 * 2 * 2
STRANGER = 65534
# The interpreter and this test's folder may be in a place of root's: to read them is all that the other user may more.
AS_STRANGER = ["setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups",
               "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]  # fmt: skip


class Somebody:
    """A user with a folder of his own, for state, cache and runs, and a checkout."""

    def __init__(self, folder: Path, prefix: list[str], checkout: Path) -> None:
        folder.mkdir()
        self.run, self._prefix = folder / "run", prefix
        own = {"VIRTGAUGE_STATE": folder / "state", "XDG_CACHE_HOME": folder / "cache", "HOME": folder}
        self._environment = os.environ | {name: str(path) for name, path in own.items()} | {"PYTHONPATH": str(checkout)}
        if prefix:
            os.chown(folder, STRANGER, STRANGER)

    def start(self, *words: str | Path) -> subprocess.Popen[str]:
        command = [*self._prefix, sys.executable, "-m", "virtgauge.cli", *map(str, words)]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, env=self._environment, cwd=self.run.parent, stdout=pipe, stderr=pipe, text=True
        )

    def wait_for_a_trial(self) -> None:
        give_up = time.monotonic() + 60
        while time.monotonic() < give_up:
            with contextlib.suppress(VirtgaugeError), ReadOnlyLedger.open(self.run) as ledger:
                if ledger.attempts():
                    return
            time.sleep(0.05)
        raise AssertionError(f"{self.run} has no trial")

    def clean_all(self) -> str:
        code, told, errors = finished(self.start("clean", "--all", "--yes"))
        assert code == 0, errors
        return told


def finished(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    output, errors = process.communicate(timeout=120)
    return process.returncode, output, errors


@pytest.mark.usefixtures("root")
def test_runs_of_two_users_and_two_checkouts_neither_disturb_nor_sweep_each_other(tmp_path):
    here = Path(virtgauge.__file__).parent
    copy = tmp_path / "checkout"
    shutil.copytree(here, copy / here.name, ignore=shutil.ignore_patterns("__pycache__"))
    mine, theirs = Somebody(tmp_path / "mine", [], here.parent), Somebody(tmp_path / "theirs", AS_STRANGER, copy)
    dead = Somebody(tmp_path / "dead", [], copy)
    plan, long = tmp_path / "plan.toml", tmp_path / "long.toml"
    plan.write_text(PLAN.format(repetitions=10))
    long.write_text(PLAN.format(repetitions=5000))
    killed = dead.start("run", long, "--out", dead.run)
    dead.wait_for_a_trial()
    runs = {one: one.start("run", plan, "--out", one.run) for one in (mine, theirs)}
    try:
        for one in runs:
            one.wait_for_a_trial()
        killed.kill()
        killed.wait()
        left = {path.name for path in (tmp_path / "dead" / "state").iterdir() if path.is_dir()}
        living = {path.name for one in runs for path in one.run.parent.glob("state/vg*")}
        assert len(left) == 1 and len(living) == 2
        told = theirs.clean_all() + mine.clean_all()
        assert left.pop() in told
        assert not [tag for tag in living if tag in told]
        assert {process.poll() for process in runs.values()} == {None}
    finally:
        ends = [finished(process) for process in (*runs.values(), killed)]
    for (code, _, errors), one in zip(ends, runs, strict=False):
        assert code == 0, errors
        with ReadOnlyLedger.for_command(one.run) as ledger:
            trials = ledger.trials()
            assert {trial.status for trial in trials} <= {"valid", "invalid"}
            assert len({trial.key for trial in trials}) == TRIALS
        assert not (one.run.parent / "state").exists()
    assert (theirs.run / "ledger.sqlite").stat().st_uid == STRANGER
