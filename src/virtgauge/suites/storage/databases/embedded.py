"""The databases without a server: the load generator opens their file itself."""

from __future__ import annotations

from typing import Any

from virtgauge.provision.databases import DUCKDB, DUCKDB_LIBRARY
from virtgauge.suites.storage.databases.base import Database, Durability, Found, Instance, Levels, Profile


class SQLite(Database):
    """SQLite, as it is compiled into the load generator, with a write-ahead log (``journal_mode = WAL``).

    - ``synchronous = FULL``: each commit flushes the log.
    - ``synchronous = NORMAL``: only a checkpoint flushes; the load generator makes one every period.
    - ``synchronous = OFF``: nothing is ever flushed.

    A commit is in the operating system before it returns, at every level.
    """

    name = "sqlite"
    driver = "sqlite"
    log_files = ("*-wal", "*-shm")
    allocation_unit = 4 << 10
    log_stays = "its write-ahead log is a file beside the database's, named after it"
    embedded = True
    memory_mib = 256

    def find(self) -> Found:
        """It is always there: the load generator brings it, and says its version."""
        return Found("", "compiled into the load generator")

    def own_levels(self, period_ms: int) -> Levels:
        return {
            Durability.NONE: "every commit is at least in the operating system",
            Durability.OS: _sqlite("off"),
            Durability.PERIODIC: _sqlite("normal", checkpoint_ms=str(period_ms)),
            Durability.FLUSHED: _sqlite("full"),
        }


def _sqlite(synchronous: str, **more: str) -> Profile:
    options = {"synchronous": synchronous, **more}
    return Profile(f"synchronous = {synchronous.upper()}", {"journal_mode": "WAL"} | options, options, written=True)


class DuckDB(Database):
    """DuckDB: the library that its Python wheel holds, loaded by the load generator; Python is not involved.

    Each commit flushes the write-ahead log, unless ``fsync_mode`` (since 2.0) is NONE: then a commit is in the
    operating system before it returns, and nothing is ever flushed.
    """

    product = DUCKDB
    driver = "duckdb"
    log_files = ("*.wal",)
    allocation_unit = 256 << 10
    log_stays = "its write-ahead log is a file beside the database's, named after it"
    embedded = True

    def own_levels(self, period_ms: int) -> Levels:
        return {
            Durability.NONE: "every commit is at least in the operating system",
            Durability.OS: _duckdb("none"),
            Durability.PERIODIC: "every commit flushes its log, or none does",
            Durability.FLUSHED: _duckdb("standard"),
        }

    def store(self, at: Instance) -> dict[str, Any]:
        return super().store(at) | {"library": str(at.found.programs / DUCKDB_LIBRARY)}


def _duckdb(mode: str) -> Profile:
    options = {"fsync_mode": mode}
    return Profile(f"fsync_mode = {mode.upper()}", options, options)
