"""DuckDB: the library that its Python wheel holds, loaded by the load generator; Python is not involved.

Each commit flushes the write-ahead log, unless ``fsync_mode`` (since 2.0) is NONE: then a commit is in the operating
system before it returns, and nothing is ever flushed.
"""

from __future__ import annotations

from typing import Any

from virtgauge.provision.databases import DUCKDB, DUCKDB_LIBRARY
from virtgauge.suites.storage.databases.base import (
    FIRST_PERIOD_MS,
    Database,
    Durability,
    Found,
    Layout,
    Missing,
    Profile,
    find_cached,
)


class DuckDB(Database):
    """See the module."""

    product = DUCKDB
    driver = "duckdb"
    embedded = True
    memory_mib = 512
    disk_mib = 256

    def find(self) -> Found | Missing:
        """The library in the cache."""
        return find_cached(DUCKDB, library=DUCKDB_LIBRARY)

    def level(self, durability: Durability, period_ms: int = FIRST_PERIOD_MS) -> Profile | str:
        """See the module."""
        match durability:
            case Durability.NONE:
                return "every commit is at least in the operating system"
            case Durability.OS:
                return _profile("none")
            case Durability.PERIODIC:
                return "every commit flushes its log, or none does"
            case Durability.FLUSHED:
                return _profile("standard")

    def store(self, found: Found, layout: Layout, profile: Profile) -> dict[str, Any]:
        """A file on the data disk."""
        path = layout.data / self.name / "readings.db"
        return {
            "driver": self.driver,
            "path": str(path),
            "library": str(found.paths["library"]),
            "options": dict(profile.options),
        }


def _profile(mode: str) -> Profile:
    options = {"fsync_mode": mode}
    name = f"fsync_mode = {mode.upper()}"
    return Profile(name, options, options, survives_kill=True, flushes_each_write=mode == "standard")
