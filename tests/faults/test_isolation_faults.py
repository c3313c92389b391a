"""What goes wrong beside a noisy neighbour is named: no trial is better than it was, and the run goes on."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from platforms.conftest import assert_removed, traces
from sampled import sampled
from suites.isolation_testbeds import Pair, flags, pair

from virtgauge.errors import ExitCode
from virtgauge.host.cgroup import Hierarchies
from virtgauge.host.reclaim import reclaim_dead
from virtgauge.ledger.records import TrialStatus
from virtgauge.platforms.base import LaunchError

slow = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.usefixtures("private_state")]
MIB = 2**20


def marked(test):
    for mark in slow:
        test = mark(test)
    return test


async def during(lab: Pair, disturbance, **factors):
    """A trial that is disturbed in its middle."""
    trial = asyncio.ensure_future(lab.measure(**factors))
    await asyncio.sleep(1.5)
    assert not trial.done(), trial.result()
    disturbance()
    return await trial


def kill(lab: Pair, guest: str) -> None:
    for pid in lab.stage.scope.cgroup(f"testbed-{guest}").pids():
        os.kill(pid, signal.SIGKILL)


# -- the neighbour ---------------------------------------------------------------------------------------------------


@marked
@pytest.mark.parametrize("name", sampled(["runc"], ["host", "microvm"]))
async def test_a_neighbour_that_is_lost_makes_the_trial_invalid_and_the_next_testbed_a_fresh_one(name):
    async with pair(name, loads=["integer"], seconds=4.0) as lab:
        outcome = await during(lab, lambda: kill(lab, "loading"), load="integer")
        assert outcome.status is TrialStatus.INVALID
        assert "loader-died" in flags(outcome)
        assert outcome.result["load"]["error"]
        assert outcome.result["value"] > 0  # kept, and never averaged in
        assert lab.testbed.closed


@marked
async def test_a_load_that_fails_makes_the_trial_invalid_and_leaves_the_testbed_of_use():
    async with pair("host", loads=["none", "disk-sequential-read"], seconds=4.0) as lab:

        def overwrite() -> None:
            (path,) = lab.testbed.disks["loading"].folder.glob("virtgauge-*")
            with path.open("r+b") as file:
                file.write(b"something else" * 200_000)
                os.fsync(file.fileno())

        outcome = await during(lab, overwrite, load="disk-sequential-read")
        assert outcome.status is TrialStatus.INVALID
        [died] = [flag for flag in outcome.flags if flag.name == "loader-died"]
        assert "disk-sequential-read ended early" in died.detail
        assert "is not what was written" in died.detail
        assert not lab.testbed.closed
        assert (await lab.measure()).status is TrialStatus.VALID


@marked
async def test_a_tested_guest_that_is_lost_is_a_failure():
    async with pair("runc", loads=["integer"], seconds=4.0) as lab:
        outcome = await during(lab, lambda: kill(lab, "tested"), load="integer")
        assert outcome.status is TrialStatus.FAILED
        assert outcome.guest_lost
        assert "the guest was lost" in outcome.error


# -- memory and disk -------------------------------------------------------------------------------------------------


@marked
@pytest.mark.parametrize("name", ["runc", "runsc"])
@pytest.mark.parametrize("guest", ["tested", "loading"])
async def test_an_exhausted_memory_limit_is_told_as_such(name, guest):
    """The block is larger than the guest; of whichever asks for it."""
    design = {
        "tested": {"benchmarks": ["memory-write-integer"], "memory_blocks": ["512MiB"]},
        "loading": {"loads": ["memory-write-integer"], "load_memory_block": "512MiB"},
    }[guest]
    async with pair(name, memory_mib=256, **design) as lab:
        outcome = await lab.measure(load="none" if guest == "tested" else "memory-write-integer")
        assert outcome.status is TrialStatus.FAILED
        assert outcome.error.startswith("out-of-memory: the host's kernel killed")
        assert f"of the {guest} guest at its memory limit of 256 MiB" in outcome.error
        assert lab.testbed.closed


@marked
@pytest.mark.parametrize("name", sampled(["runc"], ["host"]))
async def test_a_full_disk_is_a_failure_in_words_and_the_next_trial_goes_on(name):
    design = {"benchmarks": ["disk-sequential-write", "integer"], "loads": ["none", "flush"], "disk_mib": 32}
    async with pair(name, disk_file_mib=8, **design) as lab:
        for guest, factors in (
            ("tested", {"benchmark": "disk-sequential-write"}),
            ("loading", {"benchmark": "integer", "load": "flush"}),
        ):
            filler = lab.testbed.disks[guest].folder / "filler"
            with pytest.raises(OSError, match="No space left"), filler.open("wb") as file:
                while True:
                    file.write(b"x" * MIB)
            outcome = await lab.measure(**factors)
            assert outcome.status is TrialStatus.FAILED
            assert "No space left on device" in outcome.error
            assert ("the load flush" in outcome.error) == (guest == "loading")
            assert not lab.testbed.closed
            filler.unlink()
            again = await lab.measure(**factors)
            assert again.status is TrialStatus.VALID, (again.error, again.flags)


@marked
async def test_a_disk_that_has_not_even_room_for_its_image_is_a_failed_launch(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(LaunchError, match=r"no \d+ MiB left on the disk"):
        async with pair("host", loads=["flush"], disk_mib=2**23):
            raise AssertionError("it was made without any room for it")


# -- policies --------------------------------------------------------------------------------------------------------


@marked
async def test_a_policy_that_the_host_refuses_is_no_figure_and_the_run_goes_on(monkeypatch):
    async with pair("host", policies=["limit"], loads=["none"]) as lab:
        with monkeypatch.context() as changed:
            changed.setattr(lab.testbed.loading._policy._cgroup, "hierarchies", Hierarchies(v1={}, v2=None))
            refused = await lab.measure(policy="limit")
        assert refused.status is TrialStatus.UNSUPPORTED
        assert refused.error.startswith("the policy of the loading guest cannot be applied: no cgroup file system")
        assert not refused.guest_lost
        assert (await lab.measure(policy="limit")).status is TrialStatus.VALID


PLAN = """
[[platform]]
name = "host"
kind = "host"
[[suite.isolation]]
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("shares = [120]", "less than or equal to 100"),  # a limit above all there is
        ("shares = [0.1]", "less than 0.01 is not accepted by the kernel"),
        ("cpus = [4095]", "not [4095]"),  # more cores than exist
        ('policies = ["weight"]\nshares = [0.2]', "weights go from 1 to 10000"),
        ('policies = ["reservation"]\nshares = [99.999]', "weights go from 1 to 10000"),
    ],
)
def test_what_no_kernel_accepts_is_refused_before_anything_is_started(section, said, tmp_path, private_state):
    plan, run = tmp_path / "plan.toml", tmp_path / "run"
    plan.write_text(PLAN + section)
    done = subprocess.run(
        [sys.executable, "-m", "virtgauge.cli", "run", str(plan), "--out", str(run)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == ExitCode.USAGE
    assert said in " ".join(done.stderr.split())
    assert "nothing was started" in done.stderr
    assert not run.exists()
    assert not private_state.exists()


# -- the controller --------------------------------------------------------------------------------------------------

MEASURE_AND_DIE = """
import asyncio, os, signal
from suites.isolation_testbeds import pair

async def main():
    async with pair("runc", loads=["flush"], policies=["limit"], seconds=5.0) as lab:
        print(lab.stage.scope.tag, flush=True)
        trial = asyncio.ensure_future(lab.measure(load="flush", policy="limit"))
        await asyncio.sleep(2.0)
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


@marked
def test_a_controller_that_is_killed_in_a_trial_leaves_what_clean_removes():
    dead = subprocess.run(
        [sys.executable, "-c", MEASURE_AND_DIE],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])},
        timeout=60,
        check=False,
    )
    assert dead.returncode == -signal.SIGKILL, dead.stderr
    tag = dead.stdout.strip()
    assert traces(tag) != []
    reclaim_dead()
    assert_removed(tag)


@marked
async def test_a_trial_that_is_cancelled_leaves_nothing():
    async with pair("host", loads=["flush"], seconds=30.0) as lab:
        trial = asyncio.ensure_future(lab.measure(load="flush"))
        await asyncio.sleep(1.5)
        trial.cancel()
        with pytest.raises(asyncio.CancelledError):
            await trial
