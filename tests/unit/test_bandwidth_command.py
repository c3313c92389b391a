"""`virtgauge bandwidth`: what is refused, what is asked of the program, what is shown of its answers."""

from __future__ import annotations

import itertools
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from virtgauge import bandwidth, cli
from virtgauge.analysis.packets import occupied_bps, rate_bps, rate_text
from virtgauge.bandwidth import running
from virtgauge.console.bandwidth import listener_line, sweep_table
from virtgauge.errors import ExitCode, UnavailableError, UsageError, VirtgaugeError

SESSION = {
    "event": "session",
    "peer": "10.0.0.2:8763",
    "method": "gso",
    "no_kernel_stamps": None,
}
PACING = {"event": "pacing", "pacing": {"max_paced_bps": 19.66e9}, "rungs": [], "unsupported": []}
PROGRESS = {
    "event": "progress",
    "instants_done": 3,
    "instants": 10,
    "streams": 40,
    "bytes": 1_500_000,
    "rate_bps": None,
    "verdict": "measured",
}
RESULT: dict[str, Any] = {
    "event": "result",
    "settings": {"estimator": "kite2", "packet_bytes": 1500},
    "outcome": {
        "estimate": {
            "available_bps": 150e6,
            "low_bps": 148e6,
            "high_bps": 153e6,
            "confidence": 0.95,
            "lower_bound": False,
        },
        "instants": [{}] * 10,
        "trace": [{"stream": {"packet_bytes": 1500}}] * 57,
        "bytes": 12_300_000,
        "packets": 8200,
        "duration_ns": 4_200_000_000,
        "discarded": 5,
        "stalled": 4,
        "foreign_packets": 1234,
    },
    "timing": {"clock": "hptime", "sleep": "system", "hptime_fallback_reason": None},
}


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Sets a program in the estimator's place: it keeps its words, says lines, and ends with a status."""

    def install(*lines: dict[str, Any] | str, status: int = 0, complaint: str = "", then: str = "") -> Path:
        said = tmp_path / "said"
        said.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
        script = tmp_path / "bandwidth"
        script.write_text(
            f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/words\ncat {said}\n{then}\n'
            f"[ -z '{complaint}' ] || echo 'bandwidth: {complaint}' >&2\nexit {status}\n"
        )
        script.chmod(0o755)
        monkeypatch.setenv(bandwidth.ENVIRONMENT_VARIABLE, str(script))
        return tmp_path / "words"

    return install


def invoke(*words: str) -> Result:
    return CliRunner().invoke(cli.app, ["bandwidth", *words])


def error_of(error: dict[str, Any]) -> dict[str, Any]:
    return {"event": "error", **error}


@pytest.mark.parametrize(("text", "bps"), [("1e9", 1e9), ("300M", 3e8), ("1.5Gbit/s", 1.5e9), ("64k", 64e3)])
def test_rates_are_read_as_people_write_them(text: str, bps: float) -> None:
    assert rate_bps(text) == bps


@pytest.mark.parametrize("text", ["", "fast", "-3M", "3T", "M", "nan", "inf"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no rate"):
        rate_bps(text)


def test_rates_are_shown_with_their_unit() -> None:
    assert [rate_text(bps) for bps in (1.2345e9, 300e6, 64e3, 12)] == [
        "1.234 Gbit/s",
        "300 Mbit/s",
        "64 kbit/s",
        "12 bit/s",
    ]


def test_full_packets_fill_a_gigabit_of_wire_at_975_megabits() -> None:
    assert occupied_bps(975_292_587.8, 1500, 38) == pytest.approx(1e9, rel=1e-9)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("estimate", "host", "--token", "abc"), "32 hexadecimal"),
        (("listen", "--token", "g" * 32), "32 hexadecimal"),
        (("estimate", "host", "--rate", "quick"), "no rate"),
        (("estimate", "host", "--highest", "0"), "no rate"),
        (("estimate", "host", "--estimator", "yaz-original", "--lowest", "1M"), "yaz-original has no lowest rate"),
        (("estimate", "host", "--estimator", "yaz-original", "--packet-bytes", "500"), "halves by itself"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_started(program: Any, words: tuple[str, ...], named: str) -> None:
    kept = program(RESULT)
    refused = invoke(*words).exception
    assert isinstance(refused, UsageError)
    assert named in str(refused)
    assert "→" in str(refused)
    assert not kept.exists()


@pytest.mark.parametrize(
    "words",
    [
        ("estimate",),
        ("estimate", "host", "--port", "70000"),
        ("estimate", "host", "--packet-bytes", "9001"),
        ("estimate", "host", "--estimator", "pathload"),
        ("estimate", "host", "--clock", "sundial"),
        ("estimate", "host", "--fifo", "100"),
        ("listen", "--port", "-1"),
        ("pacing-sweep", "--duration-ms", "0"),
    ],
)
def test_values_out_of_range_are_wrong_usage(words: tuple[str, ...]) -> None:
    refused = invoke(*words).exception
    assert isinstance(refused, UsageError) and refused.exit_code == ExitCode.USAGE and refused.remedy


def test_a_missing_program_is_named_with_the_command_that_builds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(bandwidth.ENVIRONMENT_VARIABLE, str(tmp_path / "none"))
    missing = invoke("pacing-sweep").exception
    assert isinstance(missing, UnavailableError)
    assert str(tmp_path / "none") in missing.message
    assert missing.remedy is not None and "virtgauge provision bandwidth" in missing.remedy


def asked(kept: Path) -> dict[str, str]:
    words = kept.read_text().splitlines()
    return dict(itertools.pairwise(words))


def test_options_reach_the_program(program: Any) -> None:
    kept = program(SESSION, RESULT)
    words = ("--token", "A" * 32, "--clock", "system", "--sleep", "usleep", "--pacing", "sendmmsg", "--rate", "1.5G")
    shown = invoke("estimate", "server", "--port", "99", *words, "--cpu", "1", "--fifo", "50", "--searches", "3")
    assert shown.exit_code == 0, shown.output
    given = asked(kept)
    assert given["estimate"] == "server"
    assert {given[f"--{name}"] for name in ("clock", "sleep", "method")} == {"system", "usleep", "sendmmsg"}
    assert float(given["--rate"]) == 1.5e9
    assert (given["--port"], given["--token"], given["--cpu"], given["--fifo"]) == ("99", "A" * 32, "1", "50")
    assert given["--instants"] == "3"
    assert "--packet-bytes" not in given


@pytest.mark.parametrize("estimator", ["kite2", "yaz-original"])
def test_the_highest_rate_reaches_the_program_in_bits_per_second(program: Any, estimator: str) -> None:
    kept = program(SESSION, RESULT)
    assert invoke("estimate", "server", "--estimator", estimator, "--highest", "2.5G").exit_code == 0
    given = asked(kept)
    assert (given["--estimator"], float(given["--highest"])) == (estimator, 2.5e9)


def test_the_lowest_rate_reaches_the_program_too(program: Any) -> None:
    kept = program(SESSION, RESULT)
    assert invoke("estimate", "server", "--lowest", "2M").exit_code == 0
    assert float(asked(kept)["--lowest"]) == 2e6


def test_an_estimate_is_told_with_interval_layer_cost_and_foreign_packets(program: Any) -> None:
    program(PACING, SESSION, PROGRESS, RESULT)
    shown = invoke("estimate", "server", "--progress", "none")
    assert shown.exit_code == 0
    for text in (
        "available bandwidth: 150 Mbit/s of IP packets (95% interval 148 Mbit/s to 153 Mbit/s)",
        "153.8 Mbit/s of an Ethernet wire, and 151.4 Mbit/s as Linux's shapers count",
        "10 searches, 57 streams, 5 of them discarded (4 interrupted); sent 12.3 MB in 4.2 s",
        "clock hptime, sleep system, bursts by gso; packets are stamped by the listener's kernel",
        "1,234 foreign packets",
    ):
        assert text in shown.stdout


def test_a_lower_bound_is_said_to_be_one(program: Any) -> None:
    found = RESULT["outcome"]["estimate"] | {"lower_bound": True}
    program(SESSION, RESULT | {"outcome": RESULT["outcome"] | {"estimate": found}})
    shown = invoke("estimate", "server", "--quiet").stdout
    assert "at least 150 Mbit/s" in shown
    assert "--highest" in shown


def test_json_is_one_document_and_progress_is_apart(program: Any) -> None:
    program(PACING, SESSION, PROGRESS, RESULT)
    shown = invoke("estimate", "server", "--json", "--progress", "json")
    document = json.loads(shown.stdout)
    assert (document["available_bps"], document["layer"], document["sent_bytes"]) == (150e6, "ip", 12_300_000)
    assert document["outcome"] == RESULT["outcome"]
    assert document["session"]["peer"] == "10.0.0.2:8763"
    assert document["pacing"]["pacing"]["max_paced_bps"] == 19.66e9
    assert [json.loads(line)["event"] for line in shown.stderr.splitlines()] == ["pacing", "session", "progress"]


def test_lines_tell_what_the_machine_paces_and_whom_it_reached(program: Any) -> None:
    program(PACING, SESSION, PROGRESS, RESULT)
    told = invoke("estimate", "server", "--progress", "lines").stderr
    assert "this machine paces up to 19.66 Gbit/s" in told
    assert "connected to 10.0.0.2:8763" in told


def test_a_bar_is_shown_and_taken_away(program: Any) -> None:
    program(PACING, SESSION, PROGRESS, RESULT)
    assert invoke("estimate", "server", "--progress", "bar").exit_code == 0


@pytest.mark.parametrize(
    ("error", "kind", "message", "remedy"),
    [
        (
            {
                "kind": "peer_lost",
                "message": "nothing listens at 10.0.0.2:8763; start `virtgauge bandwidth listen` there",
            },
            VirtgaugeError,
            "nothing listens at 10.0.0.2:8763",
            "start `virtgauge bandwidth listen` there",
        ),
        ({"kind": "invalid", "message": "asks for a token; give it (--token)"}, UsageError, "asks for a token", "give"),
        ({"kind": "unsupported", "message": "port 1 is in use"}, UnavailableError, "port 1 is in use", None),
        (
            {"kind": "protocol", "message": "version 9; install the same"},
            VirtgaugeError,
            "version 9",
            "install the same",
        ),
        (
            {"kind": "cannot_pace", "message": "this host cannot pace 9 Mbit/s; the highest rate that it keeps is 1"},
            UnavailableError,
            "this host cannot pace 9 Mbit/s; the highest rate that it keeps is 1",
            "choose a lower rate",
        ),
        (
            {
                "kind": "cannot_pace",
                "message": "cannot pace 9; keeps 1; shortly before, it kept 90 alone: take load off",
            },
            UnavailableError,
            "cannot pace 9; keeps 1",
            "shortly before, it kept 90 alone: take load off",
        ),
    ],
)
def test_failures_are_errors_with_a_remedy_and_an_exit_code(
    program: Any, error: dict[str, Any], kind: type[VirtgaugeError], message: str, remedy: str | None
) -> None:
    program(SESSION, error_of(error), status=1)
    failed = invoke("estimate", "server", "--quiet").exception
    assert type(failed) is kind
    assert failed.message == message
    assert (failed.remedy or "").startswith(remedy or "") and (failed.remedy is None) == (remedy is None)


def test_an_end_that_was_asked_for_is_an_interruption(program: Any) -> None:
    program(SESSION, error_of({"kind": "cancelled", "message": "cancelled"}), status=1)
    assert invoke("estimate", "server", "--quiet").exit_code == ExitCode.INTERRUPTED


def test_to_be_ended_is_how_a_listener_ends(program: Any) -> None:
    program({"event": "listening", "address": "0.0.0.0:8763"}, error_of({"kind": "cancelled", "message": ""}), status=1)
    ended = invoke("listen")
    assert ended.exit_code == 0
    assert "listening on 0.0.0.0:8763" in ended.stdout


@pytest.mark.parametrize(
    ("install", "kind", "said"),
    [
        ({"status": 2, "complaint": "there is no option --speed"}, UsageError, "there is no option --speed"),
        ({"status": 139}, VirtgaugeError, "ended with status 139"),
    ],
)
def test_an_end_without_a_word_is_no_result(
    program: Any, install: dict[str, Any], kind: type[Exception], said: str
) -> None:
    program(SESSION, **install)
    failed = invoke("estimate", "server", "--quiet").exception
    assert type(failed) is kind
    assert said in str(failed)


def test_what_is_no_json_is_no_result(program: Any) -> None:
    program("segmentation fault")
    failed = invoke("estimate", "server", "--quiet").exception
    assert isinstance(failed, VirtgaugeError)
    assert "segmentation fault" in str(failed)


def test_the_program_is_ended_however_it_is_left(program: Any, tmp_path: Path) -> None:
    program(
        SESSION,
        then=f"trap 'touch {tmp_path}/told; exit 0' TERM\necho $$ > {tmp_path}/pid\nwhile :; do sleep 0.05; done",
    )
    with pytest.raises(RuntimeError, match="enough"), running(["estimate"]) as events:
        next(events)
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            time.sleep(0.01)
        raise RuntimeError("enough")
    # It was told, and not only killed.
    assert (tmp_path / "told").exists()
    assert not os.path.exists(f"/proc/{(tmp_path / 'pid').read_text().strip()}")


def test_a_listener_tells_who_came_who_was_refused_and_what_was_ignored() -> None:
    closed = {
        "event": "closed",
        "peer": "10.0.0.1:4",
        "reason": "the sender has finished",
        "streams": 57,
        "packets": 8200,
        "ignored": {"stranger": 2, "wrong_token": 1, "stale": 0, "malformed": 0},
        "overflowed": 0,
    }
    assert listener_line(closed) == (
        "10.0.0.1:4: the sender has finished; 57 streams, 8,200 packets, 3 foreign ignored"
    )
    opened = {"event": "opened", "peer": "10.0.0.1:4", "tool_version": "0.1.0", "no_kernel_stamps": "no driver"}
    assert "not the kernel: no driver" in listener_line(opened)
    refused = {"event": "refused", "peer": "10.0.0.9:4", "reason": "it does not know the token"}
    assert listener_line(refused) == "10.0.0.9:4: refused: it does not know the token"


def rung(method: str, paced: dict[str, Any] | None) -> dict[str, Any]:
    return {"method": method, "flat_out": {"achieved_bps": 2e9, "burst": 1}, "paced": paced}


def test_the_pacing_sweep_is_a_table_and_a_way_that_paces_nothing_says_so(program: Any) -> None:
    gaps = {"p50_ns": 12_000, "p99_ns": 13_500}
    paced = {"achieved_bps": 1e9, "gaps": gaps, "lateness": {"p99_ns": 1500}, "cpu_share": 0.99}
    assert sweep_table([rung("gso", None)]).row_count == 1
    unsupported = {"event": "unsupported", "method": "gso", "reason": "an old kernel"}
    rungs = [{"event": "rung", "rung": rung("send", paced)}, {"event": "rung", "rung": rung("sendmmsg", None)}]
    program(unsupported, *rungs, {"event": "result", "max_paced_bps": 1e9})
    shown = invoke("pacing-sweep").stdout
    lines = shown.splitlines()
    assert any("send" in line and "1 Gbit/s" in line and "12.0 / 13.5" in line for line in lines), shown
    assert any("sendmmsg" in line and "none" in line for line in lines), shown
    assert "gso: not possible here: an old kernel" in shown
    document = json.loads(invoke("pacing-sweep", "--json").stdout)
    assert [entry["method"] for entry in document["rungs"]] == ["send", "sendmmsg"]
    assert (document["max_paced_bps"], document["unsupported"]) == (1e9, {"gso": "an old kernel"})
