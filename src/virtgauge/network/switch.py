"""What joins the links of a lab: bridges on which every flow has its one rule; what has none is dropped."""

from __future__ import annotations

import abc
import dataclasses
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Self

from pyroute2 import IPRoute, NetlinkError

from virtgauge.network.links import link_counts
from virtgauge.network.namespace import Namespace
from virtgauge.network.nic import NetworkError, check_mac, check_name


@dataclasses.dataclass(frozen=True)
class Rule:
    """Frames to a hardware address that come in by one port go out by another, and by no third."""

    in_port: str
    dst_mac: str
    out_port: str

    def __post_init__(self) -> None:
        check_mac(self.dst_mac)
        object.__setattr__(self, "dst_mac", self.dst_mac.lower())


@dataclasses.dataclass(frozen=True)
class RuleCount:
    """What a rule has sent on since it was made; ``size`` in bytes, without FCS.

    A frame that its port then drops was sent on too, and the port counts it; whether its bytes are in ``size`` differs.
    """

    frames: int
    size: int


class Switch(abc.ABC):
    """Some bridges in one namespace; a context manager that removes them at its end.

    The ports are interfaces of the namespace (``Nic.port``).  A frame without a rule is dropped, a broadcast too: hosts
    on a switch need permanent neighbours.

    Attributes:
        bridges: ports by bridge.
    """

    kind: ClassVar[str]

    def __init__(self) -> None:
        self.bridges: dict[str, tuple[str, ...]] = {}
        self._rules: list[Rule] = []

    def add_bridge(self, name: str, ports: Sequence[str]) -> None:
        """Make a bridge of ports.  Raises NetworkError: a name is taken, a port is not there or on another bridge."""
        check_name(name)
        taken = {port for others in self.bridges.values() for port in others}
        twice = taken.intersection(ports) or {port for port in ports if ports.count(port) > 1}
        if name in self.bridges or twice:
            raise NetworkError(f"{min(twice, default=name)} is in use", "every bridge has its own name and ports")
        self._add_bridge(name, ports)
        self.bridges[name] = tuple(ports)

    def add_rules(self, rules: Iterable[Rule]) -> None:
        """Let frames pass.  Raises NetworkError: a rule's ports are not on one bridge, or it contradicts another."""
        added = list(rules)
        known = {(rule.in_port, rule.dst_mac) for rule in self._rules}
        for rule in added:
            if (rule.in_port, rule.dst_mac) in known:
                raise NetworkError(f"{rule.dst_mac} from {rule.in_port} has a rule already", "give a flow one rule")
            known.add((rule.in_port, rule.dst_mac))
            if rule.out_port not in self.bridges[self.bridge_of(rule.in_port)] or rule.in_port == rule.out_port:
                raise NetworkError(f"no frame can go from {rule.in_port} to {rule.out_port}", "use ports of one bridge")
        self._add_rules(added)
        self._rules += added

    def bridge_of(self, port: str) -> str:
        """The bridge that has a port.  Raises NetworkError: none has it."""
        for name, ports in self.bridges.items():
            if port in ports:
                return name
        raise NetworkError(f"no bridge has the port {port}", "add the bridge before its rules")

    @property
    def rules(self) -> tuple[Rule, ...]:
        """In the order in which they were added."""
        return tuple(self._rules)

    @abc.abstractmethod
    def counters(self) -> Mapping[Rule, RuleCount | None]:
        """What every rule has sent on until now; None where this switch cannot tell it from others."""

    @abc.abstractmethod
    def unmatched(self) -> int | None:
        """Frames dropped for want of a rule; None where this switch does not count them."""

    @abc.abstractmethod
    def cpu_ns(self) -> int | None:
        """CPU time of the switch's own processes; None where it has none and its work is charged to who sends."""

    @abc.abstractmethod
    def close(self) -> None:
        """Remove the bridges, leaving the ports.  Idempotent."""

    @abc.abstractmethod
    def _add_bridge(self, name: str, ports: Sequence[str]) -> None: ...

    @abc.abstractmethod
    def _add_rules(self, rules: Sequence[Rule]) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_FORWARDING = 3
_CARRIER_S = 10.0
_STATIC = 0x40  # NUD_NOARP; a permanent entry would be an address of the bridge itself


class LinuxBridge(Switch):
    """Bridges of the namespace's kernel, whose work is done in the sender's context: none learns or floods anything.

    An entry names a hardware address and its port, and holds for frames of every other port: that a frame comes in
    where its rule says is not checked here.  Rules are counted by the counters of a port that only one of them uses.
    """

    kind = "Linux bridge"

    def __init__(self, namespace: Namespace) -> None:
        super().__init__()
        self._namespace = namespace
        self._indices: dict[str, int] = {}

    def hand_over(self) -> None:
        """Let every frame pass to the other port, without a rule: for bridges of two ports, that are part of a wire.

        Raises:
            NetworkError: the kernel refuses.
        """

        def flood(route: IPRoute) -> None:
            for index in self._indices.values():
                route.brport("set", index=index, unicast_flood=1, mcast_flood=1, bcast_flood=1)

        try:
            self._namespace.netlink(flood)
        except (NetlinkError, OSError) as error:
            raise NetworkError(f"a bridge cannot hand frames over: {error}") from error

    def counters(self) -> Mapping[Rule, RuleCount | None]:
        counts = link_counts(self._namespace)
        senders = Counter(rule.in_port for rule in self._rules)
        receivers = Counter(rule.out_port for rule in self._rules)

        def count(rule: Rule) -> RuleCount | None:
            if receivers[rule.out_port] == 1:
                out = counts[rule.out_port]
                # the bridge has sent on what the port then drops, and the port counts that as dropped
                return RuleCount(out.tx_frames + out.tx_dropped, out.tx_bytes)
            if senders[rule.in_port] == 1:
                into = counts[rule.in_port]
                return RuleCount(into.rx_frames, into.rx_bytes)
            return None

        return {rule: count(rule) for rule in self._rules}

    def unmatched(self) -> int | None:
        return None

    def cpu_ns(self) -> int | None:
        return None

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
            indices = {link.get("ifname"): link["index"] for link in route.get_links()}
            missing = [port for port in ports if port not in indices]
            if missing:
                raise NetworkError(f"{self._namespace.name} has no interface {missing[0]}", "launch its guest first")
            route.link("add", ifname=name, kind="bridge", br_stp_state=0, br_mcast_snooping=0, br_forward_delay=0)
            [bridge] = route.link_lookup(ifname=name)
            for port in ports:
                route.link("set", index=indices[port], master=bridge)
                route.brport("set", index=indices[port], learning=0, unicast_flood=0, mcast_flood=0, bcast_flood=0)
            route.link("set", index=bridge, state="up")
            _wait_until_forwarding(route, [indices[port] for port in ports])
            self._indices |= {port: indices[port] for port in ports}

        try:
            self._namespace.netlink(make)
        except (NetlinkError, OSError) as error:
            raise NetworkError(f"the bridge {name} cannot be made: {error}") from error

    def _add_rules(self, rules: Sequence[Rule]) -> None:
        ports = {(self.bridge_of(rule.in_port), rule.dst_mac): rule.out_port for rule in self._rules}
        for rule in rules:
            key = (self.bridge_of(rule.in_port), rule.dst_mac)
            if ports.setdefault(key, rule.out_port) != rule.out_port:
                raise NetworkError(
                    f"{rule.dst_mac} cannot be at two ports of {key[0]}", "use Open vSwitch for rules by ingress port"
                )

        def add(route: IPRoute) -> None:
            for rule in rules:
                route.fdb("replace", ifindex=self._indices[rule.out_port], lladdr=rule.dst_mac, state=_STATIC)

        try:
            self._namespace.netlink(add)
        except (NetlinkError, OSError) as error:
            raise NetworkError(f"an entry cannot be added: {error}") from error


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
