"""A machine that exists already as the device under test: in a network of its own, between two interfaces of ours."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from platforms.conftest import running
from platforms.ssh_server import SshServer, ssh_server
from platforms.test_attached_runs import HERE, THERE, inside, section, virtgauge

from virtgauge.host.lending import features_of
from virtgauge.host.scope import Scope
from virtgauge.ledger.records import TrialRecord, TrialStatus
from virtgauge.ledger.store import Ledger
from virtgauge.network import Nic, links
from virtgauge.network.namespace import Namespace
from virtgauge.network.shaper import Bucket, shape
from virtgauge.platforms.base import Cabling, Guest, GuestSpec
from virtgauge.platforms.local import HostPlatform
from virtgauge.suites.forwarding import device_lab
from virtgauge.suites.forwarding.drop_places import files_of

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
steal = 1.0
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


def plan(machine: dict[str, object], **changes: object) -> str:
    given = {"here": PORTS, "there": THEIRS, "forwards": "router", "decided_s": 1, "attempts": 3}
    given |= changes
    lists = {key: json.dumps(given[key]) for key in ("here", "there")}
    return PLAN.format(machine=section(machine), **given | lists)


class Machines:
    """The controller's network, and the machine's; a link between them for ssh, and two cables."""

    def __init__(self, here: Namespace, device: Namespace, server: SshServer, folder: Path) -> None:
        self.here, self.device, self.server, self.folder = here, device, server, folder

    def run(self, out: str, **changes: object) -> subprocess.Popen[str]:
        (self.folder / "plan.toml").write_text(plan(self.server.settings(), **changes))
        arguments = ("run", self.folder / "plan.toml", "--out", self.folder / out, "--progress", "lines")
        return virtgauge(*arguments, enter=inside(self.here))

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


@pytest.mark.alone
@pytest.mark.parametrize("forwards", ["router", "bridge"])
def test_a_machine_forwards_between_two_lent_ports_and_what_it_drops_is_seen(
    machines: Machines, private_state: Path, forwards: str
) -> None:
    """What a queue of the machine drops is lost and found, and bounds its rate; both ports are then as they were."""
    before = machines.ports()
    set_up(machines, forwards)
    rate_bps = 2e6
    shape(machines.device, THEIRS[1], Bucket("tbf", rate_bps, burst_bytes=3_000, limit_bytes=6_000))
    trial, output = machines.measured("shaped", forwards=forwards)
    assert trial.status is TrialStatus.VALID, (trial.error, trial.flags, output)
    assert trial.result["throughput_pps"] * FRAME_BITS < 1.3 * rate_bps, (
        trial.result
    )  # less, where this machine is busy
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
    while {*PORTS} & {*machines.here.interfaces()} and time.monotonic() < deadline:
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
    run = machines.run("refused", here=here)
    output, _ = run.communicate(timeout=60)
    assert run.returncode == 2 or run.returncode == 3, output
    assert why in " ".join(output.split())
    assert not (machines.folder / "refused").exists()


async def test_an_agent_sets_up_a_router_that_lacks_nothing_then(scope: Scope, spec: Callable[..., GuestSpec]) -> None:
    """Where a machine has no shell (an image); the host's agent stands for its own, with the host's /sys."""
    cabling, next_mac = Cabling(PORTS, THEIRS, bridges=False, set_up=True), "02:00:00:00:00:09"
    with Namespace(scope, "device") as device:
        pair = f"ip -n {device.name} link add {THEIRS[0]} type veth peer name {THEIRS[1]}"
        subprocess.run(pair.split(), check=True)
        async with running(HostPlatform(), spec(lab=device)) as guest:
            before = await lacking(guest, cabling, next_mac)
            assert f"ip neighbour replace 10.77.255.1 lladdr {next_mac} dev lan1 nud permanent" in before
            await device_lab._set_up(guest, cabling.there, next_mac)
            assert await lacking(guest, cabling, next_mac) == []


async def lacking(guest: Guest, cabling: Cabling, next_mac: str) -> list[str]:
    files = await files_of(guest, device_lab._files(cabling))
    return [command for command in device_lab._missing(cabling, next_mac, files) if not command.startswith("ip link")]
