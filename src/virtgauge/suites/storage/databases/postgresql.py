"""PostgreSQL, as the distribution packages it.

A commit waits for its write-ahead log (``synchronous_commit``) as far as that is made to go (``fsync``).

- With both on, each commit waits for an fdatasync of the log; several that wait at a time share one.
- Without ``synchronous_commit``, the log writer flushes what is acknowledged within three times ``wal_writer_delay``
  (PostgreSQL 15, 30.4), so that the delay is a third of the period here.
- Without ``fsync``, a commit waits until the log is written to the operating system, and nothing is ever flushed.
- Without either, a commit waits for nothing: its log is in the server's memory.

Servers are found through a System V shared memory segment of 56 bytes, which the kernel keeps after a kill -9 until the
next start on the same data and its orderly end.  Everything else that is shared is in files of the data folder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from virtgauge.provision.packages import find_postgresql
from virtgauge.suites.storage.databases.base import DATABASE, Database, Durability, Instance, Levels, Profile, Server

_PAGE = 8 << 10  # Bytes
_LONGEST_DELAY_MS = 10_000  # The most that ``wal_writer_delay`` can be


class PostgreSQL(Database):
    """See the module."""

    name = "postgresql"
    parts = ("postgresql",)
    driver = "postgres"
    log_stays = None
    data_files, log_files = ("base", "global"), ("pg_wal",)
    allocation_unit = 64 * _PAGE  # The most at once from version 16 on (hio.c, MAX_BUFFERS_TO_EXTEND_BY)
    has_users = True
    opened = "postgres"  # which every server has
    schemes = ("postgresql", "postgres")
    port = 5432
    null_protocol = "postgres"
    write_modes = ("unnest", "copy", "values", "pipelined")

    def installed(self) -> tuple[Path, str, Path] | None:
        folder = find_postgresql()
        version = self.version_of(folder and folder / "postgres", r"(\d+(\.\d+)*)")
        return (folder, version, folder.parent) if folder and version else None

    def grows_by(self, version: str, writers: int) -> int:
        major = re.search(r"\d+", version)  # ``PostgreSQL 15.18 (Debian 15.18-0)``
        if major and int(major[0]) >= 16:
            return self.allocation_unit
        # Before, 20 pages for each client that waits meanwhile, and 512 at most (hio.c, RelationAddExtraBlocks).
        return max(self.allocation_unit, _PAGE * min(20 * (writers - 1), 512))

    def level_of(self, reported: Mapping[str, str]) -> Durability | None:
        commit, fsync = reported.get("synchronous_commit"), reported.get("fsync")
        if commit is None or fsync is None:
            return None
        if fsync == "off":
            return Durability.NONE if commit == "off" else Durability.OS
        return Durability.PERIODIC if commit == "off" else Durability.FLUSHED  # ``local`` and ``remote_…`` wait as well

    def own_levels(self, period_ms: int) -> Levels:
        periodic: Profile | str = f"its log writer flushes within 3 to {3 * _LONGEST_DELAY_MS} ms, not {period_ms}"
        if 3 <= period_ms <= 3 * _LONGEST_DELAY_MS:
            delay = {"wal_writer_delay": f"{period_ms // 3}ms"}
            periodic = Profile("synchronous_commit=off", _waits("off", "on") | delay)
        return {
            Durability.NONE: Profile("synchronous_commit=off, fsync=off", _waits("off", "off")),
            Durability.OS: Profile("fsync=off", _waits("on", "off")),
            Durability.PERIODIC: periodic,
            Durability.FLUSHED: Profile("synchronous_commit=on, fsync=on", _waits("on", "on")),
        }

    def own_server(self, at: Instance, programs: Path) -> Server:
        password = at.config / "postgresql.password"
        configuration = at.config / "postgresql.conf"
        access = at.config / "pg_hba.conf"
        settings = {
            "listen_addresses": at.address,
            "port": str(at.port),
            "unix_socket_directories": "",
            "hba_file": str(access),
            "max_connections": "200",
            "shared_buffers": f"{max(self.memory_mib // 4, 16)}MB",
            "dynamic_shared_memory_type": "mmap",  # others would outlive a kill -9
            "max_parallel_workers_per_gather": "0",  # it would use the former for nothing here
            "max_wal_size": "256MB",  # data disks are small
            "lc_messages": "C",
            **at.profile.settings,
        }
        initdb = [str(at.found.programs / "initdb"), "--pgdata", str(at.data), "--username", DATABASE]
        initdb += ["--pwfile", str(password), "--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C"]
        initdb += [] if at.log is None else ["--waldir", str(at.log)]
        return Server(
            argv=[str(programs / "postgres"), "-D", str(at.data), "-c", f"config_file={configuration}"],
            files={
                password: at.password + "\n",
                configuration: "".join(f"{name} = '{value}'\n" for name, value in settings.items()),
                access: f"host all {DATABASE} 0.0.0.0/0 scram-sha-256\n",
            },
            setup=[initdb],
            env={"LC_ALL": "C", "TZ": "UTC"},
        )


def _waits(synchronous_commit: str, fsync: str) -> dict[str, str]:
    return {"synchronous_commit": synchronous_commit, "fsync": fsync}
