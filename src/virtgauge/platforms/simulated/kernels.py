"""Requests for the agent's kernels as docs/protocol.md has them: what is asked for, checked as the agent checks it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

MEMORY, CACHE, DISK, WAKE = "memory", "cache", "disk", "wake"

_BESIDES: dict[str, tuple[str, ...]] = {
    "integer": (),
    "floating": (),
    MEMORY: ("access", "element", "block_bytes"),
    "latency": ("block_bytes",),
    DISK: ("order", "operation", "folder", "block_bytes", "file_bytes"),
    WAKE: ("period_ns",),
    CACHE: ("block_bytes",),
    "fork": (),
}
"""What each needs besides the number of its threads and a seed."""
_PARTS = ("access", "element", "order", "operation")
"""Of these, what its name is made of."""
_TEXTS = (*_PARTS, "folder")
_UNITS = {
    "integer": "dhrystones",
    "floating": "whetstone cycles",
    MEMORY: "bytes",
    "latency": "loads",
    DISK: "bytes",
    WAKE: "wake-ups",
    CACHE: "lines",
    "fork": "processes",
}


def work_name(params: Mapping[str, Any]) -> str:
    """The kernel that parameters ask for, and what of it is done: ``memory-read-simd``, ``disk-random-write``."""
    besides = _BESIDES.get(params.get("kernel", ""), ())
    return "-".join(str(params.get(name)) for name in ("kernel", *(part for part in _PARTS if part in besides)))


class SimulatedFailure(Exception):
    """The agent answers with an error.

    Attributes:
        code: of docs/protocol.md.
        errno: for code ``os``.
    """

    def __init__(self, code: str, message: str, errno: int | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.errno = code, message, errno


@dataclasses.dataclass(frozen=True)
class Work:
    """What the threads of a kernel do.

    Attributes:
        kernel: the agent's.
        name: as :func:`work_name` has it.
        operation: of a disk; else empty.
        block_bytes: of one operation of a disk, or of memory; 0 for others.
        period_ns: of wake-ups; 0 for others.
        intensity: part of the time in which it works.
    """

    kernel: str
    name: str
    threads: int
    operation: str
    block_bytes: int
    period_ns: int
    intensity: float = 1.0

    @property
    def unit(self) -> str:
        """What its work is counted in."""
        return _UNITS[self.kernel]

    @classmethod
    def from_params(cls, params: Mapping[str, Any], further: tuple[str, ...]) -> Work:
        """Read the parameters of a probe or a load.

        Args:
            params: as they came.
            further: whole numbers that the probe or the load requires besides.

        Raises:
            SimulatedFailure: ``bad-request``, as the agent says it.
        """
        kernel = params.get("kernel")
        if kernel not in _BESIDES:
            raise SimulatedFailure("bad-request", f"kernel is {kernel!r}; it is one of {', '.join(_BESIDES)}")
        required = ("threads", "seed", *further, *_BESIDES[kernel])
        for name in required:
            value = params.get(name)
            if not isinstance(value, str) if name in _TEXTS else not (isinstance(value, int) and value >= 0):
                raise SimulatedFailure("bad-request", f"{name} is {value!r}, which kernel {kernel} cannot use")
        return cls(
            kernel=kernel,
            name=work_name(params),
            threads=params["threads"],
            operation=params["operation"] if kernel == DISK else "",
            block_bytes=params["block_bytes"] if "block_bytes" in required else 0,
            period_ns=params["period_ns"] if kernel == WAKE else 0,
            intensity=params["intensity_percent"] / 100 if "intensity_percent" in required else 1.0,
        )
