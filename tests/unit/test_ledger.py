"""The ledger: what was committed comes back as it was, whatever happened to the writer."""

import contextlib
import dataclasses
import errno
import os
import pickle
import signal
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import synthetic

from virtgauge.errors import ExitCode, UsageError, VirtgaugeError
from virtgauge.ledger import files, read_only, store
from virtgauge.ledger.damage import DamagedError
from virtgauge.ledger.read_only import ReadOnlyLedger
from virtgauge.ledger.records import Flag, GuestRecord, Histogram, TrialStatus
from virtgauge.ledger.rows import RowError, pack
from virtgauge.ledger.store import LEDGER_NAME, Ledger, LedgerWriteError, UnfitError

HOST = synthetic.arm_record("host", "host", "host", role="reference")
MANIFEST = synthetic.manifest([HOST])


def a_trial(block=0, **fields):
    return synthetic.trial(HOST, "timer_cost", {"function": "rdtsc", "load": "idle"}, block, **fields)


HISTOGRAM = Histogram(
    unit="ps",
    values=np.array([-5, 10, 20, 4_000_000_000], dtype=np.int64),
    counts=np.array([1, 2, 3, 2**40], dtype=np.uint64),
    minimum=-5,
    maximum=4_000_000_123,
    mean=12.5,
)


@pytest.fixture
def ledger(tmp_path):
    with Ledger.create(tmp_path / "run", MANIFEST) as ledger:
        yield ledger


def test_who_looks_at_a_new_run_does_not_keep_its_writer_out(tmp_path):
    with Ledger.whole(tmp_path / "run", MANIFEST):
        pass
    with contextlib.closing(sqlite3.connect(tmp_path / "run" / "ledger.sqlite")) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM trials").fetchone() == (0,)
        with Ledger.open(tmp_path / "run") as ledger:
            ledger.add_event("started", "")
            assert [event.kind for event in ledger.events()] == ["started"]


def test_the_manifest_comes_back(ledger):
    assert Ledger.open(ledger.folder).manifest() == MANIFEST


def test_a_trial_comes_back_with_histogram_and_samples(ledger):
    trial = a_trial(flags=(Flag("short", "3 of 4", fatal=False),), result={"n": 3, "none": None})
    samples = np.array([3, -1, 2**62], dtype=np.int64)
    number = ledger.add_trial(trial, {"timer_cost": HISTOGRAM}, {"reservoir": samples})
    (back,) = ledger.trials()
    promised = trial.accounting | {"samples": {"reservoir": 3}}
    assert back == dataclasses.replace(trial, trial_id=number, accounting=promised)
    histogram = ledger.histograms_of(number)["timer_cost"]
    assert histogram.values.tolist() == HISTOGRAM.values.tolist()
    assert histogram.counts.tolist() == HISTOGRAM.counts.tolist()
    assert (histogram.minimum, histogram.maximum, histogram.mean) == (-5, 4_000_000_123, 12.5)
    assert ledger.samples(number, "reservoir").tolist() == samples.tolist()
    assert ledger.samples(number, "no such series").tolist() == []


def test_histograms_of_several_trials_come_back_each_as_it_was(ledger):
    other = dataclasses.replace(HISTOGRAM, values=HISTOGRAM.values + np.array([0, 5, 0, 1]), minimum=-7, mean=20.0)
    empty = Histogram(np.empty(0, np.int64), np.empty(0, np.uint64), 0, 0, 0.0, "ps")
    kept = [empty, HISTOGRAM, other, dataclasses.replace(HISTOGRAM, unit="ns"), empty]
    numbers = [ledger.add_trial(a_trial(block=n), {"timer_cost": one}) for n, one in enumerate(kept)]
    found = list(ledger.histograms(numbers, "timer_cost"))
    assert [number for number, _ in found] == numbers
    for (_, one), was in zip(found, kept, strict=True):
        assert (one.values.tolist(), one.counts.tolist()) == (was.values.tolist(), was.counts.tolist())
        assert (one.unit, one.minimum, one.maximum, one.mean) == (was.unit, was.minimum, was.maximum, was.mean)
    assert list(ledger.histograms(numbers, "sleep_lateness")) == []


def test_bins_that_count_nothing_may_lie_anywhere_among_others_too(ledger):
    odd = Histogram(np.array([2**62 + 5]), np.zeros(1, np.uint64), 0, 0, 0.0, "ps")
    numbers = [ledger.add_trial(a_trial(block=n), {"timer_cost": one}) for n, one in enumerate([HISTOGRAM, odd])]
    assert [one.n for _, one in ledger.histograms(numbers, "timer_cost")] == [HISTOGRAM.n, 0]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("bins = x'00'", "bins: "),
        ("bins = :falling", "bins do not ascend"),
        ("unit = ''", "unit is ''"),
        ("maximum = -6", "the least value is above the largest"),
        ("maximum = 4611686018427387905", "maximum is 4611686018427387905"),
        ("maximum = 9000000000000000000", "maximum is 9000000000000000000"),
        ("maximum = 4000000000000000000, unit = 's'", "a value is 4000000000000000000 's'"),
        ("mean = 1e300", "mean is 1e"),
    ],
)
def test_one_histogram_among_several_that_is_none_is_refused_as_by_itself(ledger, damage, said):
    for n in range(2):
        ledger.add_trial(a_trial(block=n), {"timer_cost": HISTOGRAM})
    falling = pack(dataclasses.replace(HISTOGRAM, values=HISTOGRAM.values[::-1]))
    ledger._db.execute(f"UPDATE histograms SET {damage} WHERE trial_id = 2", {"falling": falling})
    for read in (lambda: ledger.histograms_of(2), lambda: list(ledger.histograms([1, 2], "timer_cost"))):
        with pytest.raises(RowError, match=said):
            read()


def test_a_missing_histogram_is_missing(ledger):
    number = ledger.add_trial(a_trial())
    with pytest.raises(KeyError):
        ledger.histograms_of(number)["timer_cost"]
    assert ledger.samples(number, "reservoir").tolist() == []


def test_the_same_attempt_is_never_recorded_twice(ledger):
    ledger.add_trial(a_trial())
    with pytest.raises(sqlite3.IntegrityError):
        ledger.add_trial(a_trial())
    assert len(ledger.trials()) == 1


def test_guests_and_events_come_back(ledger):
    number = ledger.put_guest(
        GuestRecord(
            arm="host",
            platform="host",
            block=3,
            launched_at="2026-01-01T00:00:00+00:00",
            ready_ns=7,
            facts={"a": [1]},
            error=None,
        )
    )
    ledger.add_event("started", "now")
    (guest,) = ledger.guests()
    assert (guest.guest_id, guest.block, guest.facts) == (number, 3, {"a": [1]})
    assert [(event.kind, event.detail) for event in ledger.events()] == [("started", "now")]


def test_a_run_is_not_overwritten(ledger):
    with pytest.raises(UsageError, match="already holds a run"):
        Ledger.create(ledger.folder, MANIFEST)


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(UsageError, match="no run in"):
        Ledger.open(tmp_path)


def test_a_ledger_of_another_version_is_refused(ledger):
    ledger.close()
    db = sqlite3.connect(ledger.folder / LEDGER_NAME)
    db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(UsageError, match="version 99"):
        Ledger.open(ledger.folder)


def test_a_file_that_is_no_ledger_is_refused(tmp_path):
    (tmp_path / LEDGER_NAME).write_bytes(b"garbage" * 1000)
    with pytest.raises(DamagedError, match="is no ledger"):
        Ledger.open(tmp_path)


def test_samples_of_a_trial_that_never_ended_are_discarded(ledger):
    number = ledger.add_trial(a_trial(), samples={"reservoir": np.arange(3)})
    ledger.samples_path(number + 1).write_bytes(b"orphan")
    ledger.samples_path(number + 2).with_suffix(".partial").write_bytes(b"half")
    ledger.discard_unfinished_samples()
    assert [*(ledger.folder / "samples").iterdir()] == [ledger.samples_path(number)]
    assert ledger.samples(number, "reservoir").tolist() == [0, 1, 2]


def test_samples_that_a_row_promises_and_that_are_lost_are_named_and_no_others(ledger):
    for attempt in range(1, 5):
        ledger.add_trial(a_trial(attempt=attempt), samples={} if attempt == 2 else {"reservoir": np.arange(3)})
    assert (ledger.lost_samples(), ledger.samples_caveats()) == ([], [])
    for number in (1, 3):
        ledger.samples_path(number).unlink()
    assert ledger.lost_samples() == [1, 3]
    (words,) = ledger.samples_caveats()
    assert f"of the trials 1, 3: {ledger.samples_path(1)}" in words
    assert ledger.samples(1, "reservoir").tolist() == []
    ledger.rows("UPDATE trials SET accounting = json_remove(accounting, '$.samples')")  # as before there was a promise
    assert ledger.lost_samples() == []


def test_samples_of_another_number_than_the_row_says_are_refused(ledger):
    for attempt in (1, 2):
        ledger.add_trial(a_trial(attempt=attempt), samples={"reservoir": np.arange(attempt)})
    ledger.samples_path(1).replace(ledger.samples_path(2))
    with pytest.raises(DamagedError, match="as many raw values as its trial's row says"):
        ledger.samples(2, "reservoir")


@pytest.mark.parametrize("promise", [3, {"reservoir": 0}, {"reservoir": "3"}])
def test_a_promise_of_samples_that_counts_none_is_not_recorded(ledger, promise):
    with pytest.raises(UnfitError, match="does not count raw values"):
        ledger.add_trial(a_trial(accounting={"samples": promise}))


def test_samples_that_are_no_file_or_too_much_are_refused(ledger):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    number = ledger.add_trial(a_trial())
    path = ledger.samples_path(number)
    os.mkfifo(path)
    with pytest.raises(DamagedError, match="it is no file"):
        ledger.samples_of(number)
    path.unlink()
    series = pyarrow.array(["x" * 2**22]).dictionary_encode()
    parquet.write_table(pyarrow.table({"series": series, "value": [1]}), path, compression="zstd")
    with pytest.raises(DamagedError, match="1 rows of"):
        ledger.samples_of(number)


@pytest.mark.parametrize("name", ["ledger.sqlite", "ledger.sqlite-wal", "ledger.sqlite-journal", "samples"])
def test_a_run_that_would_be_written_elsewhere_is_not_opened(ledger, tmp_path, name):
    ledger.close()
    if (ledger.folder / name).exists():
        (ledger.folder / name).rename(tmp_path / "elsewhere")
    (ledger.folder / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(VirtgaugeError, match=r"no run in|it is no file|it is a link"):
        Ledger.open(ledger.folder)


@pytest.mark.parametrize("name", ["plan.toml", "ledger.building", "ledger.building-journal"])
def test_a_link_in_a_new_runs_folder_is_not_written_through(tmp_path, name):
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).symlink_to(tmp_path / "mine")
    Ledger.create(tmp_path / "run", MANIFEST).close()
    assert (tmp_path / "mine").read_text() == "mine"
    assert (tmp_path / "run" / "plan.toml").read_text() == MANIFEST.plan_text


def test_a_copy_without_its_empty_folder_of_samples_goes_on(ledger):
    (ledger.folder / "samples").rmdir()
    ledger.discard_unfinished_samples()
    (ledger.folder / "samples" / "17").mkdir()
    ledger.discard_unfinished_samples()
    assert (ledger.folder / "samples" / "17").is_dir()
    ledger.add_trial(a_trial(), samples={"reservoir": np.arange(3)})


def test_a_log_that_goes_while_a_ledger_is_opened_is_no_damage(ledger, monkeypatch):
    log = ledger.path.with_name(f"{LEDGER_NAME}-wal")
    asked = 0

    def going(path, lstat=Path.lstat):
        nonlocal asked
        found = lstat(path)
        if path == log:
            asked += 1
            log.unlink()
        return found

    ledger.close()
    log.touch()
    monkeypatch.setattr(Path, "lstat", going)
    Ledger.open(ledger.folder).close()
    assert asked == 1


@pytest.mark.parametrize("question", ["_access", "_lacks_index"])
def test_a_run_that_ends_while_it_is_opened_to_be_looked_at_is_read(ledger, monkeypatch, question):
    ledger.add_trial(a_trial())
    ask = getattr(read_only, question)

    def ending(folder):
        if question == "_lacks_index":  # who closes it removes the index first
            ledger.path.with_name(f"{LEDGER_NAME}-shm").unlink(missing_ok=True)
        answer = ask(folder)
        ledger.close()
        return answer

    monkeypatch.setattr(read_only, question, ending)
    with ReadOnlyLedger.open(ledger.folder) as seen:
        assert len(seen.trials()) == 1


@pytest.mark.parametrize("beside", ["-wal", "-shm", "-journal"])
def test_a_new_run_does_not_take_the_log_of_another_for_its_own(tmp_path, beside):
    (tmp_path / "run").mkdir()
    log = tmp_path / "run" / (LEDGER_NAME + beside)
    log.write_bytes(b"of a run that was killed, and whose ledger was removed")
    with pytest.raises(UsageError, match=f"holds {log.name} of another run"):
        Ledger.create(tmp_path / "run", MANIFEST)
    assert log.read_bytes().startswith(b"of a run")


@pytest.mark.parametrize("added", [0, 5])
def test_what_fails_once_a_run_is_there_takes_nothing_of_it_away(tmp_path, monkeypatch, added):
    sync, calls = files.sync, []

    def failing(path):
        calls.append(path)
        if path == tmp_path / "run":
            raise OSError(errno.EIO, "Input/output error")
        sync(path)

    with monkeypatch.context() as patch:
        patch.setattr(files, "sync", failing)
        with pytest.raises(VirtgaugeError, match="cannot make a run"), Ledger.whole(tmp_path / "run", MANIFEST) as made:
            for block in range(added):
                made.add_trial(a_trial(block), samples={"reservoir": np.arange(3)})
    assert calls[-1] == tmp_path / "run"
    with Ledger.open(tmp_path / "run") as ledger:
        assert [len(ledger.samples(one.trial_id, "reservoir")) for one in ledger.trials()] == [3] * added
    assert (tmp_path / "run" / "plan.toml").exists()


@pytest.mark.parametrize(("mib", "fits"), [(1, True), (3, True), (9, False)])
def test_a_run_made_whole_on_a_small_disk_is_there_with_all_it_has_or_not_at_all(tmp_path, root, mib, fits):
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=5m", "tmpfs", tmp_path], check=True)
    try:
        made = contextlib.nullcontext() if fits else pytest.raises(VirtgaugeError, match="full")
        with made, Ledger.whole(tmp_path / "run", MANIFEST) as ledger:
            for _ in range(10 * mib):
                ledger.add_event("said", "x" * 100_000)
        assert sorted(path.name for path in (tmp_path / "run").iterdir()) == (
            ["ledger.sqlite", "plan.toml", "samples"] if fits else ["samples"]
        )
        if fits:
            with Ledger.open(tmp_path / "run") as ledger:
                assert len(ledger.events()) == 10 * mib
    finally:
        subprocess.run(["umount", tmp_path], check=True)


@pytest.mark.parametrize(("module", "call"), [(files, "sync"), (store, "sqlite3")])
def test_a_run_that_finds_no_room_at_its_beginning_is_one_error_and_leaves_no_half_ledger(
    tmp_path, monkeypatch, module, call
):
    full = mock.Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
    if call == "sqlite3":
        full = mock.Mock(connect=mock.Mock(side_effect=sqlite3.OperationalError("database or disk is full")))
        full.OperationalError = sqlite3.OperationalError
    with monkeypatch.context() as patch:
        patch.setattr(module, call, full)
        with pytest.raises(VirtgaugeError, match=r"cannot make a run in .*(full|space)") as refused:
            Ledger.create(tmp_path / "run", MANIFEST)
    assert refused.value.exit_code == ExitCode.FAILED
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["samples"]
    Ledger.create(tmp_path / "run", MANIFEST).close()


def test_samples_that_find_no_room_leave_no_half_file(ledger, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(files, "sync", mock.Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
        with pytest.raises(LedgerWriteError):
            ledger.add_trial(a_trial(), samples={"reservoir": np.arange(3)})
    assert list((ledger.folder / "samples").iterdir()) == []
    assert ledger.add_trial(a_trial(), samples={"reservoir": np.arange(3)}) == 1


WRITER = """
    import dataclasses, pathlib, pickle, sys
    import numpy as np
    from virtgauge.ledger.store import Ledger
    manifest, trial = pickle.load(sys.stdin.buffer)
    with Ledger.create(pathlib.Path(sys.argv[1]), manifest) as ledger:
        for block in range(100_000):
            ledger.add_trial(dataclasses.replace(trial, key=f"b{block}"), samples={"reservoir": np.arange(50)})
            print(block, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("after", [7, *(pytest.param(more, marks=pytest.mark.slow) for more in (1, 40))])
def test_every_trial_whose_recording_returned_survives_kill_9(tmp_path, after):
    command = [sys.executable, "-c", textwrap.dedent(WRITER), str(tmp_path / "run")]
    writer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with writer.stdin:
        pickle.dump((MANIFEST, a_trial()), writer.stdin)
    acknowledged = [int(writer.stdout.readline()) for _ in range(after)]
    writer.send_signal(signal.SIGKILL)
    acknowledged += [int(line) for line in writer.stdout.read().split()]
    writer.wait()
    with Ledger.open(tmp_path / "run") as ledger:
        ledger.discard_unfinished_samples()
        trials = ledger.trials()
        assert [trial.key for trial in trials][: len(acknowledged)] == [f"b{block}" for block in acknowledged]
        assert len(trials) <= len(acknowledged) + 1  # one may have been committed but not yet said
        assert all(len(ledger.samples(trial.trial_id, "reservoir")) == 50 for trial in trials)
        assert all(trial.status is TrialStatus.VALID for trial in trials)


def test_a_folder_that_holds_runs_names_them(tmp_path):
    for name in ("first", "second"):
        synthetic.synthetic_ledger(tmp_path / name, blocks=1).close()
    for kind in (Ledger, ReadOnlyLedger):
        with pytest.raises(UsageError, match="it holds 2") as refusal:
            kind.open(tmp_path)
        assert f"{tmp_path}/first, {tmp_path}/second" in refusal.value.remedy


NOTED = """
import os, sys
from pathlib import Path
import numpy as np
from synthetic import arm_record, manifest, trial
from virtgauge.ledger.store import Ledger

host, own = arm_record("host", "host", "host", role="reference"), os.fsync
with Ledger.create(Path(sys.argv[1]), manifest([host])) as ledger:
    def noted(descriptor):
        there = [path.name for path in (ledger.folder / "samples").iterdir()]
        print("sync", os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")), *there)
        own(descriptor)
    os.fsync = noted
    ledger._db.set_trace_callback(lambda sql: print(*sql.split()[:3]))
    ledger.add_trial(trial(host, "timer_cost", {}, 0), {}, {"reservoir": np.arange(5)})
    print("returned")
    print(*ledger._db.execute("PRAGMA synchronous").fetchone(), *ledger._db.execute("PRAGMA journal_mode").fetchone())
"""


@pytest.mark.slow
def test_a_trial_is_on_the_disk_before_its_recording_returns(tmp_path):
    """In a process of its own: tests flush nothing. That a commit flushes the log is SQLite's promise at FULL (2)."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    argv = [sys.executable, "-c", NOTED, tmp_path / "run"]
    done = subprocess.run(argv, capture_output=True, text=True, env=environment, check=True)
    _, *happened = done.stdout.splitlines()  # the first asks for the newest trial
    assert happened == [
        "sync 0000001.partial 0000001.partial",
        "sync samples 0000001.parquet",
        "BEGIN",
        "INSERT INTO trials",
        "COMMIT",
        "returned",
        "PRAGMA synchronous",
        "PRAGMA journal_mode",
        "2 wal",
    ]


def test_one_that_is_in_use_is_not_called_damaged(tmp_path):
    error = sqlite3.OperationalError("database is locked")
    error.sqlite_errorcode = sqlite3.SQLITE_BUSY
    assert "is in use" in str(store._refused(tmp_path, error, "it is no ledger"))
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    assert isinstance(store._refused(tmp_path, error, "it is no ledger"), DamagedError)
