"""What joins the links of a lab: bridges on which every flow has its one rule; what has none is dropped."""

from __future__ import annotations

import abc
import dataclasses
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from pyroute2 import IPRoute, NetlinkError

from virtgauge.network.links import link_counts
from virtgauge.network.namespace import Namespace
from virtgauge.network.nic import NetworkError


@dataclasses.dataclass(frozen=True)
class Rule:
    """Frames to a hardware address that come in by one port go out by another, and by no third."""

    in_port: str
    dst_mac: str
    out_port: str


class Switch(abc.ABC):
    """Some bridges in one namespace.

    The ports are interfaces of the namespace (``Nic.port``).  A frame without a rule is dropped, a broadcast too: hosts
    on a switch need permanent neighbours.
    """

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self.bridges: dict[str, tuple[str, ...]] = {}  # their ports
        self._rules: list[Rule] = []

    def add_bridge(self, name: str, ports: Sequence[str]) -> None:
        """Make a bridge of ports.  Raises NetworkError: a port is not there, or on another bridge."""
        free = self._namespace.interfaces().keys() - {port for others in self.bridges.values() for port in others}
        for port in ports:
            if port not in free:
                raise NetworkError(f"{self._namespace.name} has no free interface {port}", "launch its guest first")
        self._add_bridge(name, ports)
        self.bridges[name] = tuple(ports)

    def add_rules(self, rules: Sequence[Rule]) -> None:
        """Let frames pass.  Raises NetworkError: a rule's ports are not on one bridge."""
        for rule in rules:
            if rule.out_port not in self.bridges[self.bridge_of(rule.in_port)]:
                raise NetworkError(f"no frame can go from {rule.in_port} to {rule.out_port}", "use ports of one bridge")
        self._add_rules(rules)
        self._rules += rules

    def bridge_of(self, port: str) -> str:
        """The bridge that has a port.  Raises NetworkError: none has it."""
        for name, ports in self.bridges.items():
            if port in ports:
                return name
        raise NetworkError(f"no bridge has the port {port}", "add the bridge before its rules")

    @abc.abstractmethod
    def counters(self) -> Mapping[Rule, int | None]:
        """Frames that every rule has sent on until now, those too that its port then dropped, and counted as dropped.

        None where this switch cannot tell a rule from others.
        """

    def unmatched(self) -> int | None:
        """Frames dropped for want of a rule; None where this switch does not count them."""
        return None

    def cpu_ns(self) -> int | None:
        """CPU time of the switch's own processes; None where it has none and its work is charged to who sends."""
        return None

    @abc.abstractmethod
    def close(self) -> None:
        """Remove the bridges, leaving the ports.  Idempotent."""

    @abc.abstractmethod
    def _add_bridge(self, name: str, ports: Sequence[str]) -> None: ...

    @abc.abstractmethod
    def _add_rules(self, rules: Sequence[Rule]) -> None: ...


_FORWARDING = 3
_CARRIER_S = 10.0
_STATIC = 0x40  # NUD_NOARP; a permanent entry would be an address of the bridge itself


class LinuxBridge(Switch):
    """Bridges of the namespace's kernel, whose work is done in the sender's context: none learns or floods anything.

    An entry names a hardware address and its port, and holds for frames of every other port: that a frame comes in
    where its rule says is not checked here.  Rules are counted by the counters of a port that only one of them uses.
    """

    def hand_over(self) -> None:
        """Let every frame pass to the other port, without a rule: for bridges of two ports, that are part of a wire.

        Raises:
            NetworkError: the kernel refuses.
        """
        ports = [port for ports in self.bridges.values() for port in ports]

        def flood(route: IPRoute) -> None:
            for port in ports:
                index = socket.if_nametoindex(port)
                route.brport("set", index=index, unicast_flood=1, mcast_flood=1, bcast_flood=1)

        self._ask(flood, "a bridge cannot hand frames over")

    def counters(self) -> Mapping[Rule, int | None]:
        counts = link_counts(self._namespace)
        senders = Counter(rule.in_port for rule in self._rules)
        receivers = Counter(rule.out_port for rule in self._rules)

        def count(rule: Rule) -> int | None:
            if receivers[rule.out_port] == 1:
                return counts[rule.out_port].tx_frames + counts[rule.out_port].tx_dropped
            return counts[rule.in_port].rx_frames if senders[rule.in_port] == 1 else None

        return {rule: count(rule) for rule in self._rules}

    def close(self) -> None:
        names = set(self.bridges)

        def remove(route: IPRoute) -> None:
            for link in route.get_links():
                if link.get("ifname") in names:
                    route.link("del", index=link["index"])

        if names and self._namespace.path.exists():
            self._namespace.netlink(remove)
        self.bridges.clear()
        self._rules.clear()

    def _add_bridge(self, name: str, ports: Sequence[str]) -> None:
        def make(route: IPRoute) -> None:
            route.link("add", ifname=name, kind="bridge", br_stp_state=0, br_mcast_snooping=0, br_forward_delay=0)
            bridge = socket.if_nametoindex(name)
            indices = [socket.if_nametoindex(port) for port in ports]
            for index in indices:
                route.link("set", index=index, master=bridge)
                route.brport("set", index=index, learning=0, unicast_flood=0, mcast_flood=0, bcast_flood=0)
            route.link("set", index=bridge, state="up")
            _wait_until_forwarding(route, indices)

        self._ask(make, f"the bridge {name} cannot be made")

    def _add_rules(self, rules: Sequence[Rule]) -> None:
        def add(route: IPRoute) -> None:
            for rule in rules:
                index = socket.if_nametoindex(rule.out_port)
                route.fdb("replace", ifindex=index, lladdr=rule.dst_mac, state=_STATIC)

        self._ask(add, "an entry cannot be added")

    def _ask(self, work: Callable[[IPRoute], None], failure: str) -> None:
        try:
            self._namespace.netlink(work)
        except (NetlinkError, OSError) as error:
            raise NetworkError(f"{failure}: {error}") from error


def _wait_until_forwarding(route: IPRoute, ports: Sequence[int]) -> None:
    """Wait for the bridge to use its ports: it does as soon as the kernel has noticed the carrier of the links.

    Linux looks at most once a second, and drops without counting until then.
    """
    deadline = time.monotonic() + _CARRIER_S
    while True:
        states = {port["index"]: port.get_nested("IFLA_PROTINFO", "IFLA_BRPORT_STATE") for port in route.brport("dump")}
        idle = [index for index in ports if states.get(index) != _FORWARDING]
        if not idle:
            return
        if time.monotonic() > deadline:
            raise NetworkError(f"{len(idle)} ports of a bridge have no carrier", "bring both ends of the links up")
        time.sleep(0.01)
