"""A Xen host that is none: it notes what its toolstack is told, and answers what it was given."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Sequence
from pathlib import Path

from virtgauge.network import Nic
from virtgauge.network.namespace import Namespace
from virtgauge.platforms.xen.dom0 import COMMAND_S, Dom0, DomainConfig, Ended

PLAIN = DomainConfig(
    name="vg12ab34-g1",
    type="pv",
    kernel=Path("/kernels/a.elf"),
    ramdisk=Path("/archives/b.cpio"),
    command_line="console=hvc0 quiet",
    memory_mib=256,
    vcpus=1,
)

LIST = """\
Name                                        ID   Mem VCPUs\tState\tTime(s)
Domain-0                                     0   512     1     r-----      17.7
u1                                           1   160     2     -b----       3.2
"""

SHARES = """\
Cpupool Pool-0: ratelimit=1000us
Name                                ID Weight  Cap
Domain-0                             0   2048    0
u1                                   1    {weight}   {cap}
"""

VCPUS = """\
Name                                ID  VCPU   CPU State   Time(s) Affinity (Hard / Soft)
u1                                   1     0    0   -b-       3.2  {cpus} / all
u1                                   1     1    0   -b-       0.2  {cpus} / all
"""


class NotedDom0(Dom0):
    """See the module.

    Attributes:
        told: every command, in order.
        answers: what a command prints, by its first words; another prints nothing.
        refusals: what a command says as it fails, likewise.
        stored: files by name.
    """

    def __init__(self, *, emulated: bool = False) -> None:
        self.emulated = emulated
        self.told: list[str] = []
        self.answers: dict[str, str] = {}
        self.refusals: dict[str, str] = {}
        self.stored: dict[str, str] = {}
        self._weight, self._cap, self._cpus = 256, 0, "all"

    async def run(self, argv: Sequence[str], timeout_s: float = COMMAND_S) -> Ended:
        return self.run_now(argv, timeout_s)

    def run_now(self, argv: Sequence[str], timeout_s: float = COMMAND_S) -> Ended:
        command = " ".join(argv)
        self.told.append(command)
        for beginning, refusal in self.refusals.items():
            if command.startswith(beginning):
                return Ended(1, "", refusal)
        for beginning, answer in self.answers.items():
            if command.startswith(beginning):
                return Ended(0, answer, "")
        return Ended(0, self._scheduler(list(argv)), "")

    async def store(self, name: str, text: str) -> str:
        self.stored[name] = text
        return f"/run/{name}"

    def path_of(self, path: Path) -> Path:
        return path

    async def open_console(
        self, number: int, removal: contextlib.ExitStack
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        ours, theirs = socket.socketpair()
        removal.callback(theirs.close)
        theirs.send(b"a kernel that says something\r\n")
        reader, writer = await asyncio.open_connection(sock=ours)
        removal.callback(writer.close)
        return reader, writer

    def uplink(self, lab: Namespace, nic: Nic, removal: contextlib.ExitStack) -> str:
        removal.callback(self.told.append, f"give back {nic.port}")
        return f"up-{nic.port}"

    def bridge_name(self, uplink: str) -> str:
        return uplink.replace("up-", "br-")

    def _scheduler(self, argv: list[str]) -> str:
        """What a scheduler that does what it is told answers."""
        if argv[:2] == ["xl", "sched-credit2"]:
            options = dict(zip(argv[2::2], argv[3::2], strict=True))
            self._weight, self._cap = int(options.get("-w", self._weight)), int(options.get("-c", self._cap))
            return SHARES.format(weight=self._weight, cap=self._cap)
        if argv[:2] == ["xl", "vcpu-pin"]:
            self._cpus = argv[-1]
        if argv[:2] == ["xl", "vcpu-list"]:
            return VCPUS.format(cpus=self._cpus)
        return {"list": LIST, "domid": "1\n"}.get(argv[1], "")
