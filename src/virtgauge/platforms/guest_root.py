"""What of the host's files a guest with a kernel of its own has as its root, by whatever way they reach it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from virtgauge.platforms.base import GuestSpec
from virtgauge.platforms.system_folders import system_folders


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
