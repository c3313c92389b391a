"""Whole runs on a server that is there already: its table is its owner's, its password stays out of every record."""

from __future__ import annotations

import dataclasses
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from platforms.ssh_server import ssh_server
from platforms.test_attached_runs import section
from sampled import sampled
from suites.database_servers import DATA, RunningServer, answer_of, running, stream
from suites.storage_testbeds import passable_state

from virtgauge.ledger.records import TrialRecord, TrialStatus
from virtgauge.ledger.store import Ledger
from virtgauge.suites.storage.databases import database
from virtgauge.suites.storage.databases.base import Durability

pytestmark = pytest.mark.slow

VARIABLE, PASSWORD = "VIRTGAUGE_TEST_PASSWORD", "s3cret-of-the-owner"
TABLE, ROWS_EACH = "virtgauge_readings", 10

PLAN = """
name = "existing"
repetitions = 1
attempts = 1
aa = false
validity = {{ foreign_load = 1.0, steal = 1.0 }}  # what is asked here is no figure

[[platform]]
name = "host"
kind = "host"

[[suite.storage]]
databases = []
operations = ["single-write", "multi-read"]
seconds = 0.2
warmup_s = 0.05
calibration_s = 0.0
preload = 1000
sensors = 4

[[suite.storage.server]]
database = "{database}"
uri = "{uri}"
password_env = "{variable}"
"""


@dataclasses.dataclass
class Address:
    """By which a plan names a server."""

    name: str
    uri: str
    password: str = PASSWORD


@dataclasses.dataclass(kw_only=True)
class Owned(Address):
    """Somebody's server, and what its owner does there."""

    server: RunningServer

    def fill(self) -> None:
        """A table of the owner's own, of the name that virtgauge would use."""
        asked = {"store": self.server.store, "index": True, "drop": True, "data": DATA, "preload": ROWS_EACH}
        answer = answer_of("prepare", asked)
        assert answer.get("rows") == ROWS_EACH * DATA["sensors"], answer

    def rows(self) -> int:
        """How many readings of the owner's are in it, every one of them right."""
        result, _ = self.server.measure(stream("read", values=ROWS_EACH, preload=ROWS_EACH), duration_ms=100)
        assert result["operations"] > 0 and not result["wrong"] and not result["errors"], result["first_error"]
        return int(result["rows"] / result["operations"]) * DATA["sensors"]

    def has_no_table(self) -> bool:
        """It can be made anew without dropping anything."""
        asked = {"store": self.server.store, "index": True, "drop": False, "data": DATA, "preload": 0}
        made = "error" not in answer_of("prepare", asked)
        if made:
            answer_of("drop", {"store": self.server.store})
        return made


@pytest.fixture(scope="module")
def owned(request: pytest.FixtureRequest) -> Iterator[Owned]:
    name = request.param
    with running(database(name), Durability.FLUSHED) as server:
        place = f"{server.layout.address}:{server.layout.port}"
        if name == "mongodb":
            add_mongodb_user(server.layout.address, server.layout.port, "me", PASSWORD)
            yield Owned(name, f"mongodb://me@{place}/virtgauge?authSource=admin", server=server)
        else:
            yield Owned(name, f"postgresql://virtgauge@{place}/postgres", server.layout.password, server=server)


@dataclasses.dataclass
class Run:
    """A run that has ended."""

    folder: Path
    output: str
    exit_code: int
    trials: list[TrialRecord]


def execute(
    folder: Path,
    server: Address,
    *options: str,
    password: str | None = "",
    name: str = "run",
    platform: str = 'kind = "host"',
) -> Run:
    """``virtgauge run`` of a plan on this server; with its own password, unless another (or none) is given."""
    plan, out = folder / f"{name}.toml", folder / name
    told = PLAN.format(database=server.name, uri=server.uri, variable=VARIABLE)
    plan.write_text(told.replace('kind = "host"', platform))
    environment = {key: value for key, value in os.environ.items() if key != VARIABLE}
    environment |= {} if password is None else {VARIABLE: password or server.password}
    argv = [sys.executable, "-m", "virtgauge.cli", "run", str(plan), "--out", str(out), "--progress", "lines", *options]
    with passable_state():
        environment["VIRTGAUGE_STATE"] = os.environ["VIRTGAUGE_STATE"]
        done = subprocess.run(argv, capture_output=True, text=True, env=environment, timeout=200)
    trials = []
    if out.exists():
        with Ledger.open(out) as ledger:
            trials = ledger.trials()
    return Run(out, done.stdout + done.stderr, done.returncode, trials)


def is_nowhere(secret: str, run: Run) -> bool:
    """Neither in what the run kept nor in what it said."""
    kept = [path for path in run.folder.rglob("*") if path.is_file()]
    assert {"plan.toml", "report.html", "ledger.sqlite"} <= {path.name for path in kept}
    return secret not in run.output and not any(secret.encode() in path.read_bytes() for path in kept)


@pytest.mark.parametrize("owned", sampled(["mongodb"], ["postgresql"]), indirect=True)
def test_it_is_measured_at_its_own_settings_and_nothing_of_the_run_stays_nor_keeps_its_password(
    owned: Owned, tmp_path: Path
) -> None:
    assert owned.has_no_table()
    run = execute(tmp_path, owned)
    assert run.exit_code == 0, run.output
    assert {trial.status for trial in run.trials} == {TrialStatus.VALID}, [trial.error for trial in run.trials]
    by_operation = {trial.factors["operation"]: trial for trial in run.trials}
    write, read = by_operation["single-write"], by_operation["multi-read"]
    assert write.factors["durability"] == write.factors["flushes"] == "as-configured"
    assert write.result["operations"] > 0 and read.result["rows"] == 1000 * read.result["operations"] > 0
    assert write.result["reported_settings"], "what the server says of itself is recorded"
    level = {"postgresql": "flushed"}.get(owned.name)
    assert write.result["existing"] == {"database": owned.name, "level": level, "elsewhere": None}
    assert owned.has_no_table()
    assert is_nowhere(owned.password, run)


@pytest.mark.parametrize("owned", sampled(["postgresql"], ["mongodb"]), indirect=True)
def test_a_server_on_an_attached_machine_is_used_from_here_once_it_is_seen_there(owned: Owned, tmp_path: Path) -> None:
    with ssh_server(tmp_path / "server") as machine:
        attached = f'kind = "attached"\n{section(machine.settings())}'
        run = execute(tmp_path, owned, platform=attached)
        nobody = Address(owned.name, owned.uri.replace(str(owned.server.layout.port), "1"))
        unseen = execute(tmp_path, nobody, platform=attached, password="x", name="unseen")
    assert {trial.status for trial in run.trials} == {TrialStatus.VALID}, [trial.error for trial in run.trials]
    assert all(trial.result["operations"] > 0 for trial in run.trials)
    assert all(trial.accounting["guest_cpu_ns"] is None for trial in run.trials)
    assert owned.has_no_table()
    for trial in unseen.trials:
        assert trial.status is TrialStatus.UNSUPPORTED
        assert "is not on attached 127.0.0.1 (ssh): nothing answers at 127." in str(trial.error)


@pytest.mark.parametrize("owned", sampled(["postgresql"], ["mongodb"]), indirect=True)
def test_a_table_that_is_there_is_kept_without_allow_drop_and_gone_with_it(owned: Owned, tmp_path: Path) -> None:
    owned.fill()
    refused = execute(tmp_path, owned, name="refused")
    assert len(refused.trials) == 2
    for trial in refused.trials:
        assert trial.status is TrialStatus.FAILED
        assert TABLE in str(trial.error) and "--allow-drop" in str(trial.error)
    assert TABLE in refused.output and "--allow-drop" in refused.output
    assert owned.rows() == ROWS_EACH * DATA["sensors"]
    allowed = execute(tmp_path, owned, "--allow-drop")
    assert {trial.status for trial in allowed.trials} == {TrialStatus.VALID}, [trial.error for trial in allowed.trials]
    assert owned.has_no_table()


@pytest.mark.parametrize("owned", sampled(["mongodb"], ["postgresql"]), indirect=True)
def test_a_wrong_password_is_denied_and_repeated_nowhere_either(owned: Owned, tmp_path: Path) -> None:
    wrong = "an0ther-s3cret"
    run = execute(tmp_path, owned, password=wrong)
    assert {trial.status for trial in run.trials} == {TrialStatus.FAILED}
    assert all("denied" in str(trial.error) for trial in run.trials)
    assert is_nowhere(wrong, run)


def test_a_password_that_is_not_in_the_environment_is_asked_for_by_name(tmp_path: Path) -> None:
    run = execute(tmp_path, Address("mongodb", "mongodb://me@127.0.0.1:1/virtgauge"), password=None)
    assert f"export {VARIABLE}=" in run.output
    assert {trial.status for trial in run.trials} == {TrialStatus.UNSUPPORTED}


def test_a_password_in_the_address_is_refused_before_anything_is_started(tmp_path: Path) -> None:
    run = execute(tmp_path, Address("postgresql", f"postgresql://me:{PASSWORD}@127.0.0.1:1/virtgauge"))
    assert run.exit_code == 2 and not run.folder.exists()
    assert "password_env" in run.output and PASSWORD not in run.output


def add_mongodb_user(address: str, port: int, name: str, password: str) -> None:
    """Make the first user, as a server without any lets somebody on the same machine do."""
    role = document(role=text("readWriteAnyDatabase"), db=text("admin"))
    roles = b"\x04", document(**{"0": (b"\x03", role)})
    body = document(createUser=text(name), pwd=text(password), roles=roles, **{"$db": text("admin")})
    message = struct.pack("<iiiiIb", 21 + len(body), 1, 0, 2013, 0, 0) + body  # OP_MSG with one section
    with socket.create_connection((address, port), timeout=10) as connection:
        connection.sendall(message)
        answer = connection.recv(65536)
    assert b"\x01ok\0" + struct.pack("<d", 1.0) in answer, answer


def text(value: str) -> tuple[bytes, bytes]:
    encoded = value.encode() + b"\0"
    return b"\x02", struct.pack("<i", len(encoded)) + encoded


def document(**fields: tuple[bytes, bytes]) -> bytes:
    """BSON: each field its type and its value."""
    body = b"".join(kind + name.encode() + b"\0" + value for name, (kind, value) in fields.items())
    return struct.pack("<i", len(body) + 5) + body + b"\0"
