"""nfs-ganesha, an NFS server in user space: the distribution's own, downloaded and extracted, never installed.

Installing it would start an NFS server and a port mapper on the machine, now and at every boot.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
from pathlib import Path

from virtgauge.folders import cache_root
from virtgauge.host.process import output_of, ran
from virtgauge.provision.cache import Facts, ProvisionError, provided, staged, whole_folder
from virtgauge.provision.packages import Apt
from virtgauge.provision.progress import Outcome, Progress

_PACKAGES = ("nfs-ganesha", "nfs-ganesha-vfs", "nfs-ganesha-mem")
_C_LIBRARIES = ("libc6", "libgcc-s1", "libstdc++6")
"""These come from the machine, like the loader: another C library than the loader's does not start."""


@dataclasses.dataclass(frozen=True)
class Ganesha:
    """An extracted server."""

    folder: Path  # everything of it is in there
    version: str  # of the package, without the distribution's revision (``4.3``)
    program: Path
    libraries: tuple[Path, ...]  # folders for ``LD_LIBRARY_PATH``
    plugins: Path  # folder of its filesystems (``Plugins_Dir``)


def find_ganesha() -> Ganesha | None:
    """The server in the cache, if its files are there; None when there is none.  Downloads nothing."""
    found = whole_folder("ganesha")
    return None if found is None else _arranged(found[0], found[1]["version"])


def provision_ganesha(progress: Progress) -> Outcome:
    """Put the server into the cache: keep the one there if every hash fits, else fetch the distribution's own."""
    named = "nfs-ganesha {version}".format_map
    return provided("ganesha", "nfs-ganesha", "ganesha", progress, _fetch, named)


def _fetch(progress: Progress) -> Facts:
    progress("asking for the nfs-ganesha package")
    apt = Apt(progress, "ganesha")
    libraries = [name for name in apt.dependencies(_PACKAGES[0]) if name.startswith("lib")]
    version = apt.version(_PACKAGES[0])
    facts = {"package": f"{_PACKAGES[0]} {version}", "version": re.sub(r"^\d+:|-[^-]*$", "", version)}
    with staged(cache_root() / "ganesha" / version.replace("/", "_"), facts) as folder:
        for name in (*_PACKAGES, *(name for name in libraries if name not in _C_LIBRARIES)):
            apt.extract(name, folder, facts)
        for unused in ("etc", "usr/share", "lib/systemd"):
            shutil.rmtree(folder / unused, ignore_errors=True)
        _check(_arranged(folder, facts["version"]))
    return facts


def _arranged(folder: Path, version: str) -> Ganesha:
    triplet = (output_of(["dpkg-architecture", "-qDEB_HOST_MULTIARCH"]) or f"{os.uname().machine}-linux-gnu").strip()
    return Ganesha(
        folder=folder,
        version=version,
        program=folder / "usr/bin/ganesha.nfsd",
        libraries=tuple(folder / place for place in (f"usr/lib/{triplet}", "usr/lib/ganesha", f"lib/{triplet}")),
        plugins=folder / f"usr/lib/{triplet}/ganesha",
    )


def _check(ganesha: Ganesha) -> None:
    """Raises ProvisionError where the server does not start on this machine."""
    environment = {"LD_LIBRARY_PATH": ":".join(map(str, ganesha.libraries))}
    try:
        done = ran([ganesha.program, "-v"], timeout_s=20, env=environment)
        complaint = "" if done.returncode == 0 else done.stderr.strip()[-300:] or f"status {done.returncode}"
    except (OSError, subprocess.TimeoutExpired) as error:
        complaint = str(error)
    if complaint:
        raise ProvisionError(f"the nfs-ganesha that was extracted does not start here: {complaint}")
