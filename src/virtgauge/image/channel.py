"""How the agent of an image is reached: it waits at a serial line, or calls the controller."""

from __future__ import annotations

import abc
import dataclasses
import hashlib
import ipaddress
import re
import time
from collections.abc import Mapping
from typing import ClassVar

from virtgauge.errors import UsageError

SERIAL_DEVICE = "/dev/ttyS0"
"""The first serial port (COM1), where every hypervisor can put one."""

DEFAULT_PATIENCE_S = 3600
"""Longer than the other platforms of a plan take for their part of a block."""


class ImageChannel(abc.ABC):
    """A way to the agent."""

    secret: ClassVar[bool] = False
    """Whether an image with it is for its owner only."""

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


@dataclasses.dataclass(frozen=True)
class DialChannel(ImageChannel):
    """The agent calls the controller over TLS, with the identity that ``virtgauge attach prepare`` made.

    Attributes:
        controller: IPv4 address and port.
        identity: the file's content; whoever has it can be this guest until it expires.
        address: of the guest, with the length of its network's prefix.
        gateway: where the controller is on another network.
        nic: hardware address of the interface; the first one without it.
        patience_s: the machine powers off when nobody has answered for so long after a guest.

    Raises:
        UsageError: one of them is not what it should be, or the identity has expired.
    """

    controller: str
    identity: bytes = dataclasses.field(repr=False)
    address: str
    gateway: str | None = None
    nic: str | None = None
    patience_s: int = DEFAULT_PATIENCE_S

    secret: ClassVar[bool] = True

    def __post_init__(self) -> None:
        host, _, port = self.controller.rpartition(":")
        if not _is_address(host) or not re.fullmatch(r"[1-9]\d{0,4}", port) or int(port) > 65535:
            raise UsageError(f"--dial: {self.controller!r} is no IPv4 address with a port", "such as 192.0.2.1:7443")
        if not _is_interface(self.address):
            raise UsageError(f"--address: {self.address!r} is no IPv4 address with a prefix", "such as 192.0.2.10/24")
        if self.gateway is not None and not _is_address(self.gateway):
            raise UsageError(f"--gateway: {self.gateway!r} is no IPv4 address", "such as 192.0.2.254")
        if self.nic is not None and not re.fullmatch(r"([0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}", self.nic):
            raise UsageError(f"--nic: {self.nic!r} is no hardware address", "such as 52:54:00:00:00:01")
        if not 10 <= self.patience_s <= 31 * 86_400:
            raise UsageError(f"--patience: {self.patience_s} s is not from 10 s to a month", "such as 3600")
        found = re.match(rb"virtgauge identity 1\nexpires (\d{1,12})\n", self.identity)
        remedy = "`virtgauge attach prepare` makes one: identity.pem"
        if not found:
            raise UsageError("--identity: the file is no identity", remedy)
        if int(found[1]) <= time.time():
            raise UsageError("--identity: it has expired", remedy)

    def words(self) -> tuple[str, ...]:
        optional = (("gateway", self.gateway), ("nic", self.nic))
        return (
            f"virtgauge.channel=dial:{self.controller}",
            f"virtgauge.address={self.address}",
            f"virtgauge.patience={self.patience_s}",
            *(f"virtgauge.{name}={value}" for name, value in optional if value is not None),
        )

    def files(self) -> Mapping[str, bytes]:
        return {"identity.pem": self.identity}

    def describe(self) -> dict[str, str]:
        return {
            "kind": "dial-in",
            "controller": self.controller,
            "address": self.address,
            "identity_sha256": hashlib.sha256(self.identity).hexdigest(),
        }


def _is_address(text: str) -> bool:
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return True


def _is_interface(text: str) -> bool:
    try:
        ipaddress.IPv4Interface(text)
    except ValueError:
        return False
    return "/" in text
