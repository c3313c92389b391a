"""The interface by which the agent of an image calls, beside those that a suite asks for."""

from __future__ import annotations

import hashlib

from virtgauge.platforms.libvirt.domain_xml import Interface
from virtgauge.platforms.libvirt.settings import LibvirtSettings

_PREFIX = "52:54:00"
"""Of guests' interfaces, here as in QEMU."""


def management_interface(settings: LibvirtSettings, model: str) -> Interface | None:
    """The interface on the hypervisor's network that ``management`` names; None where no agent is to call.

    It is the first of a guest, because the agent of an image gives its address to the first one that it finds unless
    its image was built for another.  All guests of a platform have the same hardware address: they are there one
    after the other, and neither a switch nor this machine has to learn a new one for the same IP address.

    Args:
        settings: of the platform.
        model: as the driver calls it.
    """
    if settings.management is None:
        return None
    return Interface(settings.management_mac or _mac(settings), model, network=settings.management)


def _mac(settings: LibvirtSettings) -> str:
    """Of this platform; its fourth byte is 80 or more, which no interface of a suite has."""
    digest = hashlib.sha256(f"{settings.uri}\0{settings.listen}\0{settings.management}".encode()).digest()
    return ":".join([_PREFIX, f"{digest[0] | 0x80:02x}", f"{digest[1]:02x}", f"{digest[2]:02x}"])
