"""QuestDB: its jar from Maven's central repository.

``cairo.commit.mode`` says what a commit of its write-ahead log waits for: ``nosync`` leaves it to the operating system
(the log's files are mapped), ``sync`` waits for msync.
"""

from __future__ import annotations

from typing import Any

from virtgauge.provision.databases import QUESTDB
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
    find_jars,
    make_empty,
    reaching,
)

_LOGGING = """\
writers=stdout
w.stdout.class=io.questdb.log.LogConsoleWriter
w.stdout.level=CRITICAL,ERROR
"""


class QuestDB(Database):
    """See the module."""

    product = QUESTDB
    driver = "questdb"
    schemes = ("questdb", "postgresql")
    port = 8812
    null_protocol = "postgres"
    memory_mib = 1024
    disk_mib = 1024

    def find(self) -> Found | Missing:
        """The jar in the cache, and a Java that runs it."""
        return find_jars(QUESTDB)

    def level(self, durability: Durability, period_ms: int = FIRST_PERIOD_MS) -> Profile | str:
        """See the module."""
        match durability:
            case Durability.NONE:
                return "every commit is at least in the operating system"
            case Durability.OS:
                return Profile("cairo.commit.mode=nosync", {"cairo.commit.mode": "nosync"}, survives_kill=True)
            case Durability.PERIODIC:
                return "cairo.commit.mode=async leaves it to the operating system when it flushes"
            case Durability.FLUSHED:
                settings = {"cairo.commit.mode": "sync"}
                return Profile("cairo.commit.mode=sync", settings, survives_kill=True, flushes_each_write=True)

    def store(self, found: Found, layout: Layout, profile: Profile) -> dict[str, Any]:
        """By PostgreSQL's protocol, with a password."""
        return super().store(found, layout, profile) | {"user": DATABASE, "password": layout.password}

    def server(self, found: Found, layout: Layout, profile: Profile) -> Server:
        """One Java process, which makes its own folders."""
        data = layout.data / self.name
        before, jars = reaching(found.paths["jars"], layout.account)
        (jar,) = (path.name for path in found.paths["jars"].glob("*.jar"))
        settings = {
            "http.enabled": "false",
            "http.min.enabled": "false",
            "line.tcp.enabled": "false",
            "line.udp.enabled": "false",
            "pg.net.bind.to": f"{layout.address}:{layout.port}",
            "pg.user": DATABASE,
            "pg.password": layout.password,
            "telemetry.enabled": "false",
            "metrics.enabled": "false",
            **profile.settings,
        }
        java = [
            str(found.paths["java"]),
            f"-Xmx{max(layout.memory_mib // 3, 256)}M",
            "-XX:+UseParallelGC",
            "-XX:+PerfDisableSharedMem",
            f"-Djava.io.tmpdir={data}",
            f"-Duser.home={data}",
            *("-p", str(jars / jar)),
            *("-m", "io.questdb/io.questdb.ServerMain"),
            *("-d", str(data)),
            "-n",  # no reaction to a hangup of a terminal
        ]
        files = {
            layout.config / "server.conf": "".join(f"{name}={value}\n" for name, value in settings.items()),
            layout.config / "log.conf": _LOGGING,
        }
        folder = data / "conf"  # where it looks for both
        prepare = [["/bin/mkdir", str(folder)], ["/bin/ln", "-s", *map(str, files), str(folder)]]
        return Server(
            files=files,
            setup=[make_empty(data, layout.account), *(as_account(layout.account, argv) for argv in prepare)],
            argv=[*before, *as_account(layout.account, java)],
            ready_timeout_s=60.0,
            shares=(*found.shares, layout.config),
        )
