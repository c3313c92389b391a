"""How the agent of an image is reached: it waits at a serial line, or calls the controller."""

from __future__ import annotations

import abc
import dataclasses
import re
from collections.abc import Mapping

from virtgauge.errors import UsageError

SERIAL_DEVICE = "/dev/ttyS0"
"""The first serial port (COM1), where every hypervisor can put one."""


class ImageChannel(abc.ABC):
    """A way to the agent."""

    @abc.abstractmethod
    def words(self) -> tuple[str, ...]:
        """For the kernel's command line."""

    @abc.abstractmethod
    def files(self) -> Mapping[str, bytes]:
        """For the first root file system, by path without a leading slash."""

    @abc.abstractmethod
    def describe(self) -> dict[str, str]:
        """For the record; no secret is in it."""


@dataclasses.dataclass(frozen=True)
class SerialChannel(ImageChannel):
    """The agent speaks on a serial line, which the hypervisor connects with a socket or a pipe.

    Attributes:
        device: of the guest.

    Raises:
        UsageError: that is no serial line.
    """

    device: str = SERIAL_DEVICE

    def __post_init__(self) -> None:
        if not re.fullmatch(r"/dev/(ttyS\d{1,2}|hvc\d|ttyAMA\d)", self.device):
            raise UsageError(f"{self.device!r} is no serial line of a guest", "such as /dev/ttyS0, or /dev/hvc0 on Xen")

    def words(self) -> tuple[str, ...]:
        return (f"virtgauge.channel=serial:{self.device}",)

    def files(self) -> Mapping[str, bytes]:
        return {}

    def describe(self) -> dict[str, str]:
        return {"kind": "serial", "device": self.device}
