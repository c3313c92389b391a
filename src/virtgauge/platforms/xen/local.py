"""This host as the dom0 of a real Xen host."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import subprocess
import tty
from collections.abc import Sequence
from pathlib import Path

from virtgauge.host.scope import Scope
from virtgauge.network.namespace import Namespace, in_thread
from virtgauge.network.nic import NetworkError, Nic
from virtgauge.platforms.xen.dom0 import COMMAND_S, Dom0, Ended, XenError

_TERMINAL_S, _PAUSE_S = 10.0, 0.05

_numbers = itertools.count()


class LocalDom0(Dom0):
    """``xl`` and the consoles' terminals on this very machine."""

    where = "this host"
    emulated = False
    patience = 1.0

    def __init__(self, scope: Scope, folder: Path) -> None:
        """Nothing is started.

        Args:
            scope: names what is made, so that the reclaim finds it.
            folder: private, for domains' configurations.
        """
        self._scope, self._folder = scope, folder

    async def run(self, argv: Sequence[str], timeout_s: float = COMMAND_S) -> Ended:
        return await asyncio.to_thread(self.run_now, argv, timeout_s)

    def run_now(self, argv: Sequence[str], timeout_s: float = COMMAND_S) -> Ended:
        try:
            done = subprocess.run(
                list(argv),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                env=self._scope.environment(),
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise XenError(f"`{' '.join(argv[:3])}` did not end within {timeout_s:g} s") from error
        except OSError as error:
            raise XenError(f"`{argv[0]}` cannot be started: {error.strerror}") from error
        killed = done.returncode < 0
        return Ended(
            None if killed else done.returncode,
            done.stdout.decode(errors="replace"),
            done.stderr.decode(errors="replace"),
        )

    async def store(self, name: str, text: str) -> str:
        path = self._folder / name
        try:
            path.write_text(text)
        except OSError as error:
            raise XenError(f"{path} cannot be written: {error.strerror}") from error
        return str(path)

    def path_of(self, path: Path) -> Path:
        return path

    async def open_console(
        self, number: int, removal: contextlib.ExitStack
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        terminal = await self._terminal(number)
        try:
            return await _streams(terminal, removal)
        except OSError as error:
            raise XenError(f"the console {terminal} of domain {number} cannot be opened: {error.strerror}") from error

    def uplink(self, lab: Namespace, nic: Nic, removal: contextlib.ExitStack) -> str:
        name = f"{self._scope.tag}u{next(_numbers) % 10_000}"
        in_thread(lambda: _make_pair(name, lab, nic))
        # the other end, and with it the port's name, goes too
        removal.callback(self._remove_interface, name)
        return name

    def bridge_name(self, uplink: str) -> str:
        return uplink.replace("u", "b")

    async def _terminal(self, number: int) -> Path:
        """Of a domain that was just made: Xen's console daemon opens it in its own time."""
        argv = ["xenstore-read", f"/local/domain/{number}/console/tty"]
        deadline = asyncio.get_running_loop().time() + _TERMINAL_S
        while True:
            ended = await self.run(argv)
            if ended.exit_code == 0 and ended.stdout.strip():
                return Path(ended.stdout.strip())
            if asyncio.get_running_loop().time() > deadline:
                raise XenError(f"domain {number} has no console; does xenconsoled run?")
            await asyncio.sleep(_PAUSE_S)

    def _remove_interface(self, name: str) -> None:
        with contextlib.suppress(XenError):
            self.run_now(["ip", "link", "del", "dev", name])


def _make_pair(name: str, lab: Namespace, nic: Nic) -> None:
    from pyroute2 import IPRoute, NetlinkError

    try:
        with IPRoute() as route, lab.descriptor() as there:
            peer = {"ifname": nic.port, "mtu": nic.mtu, "net_ns_fd": there}
            route.link("add", ifname=name, kind="veth", mtu=nic.mtu, peer=peer)
            [index] = route.link_lookup(ifname=name)
            route.link("set", index=index, state="up")
        lab.netlink(lambda inside: inside.link("set", index=inside.link_lookup(ifname=nic.port)[0], state="up"))
    except (NetlinkError, OSError) as error:
        raise NetworkError(f"the link {nic.port} cannot be made: {error}") from error


async def _streams(terminal: Path, removal: contextlib.ExitStack) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Streams over a terminal that passes every byte."""
    descriptor = os.open(terminal, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    with contextlib.ExitStack() as undo:
        reading = undo.enter_context(os.fdopen(descriptor, "rb", buffering=0))
        tty.setraw(descriptor)
        writing = undo.enter_context(os.fdopen(os.dup(descriptor), "wb", buffering=0))
        loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
        read_transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), reading)
        undo.callback(read_transport.close)
        transport, protocol = await loop.connect_write_pipe(
            lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), writing
        )
        undo.pop_all()
    removal.callback(read_transport.close)
    removal.callback(transport.close)
    return reader, asyncio.StreamWriter(transport, protocol, None, loop)
