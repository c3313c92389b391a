"""`virtgauge shim -- PROGRAM`: real programs, and what it cannot reach."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from shim_programs import CLEAN, LIBRARY, by_command

from virtgauge.errors import UnavailableError, UsageError
from virtgauge.shim import ShimReport, find_target, needed_glibc, present_glibc, run_under_shim, summed

pytestmark = pytest.mark.slow

PROBE = """
import time
begin = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
for _ in range(1000): time.clock_gettime_ns(time.CLOCK_MONOTONIC)
time.sleep(0.01)
assert 10_000_000 <= time.clock_gettime_ns(time.CLOCK_MONOTONIC) - begin < 5_000_000_000
assert abs(time.time() - time.clock_gettime(time.CLOCK_REALTIME)) < 5
print("well")
"""


def test_python_is_served(tmp_path: Path) -> None:
    run = by_command(tmp_path, "--", sys.executable, "-c", PROBE)
    assert (run.status, run.out) == (0, "well\n"), run.err
    (report,) = run.reports
    assert report["served"]["clock_gettime"] >= 1002
    assert report["served"]["clock_nanosleep"] == 1
    assert report["itself"]
    assert report["rule"] == "adaptive"
    assert "virtgauge shim: served " in run.err
    assert "clock_gettime 1," in run.err


def test_bash_and_its_children_are_served_together(tmp_path: Path) -> None:
    script = "for i in 1 2 3; do /bin/sleep 0.01; done; (exit 4); echo $EPOCHREALTIME $?"
    run = by_command(tmp_path, "--", "bash", "--norc", "-c", script)
    assert run.status == 0
    assert run.out.endswith(" 4\n")
    assert abs(float(run.out.split()[0]) - time.time()) < 60
    (report,) = run.reports
    assert report["processes"] >= 4
    assert report["served"]["gettimeofday"] >= 1
    assert sum(count for name, count in report["served"].items() if "nanosleep" in name) == 3


def test_iperf3_measures_over_loopback_with_both_ends_served(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    words = [sys.executable, "-m", "virtgauge.cli", "shim", "-q", "--json", tmp_path / "server.json", "--"]
    words += ["iperf3", "--server", "--one-off", "--bind", "127.0.0.1", "--port", port]
    with subprocess.Popen(words, env=CLEAN, stdout=subprocess.PIPE, text=True) as server:
        try:
            client = ["iperf3", "--client", "127.0.0.1", "--port", port, "--udp", "--bitrate", "20M", "--time", "1"]
            for _ in range(100):
                run = by_command(tmp_path, "--", *client)
                if run.status == 0:
                    break
                time.sleep(0.1)
            assert run.status == 0, run.err + run.out
            assert server.wait(60) == 0
        finally:
            server.kill()
    sent = next(line for line in run.out.splitlines() if line.endswith("sender"))
    assert "1.00" in sent  # seconds
    assert run.reports[-1]["served"]["clock_gettime"] > 100
    assert '"clock_gettime"' in (tmp_path / "server.json").read_text()


def test_status_and_signal_are_the_programs_own(tmp_path: Path) -> None:
    assert by_command(tmp_path, "--", "bash", "-c", "exit 42").status == 42
    killed = by_command(tmp_path, "--", "bash", "-c", "kill -TERM $$")
    assert killed.status == -signal.SIGTERM
    assert "no report came back from bash: SIGTERM ended it" in killed.err


def test_input_and_output_are_the_programs_own(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "virtgauge.cli", "shim", "-q", "--", "cat"]
    done = subprocess.run(words, input="as it came", capture_output=True, text=True, env=CLEAN, timeout=60)
    assert (done.stdout, done.stderr) == ("as it came", "")


def test_a_signal_sent_to_the_command_reaches_the_program() -> None:
    script = "trap 'echo caught; exit 9' TERM; echo ready; while :; do sleep 0.01; done"
    words = [sys.executable, "-m", "virtgauge.cli", "shim", "-q", "--", "bash", "-c", script]
    with subprocess.Popen(words, env=CLEAN, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        assert process.stdout.readline() == "caught\n"
        assert process.wait(30) == 9


def test_a_signal_that_comes_while_the_program_starts_reaches_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(subprocess.Popen[bytes]):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    report = run_under_shim(LIBRARY, ["sleep", "60"], Path("/bin/sleep"), "os")
    assert report.returncode == -signal.SIGTERM


def test_a_stripped_environment_is_said_to_be_one(tmp_path: Path) -> None:
    run = by_command(tmp_path, "--", "env", "-i", "/bin/sleep", "0")
    assert run.status == 0
    assert "no report came back from env: it replaced itself by another program, or cleared its environment" in run.err
    (report,) = run.reports
    assert (report["itself"], report["processes"], report["served"]) == (False, 0, {})


def test_the_rule_of_the_kernel_leaves_sleeps_to_the_kernel(tmp_path: Path) -> None:
    (report,) = by_command(tmp_path, "--rule", "os", "--", sys.executable, "-c", PROBE).reports
    assert report["passed"]["clock_nanosleep"] == 1
    assert report["sleeps"] == 0
    assert report["served"]["clock_gettime"] >= 1002


def test_a_library_whose_path_the_loader_would_divide_is_linked_to(tmp_path: Path) -> None:
    folder = tmp_path / "a folder: with blanks"
    folder.mkdir()
    shutil.copy(LIBRARY, folder)
    run = by_command(tmp_path, "--", "sleep", "0.01", VIRTGAUGE_SHIM=str(folder / LIBRARY.name))
    assert run.reports[0]["itself"], run.err


def executable(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    path.chmod(0o755)
    return path


def test_what_is_no_program_is_refused_before_anything_runs(tmp_path: Path) -> None:
    run = by_command(tmp_path, "--", "no-such-program-anywhere")
    assert (run.status, run.out, run.reports) == (2, "", [])
    assert "no-such-program-anywhere: no such program in PATH\n  → " in run.err
    with pytest.raises(UsageError, match="there is no such file"):
        find_target(str(tmp_path / "nothing"))
    with pytest.raises(UsageError, match="is a folder"):
        find_target(str(tmp_path))
    (tmp_path / "text").write_text("words")
    with pytest.raises(UsageError, match="is not executable"):
        find_target(str(tmp_path / "text"))
    with pytest.raises(UsageError, match="neither an ELF executable nor a script"):
        find_target(str(executable(tmp_path / "words", b"words")))
    with pytest.raises(UsageError, match="neither an ELF executable nor a script"):
        find_target(str(executable(tmp_path / "cut", Path("/bin/sh").read_bytes()[:100])))


def test_a_static_program_is_refused(programs: Path, tmp_path: Path) -> None:
    run = by_command(tmp_path, "--", programs / "static", "six")
    assert (run.status, run.out) == (3, "")
    assert "is linked statically, so no loader reads LD_PRELOAD" in run.err


def test_a_go_program_is_known_as_one() -> None:
    go = shutil.which("go")
    assert go is not None
    with pytest.raises(UnavailableError, match=r"is linked statically \(it is written in Go\)"):
        find_target(os.path.realpath(go))


@pytest.mark.full
@pytest.mark.slow
def test_a_go_program_with_c_in_it_is_warned_of(tmp_path: Path) -> None:
    source = 'package main\n\n// int one(void) { return 1; }\nimport "C"\n\nfunc main() { println(C.one()) }\n'
    (tmp_path / "main.go").write_text(source)
    settings = {"CGO_ENABLED": "1", "GO111MODULE": "off", "GOFLAGS": "-p=1"}
    subprocess.run(["go", "build", "-o", "mixed", "main.go"], cwd=tmp_path, env=CLEAN | settings, check=True)
    (warning,) = find_target(str(tmp_path / "mixed"))[1]
    assert "is written in Go, whose runtime reads the clock and sleeps by itself" in warning
    run = by_command(tmp_path, "--", tmp_path / "mixed")
    assert run.status == 0
    assert "virtgauge shim: warning: " in run.err


def test_a_program_with_rights_of_its_own_is_refused(programs: Path, tmp_path: Path) -> None:
    copy = tmp_path / "privileged"
    shutil.copy(programs / "semantics", copy)
    assert find_target(str(copy))[1] == []
    # Where the owner runs it, the bit gives nothing, and the loader listens.
    copy.chmod(0o4755)
    assert find_target(str(copy))[1] == []
    if os.getuid() == 0:
        os.chown(copy, 65534, 0)
        copy.chmod(0o4755)
        run = by_command(tmp_path, "--", copy, "six")
        assert (run.status, run.out) == (3, "")
        assert "is set-user-ID, so the loader ignores LD_PRELOAD for it" in run.err
        os.chown(copy, 0, 65534)
        copy.chmod(0o2755)
        with pytest.raises(UnavailableError, match="is set-group-ID"):
            find_target(str(copy))
        os.chown(copy, 0, 0)
        copy.chmod(0o755)
        # Version 2 of vfs_cap_data: cap_net_raw, permitted and effective.
        os.setxattr(copy, "security.capability", bytes.fromhex("0100000200200000000000000000000000000000"))
        with pytest.raises(UnavailableError, match="has file capabilities"):
            find_target(str(copy))


def test_a_script_is_judged_by_its_interpreter(programs: Path, tmp_path: Path) -> None:
    assert find_target(str(executable(tmp_path / "good", b"#!/bin/sh -e\n")))[1] == []
    assert find_target(str(executable(tmp_path / "env", b"#!/usr/bin/env bash\n")))[1] == []
    with pytest.raises(UsageError, match="its interpreter /no/such does not exist"):
        find_target(str(executable(tmp_path / "bad", b"#!/no/such\n")))
    with pytest.raises(UnavailableError, match="is linked statically"):
        find_target(str(executable(tmp_path / "static", f"#!{programs / 'static'}\n".encode())))
    loop = tmp_path / "loop"
    with pytest.raises(UsageError, match="too often"):
        find_target(str(executable(loop, f"#!{loop}\n".encode())))


def test_a_program_of_32_bits_or_of_another_processor_is_refused(tmp_path: Path) -> None:
    image = bytearray(Path(os.path.realpath("/bin/sh")).read_bytes())
    image[4] = 1  # EI_CLASS
    with pytest.raises(UnavailableError, match="32-bit"):
        find_target(str(executable(tmp_path / "small", bytes(image))))
    image[4], image[18] = 2, 243  # e_machine: RISC-V
    with pytest.raises(UnavailableError, match="another processor"):
        find_target(str(executable(tmp_path / "other", bytes(image))))


def test_a_program_for_musl_is_refused(tmp_path: Path) -> None:
    image = Path(os.path.realpath("/bin/sh")).read_bytes()
    loader = b"/lib64/ld-linux-x86-64.so.2\0"
    assert image.count(loader) == 1
    musl = image.replace(loader, b"/lib/ld-musl-x86_64.so.1\0\0\0\0")
    with pytest.raises(UnavailableError, match="uses musl"):
        find_target(str(executable(tmp_path / "musl", musl)))


def test_the_shim_names_the_c_library_that_it_needs() -> None:
    present = present_glibc()
    assert present is not None
    assert (2, 2) < needed_glibc(LIBRARY.read_bytes()) <= present
    assert needed_glibc(b"GLIBC_2.9\0GLIBC_2.17\0GLIBC_2.2.5\0") == (2, 17)


def test_reports_of_several_processes_are_added_and_torn_ones_left_out() -> None:
    line = (
        '{"process":%d,"parent":1,"mode":"serving","reason":null,"rule":"os","served":{"time":2},'
        '"passed":{"usleep":1},"sleeps":3,"interrupted":1,"spin_ns":10}\n'
    )
    report = summed(7, 0, line % 7 + line % 8 + line[:40])
    assert report == ShimReport(0, 2, True, (), {"time": 4}, {"usleep": 2}, 6, 2, 20)
    assert list(report.lines("it")) == [
        "served 4 calls of 2 processes: time 4",
        "passed 2 calls to the C library: usleep 2",
    ]
