"""MongoDB: ``mongod`` with WiredTiger, on PATH or as it comes in a wheel.

A write goes into WiredTiger's log, which is collected in the process's memory and written and flushed together.

- ``j: true`` waits for that flush; several that wait at a time share one.
- ``w: 1, j: false`` waits for the write to be in memory; the log is flushed every ``storage.journal.commitIntervalMs``.
- ``w: 0`` is answered by nobody; the paper's setting.

There is no level in between: what has left the process was flushed as well.  Clients authenticate as the server's own
user ``__system``, whose password is the key file: it is there from the first start on, so that no user has to be made
from inside of the guest.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, quote

from virtgauge.provision.databases import MONGODB
from virtgauge.suites.storage.databases.base import (
    DATABASE,
    Database,
    Durability,
    Found,
    Instance,
    Levels,
    Missing,
    Profile,
    Server,
)

_LONGEST_INTERVAL_MS = 500
_SERVER_PERIOD_MS = 100  # The most that ``commitIntervalMs`` can be, and what it is where it is not set


class MongoDB(Database):
    """See the module."""

    product = MONGODB
    driver = "mongo"
    log_stays = None
    log_files = ("journal",)
    allocation_unit = 32 << 10  # a leaf page of WiredTiger
    schemes = ("mongodb",)
    port = 27017
    null_protocol = "mongo"
    uri_option = "authSource"
    memory_mib = 768

    def find(self) -> Found | Missing:
        on_path = shutil.which("mongod")
        kept = MONGODB.find()
        program = Path(on_path).resolve() if on_path else kept[0] / "mongod" if kept else None
        if program is None:
            return Missing("mongod is neither on PATH nor in the cache")
        version = self.version_of(program, r"v(\d+(\.\d+)+)")
        if version is None:
            return Missing(f"{program} does not start here", "sudo apt-get install libcurl4 libssl3 liblzma5")
        return Found(version, str(program), program.parent, folders=(program.parent,))

    def own_levels(self, period_ms: int) -> Levels:
        periodic: Profile | str = f"its journal can be flushed every 1 to {_LONGEST_INTERVAL_MS} ms, not {period_ms}"
        if 1 <= period_ms <= _LONGEST_INTERVAL_MS:
            periodic = _profile("w: 1, j: false", "w1", period_ms)
        return {
            Durability.NONE: _profile("w: 0", "w0", _SERVER_PERIOD_MS),
            Durability.OS: "its log stays in the process until it is flushed to the device",
            Durability.PERIODIC: periodic,
            Durability.FLUSHED: _profile("w: 1, j: true", "j", _SERVER_PERIOD_MS),
        }

    def store(self, at: Instance) -> dict[str, Any]:
        return {
            "driver": self.driver,
            "uri": f"mongodb://__system:{at.password}@{at.address}:{at.port}/{DATABASE}?authSource=local",
            "database": DATABASE,
            "options": dict(at.profile.options),
        }

    def client_uri(self, uri: SplitResult, password: str) -> str:
        """MongoDB's own form, by which a server without users is not asked to let one in."""
        if uri.username is None:
            return uri.geturl()
        _, _, place = uri.netloc.rpartition("@")
        return uri._replace(netloc=f"{uri.username}:{quote(password, safe='')}@{place}").geturl()

    def own_server(self, at: Instance, programs: Path) -> Server:
        key = at.config / "mongod.key"
        configuration = at.config / "mongod.conf"
        settings = {
            "net": {
                "bindIp": at.address,
                "port": at.port,
                "maxIncomingConnections": 1000,
                "unixDomainSocket": {"enabled": False},
            },
            "storage": {
                "dbPath": str(at.data),
                "journal": {"commitIntervalMs": int(at.profile.settings["storage.journal.commitIntervalMs"])},
                "wiredTiger": {"engineConfig": {"cacheSizeGB": max(self.memory_mib / 2048, 0.25)}},
            },
            "security": {"authorization": "enabled", "keyFile": str(key)},
            "systemLog": {"quiet": True},
            "cloud": {"monitoring": {"free": {"state": "off"}}},
            "setParameter": {"diagnosticDataCollectionEnabled": False},  # it would write every second
        }
        files = {key: at.password + "\n", configuration: json.dumps(settings, indent=1) + "\n"}  # JSON is YAML
        argv = [str(programs / Path(at.found.source).name), "--config", str(configuration)]
        # There is no setting: its documentation has the folder linked (Production Notes, "Separate Components").
        link = [] if at.log is None else [["/bin/ln", "-s", str(at.log), str(at.data / "journal")]]
        return Server(argv, files, link, env={"HOME": str(at.data)}, ready_timeout_s=30.0)


def _profile(name: str, concern: str, period_ms: int) -> Profile:
    settings = {"write concern": name, "storage.journal.commitIntervalMs": str(period_ms)}
    return Profile(name, settings, {"write_concern": concern})
