"""The configuration of a domain, as ``xl create`` reads it (xl.cfg(5), xl-network-configuration(5))."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

GuestType = Literal["pv", "pvh"]
TscMode = Literal["default", "always_emulate", "native", "native_paravirt"]

_ENDINGS = ("on_poweroff", "on_reboot", "on_crash", "on_watchdog")
_UNWRITABLE = ('"', "\\", "\n")


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
    """A domain that holds nothing but the agent.

    Attributes:
        name: unique on the host.
        type: para-virtual, or para-virtual within hardware virtualization.
        kernel, ramdisk: files in dom0.
        command_line: of its kernel.
        memory_mib, vcpus: its size.
        vifs: in the order of its interfaces.
        cpus: physical processors that it may run on; None is all.
        cap: of its CPU time, in percent of one physical processor; None is none.
        tsc_mode: whether reading the time-stamp counter traps to Xen (xen-tscmode(7)).
    """

    name: str
    type: GuestType
    kernel: Path
    ramdisk: Path
    command_line: str
    memory_mib: int
    vcpus: int
    vifs: tuple[Vif, ...] = ()
    cpus: tuple[int, ...] | None = None
    cap: int | None = None
    tsc_mode: TscMode = "default"

    def text(self) -> str:
        """The file's content.

        Raises:
            ValueError: a value that the file cannot hold.
        """
        return "".join(f"{line}\n" for line in self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"name = {_quoted(self.name)}"
        yield f"type = {_quoted(self.type)}"
        yield f"kernel = {_quoted(self.kernel)}"
        yield f"ramdisk = {_quoted(self.ramdisk)}"
        yield f"extra = {_quoted(self.command_line)}"
        yield f"memory = {self.memory_mib}"
        yield f"vcpus = {self.vcpus}"
        yield f"tsc_mode = {_quoted(self.tsc_mode)}"
        if self.cpus is not None:
            yield f"cpus = {_quoted(','.join(map(str, self.cpus)))}"
        if self.cap is not None:
            yield f"cap = {self.cap}"
        if self.vifs:
            interfaces = ", ".join(_quoted(str(vif)) for vif in self.vifs)
            yield f"vif = [{interfaces}]"
        # A guest that ends is gone: nothing of it stays, and nothing starts it again.
        for ending in _ENDINGS:
            yield f'{ending} = "destroy"'


def _quoted(value: str | Path) -> str:
    text = str(value)
    if any(character in text for character in _UNWRITABLE):
        raise ValueError(f"{text!r} cannot be written into a domain's configuration: rename what it names")
    return f'"{text}"'
