"""Kill -9, Ctrl-C and a full disk: no finished trial is lost or repeated, and `virtgauge resume` goes on."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from sampled import sampled

from virtgauge.ledger.read_only import ReadOnlyLedger
from virtgauge.ledger.store import LEDGER_NAME, Ledger

pytestmark = pytest.mark.slow

PLAN = """
name = "interrupted"
reference = "a"
seed = 3
aa = false
repetitions = 40
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
reads = 1000
"""
TRIALS = 40 * 2 * 2


@pytest.fixture
def command(tmp_path, private_state, any_agent):
    (tmp_path / "plan.toml").write_text(PLAN)

    def start(*arguments, **options):
        return subprocess.Popen(
            [sys.executable, "-m", "virtgauge.cli", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )

    return start


def wait_for_trials(folder, number):
    give_up = time.monotonic() + 30
    while time.monotonic() < give_up:
        if (folder / LEDGER_NAME).exists():
            with Ledger.open(folder) as ledger:
                if len(ledger.trials()) >= number:
                    return
        time.sleep(0.01)
    raise AssertionError(f"{number} trials were not recorded within 30 s")


def finished(process, *, within=60):
    output, errors = process.communicate(timeout=within)
    return process.returncode, output, errors


@pytest.mark.parametrize("after", sampled([0, 30], [3, 100]))
def test_a_run_killed_at_any_moment_is_resumed_without_loss_or_repetition(tmp_path, command, after):
    run = tmp_path / "run"
    process = command("run", tmp_path / "plan.toml", "--out", run)
    wait_for_trials(run, after)
    process.kill()
    finished(process)
    with ReadOnlyLedger.for_command(run) as ledger:
        before = ledger.trials()
    # A ledger is whole before its log begins: only a kill among trials is sure to leave one.
    assert (run / f"{LEDGER_NAME}-wal").exists() or not before
    for half in ("report.html.partial", "samples/0000001.partial", "samples/0009999.parquet"):
        (run / half).write_text("half")
    code, _, errors = finished(command("resume", run))
    assert code == 0, errors
    with Ledger.open(run) as ledger:
        trials = ledger.trials()
        assert trials[: len(before)] == before
        assert len(trials) == TRIALS == len({trial.key for trial in trials})
        assert {trial.attempt for trial in trials} == {1}
        assert [event.kind for event in ledger.events()].count("resumed") == 1
    names = {str(path.relative_to(run)) for path in run.rglob("*") if path.suffix != ".parquet"}
    assert names == {LEDGER_NAME, "plan.toml", "samples", "report.html", "controller.lock"}
    with Ledger.open(run) as ledger:
        assert len(list((run / "samples").iterdir())) == sum("samples" in trial.accounting for trial in trials)
        assert ledger.lost_samples() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_in_order_and_names_the_way_on(tmp_path, command, private_state, number):
    run = tmp_path / "run"
    process = command("run", tmp_path / "plan.toml", "--out", run)
    wait_for_trials(run, 5)
    process.send_signal(number)
    code, _, errors = finished(process)
    assert code == 130
    assert f"virtgauge resume {run}" in errors
    assert "Traceback" not in errors
    assert [entry for entry in private_state.iterdir() if entry.is_dir()] == []
    assert finished(command("resume", run))[0] == 0
    with Ledger.open(run) as ledger:
        assert len(ledger.trials()) == TRIALS


def test_resuming_a_complete_run_measures_nothing(tmp_path, command):
    run = tmp_path / "run"
    assert finished(command("run", tmp_path / "plan.toml", "--out", run, "--repetitions", "1"))[0] == 0
    assert finished(command("resume", run))[0] == 0
    with Ledger.open(run) as ledger:
        assert len(ledger.trials()) == 4


def test_a_changed_host_is_refused_unless_accepted_and_then_marked(tmp_path, command, any_agent):
    run = tmp_path / "run"
    process = command("run", tmp_path / "plan.toml", "--out", run)
    wait_for_trials(run, 5)
    process.kill()
    finished(process)
    any_agent.write_bytes(b"another agent")
    code, _, errors = finished(command("resume", run))
    assert code == 2
    assert "agent:" in errors
    assert "--accept-changed-host" in errors
    with Ledger.open(run) as ledger:
        before = len(ledger.trials())
    assert finished(command("resume", run, "--accept-changed-host"))[0] == 0
    with Ledger.open(run) as ledger:
        trials = ledger.trials()
        marked = [t for t in trials if "changed-host" in {flag.name for flag in t.flags}]
        assert len(marked) == len(trials) - before == TRIALS - before
        assert "changed-host" in {event.kind for event in ledger.events()}


def test_two_runs_do_not_measure_at_once(tmp_path, command):
    process = command("run", tmp_path / "plan.toml", "--out", tmp_path / "first", "--repetitions", "5000")
    wait_for_trials(tmp_path / "first", 1)
    code, _, errors = finished(command("run", tmp_path / "plan.toml", "--out", tmp_path / "second"))
    process.kill()
    finished(process)
    assert code == 3
    assert "two would disturb each other" in errors
    assert not (tmp_path / "second").exists()


def test_a_full_disk_ends_with_its_name_and_the_run_goes_on_when_there_is_room(tmp_path, command):
    """On a file system of 1 MB of its own, in a mount namespace of its own."""
    disk, run = tmp_path / "disk", tmp_path / "disk" / "run"
    disk.mkdir()
    script = (
        'mount -t tmpfs -o size=1m none "$1" && "$2" -m virtgauge.cli run "$3" --out "$1/run"; code=$?; '
        'mount -o remount,size=64m "$1" && "$2" -m virtgauge.cli resume "$1/run" && '
        '"$2" -m virtgauge.cli report "$1/run" --format json > "$4"; echo "codes $code $?"'
    )
    process = subprocess.run(
        ["unshare", "--mount", "bash", "-c", script, "-", disk, sys.executable, tmp_path / "plan.toml",
         tmp_path / "report.json"],
        capture_output=True, text=True, timeout=120, env=os.environ,
    )  # fmt: skip
    assert "codes 1 0" in process.stdout, process.stderr
    assert "cannot write to the run in" in process.stderr
    assert "free some space" in process.stderr
    assert "Traceback" not in process.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert len({row["trial"] for row in report["rows"]}) == TRIALS
    assert not run.exists()
