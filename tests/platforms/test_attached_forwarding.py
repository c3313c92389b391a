"""A machine that exists already as the device under test: in a network of its own, between two interfaces of ours."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from platforms.ssh_server import SshServer, ssh_server
from platforms.test_attached_runs import HERE, THERE, inside, section, virtgauge

from virtgauge.host.lending import features_of
from virtgauge.host.scope import Scope
from virtgauge.ledger.records import TrialRecord, TrialStatus
from virtgauge.ledger.store import Ledger
from virtgauge.network import links
from virtgauge.network.namespace import Namespace
from virtgauge.network.nic import Nic
from virtgauge.network.shaper import Bucket, shape

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("root")]

PORTS, THEIRS = ("port0", "port1"), ("lan0", "lan1")
FRAME_BITS = 8 * 60  # of the shortest, as a shaper counts it
PLAN = """
name = "device"
repetitions = 1
reference = "far"
aa = false
attempts = {attempts}
[validity]
patience_s = 0
[[platform]]
name = "far"
kind = "attached"
{machine}
[platform.ports]
here = {here}
there = {there}
forwards = "{forwards}"
[[suite.forwarding]]
guests = 1
switch = "none"
vectors = ["equal"]
frame_bytes = [64]
trial_s = 0.5
duration_sum_s = {decided_s}
resolution = 0.1
calibration_s = 0.5
latency_s = 0.2
latency_loads = [50]
late_share = 1.0
max_pps = 30_000
"""


class Machines:
    """The controller's network, and the machine's; a link between them for ssh, and two cables."""

    def __init__(self, here: Namespace, device: Namespace, server: SshServer, folder: Path) -> None:
        self.here, self.device, self.server, self.folder = here, device, server, folder

    def run(self, out: str, **changes: object) -> subprocess.Popen[str]:
        given: dict[str, object] = {
            "here": [*PORTS], "there": [*THEIRS], "forwards": "router",
            "decided_s": 1, "attempts": 3,
        }  # fmt: skip
        plan = self.folder / "plan.toml"
        plan.write_text(PLAN.format(machine=section(self.server.settings()), **given | changes).replace("'", '"'))
        return virtgauge("run", plan, "--out", self.folder / out, "--progress", "lines", enter=inside(self.here))

    def measured(self, out: str, **changes: object) -> tuple[TrialRecord, str]:
        output, _ = self.run(out, **changes).communicate(timeout=240)
        with Ledger.open(self.folder / out) as ledger:
            return ledger.trials()[-1], output

    def there(self, command: str) -> None:
        subprocess.run(["ip", "netns", "exec", self.device.name, "sh", "-ec", command], check=True)

    def ports(self) -> dict[str, object]:
        """How the two are: link state, addresses and wanted features."""

        def look(name: str) -> object:
            return features_of(name), subprocess.check_output(["ip", "-o", "address", "show", name])

        present = self.here.interfaces()
        states = {link.get("ifname"): link["state"] for link in self.here.netlink(lambda route: [*route.get_links()])}
        return {name: (states[name], self.here.run(lambda name=name: look(name))) for name in PORTS if name in present}


@pytest.fixture
def machines(scope: Scope, tmp_path: Path) -> Iterator[Machines]:
    with Namespace(scope, "here") as here, Namespace(scope, "device") as device:
        links.connect(here, device, (Nic(mac="52:54:00:a7:7d:01", port="far", addresses=(f"{THERE}/30",)),))
        index = here.interfaces()["far"]
        here.netlink(lambda route: route.addr("add", index=index, address=HERE, prefixlen=30))
        for port, theirs in zip(PORTS, THEIRS, strict=True):
            cable = f"ip link add {port} netns {here.name} type veth peer name {theirs} netns {device.name}"
            subprocess.run(cable.split(), check=True)
        subprocess.run(["ip", "-n", here.name, "link", "set", PORTS[0], "up"], check=True)
        enter = ("ip", "netns", "exec", device.name)  # with a /sys that shows its interfaces
        with ssh_server(tmp_path / "server", THERE, enter) as server:
            yield Machines(here, device, server, tmp_path)


def commands_of(output: str) -> list[str]:
    return [line.strip() for line in output.splitlines() if re.match(r" +(ip|sysctl) ", line)]


def set_up(machines: Machines, forwards: str) -> None:
    """By the commands that a run prints, which forwards nothing before; and none of them is printed without need."""
    before = machines.ports()
    output, _ = machines.run(f"{forwards}-not-yet", forwards=forwards, attempts=1).communicate(timeout=120)
    assert "does not forward yet; there, as root:" in output
    assert machines.ports() == before
    for command in dict.fromkeys(commands_of(output)):
        machines.there(command)


@pytest.mark.parametrize("forwards", ["router", "bridge"])
def test_a_machine_forwards_between_two_lent_ports_and_what_it_drops_is_seen(
    machines: Machines, private_state: Path, forwards: str
) -> None:
    """What a queue of the machine drops is lost and found, and bounds its rate; both ports are then as they were."""
    before = machines.ports()
    set_up(machines, forwards)
    for mbps in (2, 6):
        shape(machines.device, THEIRS[1], Bucket("tbf", mbps * 1e6, burst_bytes=3_000, limit_bytes=6_000))
        trial, output = machines.measured(f"{mbps}", forwards=forwards)
        assert trial.status is TrialStatus.VALID, (trial.error, trial.flags, output)
        assert trial.result["throughput_pps"] * FRAME_BITS == pytest.approx(mbps * 1e6, rel=0.3), trial.result
        accounting = trial.result["loss_accounting"]
        assert accounting["lost"] > 0
        assert {*accounting["places"]} == {"guest 0: neither sent nor counted as dropped"}, accounting
        assert machines.ports() == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_is_ended_gives_its_ports_back(machines: Machines, private_state: Path, number: int) -> None:
    """At once, or, after a kill -9, when the next one starts or somebody cleans up."""
    set_up(machines, "router")
    before = machines.ports()
    run = machines.run("ended", decided_s=30)
    deadline = time.monotonic() + 60
    while machines.ports() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert machines.ports() == {}
    time.sleep(1)
    run.send_signal(number)
    run.communicate(timeout=60)
    if number == signal.SIGKILL:
        assert machines.ports() == {}
        output, _ = virtgauge("clean").communicate(timeout=60)
        assert all(f"gave the interface {name} back" in output for name in PORTS)
    assert machines.ports() == before


@pytest.mark.parametrize(
    ("here", "before", "why"),
    [
        (("port0", "port9"), "", "this machine has no interface port9"),
        (("port0", "port0"), "", "'port0' is named twice"),
        (("far", "port1"), "", f"the machine itself uses the interface far: it has an address ({HERE})"),
        (PORTS, "ip link set port1 up && ip route add default dev port1", "port1: it carries the default route"),
    ],
)
def test_ports_that_cannot_be_lent_are_refused_before_anything_starts(
    machines: Machines, private_state: Path, here: tuple[str, str], before: str, why: str
) -> None:
    subprocess.run([*inside(machines.here), "sh", "-ec", before], check=True)
    run = machines.run("refused", here=[*here])
    output, _ = run.communicate(timeout=60)
    assert run.returncode == 2 or run.returncode == 3, output
    assert why in " ".join(output.split())
    assert not (machines.folder / "refused").exists()
