"""What makes an image bootable: the distribution's GRUB and shim, and the tools that place them; never installed.

Installing a boot loader would be about the machine's own start; nothing here is.
"""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

from virtgauge.folders import cache_root
from virtgauge.provision.cache import Facts, ProvisionError, provided, staged, whole_folder
from virtgauge.provision.packages import Apt
from virtgauge.provision.progress import Outcome, Progress
from virtgauge.provision.tools import run_logged

_PACKAGES = ("grub-common", "grub-pc-bin", "grub-efi-amd64-signed", "shim-signed", "mtools", "xorriso")
_LIBRARIES = ("libacl", "libburn", "libdevmapper", "libisoburn", "libisofs", "libjte", "liblzma", "libreadline")
"""Beginnings of the names of libraries that a minimal system lacks; their ends differ between distributions."""

_PROGRAMS = ("usr/bin/grub-mkimage", "usr/bin/mtools", "usr/bin/xorriso")
_SHIMS = ("usr/lib/shim/shimx64.efi.signed", "usr/lib/shim/shimx64.efi.signed.latest")
_EFI_GRUB = "usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed"
_BIOS_GRUB = "usr/lib/grub/i386-pc"

_STEP = "image"


@dataclasses.dataclass(frozen=True)
class BootLoader:
    """An extracted boot loader with its tools."""

    folder: Path  # everything of it is in there
    packages: tuple[str, ...]  # names and versions that it came from, for the record

    @property
    def bios_modules(self) -> Path:
        """GRUB's modules and boot sectors for BIOS."""
        return self.folder / _BIOS_GRUB

    @property
    def efi_grub(self) -> Path:
        """GRUB for UEFI, signed by the distribution."""
        return self.folder / _EFI_GRUB

    @property
    def shim(self) -> Path:
        """What firmware with Secure Boot starts first: signed by Microsoft, and starts what the distribution signed."""
        return next(self.folder / name for name in _SHIMS if (self.folder / name).is_file())

    def run(self, program: str, *arguments: str | Path, environment: dict[str, str] | None = None) -> None:
        """Run one of the tools to its end: ``grub-mkimage``, ``xorriso``, or a name of mtools (``mcopy`` …).
        Raises ToolError: it failed; its message has the last line of what it said; ProvisionError: the disk was full.
        """
        places = (*self.folder.glob("usr/lib/*-linux-gnu"), *self.folder.glob("lib/*-linux-gnu"))
        variables = {"LD_LIBRARY_PATH": ":".join(map(str, places))} | (environment or {})
        run_logged([self.folder / "usr/bin" / program, *arguments], log=_STEP, environment=variables)


def find_boot_loader() -> BootLoader | None:
    """The boot loader in the cache, if its files are there; None when there is none.  Downloads nothing."""
    found = whole_folder("boot-loader")
    return None if found is None else BootLoader(found[0], tuple(found[1]["packages"].split(", ")))


def provision_boot_loader(progress: Progress) -> Outcome:
    """Put a boot loader into the cache: keep the one there if every hash fits, else fetch the distribution's own."""
    return provided(
        *(_STEP, "the boot loader", "boot-loader", progress, _fetch), lambda facts: facts["packages"].split(", ")[0]
    )


def _fetch(progress: Progress) -> Facts:
    progress("asking for the packages of the boot loader")
    apt = Apt(progress, _STEP)
    wanted = list(_PACKAGES)
    for name in wanted:  # grows as it goes, by the libraries that programs need beyond a minimal system
        wanted += [found for found in apt.dependencies(name) if found.startswith(_LIBRARIES) and found not in wanted]
    versions = [f"{name} {apt.version(name)}" for name in wanted]
    facts = {"packages": ", ".join(versions)}
    final = cache_root() / "boot-loader" / versions[0].replace(" ", "_").replace("/", "_")
    with staged(final, facts) as folder:
        unpacked = folder / "unpacked"
        for name in wanted:
            apt.extract(name, unpacked, facts)
        arrange(unpacked, folder)
        shutil.rmtree(unpacked)
        BootLoader(folder, ()).run("grub-mkimage", "--version")
    return facts


def arrange(unpacked: Path, folder: Path) -> None:
    """Move what is used out of the unpacked packages.
    Raises ProvisionError: something that is needed is not in them.
    """
    shims = [name for name in _SHIMS if (unpacked / name).is_file()]
    names = [*_PROGRAMS, _EFI_GRUB, _BIOS_GRUB, *shims[:1]]
    if lacking := [name for name in names if not (unpacked / name).exists()] or ([] if shims else [_SHIMS[0]]):
        raise ProvisionError(f"the packages hold no {lacking[0]}", "report this with the name of the distribution")
    libraries = {path.parent for path in unpacked.rglob("*.so.*")}
    for path in (*(unpacked / name for name in names), *sorted(libraries)):
        target = folder / path.relative_to(unpacked)
        target.parent.mkdir(parents=True, exist_ok=True)
        path.rename(target)
    # one program under many names, which tells by its name what to do
    for name in ("mcopy", "mformat", "mmd", "mtype"):
        (folder / "usr/bin" / name).symlink_to("mtools")
