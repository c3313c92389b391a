"""The laboratory of a machine that exists already: the tester's two ports are interfaces of this host, lent for the
time and cabled to two of the machine's, which routes between them or bridges them as its owner has set up.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import ipaddress
from collections.abc import Callable, Iterator, Mapping

from virtgauge.analysis.packets import DropCounter
from virtgauge.host.lending import read_routes
from virtgauge.network import NetworkError, Nic
from virtgauge.network.links import LinkCount, connect, read_counts, take_live_frames
from virtgauge.network.namespace import Namespace
from virtgauge.network.wire import lent, require_free
from virtgauge.platforms.base import Cabling, Guest, LaunchError, Platform
from virtgauge.platforms.base import stage as launching
from virtgauge.suites.forwarding.drop_places import come_to_rest, files_of, read_device_drops
from virtgauge.suites.forwarding.guest_lab import DESTINATION, LOOP_DRAIN_NS, LOOP_END, LOOP_MAC, SOURCE
from virtgauge.suites.forwarding.laboratory import ForwardingLab
from virtgauge.suites.forwarding.settings import ForwardingSettings
from virtgauge.suites.forwarding.trial import Load, Path, Tester, TrialResult
from virtgauge.suites.testbed import Stage, allowed_cpus

_READY_S = 60.0
_CHECK = Load([1.0], 64, 200.0, 0.2)
_CHECK_TRIES, _CHECK_PAUSE_S = 10, 0.5  # a switch between them may look for a while before it lets frames pass
_DEVICES, _ROUTES, _NEIGHBOURS = "/proc/net/dev", "/proc/net/route", "/proc/net/arp"
_of: Callable[[str, str], str] = "/sys/class/net/{}/{}".format  # what is told of an interface
_silence: Callable[[str], str] = "/proc/sys/net/ipv6/conf/{}/disable_ipv6".format
_forwarding: Callable[[str], str] = "/proc/sys/net/ipv4/conf/{}/forwarding".format
_UP, _PERMANENT = 1, 0x4  # of an interface's flags, and of a neighbour's


def to_do(platform: Platform) -> tuple[str, ...]:
    """What its owner has to set up on a machine before it forwards."""
    cabling = platform.cabling
    if cabling is None or cabling.set_up:
        return ()
    try:
        mac = require_free(cabling.here[1])
    except NetworkError:
        return ()  # its platform is not usable, with this reason
    ways = " to ".join(cabling.there)
    commands = _listed(_missing(cabling, mac, None))
    return (f"{platform.label} must forward from {ways}; if it does not yet, there as root:{commands}",)


def _listed(commands: Iterator[str]) -> str:
    return "".join(f"\n  {command}" for command in commands)


def _missing(cabling: Cabling, next_mac: str, files: Mapping[str, str] | None) -> Iterator[str]:
    """Of the commands that have the machine forward, those whose effect its files do not show; without files, all."""
    held = files or {}
    for name in cabling.there:
        if not int(held.get(_of(name, "flags")) or "0", 16) & _UP:
            yield f"ip link set {name} up"
        if files is None or held[_silence(name)].strip() == "0":
            yield f"sysctl -w net/ipv6/conf/{name}/disable_ipv6=1   # no frames of its own"
    masters = [held.get(_of(name, "master/ifindex"), "") for name in cabling.there]
    if cabling.bridges:
        if not masters[0] or masters[0] != masters[1]:
            yield "ip link add vgbridge type bridge && ip link set vgbridge up"
            for name in cabling.there:
                yield f"ip link set {name} master vgbridge"
        return
    way_in, way_out = cabling.there
    if held.get(_forwarding(way_in), "").strip() != "1":
        yield f"sysctl -w net/ipv4/conf/{way_in}/forwarding=1"
    for address, name in ((SOURCE, way_in), (DESTINATION, way_out)):  # the source's, for reverse path filters
        if _way_to(address, held.get(_ROUTES, "")) != name:
            yield f"ip route replace {address}/32 dev {name}"
    for known in (line.split() for line in held.get(_NEIGHBOURS, "").splitlines()[1:]):
        # IP address, type, flags, hardware address, mask, interface
        if (known[0], known[3], known[-1]) == (DESTINATION, next_mac, way_out) and int(known[2], 16) & _PERMANENT:
            return
    yield f"ip neighbour replace {DESTINATION} lladdr {next_mac} dev {way_out} nud permanent"


def _files(cabling: Cabling) -> list[str]:
    names = cabling.there
    paths = [_DEVICES, _ROUTES, _NEIGHBOURS, _forwarding(names[0]), *(_silence(name) for name in names)]
    return paths + [_of(name, what) for name in names for what in ("address", "flags", "master/ifindex")]


def _way_to(address: str, routes: str) -> str | None:
    """The interface of the longest of the routes to an address."""
    to = ipaddress.IPv4Address(address)
    fitting = [(network.prefixlen, name) for name, network in read_routes(routes) if to in network]
    return max(fitting)[1] if fitting else None


async def _require_ready(device: Guest, cabling: Cabling, next_mac: str) -> str:
    """The hardware address to which frames are sent.  Raises LaunchError: it does not forward yet, with commands."""
    names = cabling.there
    if cabling.set_up:
        await _set_up(device, names, next_mac)
    files = await files_of(device, _files(cabling))
    present = read_counts(files[_DEVICES])
    if absent := [name for name in names if name not in present]:
        raise LaunchError("device", f"{device.label} has no interface {absent[0]}; it has {', '.join(present)}")
    if commands := _listed(_missing(cabling, next_mac, files)):
        raise LaunchError("device", f"{device.label} does not forward yet; there, as root:{commands}")
    return next_mac if cabling.bridges else files[_of(names[0], "address")].strip()


async def _set_up(device: Guest, names: tuple[str, str], next_mac: str) -> None:
    neighbour = {"address": DESTINATION, "mac": next_mac}
    interfaces = [
        {"name": names[0], "routes": [{"to": f"{SOURCE}/32"}]},
        {"name": names[1], "routes": [{"to": f"{DESTINATION}/32"}], "neighbours": [neighbour]},
    ]
    await device.channel.request("network", interfaces=interfaces, forwarding=True, timeout_s=_READY_S)


def complaint_of(
    trial: TrialResult, cabling: Cabling, device: str, before: Mapping[str, LinkCount], now: Mapping[str, LinkCount]
) -> str | None:
    """What a few frames show to be wrong, in words; the counts are the device's, around the trial."""
    copies = sum(flow.duplicates for flow in trial.flows)
    if copies:
        return f"{copies} of {trial.sent} frames come more than once: the two ports are joined elsewhere, too"
    way_in, way_out = cabling.there
    if trial.lost:
        came = now[way_in].rx_frames - before[way_in].rx_frames
        went = now[way_out].tx_frames - before[way_out].tx_frames
        return (
            f"{trial.lost} of {trial.sent} frames do not come back: {way_in} of {device} took {came}, and "
            f"{way_out} sent {went}; see the cables, and a firewall there (iptables -S FORWARD, nft list ruleset)"
        )
    if trial.arrived > trial.sent:
        return (
            f"{trial.arrived - trial.sent} frames came to {cabling.here[1]} beside the {trial.sent} that were sent, so "
            f"that lost ones could not be accounted for: have {way_out} of {device} alone on that cable, and quiet"
        )
    return None


class DeviceLab(ForwardingLab):
    """See the module."""

    def __init__(self, stage: Stage, cabling: Cabling, lab: Namespace, tester: Tester, loop: Tester) -> None:
        super().__init__(stage, tester, loop)
        self.cabling, self.namespace = cabling, lab
        self._given = self._arrived = 0

    @classmethod
    async def create(cls, settings: ForwardingSettings, stage: Stage) -> DeviceLab:
        """Look whether the machine forwards, borrow the interfaces, and put the tester between them."""
        cabling, own = stage.platform.cabling, allowed_cpus()
        assert cabling is not None  # such a plan is refused
        device = await stage.launch("device", ready_timeout_s=_READY_S)
        with launching("network", NetworkError):
            source_mac, next_mac = (require_free(name) for name in cabling.here)
            entry_mac = await _require_ready(device, cabling, next_mac)
            lab = stage.make_lab()
            loans = contextlib.ExitStack()
            stage.at_end(loans.close)
            for name in cabling.here:
                loans.enter_context(lent(lab, name))
            number = next(number for number in range(3) if f"eth{number}" not in cabling.here)
            connect(lab, lab, [Nic(port=LOOP_END, mac=LOOP_MAC)], first=number)
            take_live_frames(lab, LOOP_END)
        peer = await stage.launch_peer("tester-agent", lab=lab, cpus=own[:2] if len(own) > 1 else None)
        path = Path(source_mac, entry_mac, SOURCE, DESTINATION)
        tester = Tester(peer.channel, settings.port, *cabling.here, [path], own[0], own[:2][-1])
        back = dataclasses.replace(path, destination_mac=LOOP_MAC)
        loop = dataclasses.replace(
            tester, transmit=f"eth{number}", receive=LOOP_END, paths=[back], drain_ns=LOOP_DRAIN_NS
        )
        return cls(stage, cabling, lab, tester, loop)

    async def check(self) -> None:
        tries = 0
        while True:
            tries += 1
            before, trial, now = await self._device_counts(), await self.measure(_CHECK), await self._device_counts()
            complaint = complaint_of(trial, self.cabling, self.guest.label, before, now)
            if complaint is None:
                # what the tester itself can do is asked of the kind of port that it has here
                self._loop = dataclasses.replace(self._loop, port=trial.port)
                return
            if tries == _CHECK_TRIES:
                raise LaunchError("laboratory check", complaint)
            await asyncio.sleep(_CHECK_PAUSE_S)

    async def _device_counts(self) -> dict[str, LinkCount]:
        return read_counts((await files_of(self.guest, [_DEVICES]))[_DEVICES])

    async def measure(self, load: Load) -> TrialResult:
        trial = await self._tester.measure(load)
        self._given += trial.sent - trial.drops["transmit queue"]
        self._arrived += trial.arrived
        return trial

    async def drop_counters(self) -> list[DropCounter]:
        await come_to_rest(self.namespace, self.timeout_factor)
        return await read_device_drops(self.guest, self.cabling.there, self._given, self._arrived)
