"""What a cell of the suite is measured on: which testbed, what it offers, and why a database cannot be measured here.

A server runs in the guest, on a data disk of its own, and is used from outside across a network path: the guest has
one interface, whose other end is in a namespace with a peer, the client.  An embedded database has no server: the
client runs inside the guest.  A server that is there already is used from the host.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import weakref
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

from virtgauge.host.scope import Scope
from virtgauge.specs.storage_formatting import QUERIES
from virtgauge.suites.storage.client import Held, Sensorstore, StoreError, Stream
from virtgauge.suites.storage.databases import database
from virtgauge.suites.storage.databases.base import Database, Durability, Found, Profile
from virtgauge.suites.storage.existing import ExistingServer
from virtgauge.suites.storage.server import run_well
from virtgauge.suites.storage.settings import StorageSettings
from virtgauge.suites.testbed import Stage, Testbed

EMBEDDED = "embedded"
_REST_S = 240.0  # The longest that a program may take to bring a database to rest
_NEAR_THE_LIMIT = 0.5
"""A database that comes to more than this part of the client's limit may be faster than what is seen of it."""
_client_limits: weakref.WeakKeyDictionary[Scope, dict[Hashable, float]] = weakref.WeakKeyDictionary()
"""By run, which has a scope of its own, and by what was asked where: clients outside of the guests, and their null
servers, are the host's on every platform, and what one testbed finds holds for all."""


@dataclasses.dataclass(frozen=True)
class TestbedSpec:
    """A guest with what is measured in it.  Whatever two differ in is in the name, so that designs can share one."""

    settings: StorageSettings  # of which it takes memory, processors, disk, period and time-out
    database: str | None  # whose server it runs; None where embedded databases run in it, one after the other
    durability: Durability | None = None
    flushes: str | None = None  # flush profile; None where nothing here decides about it
    commit_log: str = "same"  # disk as the data, or ``separate``: the server's commit log has one of its own
    existing: ExistingServer | None = None  # a server that is there already, in place of all that

    @property
    def name(self) -> str:
        s = self.settings
        if self.existing is not None:
            return f"storage-at-{self.existing.name}-{self.existing.uri}-{self.existing.table}-{s.timeout_ms}"
        what = EMBEDDED if self.database is None else f"{self.database}-{self.durability}"
        period = f"-{s.period_ms}ms" if self.durability is Durability.PERIODIC else ""
        guest = f"{s.disk_mib}-{s.memory_mib or 0}-{s.vcpus or 0}-{s.timeout_ms}"
        return f"storage-{what}{period}-{self.flushes}{'-log' if self.commit_log == 'separate' else ''}-{guest}"


@dataclasses.dataclass(frozen=True)
class Target:
    """One database at one level, ready for a trial."""

    label: str
    client: Sensorstore
    may_drop: bool  # a table that is there already is ours to drop
    reported: Mapping[str, Any]  # what the database says of itself: version, settings
    profile: Profile | None = None  # the level's settings; None for a server that is there already
    # the load generator in the guest, for its disk and its counters; None where there is no guest of ours
    inside: Sensorstore | None = None
    counters: Path | None = None  # of flushes, as the guest sees the file; None where nobody counts
    uncounted: str | None = None  # why nobody does, where somebody was to
    product: Database | None = None  # which it is, where it was started here
    at_rest: tuple[str, ...] = ()  # the program that brings it to rest in its files, beside the load generator
    # a folder on the disk that commits wait for: the log's, where that has one of its own; None where a profile
    # stands for the disk
    disk: Path | None = None
    files: tuple[Path, ...] = ()  # the database's own folders, which hold all that it writes; none where not seen
    # where the client notes what was acknowledged; host and client see it under the same path
    acknowledged: Path | None = None
    embedded: bool = False  # client and database are one process, in the guest
    # of a server that is there already, so that it can stand for its product: which that is, the level that its
    # settings amount to (None: not known), and why it is not shown to be on the machine (None: it is)
    existing: Mapping[str, str | None] | None = None

    @property
    def waits(self) -> bool:
        """Whether a write waits for a flush."""
        return self.profile is not None and self.profile.flushes_each_write


class StorageTestbed(Testbed, abc.ABC):
    """See the module."""

    keeps_tables = True  # A table may be there between trials: it goes with the testbed at the latest

    def __init__(self, stage: Stage, spec: TestbedSpec) -> None:
        super().__init__(stage)
        self.spec = spec
        # Which rows the table that a trial has left holds; None where there is none to be read again.
        self.kept_rows: Hashable = None
        self.has_run_in = False  # whether a server on Java has been loaded for long enough to be measured
        # where the client runs: of the same place, one calibration holds for all testbeds
        self.client_place: Hashable = "host"
        self._calibrated: set[Hashable] = set()  # what the client was asked for its limit, here
        self._server_cpus: int | None = None
        # by folders, the bytes of a database's files before there was any table, and before the one there is
        self.held: dict[tuple[Path, ...], tuple[int, int]] = {}

    async def set_up(self) -> None:
        """Launch what it consists of."""

    async def server_cpus(self) -> int | None:
        """Processors of the guest that serves; None of a server that is there already."""
        if self._server_cpus is None and self.spec.existing is None:
            count = ((await self.guest.channel.facts()).get("cpu") or {}).get("count")
            self._server_cpus = count and min(int(count), self.spec.settings.vcpus or int(count))
        return self._server_cpus

    async def note_held(self, target: Target) -> None:
        """Note what the database's files hold before a table is made."""
        if target.files:
            held = (await self.files_of(target)).data_bytes
            self.held[target.files] = self.held.get(target.files, (held, held))[0], held

    async def files_of(self, target: Target) -> Held:
        """What the files of a database hold that are seen from here."""
        assert target.inside is not None and target.product is not None
        return await target.inside.files(target.files, target.product.data_files, target.product.log_files)

    async def rest(self, target: Target) -> None:
        """Bring a database that was started here to rest in its files."""
        await target.client.rest()
        if target.at_rest:
            await run_well(self.guest.channel, "bringing the database to rest", target.at_rest, _REST_S)

    async def target(self, params: Mapping[str, Any]) -> Target:
        """The database of a cell, whose client has the cell's options.
        Raises StoreError: it cannot be measured here (``unsupported``), or did not come up.
        """
        found = await self.plain_target(params)
        store = found.client.store
        client = found.client.on({**store, "options": {**store["options"], **params["options"]}})
        return dataclasses.replace(found, client=client)

    @abc.abstractmethod
    async def plain_target(self, params: Mapping[str, Any]) -> Target:
        """The database of a cell, whose client has none of the cell's options. Raises as :meth:`target` does."""

    async def null_client(self, target: Target, data: Mapping[str, Any]) -> Sensorstore | None:
        """A client of the same driver whose server stores nothing, and answers reads from the data; None without one.
        Raises StoreError: it did not come up.
        """
        return None

    async def client_limit_per_s(
        self, target: Target, data: Mapping[str, Any], stream: Stream, seconds: float, *, reached_per_s: float = 0.0
    ) -> float | None:
        """Operations per second of the client alone, closed loop; None where it cannot be known, or takes 0 seconds.

        Measured once in a run for each place, driver, options, operation, values, clients and pipeline; and once more
        on each testbed whose database has come near to it, for it may have been found at a bad moment.
        Raises StoreError: the null server, or the client on it, failed.
        """
        if seconds <= 0:
            return None
        if stream.operation in QUERIES:  # whose answers are as long as a single read's; null servers find nothing
            stream = dataclasses.replace(stream, operation="read", values=1)
        store: Mapping[str, Any] = {"driver": "none", "options": {}} if target.embedded else target.client.store
        driver, options = store["driver"], tuple(sorted(store["options"].items()))
        key = (self.client_place, driver, options, stream.operation, stream.values, stream.clients, stream.pipeline)
        known = _client_limits.setdefault(self.stage.scope, {})
        doubted = near_the_limit(reached_per_s, known.get(key)) and key not in self._calibrated
        if key not in known or doubted:
            if (client := await self.null_client(target, data)) is not None:
                alone = dataclasses.replace(stream, loop={"kind": "closed"})
                measured = await client.measure(data, [alone], warmup_s=0.2 * seconds, seconds=seconds)
                if measured.operations_per_s and not any(one.errors for one in measured.streams):
                    known[key] = max(measured.operations_per_s, known.get(key, 0.0))
            self._calibrated.add(key)
        return known.get(key)

    async def crash(self, what: str) -> None:
        """End the server's processes, or the ``machine``, without warning.
        Raises StoreError: ``unsupported`` where that is not possible, ``lost`` where it had ended before.
        """
        raise StoreError("unsupported", "what was not started here is not crashed")

    async def restart(self, what: str) -> None:
        """Start on the same data again what :meth:`crash` has ended. Raises StoreError, LaunchError."""
        self.has_run_in = False

    async def explain(self, error: StoreError) -> StoreError:
        """A failure of the client, with what became of the server."""
        return error


def near_the_limit(operations_per_s: float, client_limit_per_s: float | None) -> bool:
    """Whether a database came so near to the client's own limit that it may be faster."""
    return client_limit_per_s is not None and operations_per_s > _NEAR_THE_LIMIT * client_limit_per_s


class NoTestbed(StorageTestbed):
    """A plain guest in place of a testbed that cannot be: every cell on it ends alike, with the failure."""

    def __init__(self, stage: Stage, spec: TestbedSpec, failure: StoreError) -> None:
        super().__init__(stage, spec)
        self._failure = failure

    def spoil(self) -> None:
        """Nothing: a fresh one would be no better, and its cells shall not wait for one each."""

    async def plain_target(self, params: Mapping[str, Any]) -> Target:
        raise StoreError(self._failure.code, self._failure.message)


@functools.cache
def found(name: str) -> Found | str:
    """Where a database is, looked for once in a run; or why it is not here and what would help, in words."""
    place = database(name).find()
    if isinstance(place, Found):
        return place
    return f"{database(name).title} is not here: {place.reason} (to enable it: {place.fix})"


def place_of(name: str) -> Found:
    """The place of a database. Raises StoreError: ``unsupported``: it is not here."""
    place = found(name)
    if isinstance(place, str):
        raise StoreError("unsupported", place)
    return place


def profile_of(name: str, durability: str, period_ms: int, commit_log: str) -> Profile:
    """The settings of a level. Raises StoreError: ``unsupported``: it has no such level, or place of its log."""
    product = database(name)
    if commit_log == "separate" and product.log_stays is not None:
        words = f"{product.title} has no commit log that can lie on a disk of its own: {product.log_stays}"
        raise StoreError("unsupported", words)
    profile = product.levels(period_ms)[Durability(durability)]
    if isinstance(profile, str):
        raise StoreError("unsupported", f"{product.title} has no level {str(durability)!r}: {profile}")
    return profile
