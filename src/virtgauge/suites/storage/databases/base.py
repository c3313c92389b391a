"""What a database is to the suite: found or missing, durable by levels, started by argument vectors."""

from __future__ import annotations

import abc
import dataclasses
import enum
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

DATABASE = "virtgauge"
"""Of the user and of the database (keyspace) that a server started here has."""
FIRST_PERIOD_MS = 100
"""How often a level that flushes periodically does, where a plan does not say."""


class Durability(enum.StrEnum):
    """What an acknowledged write has outlived by the time it is acknowledged, or will soon."""

    NONE = "none"
    """Nothing: it may be lost with the server's process, or may never have been received."""
    OS = "os"
    """The server's process: the operating system has it, the device may not."""
    PERIODIC = "periodic"
    """Nothing yet; it is flushed to the device within a set period."""
    FLUSHED = "flushed"
    """The machine: flushed to the device before it was acknowledged."""


@dataclasses.dataclass(frozen=True)
class Profile:
    """One level of durability of one database, by its settings.

    Attributes:
        name: of the level, for people (``j:true``).
        settings: of the server and of the client, by their own names; recorded with every result.
        options: what sensorstore's driver has to be told.
        survives_kill: every acknowledged write is there after the server's process was killed; what the audit holds
            the level to.
        flushes_each_write: every acknowledgement had waited for a flush of its own or of a group it was part of; what
            the counted flushes hold the level to.
        period_ms: what is acknowledged is flushed within this; None where no such promise is made, or an earlier one.
    """

    name: str
    settings: Mapping[str, str]
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)
    survives_kill: bool = False
    flushes_each_write: bool = False
    period_ms: int | None = None


@dataclasses.dataclass(frozen=True)
class Found:
    """A database that can be started here.

    Attributes:
        version: its own (``15.18``).
        source: where it came from, for people (``Debian's package``, ``virtgauge's cache``).
        paths: its programs and libraries, by names that its own class knows.
        shares: folders outside the system's own that it is started from; a guest has to see them under these paths.
    """

    version: str
    source: str
    paths: Mapping[str, Path] = dataclasses.field(default_factory=dict)
    shares: tuple[Path, ...] = ()


@dataclasses.dataclass(frozen=True)
class Missing:
    """A database that cannot be started here: why, and the command that would change it."""

    reason: str
    fix: str | None = None


@dataclasses.dataclass(frozen=True)
class Account:
    """Whom a server runs as.  One started by root gives up being root; databases refuse to be it."""

    name: str
    uid: int
    gid: int


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where one server lives.

    Attributes:
        config: a folder of the host that the guest sees under the same path; :meth:`Server.write` fills it.
        data: the data disk, as the guest sees it.  Everything that the server writes is in ``data/NAME``, which has
            to be empty or not there yet.
        address, port: where it listens, and nowhere else.
        password: of the user ``virtgauge``, where the database knows passwords.
        account: None leaves the server the user that the agent runs as, which is not root then.
        memory_mib: about what the server may use.
    """

    config: Path
    data: Path
    address: str
    port: int
    password: str
    account: Account | None = None
    memory_mib: int = 512


@dataclasses.dataclass(frozen=True)
class Server:
    """How one server is brought up.

    Attributes:
        files: its configuration, by path below ``Layout.config``.
        setup: commands to be run before its first start, in this order; the first refuses a folder that holds
            something.  A restart on the same data runs none of them.
        argv: the server.  It stays in the foreground, and its process is the one that is started: no shell in between.
        env: to be added to the environment of ``setup`` and ``argv``.
        ready_timeout_s: it serves within this on the host; a slow guest needs its factor more.
        shares: as in :class:`Found`, with ``Layout.config``.
        log: what it writes to besides standard output and error; None where it does not.
        stop_signal: ends it in order.
    """

    files: Mapping[Path, str]
    setup: Sequence[Sequence[str]]
    argv: Sequence[str]
    ready_timeout_s: float
    shares: tuple[Path, ...]
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)
    log: Path | None = None
    stop_signal: signal.Signals = signal.SIGTERM

    def write(self, account: Account | None) -> None:
        """Write the files, readable by the account alone: there may be passwords in them."""
        for path, text in self.files.items():
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            path.touch(mode=0o600)
            path.write_text(text)
            if account is not None:
                os.chown(path, account.uid, account.gid)


class Database(abc.ABC):
    """A product.  Constructed by the registry; holds no running state.

    Attributes:
        name: in plans and results (``postgresql``).
        title: for people (``PostgreSQL``).
        driver: sensorstore's.
        embedded: it has no server; sensorstore itself opens the file, inside the guest.
        memory_mib: what a guest needs for its server and sensorstore, at least.
        disk_mib: what its empty data folder needs of the data disk, with some room for rows.
        own_system_calls: its server makes them without the C library, as a program of Go does, so that its flushes are
            seen by the kernel's notifications or not at all (docs/flushes.md).
    """

    name: ClassVar[str]
    title: ClassVar[str]
    driver: ClassVar[str]
    embedded: ClassVar[bool] = False
    memory_mib: ClassVar[int] = 512
    disk_mib: ClassVar[int] = 512
    own_system_calls: ClassVar[bool] = False

    @abc.abstractmethod
    def find(self) -> Found | Missing:
        """Look for it on this machine; downloads and starts nothing."""

    @abc.abstractmethod
    def level(self, durability: Durability, period_ms: int = FIRST_PERIOD_MS) -> Profile | str:
        """The settings of a level; where it has none, why not, in words.

        Args:
            durability: the level.
            period_ms: of ``Durability.PERIODIC``; the others do not use it.
        """

    def store(self, found: Found, layout: Layout, profile: Profile) -> dict[str, Any]:
        """The ``store`` of sensorstore's specifications: by TCP; without a password, as nobody else is there."""
        return {
            "driver": self.driver,
            "address": layout.address,
            "port": layout.port,
            "options": dict(profile.options),
        }

    def server(self, found: Found, layout: Layout, profile: Profile) -> Server:
        """How to bring it up with a profile.

        Raises:
            ValueError: it is embedded.
        """
        raise ValueError(f"{self.title} has no server: sensorstore opens its file itself")

    def label(self, found: Found) -> str:
        """With the version, for people (``PostgreSQL 15.18``)."""
        return f"{self.title} {found.version}".rstrip()

    def levels(self, period_ms: int = FIRST_PERIOD_MS) -> dict[Durability, Profile | str]:
        """Every level, as :meth:`level` has it."""
        return {durability: self.level(durability, period_ms) for durability in Durability}
