"""What the distribution installs: packages, and where PostgreSQL and Java are then found."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from virtgauge.folders import cache_root
from virtgauge.host.process import find_program, output_of, text_of
from virtgauge.provision.cache import ProvisionError, exclusive, sha256_of
from virtgauge.provision.progress import Outcome, Progress, State
from virtgauge.provision.tools import ToolError, run_logged, start_log

_SERVICE_STARTERS = ("invoke-rc.d", "deb-systemd-invoke")
"""What the packages' scripts start services by; they look for them on the path that apt gives to dpkg."""

_DPKG_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_QUIET = {"DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_SUSPEND": "1"}

SIGNED_ONLY = (
    *("-o", "APT::Get::AllowUnauthenticated=false"),
    *("-o", "Acquire::AllowInsecureRepositories=false"),
    *("-o", "Acquire::AllowDowngradeToInsecureRepositories=false"),
    *("-o", "Acquire::AllowWeakRepositories=false"),
)
"""apt's own defaults, given with every call because a machine's apt.conf may have lifted them."""

_refreshing = threading.Lock()  # apt-get refuses to refresh the lists twice at the same time


def is_root() -> bool:
    """Whether packages may be installed."""
    return os.geteuid() == 0


class Apt:
    """The package tools of one set-up step.

    Without root the lists can be refreshed too, into the user's cache: downloading needs no privilege, only installing
    does.
    """

    def __init__(self, progress: Progress, log: str) -> None:
        """Raises ProvisionError on a machine without apt."""
        if shutil.which("apt-get") is None:
            raise ProvisionError("this machine has no apt-get", "use Debian or Ubuntu, or set it up by hand")
        start_log(log)
        self._progress = progress
        self._log = log
        self._updated = False
        self._private = cache_root() / "apt"
        self._options: list[str] = []
        if not is_root() and (self._private / "lists" / "partial").is_dir():
            self._use_private_lists()

    def dependencies(self, package: str) -> list[str]:
        """Names that a package depends on (of alternatives, all), refreshing the lists when it is unknown.
        Raises ProvisionError: the package is in no list.
        """
        names = self._depends(package)
        if not names and not self._updated:
            self._update()
            names = self._depends(package)
        if names:
            return names
        raise ProvisionError(f"no package list knows {package}", "check /etc/apt/sources.list")

    def version(self, package: str) -> str:
        """The version that a download would get; ``unknown`` when apt does not say."""
        text = output_of(["apt-cache", *self._options, "policy", package]) or ""
        found = re.search(r"^ *Candidate: *(\S+)", text, re.MULTILINE)
        return found[1] if found else "unknown"

    def download(self, package: str, folder: Path) -> Path:
        """Download a package (its hash is checked by apt against the signed lists); returns the file.
        Raises ProvisionError: it could not be had, even with fresh lists.
        """
        self._progress(f"downloading {package}")
        self._with_fresh_lists("download", package, folder=folder)
        found = list(folder.glob(f"{package}_*.deb"))
        if len(found) != 1:
            raise ProvisionError(f"apt-get download {package} left {len(found)} files", "try again")
        return found[0]

    def extract(self, package: str, into: Path, facts: dict[str, str]) -> None:
        """Download a package and unpack it; its hash is added to the facts.
        Raises ProvisionError: it could not be had.
        """
        into.mkdir(exist_ok=True)
        archive = self.download(package, into)
        facts[f"sha256 of {archive.name}"] = sha256_of(archive)
        self._progress(f"extracting {package}")
        run_logged(["dpkg-deb", "-x", archive, into], log=self._log)
        archive.unlink()

    def install(self, packages: list[str], services: tuple[str, ...] = ()) -> None:
        """Install packages without what they merely recommend.  Needs root.

        The services that they would start do not, neither now nor at the next boot.
        Raises ProvisionError: it could not be done, even with fresh lists.
        """
        self._progress(f"installing {' '.join(packages)}")
        options = ["-o", "DPkg::Lock::Timeout=300"]
        if services:
            options += ["-o", f"DPkg::Path={_without_starters()}:{_DPKG_PATH}"]
        self._with_fresh_lists(*options, "install", "-y", "--no-install-recommends", *packages)
        if services:
            output_of(["systemctl", "disable", *services])  # a machine without systemd does not start them

    def _depends(self, package: str) -> list[str]:
        text = output_of(["apt-cache", *self._options, "depends", package]) or ""
        return re.findall(r"^ *\|?Depends: *([^<>\s]+)", text, re.MULTILINE)

    def _with_fresh_lists(self, *arguments: str, folder: Path | None = None) -> None:
        """Run apt-get; when it fails (unknown package, superseded version), once more after a refresh of the lists."""
        try:
            self._apt_get(*arguments, folder=folder)
        except ToolError:
            if self._updated:
                raise
            self._update()
            self._apt_get(*arguments, folder=folder)

    def _apt_get(self, *arguments: str, folder: Path | None = None) -> None:
        command = ["apt-get", *SIGNED_ONLY, *self._options, *arguments]
        whole = "install" in arguments  # a package manager that is killed leaves the machine half configured
        run_logged(command, log=self._log, environment=_QUIET, folder=folder, may_be_ended=not whole)

    def _update(self) -> None:
        self._progress("refreshing the package lists")
        if not is_root():
            self._use_private_lists()
        self._updated = True
        waited = not _refreshing.acquire(blocking=False)
        if waited:  # another step of this set-up refreshes them now
            _refreshing.acquire()
        try:
            if not waited:
                self._apt_get("update")
        finally:
            _refreshing.release()

    def _use_private_lists(self) -> None:
        for name in ("lists/partial", "cache/archives/partial"):
            (self._private / name).mkdir(parents=True, exist_ok=True)
        lists, cache = self._private / "lists", self._private / "cache"
        self._options = ["-o", f"Dir::State::Lists={lists}", "-o", f"Dir::Cache={cache}"]


def _without_starters() -> Path:
    """A folder whose programs do nothing in place of those that start services.

    The machine's own policy for services (policy-rc.d) would stay changed if the set-up were killed.
    """
    folder = cache_root() / "apt" / "no-services"
    folder.mkdir(parents=True, exist_ok=True)
    for name in _SERVICE_STARTERS:
        program = folder / name
        program.write_text("#!/bin/sh\nexit 0\n")
        program.chmod(0o755)
    return folder


VERSIONS = Path("/usr/lib/postgresql")  # Debian keeps one folder below it for each major version


def find_postgresql() -> Path | None:
    """The folder of ``postgres`` and ``initdb``, the newest version's first; None when there is none."""
    folders = [path.parent for path in VERSIONS.glob("*/bin/initdb")]
    folders.sort(key=lambda path: [int(part) for part in re.findall(r"\d+", path.parent.name)], reverse=True)
    on_path = shutil.which("initdb")
    if on_path:
        folders.append(Path(on_path).resolve().parent)
    return next((folder for folder in folders if (folder / "postgres").exists()), None)


JAVA_VERSION = 17  # The newest that Cassandra 5.0 runs on; QuestDB 9 needs it at least
VIRTUAL_MACHINES = Path("/usr/lib/jvm")  # Where distributions install them, side by side


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
    found = re.search(r'^JAVA_VERSION="(\d+)', text_of(release) or "", re.MULTILINE)
    return int(found[1]) if found else None


_STEP = "packages"


@dataclasses.dataclass(frozen=True)
class Need:
    """Something that must be on the machine."""

    title: str
    present: Callable[[], bool]  # looks for the thing itself, not for the package: it may have come another way
    packages: tuple[str, ...]  # Debian's packages that bring it
    services: tuple[str, ...] = ()  # what these would start, and shall not: labs, testbeds and tests start their own


_LIBRARIES = Path("/usr/lib")
_LIBVIRT_SCHEMA = Path("/usr/share/libvirt/schemas/domain.rng")


def _on_path(*programs: str) -> Callable[[], bool]:
    return lambda: any(map(find_program, programs))


def _links_statically() -> bool:
    found = output_of(["cc", "-print-file-name=libc.a"])
    return found is not None and found.strip().startswith("/")  # a bare name comes back when there is none


def _has_libvirt_driver(name: str) -> Callable[[], bool]:
    return lambda: any(_LIBRARIES.glob(f"*/libvirt/connection-driver/libvirt_driver_{name}.so"))


NEEDS = {
    "qemu": Need("QEMU", _on_path("qemu-system-x86_64"), ("qemu-system-x86",)),
    "uml": Need("User Mode Linux", _on_path("linux.uml"), ("user-mode-linux",)),
    "qemu-img": Need("qemu-img", _on_path("qemu-img"), ("qemu-utils",)),
    "runc": Need("runc", _on_path("runc"), ("runc",)),
    "bubblewrap": Need("Bubblewrap", _on_path("bwrap"), ("bubblewrap",)),
    "crun": Need("crun", _on_path("crun"), ("crun",)),
    "openvswitch": Need(
        "Open vSwitch", _on_path("ovs-vswitchd"), ("openvswitch-switch",), ("openvswitch-switch.service",)
    ),
    "postgresql": Need("PostgreSQL", lambda: find_postgresql() is not None, ("postgresql",), ("postgresql.service",)),
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
    "sshd": Need("OpenSSH's server", _on_path("sshd"), ("openssh-server",), ("ssh.service", "ssh.socket")),
    "libvirt-schemas": Need("libvirt's schemas", _LIBVIRT_SCHEMA.is_file, ("libvirt0",)),
    "qemu-user": Need("QEMU's user mode", _on_path("qemu-x86_64"), ("qemu-user",)),
    "ovmf": Need("UEFI firmware", Path("/usr/share/OVMF").is_dir, ("ovmf",)),
    "tcsh": Need("the C shell", _on_path("tcsh"), ("tcsh",)),
    "fish": Need("fish", _on_path("fish"), ("fish",)),
    "mmdebstrap": Need("mmdebstrap", _on_path("mmdebstrap"), ("mmdebstrap",)),
    "libvirt-headers": Need(
        "libvirt's headers",
        lambda: output_of(["pkg-config", "--modversion", "libvirt"]) is not None,
        ("gcc", "libc6-dev", "pkg-config", "libvirt-dev"),
    ),
    # The daemons only: what starts them with the machine is in libvirt-daemon-system.
    "libvirtd": Need("libvirt's daemon", _on_path("libvirtd"), ("libvirt-daemon",)),
    "libvirt-qemu": Need("libvirt's QEMU driver", _has_libvirt_driver("qemu"), ("libvirt-daemon-driver-qemu",)),
    "libvirt-lxc": Need("libvirt's LXC driver", _has_libvirt_driver("lxc"), ("libvirt-daemon-driver-lxc",)),
    "chromium": Need("Chromium", _on_path("chromium", "chromium-browser"), ("chromium",)),
}
"""By the part's name."""
OF_DATABASES = ("postgresql", "mariadb", "java", "maven")  # What database servers and their drivers are installed with


def provision_packages(progress: Progress, names: Iterable[str]) -> list[Outcome]:
    """Install what is missing, where root allows: all by one call, or one by one where that fails.

    One outcome where nothing was missing or nothing may be installed, else one for each that was missing.
    """
    needs = [NEEDS[name] for name in names]
    lacking = [need for need in needs if not need.present()]
    if not lacking:
        return [Outcome(_STEP, State.OK, ", ".join(need.title for need in needs))]
    titles = ", ".join(need.title for need in lacking)
    if not is_root():  # what somebody who is would type
        command = f"sudo apt-get install --no-install-recommends {' '.join(_packages(lacking))}"
        return [Outcome(_STEP, State.SKIPPED, f"not root, and missing: {titles}", command)]
    with exclusive(_STEP, progress):
        try:
            apt = Apt(progress, _STEP)
        except ProvisionError as error:
            return [Outcome(_STEP, State.SKIPPED, f"{error.message}; missing: {titles}", error.remedy)]
        lacking = [need for need in lacking if not need.present()]  # another set-up may have held the lock
        return _install(apt, lacking) if lacking else [Outcome(_STEP, State.OK, titles)]


def _packages(needs: Sequence[Need]) -> list[str]:
    return list(dict.fromkeys(package for need in needs for package in need.packages))


def _install(apt: Apt, needs: Sequence[Need]) -> list[Outcome]:
    try:
        apt.install(_packages(needs), tuple(service for need in needs for service in need.services))
    except ProvisionError as error:
        # a package that this distribution lacks shall not keep the others away
        if isinstance(error, ToolError) and len(needs) > 1:
            return [outcome for need in needs for outcome in _install(apt, [need])]
        titles = ", ".join(need.title for need in needs)
        return [Outcome(_STEP, State.SKIPPED, f"{titles}: {error.message}", error.remedy)]
    return [_found(need) for need in needs]


def _found(need: Need) -> Outcome:
    if not need.present():
        packages = ", ".join(need.packages)
        return Outcome(_STEP, State.SKIPPED, f"{need.title}: installed {packages}, but it is still not found")
    return Outcome(_STEP, State.MADE, need.title)
