"""QuestDB: its jar from Maven's central repository.

``cairo.commit.mode`` says what a commit of its write-ahead log waits for: ``nosync`` leaves it to the operating system
(the log's files are mapped), ``sync`` waits for msync.
"""

from __future__ import annotations

from pathlib import Path

from virtgauge.provision.databases import QUESTDB
from virtgauge.suites.storage.databases.base import DATABASE, Database, Durability, Instance, Levels, Profile, Server

_LOGGING = """\
writers=stdout
w.stdout.class=io.questdb.log.LogConsoleWriter
w.stdout.level=CRITICAL,ERROR
"""


class QuestDB(Database):
    """See the module."""

    product = QUESTDB
    driver = "questdb"
    log_stays = "each table's write-ahead log is in the table's own folder"
    data_files, log_files = ("db",), ("db/*/wal*", "db/*/txn_seq")
    # Three columns and the symbols by 1 MiB each, which is set below, and some MiB that a first table brings.
    allocation_unit = 8 << 20
    has_users = True  # by PostgreSQL's protocol
    schemes = ("questdb", "postgresql")
    port = 8812
    null_protocol = "postgres"
    on_java = True
    memory_mib = 1024

    def own_levels(self, period_ms: int) -> Levels:
        return {
            Durability.NONE: "every commit is at least in the operating system",
            Durability.OS: _profile("nosync"),
            Durability.PERIODIC: "cairo.commit.mode=async leaves it to the operating system when it flushes",
            Durability.FLUSHED: _profile("sync"),
        }

    def own_server(self, at: Instance, programs: Path) -> Server:
        (jar,) = (path.name for path in at.found.programs.glob("*.jar"))
        settings = {
            "http.enabled": "false",
            "http.min.enabled": "false",
            "line.tcp.enabled": "false",
            "line.udp.enabled": "false",
            "pg.net.bind.to": f"{at.address}:{at.port}",
            "pg.user": DATABASE,
            "pg.password": at.password,
            "telemetry.enabled": "false",
            "metrics.enabled": "false",
            "cairo.writer.data.append.page.size": "1M",  # as of the log's files; of itself 16M
            "cairo.writer.data.index.value.append.page.size": "1M",
            **at.profile.settings,
        }
        java = [
            str(at.found.java),
            f"-Xmx{max(self.memory_mib // 3, 256)}M",
            "-XX:+UseParallelGC",
            "-XX:+PerfDisableSharedMem",
            f"-Djava.io.tmpdir={at.data}",
            f"-Duser.home={at.data}",
            *("-p", str(programs / jar)),
            *("-m", "io.questdb/io.questdb.ServerMain"),
            *("-d", str(at.data)),
            "-n",  # no reaction to a hangup of a terminal
        ]
        files = {
            at.config / "server.conf": "".join(f"{name}={value}\n" for name, value in settings.items()),
            at.config / "log.conf": _LOGGING,
        }
        folder = at.data / "conf"  # where it looks for both
        prepare = [["/bin/mkdir", str(folder)], ["/bin/ln", "-s", *map(str, files), str(folder)]]
        return Server(java, files, prepare, ready_timeout_s=60.0)


def _profile(mode: str) -> Profile:
    return Profile(f"cairo.commit.mode={mode}", {"cairo.commit.mode": mode})
