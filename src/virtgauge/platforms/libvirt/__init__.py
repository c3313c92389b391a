"""Guests through libvirt: one driver of ours for the hypervisors that it speaks to."""

from virtgauge.platforms.libvirt.platform import LibvirtPlatform
from virtgauge.platforms.libvirt.settings import LibvirtSettings

__all__ = ["LibvirtPlatform", "LibvirtSettings"]
