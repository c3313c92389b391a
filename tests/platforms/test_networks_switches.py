"""The switches of a lab: frames pass where a rule says so and nowhere else, all are counted, and nothing is left."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from platforms.conftest import traces
from platforms.network_checks import mac, peer

from virtgauge.host.reclaim import reclaim_dead
from virtgauge.host.scope import Scope
from virtgauge.network import NetworkError, Nic
from virtgauge.network.links import link_counts
from virtgauge.network.namespace import Namespace
from virtgauge.network.switch import LinuxBridge, OpenVSwitch, Rule, Switch

pytestmark = pytest.mark.slow

SWITCHES: dict[str, Callable[[Scope, Namespace], Switch]] = {
    "linux": lambda _, lab: LinuxBridge(lab),
    "openvswitch": OpenVSwitch,
}
FRAMES = 25
EXPERIMENT = (0x88B5).to_bytes(2, "big")  # IEEE's type for local experiments

CONTROLLER = """
import time
from virtgauge.host.scope import Scope
from virtgauge.network import links
from virtgauge.network.namespace import Namespace
from virtgauge.network import Nic
from virtgauge.network.switch import OpenVSwitch

scope = Scope()
print(scope.tag, flush=True)
lab, other = Namespace(scope, "lab"), Namespace(scope, "other")
links.connect(lab, other, [Nic("p0", "52:54:00:00:00:01")])
switch = OpenVSwitch(scope, lab)
switch.add_bridge("br0", ["p0"])
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture(params=SWITCHES)
def lab(request: pytest.FixtureRequest, scope: Scope) -> Iterator[tuple[Namespace, list[Namespace], Switch]]:
    """Three hosts on one bridge."""
    with contextlib.ExitStack() as stack:
        lab = stack.enter_context(Namespace(scope, "lab"))
        hosts = [
            stack.enter_context(peer(scope, lab, f"h{number}", Nic(f"p{number}", mac(number)))) for number in (1, 2, 3)
        ]
        switch = stack.enter_context(contextlib.closing(SWITCHES[request.param](scope, lab)))
        switch.add_bridge("br0", ("p1", "p2", "p3"))
        yield lab, hosts, switch
        stack.pop_all().close()
    assert traces(f"{scope.tag}-") == []


def address(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))


def send(host: Namespace, to: str, count: int = FRAMES) -> None:
    def inside() -> None:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as port:
            port.bind(("eth0", 0))
            for _ in range(count):
                port.send(address(to) + address(mac(0xF1)) + EXPERIMENT + bytes(46))

    host.run(inside)


def received(host: Namespace, at_least: int) -> int:
    """Frames that reached a host; waits for those that are expected, and a moment for those that are not."""
    deadline = time.monotonic() + 5.0
    while link_counts(host)["eth0"].rx_frames < at_least and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.1)
    return link_counts(host)["eth0"].rx_frames


def test_a_frame_goes_where_its_rule_says_and_nowhere_else(lab: tuple[Namespace, list[Namespace], Switch]) -> None:
    _, (one, two, three), switch = lab
    rule = Rule("p1", mac(2), "p2")
    switch.add_rules([rule])
    send(one, mac(2))
    assert received(two, FRAMES) == FRAMES
    assert received(three, 0) == 0
    assert switch.counters()[rule] == FRAMES


@pytest.mark.parametrize("to", [mac(3), "ff:ff:ff:ff:ff:ff", "01:00:5e:00:00:05", "52:54:00:99:99:99"])
def test_a_frame_without_a_rule_is_dropped(lab: tuple[Namespace, list[Namespace], Switch], to: str) -> None:
    _, (one, two, three), switch = lab
    switch.add_rules([Rule("p1", mac(2), "p2")])
    send(one, to)
    assert received(two, 0) == 0
    assert received(three, 0) == 0
    assert switch.unmatched() in (FRAMES, None), "what is counted is counted right"


def test_rules_are_by_ingress_port_in_open_vswitch(scope: Scope) -> None:
    with contextlib.ExitStack() as stack:
        lab = stack.enter_context(Namespace(scope, "lab"))
        hosts = [
            stack.enter_context(peer(scope, lab, f"h{number}", Nic(f"p{number}", mac(number)))) for number in (1, 2, 3)
        ]
        switch = stack.enter_context(contextlib.closing(OpenVSwitch(scope, lab)))
        switch.add_bridge("br0", ("p1", "p2", "p3"))
        rules = [Rule("p1", mac(9), "p2"), Rule("p3", mac(9), "p1")]
        switch.add_rules(rules)
        send(hosts[0], mac(9), 3)
        send(hosts[2], mac(9), 4)
        assert (received(hosts[1], 3), received(hosts[0], 4)) == (3, 4)
        assert [switch.counters()[rule] for rule in rules] == [3, 4]
        used = switch.cpu_ns()
        assert used is not None
        assert used > 0


def test_the_bridges_go_and_the_ports_stay(lab: tuple[Namespace, list[Namespace], Switch]) -> None:
    namespace, _, switch = lab
    switch.close()
    switch.close()
    assert set(namespace.interfaces()) == {"lo", "p1", "p2", "p3"}


def test_a_port_that_is_not_there_is_refused(lab: tuple[Namespace, list[Namespace], Switch]) -> None:
    _, _, switch = lab
    with pytest.raises(NetworkError, match="p9"):
        switch.add_bridge("br1", ("p9",))


def test_a_killed_controller_leaves_no_switch_behind(private_state: object) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", CONTROLLER], stdout=subprocess.PIPE, env=environment) as controller:
        assert controller.stdout is not None
        tag = controller.stdout.readline().decode().strip()
        try:
            assert controller.stdout.readline() == b"ready\n"
            assert any("/run/netns" in trace for trace in traces(tag))
        finally:
            controller.send_signal(signal.SIGKILL)
    lines = reclaim_dead()
    assert f"{tag}: removed the network namespace {tag}-lab" in lines
    assert traces(tag) == []
