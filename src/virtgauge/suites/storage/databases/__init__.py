"""The databases that are measured: where each is found, what its levels of durability are, and how it is started.

Each is a :class:`~virtgauge.suites.storage.databases.base.Database`.  Nothing here starts anything: what a guest has
to run is handed out as argument vectors and files.
"""

from __future__ import annotations

import contextlib
import pwd

from virtgauge.errors import UsageError, nearest
from virtgauge.suites.storage.databases.base import Database
from virtgauge.suites.storage.databases.cassandra import Cassandra
from virtgauge.suites.storage.databases.embedded import DuckDB, SQLite
from virtgauge.suites.storage.databases.influxdb import InfluxDB
from virtgauge.suites.storage.databases.mariadb import MariaDB
from virtgauge.suites.storage.databases.mongodb import MongoDB
from virtgauge.suites.storage.databases.postgresql import PostgreSQL
from virtgauge.suites.storage.databases.questdb import QuestDB
from virtgauge.suites.storage.databases.victoriametrics import VictoriaMetrics

_KINDS = (SQLite, DuckDB, PostgreSQL, MariaDB, MongoDB, Cassandra, InfluxDB, VictoriaMetrics, QuestDB)
DATABASES: dict[str, Database] = {kind.name: kind() for kind in _KINDS}


def database(name: str) -> Database:
    """The database of a name. Raises UsageError: there is none."""
    if name not in DATABASES:
        raise UsageError(
            f"{name!r} is no database that virtgauge knows{nearest(name, DATABASES)}",
            f"choose one of: {', '.join(DATABASES)}",
        )
    return DATABASES[name]


def account() -> pwd.struct_passwd:
    """Whom a root's servers run as: ``postgres``, or else ``nobody``. Raises UsageError: the machine has neither."""
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise UsageError("there is no user postgres or nobody for a database server to run as", "add a user nobody")
