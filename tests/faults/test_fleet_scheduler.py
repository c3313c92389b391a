"""An existing cluster whose scheduler is killed and started again: the run goes on, and nothing is measured twice."""

import contextlib
import datetime
import os
import signal
import socket
import subprocess
import sys
from collections import Counter

import pytest
from fleet_hosts import ended
from waiting import wait_until

from virtgauge.errors import ExitCode
from virtgauge.fleet.cluster import TlsFiles
from virtgauge.ledger.records import BLOCKS_PER_HOST
from virtgauge.ledger.store import LEDGER_NAME, Ledger

pytestmark = pytest.mark.slow

HOSTS = ("north", "south")
PLAN = """
reference = "a"
seed = 3
aa = false
repetitions = 2
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
reads = 2000
[fleet]
one_machine = true
wait_s = {wait_s}
hosts = [{{name = "north"}}, {{name = "south"}}]
scheduler = "tls://127.0.0.1:{port}"
ca = "{ends[0]}"
certificate = "{ends[1]}"
key = "{ends[2]}"
"""
BATCHES = {(host, block, arm) for host in HOSTS for block in (0, 1) for arm in "ab"}
LINGERING = """
import asyncio, os, sys
from virtgauge import cli
from virtgauge.fleet import coordinator, work

def note(*words):
    with open(os.environ["NOTES"], "a") as notes:
        print(*words, file=notes)

def lingering(function, before, after, name):
    async def call(*given):
        note(before, *name(*given))
        if before == "measures":
            await asyncio.sleep(float(open(os.environ["LINGER_BATCH"]).read()))
        while os.path.exists(os.environ["HELD"] + before):
            await asyncio.sleep(0.05)
        found = await function(*given)
        note(after, *name(*given))
        return found
    return call

def batch(place, assignment, *_):
    return ("north", "south")[assignment.first_block // 100_000], assignment.block % 100_000, assignment.arm

work.Workplace.measure = lingering(work.Workplace.measure, "measures", "measured", batch)
work._enlist = lingering(work._enlist, "enlists", "enlisted", lambda request: ())
coordinator.Coordinator._measure = lingering(
    coordinator.Coordinator._measure, "next", "merged", lambda of, host, placed: (host.name,)
)
sys.exit(cli.main())
"""


class LostScheduler:
    """A scheduler that can be killed, two workers and a coordinator, which note what they do, and can be held there."""

    def __init__(self, folder, stack):
        self.folder, self._stack = folder, stack
        temporary = TlsFiles.temporary()
        self.ends = [folder / name for name in ("ca.pem", "certificate.pem", "key.pem")]
        for path, text in zip(self.ends, (temporary.ca, temporary.certificate, temporary.key), strict=True):
            path.write_text(text)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.notes = folder / "notes"
        self.notes.touch()
        self.linger_batch = folder / "linger-batch"
        self.linger_batch.write_text("0.5")
        self.start_scheduler()
        for name in HOSTS:
            words = ["worker", "--scheduler", f"tls://127.0.0.1:{self.port}", "--name", name]
            ends = zip(("--ca", "--certificate", "--key"), map(str, self.ends), strict=True)
            self.command(*words, *(word for pair in ends for word in pair), state=folder / name)

    def command(self, *words, state=None):
        """``virtgauge fleet …``."""
        own = {
            "NOTES": str(self.notes),
            "HELD": f"{self.folder}/held-",
            "LINGER_BATCH": str(self.linger_batch),
            "VIRTGAUGE_STATE": str(state or self.folder / "state"),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
        }
        argv = [sys.executable, "-c", LINGERING, "fleet", *map(str, words)]
        output = None if state is None else self._stack.enter_context((self.folder / f"{state.name}.log").open("w"))
        process = subprocess.Popen(
            argv, env=os.environ | own, stdout=output or subprocess.PIPE, stderr=output or subprocess.PIPE, text=True
        )
        self._stack.callback(ended, process)
        return process

    def hold(self, before):
        """Whoever notes this from now on stays there, however late it is seen, until it is let go."""
        (self.folder / f"held-{before}").touch()

    def let_go(self, before):
        (self.folder / f"held-{before}").unlink()

    def run(self, wait_s=60):
        """A run that has begun; its workers are there."""
        wait_until("both workers", lambda: self.workers_are_there(1))
        plan = self.folder / "plan.toml"
        plan.write_text(PLAN.format(wait_s=wait_s, port=self.port, ends=self.ends))
        return self.command("run", plan, "--out", self.folder / "run", "--progress", "lines")

    def start_scheduler(self):
        files = zip(("--ca", "--certificate", "--key"), map(str, self.ends), strict=True)
        where = ["--listen", "127.0.0.1", "--port", str(self.port), *(word for pair in files for word in pair)]
        self.scheduler = self.command("scheduler", *where)
        wait_until("the scheduler", self._listens)

    def _listens(self):
        with contextlib.suppress(ConnectionError), socket.create_connection(("127.0.0.1", self.port)):
            return True
        return False

    def workers_are_there(self, times):
        return all((self.folder / f"{name}.log").read_text().count("is connected to") == times for name in HOSTS)

    def kill_scheduler(self):
        self.scheduler.send_signal(signal.SIGKILL)
        self.scheduler.wait()

    def noted(self, *words):
        """How often."""
        return sum(line.split()[: len(words)] == list(words) for line in self.notes.read_text().splitlines())

    def trials(self):
        with Ledger.open(self.folder / "run") as ledger:
            return ledger.trials()

    def events(self):
        with Ledger.open(self.folder / "run") as ledger:
            return [event.kind for event in ledger.events()]

    def assert_each_batch_began_once(self):
        lines = [line.split() for line in self.notes.read_text().splitlines()]
        begun = Counter((line[1], int(line[2]), line[3]) for line in lines if line[0] == "measures")
        assert begun == Counter(BATCHES)

    def assert_each_trial_once(self):
        trials = self.trials()
        assert len(trials) == 2 * len(BATCHES) == len({trial.key for trial in trials})
        places = {(HOSTS[trial.block // BLOCKS_PER_HOST], trial.block % BLOCKS_PER_HOST, trial.arm) for trial in trials}
        assert places == BATCHES


@pytest.fixture
def lost(tmp_path, private_state, any_agent):
    with contextlib.ExitStack() as stack:
        yield LostScheduler(tmp_path, stack)


def test_a_scheduler_that_is_killed_in_enrolment_between_batches_and_in_batches_costs_nothing(lost):
    lost.hold("enlists")
    run = lost.run()
    wait_until("an enrolment", lambda: lost.noted("enlists"))
    lost.kill_scheduler()
    lost.hold("next")
    lost.let_go("enlists")
    wait_until("its end, which nobody hears", lambda: lost.noted("enlisted"))
    lost.start_scheduler()

    wait_until("a moment between batches", lambda: lost.noted("next"))
    assert lost.noted("measures") == 0
    lost.kill_scheduler()
    lost.linger_batch.write_text("2.5")  # workers come back at different moments, and all are to be in a batch
    lost.let_go("next")
    lost.start_scheduler()

    wait_until("the second batch of each", lambda: all(lost.noted("measures", name) >= 2 for name in HOSTS))
    lost.kill_scheduler()
    lost.linger_batch.write_text("0.5")
    wait_until("their end", lambda: lost.noted("measured") == lost.noted("measures"))
    assert lost.noted("merged") < lost.noted("measures")  # which nobody hears
    lost.start_scheduler()

    out, err = run.communicate(timeout=120)
    assert run.returncode == ExitCode.OK, out + err
    lost.assert_each_batch_began_once()
    lost.assert_each_trial_once()
    assert {"scheduler-lost", "completed"} <= set(lost.events()), lost.events()
    assert "worker-lost" not in lost.events()  # nobody else is blamed
    assert not list((lost.folder / "cache" / "virtgauge" / "fleet").iterdir())  # workers were told that it is over


def test_a_scheduler_that_stays_away_ends_the_run_as_incomplete_and_it_can_be_resumed(lost):
    lost.hold("measures")
    run = lost.run(wait_s=2)
    wait_until("a batch of each", lambda: all(lost.noted("measures", name) for name in HOSTS))
    lost.kill_scheduler()
    lost.let_go("measures")
    wait_until("their end, which nobody hears", lambda: lost.noted("measured") == 2)
    out, err = run.communicate(timeout=60)
    assert run.returncode == ExitCode.FAILED, out + err
    assert f" fleet resume {lost.folder / 'run'}" in out + err
    assert lost.events()[-1] == "ended incomplete"
    assert (lost.folder / "run" / LEDGER_NAME).exists()

    with_them = datetime.datetime.now(datetime.UTC).isoformat()
    lost.start_scheduler()
    # They look for it every few seconds: the plan's 2 s are fewer.
    wait_until("both workers", lambda: lost.workers_are_there(2))
    again = lost.command("resume", lost.folder / "run")
    out, err = again.communicate(timeout=120)
    assert again.returncode == ExitCode.OK, out + err
    lost.assert_each_trial_once()
    kept = [trial for trial in lost.trials() if trial.started_at < with_them]
    assert len(kept) == 2 * 2  # of a batch of each host, which nobody had asked for when it ended


def test_what_a_killed_command_left_under_way_on_a_cluster_is_ended_by_who_resumes_its_run(lost):
    lost.linger_batch.write_text("600")
    run = lost.run()
    wait_until("a batch of each", lambda: all(lost.noted("measures", name) for name in HOSTS))
    run.kill()
    run.wait()
    lost.linger_batch.write_text("0.1")
    again = lost.command("resume", lost.folder / "run")
    out, err = again.communicate(timeout=120)
    assert again.returncode == ExitCode.OK, out + err
    lost.assert_each_trial_once()
