"""QEMU as other releases of Debian package it: downloaded by apt with all that it needs, extracted, never installed."""

from __future__ import annotations

import datetime
import shutil
import subprocess
from pathlib import Path

from virtgauge.folders import cache_root
from virtgauge.provision.packages import SIGNED_ONLY

RELEASES = ("trixie", "sid")
"""After the one of the machine at hand: the stable one, and the newest that packages offer."""

_KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
_WRAPPER = """#!/bin/sh
# The release's own C library, loader and firmware: this machine's are older.
root={root}
exec "$root/usr/lib64/ld-linux-x86-64.so.2" --library-path "$root/usr/lib/x86_64-linux-gnu" \\
    "$root/usr/bin/qemu-system-x86_64" -L "$root/usr/share/qemu" -L "$root/usr/share/seabios" "$@"
"""


def qemu_of(release: str) -> Path:
    """A program ``qemu-system-x86_64`` of that release, kept in the cache for the month.

    Raises:
        subprocess.CalledProcessError: apt or dpkg failed; what they said is in its ``stderr``.
    """
    folder = cache_root() / "qemu-releases" / f"{release}-{datetime.date.today():%Y-%m}"
    program = folder / "bin" / "qemu-system-x86_64"
    if not program.exists():
        for older in folder.parent.glob(f"{release}-*"):
            shutil.rmtree(older)
        _fetch(release, folder)
        program.parent.mkdir()
        program.write_text(_WRAPPER.format(root=folder / "root"))
        program.chmod(0o755)
    return program


def _fetch(release: str, folder: Path) -> None:
    for name in ("lists/partial", "cache/archives/partial", "root"):
        (folder / name).mkdir(parents=True)
    (folder / "status").touch()  # nothing is installed: all that it depends on is wanted
    (folder / "release.sources").write_text(
        f"Types: deb\nURIs: {_mirror()}\nSuites: {release}\nComponents: main\nSigned-By: {_KEYS}\n"
    )
    places = {
        **{"Dir::Etc::SourceList": folder / "release.sources", "Dir::Etc::SourceParts": "/nonexistent"},
        **{"Dir::State::Lists": folder / "lists", "Dir::State::status": folder / "status"},
        **{"Dir::Cache": folder / "cache", "Acquire::Languages": "none"},
    }
    apt = ["apt-get", *SIGNED_ONLY, *(word for name, value in places.items() for word in ("-o", f"{name}={value}"))]
    _run([*apt, "update"])
    wanted = ["qemu-system-x86", "seabios"]
    _run([*apt, "--yes", "--no-install-recommends", "--download-only", "install", *wanted])
    for archive in sorted((folder / "cache" / "archives").glob("*.deb")):
        _run(["dpkg-deb", "-x", str(archive), str(folder / "root")])
    for name in ("lists", "cache"):
        shutil.rmtree(folder / name)


def _mirror() -> str:
    """The address of this machine's own source of Debian."""
    said = _run(["apt-get", "indextargets", "--format", "$(REPO_URI) $(LABEL)", "Created-By: Packages"])
    return next(uri for uri, _, label in (line.partition(" ") for line in said.splitlines()) if label == "Debian")


def _run(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout
