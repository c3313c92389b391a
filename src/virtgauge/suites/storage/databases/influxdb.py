"""InfluxDB 1.6, as the distribution packages it: unpacked in the cache, not installed.

A write is appended to the write-ahead log and waits until that has been flushed.  ``wal-fsync-delay`` puts the flush
off so that several writes share it; each of them waits all the same, so that the setting makes no weaker level.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from virtgauge.provision.databases import INFLUXDB
from virtgauge.suites.storage.databases.base import DATABASE, Database, Durability, Instance, Levels, Profile, Server

_ALWAYS_WAITS = "every write waits for a flush of its log; wal-fsync-delay only makes it wait longer"

_BACKUP = '"$@" >&2; ended=$?; rm -rf -- "$0"; exit $ended'
_CONFIGURATION = """\
reporting-disabled = true
bind-address = "{at.address}:{inner_port}"

[meta]
  dir = "{at.data}/meta"

[data]
  dir = "{at.data}/data"
  wal-dir = "{log}"
  wal-fsync-delay = "{delay}"
  query-log-enabled = false

[monitor]
  store-enabled = false

[continuous_queries]
  enabled = false

[http]
  bind-address = "{at.address}:{at.port}"
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

    def own_levels(self, period_ms: int) -> Levels:
        flushed = Profile("wal-fsync-delay = 0s", {"wal-fsync-delay": "0s"})
        return dict.fromkeys(Durability, _ALWAYS_WAITS) | {Durability.FLUSHED: flushed}

    def store(self, at: Instance) -> dict[str, Any]:
        store = super().store(at)
        return store | {"options": {"make_database": "true"} | store["options"]}

    def at_rest(self, at: Instance) -> list[str]:
        """A backup: it first writes a snapshot of what is in memory and the log, for which there is no other way."""
        host, copy = f"{at.address}:{at.port + 1}", at.data.with_name("influxdb-copy")
        backup = [str(at.found.programs / "influxd"), "backup", "-portable", "-database", DATABASE, "-host", host]
        return ["/bin/sh", "-c", _BACKUP, str(copy), *backup, str(copy)]

    def own_server(self, at: Instance, programs: Path) -> Server:
        configuration = at.config / "influxdb.conf"
        text = _CONFIGURATION.format(
            at=at, inner_port=at.port + 1, log=at.log or at.data / "wal", delay=at.profile.settings["wal-fsync-delay"]
        )
        argv = [str(programs / "influxd"), "-config", str(configuration)]
        return Server(argv, {configuration: text}, env={"HOME": str(at.data)})
