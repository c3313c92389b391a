"""Two attached machines in networks of their own: the path between them, and what is estimated of it."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest
from platforms.ssh_server import SshServer, ssh_server
from platforms.test_attached_runs import inside, section, virtgauge

from virtgauge.host.cgroup import Cgroup
from virtgauge.host.scope import Scope
from virtgauge.ledger.records import TrialRecord, TrialStatus
from virtgauge.ledger.store import Ledger
from virtgauge.network import Nic, Route, links
from virtgauge.network.namespace import Namespace
from virtgauge.network.shaper import Bucket, shape

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("root")]

PLAN = """
name = "pair"
repetitions = {repetitions}
reference = "far"
aa = false
attempts = {attempts}
[validity]
patience_s = 0
steal = 1.0
[[platform]]
name = "far"
kind = "attached"
{first}
[platform.peer]
{second}
"""
FIRST, SECOND = (f"10.219.{number}.2" for number in (1, 2))
"""Where the controller reaches them."""
MBPS = 50
Machines = tuple[Namespace, SshServer, SshServer]


def gateway(router: Namespace, port: str, address: str) -> None:
    def give(route: object) -> None:
        route.addr("add", index=socket.if_nametoindex(port), address=address, prefixlen=24)

    router.netlink(give)


@pytest.fixture
def machines(scope: Scope, tmp_path: Path) -> Iterator[Machines]:
    """The controller's network and two machines: each on a link of its own to it, and a router between the two."""
    with contextlib.ExitStack() as stack:
        here = stack.enter_context(Namespace(scope, "here"))
        router = stack.enter_context(Namespace(scope, "router", forwarding=True))
        servers = []
        for number, name in enumerate(("one", "two"), start=1):
            machine = stack.enter_context(Namespace(scope, name))
            nic = Nic(mac=f"52:54:00:a7:7b:0{number}", port=name, addresses=(f"10.219.{number}.2/24",))
            links.connect(here, machine, (nic,))
            gateway(here, name, f"10.219.{number}.1")
            others = Route(f"10.220.{3 - number}.0/24", f"10.220.{number}.254")
            nic = Nic(
                mac=f"52:54:00:a7:7c:0{number}", port=name, addresses=(f"10.220.{number}.2/24",), routes=(others,)
            )
            links.connect(router, machine, (nic,), first=1)
            gateway(router, name, f"10.220.{number}.254")
            servers.append(stack.enter_context(ssh_server(tmp_path / name, f"10.219.{number}.2", inside(machine))))
        shape(router, "two", Bucket.of("tbf", MBPS * 1e6, 100, 10))
        yield here, *servers


def measured(
    machines: Machines,
    folder: Path,
    peer: dict[str, object],
    suite: str,
    complete: bool = True,
    machine: Mapping[str, object] = MappingProxyType({}),
    **further: int,
) -> tuple[list[TrialRecord], str]:
    """What is to be valid has three attempts, for a pause of this machine may spoil one."""
    here, first, second = machines
    sections = {"first": section(first.settings(**machine)), "second": section(second.settings(**peer))}
    numbers = {"repetitions": 1, "attempts": 3 if complete else 1} | further
    (folder / "plan.toml").write_text(PLAN.format(**numbers, **sections) + suite)
    done = virtgauge("run", folder / "plan.toml", "--out", folder / "run", enter=inside(here))
    output, _ = done.communicate(timeout=240)
    assert (done.returncode == 0) == complete, output
    with Ledger.open(folder / "run") as ledger:
        return ledger.trials(), output


BANDWIDTH = """
[[suite.bandwidth]]
timings = ["hptime"]
capacities_mbps = ["as-is"]
estimates = 2
fifo = 50
"""


def test_an_estimate_of_the_path_between_two_machines_is_what_its_router_lets_pass(
    machines: Machines, tmp_path: Path, private_state: Path
) -> None:
    """The run knows nothing of the shaper on the path; the estimate is near it, and no error is told."""
    for number in range(3):  # a pause of this machine may fall into a search, or keep the sender from its pace
        folder = tmp_path / f"try{number}"
        folder.mkdir()
        (*_, trial), output = measured(machines, folder, {"address": "10.220.2.2"}, BANDWIDTH)
        assert trial.status is TrialStatus.VALID, (trial.error, trial.flags)
        result = trial.result
        if near := result["median_mbps"] == pytest.approx(MBPS * 1500 / 1514, rel=0.1):
            break
    assert near, result
    assert (result["truth_mbps"], result["error_ratio"]) == (None, None)
    assert result["receiver"] == "peer"
    assert result["stamp"] == "kernel"
    assert "what is true of a path as it is nobody knows" in output


TIMING = """
[[suite.timing]]
loads = ["idle", "io"]
timers = ["clock_gettime"]
reads = 20_000
sleeps = []
max_seconds = 2.0
"""


def test_a_machine_is_measured_beside_its_files_which_its_peer_uses_and_nothing_is_left_of_them(
    machines: Machines, tmp_path: Path, private_state: Path
) -> None:
    files = tmp_path / "files"
    files.mkdir()
    machine = {"address": "10.220.1.2", "folder": str(files)}
    trials, output = measured(machines, tmp_path, {}, TIMING, machine=machine)
    assert {trial.factors["load"]: trial.status for trial in trials} == dict.fromkeys(("idle", "io"), TrialStatus.VALID)
    *_, load = (trial.result["load"] for trial in trials if trial.factors["load"] == "io")
    assert load["service"].startswith("agent file service (") and "not known" not in load["service"]
    assert load["read_mb_per_s"] > 0 and load["written_mb_per_s"] > 0
    assert load["errors"] == load["wrong_content"] == 0
    assert "stands from now on" not in output and "its peer" not in output
    assert list(files.iterdir()) == []


@pytest.mark.parametrize(
    ("address", "words", "repetitions"),
    [("10.220.1.9", "Cannot assign requested address", 4), (FIRST, "Network is unreachable", 1)],
    ids=["another's", "out of the peer's reach"],
)
def test_files_that_cannot_be_used_fail_their_cells_with_address_port_and_reason_and_no_others(
    machines: Machines, tmp_path: Path, private_state: Path, address: str, words: str, repetitions: int
) -> None:
    """As often as gives up a machine whose guests do not come up."""
    suite = f"{TIMING}[[suite.timing]]\nloads = ['idle']\ntimers = ['rdtscp']\nreads = 20_000\nsleeps = []\n"
    machine = {"address": address}
    trials, _ = measured(machines, tmp_path, {}, suite, repetitions=repetitions, attempts=1, machine=machine)
    found = {(trial.factors["load"], trial.status) for trial in trials}
    assert found == {("idle", TrialStatus.VALID), ("io", TrialStatus.FAILED)}
    assert sum(trial.status is TrialStatus.VALID for trial in trials) == 2 * repetitions
    for trial in trials:
        if trial.status is TrialStatus.FAILED:
            assert f"files at {address}, port 2050 (TCP)" in (trial.error or "") and words in (trial.error or "")


ISOLATION = """
[[suite.isolation]]
policy_set_by_hand = true
benchmarks = ["integer"]
loads = ["none", "integer"]
policies = ["limit"]
shares = [25]
warmup_s = 0.2
seconds = 1.0
"""


@pytest.mark.alone
@pytest.mark.parametrize("hand", [0.25, None], ids=["set", "forgotten"])
def test_a_limit_that_was_set_by_hand_is_seen_from_inside_and_one_that_was_not_counts_for_nothing(
    machines: Machines, tmp_path: Path, private_state: Path, hand: float | None
) -> None:
    """Two machines on one processor; the hand is a control group around the first, of which the run knows nothing."""
    _, first, second = machines
    cpu = max(os.sched_getaffinity(0))
    for server in (first, second):
        os.sched_setaffinity(server.process.pid, {cpu})
    group = Cgroup(f"virtgauge-test-{os.getpid()}", cpu_limit=hand)
    assert group.create()
    try:
        group.adopt(first.process.pid)
        trials, output = measured(machines, tmp_path, {}, ISOLATION, complete=hand is not None)
    finally:
        group.kill_all()
        group.remove()
    assert "set by hand on the tested machine" in output
    last = {trial.factors["load"]: trial for trial in trials}
    assert sorted(last) == ["integer", "none"]
    for trial in last.values():
        if hand is None:
            assert [flag.name for flag in trial.flags if flag.fatal] == ["policy-not-in-force"], trial.flags
            continue
        assert trial.status is TrialStatus.VALID, (trial.error, trial.flags)
        assert set(trial.result["policy_applied"]["tested"]["in_force"]) == {"alone", "beside a busy neighbour"}
        assert trial.result["cpu"]["tested"] is None
        assert trial.result["io_wait_share"] is None
