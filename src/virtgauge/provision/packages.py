"""What the distribution installs: packages, and where PostgreSQL and Java are then found."""

from __future__ import annotations

import dataclasses
import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from virtgauge.provision.apt import Apt, is_root
from virtgauge.provision.cache import ProvisionError, exclusive
from virtgauge.provision.progress import Outcome, Progress, State
from virtgauge.provision.tools import ToolError, output_of

# PostgreSQL as the distribution installs it: programs in a folder of their own, by major version.

VERSIONS = Path("/usr/lib/postgresql")
"""Debian keeps one folder below it for each major version."""


def find_postgresql() -> Path | None:
    """The folder of ``postgres`` and ``initdb``, the newest version's first; None when there is none."""
    folders = [path.parent for path in VERSIONS.glob("*/bin/initdb")]
    folders.sort(key=lambda path: [int(part) for part in re.findall(r"\d+", path.parent.name)], reverse=True)
    on_path = shutil.which("initdb")
    if on_path:
        folders.append(Path(on_path).resolve().parent)
    return next((folder for folder in folders if (folder / "postgres").exists()), None)


# The Java that database servers run on: the distribution's, or one on PATH, of the version that they support.

JAVA_VERSION = 17
"""The newest that Cassandra 5.0 runs on; QuestDB 9 needs it at least."""

VIRTUAL_MACHINES = Path("/usr/lib/jvm")
"""Where distributions install them, side by side."""


def find_java() -> Path | None:
    """The program ``java`` of version 17, its links resolved; None when there is none."""
    on_path = shutil.which("java")
    for java in (*([Path(on_path)] if on_path else []), *sorted(VIRTUAL_MACHINES.glob("*/bin/java"))):
        if _version(java) == JAVA_VERSION:
            return java.resolve()
    return None


def _version(java: Path) -> int | None:
    """What the release file beside it says; the program itself would take a tenth of a second."""
    release = java.resolve().parent.parent / "release"
    try:
        found = re.search(r'^JAVA_VERSION="(\d+)', release.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) if found else None


# The distribution's packages that virtgauge uses.

_STEP = "packages"


@dataclasses.dataclass(frozen=True)
class Need:
    """Something that must be on the machine.

    Attributes:
        title: for people.
        present: looks for the thing itself, not for the package: it may have come another way.
        packages: Debian's packages that bring it.
        services: what these would start, and shall not.
    """

    title: str
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


NEEDS = {
    "qemu": Need("QEMU", _on_path("qemu-system-x86_64"), ("qemu-system-x86",)),
    "uml": Need("User Mode Linux", _on_path("linux.uml"), ("user-mode-linux",)),
    "qemu-img": Need("qemu-img", _on_path("qemu-img"), ("qemu-utils",)),
    "runc": Need("runc", _on_path("runc"), ("runc",)),
    "crun": Need("crun", _on_path("crun"), ("crun",)),
    "openvswitch": Need(
        "Open vSwitch",
        _on_path("ovs-vswitchd"),
        ("openvswitch-switch",),
        services=("openvswitch-switch.service",),  # labs start their own
    ),
    "postgresql": Need(
        "PostgreSQL",
        lambda: find_postgresql() is not None,
        ("postgresql",),
        services=("postgresql.service",),  # testbeds start their own
    ),
    "mariadb": Need(
        "MariaDB",
        lambda: _on_path("mariadbd")() and _on_path("my_print_defaults")(),
        ("mariadb-server-core", "mariadb-client-core"),  # without the service
    ),
    "java": Need("Java 17", lambda: find_java() is not None, ("openjdk-17-jre-headless",)),
    "maven": Need("Maven", _on_path("mvn"), ("maven",)),
    "linker": Need("a C linker", _links_statically, ("gcc", "libc6-dev")),
    "c++": Need("a C++ compiler", _on_path("c++"), ("g++",)),
    "iperf3": Need("iperf3", _on_path("iperf3"), ("iperf3",)),
    "sshd": Need(
        "OpenSSH's server",
        _on_path("sshd"),
        ("openssh-server",),
        services=("ssh.service", "ssh.socket"),  # tests start their own, on loopback
    ),
    "libvirt-schemas": Need("libvirt's schemas", _LIBVIRT_SCHEMA.is_file, ("libvirt0",)),
    "qemu-user": Need("QEMU's user mode", _on_path("qemu-x86_64"), ("qemu-user",)),
    "ovmf": Need("UEFI firmware", Path("/usr/share/OVMF").is_dir, ("ovmf",)),
    "tcsh": Need("the C shell", _on_path("tcsh"), ("tcsh",)),
    "fish": Need("fish", _on_path("fish"), ("fish",)),
    "libvirt-headers": Need(
        "libvirt's headers", _has_libvirt_headers, ("gcc", "libc6-dev", "pkg-config", "libvirt-dev")
    ),
    # The daemons only: what starts them with the machine is in libvirt-daemon-system.
    "libvirtd": Need("libvirt's daemon", _on_path("libvirtd"), ("libvirt-daemon",)),
    "libvirt-qemu": Need("libvirt's QEMU driver", _has_libvirt_driver("qemu"), ("libvirt-daemon-driver-qemu",)),
    "libvirt-lxc": Need("libvirt's LXC driver", _has_libvirt_driver("lxc"), ("libvirt-daemon-driver-lxc",)),
    "chromium": Need("Chromium", _on_path("chromium", "chromium-browser"), ("chromium",)),
}
OF_DATABASES = ("postgresql", "mariadb", "java", "maven")
"""What database servers and their drivers are installed with."""
"""By the part's name."""


def install_command(needs: Iterable[Need]) -> str:
    """The command that a person without root would ask an administrator to type."""
    packages = " ".join(dict.fromkeys(package for need in needs for package in need.packages))
    return f"sudo apt-get install --no-install-recommends {packages}"


def provision_packages(progress: Progress, names: Iterable[str]) -> list[Outcome]:
    """Install what is missing, where root allows: all by one call, or one by one where that fails.

    Returns:
        One outcome where nothing was missing or nothing may be installed, else one for each that was missing.
    """
    needs = [NEEDS[name] for name in names]
    lacking = [need for need in needs if not need.present()]
    if not lacking:
        return [Outcome(_STEP, State.OK, ", ".join(need.title for need in needs))]
    titles = ", ".join(need.title for need in lacking)
    if not is_root():
        return [Outcome(_STEP, State.SKIPPED, f"not root, and missing: {titles}", install_command(lacking))]
    with exclusive(_STEP, progress):
        try:
            apt = Apt(progress, _STEP)
        except ProvisionError as error:
            return [Outcome(_STEP, State.SKIPPED, f"{error.message}; missing: {titles}", error.remedy)]
        lacking = [need for need in lacking if not need.present()]  # another set-up may have held the lock
        try:
            _install(apt, lacking)
        except ToolError:  # a package that this distribution lacks shall not keep the others away
            return [_install_one(apt, need) for need in lacking]
        except ProvisionError as error:
            return [Outcome(_STEP, State.SKIPPED, f"{titles}: {error.message}", error.remedy)]
        return [_found(need) for need in lacking] or [Outcome(_STEP, State.OK, titles)]


def _install(apt: Apt, needs: Sequence[Need]) -> None:
    packages = dict.fromkeys(package for need in needs for package in need.packages)
    services = tuple(service for need in needs for service in need.services)
    if packages:
        apt.install([*packages], services)


def _install_one(apt: Apt, need: Need) -> Outcome:
    try:
        _install(apt, [need])
    except ProvisionError as error:
        return Outcome(_STEP, State.SKIPPED, f"{need.title}: {error.message}", error.remedy)
    return _found(need)


def _found(need: Need) -> Outcome:
    if not need.present():
        packages = ", ".join(need.packages)
        return Outcome(_STEP, State.SKIPPED, f"{need.title}: installed {packages}, but it is still not found")
    return Outcome(_STEP, State.MADE, need.title)
