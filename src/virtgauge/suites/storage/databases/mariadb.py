"""MariaDB with InnoDB, as the distribution packages it.

``innodb_flush_log_at_trx_commit`` says what a commit waits for: at 1 for a flush of the redo log, which several that
wait at a time share; at 2 until the log is written to the operating system; at 0 for nothing.  At 2 and 0 the log is
flushed in the background: the master task wakes once a second, and flushes when ``innodb_flush_log_at_timeout`` whole
seconds have passed (storage/innobase/srv/srv0srv.cc), so that a flush can be a second later than the setting says.
There is no binary log, as in Debian's package.
"""

from __future__ import annotations

from pathlib import Path

from virtgauge.host.process import find_program
from virtgauge.suites.storage.databases.base import DATABASE, Database, Durability, Instance, Levels, Profile, Server

_LONGEST_TIMEOUT_S = 2700  # The most that ``innodb_flush_log_at_timeout`` can be
_SHORTEST_PERIOD_MS = 2000


class MariaDB(Database):
    """See the module."""

    name = "mariadb"
    parts = ("mariadb",)
    driver = "mariadb"
    log_stays = None
    data_files, log_files = ("ibdata1",), ("ib_logfile0",)
    allocation_unit = 4 << 20
    has_users = True
    schemes = ("mariadb", "mysql")
    port = 3306
    write_modes = ("values", "pipelined")

    def installed(self) -> tuple[Path, str, Path] | None:
        server = find_program("mariadbd")
        version = self.version_of(server, r"(\d+\.\d+\.\d+)-MariaDB")
        folder = server.resolve().parent.parent if server else None
        if folder is None or version is None or not (folder / "bin" / "mariadb-install-db").exists():
            return None
        return folder, version, folder

    def own_levels(self, period_ms: int) -> Levels:
        longest_ms = _LONGEST_TIMEOUT_S * 1000
        periodic: Profile | str = f"its log is flushed within {_SHORTEST_PERIOD_MS} to {longest_ms} ms, not {period_ms}"
        if _SHORTEST_PERIOD_MS <= period_ms <= longest_ms:
            periodic = _profile(2, period_ms // 1000 - 1)
        return {
            Durability.NONE: _profile(0, _LONGEST_TIMEOUT_S),
            Durability.OS: _profile(2, _LONGEST_TIMEOUT_S),
            Durability.PERIODIC: periodic,
            Durability.FLUSHED: _profile(1, 1),
        }

    def own_server(self, at: Instance, programs: Path) -> Server:
        configuration, first = at.config / "mariadb.cnf", at.config / "mariadb.sql"
        settings = {
            "datadir": at.data,
            "tmpdir": at.data,
            "socket": at.data / "socket",
            "pid_file": at.data / "pid",
            "bind_address": at.address,
            "port": at.port,
            "init_file": first,
            "skip_name_resolve": "ON",
            "max_connections": 300,
            "innodb_buffer_pool_size": f"{max(self.memory_mib // 4, 16)}M",
            # A table's own file grows page by page at first, each time with two flushes, whatever the level.
            "innodb_file_per_table": "OFF",
            # Of itself 64 MiB at a time, by which no table of a trial could be measured.
            "innodb_autoextend_increment": f"{self.allocation_unit >> 20}",
            "innodb_log_file_size": "256M",  # a smaller one is soon full, and pages are flushed for it
            "innodb_log_group_home_dir": at.log or at.data,
            **at.profile.settings,
        }
        user = f"{DATABASE}@'%'"
        statements = [
            f"CREATE DATABASE IF NOT EXISTS {DATABASE}",
            f"CREATE USER IF NOT EXISTS {user} IDENTIFIED BY '{at.password}'",
            f"GRANT ALL ON {DATABASE}.* TO {user}",
        ]
        # The first tables are made without the file of statements, which needs them.
        script = [str(at.found.programs / "bin" / "mariadb-install-db"), "--no-defaults", f"--datadir={at.data}"]
        script += [f"--tmpdir={at.data}", "--skip-test-db", "--skip-name-resolve"]
        script += ["--auth-root-authentication-method=normal", f"--innodb-log-group-home-dir={at.log or at.data}"]
        return Server(
            argv=[str(programs / "sbin" / "mariadbd"), f"--defaults-file={configuration}"],
            files={
                configuration: "".join(["[mariadbd]\n", *(f"{name} = {value}\n" for name, value in settings.items())]),
                first: "".join(f"{statement};\n" for statement in statements),
            },
            setup=[script],
            env={"LC_ALL": "C", "TZ": "UTC"},
            ready_timeout_s=30.0,
        )


def _profile(commit: int, timeout_s: int) -> Profile:
    settings = {"innodb_flush_log_at_trx_commit": str(commit), "innodb_flush_log_at_timeout": str(timeout_s)}
    return Profile(f"innodb_flush_log_at_trx_commit={commit}", settings, written=commit > 0)
