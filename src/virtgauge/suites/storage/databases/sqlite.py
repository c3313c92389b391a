"""SQLite, as it is compiled into the load generator, with a write-ahead log (``journal_mode = WAL``).

- ``synchronous = FULL``: each commit flushes the log.
- ``synchronous = NORMAL``: only a checkpoint flushes; the load generator makes one every period.
- ``synchronous = OFF``: nothing is ever flushed.

A commit is in the operating system before it returns, at every level.
"""

from __future__ import annotations

from virtgauge.suites.storage.databases.base import FIRST_PERIOD_MS, Database, Durability, Found, Profile


class SQLite(Database):
    """See the module."""

    name = "sqlite"
    title = "SQLite"
    driver = "sqlite"
    embedded = True
    memory_mib = 256
    disk_mib = 256

    def find(self) -> Found:
        """It is always there: the load generator brings it, and says its version."""
        return Found("", "compiled into the load generator")

    def levels(self, period_ms: int = FIRST_PERIOD_MS) -> dict[Durability, Profile | str]:
        return {
            Durability.NONE: "every commit is at least in the operating system",
            Durability.OS: _profile("off"),
            Durability.PERIODIC: _profile("normal", period_ms),
            Durability.FLUSHED: _profile("full"),
        }


def _profile(synchronous: str, period_ms: int | None = None) -> Profile:
    options = {"synchronous": synchronous} | ({"checkpoint_ms": str(period_ms)} if period_ms else {})
    settings = {"journal_mode": "WAL"} | options
    name = f"synchronous = {synchronous.upper()}"
    each = synchronous == "full"
    return Profile(name, settings, options, survives_kill=True, flushes_each_write=each, period_ms=period_ms)
