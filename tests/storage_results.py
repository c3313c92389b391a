"""Ledgers of storage runs that never happened, with a known truth: for the tests of the report.

A simple model of a database: an operation needs CPU at the server and the client, a round trip, and at its level of
durability a flush; clients share a flush, up to a group; rates follow from that, so that every cause is known.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from synthetic import STARTED, arm_record, hdr_bins, manifest

from virtgauge.analysis.resources import flush_limit_per_s
from virtgauge.ledger.records import ArmRecord, Flag, GuestRecord, TrialRecord, TrialStatus
from virtgauge.ledger.store import Ledger

VALUES = 1000
DISK_PER_S = 2000.0
KNEE_SHARE = 0.9
SETTINGS = {
    ("postgresql", "flushed"): {"synchronous_commit": "on", "fsync": "on"},
    ("postgresql", "periodic"): {"synchronous_commit": "off", "wal_writer_delay": "100ms"},
    ("postgresql", "os"): {"synchronous_commit": "on", "fsync": "off"},
    ("mongodb", "flushed"): {"write_concern": "j:true"},
    ("mongodb", "periodic"): {"write_concern": "w:1", "storage.journal.commitIntervalMs": "100"},
    ("mongodb", "none"): {"write_concern": "w:0"},
    ("cassandra", "flushed"): {"commitlog_sync": "batch"},
    ("cassandra", "periodic"): {"commitlog_sync": "periodic", "commitlog_sync_period": "100ms"},
    ("cassandra", "none"): {"durable_writes": "false"},
    ("sqlite", "flushed"): {"journal_mode": "WAL", "synchronous": "FULL"},
    ("sqlite", "os"): {"journal_mode": "WAL", "synchronous": "OFF"},
}
VERSIONS = {
    "postgresql": "PostgreSQL 15.18",
    "mongodb": "MongoDB 6.0.5",
    "cassandra": "Cassandra 5.0.6",
    "sqlite": "SQLite 3.46.1",
}


@dataclasses.dataclass(frozen=True)
class Truth:
    """A database's costs, in microseconds of one single operation; many values cost ``per_row_us`` more a row."""

    server_us: float
    client_us: float
    trip_us: float
    per_row_us: float = 1.0
    client_limit_per_s: float = 60_000.0
    # what is counted instead of an operation's CPU time at the server, by the number of clients
    counted_us: Mapping[int, float] = dataclasses.field(default_factory=dict)


TRUTHS = {
    "postgresql": Truth(60, 12, 60, 3.0),
    "mongodb": Truth(35, 8, 50, 2.0),
    "cassandra": Truth(110, 15, 90, 2.5),
    "sqlite": Truth(9, 2, 0.5, 0.8),
}


@dataclasses.dataclass(frozen=True)
class StorageArm:
    """An arm and its truth: what its CPU and its round trips are multiplied with."""

    record: ArmRecord
    cpu: float = 1.0
    trip: float = 1.0


@dataclasses.dataclass(frozen=True)
class Design:
    """One ``[[suite.storage]]``."""

    databases: Sequence[str] = ("postgresql", "mongodb", "cassandra")
    levels: Sequence[str] = ("flushed", "periodic", "none")
    flushes: str = "as-is"
    operations: Sequence[str] = ("single-write", "single-read", "multi-write", "multi-read")
    clients: Sequence[int] = (1, 16)
    index: Sequence[bool] = (True,)
    loops: Sequence[str] = ("closed",)
    crashes: Sequence[str] = ()
    arm: str = ""  # that alone has it
    existing: Mapping[str, Any] | None = None  # what results tell of servers that were there already, where they were


def storage_arms() -> list[StorageArm]:
    """The host with its A/A arm, a container, gVisor, and an emulated virtual machine."""
    emulated = arm_record("qemu", "qemu", "QEMU q35 (tcg)", emulated=True)
    return [
        StorageArm(arm_record("host", "host", "Host", "reference")),
        StorageArm(arm_record("host-aa", "host", "Host (A/A)", "aa")),
        StorageArm(arm_record("runc", "oci", "Container (runc)"), 1.03, 1.05),
        StorageArm(arm_record("gvisor", "oci", "gVisor (runsc, systrap)"), 1.8, 4.0),
        StorageArm(emulated, 14.0, 9.0),
    ]


def hardware_vm(cpu: float = 1.05, trip: float = 1.6) -> StorageArm:
    """A virtual machine whose processor is not simulated."""
    return StorageArm(arm_record("kvm", "qemu", "QEMU q35 (kvm)"), cpu, trip)


def storage_ledger(
    folder: Path,
    arms: Sequence[StorageArm] | None = None,
    designs: Sequence[Design] = (Design(),),
    *,
    blocks: int = 6,
    spread: float = 0.01,
    truths: Mapping[str, Truth] | None = None,
    fields: Mapping[str, Any] | None = None,
    flags: Sequence[Flag] = (),
) -> Ledger:
    """Write a run of which the truth is known.

    Args:
        folder: of the run.
        arms: with their truths; :func:`storage_arms` when not given.
        designs: of the plan.
        blocks: independent repetitions.
        spread: log standard deviation of a repetition's rates.
        truths: of databases, instead of those above.
        fields: of every result, to set.
        flags: of every trial; a fatal one makes it invalid.
    """
    random = np.random.default_rng(1)
    arms = storage_arms() if arms is None else arms
    ledger = Ledger.create(folder, manifest([arm.record for arm in arms]))
    writer = _Writer(ledger, random, TRUTHS | dict(truths or {}), dict(fields or {}), tuple(flags), spread)
    for block in range(blocks):
        for arm in (arm for arm in arms if arm.record.usable):
            facts = {"kernel": {"release": "6.1.0-44-amd64"}, "cpu": {"count": 2}}
            ledger.put_guest(
                GuestRecord(
                    arm=arm.record.name,
                    platform=arm.record.kind,
                    block=block,
                    launched_at=STARTED,
                    ready_ns=40_000_000,
                    facts=facts,
                )
            )
            for design in (one for one in designs if one.arm in ("", arm.record.name)):
                writer.write(arm, design, block)
    ledger.add_event("completed", "")
    return ledger


class _Writer:
    def __init__(
        self,
        ledger: Ledger,
        random: np.random.Generator,
        truths: Mapping[str, Truth],
        fields: dict[str, Any],
        flags: tuple[Flag, ...],
        spread: float,
    ) -> None:
        self._ledger, self._random, self._truths = ledger, random, truths
        self._fields, self._flags, self._spread = fields, flags, spread

    def write(self, arm: StorageArm, design: Design, block: int) -> None:
        """Every cell of a design."""
        for database in design.databases:
            for level in design.levels:
                if (database, level) not in SETTINGS:
                    self._unsupported(arm, design, database, level, block)
                    continue
                for operation in (name for name in design.operations if name not in ("knee", "mixed")):
                    for clients in design.clients:
                        for index in design.index:
                            for loop in design.loops:
                                factors = _factors(database, level, design.flushes, operation, clients, index, loop)
                                self._measured(arm, factors, block, design.existing)
                if "knee" in design.operations:
                    self._knee(arm, _factors(database, level, design.flushes, "knee", 1, True, "search"), block)
                if "mixed" in design.operations:
                    self._mixed(arm, _factors(database, level, design.flushes, "mixed", 1, True, "mixed"), block)
                for of in design.crashes:
                    self._crash(arm, design, database, level, of, block)

    def _measured(
        self, arm: StorageArm, factors: dict[str, str], block: int, existing: Mapping[str, Any] | None
    ) -> None:
        factor = float(np.exp(self._spread * self._random.standard_normal()))
        result, service_ns = rates(self._truths[factors["database"]], arm, factors, factor)
        shape = self._random.lognormal(0, 0.25, 4000)
        service = shape / shape.mean() * service_ns
        histograms = {"service": hdr_bins((service * 1000).astype(np.int64))}
        if factors["loop"] != "closed":
            offered = float(factors["loop"].partition(":")[2])
            busy = min(offered / (1e9 / service_ns * int(factors["clients"])), 0.999)
            response = service * (1 + busy / (1 - busy))
            histograms["response"] = hdr_bins((response * 1000).astype(np.int64))
        if existing is not None:
            product, settings = factors["database"], dict.fromkeys(("durability", "flushes"), "as-configured")
            factors = factors | {"database": f"{product}.{arm.record.name}", **settings}
            result["existing"] = {"database": product, "elsewhere": None, **existing}
        self._add(arm.record, factors, block, result, histograms)

    def _crash(self, arm: StorageArm, design: Design, database: str, level: str, of: str, block: int) -> None:
        lost = {"none": 900, "periodic": 120}.get(level, 0)
        lost = lost if level == "none" or (level == "periodic" and of == "machine") else 0
        told = {
            "acknowledged_rows": 12_000,
            "missing_rows": lost,
            "wrong_rows": 0,
            "newest_lost_ms": 3.5 if lost else None,
            "recovery_ns": 250_000_000,
            "settings": SETTINGS[database, level],
        }
        factors = _factors(database, level, design.flushes, "crash", 1, True, "closed") | {"crash": of}
        self._add(arm.record, factors, block, told, {})

    def _knee(self, arm: StorageArm, factors: dict[str, str], block: int) -> None:
        """The response grows as in a queue of one server; the objective is met up to 90 % of what it can do."""
        alike = factors | {"operation": "single-write", "loop": "closed"}
        told, service_ns = rates(self._truths[factors["database"]], arm, alike, 1.0)
        most = told["operations_per_s"]
        steps = [
            {
                "rate_per_s": share * most,
                "achieved_per_s": share * most,
                "p50_ms": service_ns / 1e6 / (1 - share),
                "p99_ms": 3 * service_ns / 1e6 / (1 - share),
                "p999_ms": 5 * service_ns / 1e6 / (1 - share),
                "met": share <= KNEE_SHARE,
            }
            for share in (0.1, 0.3, 0.6, 0.8, KNEE_SHARE, 0.97)
        ]
        result = {
            "knee_per_s": KNEE_SHARE * most,
            "objective_ms": 3 * service_ns / 1e6 / (1 - KNEE_SHARE),
            "steps": steps,
            "database": told["database"],
            "settings": told["settings"],
        }
        self._add(arm.record, factors | {"of": "single-write"}, block, result, {})

    def _mixed(self, arm: StorageArm, factors: dict[str, str], block: int) -> None:
        histograms = {}
        told: dict[str, Any] = {}
        for name in ("write", "read"):
            alike = factors | {"operation": f"{'single' if name == 'write' else 'multi'}-{name}", "loop": "closed"}
            told, service_ns = rates(self._truths[factors["database"]], arm, alike, 1.0)
            service = self._random.lognormal(0, 0.25, 4000) * service_ns
            histograms[f"service/{name}"] = hdr_bins((service * 1000).astype(np.int64))
            histograms[f"response/{name}"] = hdr_bins((service * 2500).astype(np.int64))
        self._add(arm.record, factors, block, {"database": told["database"], "settings": told["settings"]}, histograms)

    def _unsupported(self, arm: StorageArm, design: Design, database: str, level: str, block: int) -> None:
        factors = _factors(database, level, design.flushes, design.operations[0], 1, True, "closed")
        reason = f"{VERSIONS[database]} has no level “{level}”"
        self._add(arm.record, factors, block, {}, {}, TrialStatus.UNSUPPORTED, reason)

    def _add(
        self,
        arm: ArmRecord,
        factors: dict[str, str],
        block: int,
        result: dict[str, Any],
        histograms: dict[str, Any],
        status: TrialStatus | None = None,
        error: str | None = None,
    ) -> None:
        fatal = any(flag.fatal for flag in self._flags)
        limited = result.get("operations_per_s", 0) > 0.5 * result.get("client_limit_per_s", 1e12)
        own = (Flag("client-limited", "beyond half of the client's limit", fatal=False),) if limited else ()
        levels = ",".join(f"{factor}={level}" for factor, level in factors.items())
        record = TrialRecord(
            trial_id=0,
            key=f"b{block}/{arm.name}/storage/{levels}",
            suite="storage",
            probe=operation if (operation := factors["operation"]) in ("knee", "mixed", "crash") else "operations",
            arm=arm.name,
            platform=arm.kind,
            block=block,
            attempt=1,
            factors=factors,
            status=status or (TrialStatus.INVALID if fatal else TrialStatus.VALID),
            flags=() if status else (*self._flags, *own),
            result=result | self._fields if status is None else {},
            accounting={},
            error=error,
            guest_id=None,
            started_at=STARTED,
            elapsed_ns=1_000_000_000,
        )
        self._ledger.add_trial(record, histograms, {})


def rates(truth: Truth, arm: StorageArm, factors: Mapping[str, str], factor: float) -> tuple[dict[str, Any], float]:
    """What the suite says of one trial, and the mean service time in ns; ``factor`` is the repetition's own."""
    operation, clients = factors["operation"], int(factors["clients"])
    rows = VALUES if operation.startswith("multi") else 1
    writes, level = operation.endswith("write"), factors["durability"]
    scan = 1.0 if factors["index"] == "yes" or writes else 40.0
    server_us = (truth.server_us + (rows - 1) * truth.per_row_us) * arm.cpu * scan
    client_us = (truth.client_us + (rows - 1) * truth.per_row_us / 4) * arm.cpu
    trip_us = truth.trip_us * arm.trip
    device = flush_limit_per_s(factors["flushes"], DISK_PER_S)
    sends_only = SETTINGS[factors["database"], level].get("write_concern") == "w:0" and writes
    flushes = writes and level == "flushed"
    wait_us = 1e6 / device if flushes and device else 0.0
    busy_us = server_us + client_us + trip_us
    if sends_only:
        per_s = 1e6 / (client_us + 20)
    elif wait_us:
        # A turn of the disk is waited for whole; clients that come meanwhile share the next one.
        turns = max(1.0, np.ceil(busy_us / wait_us)) if factors["flushes"].startswith("rotational") else 1.0
        cycle_us = turns * wait_us if factors["flushes"].startswith("rotational") else wait_us + busy_us
        per_s = min(clients * 1e6 / cycle_us, 2e6 / server_us)
    else:
        per_s = min(clients * 1e6 / busy_us, 2e6 / server_us)
    per_s = min(per_s, truth.client_limit_per_s) / factor
    per_flush = 0.0 if not writes or not wait_us else 1 / (clients if clients > 1 else 1)
    limit = truth.client_limit_per_s / (rows**0.5)
    return {
        "operations_per_s": per_s,
        "rows_per_s": per_s * rows,
        "operations": round(per_s),
        "elapsed_ns": 1_000_000_000,
        "client_cpu_ns_per_operation": client_us * 1e3,
        "server_cpu_ns_per_operation": truth.counted_us.get(clients, server_us) * 1e3,
        "flushes_per_operation": per_flush,
        "flushes": round(per_s * per_flush),
        "mean_flush_ns": wait_us * 1e3 * factor if per_flush else None,
        "disk_before_per_s": DISK_PER_S * factor,
        "disk_after_per_s": DISK_PER_S,
        "client_limit_per_s": limit,
        "database": VERSIONS[factors["database"]],
        "settings": SETTINGS[factors["database"], level],
    }, clients / per_s * 1e9


def _factors(
    database: str, level: str, flushes: str, operation: str, clients: int, index: bool, loop: str
) -> dict[str, str]:
    return {
        "database": database,
        "durability": level,
        "flushes": flushes,
        "operation": operation,
        "clients": str(clients),
        "values": str(VALUES if operation.startswith("multi") else 1),
        "index": "yes" if index else "no",
        "loop": loop,
        "write_mode": "default",
    }
