"""The privileged domain of a Xen host, where guests' consoles and interfaces come out: what ``xl`` reads and prints."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from pyroute2 import IPRoute

from virtgauge.host.process import in_thread, ran
from virtgauge.host.scope import Scope
from virtgauge.network import Nic
from virtgauge.network.namespace import Namespace, network_error
from virtgauge.platforms.attempt import Streams, terminal_streams

GuestType = Literal["pv", "pvh"]
TscMode = Literal["default", "always_emulate", "native"]
_DOMAIN = re.compile(r"(\S+)\s+(\d+)\s+(\d+)\s+(\d+)\s+(\S+)\s+(\d+\.\d+)\s*")
_SHARE = re.compile(r"(\S+)\s+(\d+)\s+(\d+)\s+(\d+)\s*")
_VCPU = re.compile(r"(\S+)\s+(\d+)\s+(\d+)\s+(\S+)\s+(\S+)\s+(\d+\.\d+)\s+(\S+)\s+/\s+(\S+)\s*")
_CHATTER = "got a tsc mode string"
"""What `xl` begins with on its standard error wherever a domain's configuration names a tsc_mode."""
COMMAND_S = 60.0  # Bound on a command of the toolstack that waits for no guest
_TERMINAL_S, _PAUSE_S = 10.0, 0.05
_numbers = itertools.count()


@dataclasses.dataclass(frozen=True)
class Vif:
    """A network interface of the domain, the bridge of dom0 that it joins, and by which script (None: Xen's own)."""

    mac: str
    bridge: str
    script: str | None = None

    def __str__(self) -> str:
        return f"mac={self.mac},bridge={self.bridge}" + (f",script={self.script}" if self.script else "")


@dataclasses.dataclass(frozen=True)
class DomainConfig:
    """A domain that holds nothing but the agent, as ``xl create`` reads it (xl.cfg(5), xl-network-configuration(5))."""

    name: str  # unique on the host
    type: GuestType  # para-virtual, or para-virtual within hardware virtualization
    # kernel, ramdisk: files in dom0
    kernel: Path
    ramdisk: Path
    command_line: str
    memory_mib: int
    vcpus: int
    vifs: tuple[Vif, ...] = ()  # in the order of its interfaces
    cpus: tuple[int, ...] | None = None  # physical processors that it may run on; None is all
    cap: int | None = None  # of its CPU time, in percent of one physical processor; None is none
    tsc_mode: TscMode = "default"  # whether reading the time-stamp counter traps to Xen (xen-tscmode(7))

    def text(self) -> str:
        """The file's content.  Raises ValueError: a value that the file cannot hold."""
        told: dict[str, object] = {
            "name": self.name,
            "type": self.type,
            "kernel": self.kernel,
            "ramdisk": self.ramdisk,
            "extra": self.command_line,
            "memory": self.memory_mib,
            "vcpus": self.vcpus,
            "tsc_mode": self.tsc_mode,
            "cpus": None if self.cpus is None else ",".join(map(str, self.cpus)),
            "cap": self.cap,
            "vif": [*self.vifs] or None,
            # A guest that ends is gone: nothing of it stays, and nothing starts it again.
            **dict.fromkeys(("on_poweroff", "on_reboot", "on_crash", "on_watchdog"), "destroy"),
        }
        return "".join(f"{name} = {_written(value)}\n" for name, value in told.items() if value is not None)


def _written(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    text = str(value)
    if any(character in text for character in '"\\\n'):
        raise ValueError(f"{text!r} cannot be written into a domain's configuration: rename what it names")
    return text if isinstance(value, int) else f'"{text}"'


@dataclasses.dataclass(frozen=True)
class Share:
    """What the credit2 scheduler gives a domain."""

    weight: int  # 1 … 65 535; 256 is everybody's
    cap: int  # in percent of one physical processor; 0 is none


def cpu_times_s(text: str) -> dict[str, float]:
    """Of ``xl list``, by the domain's name, in steps of a tenth of a second."""
    return {fields[0]: float(fields[5]) for fields in _lines(_DOMAIN, text)}


def shares(text: str) -> dict[str, Share]:
    """The shares that ``xl sched-credit2`` prints, by the domain's name."""
    return {name: Share(int(weight), int(cap)) for name, _, weight, cap in _lines(_SHARE, text)}


def affinities(text: str) -> list[str]:
    """Of ``xl vcpu-list DOMAIN``: the physical processors of each vCPU, as Xen writes them (``all``, ``0-1,3``)."""
    return [fields[6] for fields in _lines(_VCPU, text)]


def facts(text: str) -> dict[str, str]:
    """The facts of ``xl info``, by name."""
    pairs = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip() for name, colon, value in pairs if colon}


def _lines(pattern: re.Pattern[str], text: str) -> Iterator[tuple[str, ...]]:
    for line in text.splitlines():
        if found := pattern.fullmatch(line):
            yield found.groups()


def xen_cap(cpu_limit: float) -> int:
    """A limit in whole CPUs as a cap in percent of one; a cap of 0 would be none."""
    return max(round(cpu_limit * 100), 1)


class XenError(Exception):
    """The toolstack refused or failed: the command, and what it said."""


@dataclasses.dataclass(frozen=True)
class Ended:
    """A program's exit code (None where it was killed) and what it printed."""

    exit_code: int | None
    stdout: str
    stderr: str

    def checked(self, argv: Sequence[str]) -> str:
        """Its standard output.  Raises XenError: it failed."""
        if self.exit_code == 0:
            return self.stdout
        lines = [line.strip() for line in (self.stderr or self.stdout).splitlines()]
        said = [line for line in lines if line and _CHATTER not in line]
        ending = "was killed" if self.exit_code is None else f"ended with status {self.exit_code}"
        # libxl tells the cause first, and then what failed because of it
        raise XenError(f"`{' '.join(argv[:3])}` {ending}" + (f": {'; '.join(said[:3])}" if said else ""))


class Dom0:
    """A Xen host's privileged domain: this very machine, as long as nobody puts another in its place."""

    emulated: bool = False  # the whole host is emulated, so that its timings mean nothing
    timeout_factor: float = 1.0  # how many times longer than on a real machine things may take
    vif_script: str | None = None  # in dom0, joins a domain's interface to its bridge; None leaves that to Xen's own

    def __init__(self, scope: Scope, folder: Path) -> None:
        """Nothing is started; ``folder`` is private, for domains' configurations."""
        self._scope, self._folder = scope, folder

    async def run(self, argv: Sequence[str], timeout_s: float = COMMAND_S) -> Ended:
        """Run a program there to its end.  Raises XenError: it cannot be started, or did not end in time."""
        return await asyncio.to_thread(self.run_now, argv, timeout_s)

    def run_now(self, argv: Sequence[str], timeout_s: float = COMMAND_S) -> Ended:
        """The same for a caller that cannot wait in an event loop (accounting, removal)."""
        try:
            done = ran(argv, timeout_s=timeout_s, env=self._scope.environment())
        except subprocess.TimeoutExpired as error:
            raise XenError(f"`{' '.join(argv[:3])}` did not end within {timeout_s:g} s") from error
        except OSError as error:
            raise XenError(f"`{argv[0]}` cannot be started: {error.strerror}") from error
        return Ended(None if done.returncode < 0 else done.returncode, done.stdout, done.stderr)

    async def check(self, argv: Sequence[str], timeout_s: float = COMMAND_S) -> str:
        """Run a program there and give back what it printed.  Raises XenError: it failed."""
        return (await self.run(argv, timeout_s)).checked(argv)

    async def store(self, name: str, text: str) -> str:
        """Write a small file there; its path.  Raises XenError: it cannot be written."""
        path = self._folder / name
        try:
            path.write_text(text)
        except OSError as error:
            raise XenError(f"{path} cannot be written: {error.strerror}") from error
        return str(path)

    def path_of(self, path: Path) -> Path:
        """The path there of a file of this host's cache."""
        return path

    async def open_console(self, number: int, removal: contextlib.ExitStack) -> Streams:
        """The console of a domain, passing every byte; it ends with the domain.  Raises XenError: it has none."""
        terminal = await self._terminal(number)
        try:
            return await terminal_streams(terminal, removal)
        except OSError as error:
            raise XenError(f"the console {terminal} of domain {number} cannot be opened: {error.strerror}") from error

    def uplink(self, lab: Namespace, nic: Nic, removal: contextlib.ExitStack) -> str:
        """An interface of dom0, up, whose other end is in the lab under the name of the port.  Raises NetworkError."""
        name = f"{self._scope.tag}u{next(_numbers) % 10_000}"
        in_thread(lambda: _make_pair(name, lab, nic))
        # the other end, and with it the port's name, goes too
        removal.callback(self.remove_interface, name)
        return name

    def bridge_name(self, uplink: str) -> str:
        """A name for the bridge of an uplink that nobody else uses."""
        tag, _, number = uplink.rpartition("u")
        return f"{tag}b{number}"

    def remove_interface(self, name: str) -> None:
        """Remove an interface of dom0; one that is gone is no error."""
        with contextlib.suppress(XenError):
            self.run_now(["ip", "link", "del", "dev", name])

    async def number_of(self, name: str) -> int:
        """The number of a running domain.  Raises XenError: there is none of that name."""
        text = await self.check(["xl", "domid", name])
        try:
            return int(text)
        except ValueError:
            raise XenError(f"`xl domid {name}` prints {text.strip()!r}") from None

    def cpu_s(self, name: str) -> float | None:
        """CPU time that a domain has used; None when there is none of that name, or xl does not tell."""
        with contextlib.suppress(XenError):
            argv = ["xl", "list"]
            return cpu_times_s(self.run_now(argv).checked(argv)).get(name)
        return None

    async def share(self, name: str) -> Share:
        """What the scheduler gives a domain.  Raises XenError: the scheduler is not credit2, or the domain is gone."""
        text = await self.check(["xl", "sched-credit2", "-d", name])
        try:
            return shares(text)[name]
        except KeyError:
            raise _unexpected(f"share of {name}", text) from None

    async def set_share(self, name: str, share: Share) -> None:
        """Set what the scheduler gives a domain, and read it back.  Raises XenError: Xen refuses, or gives another."""
        await self.check(["xl", "sched-credit2", "-d", name, "-w", str(share.weight), "-c", str(share.cap)])
        if (found := await self.share(name)) != share:
            raise XenError(f"credit2 was asked for weight {share.weight} and cap {share.cap}, and has {found} in force")

    async def affinity(self, name: str) -> str:
        """Physical processors of a domain's vCPUs, in Xen's words.  Raises XenError: they differ, or are not told."""
        text = await self.check(["xl", "vcpu-list", name])
        found = sorted(set(affinities(text)))
        if len(found) != 1:
            raise _unexpected(f"single affinity of {name}", text)
        return found[0]

    def destroy(self, name: str) -> None:
        """End a domain at once; one that is gone is no error."""
        with contextlib.suppress(XenError):
            self.run_now(["xl", "destroy", name])

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


def _unexpected(wanted: str, text: str) -> XenError:
    return XenError(f"there is no {wanted} in what xl prints: {text.strip()[:300]!r}")


def _make_pair(name: str, lab: Namespace, nic: Nic) -> None:
    with network_error(f"the link {nic.port} cannot be made"):
        with IPRoute() as route, lab.descriptor() as there:
            peer = {"ifname": nic.port, "mtu": nic.mtu, "net_ns_fd": there}
            route.link("add", ifname=name, kind="veth", mtu=nic.mtu, peer=peer)
            [index] = route.link_lookup(ifname=name)
            route.link("set", index=index, state="up")
        lab.netlink(lambda inside: inside.link("set", index=inside.link_lookup(ifname=nic.port)[0], state="up"))
