"""What a nested lab is made of, and where it is on this machine."""

from __future__ import annotations

import dataclasses
import os
import shutil
from pathlib import Path

from virtgauge.errors import UnavailableError
from virtgauge.provision.kernel import GuestKernel, find_kernel
from virtgauge.provision.xen import XenPackages, find_xen

_OF_DOM0 = {"bash": "bash", "ip": "iproute2"}
"""The host's programs that dom0 needs beside Xen's own, and the packages that bring them."""


@dataclasses.dataclass(frozen=True)
class LabParts:
    """All of it.

    Attributes:
        qemu: runs it.
        kernel: of dom0 and of the guests.
        xen: hypervisor and tools.
    """

    qemu: Path
    kernel: GuestKernel
    xen: XenPackages


def find_lab_parts() -> LabParts:
    """Find everything; downloads nothing.

    Raises:
        UnavailableError: with what is missing, and the command that gets it.
    """
    if os.geteuid() != 0:
        raise UnavailableError("the nested Xen lab needs root for its network", "run virtgauge as root (sudo)")
    qemu = shutil.which("qemu-system-x86_64")
    if qemu is None:
        raise UnavailableError("QEMU, in which the Xen lab runs, is not installed", "apt install qemu-system-x86")
    kernel = find_kernel()
    if kernel is None:
        raise UnavailableError("there is no guest kernel in the cache", "virtgauge provision kernel")
    xen = find_xen()
    if xen is None:
        raise UnavailableError("there is no Xen in the cache", "virtgauge provision xen")
    for program, package in _OF_DOM0.items():
        if shutil.which(program) is None:
            raise UnavailableError(f"the Xen lab's dom0 needs {program}", f"apt install {package}")
    return LabParts(Path(qemu), kernel, xen)
