"""Runs at the same time, of two users and of two checkouts: none disturbs another or sweeps what another needs."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import virtgauge
from virtgauge.errors import VirtgaugeError
from virtgauge.ledger.read_only import ReadOnlyLedger
from virtgauge.ledger.records import Attempt

pytestmark = [pytest.mark.slow, pytest.mark.alone]  # it cleans what all dead runs left, those of other tests too

PLAN = """
name = "at-once"
repetitions = 5000
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
STRANGER = 65534
# The interpreter may be in a place of root's: to read it is all that the other user may more.
AS_STRANGER = ["setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups",
               "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]  # fmt: skip


class Somebody:
    """A user with a checkout, and a folder of his own for state and runs."""

    def __init__(self, folder: Path, prefix: list[str], checkout: Path) -> None:
        folder.mkdir()
        self.run, self._prefix = folder / "run", prefix
        cache = (folder if prefix else folder.parent) / "cache"  # a user's state folders are listed in one place
        own = {"VIRTGAUGE_STATE": folder / "state", "XDG_CACHE_HOME": cache, "HOME": folder}
        self._environment = os.environ | {name: str(path) for name, path in own.items()} | {"PYTHONPATH": str(checkout)}
        if prefix:
            os.chown(folder, STRANGER, STRANGER)

    def start(self, *words: str | Path) -> subprocess.Popen[str]:
        command = [*self._prefix, sys.executable, "-m", "virtgauge.cli", *map(str, words)]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, env=self._environment, cwd=self.run.parent, stdout=pipe, stderr=pipe, text=True
        )

    def attempts(self) -> list[Attempt]:
        with contextlib.suppress(VirtgaugeError), ReadOnlyLedger.open(self.run) as ledger:
            return ledger.attempts()
        return []

    def wait_for_trials(self, number: int) -> None:
        give_up = time.monotonic() + 60
        while len(self.attempts()) < number:
            assert time.monotonic() < give_up, self.run
            time.sleep(0.05)

    def clean_all(self) -> str:
        code, told, errors = finished(self.start("clean", "--all", "--yes"))
        assert code == 0, errors
        return told


def finished(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    output, errors = process.communicate(timeout=120)
    return process.returncode, output, errors


@pytest.fixture
def common() -> Iterator[Path]:
    """A folder that all users can pass through, as those of pytest cannot be."""
    with tempfile.TemporaryDirectory(prefix="vgtests-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.usefixtures("root")
def test_runs_of_two_users_and_two_checkouts_neither_disturb_nor_sweep_each_other(common):
    here = Path(virtgauge.__file__).parent
    copy = common / "checkout"
    shutil.copytree(here, copy / here.name, ignore=shutil.ignore_patterns("__pycache__"))
    mine, theirs = Somebody(common / "mine", [], here.parent), Somebody(common / "theirs", AS_STRANGER, copy)
    dead = Somebody(common / "dead", [], copy)
    plan = common / "plan.toml"
    plan.write_text(PLAN)
    killed = dead.start("run", plan, "--out", dead.run)
    runs = {one: one.start("run", plan, "--out", one.run) for one in (mine, theirs)}
    try:
        for one in (dead, *runs):
            one.wait_for_trials(1)
        killed.kill()
        killed.communicate()
        left = {path.name for path in (common / "dead" / "state").iterdir() if path.is_dir()}
        living = {path.name for one in runs for path in one.run.parent.glob("state/vg*")}
        assert (len(left), len(living)) == (1, 2)
        told = theirs.clean_all() + mine.clean_all()
        (gone,) = left
        assert gone in told
        assert not (common / "dead" / "state" / gone).exists()
        assert not [tag for tag in living if tag in told]
        for one, process in runs.items():
            one.wait_for_trials(2 + len(one.attempts()))
            process.send_signal(signal.SIGINT)
            code, _, errors = finished(process)
            assert code == 130, errors
            with ReadOnlyLedger.open(one.run) as ledger:
                statuses = {attempt.status for attempt in ledger.attempts()}
            assert statuses and statuses <= {"valid", "invalid"}
            assert not list(one.run.parent.glob("state/vg*"))
    finally:
        for process in (killed, *runs.values()):
            process.kill()
            process.communicate()
    assert (theirs.run / "ledger.sqlite").stat().st_uid == STRANGER
