"""A machine whose package tools are stand-ins: nothing is downloaded, and every call is recorded."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from virtgauge.provision.packages import SIGNED_ONLY

RELEASE = "6.1.0-99-amd64"
KERNEL = f"linux-image-{RELEASE}"
VERSION = "6.1.199-1"

_KEPT_PROGRAMS = (
    "sh",
    "cat",
    "cp",
    "cut",
    "date",
    "dpkg",
    "dpkg-deb",
    "gzip",
    "mkdir",
    "rm",
    "sleep",
    "tar",
    "touch",
    "xz",
)

_APT_GET = """#!/bin/sh
# Answers from the folder $MACHINE/archive; `update` brings what waits in $MACHINE/unlisted into it.
echo "apt-get $*" >>"$MACHINE/calls"
while [ "$1" = -o ]; do shift 2; done
case "$1" in
update)
    [ -d "$MACHINE/unlisted" ] && cp "$MACHINE/unlisted"/* "$MACHINE/archive/"
    exit 0 ;;
download)
    [ -e "$MACHINE/slow" ] && sleep 1
    [ -e "$MACHINE/breaks" ] && { echo half >"$2_half.deb"; echo "E: connection reset by peer"; exit 100; }
    cp "$MACHINE/archive/$2"_*.deb . 2>/dev/null || { echo "E: Unable to locate package $2"; exit 100; } ;;
install)
    shift
    for package; do
        case $package in -*) continue ;; esac
        [ -e "$MACHINE/archive/$package.programs" ] || { echo "E: Unable to locate package $package"; exit 100; }
        while read -r program; do cp "$MACHINE/stub" "$MACHINE/bin/$program"; done <"$MACHINE/archive/$package.programs"
    done ;;
esac
"""

_APT_CACHE = """#!/bin/sh
while [ "$1" = -o ]; do shift 2; done
case "$1" in
depends) [ -e "$MACHINE/archive/$2.depends" ] && cat "$MACHINE/archive/$2.depends" ;;
policy) printf '%s:\\n  Installed: (none)\\n  Candidate: VERSION\\n' "$2" ;;
esac
""".replace("VERSION", VERSION)


class Machine:
    """The stand-in: its programs, its package archive, and what was asked of it."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.programs = folder / "bin"
        self.archive = folder / "archive"
        self.cache = folder / "cache" / "virtgauge"
        self.programs.mkdir(parents=True)
        self.archive.mkdir()
        (folder / "stub").write_text("#!/bin/sh\n")
        (folder / "stub").chmod(0o755)
        for name in _KEPT_PROGRAMS:
            found = shutil.which(name)
            assert found, f"{name} is a part of every Debian"
            (self.programs / name).symlink_to(found)
        self.add_program("apt-get", _APT_GET)
        self.add_program("apt-cache", _APT_CACHE)
        patch.setenv("PATH", str(self.programs))
        patch.setenv("MACHINE", str(folder))
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        patch.setattr("virtgauge.provision.registries.GO_FOLDER", str(folder / "no-go"))
        patch.setenv("PIP_NO_INDEX", "1")
        patch.setenv("PIP_FIND_LINKS", "")
        patch.setattr("virtgauge.host.process.SYSTEM_FOLDERS", str(folder / "sbin"))
        self._patch = patch
        self.as_root(True)

    def as_root(self, root: bool) -> None:
        """Let the set-up believe that it runs as root, or as somebody else."""
        self._patch.setattr(os, "geteuid", lambda: 0 if root else 1000)

    def add_program(self, name: str, text: str) -> None:
        path = self.programs / name
        path.write_text(text)
        path.chmod(0o755)

    def add_package(self, package: str, *programs: str, listed: bool = True) -> None:
        """Offer a package that brings these programs when it is installed."""
        target = self.archive if listed else self.folder / "unlisted"
        target.mkdir(exist_ok=True)
        (target / f"{package}.programs").write_text("".join(f"{program}\n" for program in programs))

    def add_kernel(
        self, files: dict[str, bytes], *, listed: bool = True, package: str = KERNEL, meta: str = "linux-image-amd64"
    ) -> None:
        """Offer a kernel package with these files, by path below the root."""
        target = self.archive if listed else self.folder / "unlisted"
        target.mkdir(exist_ok=True)
        self.build_package(package, files, target)
        (target / f"{meta}.depends").write_text(f"{meta}\n  Depends: {package}\n")
        (target / f"{package}.depends").write_text(f"{package}\n  Depends: kmod\n")

    def build_package(self, package: str, files: dict[str, bytes], target: Path | None = None) -> None:
        """Offer a package with these files, by path below the root; each can be executed."""
        tree = self.folder / "trees" / package
        for name, content in files.items():
            path = tree / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            path.chmod(0o755)
        (tree / "DEBIAN").mkdir(parents=True, exist_ok=True)
        (tree / "DEBIAN" / "control").write_text(
            f"Package: {package}\nVersion: {VERSION}\nArchitecture: amd64\nMaintainer: nobody <n@example.org>\n"
            "Description: a package that is none\n"
        )
        archive = (target or self.archive) / f"{package}_{VERSION}_amd64.deb"
        subprocess.run(["dpkg-deb", "--root-owner-group", "-Zgzip", "-b", str(tree), str(archive)], check=True)

    def add_dependencies(self, package: str, names: Iterable[str]) -> None:
        """What a package depends on."""
        lines = "".join(f"  Depends: {name}\n" for name in names)
        (self.archive / f"{package}.depends").write_text(f"{package}\n{lines}")

    @property
    def calls(self) -> list[str]:
        """What apt-get was called with, in order, beside what it always is."""
        path = self.folder / "calls"
        return path.read_text().replace(f"{' '.join(SIGNED_ONLY)} ", "").splitlines() if path.exists() else []


def module(*depends: str, body: bytes = b"") -> bytes:
    """A kernel module's bytes, as far as the set-up reads them."""
    return b"\x7fELF" + body + b"\0license=GPL\0depends=" + ",".join(depends).encode() + b"\0name=x\0"
