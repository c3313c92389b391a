"""Ways of running code, behind the one interface of :mod:`virtgauge.platforms.base`."""

from __future__ import annotations

import importlib
from typing import Any

from pydantic import BaseModel

from virtgauge.errors import UsageError, nearest
from virtgauge.platforms.base import Platform

KINDS: dict[str, str] = {
    "attached": "virtgauge.platforms.attached.platform:AttachedPlatform",
    "bubblewrap": "virtgauge.platforms.bubblewrap:BubblewrapPlatform",
    "cloud-hypervisor": "virtgauge.platforms.rest_vmm.platform:CloudHypervisorPlatform",
    "firecracker": "virtgauge.platforms.rest_vmm.platform:FirecrackerPlatform",
    "host": "virtgauge.platforms.local:HostPlatform",
    "libvirt": "virtgauge.platforms.libvirt.platform:LibvirtPlatform",
    "oci": "virtgauge.platforms.oci.platform:OciPlatform",
    "qemu": "virtgauge.platforms.qemu.platform:QemuPlatform",
    "simulated": "virtgauge.platforms.simulated.platform:SimulatedPlatform",
    "uml": "virtgauge.platforms.uml:UmlPlatform",
    "xen": "virtgauge.platforms.xen.platform:XenPlatform",
}
"""What ``kind`` may be in a plan, and the class of each as ``module:class``."""


def _class_of(kind: str) -> Any:
    """Imported on first use: a plan without virtual machines needs nothing of QEMU."""
    if kind not in KINDS:
        raise UsageError(f"kind = {kind!r} is no platform{nearest(kind, KINDS)}", f"choose one of: {', '.join(KINDS)}")
    module, _, name = KINDS[kind].partition(":")
    return getattr(importlib.import_module(module), name)


def settings_model(kind: str) -> type[BaseModel]:
    """The model of a kind's settings, for explaining an error in them.  Raises UsageError: there is no such kind."""
    model: type[BaseModel] = _class_of(kind).Settings
    return model


def create(kind: str, settings: dict[str, Any]) -> Platform:
    """A platform from its section of a plan, less ``name`` and ``kind``.
    Raises UsageError: there is no such kind; pydantic.ValidationError: :func:`settings_model` names the right settings.
    """
    cls = _class_of(kind)
    platform: Platform = cls(cls.Settings.model_validate(settings))
    return platform
