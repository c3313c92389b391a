"""Everything made on the host belongs to a scope, and is reclaimed with it.

A scope is a folder ``<state>/<tag>/`` with the identity of the process that owns it.  Processes carry the
tag and the owner in their environment; cgroups, mounts, runtimes' state and logs live below that folder or
carry the tag in their name, so that :mod:`virtgauge.host.reclaim` finds all of them after a kill -9.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
from pathlib import Path
from typing import Self

from virtgauge.host.cgroup import Cgroup
from virtgauge.host.process import ProcessIdentity
from virtgauge.host.reclaim import reclaim_folder
from virtgauge.host.tag import CGROUP_PARENT, OWNER_FILE, OWNER_VARIABLE, TAG_VARIABLE, state_root

_NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*")


class Scope:
    """The host resources of one controller process; a context manager that reclaims them at its end.

    Attributes:
        tag: short, unique, usable in the names of interfaces and cgroups (``vg`` + 6 hex digits).
        folder: private (0700) folder for bundles, runtimes' state and logs.
    """

    def __init__(self) -> None:
        self.tag = "vg" + secrets.token_hex(3)
        root = state_root()
        # Named only once it has an owner: a folder without one would look like the rest of a dead run.
        unborn = root / f".{self.tag}"
        for _ in range(20):  # another run that ends may remove the common parent in between
            with contextlib.suppress(FileNotFoundError):
                root.mkdir(parents=True, mode=0o700, exist_ok=True)
                unborn.mkdir(mode=0o700)
                break
        (unborn / OWNER_FILE).write_text(json.dumps(ProcessIdentity.current().as_dict()))
        self.folder = root / self.tag
        unborn.rename(self.folder)

    def guest_folder(self, name: str) -> Path:
        """A private folder for one guest.

        Raises:
            ValueError: a name that is not letters, digits, dots and dashes.
            FileExistsError: the name is taken.
        """
        if not _NAME_PATTERN.fullmatch(name):
            raise ValueError(f"a guest's name is made of letters, digits, dots and dashes, not {name!r}")
        folder = self.folder / name
        folder.mkdir(mode=0o700)
        return folder

    def cgroup(self, name: str, *, cpu_limit: float | None = None) -> Cgroup:
        """A cgroup for one guest, below one named after the tag; with a limit in whole CPUs where one is given."""
        return Cgroup(f"{CGROUP_PARENT}/{self.tag}/{name}", cpu_limit=cpu_limit)

    def environment(self) -> dict[str, str]:
        """Environment for a process started in this scope: only what it needs, the tag, and the owner."""
        kept = {k: v for k in ("PATH", "HOME", "LANG", "TMPDIR", "XDG_RUNTIME_DIR") if (v := os.environ.get(k))}
        return kept | {TAG_VARIABLE: self.tag, OWNER_VARIABLE: ProcessIdentity.current().as_text()}

    def close(self) -> None:
        """Reclaim all that is left.  Guests are expected to be closed by then."""
        reclaim_folder(self.folder)
        with contextlib.suppress(OSError):
            shutil.rmtree(self.folder)
        with contextlib.suppress(OSError):  # other runs may live there
            self.folder.parent.rmdir()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
