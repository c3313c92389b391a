"""Counters of a namespace's interfaces that can be read often: one open file, and no system call but a read."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from virtgauge.network.namespace import Namespace
from virtgauge.network.nic import NetworkError

_MOST_BYTES = 65536
_HEADER_LINES = 2


@dataclasses.dataclass(frozen=True)
class DeviceCount:
    """What an interface has taken (``rx``) and sent (``tx``) since it was made; bytes with Ethernet headers."""

    rx_bytes: int
    rx_frames: int
    tx_bytes: int
    tx_frames: int


class DeviceCounters:
    """``/proc/net/dev`` of a namespace.

    The open file keeps the namespace alive: close it with whatever made the namespace.
    """

    def __init__(self, namespace: Namespace) -> None:
        """Open it.

        Raises:
            NetworkError: the namespace is gone, or there is no procfs.
        """
        path = Path("/proc/thread-self/net/dev")
        try:
            self._descriptor: int | None = namespace.run(lambda: os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            raise NetworkError(f"the counters of {namespace.name} cannot be read: {error}") from error

    def read(self, interface: str) -> DeviceCount:
        """An interface's counters now.

        Raises:
            NetworkError: there is no such interface (any more).
        """
        if self._descriptor is None:
            raise NetworkError(f"the counters of {interface} are closed")
        text = os.pread(self._descriptor, _MOST_BYTES, 0).decode()
        for line in text.splitlines()[_HEADER_LINES:]:
            name, _, figures = line.partition(":")
            if name.strip() == interface:
                # bytes packets errs drop fifo frame compressed multicast, first received, then sent
                fields = [int(figure) for figure in figures.split()]
                return DeviceCount(fields[0], fields[1], fields[8], fields[9])
        raise NetworkError(f"there is no interface {interface} to be counted")

    def close(self) -> None:
        """Let the namespace go.  Idempotent."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)
