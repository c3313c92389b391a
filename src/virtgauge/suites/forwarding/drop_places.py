"""Every place between the tester's two ports that counts the frames it drops.

A link's end in the lab counts what its other side would not take; a bridge counts what has no rule, and what it never
took from a port is the difference of the port's count and its rules'; a guest counts at its interfaces, in its backlog
and in its IP layer.  The tester's own rings are counted by the trials.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from virtgauge.analysis.forwarding.loss_ledger import DropCounter
from virtgauge.network.links import LinkCount, link_counts
from virtgauge.network.namespace import Namespace
from virtgauge.network.switch import Rule, RuleCount, Switch
from virtgauge.platforms.base import Guest
from virtgauge.suites.bench import Stage

_DEVICES, _BACKLOG, _IP = "/proc/net/dev", "/proc/net/softnet_stat", "/proc/net/snmp"
_READ_S = 10.0
# Of the IP layer: frames that it would not route.
_IP_DROPS = ("InHdrErrors", "InAddrErrors", "InDiscards", "OutDiscards", "OutNoRoutes", "ReasmFails", "FragFails")


class DropPlaces:
    """The drop counters of one laboratory."""

    def __init__(self, stage: Stage, switch: Switch, lab: Namespace) -> None:
        """Watch the guests of a stage, in the order of their flows, and the bridges of a lab between them."""
        self._stage, self._switch, self._lab = stage, switch, lab
        self._own_kernel: list[bool] | None = None

    async def read(self) -> list[DropCounter]:
        """All counters now; places and their order are the same at every call.

        Raises:
            AgentError, ChannelClosedError, ProtocolError, TimeoutError: a guest or the tester did not answer.
        """
        own_kernel = await self._guests_with_a_kernel_of_their_own()
        inside = await asyncio.gather(*(_inside(guest) for guest in self._stage.guests))
        backlog = (await _inside(self._stage.peers[0]))[_BACKLOG]
        counters = [DropCounter("host backlog", backlog_drops(backlog))]
        counters += self._bridges()
        for flow, (files, own) in enumerate(zip(inside, own_kernel, strict=True)):
            guest = f"guest {flow}"
            for interface, dropped in interface_drops(files[_DEVICES]).items():
                counters.append(DropCounter(f"{guest} {interface}", dropped, flow))
            counters.append(DropCounter(f"{guest} IP layer", ip_drops(files[_IP]), flow))
            if own:
                counters.append(DropCounter(f"{guest} backlog", backlog_drops(files[_BACKLOG]), flow))
        return counters

    def _bridges(self) -> list[DropCounter]:
        switch, counts = self._switch, link_counts(self._lab)
        found = [DropCounter("bridges: no rule", switch.unmatched() or 0)]
        passed = switch.counters()
        for ports in switch.bridges.values():
            for port in ports:
                flow = _flow_of(port)
                count = counts[port]
                found.append(DropCounter(f"port {port}", count.rx_dropped + count.tx_dropped, flow))
                found += _not_taken(port, count, passed, flow)
        return found

    async def _guests_with_a_kernel_of_their_own(self) -> list[bool]:
        if self._own_kernel is None:
            one, *others = await asyncio.gather(
                *(each.channel.facts(_READ_S) for each in (self._stage.peers[0], *self._stage.guests))
            )
            self._own_kernel = [facts.get("boot_id") != one.get("boot_id") for facts in others]
        return self._own_kernel


def _not_taken(
    port: str, count: LinkCount, passed: Mapping[Rule, RuleCount | None], flow: int | None
) -> list[DropCounter]:
    """Frames that came to a port of a bridge and that none of its rules has seen; nothing where rules do not count."""
    rules = [frames for rule, frames in passed.items() if rule.in_port == port]
    if not rules or any(frames is None for frames in rules):
        return []
    seen = sum(frames.frames for frames in rules if frames is not None)
    return [DropCounter(f"bridge: not taken from {port}", max(count.rx_frames - seen, 0), flow)]


def _flow_of(port: str) -> int | None:
    digits = port.removeprefix("in").removeprefix("out")
    return int(digits) if digits.isdigit() else None


async def _inside(guest: Guest) -> dict[str, str]:
    async with asyncio.timeout(_READ_S):
        reply = await guest.channel.request("read", paths=[_DEVICES, _BACKLOG, _IP])
    return {path: (held or b"").decode(errors="replace") for path, held in reply.value["files"].items()}


def interface_drops(text: str) -> dict[str, int]:
    """Frames dropped at each Ethernet interface, received and sent, as ``/proc/net/dev`` has them."""
    found = {}
    for line in text.splitlines()[2:]:
        name, _, figures = line.partition(":")
        fields = figures.split()
        # bytes packets errs drop fifo frame compressed multicast | bytes packets errs drop fifo …
        if len(fields) >= 13 and name.strip() != "lo":
            found[name.strip()] = sum(int(fields[index]) for index in (2, 3, 4, 10, 11, 12))
    return found


def backlog_drops(text: str) -> int:
    """Frames that a full backlog dropped on any CPU: the second hexadecimal figure of ``/proc/net/softnet_stat``."""
    return sum(int(fields[1], 16) for line in text.splitlines() if len(fields := line.split()) > 1)


def ip_drops(text: str) -> int:
    """Packets that the IP layer dropped, as ``/proc/net/snmp`` has them; 0 where it has none."""
    lines = [line.split() for line in text.splitlines() if line.startswith("Ip:")]
    if len(lines) != 2:
        return 0
    named = dict(zip(lines[0][1:], lines[1][1:], strict=False))
    return sum(int(named.get(name, 0)) for name in _IP_DROPS)
