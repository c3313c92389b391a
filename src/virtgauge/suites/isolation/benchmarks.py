"""The vocabulary of benchmarks and loads: which kernel of the agent each is, and what its rate is told in.

Integer and floating point as Dhrystone and Whetstone count them, memory as RAMspeed does, disk as IOzone does (the
paper's tools, section 5.3; the kernels are virtgauge's own).
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from pathlib import Path
from typing import Literal

from virtgauge.specs.isolation_formatting import NOTHING

_SIZE = re.compile(r"([1-9][0-9]{0,6})(KiB|MiB|GiB)")
_CACHES = re.compile(r"([1-9][0-9]{0,2}(?:\.[0-9])?|0\.[1-9])xLLC")
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}
LEAST_BYTES, LARGEST_BYTES = 2**20, 2**36
ASSUMED_CACHE_BYTES = 2**24  # Where a host tells the size of none: four of them are the paper's 64 MiB
_DHRYSTONES_OF_A_VAX = 1757.0
_CYCLES_OF_A_MWIPS = 10.0


@dataclasses.dataclass(frozen=True)
class Kind:
    """A benchmark or a load."""

    name: str  # in plans and cells
    family: Literal["cpu", "memory", "latency", "disk", "wake", "cache", "fork"]
    kernel: dict[str, str]  # the agent's, with the parameters that say what it does (docs/protocol.md)
    value_unit: str  # what its figure is told in

    @property
    def always_runs(self) -> bool:
        """Whether its threads never wait, so that they would take all the CPU time there is."""
        return self.family not in ("disk", "wake")

    @property
    def has_block(self) -> bool:
        """Whether the block of memory is a factor of it."""
        return self.family in ("memory", "latency")

    @property
    def uses_disk(self) -> bool:
        return self.family == "disk"

    def value(self, rate: float, threads: int, block_bytes: int | None) -> float | None:
        """The figure, in its unit, of the kernel's units a second of all threads; None for a time of nothing done.

        The block is that of one operation of a disk, or of the memory.
        """
        if self.family == "latency":
            return threads * 1e9 / rate if rate > 0 else None
        if self.value_unit == "operations/s" and block_bytes:
            return rate / block_bytes
        divisors = {"DMIPS": _DHRYSTONES_OF_A_VAX, "MWIPS": _CYCLES_OF_A_MWIPS, "MB/s": 1e6}
        return rate / divisors.get(self.value_unit, 1.0)


_MEMORY = [
    Kind(f"memory-{access}-{element}", "memory", {"kernel": "memory", "access": access, "element": element}, "MB/s")
    for access, element in itertools.product(("read", "write", "copy"), ("integer", "float", "simd"))
]
_DISK = [
    Kind(f"disk-{order}-{operation}", "disk", {"kernel": "disk", "order": order, "operation": operation}, unit)
    for order, unit in (("sequential", "MB/s"), ("random", "operations/s"))
    for operation in ("read", "write", "write-flush")
]
_ALIKE = [
    Kind("integer", "cpu", {"kernel": "integer"}, "DMIPS"),
    Kind("floating", "cpu", {"kernel": "floating"}, "MWIPS"),
    *_MEMORY,
]
_BENCHMARKS = [
    *_ALIKE,
    Kind("latency", "latency", {"kernel": "latency"}, "ns"),
    *_DISK,
    Kind("wake", "wake", {"kernel": "wake"}, "wake-ups/s"),
]
_LOADS = [
    *_ALIKE,
    *_DISK,
    Kind("cache", "cache", {"kernel": "cache"}, "lines/s"),
    Kind("fork", "fork", {"kernel": "fork"}, "processes/s"),
    # Small writes anywhere, each of which waits for the disk.
    Kind("flush", "disk", {"kernel": "disk", "order": "random", "operation": "write-flush"}, "operations/s"),
]
BENCHMARKS = tuple(kind.name for kind in _BENCHMARKS)
LOADS = (NOTHING, *(kind.name for kind in _LOADS))
KINDS = {kind.name: kind for kind in (*_BENCHMARKS, *_LOADS)}
"""Benchmarks and loads by their names, without :data:`NOTHING`."""


def uses_disk(name: str) -> bool:
    """Whether a benchmark or a load needs a disk of its own."""
    return name != NOTHING and KINDS[name].uses_disk


def largest_cache_bytes(caches: Path = Path("/sys/devices/system/cpu")) -> int | None:
    """The largest cache of any one processor of this host, by its kernel; None where that does not tell."""
    found = []
    for size in caches.glob("cpu[0-9]*/cache/index[0-9]*/size"):
        try:
            text = size.read_text().strip()
            found.append(int(text.rstrip("KMG")) * _UNITS.get(text[-1:], 1))
        except (OSError, ValueError):
            continue
    return max(found, default=None)


def is_a_block(text: str) -> str:
    """Check a block's name: ``64MiB``, or ``4xLLC``, so many times the host's largest cache.
    Raises ValueError: it is none, or one of a size that no benchmark takes.
    """
    if not (_SIZE.fullmatch(text) or _CACHES.fullmatch(text)):
        raise ValueError("is no block; write 64MiB, or 4xLLC for four times the largest cache")
    if not LEAST_BYTES <= block_bytes(text, LEAST_BYTES) <= LARGEST_BYTES:
        raise ValueError("is out of range; a block has from 1MiB to 64GiB")
    return text


def block_bytes(name: str, cache_bytes: int | None) -> int:
    """The size of a block (:func:`is_a_block`) beside the largest cache; 16 MiB stand for one that is not known."""
    if (size := _SIZE.fullmatch(name)) is not None:
        return int(size[1]) * _UNITS[size[2][0]]
    caches = _CACHES.fullmatch(name)
    assert caches is not None
    return min(max(round(float(caches[1]) * (cache_bytes or ASSUMED_CACHE_BYTES)), LEAST_BYTES), LARGEST_BYTES)
