"""Looking at a ledger changes nothing in its folder, keeps no writer waiting, and survives a foreign file."""

import os
import sqlite3
import subprocess
import sys

import numpy as np
import pytest
from served_runs import HOST, add_block, contents
from synthetic import manifest, synthetic_ledger
from typer.testing import CliRunner

from virtgauge import cli
from virtgauge.errors import UsageError, VirtgaugeError
from virtgauge.ledger.damage import DamagedError
from virtgauge.ledger.read_only import ReadOnlyLedger
from virtgauge.ledger.store import LEDGER_NAME, Ledger

pytestmark = pytest.mark.slow

KILLED_WRITER = """
import os, sys
sys.path[:0] = sys.argv[2:]
from pathlib import Path
from synthetic import synthetic_ledger
ledger = synthetic_ledger(Path(sys.argv[1]), blocks=1)
os.kill(os.getpid(), 9)
"""


@pytest.fixture
def run(tmp_path):
    return tmp_path / "run #1?mode=rw&x=%20"  # a name that must not become a part of the address of the database


def test_a_closed_ledger_is_read_and_gets_no_files(run):
    synthetic_ledger(run, blocks=1).close()
    before = contents(run)
    with ReadOnlyLedger.open(run) as ledger:
        assert len(ledger.trials()) == 90
        assert ledger.manifest().plan_name == "quick"
    assert contents(run) == before


def test_a_ledger_that_grows_is_read_as_far_as_it_was_committed(run):
    with Ledger.create(run, manifest([HOST])) as writer:
        rng = np.random.default_rng(1)
        for block in range(3):
            add_block(writer, block, {"host": 20.0}, rng, [HOST])
            before = contents(run)
            with ReadOnlyLedger.open(run) as ledger:
                assert [one.block for one in ledger.attempts()] == sorted([*range(block + 1)] * 2)
                assert [one.trial_id for one in ledger.attempts(after=2)] == list(range(3, 2 * block + 3))
                assert [one.trial_id for one in ledger.attempts(after=1, at_most=1)] == [2]
                assert ledger.trial(2).block == 0
            assert contents(run) == before


def test_a_writer_goes_on_and_closes_cleanly_while_somebody_reads(run):
    with Ledger.create(run, manifest([HOST])) as writer:
        writer.add_event("started", "now")
        with ReadOnlyLedger.open(run) as ledger:
            reading = ledger._db.execute("SELECT * FROM events")  # a look that is not over
            writer.add_event("resumed", "later")
            assert [row["kind"] for row in reading] == ["started"]
        with ReadOnlyLedger.open(run) as ledger:
            assert [event.kind for event in ledger.events()] == ["started", "resumed"]
    assert sorted(path.name for path in run.iterdir() if path.is_file()) == [LEDGER_NAME, "plan.toml"]


def test_what_is_read_beside_a_writer_is_of_one_moment(run):
    rng = np.random.default_rng(1)
    with Ledger.create(run, manifest([HOST])) as writer:
        add_block(writer, 0, {"host": 20.0}, rng, [HOST])
        with ReadOnlyLedger.for_command(run) as ledger:
            for block in (1, 2):
                add_block(writer, block, {"host": 20.0}, rng, [HOST])
                writer._db.execute("PRAGMA wal_checkpoint").fetchall()
                assert {one.block for one in ledger.attempts()} == {0}
                ledger.check()
                assert {trial.block for trial in ledger.trials()} == {0}
        with ReadOnlyLedger.for_command(run) as ledger:
            assert {trial.block for trial in ledger.trials()} == {0, 1, 2}


COMMANDS = {
    "report": ("report", "RUN", "--format", "html"),
    "json": ("report", "RUN", "--format", "json"),
    "text": ("report", "RUN"),
    "export": ("export", "RUN", "--format", "csv", "--out", "OUT"),
    "print": ("export", "RUN", "--format", "csv"),
    "archive": ("archive", "add", "RUN", "--to", "OUT"),
    "verdict": ("verdict", "RUN", "--junit", "OUT"),
    "compare": ("compare", "RUN", "--arm", "host=host-aa", "--format", "json"),
    "damaged": ("report", "RUN"),
    "repair": ("repair", "RUN", "--out", "OUT"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_run_that_goes_on_while_it_is_read_as_ended_is_an_error_and_nothing_is_told(command, tmp_path, monkeypatch):
    run, out = tmp_path / "run", tmp_path / "out"
    synthetic_ledger(run, blocks=1).close()
    name = "examine" if command == "repair" else "manifest"
    read, went_on = getattr(ReadOnlyLedger, name), []

    def reading(ledger, *given):
        found = read(ledger, *given)
        if not went_on:
            went_on.append(True)
            with Ledger.open(run) as writer:
                writer.add_event("resumed", "now")
            if command == "damaged":
                raise sqlite3.DatabaseError("database disk image is malformed")
        return found

    monkeypatch.setattr(ReadOnlyLedger, name, reading)
    places = {"RUN": str(run), "OUT": str(out)}
    result = CliRunner().invoke(cli.app, [places.get(word, word) for word in COMMANDS[command]])
    assert went_on
    if command == "archive":  # of several runs, the others are archived
        code, told = result.exit_code, result.stderr
    else:
        assert isinstance(result.exception, VirtgaugeError)
        code, told = result.exception.exit_code, str(result.exception)
    assert code == 1 and "went on while it was read" in told and "again" in told
    assert result.stdout == ""
    assert not [path for path in out.rglob("*.json")] and not out.is_file()
    assert sorted(path.name for path in run.iterdir() if path.is_file()) == [LEDGER_NAME, "plan.toml"]


def test_what_a_killed_run_left_is_read_and_stays_as_it_is(run, tmp_path):
    paths = [path for path in sys.path if path]
    killed = subprocess.run([sys.executable, "-c", KILLED_WRITER, str(run), *paths], check=False)
    assert killed.returncode == -9
    before = contents(run)
    assert {LEDGER_NAME + "-wal", LEDGER_NAME + "-shm"} <= set(before)
    with ReadOnlyLedger.open(run) as ledger:
        assert {one.status for one in ledger.attempts()} == {"valid"}
        assert len(ledger.attempts()) == 90
    assert contents(run) == before


def test_an_index_that_a_kill_kept_from_being_begun_is_made_for_a_command(run):
    paths = [path for path in sys.path if path]
    assert subprocess.run([sys.executable, "-c", KILLED_WRITER, str(run), *paths], check=False).returncode == -9
    index = run / (LEDGER_NAME + "-shm")
    index.write_bytes(bytes(index.stat().st_size))
    with pytest.raises(UsageError) as refusal:
        ReadOnlyLedger.open(run)
    assert "puts it in order" in refusal.value.remedy
    with ReadOnlyLedger.for_command(run) as ledger:
        assert len(ledger.attempts()) == 90


def test_a_log_with_a_header_alone_holds_nothing(run):
    """As a kill left it; without a right to make another index SQLite tries for ten seconds, and gives up."""
    synthetic_ledger(run, blocks=1).close()
    log = "377f0682002de218000010000000000013874d87e01502c45c348a26d81e77ab"
    begun = "18e22d00000000000000000001000000000000000000000000000000000000000000000000000000380718063593db09"
    (run / f"{LEDGER_NAME}-wal").write_bytes(bytes.fromhex(log))
    marks = bytes(12) + b"\xff" * 12
    (run / f"{LEDGER_NAME}-shm").write_bytes((2 * bytes.fromhex(begun) + marks).ljust(32768, b"\0"))
    before = contents(run)
    with ReadOnlyLedger.for_command(run) as ledger:
        assert len(ledger.trials()) == 90
    assert contents(run) == before


def test_a_log_without_its_index_is_refused_with_the_remedy(run):
    synthetic_ledger(run, blocks=1).close()
    (run / (LEDGER_NAME + "-wal")).write_bytes(b"x" * 4096)
    with pytest.raises(UsageError, match="copied while its run wrote it") as refusal:
        ReadOnlyLedger.open(run)
    assert "virtgauge report" in refusal.value.remedy
    assert not (run / (LEDGER_NAME + "-shm")).exists()


@pytest.mark.parametrize("name", [LEDGER_NAME + "-wal", LEDGER_NAME + "-shm"])
def test_a_pipe_or_a_link_in_place_of_log_or_index_is_refused(run, name):
    synthetic_ledger(run, blocks=1).close()
    (run / (LEDGER_NAME + "-wal")).write_bytes(b"x" * 4096)
    (run / name).unlink(missing_ok=True)
    for make in (os.mkfifo, lambda path: path.symlink_to(run / LEDGER_NAME)):
        make(run / name)
        with pytest.raises(DamagedError, match="it is no file"):
            ReadOnlyLedger.open(run, limit_s=1)
        (run / name).unlink()


def test_a_ledger_that_is_a_link_is_not_opened_for_writing(run, tmp_path, monkeypatch):
    synthetic_ledger(run, blocks=1).close()
    other = tmp_path / "other"
    other.mkdir()
    (other / LEDGER_NAME).symlink_to(run / LEDGER_NAME)
    (other / (LEDGER_NAME + "-wal")).write_bytes(b"x" * 4096)
    monkeypatch.setattr(Ledger, "open", lambda folder: pytest.fail("it was opened for writing"))
    with pytest.raises(UsageError, match="no run"):
        ReadOnlyLedger.for_command(other)


@pytest.mark.parametrize("make", ["nothing", "text", "empty", "foreign", "cut", "pipe", "link"])
def test_what_is_no_ledger_is_refused(tmp_path, make):
    synthetic_ledger(tmp_path / "good", blocks=1).close()
    path = tmp_path / LEDGER_NAME
    if make == "text":
        path.write_text("no database " * 100)
    elif make == "empty":
        path.touch()
    elif make == "foreign":
        with sqlite3.connect(path) as db:
            db.execute("CREATE TABLE songs (name TEXT)")
        db.close()
    elif make == "cut":
        path.write_bytes((tmp_path / "good" / LEDGER_NAME).read_bytes()[:1000])
    elif make == "pipe":
        os.mkfifo(path)
    elif make == "link":
        path.symlink_to(tmp_path / "good" / LEDGER_NAME)
    nothing = make in ("nothing", "pipe", "link")
    with pytest.raises(
        UsageError if nothing else DamagedError, match="no run" if nothing else r"ledger\.sqlite.*damaged"
    ):
        ReadOnlyLedger.open(tmp_path)


def test_a_view_in_place_of_a_table_is_never_asked(run):
    synthetic_ledger(run, blocks=1).close()
    with sqlite3.connect(run / LEDGER_NAME) as db:
        db.execute("DROP TABLE events")
        db.execute(
            "CREATE VIEW events AS WITH RECURSIVE n(at, kind, detail, rowid) AS "
            "(SELECT 'a', 'b', 'c', 1 UNION ALL SELECT at, kind, detail, rowid + 1 FROM n) SELECT * FROM n"
        )
    db.close()
    with pytest.raises(DamagedError, match="it holds the view events"):
        ReadOnlyLedger.open(run)


def test_what_takes_too_long_is_given_up(run):
    synthetic_ledger(run, blocks=1).close()
    with ReadOnlyLedger.open(run, limit_s=0.2) as ledger, pytest.raises(sqlite3.OperationalError, match="interrupted"):
        ledger.rows("WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT sum(x) FROM n").fetchall()


def test_nothing_can_be_written(run):
    synthetic_ledger(run, blocks=1).close()
    with ReadOnlyLedger.open(run) as ledger, pytest.raises(Exception, match="readonly"):
        ledger.add_event("started", "now")
