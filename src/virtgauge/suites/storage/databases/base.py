"""What a database is to the suite: found or missing, durable by levels, started by argument vectors."""

from __future__ import annotations

import abc
import dataclasses
import enum
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from pwd import struct_passwd
from typing import Any, ClassVar
from urllib.parse import SplitResult

from virtgauge.folders import cache_root
from virtgauge.host.process import output_of
from virtgauge.provision.databases import Product
from virtgauge.provision.packages import JAVA_VERSION, find_java
from virtgauge.specs.storage_formatting import DATABASES

DATABASE = "virtgauge"  # Of the user and of the database (keyspace) that a server started here has
FIRST_PERIOD_MS = 100  # How often a level that flushes periodically does, where a plan does not say
_SHELL, _SETPRIV = "/bin/sh", "/usr/bin/setpriv"
_MAKE_EMPTY = """\
mkdir -p -- "$1" || exit
if [ -n "$(ls -A -- "$1")" ]; then
    echo "$1 already holds something; it is left as it is" >&2
    exit 1
fi
chmod 700 -- "$1" && { [ -z "$2" ] || chown -- "$2" "$1"; }
"""
_FOLDER_OPEN = 'exec 3<"$0" && exec "$@"'
_OPEN_FOLDER = Path("/proc/self/fd/3")


class Durability(enum.StrEnum):
    """What an acknowledged write has outlived by the time it is acknowledged, or will soon."""

    NONE = "none"  # Nothing: it may be lost with the server's process, or may never have been received
    OS = "os"  # The server's process: the operating system has it, the device may not
    PERIODIC = "periodic"  # Nothing yet; it is flushed to the device within a set period
    FLUSHED = "flushed"  # The machine: flushed to the device before it was acknowledged


@dataclasses.dataclass(frozen=True)
class Profile:
    """One level of durability of one database, by its settings."""

    name: str  # of the level, for people (``j:true``)
    settings: Mapping[str, str]  # of the server and of the client, by their own names; recorded with every result
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)  # what sensorstore's driver has to be told
    written: bool = False  # of the level periodic: the operating system has it at once, as at the level os
    durability: Durability = Durability.NONE  # set by :meth:`Database.levels`

    @property
    def survives_kill(self) -> bool:
        """Every acknowledged write is there after the server's process was killed; the audit holds the level to it."""
        return self.written or self.durability in (Durability.OS, Durability.FLUSHED)

    @property
    def flushes_each_write(self) -> bool:
        """Every acknowledgement had waited for a flush of its own or of its group; counted flushes tell."""
        return self.durability is Durability.FLUSHED


Levels = Mapping[Durability, Profile | str]
"""The settings of every level; of one that a database has not, why not, in words."""


@dataclasses.dataclass(frozen=True)
class Found:
    """A database that can be started here."""

    version: str  # its own (``15.18``)
    source: str  # where it came from, for people (``Debian's package``, ``virtgauge's cache``)
    programs: Path = Path()  # the folder of its programs, jars or library
    java: Path | None = None  # that runs its jars
    folders: tuple[Path, ...] = ()  # that it is started from

    @property
    def shares(self) -> tuple[Path, ...]:
        """Those that a guest has to be given to see, under the same paths: none of the system's own."""
        return tuple(folder for folder in self.folders if not folder.is_relative_to("/usr"))


@dataclasses.dataclass(frozen=True)
class Missing:
    """A database that cannot be started here: why, and the command that would change it."""

    reason: str
    fix: str = "virtgauge provision databases"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Instance:
    """One database at one level, and where it lives."""

    found: Found
    profile: Profile
    config: Path  # a folder of the host that the guest sees under the same path; :meth:`Server.write` fills it
    data: Path  # on the data disk, as the guest sees it: all that it writes, in a folder that is empty or not there yet
    # address, port: where it listens, and nowhere else
    address: str
    port: int
    password: str  # of the user ``virtgauge``, where the database knows passwords
    # whom a root's server runs as, since databases refuse to be root; None leaves it the user that the agent runs as
    account: struct_passwd | None = None
    log: Path | None = None  # as ``data``, of its commit log on a disk of its own; None where it lies with the data


@dataclasses.dataclass(frozen=True)
class Server:
    """How one server is brought up."""

    # the server. It stays in the foreground, and its process is the one that is started: no shell in between.
    argv: Sequence[str]
    # its configuration, by path below ``Instance.config``
    files: Mapping[Path, str] = dataclasses.field(default_factory=dict)
    # commands to be run before its first start, in this order; the first refuses a folder that holds something. A
    # restart on the same data runs none of them.
    setup: Sequence[Sequence[str]] = ()
    # to be added to the environment of ``setup`` and ``argv``
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)
    ready_timeout_s: float = 20.0  # it serves within this on the host; a slow guest needs its factor more

    def write(self, account: struct_passwd | None) -> None:
        """Write the files, readable by the account alone: there may be passwords in them."""
        for path, text in self.files.items():
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            path.touch(mode=0o600)
            path.write_text(text)
            if account is not None:
                os.chown(path, account.pw_uid, account.pw_gid)


class Database(abc.ABC):
    """A product.  Constructed by the registry; holds no running state."""

    name: ClassVar[str]  # in plans and results (``postgresql``)
    title: ClassVar[str]  # for people (``PostgreSQL``)
    product: ClassVar[Product | None] = None  # what the cache has of it; None where it comes another way
    parts: ClassVar[tuple[str, ...]] = ()  # what provides it (``provision/parts.py``)
    driver: ClassVar[str]  # sensorstore's
    # why its commit log cannot lie on a disk of its own, in words; None where :meth:`own_server` heeds ``Instance.log``
    log_stays: ClassVar[str | None]
    has_users: ClassVar[bool] = False  # its clients name a user, with a password
    opened: ClassVar[str | None] = None  # the database (keyspace) that they name; None where they need not
    # patterns of what holds tables, and of its log, below its data folder (docs/sensorstore.md, `files`)
    data_files: ClassVar[tuple[str, ...]] = ("*",)
    log_files: ClassVar[tuple[str, ...]] = ()
    # its files of tables grow by so many bytes at a time, all of them together, or by steps of about that size
    allocation_unit: ClassVar[int]
    # of the URI of a server that runs already; none for a database without servers
    schemes: ClassVar[tuple[str, ...]] = ()
    port: ClassVar[int] = 0  # of a server whose URI names none
    uri_option: ClassVar[str | None] = None  # the only option that such a URI may have (``authSource``)
    # what sensorstore's null server answers to this driver by; None where it has none
    null_protocol: ClassVar[str | None] = None
    # ways of writing beside the usual one; ``values`` is the paper's concatenated statement
    write_modes: ClassVar[tuple[str, ...]] = ()
    on_java: ClassVar[bool] = False  # its server runs on Java, which a guest has to see as well
    embedded: ClassVar[bool] = False  # it has no server; sensorstore itself opens the file, inside the guest
    memory_mib: ClassVar[int] = 512  # what a guest needs for its server and sensorstore, at least
    # its server makes them without the C library, as a program of Go does, so that its flushes are seen by the
    # kernel's notifications or not at all (docs/flushes.md)
    own_system_calls: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        if cls.product is not None:
            cls.name, cls.parts = cls.product.name, (cls.product.name,)
        cls.title = DATABASES[cls.name]

    def find(self) -> Found | Missing:
        """Look for it on this machine, in the cache if not elsewhere; downloads and starts nothing."""
        if self.product is None:
            if (there := self.installed()) is None:
                return Missing(f"{self.title}'s server is not installed")
            programs, version, whole = there
            return Found(version, str(programs), programs, folders=(whole,))
        kept = self.product.find()
        if kept is None:
            return Missing(f"{self.title} is not in the cache")
        folder, version = kept
        source = "virtgauge's cache" if folder.is_relative_to(cache_root()) else "virtgauge's image"
        if not self.on_java:
            return Found(version, source, folder, folders=(folder,))
        java = find_java()
        if java is None:
            return Missing(f"there is no Java {JAVA_VERSION}, on which {self.title} runs")
        return Found(version, source, folder, java, folders=(folder, java.parent.parent))

    def installed(self) -> tuple[Path, str, Path] | None:
        """Of a distribution's package: the folder of its programs, its version, and the folder that holds all of it."""
        raise NotImplementedError

    @staticmethod
    def version_of(program: Path | None, pattern: str) -> str | None:
        """What a program says of itself, by the pattern's group; None where it is not there, or does not start."""
        said = output_of([str(program), "--version"]) if program else None
        found = re.search(pattern, said) if said else None
        return found[1] if found else None

    def levels(self, period_ms: int = FIRST_PERIOD_MS) -> Levels:
        """What it has, for a period of ``PERIODIC``."""
        return {
            level: one if isinstance(one, str) else dataclasses.replace(one, durability=level)
            for level, one in self.own_levels(period_ms).items()
        }

    def level_of(self, reported: Mapping[str, str]) -> Durability | None:
        """The level that the settings of a server amount to, as it reports them; None where they do not say."""
        return None

    @abc.abstractmethod
    def own_levels(self, period_ms: int) -> Levels:
        """The levels of this database, not yet with their names."""

    def store(self, at: Instance) -> dict[str, Any]:
        """The ``store`` of sensorstore's specifications: a server by TCP, or a file on the data disk."""
        store: dict[str, Any] = {"driver": self.driver, "options": dict(at.profile.options)}
        if self.embedded:
            return store | {"path": str(at.data / "readings.db")}
        store |= {"address": at.address, "port": at.port}
        if self.has_users:
            store |= {"user": DATABASE, "password": at.password}
        return store if self.opened is None else store | {"database": self.opened}

    def server(self, at: Instance) -> Server:
        """How to bring it up: its own server as the account, whose folders are made empty and private before."""
        before, programs = reaching(at.found.programs, at.account)
        own = self.own_server(at, programs)
        return dataclasses.replace(
            own,
            setup=[
                *(make_empty(folder, at.account) for folder in (at.data, at.log) if folder is not None),
                *(as_account(at.account, argv) for argv in own.setup),
            ],
            argv=[*before, *as_account(at.account, own.argv)],
        )

    def own_server(self, at: Instance, programs: Path) -> Server:
        """What is its own of its server; the programs' folder is the one found, as the account sees it."""
        raise NotImplementedError

    def at_rest(self, at: Instance) -> Sequence[str]:
        """The program that brings it to rest in its files, in its guest, where the driver's `rest` does not."""
        return ()

    def grows_by(self, version: str, writers: int) -> int:
        """The allocation unit of this version where so many clients write at a time."""
        return self.allocation_unit

    def client_uri(self, uri: SplitResult, password: str) -> str | None:
        """The address of a server that runs already in the driver's own form; None where it takes the parts."""
        return None

    def label(self, found: Found) -> str:
        """The title with the version, for people (``PostgreSQL 15.18``)."""
        return f"{self.title} {found.version}".rstrip()


def make_empty(folder: Path, account: struct_passwd | None) -> list[str]:
    """Make a folder, private to the account; one that holds something is refused, and not touched."""
    owner = f"{account.pw_uid}:{account.pw_gid}" if account else ""
    return [_SHELL, "-c", _MAKE_EMPTY, "sh", str(folder), owner]


def as_account(account: struct_passwd | None, argv: Sequence[str]) -> list[str]:
    """Run a program as this user, without a process in between; as it is where there is none to become."""
    if account is None:
        return list(argv)
    return [_SETPRIV, f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups", *argv]


def reaching(folder: Path, account: struct_passwd | None) -> tuple[list[str], Path]:
    """How the account gets at the programs in a folder: what goes before the command, and where it finds them.

    A root's cache is in its home, which others cannot pass through.  There the folder is opened while the process is
    still root's, and seen through the descriptor, for which only the folder's own permissions count; the shell that
    does it becomes the server.
    """
    if account is None or all(place.stat().st_mode & 0o001 for place in (folder, *folder.parents)):
        return [], folder
    return [_SHELL, "-c", _FOLDER_OPEN, str(folder)], _OPEN_FOLDER
