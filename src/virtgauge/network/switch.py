"""What joins the links of a lab: bridges on which every flow has its one rule; what has none is dropped."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Self

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
        kind: for the record.
        bridges: ports by bridge.
    """

    kind: ClassVar[str]

    def __init__(self) -> None:
        self.bridges: dict[str, tuple[str, ...]] = {}
        self._rules: list[Rule] = []

    def add_bridge(self, name: str, ports: Sequence[str]) -> None:
        """Make a bridge of ports.

        Raises:
            NetworkError: a name is taken, a port is not there or on another bridge.
        """
        check_name(name)
        taken = {port for others in self.bridges.values() for port in others}
        twice = taken.intersection(ports) or {port for port in ports if ports.count(port) > 1}
        if name in self.bridges or twice:
            raise NetworkError(f"{min(twice, default=name)} is in use", "every bridge has its own name and ports")
        self._add_bridge(name, ports)
        self.bridges[name] = tuple(ports)

    def add_rules(self, rules: Iterable[Rule]) -> None:
        """Let frames pass.

        Raises:
            NetworkError: a rule's ports are not on one bridge, or it contradicts another.
        """
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
        """The bridge that has a port.

        Raises:
            NetworkError: none has it.
        """
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
