"""Suites across hosts: the tester on one, the guests on another, over tunnels and over cables."""

import json
import os
import signal
import subprocess
import sys

import pytest
from fleet_hosts import NORTH, both_workers, scheduler, two_hosts
from sampled import sampled
from waiting import wait_until

from virtgauge.host.process import stat_fields, tree_pids
from virtgauge.ledger.records import TrialStatus
from virtgauge.ledger.store import Ledger
from virtgauge.network import NetworkError, Nic
from virtgauge.network.wire import Tunnel, path_mtu, require_room

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.usefixtures("root")]

FORWARDING = """
[[suite.forwarding]]
platforms = ["runc"]
guests = 1
switch = "bridge"
vectors = ["equal"]
frame_bytes = [1518]
trial_s = 0.2
duration_sum_s = 0.4
min_pps = 200
late_share = 1.0
max_pps = 100000
resolution = 0.2
calibration_s = 0.2
latency_loads = [50]
latency_s = 0.2
"""
BANDWIDTH = """
[[suite.bandwidth]]
platforms = ["runc"]
estimators = ["kite2"]
timings = ["system"]
capacities_mbps = [100]
cross_mbps = [20]
estimates = 3
capacity_s = 0
"""


def plan(address, hosts, *, suites, pair="", attempts=1, repetitions=1):
    """Guests on south; their tester on north."""
    pairs = "".join(
        f'[[fleet.pair]]\nsuite = "{suite}"\ntester = "north"\nguests = "south"\n{pair}\n' for suite in suites
    )
    designs = "".join({"forwarding": FORWARDING, "bandwidth": BANDWIDTH}[suite] for suite in suites)
    text = f"""
name = "across"
reference = "host"
aa = false
seed = 5
repetitions = {repetitions}
attempts = {attempts}
[validity]
foreign_load = 1.0
steal = 1.0
[[platform]]
name = "host"
kind = "host"
[[platform]]
name = "runc"
kind = "oci"
runtime = "runc"
{designs}
[fleet]
scheduler = "{address}"
ca = "{hosts.files.ca}"
certificate = "{hosts.files.certificate}"
key = "{hosts.files.key}"
one_machine = true
wait_s = 60
hosts = [{{name = "north", measured = false}}, {{name = "south"}}]
{pairs}"""
    path = hosts.folder / "plan.toml"
    path.write_text(text)
    return path


def run(hosts, path):
    words = [sys.executable, "-m", "virtgauge.cli", "fleet", "run", str(path), "--out", str(hosts.folder / "run")]
    return hosts.start(hosts.north, *words)


def carried(host, interface):
    """Bytes that came in at an interface of a host."""
    words = ["ip", "-j", "-s", "-n", host.name, "link", "show", interface]
    found = subprocess.run(words, capture_output=True, check=True)
    return json.loads(found.stdout)[0]["stats64"]["rx"]["bytes"]


def left(host):
    """Interfaces of a host."""
    found = subprocess.run(["ip", "-j", "-n", host.name, "link"], capture_output=True, check=True)
    return {link["ifname"] for link in json.loads(found.stdout)}


def results(hosts):
    """By suite; each trial came to a result, valid or not, for how well this machine keeps time is not asked."""
    with Ledger.open(hosts.folder / "run") as ledger:
        found, failed = ledger.trials(), [guest.error for guest in ledger.guests() if guest.error]
    assert failed == []
    assert [trial.error for trial in found if trial.status is TrialStatus.FAILED] == []
    assert len({trial.key for trial in found}) == len(found)
    return {suite: [t.result for t in found if t.suite == suite] for suite in sorted({t.suite for t in found})}


@pytest.mark.parametrize("suite", sampled(["forwarding"], ["bandwidth"]))
def test_testers_on_another_host_are_joined_by_tunnels(suite, tmp_path, private_state):
    with two_hosts(tmp_path) as hosts, scheduler(hosts) as address, both_workers(hosts, address):
        there, near = left(hosts.north), []
        repetitions = 3 if suite == "bandwidth" else 1  # of estimates, a pause of the machine may spoil one
        done = run(hosts, plan(address, hosts, suites=[suite], repetitions=repetitions))
        out, err = done.communicate(timeout=180)
        assert done.returncode in (0, 1), out + err  # 1: no trial was valid
        found = results(hosts)
        assert {name: len(of_suite) for name, of_suite in found.items()} == {suite: repetitions}
        for forwarded in found.get("forwarding", ()):
            assert forwarded["throughput_pps"] > 0
            assert forwarded["loss_accounting"]["unattributed"] == 0
        for estimated in found.get("bandwidth", ()):
            truth, median = pytest.approx(79, abs=3), pytest.approx(79, rel=0.3)  # 80 with Ethernet headers
            near.append(estimated["truth_mbps"] == truth and estimated["median_mbps"] == median)
        assert any(near) or suite != "bandwidth", found
        carried_bytes = sum(one["frames_sent"] * 1000 for one in found.get("forwarding", ()))
        assert carried(hosts.north, "lan") > carried_bytes
        assert carried(hosts.south, "lan") > carried_bytes
        assert left(hosts.north) == left(hosts.south) == there


@pytest.mark.full
def test_what_a_wire_loses_is_attributed_to_it(tmp_path, private_state):
    """The network between the hosts is the narrowest place: some 8000 frames a second."""
    with two_hosts(tmp_path) as hosts, scheduler(hosts) as address, both_workers(hosts, address):
        shaped = ["root", "tbf", "rate", "100mbit", "burst", "20kb", "limit", "100kb"]
        subprocess.run(["tc", "-n", hosts.north.name, "qdisc", "add", "dev", "lan", *shaped], check=True)
        done = run(hosts, plan(address, hosts, suites=["forwarding"]))
        out, err = done.communicate(timeout=120)
        assert done.returncode in (0, 1), out + err
        for forwarded in results(hosts)["forwarding"]:
            assert forwarded["throughput_pps"] < 9000
            lost = forwarded["loss_accounting"]
            assert lost["unattributed"] == 0
            assert lost["places"]["wire: lost on the way to the guests"] > 0.5 * lost["lost"]


@pytest.mark.full
def test_testers_on_another_host_are_joined_by_cables(tmp_path, private_state):
    cables = 'cables = [{tester = "cable0", guests = "cable0"}, {tester = "cable1", guests = "cable1"}]'
    with two_hosts(tmp_path, mtu=1500) as hosts, scheduler(hosts) as address, both_workers(hosts, address):
        there, before = left(hosts.north), carried(hosts.south, "lan")
        done = run(hosts, plan(address, hosts, suites=["forwarding", "bandwidth"], pair=cables))
        out, err = done.communicate(timeout=120)
        assert done.returncode in (0, 1), out + err
        found = results(hosts)
        assert [len(of_suite) for of_suite in found.values()] == [1, 1]
        sent = sum(one["frames_sent"] for one in found["forwarding"])
        assert carried(hosts.south, "cable0") + carried(hosts.south, "cable1") > 1000 * sent
        assert carried(hosts.south, "lan") - before < 1000 * sent
        assert left(hosts.north) == left(hosts.south) == there


@pytest.mark.full
def test_a_tester_that_is_killed_during_a_trial_comes_back_and_nothing_is_lost(tmp_path, private_state):
    with two_hosts(tmp_path) as hosts, scheduler(hosts) as address, both_workers(hosts, address) as workers:
        there = left(hosts.north)
        done = run(hosts, plan(address, hosts, suites=["bandwidth"], attempts=3))
        wait_until("the first train", lambda: carried(hosts.north, "lan") > 1_000_000)
        watching = workers["north"].pid
        [working] = [pid for pid in tree_pids(watching) if int(stat_fields(pid)[1]) == watching]
        os.kill(working, signal.SIGKILL)
        out, err = done.communicate(timeout=150)
        assert done.returncode in (0, 1), out + err
        with Ledger.open(tmp_path / "run") as ledger:
            events = [(event.kind, event.detail) for event in ledger.events()]
            trials = ledger.trials()
        assert any(kind == "tester-lost" and "host north" in words for kind, words in events), events
        assert events[-1][0] == "completed"
        assert len({(trial.key, trial.attempt) for trial in trials}) == len(trials)
        lost = [trial.error for trial in trials if trial.status is TrialStatus.FAILED]
        assert len(lost) == 1
        assert "lost during the trial" in lost[0]
        assert len({trial.key for trial in trials if trial.status is not TrialStatus.FAILED}) == 1
        assert left(hosts.north) == left(hosts.south) == there


def test_a_network_that_cannot_carry_whole_frames_is_refused_in_words(tmp_path, private_state):
    with two_hosts(tmp_path, mtu=1500) as hosts:
        nics = [Nic("tx", "02:00:00:00:00:01")]

        def ask():
            assert path_mtu(NORTH) == 1500
            require_room(Tunnel(1, "10.99.7.2", NORTH), [Nic("tx", "02:00:00:00:00:01", mtu=1400)])
            require_room(Tunnel(1, "10.99.7.2", NORTH), nics)

        with pytest.raises(NetworkError, match=r"carries IP packets of 1500 bytes, and a wire over it needs 1550"):
            hosts.south.run(ask)
        with pytest.raises(NetworkError, match="no wire to itself"):
            require_room(Tunnel(1, NORTH, NORTH), nics)
        with pytest.raises(NetworkError, match="a tunnel from 2001:db8::2 to 2001:db8::1 needs IPv4"):
            require_room(Tunnel(1, "2001:db8::2", "2001:db8::1"), nics)
        with pytest.raises(NetworkError, match=r"no way to 203\.0\.113\.1"):
            hosts.south.run(lambda: path_mtu("203.0.113.1"))
