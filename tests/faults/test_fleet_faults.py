"""A fleet of real worker processes: killed in the middle of a trial, interrupted, and approached by strangers."""

import signal
import subprocess
import sys
import time

import pytest
from fleet_runs import FakeCluster, go_on

from virtgauge.fleet.messages import MachineIdentity
from virtgauge.host.process import ProcessIdentity, environment_of, stat_fields, tree_pids
from virtgauge.ledger.records import BLOCKS_PER_HOST
from virtgauge.ledger.store import LEDGER_NAME, Ledger

pytestmark = pytest.mark.slow

PLAN = """
name = "fleet"
reference = "a"
seed = 3
aa = false
repetitions = 10
[[platform]]
name = "a"
kind = "simulated"
[[platform]]
name = "b"
kind = "simulated"
[[suite.timing]]
timers = ["rdtsc", "rdtscp"]
sleeps = []
loads = ["idle"]
reads = 20000
[fleet]
workers = "here"
one_machine = true
wait_s = 60
hosts = [{name = "north"}, {name = "south"}]
"""
TRIALS = 2 * 2 * 2 * 10  # hosts, platforms, cells, repetitions


@pytest.fixture
def command(tmp_path, private_state, any_agent, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "plan.toml").write_text(PLAN)

    def start(*arguments):
        argv = [sys.executable, "-m", "virtgauge.cli", "fleet", *map(str, arguments)]
        return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    return start


def wait_for(process, folder, what, seen, within=180):
    """Until the ledger shows it; a command that ends before says why."""
    give_up = time.monotonic() + within
    ended = False
    while not ended and time.monotonic() < give_up:
        ended = process.poll() is not None
        if (folder / LEDGER_NAME).exists():
            with Ledger.open(folder) as ledger:
                if seen(ledger):
                    return
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    raise AssertionError(f"{what} did not come within {within} s: {process.returncode}\n{output}\n{errors}")


def kinds(ledger):
    return [event.kind for event in ledger.events()]


def family(process):
    """The command and all that it started."""
    return [identity for pid in tree_pids(process.pid) if (identity := ProcessIdentity.of(pid)) is not None]


def measuring(process, host):
    """The process that measures as that host: the child of the one that watches over it."""
    for identity in family(process):
        state = environment_of(identity.pid).get("VIRTGAUGE_STATE", "")
        parent = int(stat_fields(identity.pid)[1])
        if state.endswith(f"fleet-{host}") and environment_of(parent).get("VIRTGAUGE_STATE") == state:
            return identity
    raise AssertionError(f"no process measures as {host}")


def assert_gone(identities, within=20):
    give_up = time.monotonic() + within
    while any(identity.alive() for identity in identities):
        assert time.monotonic() < give_up, "a process outlives its run"
        time.sleep(0.05)


def assert_every_trial_once(folder):
    with Ledger.open(folder) as ledger:
        trials = ledger.trials()
        assert len(trials) == TRIALS == len({trial.key for trial in trials})
        assert {trial.attempt for trial in trials} == {1}
        blocks = {*range(10), *range(BLOCKS_PER_HOST, BLOCKS_PER_HOST + 10)}
        assert {trial.block for trial in trials} == blocks
        for trial in trials:
            assert ledger.histograms_of(trial.trial_id)[trial.probe].n == 20000


def test_workers_and_coordinator_are_killed_and_nothing_is_lost_or_counted_twice(tmp_path, command, private_state):
    """One run all the way: a worker killed in a trial, then the coordinator; resumed, interrupted, and finished."""
    run = tmp_path / "run"
    process = command("run", tmp_path / "plan.toml", "--out", run, "--progress", "lines")
    wait_for(process, run, "4 trials", lambda ledger: len(ledger.trials()) >= 4)
    everybody = family(process)
    assert len(everybody) == 1 + 2 * 2  # each worker with the process that watches over it
    assert measuring(process, "north").kill()
    wait_for(process, run, "the worker that was killed", lambda ledger: "worker-back" in kinds(ledger))
    wait_for(process, run, "4 more", lambda ledger: len(ledger.trials()) >= 8)
    everybody += family(process)
    process.kill()
    _, errors = process.communicate(timeout=60)
    assert_gone(everybody)
    assert "the worker north was ended by SIGKILL; started again" in errors
    with Ledger.open(run) as ledger:
        before = ledger.trials()
        assert kinds(ledger).count("worker-lost") == 1

    process = command("resume", run)
    wait_for(process, run, "a resumed trial", lambda ledger: len(ledger.trials()) > len(before))
    everybody = family(process)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert f"virtgauge fleet resume {run}" in errors
    assert "Traceback" not in errors
    assert_gone(everybody)
    assert [entry.name for entry in private_state.iterdir()] == []

    here = FakeCluster()  # in this process, where there is nothing to start
    here.machines = {name: MachineIdentity.read() for name in ("north", "south")}
    assert go_on(run, here).complete
    assert_every_trial_once(run)
    with Ledger.open(run) as ledger:
        assert ledger.trials()[: len(before)] == before
