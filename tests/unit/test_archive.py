"""An archive of runs: each run there once, whole or not at all, in a folder as in an object store."""

import csv
import dataclasses
import io
import json
import resource
import statistics

import pytest
from synthetic import STARTED, arm_record, cells, hdr_bins, manifest, synthetic_ledger, trial, usual_arms
from typer.testing import CliRunner

from virtgauge import cli
from virtgauge.errors import UsageError
from virtgauge.exchange import archive
from virtgauge.exchange.archive import Archived, ArchiveWriteError, archive_run
from virtgauge.exchange.entries import read_entries
from virtgauge.exchange.place import open_place
from virtgauge.exchange.query import Limits, QueryError, ask, summary_sql
from virtgauge.ledger.records import TrialStatus
from virtgauge.ledger.store import Ledger
from virtgauge.results.table import ResultTable
from virtgauge.specs.suites import find_measure

P50 = find_measure("timing", "timer_cost.p50")


@pytest.fixture
def invoke():
    return lambda *arguments: CliRunner().invoke(cli.app, [str(a) for a in arguments])


def make_run(folder, name="run", blocks=2, **fields):
    arms = [arm for arm in usual_arms() if arm.record.usable]
    design = list(cells(("rdtsc",), (("usleep", "default"),), ("idle", "cpu")))
    synthetic_ledger(folder / name, arms, blocks, design, run={"run_id": name, **fields}, reads=20_000).close()
    return folder / name


@pytest.fixture
def place(tmp_path):
    return open_place(str(tmp_path / "archive"))


def archived(place, folder):
    with Ledger.open(folder) as ledger:
        return archive_run(place, ledger)


def asked(place, sql, parameters=(), limits=None):
    return ask(place, limits or Limits(), sql, parameters).rows


def test_a_run_is_there_once(place, tmp_path):
    folder = make_run(tmp_path)
    assert archived(place, folder).outcome is Archived.NEW
    before = asked(place, "SELECT count(*), count(DISTINCT trial_id), sum(value) FROM trials")
    assert archived(place, folder).outcome is Archived.KNOWN
    assert asked(place, "SELECT count(*), count(DISTINCT trial_id), sum(value) FROM trials") == before
    assert asked(place, "SELECT run, trials FROM runs") == [("run", before[0][1])]


def test_a_run_that_has_grown_replaces_what_was_there(place, tmp_path):
    folder = make_run(tmp_path)
    first = archived(place, folder)
    with Ledger.open(folder) as ledger:
        one = ledger.trials()[0]
        ledger.add_trial(dataclasses.replace(one, block=7, key="b0007/new"), ledger.histograms_of(one.trial_id))
    again = archived(place, folder)
    assert again.outcome is Archived.RENEWED
    assert again.entry.archive == first.entry.archive
    assert asked(place, "SELECT count(DISTINCT trial_id) FROM trials") == [(first.entry.trials + 1,)]
    assert len(place.found("trials")) == len(again.entry.files) == 1


def test_runs_of_one_name_from_two_machines_are_two(place, tmp_path):
    one = make_run(tmp_path / "a")
    other = make_run(tmp_path / "b", fingerprint={"identity": {"cpu_model": "another"}})
    for folder in (one, other):
        assert archived(place, folder).outcome is Archived.NEW
    assert asked(place, "SELECT DISTINCT cpu FROM trials ORDER BY 1") == [("",), ("another",)]
    assert len(read_entries(place)) == 2


@pytest.mark.parametrize("step", ["write_entry", "_write_trials"])
def test_a_write_that_fails_leaves_what_was_there(place, tmp_path, monkeypatch, step):
    folder = make_run(tmp_path)
    archived(place, folder)
    before = asked(place, "SELECT count(*) FROM trials")
    other = make_run(tmp_path, "other")

    def failing(*_):
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(archive, step, failing)
        with pytest.raises(ArchiveWriteError, match="no space left"):
            archived(place, other)
    assert asked(place, "SELECT count(*) FROM trials") == before
    assert archived(place, other).outcome is Archived.NEW
    assert asked(place, "SELECT count(*) FROM trials") == [(2 * before[0][0],)]


@pytest.mark.parametrize("step", ["read_entry", "_write_trials", "write_entry"])
def test_another_run_may_be_written_at_any_moment(place, tmp_path, monkeypatch, step):
    first, second = make_run(tmp_path), make_run(tmp_path, "second")
    own, begun = getattr(archive, step), []

    def interrupted(*arguments):
        if not begun:
            begun.append(True)
            assert archived(open_place(str(tmp_path / "archive")), second).outcome is Archived.NEW
        return own(*arguments)

    monkeypatch.setattr(archive, step, interrupted)
    assert archived(place, first).outcome is Archived.NEW
    assert begun
    assert sorted(entry.run for entry in read_entries(place)) == ["run", "second"]
    assert len({tuple(row) for row in asked(place, "SELECT run, count(*) FROM trials GROUP BY run")}) == 2
    assert [archived(place, folder).outcome for folder in (first, second)] == [Archived.KNOWN] * 2


def test_figures_are_those_of_the_ledger(place, tmp_path):
    folder = make_run(tmp_path, blocks=5)
    archived(place, folder)
    with Ledger.open(folder) as ledger:
        table = ResultTable(ledger)
        values = {
            arm.name: [value for cell in table.cells() for value in table.values(P50, cell, arm.name).values()]
            for arm in table.arms
        }
    expected = {arm: statistics.median(own) for arm, own in values.items() if own}
    found = asked(place, *summary_sql("timing", P50.name, ["arm"], []))
    assert {arm: median for arm, _, _, median, *_ in found} == pytest.approx(expected)
    assert {row[0] for row in found if row[-1]} == {"qemu-microvm"}, "emulated figures are marked"


def test_a_factor_is_a_column_too(place, tmp_path):
    archived(place, make_run(tmp_path))
    sql, parameters = summary_sql("timing", P50.name, ["factor.load", "month"], [("arm", "host"), ("block", "1")])
    found = asked(place, sql, parameters)
    assert [row[:3] for row in found] == [("cpu", "2025-03", 1), ("idle", "2025-03", 1)]


def test_trials_that_do_not_count_are_kept_without_a_value(place, tmp_path):
    arm = arm_record("host", "host", "Host", "reference")
    with Ledger.create(tmp_path / "run", manifest([arm])) as ledger:
        ledger.add_trial(trial(arm, "timer_cost", {"load": "idle"}, 0, status=TrialStatus.FAILED, error="lost"))
    archived(place, tmp_path / "run")
    assert asked(place, "SELECT DISTINCT status, error, value FROM trials") == [("failed", "lost", None)]


def test_a_run_without_trials_is_archived_too(place, tmp_path):
    Ledger.create(tmp_path / "run", manifest([arm_record("host", "host", "Host", "reference")])).close()
    archived(place, tmp_path / "run")
    assert asked(place, "SELECT count(*) FROM trials") == [(0,)]
    assert asked(place, "SELECT trials, created_at FROM runs") == [(0, STARTED)]


def test_a_suite_s_files_are_not_opened_for_another_suite_s_question(place, tmp_path):
    """The proof: they are broken, and only who asks for them notices."""
    arm = arm_record("host", "host", "Host", "reference")
    with Ledger.create(tmp_path / "run", manifest([arm])) as ledger:
        for suite in ("timing", "storage"):
            record = trial(arm, "timer_cost", {"load": "idle"}, 0)
            key = f"{suite}/{record.key}"
            ledger.add_trial(dataclasses.replace(record, suite=suite, key=key), {"timer_cost": hdr_bins(_nine_ns())})
    entry = archived(place, tmp_path / "run").entry
    (storage,) = [one.path for one in entry.files if one.suite == "storage"]
    with open(place.path(storage), "wb") as broken:
        broken.write(b"no parquet")
    assert asked(place, *summary_sql("timing", P50.name, ["arm"], []))[0][:2] == ("host", 1)
    with pytest.raises(QueryError):
        asked(place, "SELECT count(value) FROM trials")


def _nine_ns():
    import numpy as np

    return np.full(100, 9000, dtype=np.int64)


@pytest.mark.parametrize(
    "sql",
    [
        "COPY trials TO '{}'",
        "SELECT * FROM read_csv('/etc/hostname')",
        "SELECT * FROM read_text('/etc/hostname')",
        "SELECT * FROM '/etc/hostname'",
        "SELECT * FROM glob('/etc/*')",
        "SELECT * FROM read_parquet('s3://bucket/x')",
        "ATTACH '{}' AS other",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "EXPORT DATABASE '{}'",
        "DROP VIEW trials",
        "CREATE TABLE other AS SELECT 1",
        "INSERT INTO runs SELECT * FROM runs",
        "PRAGMA enable_profiling",
        "SELECT 1; SELECT 2",
        "",
        "SELECT * FROM place",
        "SELECT * FROM no_such_table",
        "EXPLAIN ANALYZE COPY trials TO '{}'",
    ],
)
def test_a_question_reads_the_archive_and_does_nothing_beside(place, tmp_path, sql):
    archived(place, make_run(tmp_path, blocks=1))
    target = tmp_path / "written"
    with pytest.raises(QueryError):
        asked(place, sql.format(target))
    assert asked(place, "SELECT count(*) > 0 FROM trials") == [(True,)]
    assert not target.exists()


def test_a_question_has_limits(place, tmp_path):
    archived(place, make_run(tmp_path, blocks=1))
    endless = "SELECT count(*) FROM range(1000000) a, range(1000000) b, range(1000) c WHERE a.range + b.range = c.range"
    with pytest.raises(QueryError, match="longer than"):
        asked(place, endless, limits=Limits(seconds=0.2))
    with pytest.raises(QueryError, match="more than 64 MiB"):
        asked(place, "SELECT list(range) FROM range(100000000)", limits=Limits(memory_mib=64, scratch_mib=1))
    answer = ask(place, Limits(rows=3), "SELECT trial_id FROM trials ORDER BY 1")
    assert (len(answer.rows), answer.cut) == (3, True)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda entry: entry.update(version=9), "version 9"),
        (lambda entry: entry["files"][0].update(path="trials/../../../etc/passwd"), "is no entry"),
        (lambda entry: entry.pop("digest"), "is no entry"),
    ],
)
def test_an_entry_that_is_none_is_refused(place, tmp_path, change, words):
    entry = archived(place, make_run(tmp_path, blocks=1)).entry
    path = tmp_path / "archive" / "runs" / f"{entry.archive}.json"
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    with pytest.raises(UsageError, match=words):
        asked(place, "SELECT 1")


def test_where_there_is_no_archive_it_is_said(place):
    with pytest.raises(UsageError, match="holds no archive") as refusal:
        asked(place, "SELECT 1")
    assert "--to FOLDER" in str(refusal.value)


@pytest.mark.parametrize("location", ["http://host/x", "s3://", "s3://key:secret@bucket/x", "s3://bucket/x?y=z"])
def test_a_place_that_is_none_is_refused(location):
    with pytest.raises(UsageError, match="is no place for an archive"):
        open_place(location)


@pytest.mark.parametrize("endpoint", ["127.0.0.1:9000", "ftp://host", "http://"])
def test_an_endpoint_that_is_none_is_refused(endpoint):
    with pytest.raises(UsageError, match="--endpoint"):
        open_place("s3://bucket/x", endpoint=endpoint)


@pytest.mark.slow
def test_the_commands_archive_and_answer(invoke, tmp_path):
    folder, place = make_run(tmp_path), tmp_path / "archive"
    assert "archived (" in invoke("archive", "add", folder, "--to", place).stdout
    assert "in the archive already" in invoke("archive", "add", folder, "--to", place).stdout
    options = ("query", place, "--measure", "timing.timer_cost.p50", "--by", "arm,factor.load")
    rows = list(csv.DictReader(io.StringIO(invoke(*options, "--format", "csv").stdout)))
    assert len(rows) == 10
    assert {row["unit"] for row in rows} == {"ns"}
    assert json.loads(invoke(*options, "--format", "json", "--where", "arm=host").stdout)[0]["arm"] == "host"
    assert "qemu-microvm" in invoke(*options).stdout
    cut = invoke(*options, "--limit", 2)
    assert "only the first 2 rows" in cut.stderr


def test_what_is_no_run_is_passed_over_and_folders_of_runs_are_taken(invoke, tmp_path):
    """And a run that has not finished is told."""
    runs = tmp_path / "runs"
    make_run(runs, "one")
    Ledger.create(runs / "two", manifest([arm_record("host", "host", "Host", "reference")])).close()
    (tmp_path / "none").mkdir()
    result = invoke("archive", "add", tmp_path / "none", runs, "--to", tmp_path / "archive")
    assert result.exit_code == 1
    assert f"passed over {tmp_path}/none: neither a run nor a folder of runs" in result.stderr
    (one, two) = result.stdout.splitlines()
    assert "one: archived (" in one and "finished" not in one
    assert two.endswith("; it has not finished")
    assert {entry.finished for entry in read_entries(open_place(str(tmp_path / "archive")))} == {True, False}
    assert invoke("archive", "add", runs, "--to", tmp_path / "archive").exit_code == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "either --sql or --measure"),
        (("--sql", "SELECT 1", "--where", "arm=host"), "--where goes with --measure"),
        (("--measure", "timing.timer_cost.p50", "--where", "arm"), "COLUMN=TEXT"),
        (("--measure", "timing.timer_cost.p50", "--by", 'arm"; DROP'), "is no column"),
        (("--measure", "timing.timer_cost.p50", "--by", "factor.x'y"), "is no column"),
        (("--measure", "timing.timer_cost"), "no such measure"),
    ],
)
def test_a_question_that_is_none_is_refused(invoke, tmp_path, options, words):
    result = invoke("query", tmp_path, *options)
    assert isinstance(result.exception, UsageError)
    assert words in str(result.exception)


@pytest.mark.parametrize("sql", ["SELECT repeat('x', 3000000000)", "SELECT list_resize([1], 2000000000, 0)"])
def test_one_function_of_a_question_takes_no_more_memory_than_the_whole(invoke, tmp_path, sql):
    """DuckDB counts what its operators take, and not what a function does."""
    place, limit = tmp_path / "archive", resource.getrlimit(resource.RLIMIT_DATA)
    assert invoke("archive", "add", make_run(tmp_path), "--to", place).exit_code == 0
    refused = invoke("query", place, "--sql", sql, "--memory", 256)
    assert isinstance(refused.exception, QueryError)
    assert "needs more than 256 MiB" in str(refused.exception)
    assert resource.getrlimit(resource.RLIMIT_DATA) == limit


def test_names_in_an_answer_do_not_steer_the_terminal(invoke, tmp_path):
    arm = arm_record("host", "host", "Host", "reference")
    with Ledger.create(tmp_path / "run", manifest([arm])) as ledger:
        lost = {"status": TrialStatus.FAILED, "error": "lost \x1b[2J [red]"}
        ledger.add_trial(trial(arm, "timer_cost", {"load": "idle"}, 0, **lost))
    invoke("archive", "add", tmp_path / "run", "--to", tmp_path / "archive")
    shown = invoke("query", tmp_path / "archive", "--sql", "SELECT DISTINCT error FROM trials").stdout
    assert "lost �[2J [red]" in shown
