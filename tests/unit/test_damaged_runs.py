"""A run from anywhere is read, or refused in one error: never a defect, never without bounds; what is sound is kept."""

import json
import re
import shutil
import sqlite3
import subprocess
import sys
import time
import zlib
from collections import Counter
from pathlib import Path
from unittest import mock

import damaged_runs
import pytest
from support.figures import restore
from synthetic import synthetic_ledger
from typer.testing import CliRunner

from virtgauge import cli
from virtgauge.compare.runs import read_run
from virtgauge.errors import ExitCode, UsageError, VirtgaugeError
from virtgauge.exchange.entries import read_entries
from virtgauge.exchange.imports.pgbench import read_pgbench
from virtgauge.exchange.place import open_place
from virtgauge.ledger.damage import DamagedError
from virtgauge.ledger.read_only import ReadOnlyLedger
from virtgauge.ledger.repair import repair
from virtgauge.ledger.store import LEDGER_NAME, Ledger
from virtgauge.specs.suites import headline_measures

pytestmark = pytest.mark.slow

EXPECTED = {0, ExitCode.FAILED, ExitCode.USAGE, ExitCode.NOT_MET, ExitCode.UNDECIDED}


def outcomes(first: int, last: int, commands: int = 99) -> list[dict]:
    words = [sys.executable, damaged_runs.__file__, str(first), str(last), str(commands)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def all_well(found: list[dict]) -> None:
    wrong = [
        one
        for one in found
        if one["code"] not in EXPECTED or one["s"] > damaged_runs.LIMIT_S or one["mib"] > damaged_runs.LIMIT_MIB
    ]
    assert not wrong, (Counter(one["code"] for one in wrong), wrong[:3])


def test_a_hundred_mutations_are_no_defect_and_stay_in_bounds():
    found = outcomes(0, 100, commands=3)
    assert len({one["seed"] for one in found}) == 100
    assert {one["code"] for one in found} >= {0, ExitCode.FAILED}
    all_well(found)


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("first", range(0, 2000, 250))
def test_two_thousand_mutations_through_every_command(first):
    all_well(outcomes(first, first + 250))


@pytest.fixture
def run(tmp_path):
    return restore((damaged_runs.DATA / "recorded" / "simulated-timing.sql").read_text(), tmp_path / "run")


def change(run: Path, sql: str, *parameters: object) -> None:
    with sqlite3.connect(run / LEDGER_NAME) as db:
        db.execute(sql, parameters)
    db.close()


def test_a_guest_that_has_no_number_is_left_out_of_a_repaired_run(run, tmp_path):
    change(run, "UPDATE guests SET guest_id = 0 WHERE guest_id = 2")
    assert "guest_id is 0" in str(repair(run, tmp_path / "repaired").left_out[0])


def test_a_long_text_in_every_row_of_a_large_ledger_is_found_before_any_is_kept(run):
    change(run, "UPDATE trials SET factors = printf('%.*c', 200000, 'x')")
    assert (run / LEDGER_NAME).stat().st_size > 2 << 20  # else every row is looked at in any case
    with pytest.raises(DamagedError, match="factors has 200000 characters"), ReadOnlyLedger.for_command(run):
        pass


def refusal(run: Path) -> str:
    with pytest.raises(DamagedError) as refused, ReadOnlyLedger.for_command(run) as ledger:
        ledger.manifest()
    assert refused.value.exit_code == ExitCode.FAILED
    assert "virtgauge repair" in refused.value.remedy
    return refused.value.message


@pytest.mark.parametrize(
    ("column", "value", "problem"),
    [
        ("result", '{"a": ' * 500 + "1" + "}" * 500, "result"),
        ("result", "[]", "result: Input should be an object"),
        ("result", json.dumps({"x": 10**30}), "result has a number of 25 hexadecimal digits"),
        ("result", json.dumps({"x": "x" * 5_000_000}), "result has 5000009 characters"),
        ("started_at", "9999-12-31", "started_at is '9999-12-31', no date"),
        ("started_at", "20260101T000000Z", "started_at is '20260101T000000Z', no date"),
        ("suite", "x/../../../../../evil", "suite is 'x/../../../../../evil'"),
        ("block", 2**40, "block is 1099511627776"),
        ("arm", "nobody", "arm 'nobody' is none of the manifest's"),
    ],
)
def test_a_row_beyond_its_bounds_is_named_with_what_is_left(run, column, value, problem):
    change(run, f"UPDATE trials SET {column} = ? WHERE trial_id = 7", value)
    said = refusal(run)
    assert said.startswith(f"{run / LEDGER_NAME}: table trials, row 7: damaged: {problem}")
    assert "304 of 305 trials can still be read" in said


def test_bins_that_decompress_to_very_much_are_not_unpacked(run):
    change(run, "UPDATE histograms SET bins = ? WHERE trial_id = 7", zlib.compress(bytes(200 * 2**20)))
    assert "table histograms, row 7: damaged: bins: 203" in refusal(run)


def test_bins_longer_than_any_of_a_large_ledger_are_named_where_they_are_read(run):
    change(run, "UPDATE histograms SET bins = zeroblob(3000000) WHERE trial_id = 7")
    assert (run / LEDGER_NAME).stat().st_size > 2 << 20  # else every row is looked at in any case
    with ReadOnlyLedger.for_command(run) as ledger:
        sound, measure = next(ledger.rows("SELECT trial_id, measure FROM histograms WHERE trial_id != 7"))
        assert [number for number, _ in ledger.histograms([sound], measure)] == [sound]
    named = "table histograms, row 7: damaged: bins"
    with pytest.raises(DamagedError, match=named), ReadOnlyLedger.for_command(run) as ledger:
        ((measure,),) = ledger.rows("SELECT measure FROM histograms WHERE trial_id = 7")
        list(ledger.histograms([7], measure))


def test_rows_that_share_pages_do_not_fill_the_memory(run, tmp_path):
    damaged_runs.share_pages(run, rows=300)
    size = (run / LEDGER_NAME).stat().st_size
    assert "the rows up to it are longer than the file" in refusal(run)
    repair(run, tmp_path / "new")
    with ReadOnlyLedger.for_command(tmp_path / "new") as ledger:
        assert sum(len(event.detail) for event in ledger.events()) <= size


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        ("$.plan_text", ".".join("a" * 200_000) + " = 1", "plan_text has 400003 characters, or a line"),
        ("$.plan_text", "a = 1\n" * 200_000, "plan_text has 1200000 characters"),
        ("$.run_id", "x" * 1_000_000, "run_id is str of length 1000000"),
        ("$.arms", [0] * 1_000_000, "arms are 1000000"),
        ("$.hosts", [{}] * 500_000, "hosts are 500000"),
    ],
)
def test_a_manifest_that_would_take_minutes_or_gibibytes_is_refused_at_once(run, path, value, problem):
    change(run, "UPDATE manifest SET value = json_set(value, ?, json(?))", path, json.dumps(value))
    began = time.process_time()
    assert problem in refusal(run)
    assert time.process_time() - began < damaged_runs.LIMIT_S


def test_a_result_unlike_those_of_its_probe_is_named_when_a_reader_stumbles(run):
    change(run, "UPDATE trials SET result = json_replace(result, '$.n', 'many') WHERE trial_id = 7")
    odd = r"table trials, row 7: damaged: result\.n is text; in \d+ rows"
    with pytest.raises(DamagedError, match=odd), ReadOnlyLedger.for_command(run):
        raise TypeError("as code does that was given text for a number")


@pytest.mark.parametrize(
    ("column", "path", "value", "problem"),
    [
        ("result", "$.n", "1e308", "result.n is a number that no figure can be"),
        ("result", "$.n", "5e-324", "result.n is a number that no figure can be"),
        ("accounting", "$.steal_ns", "[]", "accounting.steal_ns is an array"),
        ("accounting", "$.left_out", "1", "accounting.left_out is a number"),
        ("accounting", "$.left_out", '[{"share": null}]', r"accounting.left_out\[\].share is null"),
        ("accounting", "$.waited_ns", "null", "accounting.waited_ns is null"),
    ],
)
def test_what_no_trial_can_hold_is_named_also_where_all_hold_it(run, column, path, value, problem):
    change(run, f"UPDATE trials SET {column} = json_set({column}, ?, json(?))", path, value)
    with pytest.raises(DamagedError, match=problem), ReadOnlyLedger.for_command(run):
        raise TypeError("as code does that was given it")


@pytest.mark.parametrize("figure", [5e-324, -1e308])
def test_a_figure_that_none_can_be_is_not_compared(tmp_path, figure):
    run = restore((damaged_runs.DATA / "recorded" / "simulated-isolation.sql").read_text(), tmp_path / "run")
    with sqlite3.connect(run / LEDGER_NAME) as db:
        for number, text in db.execute("SELECT trial_id, result FROM trials").fetchall():
            changed = re.sub(r"(?<=: )-?\d[\d.e+-]*", repr(figure), text)
            db.execute("UPDATE trials SET result = ? WHERE trial_id = ?", (changed, number))
    db.close()
    with pytest.raises(UsageError, match="no figure"):
        read_run(run, headline_measures())


def test_an_error_over_a_sound_run_stays_a_defect(run):
    with pytest.raises(TypeError, match="of this program"), ReadOnlyLedger.for_command(run):
        raise TypeError("of this program")


def test_a_repaired_run_has_the_sound_trials_and_says_what_is_left_out(run, tmp_path):
    shutil.rmtree(run / "samples")
    (run / "samples").mkdir()
    before = ReadOnlyLedger.for_command(run).trials()
    change(run, "UPDATE trials SET result = '[' WHERE trial_id = 7")
    change(run, "UPDATE histograms SET bins = x'00' WHERE trial_id = 9")
    damaged = (run / LEDGER_NAME).read_bytes()
    done = repair(run, tmp_path / "new")
    assert (run / LEDGER_NAME).read_bytes() == damaged
    assert {fault.row for fault in done.left_out} == {7, 9}
    assert done.samples_lost == ()  # in a run of before rows said what raw values they have, nothing is claimed
    with ReadOnlyLedger.for_command(tmp_path / "new") as ledger:
        assert ledger.trials() == [trial for trial in before if trial.trial_id not in (7, 9)]
        assert done.kept == len(before) - 2
        course = {event.kind: event.detail for event in ledger.events()}
        assert "table trials, row 7" in course["repaired"]
        assert "ended incomplete" in course


def test_a_repaired_run_that_finds_no_room_is_not_there_and_is_when_there_is_room(run, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "put_event", mock.Mock(side_effect=sqlite3.OperationalError("database or disk is full")))
        with pytest.raises(VirtgaugeError, match=r"cannot make a run in .*full"):
            repair(run, tmp_path / "new")
    assert [path.name for path in (tmp_path / "new").rglob("*")] == ["samples"]
    assert repair(run, tmp_path / "new").left_out == ()


KILLED_REPAIR = """
import os, signal, sys
from pathlib import Path
from virtgauge.ledger.repair import repair
from virtgauge.ledger.store import Ledger
Ledger.put_event = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
repair(Path(sys.argv[1]), Path(sys.argv[2]))
"""


def test_a_repair_that_was_killed_is_made_anew_and_nothing_half_stays(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    synthetic_ledger(old, blocks=1, reservoir=5).close()
    assert subprocess.run([sys.executable, "-c", KILLED_REPAIR, old, new], check=False).returncode == -9
    assert not (new / LEDGER_NAME).exists()
    (new / "samples" / "0009999.partial").touch()
    done = repair(old, new)
    samples = {Path("samples", f"{number:07d}.parquet") for number in range(1, done.kept + 1)}
    assert {path.relative_to(new) for path in new.rglob("*") if path.is_file()} == {
        Path(LEDGER_NAME),
        Path("plan.toml"),
        *samples,
    }


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("report {run} --full", "of the trials 3, 5: {run}/samples/0000003.parquet"),
        ("report {run} --format html --out {new}", "of the trials 3, 5: {run}/samples/0000003.parquet"),
        ("report {run} --format json --out {new}", "of the trials 3, 5: {run}/samples/0000003.parquet"),
        ("export {run} --format csv --out {new}", "of the trials 3, 5: {run}/samples/0000003.parquet"),
        ("archive add {run} --to {new}", "of the trials 3, 5: {run}/samples/0000003.parquet"),
        ("repair {run} --out {new}", "left out: the raw values of trial 3 left out: the raw values of trial 5"),
    ],
)
def test_who_shows_or_copies_a_run_says_of_which_trials_raw_values_are_missing(tmp_path, monkeypatch, command, said):
    monkeypatch.chdir(tmp_path)
    synthetic_ledger(Path("run"), blocks=2, reservoir=5).close()
    for number in (3, 5):
        Path(f"run/samples/000000{number}.parquet").unlink()
    done = CliRunner().invoke(cli.app, command.format(run="run", new="new").split())
    assert done.exit_code == 0, done.output
    told = done.output + (Path("new").read_text() if Path("new").is_file() else "")
    assert said.format(run="run") in " ".join(told.split())
    if command.startswith("repair"):
        with ReadOnlyLedger.for_command(Path("new")) as ledger:
            assert ledger.lost_samples() == [3, 5]  # the new run's rows go on saying it
            assert ledger.samples(4, "reservoir").size == 5


def test_a_page_that_is_lost_takes_its_trials_and_no_others(run, tmp_path):
    path = run / LEDGER_NAME
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA journal_mode = DELETE")
    db.close()
    content = bytearray(path.read_bytes())
    at = content.index(b'"foreign_ns"') // 4096 * 4096
    content[at : at + 4096] = bytes(4096)
    path.write_bytes(content)
    assert "can still be read" in refusal(run)
    done = repair(run, tmp_path / "new")
    assert done.left_out
    with ReadOnlyLedger.for_command(tmp_path / "new") as ledger:
        assert 0 < len(ledger.trials()) == done.kept < 305


def test_a_table_whose_name_is_no_text_is_damage(run):
    path = run / LEDGER_NAME
    path.write_bytes(path.read_bytes().replace(b"launched_at TEXT", b"launched\xff\xa6 TEXT"))
    assert "damaged: " in refusal(run)


@pytest.mark.parametrize("content", ["[" * 100_000, '{"version": ' + "9" * 5000 + "}", " " * 5_000_000])
def test_an_archive_s_entry_that_is_none_is_refused(tmp_path, content):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "one.json").write_text(content)
    with pytest.raises(UsageError, match="is no entry of an archive"):
        read_entries(open_place(str(tmp_path)))


@pytest.mark.parametrize(
    "line", ["0 1 99999999999999999999 0 1 1", "0 1 5 0 99999999999999 1", "9999999999999 5 1 1 1 1"]
)
def test_a_log_with_times_beyond_all_dates_is_refused(tmp_path, line):
    (tmp_path / "log").write_text(line + "\n")
    with pytest.raises(UsageError, match="nothing was imported"):
        read_pgbench([tmp_path / "log"])
