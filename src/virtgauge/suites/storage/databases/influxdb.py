"""InfluxDB 1.6, as the distribution packages it: unpacked in the cache, not installed.

A write is appended to the write-ahead log and waits until that has been flushed.  ``wal-fsync-delay`` puts the flush
off so that several writes share it; each of them waits all the same, so that the setting makes no weaker level.
"""

from __future__ import annotations

from typing import Any

from virtgauge.provision.databases import INFLUXDB
from virtgauge.suites.storage.databases.base import (
    DATABASE,
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

_ALWAYS_WAITS = "every write waits for a flush of its log; wal-fsync-delay only makes it wait longer"

_CONFIGURATION = """\
reporting-disabled = true
bind-address = "{address}:{inner_port}"

[meta]
  dir = "{data}/meta"

[data]
  dir = "{data}/data"
  wal-dir = "{data}/wal"
  wal-fsync-delay = "{delay}"
  query-log-enabled = false

[monitor]
  store-enabled = false

[continuous_queries]
  enabled = false

[http]
  bind-address = "{address}:{port}"
  log-enabled = false
  pprof-enabled = false
  max-body-size = 0

[logging]
  level = "warn"
"""


class InfluxDB(Database):
    """See the module."""

    product = INFLUXDB
    driver = "influxdb"
    schemes = ("http", "influxdb")
    port = 8086
    null_protocol = "http"
    own_system_calls = True

    def find(self) -> Found | Missing:
        """The program in the cache."""
        return find_cached(INFLUXDB, programs="")

    def level(self, durability: Durability, period_ms: int = FIRST_PERIOD_MS) -> Profile | str:
        """See the module."""
        if durability is not Durability.FLUSHED:
            return _ALWAYS_WAITS
        settings = {"wal-fsync-delay": "0s"}
        return Profile("wal-fsync-delay = 0s", settings, survives_kill=True, flushes_each_write=True)

    def store(self, found: Found, layout: Layout, profile: Profile) -> dict[str, Any]:
        """By HTTP, without a password: nobody else is in its network."""
        store = super().store(found, layout, profile)
        return store | {"database": DATABASE, "options": {"make_database": "true"} | store["options"]}

    def server(self, found: Found, layout: Layout, profile: Profile) -> Server:
        """One process."""
        data = layout.data / self.name
        configuration = layout.config / "influxdb.conf"
        before, folder = reaching(found.paths["programs"], layout.account)
        text = _CONFIGURATION.format(
            address=layout.address,
            port=layout.port,
            inner_port=layout.port + 1,
            data=data,
            delay=profile.settings["wal-fsync-delay"],
        )
        return Server(
            files={configuration: text},
            setup=[make_empty(data, layout.account)],
            argv=[*before, *as_account(layout.account, [str(folder / "influxd"), "-config", str(configuration)])],
            env={"HOME": str(data)},
            ready_timeout_s=20.0,
            shares=(*found.shares, layout.config),
        )
