"""What goes wrong on a path is named: an estimate is never better than it was, and the run goes on."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from platforms.conftest import traces
from sampled import sampled
from suites.bandwidth_testbeds import ANYTHING, BEFORE_OTHERS, Laid, path

from virtgauge.agent.channel import AgentError
from virtgauge.errors import ExitCode
from virtgauge.execution.trial import Outcome, run_trial
from virtgauge.host.reclaim import reclaim_dead
from virtgauge.ledger.records import TrialStatus
from virtgauge.suites.bandwidth import suite
from virtgauge.suites.bandwidth.laboratory import ShapedPath
from virtgauge.suites.bandwidth.testbed import LISTENER_PORT

slow = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.usefixtures("private_state", "root")]
LONG = {"estimators": ["yaz-original"], "estimates": 1000}
"""Minutes of an estimator that repeats no train."""


def marked(test):
    for mark in slow:
        test = mark(test)
    return test


def kill(laid: Laid, part: str) -> None:
    pids = laid.stage.scope.cgroup(f"testbed-{part}").pids()
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


async def under_way(laid: Laid, **factors: str) -> asyncio.Task[Outcome]:
    """A trial whose first search has ended; one that a busy moment made invalid before is begun again."""
    for _ in range(3):
        begun = asyncio.Event()
        cell = laid.cell(**factors)
        task = asyncio.ensure_future(
            run_trial(cell, laid.suite, laid.testbed, ANYTHING, lambda done, begun=begun: begun.set() if done else None)
        )
        waiting = asyncio.ensure_future(begun.wait())
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED, timeout=120)
        waiting.cancel()
        if not task.done():
            return task
        assert task.result().status is TrialStatus.INVALID, task.result()
    raise AssertionError(task.result())


def router(laid: Laid):
    assert isinstance(laid.testbed.path, ShapedPath)
    return laid.testbed.path._router


# -- the listener ----------------------------------------------------------------------------------------------------


@marked
@pytest.mark.parametrize(
    ("part", "words"), sampled([("others", "the sender of the cross traffic")], [("receiver", "the receiver")])
)
async def test_who_vanishes_beside_an_estimate_is_a_failure_with_its_name_and_the_next_testbed_is_fresh(part, words):
    async with path("host", **LONG) as laid:
        estimate = await under_way(laid)
        kill(laid, part)
        outcome = await asyncio.wait_for(estimate, 120)
        assert outcome.status is TrialStatus.FAILED
        assert outcome.error.startswith(f"lost: {words} was lost during the trial")
        assert laid.testbed.closed
        assert not laid.testbed.guest.channel.closed


@marked
@pytest.mark.parametrize(
    ("part", "words"), [("others", "the sender of the cross traffic"), ("receiver", "the receiver")]
)
async def test_who_vanishes_as_the_estimate_ends_is_named_too(part, words, monkeypatch):
    """A sender not only by cross traffic that was short, a receiver not at all by its figures."""
    estimated = suite._estimated

    async def killing(testbed, *args):
        answer = await estimated(testbed, *args)
        kill(laid, part)
        return answer

    monkeypatch.setattr(suite, "_estimated", killing)
    async with path("host", **LONG | {"estimates": 1}) as laid:
        outcome = await laid.measure()
        assert outcome.status is TrialStatus.FAILED
        assert outcome.error.startswith(f"lost: {words} was lost during the trial")
        assert laid.testbed.closed


@marked
async def test_a_link_emulator_that_is_killed_is_named():
    async with path("host", **LONG, delays_ms=[10], link="emulator", cross_mbps=[0]) as laid:
        estimate = await under_way(laid)
        kill(laid, "emulator")
        outcome = await asyncio.wait_for(estimate, 120)
        assert outcome.status is TrialStatus.FAILED
        assert "the link emulator was lost" in outcome.error
        assert laid.testbed.closed


@pytest.mark.full
@marked
async def test_an_address_that_nobody_listens_at_another_program_and_no_way_are_failures_with_a_remedy(monkeypatch):
    """… of the trial alone: the next one on the same testbed is of use."""
    async with path("host", **BEFORE_OTHERS, cross_mbps=[0]) as laid:
        with monkeypatch.context() as changed:
            changed.setattr(suite, "LISTENER_PORT", LISTENER_PORT + 1)
            nobody = await laid.measure()
        assert nobody.status is TrialStatus.FAILED
        assert nobody.error.startswith("peer-lost: nothing listens at 10.81.3.1:8764; start")

        with monkeypatch.context() as changed:
            changed.setattr(laid.testbed, "address", "10.81.3.254")
            changed.setattr(laid.testbed, "listening", _nobody_of_ours)
            with _another_program(laid, "10.81.3.254"):
                other = await laid.measure()
            assert other.status is TrialStatus.FAILED
            assert other.error.startswith(
                "peer-version: what listens at 10.81.3.254:8763 is no `virtgauge bandwidth listen`"
            )

            changed.setattr(laid.testbed, "address", "10.99.0.1")
            nowhere = await laid.measure()
            assert nowhere.status is TrialStatus.FAILED
            assert nowhere.error.startswith("peer-lost: ")
            assert "check the address" in nowhere.error

        assert not laid.testbed.closed
        assert (await laid.measure()).status is TrialStatus.VALID


@contextlib.asynccontextmanager
async def _nobody_of_ours(token: str):
    yield SimpleNamespace(answer={})


@contextlib.contextmanager
def _another_program(laid: Laid, address: str):
    server = router(laid).run(lambda: socket.create_server((address, LISTENER_PORT)))

    def answer() -> None:
        with contextlib.suppress(OSError):
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n" * 8)
                while connection.recv(4096):
                    pass

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        yield
    finally:
        server.close()
        thread.join(30)


@marked
async def test_foreign_packets_are_counted_and_change_nothing():
    async with path("host", **BEFORE_OTHERS, cross_mbps=[0]) as laid:
        sender = router(laid).run(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        ended = threading.Event()

        def intrude() -> None:
            while not ended.wait(0.005):
                sender.sendto(b"x" * 100, ("10.81.3.1", LISTENER_PORT))

        stranger = threading.Thread(target=intrude)
        with sender:
            stranger.start()
            try:
                outcome = await laid.measure()
            finally:
                ended.set()
                stranger.join()
        assert outcome.status is TrialStatus.VALID, (outcome.error, outcome.flags)
        assert outcome.result["foreign_packets"] > 0
        assert outcome.result["pacing"]["refused"] or outcome.result["median_mbps"] < 60


@marked
async def test_what_the_agent_does_not_accept_is_refused_with_the_field_and_the_range():
    asked = {
        **{"listener": "10.81.3.1", "port": 1, "token": "0" * 32, "estimator": "kite2", "settings": {}},
        **{"clock": "hptime", "sleep": "hptime", "pacing": "auto", "instants": 1, "packet_bytes": 1500},
        **{"cpu": None, "fifo": None, "lowest_bps": None, "highest_bps": None},
    }
    async with path("host") as laid:
        for field, value in (("packet_bytes", 9001), ("packet_bytes", 63), ("highest_bps", 1e13), ("lowest_bps", 1.0)):
            with pytest.raises(AgentError) as caught:
                await laid.testbed.guest.channel.request(
                    "probe", name="bandwidth", params=asked | {field: value}, load=None, timeout_s=30
                )
            assert caught.value.code == "bad-request"
            assert field in caught.value.message and "accepted" in caught.value.message


# -- the plan --------------------------------------------------------------------------------------------------------

PLAN = """
[[platform]]
name = "host"
kind = "host"
[[suite.bandwidth]]
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("packet_bytes = 9000", "less than or equal to 1500"),
        ("cross_mbps = [400]", "nothing is left of capacities_mbps = 300"),
    ],
)
def test_what_no_path_can_be_is_refused_before_anything_is_started(section, said, tmp_path, private_state):
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

ESTIMATE_AND_DIE = """
import asyncio, os, signal
from suites.bandwidth_testbeds import path
from faults.test_bandwidth_faults import LONG, under_way

async def main():
    async with path("runc", **LONG, delays_ms=[10], link="emulator") as laid:
        print(laid.stage.scope.tag, flush=True)
        await under_way(laid)
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


@marked
def test_a_controller_that_is_killed_in_a_trial_leaves_what_the_next_start_removes():
    dead = subprocess.run(
        [sys.executable, "-c", ESTIMATE_AND_DIE],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])},
        timeout=120,
        check=False,
    )
    assert dead.returncode == -signal.SIGKILL, dead.stderr
    tag = dead.stdout.strip()
    assert traces(tag) != []
    reclaim_dead()
    assert traces(tag) == []


@marked
async def test_a_trial_that_is_cancelled_leaves_nothing():
    async with path("host", **LONG) as laid:
        estimate = await under_way(laid)
        estimate.cancel()
        with pytest.raises(asyncio.CancelledError):
            await estimate
