from __future__ import annotations

import dataclasses
import os
import subprocess
from pathlib import Path
from pwd import getpwuid, struct_passwd

import pytest

from virtgauge.errors import UsageError
from virtgauge.provision.packages import NEEDS
from virtgauge.suites.storage.client import StoreError
from virtgauge.suites.storage.databases import DATABASES, account, database
from virtgauge.suites.storage.databases.base import (
    Database,
    Durability,
    Found,
    Instance,
    Profile,
    Server,
    as_account,
    make_empty,
    reaching,
)
from virtgauge.suites.storage.laboratory import profile_of

ACCOUNT = struct_passwd(("somebody", "x", 4711, 4712, "", "/", "/bin/sh"))
SERVERS = [product for product in DATABASES.values() if not product.embedded]
LEVELS = [
    pytest.param(product, profile, id=f"{product.name}-{durability}")
    for product in DATABASES.values()
    for durability, profile in product.levels().items()
    if isinstance(profile, Profile)
]


def found(folder: Path) -> Found:
    """As if it had been found, whatever is on this machine."""
    for name in ("mongod", "jamm-0.jar"):
        (folder / name).touch()
    return Found("1.0", "a test", programs=folder, java=folder, folders=(folder,))


def instance(
    product: Database, folder: Path, profile: Profile | None = None, account: struct_passwd | None = ACCOUNT
) -> Instance:
    """By default at the first level that it has."""
    profile = profile or next(level for level in product.levels().values() if isinstance(level, Profile))
    return Instance(
        found=found(folder),
        profile=profile,
        config=folder / "config",
        data=Path("/disk") / product.name,
        address="10.212.0.1",
        port=5400,
        password="secret",
        account=account,
    )


def a_server(product: Database, folder: Path, account: struct_passwd | None = ACCOUNT) -> Server:
    return product.server(instance(product, folder, account=account))


def everything_told(server: Server) -> str:
    """What a server is told, by whatever way."""
    return "\n".join([*server.files.values(), *server.argv, *(f"{k}={v}" for k, v in server.env.items())])


@pytest.mark.parametrize("name", ["postgresql", "mongodb", "cassandra", "sqlite"])
def test_the_period_is_the_one_that_was_asked_for(name: str) -> None:
    level = database(name).levels(60)[Durability.PERIODIC]
    assert isinstance(level, Profile)
    told = " ".join(level.settings.values())
    # PostgreSQL's log writer lets up to three of its delays pass.
    assert ("20ms" if name == "postgresql" else "60") in told


@pytest.mark.parametrize(("name", "period_ms"), [("postgresql", 60_000), ("mongodb", 501), ("postgresql", 1)])
def test_a_period_that_a_server_cannot_keep_is_refused_with_its_limits(name: str, period_ms: int) -> None:
    level = database(name).levels(period_ms)[Durability.PERIODIC]
    assert isinstance(level, str)
    assert str(period_ms) in level


@pytest.mark.parametrize(("product", "profile"), LEVELS)
def test_a_profiles_settings_reach_the_server_or_the_client(
    product: Database, profile: Profile, tmp_path: Path
) -> None:
    options = product.store(instance(product, tmp_path, profile))["options"]
    assert options.items() >= profile.options.items()
    if product.embedded or product.name == "victoriametrics":  # whose one level is not set
        return
    told = everything_told(product.server(instance(product, tmp_path, profile)))
    for name, value in profile.settings.items():
        if name in ("durable_writes", "write concern"):  # of the schema, of the client
            continue
        assert name.rpartition(".")[2] in told
        assert value in told


@pytest.mark.parametrize("product", SERVERS, ids=lambda product: product.name)
def test_a_server_listens_where_it_was_told_and_nowhere_else(product: Database, tmp_path: Path) -> None:
    told = everything_told(a_server(product, tmp_path))
    assert "10.212.0.1" in told
    assert "5400" in told
    for everywhere in ("*:", "127.0.0.1", "localhost", "::", " 0.0.0.0:"):
        assert everywhere not in told.replace("java.base/", "").replace("=ALL-UNNAMED", "")


@pytest.mark.parametrize("product", SERVERS, ids=lambda product: product.name)
def test_all_that_a_server_writes_is_in_its_own_folder_of_the_data_disk(product: Database, tmp_path: Path) -> None:
    server = a_server(product, tmp_path)
    assert server.setup[0] == make_empty(Path("/disk") / product.name, ACCOUNT)
    assert f"/disk/{product.name}" in everything_told(server)
    assert set(path.parent for path in server.files) <= {tmp_path / "config"}


LOG = Path("/log/of-it")


@pytest.mark.parametrize(
    "product", [product for product in SERVERS if product.log_stays is None], ids=lambda one: one.name
)
def test_a_servers_commit_log_lies_where_it_was_told_in_a_folder_of_its_own(product: Database, tmp_path: Path) -> None:
    for log in (None, LOG):
        server = product.server(dataclasses.replace(instance(product, tmp_path), log=log))
        setup = [*server.setup[1:]]
        if log is not None:
            assert setup.pop(0) == make_empty(LOG, ACCOUNT)
        told = [*server.files.values(), *(word for argv in setup for word in argv)]
        assert any(str(LOG) in one for one in told) == (log == LOG)


@pytest.mark.parametrize("product", DATABASES.values(), ids=lambda product: product.name)
def test_a_database_is_set_up_by_the_title_that_reports_have(product: Database) -> None:
    provided = product.product or NEEDS.get(product.name)
    assert provided is None or provided.title == product.title


def test_a_database_whose_commit_log_stays_with_its_data_says_why() -> None:
    stays = {name: product.log_stays for name, product in DATABASES.items() if product.log_stays is not None}
    assert set(stays) == {"sqlite", "duckdb", "questdb", "victoriametrics"}
    for name, why in stays.items():
        with pytest.raises(StoreError, match=f"{database(name).title} has no commit log that can.*: {why}") as caught:
            profile_of(name, Durability.OS, 100, "separate")
        assert caught.value.code == "unsupported"


@pytest.mark.parametrize("product", SERVERS, ids=lambda product: product.name)
def test_a_server_of_roots_becomes_somebody_else_in_the_process_that_was_started(
    product: Database, tmp_path: Path
) -> None:
    words = list(a_server(product, tmp_path).argv)
    assert words[words.index("/usr/bin/setpriv") + 1 :][:3] == ["--reuid=4711", "--regid=4712", "--clear-groups"]
    if words[0] == "/bin/sh":
        assert 'exec "$@"' in words[2]
    assert "/usr/bin/setpriv" not in a_server(product, tmp_path, None).argv


@pytest.mark.parametrize("name", ["postgresql", "mongodb"])
def test_the_password_is_in_a_private_file_and_in_no_command(name: str, tmp_path: Path) -> None:
    server = a_server(database(name), tmp_path, None)
    assert not any("secret" in word for argv in (*server.setup, server.argv) for word in argv)
    server.write(None)
    (path,) = (path for path, text in server.files.items() if text == "secret\n")
    assert path.read_text() == "secret\n"
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("name", "telling"),
    [
        ("mongodb", '"state": "off"'),
        ("influxdb", "reporting-disabled = true"),
        ("questdb", "telemetry.enabled=false"),
    ],
)
def test_a_server_that_would_report_to_its_makers_is_told_not_to(name: str, telling: str, tmp_path: Path) -> None:
    assert telling in everything_told(a_server(database(name), tmp_path))


def make(folder: Path, account: struct_passwd | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(make_empty(folder, account), capture_output=True, text=True, timeout=20, check=False)


def test_a_data_folder_that_is_missing_or_empty_becomes_private(tmp_path: Path) -> None:
    for folder in (tmp_path / "new" / "deep", tmp_path / "empty"):
        if folder.name == "empty":
            folder.mkdir(mode=0o755)
        assert make(folder).returncode == 0
        assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("name", ["base", ".hidden"])
def test_a_data_folder_that_holds_something_is_refused_and_left_as_it_is(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "with a blank"
    folder.mkdir(mode=0o755)
    (folder / name).write_text("precious")
    before = folder.stat()
    done = make(folder, getpwuid(os.getuid()))
    assert done.returncode == 1
    assert done.stderr == f"{folder} already holds something; it is left as it is\n"
    assert (folder / name).read_text() == "precious"
    assert (folder.stat().st_mode, folder.stat().st_mtime_ns) == (before.st_mode, before.st_mtime_ns)


def test_an_account_reaches_a_program_in_a_folder_that_only_its_owner_passes_through(tmp_path: Path) -> None:
    private = tmp_path / "home"
    programs = private / "cache"
    programs.mkdir(parents=True)
    (programs / "whoami").write_text("#!/bin/sh\nid -u\n")
    (programs / "whoami").chmod(0o755)
    private.chmod(0o700)
    whom = account() if os.geteuid() == 0 else None
    before, folder = reaching(programs, whom)
    argv = [*before, *as_account(whom, ["/bin/sh", str(folder / "whoami")])]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=True)
    assert int(done.stdout) == (whom.pw_uid if whom else os.geteuid())


def test_a_folder_that_everybody_reaches_is_used_as_it_is() -> None:
    assert reaching(Path("/usr/bin"), ACCOUNT) == ([], Path("/usr/bin"))


def test_a_misspelt_database_is_answered_with_the_right_name() -> None:
    with pytest.raises(UsageError, match="did you mean 'postgresql'"):
        database("postgresq")


@pytest.mark.parametrize(
    ("name", "reported", "level"),
    [
        ("postgresql", {"synchronous_commit": "on", "fsync": "on"}, Durability.FLUSHED),
        ("postgresql", {"synchronous_commit": "local", "fsync": "on"}, Durability.FLUSHED),
        ("postgresql", {"synchronous_commit": "off", "fsync": "on"}, Durability.PERIODIC),
        ("postgresql", {"synchronous_commit": "on", "fsync": "off"}, Durability.OS),
        ("postgresql", {"synchronous_commit": "off", "fsync": "off"}, Durability.NONE),
        ("postgresql", {"fsync": "on"}, None),
        ("cassandra", {"commitlog_sync": "periodic", "commitlog_sync_period": "10000ms"}, Durability.PERIODIC),
        ("cassandra", {"commitlog_sync": "group"}, Durability.FLUSHED),
        ("cassandra", {"settings": "unauthorized"}, None),
        ("mongodb", {"write_concern": "w1"}, None),  # whether it has a journal, not every version says
    ],
)
def test_the_settings_that_a_server_reports_tell_its_level(
    name: str, reported: dict[str, str], level: Durability | None
) -> None:
    assert database(name).level_of(reported) is level


@pytest.mark.parametrize("product", [one for one in SERVERS if one.name in ("postgresql", "cassandra")])
def test_the_settings_of_each_level_amount_to_it(product: Database) -> None:
    for level, profile in product.levels().items():
        if isinstance(profile, Profile) and profile.settings.get("durable_writes") != "false":
            assert product.level_of(profile.settings) is level
