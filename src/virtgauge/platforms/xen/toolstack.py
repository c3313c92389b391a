"""Xen's toolstack ``xl``: the configuration that it reads, and what it prints."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

# The configuration of a domain, as ``xl create`` reads it (xl.cfg(5), xl-network-configuration(5)).

GuestType = Literal["pv", "pvh"]
TscMode = Literal["default", "always_emulate", "native"]

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
    """A domain that holds nothing but the agent."""

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


_DOMAIN = re.compile(r"(\S+)\s+(\d+)\s+(\d+)\s+(\d+)\s+(\S+)\s+(\d+\.\d+)\s*")
_SHARE = re.compile(r"(\S+)\s+(\d+)\s+(\d+)\s+(\d+)\s*")
_VCPU = re.compile(r"(\S+)\s+(\d+)\s+(\d+)\s+(\S+)\s+(\S+)\s+(\d+\.\d+)\s+(\S+)\s+/\s+(\S+)\s*")


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
