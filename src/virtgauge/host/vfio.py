"""A PCI device of this machine that a guest takes: bound to vfio-pci for that, and given back even after a kill -9.

Sources: Documentation/driver-api/vfio.rst and Documentation/ABI/testing/sysfs-bus-pci of Linux.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from virtgauge.errors import UnavailableError
from virtgauge.host.kernel_value import undone
from virtgauge.host.rights import AS_ROOT

PCI = Path("sys/bus/pci")
DRIVER = "vfio-pci"
_RECORD = "vfio-{}.json"  # In a scope's folder: what a device was bound to
_IFF_UP = 1


def driver_of(device: Path) -> str | None:
    """What a device is bound to; None for nothing."""
    return (device / "driver").resolve().name if (device / "driver").exists() else None


def is_vfio(driver: str | None) -> bool:
    """Whether it is vfio-pci, or one of its variants for a device of their own (``mlx5_vfio_pci``)."""
    return driver is not None and driver.replace("_", "-").endswith(DRIVER)


def used_by_host(device: Path) -> str | None:
    """What this machine would lose with a device: a disk, or an interface that is up; None where neither is known."""
    for folder, below, _ in os.walk(device):
        if {"block", "nvme"} & set(below):
            return "a disk"
        for name in below if folder.endswith("/net") else ():
            if int(Path(folder, name, "flags").read_text(), 16) & _IFF_UP:
                return f"the interface {name}, which is up"
    return None


def hold_device(address: str, scope_folder: Path, root: Path = Path("/")) -> Callable[[], object]:
    """Bind a device to vfio-pci; returns what gives it back.  One that has such a driver keeps it.
    Raises UnavailableError: it cannot be bound; it is as it was.
    """
    device, record = root / PCI / "devices" / address, scope_folder / _RECORD.format(address)
    if is_vfio(before := driver_of(device)):
        return lambda: None
    error: object = "it is not"
    try:
        override = (device / "driver_override").read_text().strip()
        told = {"device": str(device), "driver": before, "override": "" if override == "(null)" else override}
        record.write_text(json.dumps(told))
        _rebind(device, DRIVER)
    except OSError as failed:
        error = failed.strerror
    if driver_of(device) != DRIVER:
        undone([record], _bind_before)
        raise UnavailableError(f"{address} cannot be bound to {DRIVER}: {error}", f"modprobe {DRIVER}, and {AS_ROOT}")
    return functools.partial(undone, [record], _bind_before)


def give_devices_back(scope_folder: Path) -> list[str]:
    """Give back what a scope has bound, unless somebody has bound it otherwise since; a line for people each."""
    return undone(sorted(scope_folder.glob(_RECORD.format("*"))), _bind_before)


def _bind_before(told: Any) -> str | None:
    device, before = Path(told["device"]), told["driver"]
    if driver_of(device) not in (DRIVER, None):
        return None
    _rebind(device, told["override"], probe=before is not None)
    if before is not None and driver_of(device) != before:  # it had been bound by hand
        _write(device.parent.parent / "drivers" / before / "bind", device.name)
    return f"gave the PCI device {device.name} back to {before or 'no driver'}"


def _rebind(device: Path, override: str, *, probe: bool = True) -> None:
    """Have the kernel look for a driver anew, of that name only where one is given."""
    _write(device / "driver_override", f"{override}\n")
    if driver_of(device) is not None:
        _write(device / "driver" / "unbind", device.name)
    if probe:
        _write(device.parent.parent / "drivers_probe", device.name)


def _write(file: Path, text: str) -> None:
    file.write_text(text)
