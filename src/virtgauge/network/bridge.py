"""Linux's own bridge as the switch of a lab: it learns nothing and floods nothing; its entries are written by hand."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence

from pyroute2 import IPRoute, NetlinkError

from virtgauge.network.links import link_counts
from virtgauge.network.namespace import Namespace
from virtgauge.network.nic import NetworkError
from virtgauge.network.switch import Rule, RuleCount, Switch

_FORWARDING = 3
_CARRIER_S = 10.0
_STATIC = 0x40  # NUD_NOARP; a permanent entry would be an address of the bridge itself


class LinuxBridge(Switch):
    """Bridges of the namespace's kernel, whose work is done in the sender's context.

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
