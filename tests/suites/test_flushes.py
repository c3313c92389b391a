"""The flush laboratory: every flush is counted, takes as long as the profile's disk, and else is as it was without."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from flush_programs import CLEAN, FlushCounters, Run, bare, compile_programs, flushed, until_gone

from virtgauge.errors import UnavailableError
from virtgauge.suites.storage.client import find_sensorstore
from virtgauge.suites.storage.flushes import (
    LABORATORY_FAILED,
    LAUNCHER,
    LIBRARY,
    find_launcher,
    launcher_prefix,
)

pytestmark = pytest.mark.slow  # programs that wait for a disk's revolutions, compiled first

Lab = Callable[..., Run]
PROFILES = ["as-is", "latency:100", "at-once"]
WAYS = ["preloaded", "static", "kernel"]
"""A dynamic program by the library; a static one, which is recognized; a dynamic one by the kernel."""

CALLS = {"fsync": 4, "fdatasync": 3, "msync": 3, "other": 7}
DSYNC_OPENS = {"dsync_opens": 2}


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("flush-programs")
    compile_programs(folder)
    return folder


@pytest.fixture
def lab(programs: Path, tmp_path: Path) -> Lab:
    """Runs the program in one of the ways; without one, without the laboratory.  Nothing is left of it."""
    runs = 0

    def run(way: str | None, profile: str, *words: str) -> Run:
        nonlocal runs
        runs += 1
        folder, counters = tmp_path / f"folder-{runs}", tmp_path / f"counters-{runs}"
        folder.mkdir()
        program = programs / ("static" if way == "static" else "dynamic")
        command = (program, words[0], folder, *words[1:])
        if way is None:
            return bare(*command)
        done = flushed(profile, counters, *command, static=way == "kernel")
        until_gone(counters)
        return done

    return run


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("way", WAYS)
def test_every_call_is_counted_once_and_answers_as_without(lab: Lab, way: str, profile: str) -> None:
    run = lab(way, profile, "calls")
    assert (run.status, run.out) == (0, lab(None, "", "calls").out)
    unseen = {} if way == "preloaded" else DSYNC_OPENS
    untimed = {"untimed": 17} if (way != "preloaded" and profile == "as-is") else {}
    assert run.flushes() == CALLS | unseen | untimed
    assert run.counters is not None and run.counters.total == 17
    if profile == "latency:100" or (profile, way) == ("as-is", "preloaded"):
        assert run.counters.time_ns > (17 * 100_000 if profile == "latency:100" else 0)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("way", WAYS)
def test_writes_that_are_flushes_are_told_from_those_that_are_not(lab: Lab, way: str, profile: str) -> None:
    run = lab(way, profile, "writes")
    assert (run.status, run.out) == (0, lab(None, "", "writes").out)
    counted = run.flushes()
    if way == "preloaded":
        assert counted == {"sync_writes": 12}
    else:  # those with a flag of their own; of the others, only that the file was opened so
        assert {name: value for name, value in counted.items() if name != "untimed"} == {"sync_writes": 4} | DSYNC_OPENS


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("way", WAYS)
def test_errors_are_the_kernels_own_and_no_flush_is_counted_for_them(lab: Lab, way: str, profile: str) -> None:
    run, without = lab(way, profile, "errors"), lab(None, "", "errors")
    assert without.out.count(": -1 E") == 17
    if way == "preloaded":
        assert run.out == without.out
        assert run.flushes() == {"fsync": 1, "failed": 17}
    else:  # memory that is not mapped is not seen from outside
        differing = [line for line, bare_line in zip(run.out.splitlines(), without.out.splitlines(), strict=True)
                     if line != bare_line]  # fmt: skip
        assert differing == ([] if profile == "as-is" else ["msync((void *)4096, 4096, MS_SYNC): 0 -"])
        counted = run.flushes()
        assert (counted["fsync"], counted["msync"], counted["failed"]) == (1, 1, 16)


@pytest.mark.parametrize("way", WAYS)
def test_children_and_threads_count_into_one_file_and_share_a_revolution(lab: Lab, way: str) -> None:
    began = time.monotonic()
    run = lab(way, "rotational:300", "crowd")  # a revolution of 0.2 s, five rounds of sixteen flushes
    elapsed = time.monotonic() - began
    assert run.flushes()["fdatasync"] == 80
    assert elapsed > 4 * 0.2
    assert elapsed < 80 * 0.2 / 2, "one after another they would take twice as long"


@pytest.mark.parametrize("way", WAYS)
def test_one_writer_flushes_once_a_revolution(lab: Lab, way: str) -> None:
    run = lab(way, "rotational:7200", "row", "61")
    assert run.flushes()["fdatasync"] == 61
    us = int(run.out.split()[1])
    # Sixty whole revolutions after the first boundary; how many more only a busy machine decides.
    assert us >= 500_000
    assert run.counters is not None and run.counters.time_ns <= us * 1000


@pytest.mark.parametrize("way", WAYS)
def test_one_writer_pays_for_a_seek_and_half_a_revolution_with_each_flush(lab: Lab, way: str) -> None:
    run = lab(way, "rotational-seek:7200:8500", "row", "100")
    assert run.flushes()["fdatasync"] == 100
    us = int(run.out.split()[1])
    # The mean wait of a hundred is half a revolution within 0.24 ms (its standard error), which is taken four times.
    assert us >= 100 * (8500 + 0.5 * 8333 - 4 * 240)
    assert run.counters is not None and run.counters.time_ns <= us * 1000


@pytest.mark.parametrize("way", WAYS)
def test_a_solid_state_disk_takes_its_time_for_every_flush(lab: Lab, way: str) -> None:
    run = lab(way, "latency:5000", "row", "20")
    assert int(run.out.split()[1]) >= 20 * 5000
    assert run.counters is not None and run.counters.time_ns >= 20 * 5_000_000


@pytest.mark.parametrize("profile", [*PROFILES, "rotational:7200"])
@pytest.mark.parametrize("way", WAYS)
def test_a_flushing_thread_can_be_cancelled(lab: Lab, way: str, profile: str) -> None:
    assert lab(way, profile, "cancellation").out == "cancelled 1 cleaned 1\n"


@pytest.mark.parametrize("way", WAYS)
def test_a_signal_ends_no_flush_and_its_handler_may_flush(lab: Lab, way: str) -> None:
    run = lab(way, "latency:20000", "signals")
    assert run.out.splitlines()[0] == "handled 1"
    assert "failed" not in run.out
    assert int(run.out.split()[-1]) >= 10 * 20_000
    counted = run.flushes()
    assert counted["fdatasync"] == 10
    assert counted["fsync"] >= 1


@pytest.mark.parametrize("way", WAYS)
def test_the_program_keeps_its_number_its_end_and_its_children(
    lab: Lab, programs: Path, tmp_path: Path, way: str
) -> None:
    assert lab(way, "at-once", "row", "3", "42").status == 42
    assert lab(way, "at-once", "kill").status == -signal.SIGKILL
    assert lab(way, "at-once", "children").out == "children -1\n", "the supervisor is no child of the program's"
    program = programs / ("static" if way == "static" else "dynamic")
    prefix = launcher_prefix(tmp_path / "counters", "at-once", static=way == "kernel")
    process = subprocess.Popen([*prefix, program, "row", tmp_path, "2000000000"], env=CLEAN)
    try:
        deadline = time.monotonic() + 20
        while Path(f"/proc/{process.pid}/comm").read_text().strip() != program.name and time.monotonic() < deadline:
            time.sleep(0.01)
        assert Path(f"/proc/{process.pid}/exe").readlink() == program
        process.terminate()
        assert process.wait(20) == -signal.SIGTERM
    finally:
        process.kill()
        process.wait()


def open_to_all(*folders: Path) -> None:
    """Let other users pass: pytest's folders are their owner's alone."""
    for folder in {parent for start in folders for parent in (start, *start.parents)}:
        if folder.stat().st_mode & 0o077 == 0:
            folder.chmod(0o711)


def test_a_wrapper_hands_the_laboratory_on_to_another_user(root: None, programs: Path, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder").chmod(0o777)
    open_to_all(tmp_path, programs)
    nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    for name in ("dynamic", "static"):
        words = (programs / name, "row", tmp_path / "folder", "5")
        run = flushed("at-once", tmp_path / f"counters-{name}", *nobody, *words)
        assert run.status == 0, run.err
        assert run.flushes()["fdatasync"] == 5
        (tmp_path / "folder" / "file").unlink()
        for left in ("synced", "dsynced"):
            (tmp_path / "folder" / left).unlink()
    (tmp_path / "closed").mkdir(mode=0o700)
    run = flushed("at-once", tmp_path / "closed" / "counters", *nobody, programs / "dynamic", "row", tmp_path, "5")
    assert run.status == LABORATORY_FAILED
    assert "this user cannot open it" in run.err


def test_a_library_that_the_programs_user_cannot_reach_is_copied_to_the_counters(
    root: None, programs: Path, tmp_path: Path
) -> None:
    open_to_all(tmp_path, programs)
    native = tmp_path / "native"
    native.mkdir(mode=0o700)
    for name in (LAUNCHER, LIBRARY):
        shutil.copy(find_launcher().with_name(name), native)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder").chmod(0o777)
    words = launcher_prefix(tmp_path / "counters", "at-once")[1:]
    words += ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    words += [str(programs / "dynamic"), "calls", str(tmp_path / "folder")]
    done = subprocess.run([native / LAUNCHER, *words], cwd="/", env=CLEAN, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert FlushCounters.decode((tmp_path / "counters").read_bytes()).total == 17


def test_what_cannot_be_counted_does_not_run(programs: Path, tmp_path: Path) -> None:
    counters = tmp_path / "counters"
    proof = tmp_path / "proof"
    touch = ("touch", proof)
    foreign = tmp_path / "foreign"
    foreign.write_bytes(b"\x7fELF\x01\x01" + bytes(100))
    foreign.chmod(0o755)
    letter = tmp_path / "letter"
    letter.write_text("dear reader")
    assert flushed("as-is", counters, "true").status == 0
    for profile, file, command, words in [
        ("at-once", counters, touch, "it counts under the profile as-is"),
        ("floppy", tmp_path / "new", touch, "profile floppy"),
        ("as-is", tmp_path / "no" / "folder", touch, "No such file or directory"),
        ("as-is", counters, (foreign,), "another kind of processor"),
    ]:
        run = flushed(profile, file, *command)
        assert (run.status, words in run.err) == (LABORATORY_FAILED, True), run.err
    launcher = launcher_prefix(letter, "as-is")
    done = subprocess.run([*launcher, *touch], capture_output=True, text=True, env=CLEAN)
    assert (done.returncode, letter.read_text()) == (LABORATORY_FAILED, "dear reader")
    alone = tmp_path / "alone" / "virtgauge-flushes"
    alone.parent.mkdir()
    alone.write_bytes(find_launcher().read_bytes())
    alone.chmod(0o755)
    done = subprocess.run([alone, *launcher_prefix(counters, "as-is")[1:], *touch], capture_output=True, text=True)
    assert (done.returncode, "libvirtgauge_flushes.so" in done.stderr) == (LABORATORY_FAILED, True)
    assert not proof.exists()
    assert flushed("as-is", counters, "no-such-program-anywhere").status == 127
    assert flushed("as-is", counters, letter).status == 126


def test_a_second_start_counts_on_and_both_readers_agree(lab: Lab, programs: Path, tmp_path: Path) -> None:
    counters = tmp_path / "counters"
    for times in (1, 2):
        run = flushed("at-once", counters, programs / "dynamic", "calls", tmp_path)
        assert run.counters is not None and run.counters.total == 17 * times
    request = json.dumps({"path": str(counters)})
    told = json.loads(subprocess.run([find_sensorstore(), "flushes", request], check=True, capture_output=True).stdout)
    assert told == dataclasses.asdict(run.counters) | {"total": 34}
    with pytest.raises(ValueError, match="no file of flush counters"):
        FlushCounters.decode(bytes(4096))


def test_a_missing_laboratory_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VIRTGAUGE_FLUSHLAB", str(tmp_path))
    with pytest.raises(UnavailableError, match="virtgauge-flushes") as caught:
        launcher_prefix(tmp_path / "counters", "as-is")
    assert "virtgauge provision flushes" in caught.value.remedy
    assert os.listdir(tmp_path) == []


def test_an_embedded_database_is_counted(tmp_path: Path) -> None:
    script = (
        "import sqlite3, sys\n"
        "db = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "db.execute('pragma journal_mode = wal'); db.execute('pragma wal_autocheckpoint = 0')\n"
        "db.execute('pragma synchronous = ' + sys.argv[2]); db.execute('create table t (x)')\n"
        "for i in range(50): db.execute('insert into t values (?)', (i,))\n"
    )
    counted = {}
    for level in ("full", "normal"):
        path, counters = tmp_path / f"{level}.db", tmp_path / f"counters-{level}"
        counted[level] = flushed("at-once", counters, "python3", "-c", script, path, level).counters
    full, normal = counted["full"], counted["normal"]
    assert full is not None and normal is not None
    assert 50 <= full.total <= 60, "one for each row, and some for the files"
    assert normal.total <= 10
