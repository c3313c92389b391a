"""Everything made on the host belongs to a scope, and is reclaimed with it.

A scope is a folder ``<state>/virtgauge/<tag>/`` with the identity of the process that owns it.  Process
groups, cgroups, mounts, runtimes' state and sockets of a run live below that folder or carry its tag in their name, so
that :mod:`virtgauge.host.reclaim` finds all of them after a kill -9.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
from pathlib import Path

from virtgauge.host.cgroup import Cgroup
from virtgauge.host.process import ProcessIdentity

TAG_VARIABLE = "VIRTGAUGE_SCOPE"
"""Every process that virtgauge starts on the host carries its scope's tag in this variable."""


def state_root() -> Path:
    """The folder of all scopes: ``/run/virtgauge`` for root, else below the user's runtime folder."""
    override = os.environ.get("VIRTGAUGE_STATE")
    if override:
        return Path(override)
    if os.geteuid() == 0:
        return Path("/run/virtgauge")
    return Path(os.environ.get("XDG_RUNTIME_DIR") or f"/tmp/virtgauge-{os.getuid()}") / "virtgauge"


class Scope:
    """The host resources of one controller process; a context manager that reclaims them at its end.

    Attributes:
        tag: short, unique, usable in the names of interfaces and cgroups (``vg`` + 6 hex digits).
        folder: private (0700) folder for sockets, bundles, logs.
    """

    def __init__(self) -> None:
        self.tag = "vg" + secrets.token_hex(3)
        self.folder = state_root() / self.tag
        self.folder.mkdir(parents=True, mode=0o700)
        (self.folder / "owner.json").write_text(json.dumps(ProcessIdentity.current().as_dict()))

    def guest_folder(self, name: str) -> Path:
        """A private folder for one guest."""
        folder = self.folder / name
        folder.mkdir(mode=0o700)
        return folder

    def cgroup(self, name: str) -> Cgroup:
        """A cgroup for one guest, below one named after the tag."""
        return Cgroup(f"virtgauge/{self.tag}/{name}")

    def environment(self) -> dict[str, str]:
        """Environment for a process started in this scope: only what it needs, and the tag."""
        kept = {k: v for k in ("PATH", "HOME", "LANG", "TMPDIR", "XDG_RUNTIME_DIR") if (v := os.environ.get(k))}
        return kept | {TAG_VARIABLE: self.tag}

    def close(self) -> None:
        """Reclaim all that is left.  Guests are expected to be closed by then."""
        from virtgauge.host.reclaim import reclaim_folder

        reclaim_folder(self.folder)
        with contextlib.suppress(OSError):
            shutil.rmtree(self.folder)

    def __enter__(self) -> Scope:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
