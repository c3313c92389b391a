"""A plan's ``[[suite.storage]]``: databases, levels of durability, operations, clients, loops, flush profiles."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from virtgauge.errors import UsageError
from virtgauge.suites.storage.databases.base import FIRST_PERIOD_MS, Durability
from virtgauge.suites.storage.databases.registry import database
from virtgauge.suites.storage.existing import ExistingServer

Operation = Literal["single-write", "single-read", "multi-write", "multi-read", "mixed", "knee", "crash"]
KneeOperation = Literal["single-write", "single-read", "multi-write", "multi-read"]
WriteMode = Literal["default", "unnest", "copy", "values", "pipelined"]
CrashOf = Literal["server", "machine"]

WRITES = ("single-write", "multi-write")
READS = ("single-read", "multi-read")
WRITE_MODES: dict[str, tuple[WriteMode, ...]] = {
    "postgresql": ("unnest", "copy", "values", "pipelined"),
    "cassandra": ("pipelined",),
}
"""Ways of writing that a database has beside its usual one; ``values`` is the paper's concatenated statement."""

_FLUSHES = re.compile(r"as-is|at-once|rotational:([1-9][0-9]{1,5})|latency:([1-9][0-9]{0,7})")
_LOOP = re.compile(r"closed|open:([0-9]+(?:\.[0-9]+)?)")
_MOST_CLIENTS = 1024


def _is_a_database(name: str) -> str:
    try:
        database(name)
    except UsageError as error:
        raise ValueError(f"{error.message}; {error.remedy}") from error
    return name


def _is_a_flush_profile(text: str) -> str:
    if not _FLUSHES.fullmatch(text):
        raise ValueError("is no flush profile; write as-is, at-once, rotational:RPM or latency:MICROSECONDS")
    return text


def _is_a_loop(text: str) -> str:
    found = _LOOP.fullmatch(text)
    if found is None or (found[1] is not None and not float(found[1]) > 0):
        raise ValueError("is no loop; write closed, or open:RATE with operations per second above 0")
    return text


def _differ(values: Sequence[object]) -> Sequence[object]:
    twice = [value for value in values if values.count(value) > 1]
    if twice:
        raise ValueError(f"{twice[0]!r} is named twice; name it once")
    return values


Database = Annotated[str, AfterValidator(_is_a_database)]
FlushProfile = Annotated[str, AfterValidator(_is_a_flush_profile)]
Loop = Annotated[str, AfterValidator(_is_a_loop)]
_Levels = Field(min_length=1)


class MixedLoad(BaseModel):
    """Fig. 1 of the paper: sensors write single values steadily, analyses read many at once in bursts."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    writes_per_s: Annotated[float, Field(gt=0, le=10**7)] = 200.0
    """Of all writing clients together, whatever becomes of those before (open loop)."""
    arrivals: Literal["even", "poisson"] = "poisson"
    burst_every_ms: Annotated[int, Field(ge=1, le=3_600_000)] = 500
    burst_reads: Annotated[int, Field(ge=1, le=100_000)] = 10
    """Statements of a burst; each reads ``values`` readings."""
    readers: Annotated[int, Field(ge=1, le=_MOST_CLIENTS)] = 1
    """Clients that share a burst."""


class StorageSettings(BaseModel):
    """One design: databases × durability × flush profiles × operations × clients × index × loops × write modes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    databases: Annotated[tuple[Database, ...], AfterValidator(_differ)] = ("sqlite", "duckdb")
    """Started by virtgauge in every guest; embedded ones run inside it."""
    server: tuple[ExistingServer, ...] = ()
    """Servers that are there already, measured from the host only."""
    durability: Annotated[tuple[Durability, ...], _Levels, AfterValidator(_differ)] = (Durability.FLUSHED,)
    period_ms: Annotated[int, Field(ge=1, le=600_000)] = FIRST_PERIOD_MS
    """Of the level ``periodic``."""
    flushes: Annotated[tuple[FlushProfile, ...], _Levels, AfterValidator(_differ)] = ("as-is",)
    """What a flush costs: as the disk has it, or another device's in its place."""

    operations: Annotated[tuple[Operation, ...], _Levels, AfterValidator(_differ)] = (
        "single-write",
        "single-read",
        "multi-write",
        "multi-read",
    )
    clients: Annotated[tuple[Annotated[int, Field(ge=1, le=_MOST_CLIENTS)], ...], _Levels, AfterValidator(_differ)] = (
        1,
    )
    index: Annotated[tuple[bool, ...], _Levels, AfterValidator(_differ)] = (True,)
    """On (sensor, timestamp)."""
    loops: Annotated[tuple[Loop, ...], _Levels, AfterValidator(_differ)] = ("closed",)
    """``closed``: each client waits for its answer; ``open:RATE``: so many a second, whatever becomes of others."""
    write_modes: Annotated[tuple[WriteMode, ...], _Levels, AfterValidator(_differ)] = ("default",)
    """How readings are handed over; a database that does not have a mode is left out of it."""
    pipeline: Annotated[int, Field(ge=2, le=4096)] = 32
    """Statements under way at once in the write mode ``pipelined``."""
    values: Annotated[int, Field(ge=2, le=100_000)] = 1000
    """Readings in a statement of a multi-write or multi-read."""
    preload: Annotated[int, Field(ge=1, le=10**8)] = 10_000
    """Readings of every sensor that a read finds."""
    sensors: Annotated[int, Field(ge=1, le=100_000)] = 16
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    """Of the data; every trial stores the same."""

    seconds: Annotated[float, Field(ge=0.05, le=3600)] = 5.0
    """Measured of each trial."""
    warmup_s: Annotated[float, Field(ge=0, le=600)] = 0.5
    calibration_s: Annotated[float, Field(ge=0, le=60)] = 0.5
    """Measured against a server that stores nothing, to know the client's own limit; 0 leaves that out."""
    disk_probe_s: Annotated[float, Field(ge=0.01, le=60)] = 0.2
    """Flushing an otherwise idle disk, before and after every trial."""
    timeout_ms: Annotated[int, Field(ge=10, le=600_000)] = 10_000
    """An operation that takes longer has failed."""

    mixed: MixedLoad = MixedLoad()
    knee_of: Annotated[tuple[KneeOperation, ...], _Levels, AfterValidator(_differ)] = ("single-write",)
    """Whose highest rate the operation ``knee`` searches."""
    objective_ms: Annotated[float, Field(gt=0, le=600_000)] = 20.0
    """The knee is the highest rate at which 99 % of the responses take no longer."""
    knee_steps: Annotated[int, Field(ge=2, le=20)] = 7
    crash: Annotated[tuple[CrashOf, ...], _Levels, AfterValidator(_differ)] = ("server",)
    """What is ended without warning while it writes: the server's processes, or the whole machine."""
    crash_after_s: Annotated[float, Field(ge=0.05, le=600)] = 1.0

    disk_mib: Annotated[int, Field(ge=64, le=1_048_576)] = 2048
    """Size of the data disk; its image takes only what is written."""
    memory_mib: Annotated[int, Field(ge=64)] | None = None
    """Of each guest; None: what the database needs, where a guest has memory of its own."""
    vcpus: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Of each guest; None leaves the platform's own default."""

    @model_validator(mode="after")
    def _fits_together(self) -> StorageSettings:
        if not self.databases and not self.server:
            raise ValueError("databases is empty: choose at least one, or name a server")
        names = [server.name for server in self.server]
        if len(set(names)) < len(names):
            raise ValueError("server: two have the same name; give each a `name` of its own")
        if self.sensors < max(self.clients):
            raise ValueError(
                f"sensors = {self.sensors}: each client writes a sensor of its own; "
                f"make it at least clients = {max(self.clients)}"
            )
        self._check_values()
        self._check_write_modes()
        self._check_loops()
        self._check_crashes()
        return self

    def _check_values(self) -> None:
        reads_many = {"multi-read", "mixed"} & set(self.operations)
        if "knee" in self.operations and "multi-read" in self.knee_of:
            reads_many.add("knee")
        if reads_many and self.preload < self.values:
            raise ValueError(
                f"preload = {self.preload}: {min(reads_many)} reads values = {self.values} readings of a sensor; "
                "preload at least as many"
            )
        if "knee" not in self.operations and "knee_of" in self.model_fields_set:
            raise ValueError('knee_of is given, but operations has no "knee"; add it, or leave knee_of out')
        if "crash" not in self.operations and "crash" in self.model_fields_set:
            raise ValueError('crash is given, but operations has no "crash"; add it, or leave crash out')

    def _check_write_modes(self) -> None:
        for mode in self.write_modes:
            having = [name for name, modes in WRITE_MODES.items() if mode in modes]
            if mode != "default" and not set(having) & {*self.databases, *(one.database for one in self.server)}:
                raise ValueError(
                    f"write_modes: none of the databases has {mode!r}; add {' or '.join(having)}, or leave it out"
                )
            needed = WRITES if mode == "pipelined" else ("multi-write",)
            if mode != "default" and not set(needed) & set(self.operations):
                raise ValueError(f"write_modes: {mode!r} needs one of the operations {', '.join(needed)}")

    def _check_loops(self) -> None:
        plain = set(self.operations) & {*WRITES, *READS}
        if self.loops != ("closed",) and not plain:
            raise ValueError("loops: mixed, knee and crash have loops of their own; leave it out")

    def _check_crashes(self) -> None:
        if "crash" not in self.operations:
            return
        if not self.databases:
            raise ValueError('operations: "crash" ends a server, and never one that was not started here; leave it out')
        modelled = [profile for profile in self.flushes if profile != "as-is"]
        if "machine" in self.crash and modelled:
            raise ValueError(
                f"flushes: {modelled[0]} stands for a device and flushes nothing, so that a machine's crash "
                'would show the profile and not the database; use "as-is", or crash = ["server"]'
            )

    def write_modes_of(self, database_name: str, operation: str) -> list[WriteMode]:
        """The modes of the design that a database has for an operation."""
        if operation not in WRITES:
            return ["default"]
        own = WRITE_MODES.get(database_name, ())
        return [
            mode
            for mode in self.write_modes
            if mode == "default" or (mode in own and (mode == "pipelined" or operation == "multi-write"))
        ]
