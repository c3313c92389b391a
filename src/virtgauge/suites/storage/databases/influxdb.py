"""InfluxDB 1.6, as the distribution packages it: unpacked in the cache, not installed.

A write is appended to the write-ahead log and waits until that has been flushed.  ``wal-fsync-delay`` puts the flush
off so that several writes share it; each of them waits all the same, so that the setting makes no weaker level.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from virtgauge.provision.databases import INFLUXDB
from virtgauge.suites.storage.databases.base import (
    DATABASE,
    FIRST_PERIOD_MS,
    Database,
    Durability,
    Found,
    Layout,
    Profile,
    Server,
)

_ALWAYS_WAITS = "every write waits for a flush of its log; wal-fsync-delay only makes it wait longer"

_BACKUP = '"$@" >&2; ended=$?; rm -rf -- "$0"; exit $ended'
_CONFIGURATION = """\
reporting-disabled = true
bind-address = "{address}:{inner_port}"

[meta]
  dir = "{data}/meta"

[data]
  dir = "{data}/data"
  wal-dir = "{log}"
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
    log_stays = None
    data_files, log_files = ("data",), ("wal",)
    allocation_unit = 64 << 10  # about what a shard's folders and its files' indexes take beside values
    opened = DATABASE
    schemes = ("http", "influxdb")
    port = 8086
    null_protocol = "http"
    own_system_calls = True

    def levels(self, period_ms: int = FIRST_PERIOD_MS) -> dict[Durability, Profile | str]:
        settings = {"wal-fsync-delay": "0s"}
        flushed = Profile("wal-fsync-delay = 0s", settings, survives_kill=True, flushes_each_write=True)
        return dict.fromkeys(Durability, _ALWAYS_WAITS) | {Durability.FLUSHED: flushed}

    def store(self, found: Found, layout: Layout, profile: Profile) -> dict[str, Any]:
        store = super().store(found, layout, profile)
        return store | {"options": {"make_database": "true"} | store["options"]}

    def at_rest(self, found: Found, layout: Layout) -> list[str]:
        """A backup: it first writes a snapshot of what is in memory and the log, for which there is no other way."""
        host, copy = f"{layout.address}:{layout.port + 1}", layout.data / "influxdb-copy"
        backup = [str(found.programs / "influxd"), "backup", "-portable", "-database", DATABASE, "-host", host]
        return ["/bin/sh", "-c", _BACKUP, str(copy), *backup, str(copy)]

    def own_server(self, found: Found, layout: Layout, profile: Profile, data: Path, programs: Path) -> Server:
        configuration = layout.config / "influxdb.conf"
        text = _CONFIGURATION.format(
            address=layout.address,
            port=layout.port,
            inner_port=layout.port + 1,
            data=data,
            log=layout.log or data / "wal",
            delay=profile.settings["wal-fsync-delay"],
        )
        argv = [str(programs / "influxd"), "-config", str(configuration)]
        return Server(argv, {configuration: text}, env={"HOME": str(data)})
