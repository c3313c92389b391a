"""DuckDB: the library that its Python wheel holds, loaded by the load generator; Python is not involved.

Each commit flushes the write-ahead log, unless ``fsync_mode`` (since 2.0) is NONE: then a commit is in the operating
system before it returns, and nothing is ever flushed.
"""

from __future__ import annotations

from typing import Any

from virtgauge.provision.databases import DUCKDB, DUCKDB_LIBRARY
from virtgauge.suites.storage.databases.base import FIRST_PERIOD_MS, Database, Durability, Found, Layout, Profile


class DuckDB(Database):
    """See the module."""

    product = DUCKDB
    driver = "duckdb"
    embedded = True
    memory_mib = 512
    disk_mib = 256

    def levels(self, period_ms: int = FIRST_PERIOD_MS) -> dict[Durability, Profile | str]:
        return {
            Durability.NONE: "every commit is at least in the operating system",
            Durability.OS: _profile("none"),
            Durability.PERIODIC: "every commit flushes its log, or none does",
            Durability.FLUSHED: _profile("standard"),
        }

    def store(self, found: Found, layout: Layout, profile: Profile) -> dict[str, Any]:
        return super().store(found, layout, profile) | {"library": str(found.programs / DUCKDB_LIBRARY)}


def _profile(mode: str) -> Profile:
    options = {"fsync_mode": mode}
    name = f"fsync_mode = {mode.upper()}"
    return Profile(name, options, options, survives_kill=True, flushes_each_write=mode == "standard")
