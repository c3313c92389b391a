"""A program under the shim sees what it would see without it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from shim_programs import CLEAN, LIBRARY, bare, shimmed

pytestmark = pytest.mark.slow  # compiled programs, and sleeps of theirs

# What may lie between a reading of the shim and the kernel's before and after it.  hptime's error bar is some tens of
# nanoseconds; a machine that other tests share moves processes between two readings.
ERROR_BAR_NS = 10_000

EXACTLY = {
    "clock_gettime": 2002,
    "gettimeofday": 204,
    "nanosleep": 8,
    "clock_nanosleep": 10,
    "usleep": 12,
    "sleep": 2,
    "syscall:clock_gettime": 214,
    "syscall:gettimeofday": 216,
    "syscall:time": 218,
    "syscall:nanosleep": 20,
    "syscall:clock_nanosleep": 22,
}


@pytest.mark.parametrize("rule", ["adaptive", "highpertimer", "os"])
def test_errors_are_the_c_librarys_own(programs: Path, tmp_path: Path, rule: str) -> None:
    without = bare(programs / "semantics", "errors")
    under = shimmed(tmp_path, programs / "semantics", "errors", HPTIME_RULE=rule)
    assert without.out.count(": -1 EINVAL") > 20
    assert without.out.count(": 22 -") > 20  # clock_nanosleep returns the number
    assert (under.status, under.out) == (0, without.out)
    assert under.served("clock_gettime") > 0


@pytest.mark.parametrize(
    ("rule", "us"),
    [
        pytest.param("adaptive", 9000, id="in-the-kernel"),
        pytest.param("highpertimer", 2500, id="in-the-spin"),  # shorter than a tick: all of it is spin
        pytest.param("adaptive", 150, id="at-the-edge"),
    ],
)
def test_a_handler_ends_a_sleep_with_the_remaining_time_and_nothing_else_does(
    programs: Path, tmp_path: Path, rule: str, us: int
) -> None:
    run = shimmed(tmp_path, programs / "semantics", "signals", str(us), HPTIME_RULE=rule)
    assert run.status == 0, run.err
    lines = run.out.splitlines()
    assert lines.count("still pending 1") == 8
    assert lines.count("mask restored 1, handled 1") == 8
    assert lines[-1] == "sleep: 1 remaining"
    # Close to the kernel's own lateness, a signal may come when the sleep is over; what is said must be right then too.
    assert not [line for line in lines if line.split()[-1] in ("wrong", "touched", "short")]
    if us > 1000:
        assert lines == bare(programs / "semantics", "signals", "9000").out.splitlines()
        assert sum(report["interrupted"] for report in run.reports) > 8
    if rule == "highpertimer":
        assert sum(report["spin_ns"] for report in run.reports) > 8 * 4 * us * 1000


@pytest.mark.parametrize("rule", ["adaptive", "highpertimer"])
def test_a_sleeping_thread_can_be_cancelled(programs: Path, tmp_path: Path, rule: str) -> None:
    run = shimmed(tmp_path, programs / "semantics", "cancellation", HPTIME_RULE=rule)
    assert run.status == 0, run.err
    assert len(run.out.splitlines()) == 10
    assert all(line.endswith("cancelled 1 cleaned 1 at once 1") for line in run.out.splitlines()), run.out


def test_a_handler_may_read_and_sleep_in_the_middle_of_a_read_or_a_sleep(programs: Path, tmp_path: Path) -> None:
    run = shimmed(tmp_path, programs / "semantics", "handlers")
    assert (run.status, run.out) == (0, "went back 0, handlers ran 1\n"), run.err


def test_children_of_a_threaded_program_are_served(programs: Path, tmp_path: Path) -> None:
    without = bare(programs / "semantics", "forks")
    run = shimmed(tmp_path, programs / "semantics", "forks")
    assert without.out.count("grandchild reads 1 sleeps 1") == 50
    assert (run.status, sorted(run.out.splitlines())) == (0, sorted(without.out.splitlines()))
    # Parent, children and grandchildren; those of vfork and of a bare clone share another's counts, and write none.
    assert len(run.reports) == 101
    assert sorted(report["served"].get("nanosleep", 0) for report in run.reports) == [1] * 101


def test_every_call_is_counted_once_where_it_was_made(programs: Path, tmp_path: Path) -> None:
    run = shimmed(tmp_path, programs / "semantics", "counts")
    child, parent = run.reports
    assert (child["served"], child["passed"]) == ({}, {"time": 1})
    assert child["parent"] == parent["process"]
    assert parent["served"] == EXACTLY
    # Seven clocks that are not served, and a sleep of zero, which is a yield; in two threads.  time() reads seconds
    # from memory, which nothing improves.
    assert parent["passed"] == {"clock_gettime": 14, "time": 206, "usleep": 2}
    assert (parent["mode"], parent["reason"]) == ("serving", None)


def test_calls_before_the_shims_constructor_are_answered(programs: Path, tmp_path: Path) -> None:
    assert shimmed(tmp_path, programs / "late").out == "read 1 slept 1\n"


def test_syscall_hands_on_all_six_arguments(programs: Path, tmp_path: Path) -> None:
    assert shimmed(tmp_path, programs / "semantics", "six").out == "x\n"


def test_a_thread_keeps_its_timer_slack(programs: Path, tmp_path: Path) -> None:
    assert shimmed(tmp_path, programs / "semantics", "slack").out == "slack 77000\n"


def test_the_clocks_agree_with_the_kernels(programs: Path, tmp_path: Path) -> None:
    run = shimmed(tmp_path, programs / "semantics", "agreement", "2")
    words = run.out.split()
    monotonic_ns, realtime_ns, back = int(words[1]), int(words[3]), int(words[5])
    assert monotonic_ns <= ERROR_BAR_NS
    assert realtime_ns <= ERROR_BAR_NS
    assert back == 0
    assert "in step 1" in run.out
    assert run.served("clock_gettime") > 1000


def test_condition_variables_and_the_clocks_of_cpp_go_together(programs: Path, tmp_path: Path) -> None:
    run = shimmed(tmp_path, programs / "waiting")
    assert (run.status, run.out) == (0, "turns 400 timeouts 400 early 0 late 0 back 0\n")
    assert run.served("clock_gettime") > 80_000


def test_disabled_it_passes_everything_through_and_says_so_once(programs: Path, tmp_path: Path) -> None:
    run = shimmed(tmp_path, programs / "semantics", "counts", HPTIME_DISABLE="1", HPTIME_VERBOSE="1")
    assert run.err == "hptime-preload: serves nothing: HPTIME_DISABLE is set\n"
    child, parent = run.reports
    assert (parent["mode"], parent["served"], child["served"]) == ("disabled", {}, {})
    assert parent["passed"]["clock_gettime"] == 2016


def test_a_counter_that_is_not_invariant_is_refused(programs: Path, tmp_path: Path) -> None:
    """QEMU's user mode shows a processor without the flag."""
    reports = tmp_path / "reports"
    settings = {"LD_PRELOAD": LIBRARY, "HPTIME_VERBOSE": "1", "HPTIME_STATS": reports}
    given = [word for name, value in settings.items() for word in ("-E", f"{name}={value}")]
    done = subprocess.run(
        ["qemu-x86_64", "-cpu", "qemu64", *given, programs / "semantics", "counts"],
        capture_output=True,
        text=True,
        env=CLEAN,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("hptime-preload: serves nothing: the processor does not promise an invariant") == 1
    text = reports.read_text()
    assert text.count('"mode":"refused"') == 2
    assert '"served":{}' in text
    assert '"clock_gettime":2016' in text


def test_the_report_goes_to_a_descriptor_where_its_number_is_given(programs: Path) -> None:
    reading, writing = os.pipe()
    try:
        settings = {"LD_PRELOAD": str(LIBRARY), "HPTIME_STATS": str(writing)}
        subprocess.run([programs / "semantics", "slack"], env=CLEAN | settings, pass_fds=[writing], check=True)
        assert b'"served":{"usleep":1}' in os.read(reading, 65536)
    finally:
        os.close(reading)
        os.close(writing)
