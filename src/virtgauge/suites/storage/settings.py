"""A plan's ``[[suite.storage]]``: databases, levels of durability, operations, clients, loops, flush profiles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from virtgauge.errors import UsageError
from virtgauge.plan import Section, written_as
from virtgauge.specs.storage_formatting import QUERIES, WRITES
from virtgauge.suites.base import Distinct, Levels
from virtgauge.suites.storage.databases import DATABASES, database
from virtgauge.suites.storage.databases.base import FIRST_PERIOD_MS, Durability
from virtgauge.suites.storage.existing import ExistingServer

Operation = Literal[
    "single-write", "single-read", "multi-write", "multi-read", "last-value", "window", "mixed", "knee", "crash"
]
WriteMode = Literal["default", "unnest", "copy", "values", "pipelined"]

READS = ("single-read", "multi-read", *QUERIES)

_MOST_CLIENTS = 1024


def _is_a_database(name: str) -> str:
    try:
        database(name)
    except UsageError as error:
        raise ValueError(f"{error.message}; {error.remedy}") from error
    return name


Database = Annotated[str, AfterValidator(_is_a_database), Field(json_schema_extra={"enum": [*DATABASES]})]
_FLUSHES = r"as-is|at-once|rotational:[1-9][0-9]{1,5}|(rotational-seek:[1-9][0-9]{1,5}|latency):[1-9][0-9]{0,7}"
_FLUSHES_WORDS = "write as-is, at-once, rotational:RPM, rotational-seek:RPM:MICROSECONDS or latency:MICROSECONDS"
_LOOP_WORDS = "is no loop; write closed, or open:RATE with operations per second above 0"
FlushProfile = Annotated[str, written_as(_FLUSHES, f"is no flush profile; {_FLUSHES_WORDS}")]
Loop = Annotated[str, written_as(r"closed|open:(?=.*[1-9])[0-9]+(\.[0-9]+)?", _LOOP_WORDS)]


class MixedLoad(Section):
    """The operation ``mixed`` (the paper's Fig. 1): steady writes of single values, and bursts of large reads."""

    writes_per_s: Annotated[float, Field(gt=0, le=10**7)] = 200.0
    """Rate of all writing clients together (open loop)."""
    arrivals: Literal["even", "poisson"] = "poisson"
    """Gaps between writes: constant, or exponential."""
    burst_every_ms: Annotated[int, Field(ge=1, le=3_600_000)] = 500
    """From one burst of reads to the next."""
    burst_reads: Annotated[int, Field(ge=1, le=100_000)] = 10
    """Statements of a burst; each reads ``values`` readings."""
    readers: Annotated[int, Field(ge=1, le=_MOST_CLIENTS)] = 1
    """Clients that share a burst."""


class StorageSettings(Section):
    """One design: databases × durability × flush profiles × operations × clients × index × loops × write modes."""

    databases: Distinct[Database] = ("sqlite", "duckdb")
    """Databases that virtgauge starts in every guest. Embedded ones run inside the guest's load generator."""
    server: tuple[ExistingServer, ...] = ()
    """Servers that run already, on the host or on an attached machine."""
    durability: Levels[Durability] = (Durability.FLUSHED,)
    """What an acknowledged write has survived; see [storage.md](storage.md#levels-of-durability)."""
    period_ms: Annotated[int, Field(ge=1, le=600_000)] = FIRST_PERIOD_MS
    """Flush period of the level ``periodic``."""
    flushes: Levels[FlushProfile] = ("as-is",)
    """What a flush costs: ``as-is``, ``at-once``, ``rotational:RPM`` (without seeks),
    ``rotational-seek:RPM:MICROSECONDS`` or ``latency:MICROSECONDS``; see [flushes.md](flushes.md)."""

    commit_log: Levels[Literal["same", "separate"]] = ("same",)
    """Where the commit log (write-ahead log, redo log, journal) lies: on the ``same`` disk as the data, or on a
    ``separate`` one of the same size, with the same flush profile; see
    [storage.md](storage.md#a-disk-for-the-commit-log)."""

    operations: Levels[Operation] = ("single-write", "single-read", "multi-write", "multi-read")
    """What is measured; see [storage.md](storage.md#what-is-measured)."""
    clients: Levels[Annotated[int, Field(ge=1, le=_MOST_CLIENTS)]] = (1,)
    """Concurrent clients."""
    index: Levels[bool] = (True,)
    """Whether the table has an index on (sensor, timestamp)."""
    loops: Levels[Loop] = ("closed",)
    """``closed``: each client waits for its answer. ``open:RATE``: that many operations a second, whether or not
    earlier ones are answered."""
    write_modes: Levels[WriteMode] = ("default",)
    """How readings are handed over: postgresql has unnest, copy, values and pipelined, mariadb values
    and pipelined, cassandra pipelined."""
    pipeline: Annotated[int, Field(ge=2, le=4096)] = 32
    """Statements in flight in the write mode ``pipelined``."""
    values: Annotated[int, Field(ge=2, le=100_000)] = 1000
    """Readings in a statement of a multi-write or multi-read."""
    preload: Annotated[int, Field(ge=1, le=10**8)] = 10_000
    """Readings of every sensor that reads find."""
    sensors: Annotated[int, Field(ge=1, le=100_000)] = 16
    """Number of sensors; at least as many as clients."""
    late_share: Levels[Annotated[float, Field(ge=0, le=0.5)]] = (0.0,)
    """Share of the readings that arrive after younger ones of their sensor, in runs at random by ``seed``; writes and
    the preload are so ordered."""
    late_run: Annotated[int, Field(ge=1, le=1_000_000)] = 600
    """Successive readings of a sensor that are late together, as those of an outage; there is one such run in each
    ``late_run / late_share`` readings, so that a trial needs twice as many of a sensor (24,000 for 0.05 and 600) to
    hold at least half of the share, more where ``late_by`` is more than that; one that holds less does not count."""
    late_by: Annotated[int, Field(ge=1, le=1_000_000)] = 2000
    """A late run arrives behind so many readings that follow it of its sensor, but for those that are late as well. Up
    to ``values``, some are in the same statement as younger ones, where a database can sort them."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    """Of the generated data; every trial stores the same."""

    seconds: Annotated[float, Field(ge=0.05, le=3600)] = 5.0
    """Measured time of each trial; it is lengthened, by a minute at most, until each client of a closed loop has had
    eight answers."""
    warmup_s: Annotated[float, Field(ge=0, le=600)] = 0.5
    """Time before that which is not measured."""
    calibration_s: Annotated[float, Field(ge=0, le=60)] = 0.5
    """Time against a server that stores nothing, to find the client's own limit; 0 skips it."""
    disk_probe_s: Annotated[float, Field(ge=0.01, le=60)] = 0.2
    """Time of each flush probe of the idle disk, before and after every trial."""
    timeout_ms: Annotated[int, Field(ge=10, le=600_000)] = 10_000
    """An operation that takes longer has failed."""

    mixed: MixedLoad = MixedLoad()
    """Settings of the operation ``mixed``."""
    knee_of: Levels[Literal["single-write", "single-read", "multi-write", "multi-read"]] = ("single-write",)
    """Operations whose highest rate ``knee`` searches."""
    objective_ms: Annotated[float, Field(gt=0, le=600_000)] = 20.0
    """The knee is the highest rate at which 99 % of the responses take no longer."""
    knee_steps: Annotated[int, Field(ge=2, le=20)] = 7
    """Rates that the search for the knee tries."""
    crash: Levels[Literal["server", "machine"]] = ("server",)
    """What ``crash`` ends without warning while it writes: the server's processes, or the whole machine."""
    crash_after_s: Annotated[float, Field(ge=0.05, le=600)] = 1.0
    """Time from the first write to the crash."""

    disk_mib: Annotated[int, Field(ge=64, le=1_048_576)] = 2048
    """Size of the data disk. Its image takes only what is written."""
    memory_mib: Annotated[int, Field(ge=64)] | None = None
    """Memory of each guest; what the database needs by default."""
    vcpus: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Processors of each guest; the platform's own default if left out."""

    def _problems(self) -> Iterator[str]:
        if not self.databases and not self.server:
            yield "databases is empty: choose at least one, or name a server"
        names = [server.name for server in self.server]
        if len(set(names)) < len(names):
            yield "server: two have the same name; give each its own `name`"
        if self.sensors < max(self.clients):
            yield (
                f"sensors = {self.sensors}: each client writes a sensor of its own; "
                f"make it at least clients = {max(self.clients)}"
            )
        reads_many = {"multi-read", "window", "mixed"} & set(self.operations)
        if "knee" in self.operations and "multi-read" in self.knee_of:
            reads_many.add("knee")
        if reads_many and self.preload < self.values:
            yield (
                f"preload = {self.preload}: {min(reads_many)} reads values = {self.values} readings of a sensor; "
                "preload at least as many"
            )
        for key in ("late_by", "late_run"):
            if key in self.model_fields_set and not any(self.late_share):
                yield f"{key} is given, but no reading is late; add late_share = [0, 0.05], or leave {key} out"
        if "knee" not in self.operations and "knee_of" in self.model_fields_set:
            yield 'knee_of is given, but operations has no "knee"; add it, or leave knee_of out'
        if "crash" not in self.operations and "crash" in self.model_fields_set:
            yield 'crash is given, but operations has no "crash"; add it, or leave crash out'
        able = [name for name, product in DATABASES.items() if product.log_stays is None]
        if "separate" in self.commit_log and not set(able) & set(self.databases):
            yield (
                "commit_log: none of the databases that are started here can have its log on a separate disk; "
                f"add one of {', '.join(able)}, or leave it out"
            )
        for mode in self.write_modes:
            having = [name for name, product in DATABASES.items() if mode in product.write_modes]
            if mode != "default" and not set(having) & {*self.databases, *(one.database for one in self.server)}:
                yield f"write_modes: none of the databases has {mode!r}; add {' or '.join(having)}, or leave it out"
            needed = WRITES if mode == "pipelined" else ("multi-write",)
            if mode != "default" and not set(needed) & set(self.operations):
                yield f"write_modes: {mode!r} needs one of the operations {', '.join(needed)}"
        if self.loops != ("closed",) and not (set(self.operations) & {*WRITES, *READS}):
            yield "loops: mixed, knee and crash have loops of their own; leave it out"
        if "crash" not in self.operations:
            return
        if not self.databases:
            yield 'operations: "crash" ends a server, and never one that was not started here; leave it out'
        modelled = [profile for profile in self.flushes if profile != "as-is"]
        if "machine" in self.crash and modelled:
            yield (
                f"flushes: {modelled[0]} replaces the device and flushes nothing, so that a machine's crash "
                'would show the profile and not the database; use "as-is", or crash = ["server"]'
            )

    def write_modes_of(self, database_name: str, operation: str) -> list[WriteMode]:
        """The modes of the design that a database has for an operation."""
        if operation not in WRITES:
            return ["default"]
        own = database(database_name).write_modes
        return [
            mode
            for mode in self.write_modes
            if mode == "default" or (mode in own and (mode == "pipelined" or operation == "multi-write"))
        ]
