"""What an interface leaves to hardware, or joins and splits on the way, as ethtool(8) switches it."""

from __future__ import annotations

import array
import enum
import fcntl
import socket
import struct
from collections.abc import Iterable

_SIOCETHTOOL = 0x8946


class Offload(enum.IntEnum):
    """Features by the command that sets each (``linux/ethtool.h``)."""

    TRANSMIT_CHECKSUM = 0x17
    TCP_SEGMENTATION = 0x1F
    GENERIC_SEGMENTATION = 0x24
    GENERIC_RECEIVE = 0x2C


# segmentation first, as it needs the checksums
_ALL = (Offload.TCP_SEGMENTATION, Offload.GENERIC_SEGMENTATION, Offload.GENERIC_RECEIVE, Offload.TRANSMIT_CHECKSUM)


def switch(interface: str, offload: Offload, on: bool) -> None:
    """Switch one feature of an interface of the calling thread's namespace.

    Raises:
        OSError: there is no such interface, or it cannot.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        value = array.array("I", [offload, on])
        request = struct.pack("16sP16x", interface.encode(), value.buffer_info()[0])
        fcntl.ioctl(control, _SIOCETHTOOL, request)


def disable_all(interfaces: Iterable[str]) -> None:
    """Make every frame of these interfaces a frame, complete with its checksum.

    Raises:
        OSError: there is no such interface.
    """
    for interface in interfaces:
        for offload in _ALL:
            switch(interface, offload, False)
