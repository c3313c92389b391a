"""The kernel that virtual machines boot: the distribution's own, downloaded and extracted, never installed."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

MANIFEST_NAME = "manifest.json"


@dataclasses.dataclass(frozen=True)
class GuestKernel:
    """An extracted kernel.

    Attributes:
        release: as ``uname -r`` will say in the guest, for instance ``6.1.0-56-amd64``.
        image: the bootable image (bzImage).
        modules: a folder that holds the release's ``*.ko`` files, uncompressed, anywhere below it.
        package: package and version it came from, for the record (``linux-image-6.1.0-56-amd64 6.1.192-2``).
    """

    release: str
    image: Path
    modules: Path
    package: str


def find_kernel() -> GuestKernel | None:
    """The newest whole kernel in the cache; None when there is none.  Downloads nothing."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "virtgauge" / "kernel"
    for manifest in sorted(root.glob(f"*/{MANIFEST_NAME}"), reverse=True):
        record = json.loads(manifest.read_text())
        folder = manifest.parent
        return GuestKernel(
            release=record["release"],
            image=folder / "vmlinuz",
            modules=folder / "modules",
            package=f"{record['package']} {record['version']}",
        )
    return None
