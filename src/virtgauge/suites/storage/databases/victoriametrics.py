"""VictoriaMetrics 1.79, single node, as the distribution packages it: unpacked in the cache, not installed.

It has no write-ahead log: what is acknowledged is in memory.  Once a second it is made into a part, still in memory,
and every five seconds the parts that are five seconds old are written to files and flushed (lib/storage/partition.go).
So a kill -9 loses up to eleven seconds of what was acknowledged; seven were seen.  Nothing of that can be set.  The
promise of a period of eleven seconds is kept, and for a shorter one there is no level but none.
"""

from __future__ import annotations

from virtgauge.provision.databases import VICTORIAMETRICS
from virtgauge.suites.storage.databases.base import (
    FIRST_PERIOD_MS,
    Database,
    Durability,
    Found,
    Layout,
    Missing,
    Profile,
    Server,
    as_account,
    find_cached,
    make_empty,
    reaching,
)

_PERIOD_MS = 11_000
"""Everything is flushed within this."""


class VictoriaMetrics(Database):
    """See the module."""

    product = VICTORIAMETRICS
    driver = "victoriametrics"
    schemes = ("http", "victoriametrics")
    port = 8428
    null_protocol = "http"
    own_system_calls = True

    def find(self) -> Found | Missing:
        """The program in the cache."""
        return find_cached(VICTORIAMETRICS, programs="")

    def level(self, durability: Durability, period_ms: int = FIRST_PERIOD_MS) -> Profile | str:
        """See the module."""
        settings = {"flush period": f"{_PERIOD_MS} ms, its own; it cannot be set"}
        match durability:
            case Durability.NONE:
                return Profile("in memory", settings)
            case Durability.PERIODIC if period_ms >= _PERIOD_MS:
                return Profile("flushed in the background", settings, period_ms=_PERIOD_MS)
            case Durability.PERIODIC:
                return f"it flushes within {_PERIOD_MS} ms, which cannot be set, and not within {period_ms}"
            case Durability.OS | Durability.FLUSHED:
                return "it keeps writes in memory, and flushes them in the background only"

    def server(self, found: Found, layout: Layout, profile: Profile) -> Server:
        """One process, without a configuration file."""
        data = layout.data / self.name
        before, folder = reaching(found.paths["programs"], layout.account)
        argv = [
            str(folder / "victoria-metrics"),
            f"-httpListenAddr={layout.address}:{layout.port}",
            f"-storageDataPath={data}",
            "-retentionPeriod=100y",  # of itself it drops what is older than a month
            f"-memory.allowedBytes={layout.memory_mib // 2}MiB",
            "-search.latencyOffset=0s",  # of itself it hides the last 30 s
            "-search.disableCache",
            "-loggerLevel=WARN",
        ]
        return Server(
            files={},
            setup=[make_empty(data, layout.account)],
            argv=[*before, *as_account(layout.account, argv)],
            ready_timeout_s=20.0,
            shares=(*found.shares, layout.config),
        )
