"""The preloaded library: where it is, and whether this machine's loader can take it."""

from __future__ import annotations

import os
import re
from pathlib import Path

from virtgauge.errors import UnavailableError
from virtgauge.host.native_file import find_native

ENVIRONMENT_VARIABLE = "VIRTGAUGE_SHIM"


def find_library() -> Path:
    """Find the shim: ``$VIRTGAUGE_SHIM``, then the one inside the installed package.

    Raises:
        UnavailableError: neither exists, or the machine's C library is not glibc or is older than the shim asks for.
    """
    path = find_native("libhptime_preload.so", ENVIRONMENT_VARIABLE, "the shim", "a built shim", "shim")
    needed, present = needed_glibc(path.read_bytes()), present_glibc()
    if present is None or present < needed:
        found = "another C library" if present is None else f"glibc {present[0]}.{present[1]}"
        raise UnavailableError(
            f"the shim was built for glibc {needed[0]}.{needed[1]} or later, and this machine has {found}",
            "build virtgauge from source on this machine",
        )
    return path


def needed_glibc(image: bytes) -> tuple[int, int]:
    """The latest version of glibc's interface that a shared object names."""
    versions = re.findall(rb"GLIBC_(\d+)\.(\d+)(?:\.\d+)?\0", image)
    return max(((int(major), int(minor)) for major, minor in versions), default=(0, 0))


def present_glibc() -> tuple[int, int] | None:
    """The version of this process's glibc; None for another C library."""
    try:
        text = os.confstr("CS_GNU_LIBC_VERSION")
    except (ValueError, OSError):
        return None
    found = re.search(r"(\d+)\.(\d+)", text or "")
    return (int(found[1]), int(found[2])) if found else None
