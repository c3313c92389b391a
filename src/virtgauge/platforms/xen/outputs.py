"""What ``xl`` prints, read back."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

_DOMAIN = re.compile(r"(\S+)\s+(\d+)\s+(\d+)\s+(\d+)\s+(\S+)\s+(\d+\.\d+)\s*")
_SHARE = re.compile(r"(\S+)\s+(\d+)\s+(\d+)\s+(\d+)\s*")
_VCPU = re.compile(r"(\S+)\s+(\d+)\s+(\d+)\s+(\S+)\s+(\S+)\s+(\d+\.\d+)\s+(\S+)\s+/\s+(\S+)\s*")


class OutputError(Exception):
    """The output is not what this version of us expects; holds what was looked for and the text."""

    def __init__(self, wanted: str, text: str) -> None:
        super().__init__(f"there is no {wanted} in what xl prints: {text.strip()[:300]!r}")


@dataclasses.dataclass(frozen=True)
class Domain:
    """A line of ``xl list``.

    Attributes:
        name, number: of the domain.
        memory_mib, vcpus: its size.
        state: six letters or dashes: running, blocked, paused, shutdown, crashed, dying.
        cpu_s: CPU time used, in steps of a tenth of a second.
    """

    name: str
    number: int
    memory_mib: int
    vcpus: int
    state: str
    cpu_s: float


@dataclasses.dataclass(frozen=True)
class Share:
    """What the credit2 scheduler gives a domain.

    Attributes:
        weight: 1 … 65 535; 256 is everybody's.
        cap: in percent of one physical processor; 0 is none.
    """

    weight: int
    cap: int


def domains(text: str) -> list[Domain]:
    """Of ``xl list``."""
    return [
        Domain(name, int(number), int(memory), int(vcpus), state, float(seconds))
        for name, number, memory, vcpus, state, seconds in _lines(_DOMAIN, text)
    ]


def shares(text: str) -> dict[str, Share]:
    """Of ``xl sched-credit2``, by the domain's name."""
    return {name: Share(int(weight), int(cap)) for name, _, weight, cap in _lines(_SHARE, text)}


def affinities(text: str) -> list[str]:
    """Of ``xl vcpu-list DOMAIN``: the physical processors of each vCPU, as Xen writes them (``all``, ``0-1,3``)."""
    return [fields[6] for fields in _lines(_VCPU, text)]


def facts(text: str) -> dict[str, str]:
    """Of ``xl info``, by name."""
    pairs = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip() for name, colon, value in pairs if colon}


def _lines(pattern: re.Pattern[str], text: str) -> Iterator[tuple[str, ...]]:
    for line in text.splitlines():
        if found := pattern.fullmatch(line):
            yield found.groups()
