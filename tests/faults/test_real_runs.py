"""Whole runs on real guests through the command: what they bring, and that nothing of them is left behind."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sampled import sampled

from virtgauge.exchange.self_check import read_self_check
from virtgauge.host.tag import TAG_PATTERN, StateFolder
from virtgauge.ledger.records import TrialStatus
from virtgauge.ledger.store import LEDGER_NAME, Ledger
from virtgauge.network.namespace import _share_folder
from virtgauge.suites.registry import SUITES

pytestmark = [pytest.mark.slow, pytest.mark.alone]

PLAN = """
name = "real"
seed = 11
repetitions = {repetitions}
attempts = 2
[[platform]]
name = "host"
kind = "host"
[[platform]]
name = "runc"
kind = "oci"
runtime = "runc"
[[platform]]
name = "gvisor"
kind = "oci"
runtime = "runsc"
[[platform]]
name = "qemu"
kind = "qemu"
machine = "microvm"
accelerator = "tcg"
[[suite.timing]]
loads = ["idle"]
timers = ["rdtscp", "clock_gettime"]
reads = 1_000_000
sleeps = ["usleep"]
slacks = ["default"]
sleep_samples = {sleeps}
[validity]  # These tests are of what runs do, whatever the machine and an emulated guest's clocks do meanwhile
foreign_load = 1.0
steal = 1.0
clock_ppm = 1_000_000.0
"""
ARMS = {"host", "host-aa", "runc", "gvisor", "qemu"}


def on_this_machine() -> set[str]:
    """Everything that a run could leave: processes of guests, mounts, cgroups, namespaces, taps, folders.

    But for what carries a tag of somebody else's runs, which may come and go meanwhile.
    """
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            environment = Path("/proc", pid, "environ").read_bytes()
            command = Path("/proc", pid, "cmdline").read_bytes().replace(b"\0", b" ")
            program = os.path.basename(command.partition(b" ")[0])
            if b"VIRTGAUGE_SCOPE=" in environment or program.startswith((b"runsc", b"qemu-system")):
                scope = environment.partition(b"VIRTGAUGE_SCOPE=")[2][:8].decode()
                found.add(f"process {pid} of {scope}: {command[:60]!r}")
    found |= {line.split(" - ")[0].split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}
    found |= {root for root, _, _ in os.walk("/sys/fs/cgroup") if "/virtgauge/" in root}
    found |= {f"interface {name}" for name in os.listdir("/sys/class/net")}
    with contextlib.suppress(FileNotFoundError):
        found |= {f"namespace {name}" for name in os.listdir("/run/netns")}
    for folder in ("/tmp", "/var/tmp", "/dev/shm", "/run"):
        names = {name for name in os.listdir(folder) if not name.startswith("vgtests-")}  # another pytest's
        found |= {f"{folder}/{name}" for name in names if name.startswith(("vg", "virtgauge", "runsc"))}
    found |= {f"temporary {name}" for name in os.listdir(os.environ["TMPDIR"])}
    state = Path(os.environ["VIRTGAUGE_STATE"])
    found |= {str(path) for path in state.glob("*") if path.is_dir()}
    ours = f"vg{StateFolder.own().mark}"
    tags = {trace: TAG_PATTERN.findall(trace) for trace in found}
    return {trace for trace in found if not tags[trace] or any(tag.startswith(ours) for tag in tags[trace])}


@pytest.fixture
def unchanged_machine(private_state, tmp_path, monkeypatch):
    private_state.mkdir()
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    before = on_this_machine()
    yield
    give_up = time.monotonic() + 30  # the kernel reaps killed processes in its own time
    while (left := on_this_machine() - before) and time.monotonic() < give_up:
        time.sleep(0.1)
    assert left == set()


@pytest.fixture
def plan(tmp_path):
    def write(repetitions, sleeps):
        path = tmp_path / "plan.toml"
        path.write_text(PLAN.format(repetitions=repetitions, sleeps=sleeps))
        return path

    return write


def start(*arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "virtgauge.cli", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_trials(run, number, process):
    give_up = time.monotonic() + 90
    while time.monotonic() < give_up and process.poll() is None:
        if (run / LEDGER_NAME).exists():
            with Ledger.open(run) as ledger:
                if len(ledger.trials()) >= number:
                    return
        time.sleep(0.05)
    raise AssertionError(f"{number} trials were not recorded; {process.communicate(timeout=10)}")


@pytest.mark.usefixtures("unchanged_machine")
def test_a_run_on_all_platforms_brings_a_million_reads_of_each(tmp_path, plan):
    process = start("run", plan(repetitions=1, sleeps=200), "--out", tmp_path / "run")
    output, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    assert output.splitlines()[-1] == f"report: {tmp_path / 'run' / 'report.html'}"
    assert len(output.splitlines()) <= 20
    with Ledger.open(tmp_path / "run") as ledger:
        valid = [trial for trial in ledger.trials() if trial.status is TrialStatus.VALID]
        assert {trial.arm for trial in valid} == ARMS
        hashes = {guest.facts["agent_sha256"] for guest in ledger.guests()}
        assert hashes == {ledger.manifest().agent_sha256}
        timers = [trial for trial in valid if trial.probe == "timer_cost"]
        assert {(t.arm, t.factors["function"]) for t in timers} == {
            (arm, function) for arm in ARMS for function in ("rdtscp", "clock_gettime")
        }
        assert all(ledger.histograms_of(trial.trial_id)["timer_cost"].n >= 1_000_000 for trial in timers)
        assert all(len(ledger.samples(trial.trial_id, "reservoir")) == 2000 for trial in timers)
        emulated = {arm.name: arm.emulated for arm in ledger.manifest().arms}
        assert emulated == {"host": False, "host-aa": False, "runc": False, "gvisor": False, "qemu": True}


@pytest.mark.usefixtures("unchanged_machine")
@pytest.mark.parametrize("after", sampled([4], [1, 8]))
def test_ctrl_c_on_real_guests_leaves_nothing_and_resumes(tmp_path, plan, after):
    run = tmp_path / "run"
    process = start("run", plan(repetitions=1, sleeps=1000), "--out", run)
    wait_for_trials(run, after, process)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    with Ledger.open(run) as ledger:
        before = ledger.trials()
    process = start("resume", run, "--progress", "json")
    _, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    with Ledger.open(run) as ledger:
        after_resume = ledger.trials()
    assert after_resume[: len(before)] == before
    keys = [trial.key for trial in after_resume if trial.status is TrialStatus.VALID]
    assert len(keys) == len(set(keys)) == 15
    events = [json.loads(line) for line in errors.splitlines() if line.startswith("{")]
    assert events[-1]["event"] == "run-ended"
    assert events[-1]["complete"] is True


@pytest.mark.usefixtures("unchanged_machine")
@pytest.mark.parametrize(
    ("cleaner", "arm"),
    sampled(
        [("clean", "gvisor")],
        [
            (how, name)
            for how in ("run", "clean")
            for name in ("runc", "gvisor", "qemu")
            if (how, name) != ("clean", "gvisor")
        ],
    ),
)
def test_after_kill_9_clean_or_the_next_run_leaves_nothing(tmp_path, plan, arm, cleaner):
    run = tmp_path / "run"
    process = start("run", plan(repetitions=1, sleeps=10_000), "--out", run, "--platform", arm, "--progress", "json")
    for line in process.stderr:
        event = json.loads(line)
        if event["event"] == "trial-progress" and f"/{arm}/" in event["key"]:
            break
    process.kill()
    process.communicate(timeout=20)
    if cleaner == "clean":
        process = start("clean")
        output, _ = process.communicate(timeout=60)
        assert "nothing was left behind" not in output
    else:
        path = plan(repetitions=1, sleeps=20)
        process = start("run", path, "--out", tmp_path / "next", "--platform", "host")
        _, errors = process.communicate(timeout=120)
        assert "reclaimed what an earlier run left" in errors
    assert process.returncode == 0


@pytest.mark.usefixtures("unchanged_machine")
@pytest.mark.parametrize("arm", sampled(["qemu"], ["host", "runc", "gvisor"]))
def test_a_guest_killed_in_a_trial_is_a_failed_trial_and_is_repeated(tmp_path, plan, arm):
    run = tmp_path / "run"
    process = start("run", plan(repetitions=1, sleeps=20_000), "--out", run, "--platform", arm, "--progress", "json")
    killed, lines = False, []
    for line in process.stderr:
        lines.append(line)
        event = json.loads(line)
        # Told before the guest is asked: a trial of seconds is not over when the signal comes.
        if event["event"] == "trial-progress" and f"/{arm}/timing/sleep" in event["key"] and not killed:
            killed = kill_guest(arm)
    assert killed, "".join(lines)
    process.communicate(timeout=100)
    with Ledger.open(run) as ledger:
        trials = [t for t in ledger.trials() if t.arm == arm and t.probe == "sleep_lateness"]
    assert [t.status for t in trials] == [TrialStatus.FAILED, TrialStatus.VALID], [t.flags for t in trials]
    assert trials[0].guest_id != trials[1].guest_id
    assert process.returncode == 0


def kill_guest(arm):
    """SIGKILL to what runs the guest of this test: QEMU, gVisor's sandbox, or the agent itself."""
    names = {"qemu": b"qemu-system", "gvisor": b"runsc-sandbox", "runc": b"virtgauge-agent", "host": b"virtgauge-agent"}
    ours = [name.encode() for name in os.listdir(os.environ["VIRTGAUGE_STATE"]) if name.startswith("vg")]
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words, *others = (process.joinpath(name).read_bytes() for name in ("cmdline", "environ", "cgroup"))
            if names[arm] in words.split(b"\0")[0] and any(tag in b"".join([words, *others]) for tag in ours):
                os.kill(int(process.name), signal.SIGKILL)
                return True
    return False


@pytest.fixture
def folder_of_namespaces(root):
    """Whoever makes the first namespace of a machine makes it, too, and leaves it for all."""
    _share_folder()


@pytest.mark.usefixtures("folder_of_namespaces", "unchanged_machine")
def test_a_self_check_measures_every_suite_and_leaves_nothing(tmp_path):
    file = tmp_path / "check.json"
    words = ["self-check", "--platform", "runc", "--minutes", "5", "--file", file, "--out", tmp_path / "run"]
    done = subprocess.run([sys.executable, "-m", "virtgauge.cli", *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found = read_self_check(file)
    suites = {one.name: {name for name, suite in one.suites.items() if suite.measured} for one in found.platforms}
    assert suites == {"host": {*SUITES}, "runc": {*SUITES}}, done.stdout
    assert found.left_behind == ()
