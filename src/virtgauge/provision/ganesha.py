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

from virtgauge.provision.cache import ProvisionError, cache_root, damage, exclusive, read_manifest, sha256_of, staged
from virtgauge.provision.packages import Apt
from virtgauge.provision.progress import Outcome, Progress, State
from virtgauge.provision.tools import output_of, run_logged, start_log

_PACKAGES = ("nfs-ganesha", "nfs-ganesha-vfs", "nfs-ganesha-mem")
_C_LIBRARIES = ("libc6", "libgcc-s1", "libstdc++6")
"""These come from the machine, like the loader: another C library than the loader's does not start."""


@dataclasses.dataclass(frozen=True)
class Ganesha:
    """An extracted server.

    Attributes:
        folder: everything of it is in there.
        version: of the package, without the distribution's revision (``4.3``).
        program: the server.
        libraries: folders for ``LD_LIBRARY_PATH``.
        plugins: folder of its filesystems (``Plugins_Dir``).
    """

    folder: Path
    version: str
    program: Path
    libraries: tuple[Path, ...]
    plugins: Path


def find_ganesha() -> Ganesha | None:
    """The server in the cache, if its files are there; None when there is none.  Downloads nothing."""
    for folder in _folders():
        manifest = read_manifest(folder)
        if manifest is not None and damage(folder, thorough=False) is None:
            return _arranged(folder, manifest.facts["version"])
    return None


def provision_ganesha(progress: Progress) -> Outcome:
    """Put the server into the cache: keep the one there if every hash fits, else fetch the distribution's own."""
    try:
        with exclusive("ganesha", progress):
            progress.activity("checking nfs-ganesha in the cache")
            for folder in _folders():
                if damage(folder, thorough=True) is not None:
                    shutil.rmtree(folder)
            present = find_ganesha()
            if present:
                return Outcome("ganesha", State.OK, f"nfs-ganesha {present.version}")
            _fetch(progress)
    except ProvisionError as error:
        return Outcome("ganesha", State.SKIPPED, error.message, error.remedy)
    made = find_ganesha()
    assert made is not None
    return Outcome("ganesha", State.MADE, f"nfs-ganesha {made.version}")


def _folders() -> list[Path]:
    """Folders of servers in the cache, the latest made first."""
    folders = [path for path in (cache_root() / "ganesha").glob("[!.]*") if path.is_dir()]
    return sorted(folders, key=lambda path: path.stat().st_mtime, reverse=True)


def _fetch(progress: Progress) -> None:
    start_log("ganesha")
    progress.activity("asking for the nfs-ganesha package")
    apt = Apt(progress, "ganesha")
    libraries = [name for name in apt.dependencies(_PACKAGES[0]) if name.startswith("lib")]
    version = apt.version(_PACKAGES[0])
    facts = {"package": f"{_PACKAGES[0]} {version}", "version": re.sub(r"^\d+:|-[^-]*$", "", version)}
    final = cache_root() / "ganesha" / version.replace("/", "_")
    with staged(final, facts) as folder:
        for name in (*_PACKAGES, *(name for name in libraries if name not in _C_LIBRARIES)):
            archive = apt.download(name, folder)
            facts[f"sha256 of {archive.name}"] = sha256_of(archive)
            run_logged(["dpkg-deb", "-x", archive, folder], log="ganesha")
            archive.unlink()
        for unused in ("etc", "usr/share", "lib/systemd"):
            shutil.rmtree(folder / unused, ignore_errors=True)
        _check(_arranged(folder, facts["version"]))


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
        done = subprocess.run(
            [ganesha.program, "-v"], capture_output=True, text=True, env=environment, timeout=20, check=False
        )
        complaint = "" if done.returncode == 0 else done.stderr.strip()[-300:] or f"status {done.returncode}"
    except (OSError, subprocess.TimeoutExpired) as error:
        complaint = str(error)
    if complaint:
        raise ProvisionError(f"the nfs-ganesha that was extracted does not start here: {complaint}")
