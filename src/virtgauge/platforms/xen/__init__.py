"""Xen by its own toolstack ``xl``, on this machine as a Xen host."""

from virtgauge.platforms.xen.platform import XenPlatform as XenPlatform
