"""The timing suite in its shortest form on attached machines: on loopback, and from one namespace to another."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from platforms.ssh_server import SshServer, ssh_server

from virtgauge.host.scope import Scope
from virtgauge.ledger.records import TrialStatus
from virtgauge.ledger.store import Ledger
from virtgauge.network import Nic, links
from virtgauge.network.namespace import Namespace

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("root")]

HERE, THERE, DIAL_PORT = "10.219.0.1", "10.219.0.2", 7443

PLAN = """
name = "attached"
repetitions = 1
reference = "far"
aa = false
[[platform]]
name = "far"
kind = "attached"
{section}
[[suite.timing]]
loads = ["idle", "cpu"]
cpu_threads = 2
timers = ["clock_gettime"]
reads = 20_000
sleeps = ["usleep"]
slacks = ["default"]
targets_us = [100]
sleep_samples = 50
max_seconds = {seconds}
"""


def section(settings: dict[str, object]) -> str:
    return "\n".join(f"{key} = {json.dumps(value, default=str)}" for key, value in settings.items())


def virtgauge(*arguments: object, enter: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*enter, sys.executable, "-m", "virtgauge.cli", *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def measured(folder: Path, output: str) -> None:
    """Four cells, each valid: nothing that this machine's other processes do invalidates what is elsewhere."""
    with Ledger.open(folder) as ledger:
        trials, guests = ledger.trials(), ledger.guests()
    assert [trial.status for trial in trials] == [TrialStatus.VALID] * 4, output
    assert all(trial.accounting["guest_cpu_ns"] is None for trial in trials)
    assert guests[0].facts["kernel"]["sysname"] == "Linux"


@pytest.fixture
def plan(tmp_path: Path) -> Callable[..., Path]:
    def write(settings: dict[str, object], seconds: float = 0.5) -> Path:
        path = tmp_path / "plan.toml"
        path.write_text(PLAN.format(section=section(settings), seconds=seconds))
        return path

    return write


@pytest.fixture
def lab(scope: Scope) -> Iterator[tuple[Namespace, Namespace]]:
    """The controller's network and the machine's, joined by one link."""
    with Namespace(scope, "here") as here, Namespace(scope, "there") as there:
        links.connect(here, there, (Nic(mac="52:54:00:a7:7a:01", port="far", addresses=(f"{THERE}/30",)),))
        index = here.netlink(lambda route: route.link_lookup(ifname="far")[0])
        here.netlink(lambda route: route.addr("add", index=index, address=HERE, prefixlen=30))
        yield here, there


def call_and_hang_up() -> None:
    """As a port scan does, as soon as somebody listens."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with contextlib.suppress(ConnectionRefusedError):
            socket.create_connection((HERE, DIAL_PORT)).close()
            return
        time.sleep(0.05)
    raise AssertionError("nobody listens")


def inside(namespace: Namespace) -> tuple[str, ...]:
    return "nsenter", f"--net={namespace.path}", "--"


def test_a_run_by_ssh_from_one_network_to_another(
    lab: tuple[Namespace, Namespace], plan: Callable[..., Path], tmp_path: Path, private_state: Path
) -> None:
    here, there = lab
    with ssh_server(tmp_path / "server", THERE, inside(there)) as server:
        done = virtgauge("run", plan(server.settings()), "--out", tmp_path / "run", enter=inside(here))
        output, _ = done.communicate(timeout=120)
    assert done.returncode == 0, output
    measured(tmp_path / "run", output)


def test_a_run_by_calls_from_one_network_to_another(
    lab: tuple[Namespace, Namespace],
    plan: Callable[..., Path],
    tmp_path: Path,
    private_state: Path,
) -> None:
    """The run says what to start on the machine, which is done; and a stranger that calls meanwhile is told of."""
    here, there = lab
    settings = {"via": "dial-in", "listen": f"{HERE}:{DIAL_PORT}"}
    run = virtgauge("run", plan(settings), "--out", tmp_path / "run", "--progress", "lines", enter=inside(here))
    assert run.stdout is not None
    said, kit = "", None
    while kit is None:
        line = run.stdout.readline()
        assert line, said
        said += line
        kit = re.search(r"copy (\S+) there", said)
    there.run(call_and_hang_up)
    command = [*inside(there), "sh", kit[1], "."]
    with subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as machine:
        output, _ = run.communicate(timeout=120)
        machine.terminate()
    assert run.returncode == 0, said + output
    assert "calls of others that were refused: 1 hung up" in output
    measured(tmp_path / "run", output)
    assert list(tmp_path.glob("virtgauge.dial-in.*")) == []


@pytest.mark.lab
def test_a_run_goes_on_after_a_connection_that_was_lost_in_a_trial(
    plan: Callable[..., Path], tmp_path: Path, private_state: Path
) -> None:
    with ssh_server(tmp_path / "server") as server:
        done = virtgauge("run", plan(server.settings(), seconds=2.0), "--out", tmp_path / "run", "--progress", "lines")
        cut_in_a_trial(server, tmp_path / "run")
        output, _ = done.communicate(timeout=120)
    assert done.returncode == 0, output
    with Ledger.open(tmp_path / "run") as ledger:
        trials = ledger.trials()
    lost = [trial for trial in trials if trial.status is TrialStatus.FAILED]
    assert len(lost) == 1, output
    assert "the guest was lost" in (lost[0].error or "")
    assert sum(trial.status is TrialStatus.VALID for trial in trials) == 4


def cut_in_a_trial(server: SshServer, folder: Path) -> None:
    """Kill the server's side of the connection once a first guest is in the ledger, and so a trial under way."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with contextlib.suppress(Exception), Ledger.open(folder) as ledger:
            if ledger.guests():
                break
        time.sleep(0.02)
    for pid in server.sessions():
        os.kill(pid, signal.SIGKILL)
