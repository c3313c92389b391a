"""Xen for a nested lab: the distribution's hypervisor and tools, downloaded and extracted, never installed.

Installing them would put Xen into the machine's boot menu, and its daemons into every boot.
"""

from __future__ import annotations

import dataclasses
import gzip
import os
import re
import shutil
import sys
from pathlib import Path

from virtgauge.errors import UnavailableError
from virtgauge.folders import cache_root
from virtgauge.host.process import output_of
from virtgauge.provision.cache import Facts, ProvisionError, provided, staged, whole_folder
from virtgauge.provision.kernel import GuestKernel, find_kernel
from virtgauge.provision.packages import Apt
from virtgauge.provision.progress import Outcome, Progress, State, silence

META_PACKAGE = "xen-system-amd64"
"""Depends on the current hypervisor and its tools."""

_OWN_LIBRARY = re.compile(r"libxen|libyajl|libfsimage")
_UNUSED = ("etc/default", "etc/init.d", "etc/grub.d", "usr/share", "usr/sbin", "var")
_IMAGE = "xen"


@dataclasses.dataclass(frozen=True)
class XenPackages:
    """An extracted Xen.

    Attributes:
        folder: root of the packages' files.
        version: of Xen, as its folders are named (``4.17``).
        package: package and version it came from, for the record.
        image: the hypervisor, unpacked, as a multiboot loader takes it.
        programs: folders with its programs.
        libraries: folder for ``LD_LIBRARY_PATH``.
    """

    folder: Path
    version: str
    package: str
    image: Path
    programs: tuple[Path, ...]
    libraries: Path


def find_xen() -> XenPackages | None:
    """The Xen in the cache, if its files are there; None when there is none.  Downloads nothing."""
    found = whole_folder("xen")
    return None if found is None else _arranged(found[0], found[1]["version"], found[1]["package"])


def provision_xen(progress: Progress) -> Outcome:
    """Put Xen into the cache: keep the one there if every hash fits, else fetch the distribution's own."""
    return provided("xen", "Xen", "xen", progress, _fetch, "{package}".format_map)


def _fetch(progress: Progress) -> Facts:
    progress("asking for the packages of Xen")
    apt = Apt(progress, "xen")
    hypervisor, tools = _current(apt)
    facts = {"package": f"{hypervisor} {apt.version(hypervisor)}", "version": _version(hypervisor)}
    final = cache_root() / "xen" / facts["package"].replace(" ", "_").replace("/", "_")
    with staged(final, facts) as folder:
        for name in (hypervisor, tools, "xen-utils-common", "xenstore-utils", *_libraries(apt, tools)):
            apt.extract(name, folder, facts)
        _unpack_image(folder)
        for unused in _UNUSED:
            shutil.rmtree(folder / unused, ignore_errors=True)
    return facts


def _current(apt: Apt) -> tuple[str, str]:
    """The packages of the hypervisor and of its tools."""
    depends = apt.dependencies(META_PACKAGE)
    hypervisors = [name for name in depends if re.fullmatch(r"xen-hypervisor-\d+\.\d+-amd64", name)]
    if len(hypervisors) != 1:
        raise ProvisionError(
            f"{META_PACKAGE} names {len(hypervisors)} hypervisors instead of one", "try apt-get update"
        )
    return hypervisors[0], f"xen-utils-{_version(hypervisors[0])}"


def _version(hypervisor: str) -> str:
    return hypervisor.split("-")[2]


def _libraries(apt: Apt, tools: str) -> list[str]:
    """Xen's own libraries and the few that no other package needs; those of the machine stay its own."""
    found: list[str] = []
    pending = [tools]
    while pending:
        for name in apt.dependencies(pending.pop()):
            if _OWN_LIBRARY.match(name) and name not in found:
                found.append(name)
                pending.append(name)
    return found


def _unpack_image(folder: Path) -> None:
    images = [path for path in (folder / "boot").glob("xen-*.gz") if not path.is_symlink()]
    if len(images) != 1:
        raise ProvisionError(
            f"the hypervisor's package holds {len(images)} images instead of one",
            "report this with the name of the distribution",
        )
    (folder / _IMAGE).write_bytes(gzip.decompress(images[0].read_bytes()))
    shutil.rmtree(folder / "boot")


def _arranged(folder: Path, version: str, package: str) -> XenPackages:
    triplet = (output_of(["dpkg-architecture", "-qDEB_HOST_MULTIARCH"]) or f"{os.uname().machine}-linux-gnu").strip()
    return XenPackages(
        folder=folder,
        version=version,
        package=package,
        image=folder / _IMAGE,
        programs=(folder / f"usr/lib/xen-{version}/bin", folder / "usr/bin"),
        libraries=folder / "usr/lib" / triplet,
    )


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
        raise UnavailableError("there is no Xen in the cache", "make xen-lab")
    for program, package in _OF_DOM0.items():
        if shutil.which(program) is None:
            raise UnavailableError(f"the Xen lab's dom0 needs {program}", f"apt install {package}")
    return LabParts(Path(qemu), kernel, xen)


if __name__ == "__main__":
    made = provision_xen(silence)
    print(f"{made.step}: {made.detail}" + (f" ({made.fix})" if made.fix else ""))
    sys.exit(made.state is State.SKIPPED)
