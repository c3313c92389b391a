"""What is true of a guest's network on every platform: it answers, it routes, and the lab keeps it to itself."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import selectors
import socket
import time
from collections.abc import Callable, Iterator

from platforms.conftest import running

from virtgauge.host.scope import Scope
from virtgauge.network import Neighbour, Nic, Route, links
from virtgauge.network.namespace import Namespace
from virtgauge.network.switch import LinuxBridge, Rule, Switch
from virtgauge.platforms.base import GuestSpec, Platform

PATIENCE_S = 20.0
ETH_P_ALL = 3
IP_RECVTTL = 12  # the standard library does not name it
MARK = b"virtgauge lab 7f3e"


def mac(last: int) -> str:
    return f"52:54:00:00:00:{last:02x}"


@contextlib.contextmanager
def peer(scope: Scope, lab: Namespace, name: str, nic: Nic) -> Iterator[Namespace]:
    """A namespace of the host with one interface, whose other end is in the lab."""
    with Namespace(scope, name) as namespace:
        links.connect(lab, namespace, [nic])
        yield namespace


@contextlib.contextmanager
def frames_outside() -> Iterator[socket.socket]:
    """Everything that the machine's own interfaces see."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)) as tap:
        tap.setblocking(False)
        yield tap


def marked(tap: socket.socket) -> int:
    count = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            count += MARK in tap.recv(65536)
    return count


def datagrams_arrive(sender: Namespace, receiver: Namespace, to: str, port: int) -> tuple[str, int]:
    """Send until one arrives (an emulated NIC loses its first); its source address, and the hops that it took."""
    inbox = receiver.run(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    outbox = sender.run(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    with inbox, outbox, selectors.DefaultSelector() as selector:
        inbox.setsockopt(socket.IPPROTO_IP, IP_RECVTTL, 1)
        inbox.bind(("0.0.0.0", port))
        selector.register(inbox, selectors.EVENT_READ)
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            outbox.sendto(MARK, (to, port))
            if selector.select(0.2):
                data, ancillary, _, source = inbox.recvmsg(1024, 64)
                assert data == MARK
                [(_, _, ttl)] = ancillary
                return source[0], 64 - int.from_bytes(ttl, "little")
    raise AssertionError(f"no datagram reached {to}")


def pings(namespace: Namespace, address: str) -> bool:
    """Whether an address answers an ICMP echo; asks until it does, for a while."""
    ping = namespace.run(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP))
    with ping:
        ping.settimeout(0.2)
        body = b"\x08\x00\x00\x00" + b"\x12\x34\x00\x01" + MARK
        words = [int.from_bytes(body[i : i + 2].ljust(2, b"\0"), "big") for i in range(0, len(body), 2)]
        total = sum(words)
        while total >> 16:
            total = (total & 0xFFFF) + (total >> 16)
        request = body[:2] + (total ^ 0xFFFF).to_bytes(2, "big") + body[4:]
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            ping.sendto(request, (address, 0))
            with contextlib.suppress(TimeoutError):
                answer = ping.recv(1024)
                if answer[20] == 0 and answer.endswith(MARK):
                    return True
    return False


async def check_a_guest_answers_from_its_lab_only(platform: Platform, spec: GuestSpec) -> None:
    """One interface, by veth into the lab and from there to a peer by a hand-made patch of the two links."""
    nic = Nic("gp0", mac(1), ("10.11.0.1/24",), neighbours=(Neighbour("10.11.0.2", mac(2)),))
    other = Nic("pp0", mac(2), ("10.11.0.2/24",), neighbours=(Neighbour("10.11.0.1", mac(1)),))
    with Namespace(spec.scope, "lab") as lab:
        asked = dataclasses.replace(spec, nics=(nic,), lab=lab)
        with peer(spec.scope, lab, "peer", other) as outside, frames_outside() as tap:
            async with running(platform, asked):
                with contextlib.closing(LinuxBridge(lab)) as switch:
                    switch.add_bridge("br0", ("gp0", "pp0"))
                    switch.add_rules([Rule("pp0", mac(1), "gp0"), Rule("gp0", mac(2), "pp0")])
                    assert pings(outside, "10.11.0.1")
                    there, back = switch.counters().values()
                assert there is not None
                assert back is not None
                assert there >= back > 0
                assert not {"gp0", "pp0"} & set(os.listdir("/sys/class/net"))
            async with running(platform, dataclasses.replace(asked, name=f"{spec.name}-again")):
                assert "gp0" in lab.interfaces(), "the port's name is free once its guest is closed"
            assert marked(tap) == 0, "a frame left the lab"


async def check_a_guest_routes(
    platform: Platform, spec: GuestSpec, switch_of: Callable[[Namespace], Switch] = LinuxBridge
) -> None:
    """Two interfaces, a network at each, and a datagram that crosses."""
    nics = (
        Nic("gp0", mac(1), ("10.11.0.1/24",), neighbours=(Neighbour("10.11.0.2", mac(2)),)),
        Nic(
            "gp1",
            mac(3),
            ("10.12.0.1/24",),
            routes=(Route("10.99.0.0/16", "10.12.0.2"),),
            neighbours=(Neighbour("10.12.0.2", mac(4)),),
        ),
    )
    left = Nic("pp0", mac(2), ("10.11.0.2/24",), (Route("default", "10.11.0.1"),), (Neighbour("10.11.0.1", mac(1)),))
    right = Nic(
        "pp1",
        mac(4),
        ("10.12.0.2/24", "10.99.0.7/32"),
        (Route("default", "10.12.0.1"),),
        (Neighbour("10.12.0.1", mac(3)),),
    )
    with contextlib.ExitStack() as stack:
        lab = stack.enter_context(Namespace(spec.scope, "lab"))
        one = stack.enter_context(peer(spec.scope, lab, "left", left))
        two = stack.enter_context(peer(spec.scope, lab, "right", right))
        tap = stack.enter_context(frames_outside())
        asked = dataclasses.replace(spec, nics=nics, lab=lab, forwarding=True)
        async with running(platform, asked):
            with contextlib.closing(switch_of(lab)) as switch:
                switch.add_bridge("br0", ("gp0", "pp0"))
                switch.add_bridge("br1", ("gp1", "pp1"))
                switch.add_rules([Rule("pp0", mac(1), "gp0"), Rule("gp0", mac(2), "pp0")])
                switch.add_rules([Rule("pp1", mac(3), "gp1"), Rule("gp1", mac(4), "pp1")])
                assert datagrams_arrive(one, two, "10.12.0.2", 5001) == ("10.11.0.2", 1)
                assert datagrams_arrive(one, two, "10.99.0.7", 5002) == ("10.11.0.2", 1), "by the guest's own route"
                assert datagrams_arrive(two, one, "10.11.0.2", 5003)[1] == 1
        assert marked(tap) == 0, "a frame left the lab"
