"""Everything made on the host belongs to a scope, and is reclaimed with it.

A scope is a folder ``<state>/<tag>/`` with the identity of the process that owns it.  Processes carry the
tag and the owner in their environment; cgroups, mounts, runtimes' state and logs live below that folder or
carry the tag in their name, so that :mod:`virtgauge.host.reclaim` finds all of them after a kill -9.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import re
from pathlib import Path
from typing import ClassVar, Self

from virtgauge.host.cgroup import Cgroup
from virtgauge.host.process import ProcessIdentity
from virtgauge.host.reclaim import is_left_something, reclaim_folder, remove_folder
from virtgauge.host.tag import (
    CGROUP_PARENT,
    OWNER_FILE,
    OWNER_VARIABLE,
    STATE_FOLDER_VARIABLE,
    TAG_VARIABLE,
    StateFolder,
    forget_empty_state_folder,
    make_state_root,
    remember_state_folder,
    scratch_root,
)

_PASSABLE = 0o711
_NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*")


class Scope:
    """The host resources of one controller process; a context manager that reclaims them at its end."""

    _taken: ClassVar[set[str]] = set()  # Tags of this process's scopes, also of those that are over

    def __init__(self) -> None:
        self._state = StateFolder.own()
        root = Path(self._state.path)  # without symbolic links, as the kernel tells what is mounted below it
        while (tag := self._state.new_tag()) in self._taken or (root / tag).exists():
            pass
        self._taken.add(tag)
        # Unique, and short enough for the names of interfaces and cgroups: ``vg``, two digits that stand for user
        # and state folder, and four random ones.
        self.tag = tag
        self._words: list[int] = []  # open and locked: who sees no process of that name still sees that one lives
        # For bundles, runtimes' state and logs.  Others can pass through it (0711), because servers refuse to run as
        # root; they cannot list it, and each guest's own folder in it is private.
        self.folder = self._owned_folder(root)
        remember_state_folder()
        self._scratch: Path | None = None

    def guest_folder(self, name: str) -> Path:
        """A private folder for one guest.
        Raises ValueError: a name that is not letters, digits, dots and dashes; FileExistsError: the name is taken.
        """
        return _private_folder(self.folder, name)

    def scratch_folder(self, name: str) -> Path:
        """A private folder on a disk, which the scope's own, in memory as a rule, is not: for files that are large or
        whose writing is measured.  It goes with the scope at the latest.
        Raises ValueError: a name that is not letters, digits, dots and dashes; FileExistsError: the name is taken;
        OSError: the user's cache cannot be written.
        """
        if self._scratch is None:
            self._scratch = self._owned_folder(scratch_root())
        return _private_folder(self._scratch, name)

    def cgroup(self, name: str, *, cpu_limit: float | None = None) -> Cgroup:
        """A cgroup for one guest, below one named after the tag; with a limit in whole CPUs where one is given."""
        group = Cgroup(f"{CGROUP_PARENT}/{self.tag}/{name}", cpu_limit=cpu_limit)
        group.mark_parent(self._mark())
        return group

    def environment(self) -> dict[str, str]:
        """Environment for a process started in this scope: only what it needs, the tag, and whose it is."""
        kept = {k: v for k in ("PATH", "HOME", "LANG", "TMPDIR", "XDG_RUNTIME_DIR") if (v := os.environ.get(k))}
        return kept | {TAG_VARIABLE: self.tag, **self._mark()}

    def _mark(self) -> dict[str, str]:
        """Whose everything in this scope is."""
        return {OWNER_VARIABLE: ProcessIdentity.current().as_text(), STATE_FOLDER_VARIABLE: self._state.as_text()}

    def close(self) -> None:
        """Reclaim all that is left.  Guests are expected to be closed by then."""
        while self._words:
            os.close(self._words.pop())
        reclaim_folder(self.folder)
        if not is_left_something(self.folder):
            remove_folder(self.folder)
        forget_empty_state_folder()
        for root in (self.folder.parent, scratch_root()):
            with contextlib.suppress(OSError):  # other runs may live there
                root.rmdir()

    def _owned_folder(self, root: Path) -> Path:
        """A folder of the tag's name with the word of whose it is, in a root that may not be there yet."""
        # Named only once it has an owner: a folder without one would look like the rest of a dead run.
        unborn = root / f".{self.tag}"
        for _ in range(20):  # another run that ends may remove the common parent in between
            with contextlib.suppress(FileNotFoundError):
                make_state_root(self._state)
                root.mkdir(parents=True, mode=_PASSABLE, exist_ok=True)
                unborn.mkdir()
                break
        unborn.chmod(_PASSABLE)
        owner = dataclasses.asdict(ProcessIdentity.current()) | {"state_folder": self._state.as_text()}
        word = unborn / f".{OWNER_FILE}"
        # Others may not read it, for who may can lock it.
        self._words.append(os.open(word, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        with contextlib.suppress(OSError):  # a filesystem without locks
            fcntl.flock(self._words[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
        word.write_text(json.dumps(owner))
        word.rename(unborn / OWNER_FILE)
        folder = root / self.tag
        unborn.rename(folder)
        return folder

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _private_folder(parent: Path, name: str) -> Path:
    if not _NAME_PATTERN.fullmatch(name):
        raise ValueError(f"a folder's name is made of letters, digits, dots and dashes, not {name!r}")
    folder = parent / name
    folder.mkdir(mode=0o700)
    return folder
