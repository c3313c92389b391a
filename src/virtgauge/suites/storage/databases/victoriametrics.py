"""VictoriaMetrics 1.79, single node, as the distribution packages it: unpacked in the cache, not installed.

It has no write-ahead log: what is acknowledged is in memory.  Once a second it is made into a part, still in memory,
and every five seconds the parts that are five seconds old are written to files and flushed (lib/storage/partition.go).
So a kill -9 loses up to eleven seconds of what was acknowledged; seven were seen.  Nothing of that can be set.  The
promise of a period of eleven seconds is kept, and for a shorter one there is no level but none.
"""

from __future__ import annotations

from pathlib import Path

from virtgauge.provision.databases import VICTORIAMETRICS
from virtgauge.suites.storage.databases.base import Database, Durability, Instance, Levels, Profile, Server

_PERIOD_MS = 11_000  # Everything is flushed within this


class VictoriaMetrics(Database):
    """See the module."""

    product = VICTORIAMETRICS
    driver = "victoriametrics"
    log_stays = "it has none: what is acknowledged is in memory"
    data_files = ("data", "indexdb")
    allocation_unit = 64 << 10  # a part's files, and those of the index's
    schemes = ("http", "victoriametrics")
    port = 8428
    null_protocol = "http"
    own_system_calls = True

    def own_levels(self, period_ms: int) -> Levels:
        settings = {"flush period": f"{_PERIOD_MS} ms, its own; it cannot be set"}
        periodic: Profile | str = Profile("flushed in the background", settings)
        if period_ms < _PERIOD_MS:
            periodic = f"it flushes within {_PERIOD_MS} ms, which cannot be set, and not within {period_ms}"
        neither = "it keeps writes in memory, and flushes them in the background only"
        return {
            Durability.NONE: Profile("in memory", settings),
            Durability.OS: neither,
            Durability.PERIODIC: periodic,
            Durability.FLUSHED: neither,
        }

    def own_server(self, at: Instance, programs: Path) -> Server:
        argv = [
            str(programs / "victoria-metrics"),
            f"-httpListenAddr={at.address}:{at.port}",
            f"-storageDataPath={at.data}",
            "-retentionPeriod=100y",  # of itself it drops what is older than a month
            f"-memory.allowedBytes={self.memory_mib // 2}MiB",
            "-search.latencyOffset=0s",  # of itself it hides the last 30 s
            "-search.disableCache",
            "-loggerLevel=WARN",
        ]
        return Server(argv)
