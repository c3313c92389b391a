"""The archive in an object store: a real server that speaks S3 (versitygw), on loopback."""

from __future__ import annotations

import dataclasses
import os
import socket
import subprocess
import time

import pytest
from exported_runs import FIO_OUTPUT
from typer.testing import CliRunner

from virtgauge import cli
from virtgauge.errors import UsageError
from virtgauge.exchange import archive
from virtgauge.exchange.archive import Archived, ArchiveWriteError, archive_run
from virtgauge.exchange.imports.record import ImportedArm, import_into, read_repetitions
from virtgauge.exchange.place import open_place
from virtgauge.exchange.query import Limits, ask
from virtgauge.ledger.store import Ledger
from virtgauge.provision.registries import OBJECT_STORE

pytestmark = pytest.mark.lab


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A server with an empty bucket; its address."""
    program = OBJECT_STORE.find()
    assert program is not None, "`make test-labs` builds versitygw; it is not there"
    (tmp_path / "store" / "bucket").mkdir(parents=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    keys = {"ROOT_ACCESS_KEY": "key", "ROOT_SECRET_KEY": "secret"}
    command = [program, "--port", f"127.0.0.1:{port}", "--quiet", "posix", str(tmp_path / "store")]
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(command, env=os.environ | keys, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            _wait(port, server)
            monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
            monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
            monkeypatch.setenv("VIRTGAUGE_S3_ENDPOINT", f"http://127.0.0.1:{port}")
            yield server
        finally:
            server.terminate()
            server.wait(10)


def _wait(port, server):
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        assert server.poll() is None, "the object store ended at once"
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError("the object store does not answer")


@pytest.fixture
def run(tmp_path):
    import_into(tmp_path / "run", read_repetitions("fio", [FIO_OUTPUT]), ImportedArm("host"), {}, new=True)
    return tmp_path / "run"


def counted(place):
    return ask(place, Limits(), "SELECT count(DISTINCT trial_id), count(*), max(month) FROM trials").rows[0]


def test_a_run_is_archived_once_and_asked_in_an_object_store(store, run):
    place = open_place("s3://bucket/some/prefix")
    with Ledger.open(run) as ledger:
        assert archive_run(place, ledger).outcome is Archived.NEW
        known = counted(place)
        assert archive_run(place, ledger).outcome is Archived.KNOWN
        assert counted(place) == known
        ledger.add_trial(dataclasses.replace(ledger.trials()[0], block=5, key="b0005/new"))
        assert archive_run(place, ledger).outcome is Archived.RENEWED
    assert counted(place)[0] == known[0] + 1
    assert len(place.found("trials")) == 1
    result = CliRunner().invoke(
        cli.app, ["query", "s3://bucket/some/prefix", "--measure", "imported.fio.iops", "--by", "factor.operation"]
    )
    assert "read" in result.stdout
    assert "write" in result.stdout


def test_a_write_that_fails_leaves_an_object_store_as_it_was(store, run, monkeypatch):
    place = open_place("s3://bucket/archive")
    with Ledger.open(run) as ledger:
        archive_run(place, ledger)
        known = counted(place)

        def failing(*_):
            raise OSError("connection reset")

        ledger.add_trial(dataclasses.replace(ledger.trials()[0], block=5, key="b0005/new"))
        with monkeypatch.context() as patch:
            patch.setattr(archive, "write_entry", failing)
            with pytest.raises(ArchiveWriteError, match="connection reset"):
                archive_run(place, ledger)
        assert counted(place) == known


def test_wrong_keys_and_a_bucket_that_is_not_there_are_said(store, run, monkeypatch):
    with Ledger.open(run) as ledger, pytest.raises(ArchiveWriteError):
        archive_run(open_place("s3://no-such-bucket/x"), ledger)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(UsageError, match="cannot be read"):
        ask(open_place("s3://bucket/x"), Limits(), "SELECT 1")
