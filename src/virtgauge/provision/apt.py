"""Debian's package tools: asking, downloading and installing, with a refresh of the lists only when one is needed."""

from __future__ import annotations

import os
import re
import shutil
import threading
from pathlib import Path

from virtgauge.provision.cache import ProvisionError, cache_root
from virtgauge.provision.progress import Progress
from virtgauge.provision.tools import ToolError, output_of, run_logged, start_log

_SERVICE_STARTERS = ("invoke-rc.d", "deb-systemd-invoke")
"""What the packages' scripts start services by; they look for them on the path that apt gives to dpkg."""

_DPKG_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_QUIET = {"DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_SUSPEND": "1"}

_refreshing = threading.Lock()
"""apt-get refuses to refresh the lists twice at the same time."""


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

        Raises:
            ProvisionError: the package is in no list.
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

        Raises:
            ProvisionError: it could not be had, even with fresh lists.
        """
        self._progress.activity(f"downloading {package}")
        self._with_fresh_lists("download", package, folder=folder)
        found = list(folder.glob(f"{package}_*.deb"))
        if len(found) != 1:
            raise ProvisionError(f"apt-get download {package} left {len(found)} files", "try again")
        return found[0]

    def install(self, packages: list[str], services: tuple[str, ...] = ()) -> None:
        """Install packages without what they merely recommend.  Needs root.

        Args:
            packages: names.
            services: that they would start, and shall not: neither now nor at the next boot.

        Raises:
            ProvisionError: it could not be done, even with fresh lists.
        """
        self._progress.activity(f"installing {' '.join(packages)}")
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
        command = ["apt-get", *self._options, *arguments]
        whole = "install" in arguments  # a package manager that is killed leaves the machine half configured
        run_logged(command, log=self._log, environment=_QUIET, folder=folder, may_be_ended=not whole)

    def _update(self) -> None:
        self._progress.activity("refreshing the package lists")
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
