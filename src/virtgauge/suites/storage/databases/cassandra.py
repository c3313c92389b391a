"""Cassandra: its jars from Maven's central repository, one node, configured as its own server options have it.

A write goes into the commit log, whose segments are mapped files, and into memory.

- ``commitlog_sync: batch``: a write waits until the log is flushed; several that wait at a time share one.
- ``commitlog_sync: periodic``: a write waits for nothing; the log is flushed every ``commitlog_sync_period``.
- ``durable_writes = false`` of the keyspace: a write is in memory only.

There is no level in between.  Writes are in the mapped file at once, but a restart reads it only up to a mark, which
is made no sooner than every 100 ms without a flush (AbstractCommitLogService): with a period of an hour, a kill -9 was
seen to lose the last writes that had been acknowledged.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from virtgauge.provision.databases import CASSANDRA
from virtgauge.suites.storage.databases.base import DATABASE, Database, Durability, Instance, Levels, Profile, Server

_SERVER_PERIOD_MS = 10_000  # ``commitlog_sync_period`` as Cassandra's own configuration has it

_TIMEOUTS = ("read_request_timeout", "range_request_timeout", "write_request_timeout", "request_timeout")

# conf/jvm-server.options and conf/jvm17-server.options of Cassandra 5.0, less what is for operators.
_EXPORTS: dict[str, tuple[str, ...]] = {
    "java.base": ("jdk.internal.misc", "java.lang.ref", "java.lang.reflect"),
    "java.management.rmi": ("com.sun.jmx.remote.internal.rmi",),
    "java.rmi": ("sun.rmi.registry", "sun.rmi.server", "sun.rmi.transport.tcp"),
    "java.sql": ("java.sql",),
    "jdk.unsupported": ("sun.misc",),
    "jdk.compiler": ("com.sun.tools.javac.file",),
}
_OPENS: dict[str, tuple[str, ...]] = {
    "java.base": (
        *("java.lang.module", "java.lang.reflect", "java.lang", "java.net", "java.nio", "java.io"),
        *("java.util", "java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.loader"),
        *("jdk.internal.math", "jdk.internal.module", "jdk.internal.ref", "jdk.internal.reflect"),
        *("jdk.internal.util.jar", "sun.nio.ch"),
    ),
    "jdk.management": ("com.sun.management.internal",),
}
_COLLECTOR = (
    *("-XX:+UseG1GC", "-XX:+ParallelRefProcEnabled", "-XX:MaxTenuringThreshold=2"),
    *("-XX:+UnlockExperimentalVMOptions", "-XX:G1NewSizePercent=50", "-XX:G1RSetUpdatingPauseTimePercent=5"),
    *("-XX:MaxGCPauseMillis=300", "-XX:InitiatingHeapOccupancyPercent=70"),
)
_LOGGING = """\
<configuration>
  <appender name="OUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%-5level %date{ISO8601} %logger{0} %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="OUT"/></root>
</configuration>
"""


class Cassandra(Database):
    """See the module."""

    product = CASSANDRA
    driver = "cassandra"
    log_stays = None
    # A flush is of one keyspace; the server's own tables are flushed and compacted at other times.
    data_files, log_files = (f"data/{DATABASE}",), ("commitlog",)
    allocation_unit = 64 << 10  # the files of an SSTable beside its rows
    opened = DATABASE
    schemes = ("cassandra",)
    port = 9042
    null_protocol = "cassandra"
    write_modes = ("pipelined",)
    on_java = True
    memory_mib = 2048

    def level_of(self, reported: Mapping[str, str]) -> Durability | None:
        """By its log alone: a keyspace without durable writes is refused when a trial makes its table."""
        flushed = Durability.FLUSHED
        return {"periodic": Durability.PERIODIC, "batch": flushed, "group": flushed}.get(
            reported.get("commitlog_sync", "")
        )

    def own_levels(self, period_ms: int) -> Levels:
        none = {"durable_writes": "false"}
        return {
            Durability.NONE: Profile("durable_writes = false", _periodic(_SERVER_PERIOD_MS) | none, none),
            Durability.OS: "after its process is lost, its log is read up to a mark only, which is made every 100 ms",
            Durability.PERIODIC: Profile("commitlog_sync: periodic", _periodic(period_ms)),
            Durability.FLUSHED: Profile("commitlog_sync: batch", {"durable_writes": "true", "commitlog_sync": "batch"}),
        }

    def own_server(self, at: Instance, programs: Path) -> Server:
        yaml, logging = at.config / "cassandra.yaml", at.config / "logback.xml"
        heap_mib = self.memory_mib // 2  # as its own start-up script has it; a third ran full of 16 clients' batches
        (agent,) = (path.name for path in at.found.programs.glob("jamm-*.jar"))
        java = [
            str(at.found.java),
            f"-Xms{heap_mib}M",
            f"-Xmx{heap_mib}M",
            f"-XX:MaxDirectMemorySize={heap_mib // 2}M",
            "-Xss256k",
            *_COLLECTOR,
            "-XX:+ExitOnOutOfMemoryError",
            "-XX:+PerfDisableSharedMem",  # it would map a file in /tmp, and stall on that
            "-Djava.net.preferIPv4Stack=true",
            "-Djdk.attach.allowAttachSelf=true",
            *(f"--add-exports={module}/{one}=ALL-UNNAMED" for module, packages in _EXPORTS.items() for one in packages),
            *(f"--add-opens={module}/{one}=ALL-UNNAMED" for module, packages in _OPENS.items() for one in packages),
            f"-javaagent:{programs / agent}",
            *(f"-D{folder}={at.data}" for folder in ("java.io.tmpdir", "jna.tmpdir", "user.home")),
            f"-Dlogback.configurationFile={logging}",
            f"-Dcassandra.config=file://{yaml}",
            f"-Dcassandra.storagedir={at.data}",
            "-Dcassandra-foreground=yes",
            "-Dcassandra.skip_wait_for_gossip_to_settle=0",  # there is nobody to gossip with
            "-Dcassandra.ring_delay_ms=0",
            "-Dcassandra.superuser_setup_delay_ms=0",
            *("-cp", f"{programs}/*"),
            "org.apache.cassandra.service.CassandraDaemon",
        ]
        return Server(java, {yaml: _configuration(at), logging: _LOGGING}, ready_timeout_s=120.0)


def _periodic(period_ms: int) -> dict[str, str]:
    return {"durable_writes": "true", "commitlog_sync": "periodic", "commitlog_sync_period": f"{period_ms}ms"}


def _configuration(at: Instance) -> str:
    log = {name: value for name, value in at.profile.settings.items() if name.startswith("commitlog_")}
    settings = {
        "cluster_name": "virtgauge",
        "num_tokens": 1,
        "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
        "endpoint_snitch": "SimpleSnitch",
        "seed_provider": [
            {
                "class_name": "org.apache.cassandra.locator.SimpleSeedProvider",
                "parameters": [{"seeds": f"{at.address}:{at.port + 1}"}],
            }
        ],
        "listen_address": at.address,
        "storage_port": at.port + 1,
        "rpc_address": at.address,
        "start_native_transport": True,
        "native_transport_port": at.port,
        "data_file_directories": [str(at.data / "data")],
        "commitlog_directory": str(at.log or at.data / "commitlog"),
        "saved_caches_directory": str(at.data / "saved_caches"),
        "hints_directory": str(at.data / "hints"),
        "cdc_raw_directory": str(at.data / "cdc"),
        **log,
        "commitlog_segment_size": "16MiB",
        "commitlog_total_space": "256MiB",
        "batch_size_warn_threshold": "1024KiB",
        "batch_size_fail_threshold": "1024KiB",  # a thousand rows are 50 KiB, its own limit
        "auto_snapshot": False,  # a table that is dropped shall be gone
        # How long is too long is for the client to say: of themselves writes end after 2 s, which a slow guest needs.
        **dict.fromkeys(_TIMEOUTS, "600s"),
        "hinted_handoff_enabled": False,
        "disk_failure_policy": "die",  # rather than stay, and serve nobody
        "commit_failure_policy": "die",
        "auto_bootstrap": False,
    }
    return json.dumps(settings, indent=1) + "\n"
