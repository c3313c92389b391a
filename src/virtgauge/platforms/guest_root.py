"""What of the host's files a guest has as its root, by whatever way it reaches them."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from virtgauge.platforms.base import GuestSpec

# The host's programs for a guest: which of the host's folders it sees, and which it may change for itself alone.

_NAMES = ("usr", "etc", "opt", "bin", "sbin", "lib", "lib32", "lib64", "libx32")
_LAYERED = ("usr", "etc", "opt")


@dataclasses.dataclass(frozen=True)
class SystemFolder:
    """One entry of the host's root.

    Attributes:
        name: without a slash.
        source: the folder on the host.
        target: where the link leads, for one that is only a link; else None.
        layered: programs may want to write there.
    """

    name: str
    source: Path
    target: str | None
    layered: bool


def system_folders(root: Path = Path("/")) -> list[SystemFolder]:
    """Those of a host's system folders that are there."""
    found = []
    for name in _NAMES:
        source = root / name
        target = os.readlink(source) if source.is_symlink() else None
        if target is not None or source.is_dir():
            found.append(SystemFolder(name, source, target, layered=name in _LAYERED))
    return found


# What of the host's files a guest with a kernel of its own has as its root, by whatever way they reach it.


@dataclasses.dataclass(frozen=True)
class RootPart:
    """Something of the host in the guest's root (docs/protocol.md, ``virtgauge.root``).

    Attributes:
        kind: ``link``, or how a folder is exported: ``lower`` (below a private layer), ``read``, ``write``.
        path: in the guest.
        source: where the link leads, or the folder on the host.
    """

    kind: Literal["link", "lower", "read", "write"]
    path: Path
    source: str


def root_of(spec: GuestSpec) -> tuple[RootPart, ...]:
    """The guest's root: the host's system folders and its shares; empty where it was not asked for."""
    if not spec.host_root:
        return ()
    shares = (RootPart("write" if share.writable else "read", share.path, str(share.path)) for share in spec.shares)
    return (*system_parts(), *shares)


def system_parts() -> Iterator[RootPart]:
    """The host's system folders, with a private layer above those that a program may write to."""
    for system in system_folders():
        path = Path("/", system.name)
        if system.target is not None:
            yield RootPart("link", path, system.target)
        else:
            yield RootPart("lower" if system.layered else "read", path, str(system.source))
