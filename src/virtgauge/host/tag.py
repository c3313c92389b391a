"""How what virtgauge makes on the host is told from everything else, and whose it is: names, variables, folders."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import os
import pwd
import re
import secrets
import stat
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Self, TextIO

from virtgauge.errors import UsageError, unwritable
from virtgauge.folders import cache_root, is_firm

# Every process that virtgauge starts on the host carries in these variables its scope's tag, the identity of the
# scope's owner, so that an orphan is known without the scope's folder, and the user and state folder of the scope.
TAG_VARIABLE, OWNER_VARIABLE = "VIRTGAUGE_SCOPE", "VIRTGAUGE_OWNER"
STATE_FOLDER_VARIABLE = "VIRTGAUGE_STATE_FOLDER"

STATE_VARIABLE = "VIRTGAUGE_STATE"  # Overrides the folder of all scopes
STATE_REMEDY = f"use sudo, or name a folder of your own in {STATE_VARIABLE}"

OWNER_FILE = "owner.json"
_REGISTRY = "states"  # In the cache: a file for each state folder in use
CGROUP_PARENT = "virtgauge"
TAG_PATTERN = re.compile(r"vg[0-9a-z]{6}")
_DIGITS = string.digits + string.ascii_lowercase
_LONGEST_WORD = 64 * 1024
_MARK = slice(2, 4)  # Of a tag: the digits that all scopes of a state folder have in common


@dataclasses.dataclass(frozen=True)
class StateFolder:
    """To whom a scope belongs.

    A run reclaims what dead scopes of its own state folder left, and of folders below it.
    """

    uid: int  # the user whose processes own the scopes
    path: str  # the folder of all scopes, without symbolic links

    @classmethod
    def own(cls) -> Self:
        return cls(os.geteuid(), os.path.realpath(state_root()))

    @classmethod
    def from_text(cls, text: str) -> Self:
        """The inverse of :meth:`as_text`.  Raises ValueError: the text is not one."""
        uid, path = text.split(":", 1)
        return cls(int(uid), path)

    def as_text(self) -> str:
        """``uid:path``, for an environment variable and for files."""
        return f"{self.uid}:{self.path}"

    def holds(self, other: StateFolder) -> bool:
        """Whether the other is this one, or a folder of the same user below it (a fleet's workers have such)."""
        return self.uid == other.uid and Path(other.path).is_relative_to(self.path)

    @property
    def mark(self) -> str:
        """Two digits, which the tags of its scopes begin with: cgroups and interfaces carry nothing but a name."""
        number = int.from_bytes(hashlib.sha256(self.as_text().encode()).digest())
        return _DIGITS[number // 36 % 36] + _DIGITS[number % 36]

    def new_tag(self) -> str:
        return "vg" + self.mark + "".join(secrets.choice(_DIGITS) for _ in range(4))

    def has_marked(self, tag: str) -> bool:
        """Whether a tag is one of its scopes', as far as a name can say that (1 in 1296 names of others does)."""
        return tag[_MARK] == self.mark

    def words(self) -> str:
        try:
            user = pwd.getpwuid(self.uid).pw_name
        except KeyError:
            user = str(self.uid)
        return f"user {user}, state folder {self.path}"


def state_root() -> Path:
    """The folder of all scopes: ``/run/virtgauge`` for root, else below the user's runtime folder."""
    override = os.environ.get(STATE_VARIABLE)
    if override:
        return Path(override)
    if os.geteuid() == 0:
        return Path("/run/virtgauge")
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return Path(runtime) / "virtgauge" if runtime else Path(f"/tmp/virtgauge-{os.getuid()}")


def make_state_root(state: StateFolder | None = None) -> Path:
    """Make the folder of all scopes, this process's own, where it is missing; its path, without symbolic links.
    Raises FileNotFoundError: it was removed meanwhile; UsageError: it cannot be made, or others could exchange it or
    what is in it and started from it.
    """
    named, root = state_root(), Path((state or StateFolder.own()).path)
    try:
        for folder in (*reversed(root.parents), root):
            folder.mkdir(mode=0o755, exist_ok=True)
        if named.lstat().st_uid not in (0, os.geteuid()):
            raise PermissionError(errno.EPERM, "it belongs to another user", str(root))
        loose = next((folder for folder in (root, *root.parents) if not _is_safe(folder.lstat())), None)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise unwritable(f"{named}: cannot be written: {error.strerror}", error, STATE_REMEDY) from error
    if loose is not None:
        said = f"{named}: is not safe: other users may exchange what is in {loose}"
        raise UsageError(said, f"make that a folder of yours or root's (chmod go-w), or {STATE_REMEDY}")
    return root


def _is_safe(folder: os.stat_result) -> bool:
    """Whether nobody else can exchange what is in a folder; of a pod's volume, where all may write, only root minds."""
    user = os.geteuid()
    return is_firm(folder) or (user != 0 and folder.st_uid in (0, user))


def scratch_root() -> Path:
    """The folder of all scopes' scratch folders, in the user's cache: that is on a disk, the state is in memory."""
    return cache_root() / "scratch"


def is_own_file(path: Path) -> bool:
    """Whether this user wrote a file; false where it is gone."""
    try:
        return path.lstat().st_uid == os.geteuid()
    except OSError:
        return False


@contextlib.contextmanager
def open_word(path: Path) -> Iterator[tuple[TextIO, str]]:
    """A small file that anybody may have put there, and its text: no link is followed, no pipe or device waited for.
    Raises OSError: it is not there, is no file, or may not be read; ValueError: it is no text, or too long for a word
    of ours.
    """
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), encoding="utf-8") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError(f"{path} is no file")
        text = file.read(_LONGEST_WORD + 1)
        if len(text) > _LONGEST_WORD:
            raise ValueError(f"{path} is longer than {_LONGEST_WORD}")
        yield file, text


def remember_state_folder() -> None:
    """Write down where this user's scopes are, so that `virtgauge clean --all` finds them from anywhere."""
    own, entry = StateFolder.own(), _own_entry()
    with contextlib.suppress(OSError):  # a cache that cannot be written: found from its own state folder only
        entry.parent.mkdir(parents=True, exist_ok=True)
        for other in entry.parent.iterdir():
            if not Path(_registered(other).path).exists():
                other.unlink(missing_ok=True)
        entry.write_text(own.as_text())


def forget_empty_state_folder() -> None:
    """Take it off the list when its last scope has ended."""
    with contextlib.suppress(OSError):
        _own_entry().unlink(missing_ok=True)
        if any(TAG_PATTERN.fullmatch(name) for name in os.listdir(state_root())):
            remember_state_folder()


def _own_entry() -> Path:
    return cache_root() / _REGISTRY / hashlib.sha256(StateFolder.own().path.encode()).hexdigest()[:16]


def known_state_folders() -> list[StateFolder]:
    """This process's own first, then all others that are known on this machine; root knows those of all users."""
    places = [Path("/run/virtgauge"), *Path("/run/user").glob("*/virtgauge"), *Path("/tmp").glob("virtgauge-*")]
    caches = [cache_root()]
    if os.geteuid() == 0:
        caches += [Path(user.pw_dir) / ".cache" / "virtgauge" for user in pwd.getpwall()]
    found = [StateFolder.own()]
    for place in places:
        with contextlib.suppress(OSError):
            found.append(StateFolder(place.lstat().st_uid, os.path.realpath(place)))
    for cache in caches:
        with contextlib.suppress(OSError):
            found += [_registered(entry) for entry in (cache / _REGISTRY).iterdir()]
    return [state for state in dict.fromkeys(found) if state == found[0] or _is_there(state)]


def _registered(entry: Path) -> StateFolder:
    """What a file of the registry names; what cannot be read names a folder that is nowhere."""
    try:
        with open_word(entry) as (_, text):
            return StateFolder.from_text(text)
    except (OSError, ValueError):  # or it is no text
        return StateFolder(-1, "/nonexistent")


def _is_there(state: StateFolder) -> bool:
    """Whether it is the folder of the user that it is said to be: others can write what they like."""
    try:
        return Path(state.path).is_dir() and Path(state.path).lstat().st_uid == state.uid
    except OSError:
        return False
