"""The flush laboratory with what it is made for: a database server, Java, Go, and guests that have no such kernel."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flush_programs import CLEAN, SOURCES, FlushCounters, compile_programs, flushed, until_gone

from virtgauge.agent import find_agent
from virtgauge.host.scope import Scope
from virtgauge.platforms import create
from virtgauge.platforms.base import GuestSpec, Share
from virtgauge.suites.storage.flushes import LABORATORY_FAILED, launcher_prefix

pytestmark = pytest.mark.slow

AS_POSTGRES = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("flush-programs")
    compile_programs(folder)
    return folder


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder of the user postgres with an empty database cluster in `data`."""
    assert os.geteuid() == 0, "the server runs as another user"
    folder = tmp_path_factory.mktemp("cluster")
    for closed in (folder, *folder.parents):
        if closed.stat().st_mode & 0o077 == 0:
            closed.chmod(0o711)
    folder.chmod(0o777)
    command = [*AS_POSTGRES, server_program("initdb"), "-D", folder / "data", "-A", "trust", "-N"]
    subprocess.run(command, cwd="/", check=True, capture_output=True)
    yield folder


def server_program(name: str) -> Path:
    versions = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    assert versions, "PostgreSQL's package is needed"
    return versions[-1]


def client(cluster: Path, program: str, *words: str) -> str:
    command = [*AS_POSTGRES, server_program(program), "-h", cluster, "-p", "5432", *words]
    return subprocess.run(command, cwd="/", check=True, capture_output=True, text=True, timeout=60).stdout


@pytest.mark.parametrize(
    ("static", "method"), [(False, "fdatasync"), (False, "open_datasync"), (True, "fdatasync"), (True, "fsync")]
)
def test_every_commit_of_a_server_is_a_flush(cluster: Path, tmp_path: Path, static: bool, method: str) -> None:
    counters = cluster / f"counters-{static}-{method}"
    command = [
        *launcher_prefix(counters, "rotational:7200", static=static),
        *AS_POSTGRES,
        str(server_program("postgres")),
    ]
    command += ["-D", str(cluster / "data"), "-k", str(cluster), "-p", "5432", "-c", "listen_addresses="]
    command += ["-c", f"wal_sync_method={method}", "-c", "autovacuum=off", "-c", "bgwriter_lru_maxpages=0"]
    commits = cluster / "insert.sql"
    commits.write_text("insert into readings values (1, 2, 3);\n")
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen(command, cwd="/", env=CLEAN, stdout=log, stderr=log)
    try:
        until_ready(cluster, server, tmp_path / "log")
        client(cluster, "psql", "-qc", "create table if not exists readings (s int, t bigint, v float8)", "postgres")
        client(cluster, "psql", "-qc", "checkpoint", "postgres")
        before = FlushCounters.decode(counters.read_bytes())
        began = time.monotonic()
        client(cluster, "pgbench", "-n", "-f", str(commits), "-c", "1", "-t", "120", "postgres")
        elapsed = time.monotonic() - began
        after = FlushCounters.decode(counters.read_bytes())
    finally:
        server.terminate()
        server.wait(30)
    kind = "sync_writes" if method == "open_datasync" else method
    assert 120 <= getattr(after, kind) - getattr(before, kind) <= 125
    assert elapsed > 119 / 120, "one commit a revolution, and no more"
    until_gone(counters)


def until_ready(cluster: Path, server: subprocess.Popen[Any], log: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert server.poll() is None, f"the server ended with {server.returncode}: {log.read_text()}"
        ready = subprocess.run(
            [*AS_POSTGRES, server_program("pg_isready"), "-q", "-h", cluster, "-p", "5432"], cwd="/", env=CLEAN
        )
        if ready.returncode == 0:
            return
        time.sleep(0.05)
    pytest.fail("the server does not answer")


@pytest.mark.parametrize("static", [False, True], ids=["preloaded", "kernel"])
def test_java_forces_channels_and_mapped_memory(tmp_path: Path, static: bool) -> None:
    subprocess.run(["javac", "-d", tmp_path, SOURCES / "Flushes.java"], check=True)
    command = ("java", "-Xshare:auto", "-XX:-UsePerfData", "-cp", tmp_path, "Flushes", tmp_path / "file")
    run = flushed("latency:1000", tmp_path / "counters", *command, static=static)
    assert run.status == 0, run.err
    calls = {"fsync": 8, "fdatasync": 5, "msync": 11}
    assert run.flushes() == calls | ({"dsync_opens": 2} if static else {"sync_writes": 16})


@pytest.mark.parametrize("linkage", ["static", "dynamic"])
@pytest.mark.parametrize("profile", ["as-is", "rotational:7200"])
def test_a_go_program_behind_a_wrapper_is_counted_however_it_is_linked(
    tmp_path: Path, profile: str, linkage: str
) -> None:
    program = tmp_path / "flushes"
    dynamic = linkage == "dynamic"
    flags = ["-ldflags=-linkmode=external"] if dynamic else []
    environment = os.environ | {"CGO_ENABLED": str(int(dynamic))}
    subprocess.run(["go", "build", *flags, "-o", program, SOURCES / "flushes.go"], check=True, env=environment)
    assert (b"/ld-linux" in program.read_bytes()) == dynamic
    began = time.monotonic()
    run = flushed(profile, tmp_path / "counters", "nice", "-n", "0", program, tmp_path / "file")
    assert run.status == 0, run.err
    assert run.flushes() == {"fsync": 120, "fdatasync": 10} | ({"untimed": 130} if profile == "as-is" else {})
    if profile != "as-is":
        assert time.monotonic() - began > 39 / 120
    shell = flushed(
        profile, tmp_path / "again", "sh", "-c", 'exec "$0" "$@"', program, tmp_path / "file", static=not dynamic
    )
    assert shell.status == 0, shell.err
    assert shell.flushes() == run.flushes(), "behind a shell one with a loader is known when it starts"


@pytest.mark.usefixtures("private_state")
@pytest.mark.parametrize("runtime", ["runc", "runsc"])
def test_in_a_container_too_but_a_sandbox_does_not_reach_static_programs(programs: Path, runtime: str) -> None:
    async def run() -> list[tuple[int, str, bytes]]:
        with Scope() as scope:
            shared = scope.guest_folder("shared")
            native = Path(launcher_prefix(shared, "as-is")[0]).parent
            shares = (Share(shared, writable=True), Share(native), Share(programs))
            guest = await create("oci", {"runtime": runtime}).launch(
                GuestSpec(name="g", scope=scope, agent=find_agent(), shares=shares)
            )
            results = []
            try:
                for name, what in (("dynamic", "calls"), ("dynamic", "writes"), ("static", "calls")):
                    folder, counters = shared / f"{name}-{what}", shared / f"counters-{name}-{what}"
                    folder.mkdir()
                    argv = [*launcher_prefix(counters, "rotational:600"), str(programs / name), what, str(folder)]
                    reply = await guest.channel.request(
                        "run", argv=argv, env={}, timeout_ms=60_000, output_limit=65536, timeout_s=90
                    )
                    show = await guest.channel.request(
                        "run",
                        argv=["/bin/cat", str(counters)],
                        env={},
                        timeout_ms=20_000,
                        output_limit=65536,
                        timeout_s=40,
                    )
                    value = reply.value
                    results.append((value["exit_code"], value["stderr"].decode(), show.value["stdout"]))
            finally:
                await guest.close()
            return results

    dynamic, writes, static = asyncio.run(run())
    assert (writes[:2], FlushCounters.decode(writes[2]).sync_writes) == ((0, ""), 12)
    assert dynamic[:2] == (0, "")
    counted = FlushCounters.decode(dynamic[2])
    assert (counted.fsync, counted.fdatasync, counted.msync, counted.other, counted.failed) == (4, 3, 3, 7, 0)
    # Of each revolution the program itself takes a little, between a flush that completed and the next.
    assert counted.time_ns > 16 * 90_000_000, "a flush, begun when the last completed, takes a whole revolution"
    if runtime == "runc":
        assert static[0] == 0, static[1]
        assert FlushCounters.decode(static[2]).total == 17
    else:
        assert static[0] == LABORATORY_FAILED
        assert "gVisor has none" in static[1]
