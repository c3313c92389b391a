"""The distribution's packages that virtgauge uses, by what needs them."""

from __future__ import annotations

import dataclasses
import enum
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from virtgauge.provision.apt import Apt, is_root
from virtgauge.provision.cache import ProvisionError, exclusive
from virtgauge.provision.java import find_java
from virtgauge.provision.postgresql import find_postgresql
from virtgauge.provision.progress import Outcome, Progress, State
from virtgauge.provision.tools import output_of


class Purpose(enum.StrEnum):
    """What a package is wanted for."""

    GUESTS = "guests"  # to launch containers and virtual machines
    BUILDING = "building"  # to compile the agent from source
    DATABASES = "databases"  # to store sensor data on real servers
    BROWSER = "browser"  # to test the report in a real browser
    TESTING = "testing"  # to run real programs under the shim in tests
    LABS = "labs"  # to test hypervisors that run nested in a virtual machine, and what else takes long or is rare
    LIBVIRT = "libvirt"  # to launch guests through libvirt, by the optional extra of that name


@dataclasses.dataclass(frozen=True)
class Need:
    """Something that must be on the machine.

    Attributes:
        name: for people.
        purpose: what wants it.
        present: looks for the thing itself, not for the package: it may have come another way.
        packages: Debian's packages that bring it.
        services: what these would start, and shall not.
    """

    name: str
    purpose: Purpose
    present: Callable[[], bool]
    packages: tuple[str, ...]
    services: tuple[str, ...] = ()


_LIBRARIES = Path("/usr/lib")
_LIBVIRT_SCHEMA = Path("/usr/share/libvirt/schemas/domain.rng")

SYSTEM_FOLDERS = "/usr/local/sbin:/usr/sbin:/sbin"
"""Debian installs runc there, and an ordinary user's PATH does not name it."""


def _on_path(*programs: str) -> Callable[[], bool]:
    return lambda: any(shutil.which(name) or shutil.which(name, path=SYSTEM_FOLDERS) for name in programs)


def _links_statically() -> bool:
    """Whether the C tool chain can make a static executable, as the agent is one."""
    found = output_of(["cc", "-print-file-name=libc.a"])
    return found is not None and found.strip().startswith("/")  # a bare name comes back when there is none


def _has_libvirt_headers() -> bool:
    return output_of(["pkg-config", "--modversion", "libvirt"]) is not None


def _has_libvirt_driver(name: str) -> Callable[[], bool]:
    return lambda: any(_LIBRARIES.glob(f"*/libvirt/connection-driver/libvirt_driver_{name}.so"))


NEEDS = (
    Need("QEMU", Purpose.GUESTS, _on_path("qemu-system-x86_64"), ("qemu-system-x86",)),
    Need("User Mode Linux", Purpose.GUESTS, _on_path("linux.uml"), ("user-mode-linux",)),
    Need("qemu-img", Purpose.GUESTS, _on_path("qemu-img"), ("qemu-utils",)),
    Need("runc", Purpose.GUESTS, _on_path("runc"), ("runc",)),
    Need(
        "Open vSwitch",
        Purpose.GUESTS,
        _on_path("ovs-vswitchd"),
        ("openvswitch-switch",),
        services=("openvswitch-switch.service",),  # labs start their own
    ),
    Need(
        "PostgreSQL",
        Purpose.DATABASES,
        lambda: find_postgresql() is not None,
        ("postgresql",),
        services=("postgresql.service",),  # benches start their own
    ),
    Need("Java 17", Purpose.DATABASES, lambda: find_java() is not None, ("openjdk-17-jre-headless",)),
    Need("Maven", Purpose.DATABASES, _on_path("mvn"), ("maven",)),
    Need("a C linker", Purpose.BUILDING, _links_statically, ("gcc", "libc6-dev")),
    Need("a C++ compiler", Purpose.TESTING, _on_path("c++"), ("g++",)),
    Need("iperf3", Purpose.TESTING, _on_path("iperf3"), ("iperf3",)),
    Need(
        "OpenSSH's server",
        Purpose.TESTING,
        _on_path("sshd"),
        ("openssh-server",),
        services=("ssh.service", "ssh.socket"),  # tests start their own, on loopback
    ),
    Need("libvirt's schemas", Purpose.TESTING, _LIBVIRT_SCHEMA.is_file, ("libvirt0",)),
    Need("QEMU's user mode", Purpose.TESTING, _on_path("qemu-x86_64"), ("qemu-user",)),
    Need("the C shell", Purpose.LABS, _on_path("tcsh"), ("tcsh",)),
    Need("fish", Purpose.LABS, _on_path("fish"), ("fish",)),
    Need("libvirt's headers", Purpose.LIBVIRT, _has_libvirt_headers, ("gcc", "libc6-dev", "pkg-config", "libvirt-dev")),
    # The daemons only: what starts them with the machine is in libvirt-daemon-system.
    Need("libvirt's daemon", Purpose.LIBVIRT, _on_path("libvirtd"), ("libvirt-daemon",)),
    Need("libvirt's QEMU driver", Purpose.LIBVIRT, _has_libvirt_driver("qemu"), ("libvirt-daemon-driver-qemu",)),
    Need("libvirt's LXC driver", Purpose.LIBVIRT, _has_libvirt_driver("lxc"), ("libvirt-daemon-driver-lxc",)),
    Need("UEFI firmware", Purpose.TESTING, Path("/usr/share/OVMF").is_dir, ("ovmf",)),
    Need("Chromium", Purpose.BROWSER, _on_path("chromium", "chromium-browser"), ("chromium",)),
)


def missing(purposes: Iterable[Purpose]) -> list[Need]:
    """What these purposes need and the machine lacks."""
    wanted = set(purposes)
    return [need for need in NEEDS if need.purpose in wanted and not need.present()]


def install_command(needs: Iterable[Need]) -> str:
    """The command that a person without root would ask an administrator to type."""
    packages = " ".join(package for need in needs for package in need.packages)
    return f"sudo apt-get install --no-install-recommends {packages}"


def provision_packages(progress: Progress, purposes: Iterable[Purpose]) -> list[Outcome]:
    """Install what is missing where root allows; one outcome in all when nothing was, else one per need."""
    purposes = tuple(purposes)
    lacking = missing(purposes)
    if not lacking:
        names = ", ".join(need.name for need in NEEDS if need.purpose in purposes)
        return [Outcome("packages", State.OK, names)]
    names = ", ".join(need.name for need in lacking)
    if not is_root():
        return [Outcome("packages", State.SKIPPED, f"not root, and missing: {names}", install_command(lacking))]
    with exclusive("packages", progress):
        try:
            apt = Apt(progress, "packages")
        except ProvisionError as error:
            return [Outcome("packages", State.SKIPPED, f"{error.message}; missing: {names}", error.remedy)]
        # One at a time: a package that this distribution lacks shall not keep the others away.
        return [_install(apt, need) for need in lacking]


def _install(apt: Apt, need: Need) -> Outcome:
    try:
        if not need.present():  # another set-up may have held the lock to install it
            apt.install(list(need.packages), need.services)
    except ProvisionError as error:
        return Outcome("packages", State.SKIPPED, f"{need.name}: {error.message}", error.remedy)
    if not need.present():
        packages = ", ".join(need.packages)
        return Outcome("packages", State.SKIPPED, f"{need.name}: installed {packages}, but it is still not found")
    return Outcome("packages", State.MADE, need.name)
