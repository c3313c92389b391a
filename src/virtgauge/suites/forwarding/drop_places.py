"""Every place between the tester's two ports that drops frames: where it counts them, and where only a difference does.

A link's end in the lab counts what its other side would not take.  A bridge has no counter of what it did not take from
a port or could not send to one: that is the difference of the port's count and its rules'.  A guest counts at its
interfaces, in its backlog and in its IP layer; what it never took from its link, or sent into it in vain, is again a
difference.  A frame that a full backlog of the host drops is counted by the link that brought it there, and so it is
not counted a second time.  The tester's own rings are counted by the trials.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence

from virtgauge.analysis.packets import DropCounter
from virtgauge.host.process import boot_id
from virtgauge.network.links import LinkCount, link_counts, read_counts
from virtgauge.network.namespace import Namespace
from virtgauge.network.switch import Switch
from virtgauge.platforms.base import Guest

_DEVICES, _BACKLOG, _IP = "/proc/net/dev", "/proc/net/softnet_stat", "/proc/net/snmp"
_BOOT = "/proc/sys/kernel/random/boot_id"
_REST_S, _REST_LIMIT_S = 0.03, 3.0
# Of the IP layer: frames that it would not route.
_IP_DROPS = ("InHdrErrors", "InAddrErrors", "InDiscards", "OutDiscards", "OutNoRoutes", "ReasmFails", "FragFails")


async def read_drops(guests: Sequence[Guest], switch: Switch, lab: Namespace) -> list[DropCounter]:
    """All drop counters of a laboratory now, guests in the order of their flows; places are the same at every call."""
    held = await asyncio.gather(*(files_of(guest, (_DEVICES, _BACKLOG, _IP, _BOOT)) for guest in guests))
    counts = link_counts(lab)
    counters = _of_bridges(switch, counts)
    for flow, files in enumerate(held):
        ports = [count for port, count in counts.items() if _flow_of(port) == flow]
        given = sum(port.tx_frames for port in ports)
        come = sum(port.rx_frames + port.rx_dropped for port in ports)
        counters += _of_guest(flow, files, list(read_counts(files[_DEVICES])), given, come)
        if files[_BOOT].strip() != boot_id():  # else the backlog is the host's
            counters.append(DropCounter(f"guest {flow} backlog", backlog_drops(files[_BACKLOG]), flow))
    return counters


async def read_device_drops(device: Guest, interfaces: Sequence[str], given: int, come: int) -> list[DropCounter]:
    """The same of a machine between two interfaces: what it was given and what came back, the tester counts.

    Its backlog is that of all its traffic, and what it drops of ours is in the difference of what it took and sent.
    """
    return _of_guest(0, await files_of(device, (_DEVICES, _IP)), interfaces, given, come)


async def come_to_rest(lab: Namespace, patience: float) -> None:
    """Wait for the frames that are still under way: counters that are read one after the other must stand still."""
    deadline, before = time.monotonic() + _REST_LIMIT_S * patience, None
    while (now := link_counts(lab)) != before and time.monotonic() < deadline:
        before = now
        await asyncio.sleep(_REST_S * patience)


async def files_of(guest: Guest, paths: Sequence[str]) -> dict[str, str]:
    """The text of files of a guest; empty where there is none."""
    reply = await guest.channel.request("read", paths=list(paths), timeout_s=10.0)
    return {path: (text or b"").decode(errors="replace") for path, text in reply.value["files"].items()}


def _of_guest(
    flow: int, files: Mapping[str, str], interfaces: Sequence[str], given: int, come: int
) -> list[DropCounter]:
    """What the guest counts, and by difference what it never saw, what it lost, and what nobody got."""
    links, ip_dropped = read_counts(files[_DEVICES]), ip_drops(files[_IP])
    inside = {interface: links[interface] for interface in interfaces}
    taken, sent = sum(link.rx_frames for link in inside.values()), sum(link.tx_frames for link in inside.values())
    refused = sum(link.rx_dropped for link in inside.values())
    unsent = sum(link.tx_dropped for link in inside.values())
    places = {f" {interface}": link.rx_dropped + link.tx_dropped for interface, link in inside.items()}
    places |= {
        " IP layer": ip_dropped,
        ": not taken from its link": given - taken - refused,
        ": neither sent nor counted as dropped": taken - ip_dropped - unsent - sent,
        ": lost on its way out": sent - come,
    }
    return [DropCounter(f"guest {flow}{place}", frames, flow) for place, frames in places.items()]


def _of_bridges(switch: Switch, counts: Mapping[str, LinkCount]) -> list[DropCounter]:
    found = [DropCounter("bridges: no rule", switch.unmatched() or 0)]
    passed = switch.counters()
    for port in (port for ports in switch.bridges.values() for port in ports):
        flow, count = _flow_of(port), counts[port]
        found.append(DropCounter(f"port {port}", count.rx_dropped + count.tx_dropped, flow))
        came = _sum_of([frames for rule, frames in passed.items() if rule.in_port == port])
        if came is not None:
            found.append(DropCounter(f"bridge: not taken from {port}", count.rx_frames - came, flow))
        went = _sum_of([frames for rule, frames in passed.items() if rule.out_port == port])
        if went is not None:
            sent = count.tx_frames + count.tx_dropped
            found.append(DropCounter(f"bridge: not sent to {port}", went - sent, flow))
    return found


def _sum_of(counts: Sequence[int | None]) -> int | None:
    """Frames of rules; None where there is none, or one that does not count."""
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None


def _flow_of(port: str) -> int | None:
    digits = port.removeprefix("in").removeprefix("out")
    return int(digits) if digits.isdigit() else None


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
