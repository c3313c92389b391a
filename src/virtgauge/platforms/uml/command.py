"""The command line of User Mode Linux: a kernel that is a program of the host, and what it is told."""

from __future__ import annotations

import dataclasses
import os
import urllib.parse
from collections.abc import Iterator, Sequence
from pathlib import Path

from virtgauge.platforms.guest_root import RootPart
from virtgauge.platforms.taps import Tap

LONGEST_COMMAND_LINE = 4095
"""Of this kernel, in bytes; what is beyond it is lost without a word (COMMAND_LINE_SIZE)."""

INITRAMFS, VIEW, STATE = "initramfs", "view", "state"
"""In the guest's folder, in which the kernel is started: so no path that it is told can hold a blank or a comma.

The initramfs; what the guest sees of the host's files; the kernel's own, its pid and the socket of its console.
"""


@dataclasses.dataclass(frozen=True)
class UmlBoot:
    """What is started.

    Attributes:
        binary: the kernel.
        memory_mib: memory of the guest.
        identity: names it among all on this host; its processes have it in their titles.
        modules: names, in the order in which the agent loads them.
        disk: device of the host that is its data disk, and where it is mounted; None without one.
        root: what its root consists of; empty for one that is the agent's alone.
    """

    binary: Path
    memory_mib: int
    identity: str
    modules: Sequence[str] = ()
    disk: tuple[Path, Path] | None = None
    root: Sequence[RootPart] = ()

    def arguments(self, *, agent_descriptor: int, taps: Sequence[Tap] = ()) -> list[str]:
        """The whole command line.

        Args:
            agent_descriptor: connected socket for the channel, inherited by the kernel.
            taps: of the guest, in the order of its interfaces.
        """
        return [
            str(self.binary),
            *(f"mem={self.memory_mib}M", f"initrd={INITRAMFS}"),
            *(f"umid={self.identity}", f"uml_dir={STATE}", f"hostfs={VIEW}"),
            # The console is written to standard output, and nothing is read; no terminal is opened for the others.
            *("con=null", "con0=null,fd:1", "ssl=null", f"ssl0=fd:{agent_descriptor}"),
            *("quiet", "panic=-1", "noreboot"),
            *(_vector(number, tap) for number, tap in enumerate(taps)),
            # Each write synchronous: this kernel answers a flush of its disk and does nothing for it.
            *(() if self.disk is None else (f"ubd0s={self.disk[0]}",)),
            *self._agent_settings(),
        ]

    def _agent_settings(self) -> Iterator[str]:
        yield "virtgauge.channel=serial:/dev/ttyS0"
        if self.modules:
            yield f"virtgauge.modules={','.join(self.modules)}"
        if self.root:
            yield "virtgauge.exports=hostfs"
            yield f"virtgauge.root={','.join(self._root_words())}"
        if self.disk is not None:
            yield f"virtgauge.disk={_escaped(self.disk[1])}"

    def _root_words(self) -> Iterator[str]:
        for number, part in enumerate(self.root):
            source = _escaped(part.source) if part.kind == "link" else f"/{number}"
            yield f"{part.kind}:{_escaped(part.path)}:{source}"


def _vector(number: int, tap: Tap) -> str:
    """A network interface of the vector driver on a tap; the older driver hangs above some 100,000 packets a second.

    Frames are read and written one by one (``vec=0``): what sends and receives many at once is for sockets only.
    """
    return f"vec{number}:transport=fd,fd={tap.descriptor},vec=0,mac={tap.mac},mtu={tap.mtu}"


def _escaped(text: str | Path) -> str:
    """A text inside a setting of the agent, where blanks, commas and colons separate."""
    return urllib.parse.quote(os.fsencode(text), safe="/")
