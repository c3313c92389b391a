"""Xen by its own toolstack ``xl``: on this host, or in a nested lab that is brought up for it."""

from virtgauge.platforms.xen.platform import XenPlatform as XenPlatform
