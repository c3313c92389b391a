"""A self-check's file: what it says of each platform, what it never says, and the table that many of them make."""

import json
import os
import subprocess
import types

import pytest
from exported_runs import SUITES, run_of_every_suite
from typer.testing import CliRunner

from virtgauge import cli
from virtgauge.console import support
from virtgauge.errors import UsageError
from virtgauge.exchange.self_check import (
    BEGIN,
    END,
    SelfCheck,
    failures,
    merged,
    read_self_check,
    result_of,
    self_check,
)
from virtgauge.ledger.store import LEDGER_NAME, Ledger
from virtgauge.results.table import ResultTable

LEFT = {
    "process 4711 (sleep) of gateway-7.plant.example by operator": "process 4711 (sleep) of HOST by USER",
    "gateway-7 and gateway-70": "HOST and gateway-70",
    "connection to 192.0.2.7:5432 refused by tcp:192.0.2.8": "connection to ADDRESS:5432 refused by tcp:ADDRESS",
    "at fe80::1:2, ::1 and 2001:db8::7": "at ADDRESS, ADDRESS and ADDRESS",
    "52:54:00:ab:cd:ef 52-54-00-ab-cd-ef enx525400abcdef": "ID ID ID",
    "123e4567-e89b-12d3-a456-426614174000 0123456789abcdef0123456789abcdef": "ID ID",
    "/dev/disk/by-id/ata-DISK_S5Y1NX0R1 is busy": "ID is busy",
    "/srv/customers/acme/run/disk.img cannot be opened": "…/disk.img cannot be opened",
    "/home/bob is not mounted": "… is not mounted",
    "no /dev/kvm; /usr/bin/qemu 7.2.22 of 12:30:45": "no /dev/kvm; /usr/bin/qemu 7.2.22 of 12:30:45",
    "first\nsecond": "first",
    "x" * 1000: "x" * 299 + "…",
}


@pytest.fixture(scope="module")
def found(simulated_machine):
    run = run_of_every_suite(simulated_machine / "run")
    uname = types.SimpleNamespace(nodename="gateway-7.plant.example")
    with Ledger.open(run) as ledger, pytest.MonkeyPatch.context() as patch:
        table = ResultTable(ledger)
        patch.setattr(os, "uname", lambda: uname)
        patch.setenv("LOGNAME", "operator")
        return self_check(table, [*SUITES, "untried"], list(LEFT), "")


@pytest.fixture
def invoke():
    return lambda *arguments: CliRunner().invoke(cli.app, [str(one) for one in arguments])


@pytest.mark.slow
def test_it_says_of_each_platform_what_every_suite_came_to(found):
    assert [one.name for one in found.platforms] == ["one", "other"]
    for platform in found.platforms:
        assert [*platform.suites] == [*SUITES, "untried"]
        assert all(platform.suites[name].valid and not platform.suites[name].failed for name in SUITES)
        assert failures(platform) == ["untried (not reached)"]
        assert result_of(platform) == "fails: untried (not reached)"
    assert found.machine.kernel
    assert found.machine.cpus


@pytest.mark.slow
def test_it_tells_neither_host_nor_user_nor_address_nor_serial_number(found):
    assert dict(zip(LEFT, found.left_behind, strict=True)) == LEFT


def platform_with(**suites):
    shares = {"name": "vm", "kind": "qemu", "label": "QEMU 9", "usable": True, "mark": "", "reason": ""}
    return shares | {"suites": suites}


def checked(*platforms, date="2026-11-10", kernel="6.12.1", **changed):
    machine = {"kernel": kernel, "architecture": "x86_64", "distribution": "Debian 13", "cpu": "EPYC", "cpus": 8}
    document = {
        **{"virtgauge_self_check": 1, "version": "1.0", "date": date, "platforms": platforms},
        **{"machine": machine | {"memory_gib": 16, "hypervisor": ""}, "left_behind": [], "ended": ""},
    }
    return SelfCheck.model_validate_json(json.dumps(document | changed))


@pytest.mark.parametrize(
    ("suites", "result"),
    [
        ({"timing": {"valid": 3}}, "works"),
        (
            {"timing": {"valid": 3}, "forwarding": {"unsupported": 1, "reasons": ["no interface"]}},
            "in part: not forwarding (no interface)",
        ),
        ({"timing": {"valid": 2, "failed": 1, "reasons": ["the guest died"]}}, "fails: timing (the guest died)"),
        ({"timing": {"invalid": 1, "reasons": ["foreign load"]}}, "works; does not count: timing (foreign load)"),
        ({"timing": {}}, "fails: timing (not reached)"),
        ({"timing": {"valid": 1, "invalid": 2, "reasons": ["foreign load"]}}, "works"),
    ],
)
def test_a_result_says_what_did_not_work_and_why(suites, result):
    assert result_of(checked(platform_with(**suites)).platforms[0]) == result


def test_of_a_platform_that_cannot_be_used_no_row_is_made():
    unusable = platform_with() | {"usable": False, "reason": "no /dev/kvm"}
    assert result_of(checked(unusable).platforms[0]) == "cannot be used: no /dev/kvm"
    assert "no /dev/kvm" not in merged([checked(unusable)])


def test_the_table_has_the_latest_of_each_platform_version_kernel_and_machine():
    works, fails = platform_with(timing={"valid": 3}), platform_with(timing={"failed": 3, "reasons": ["it died"]})
    newer = works | {"version": "qemu 10"}
    given = [checked(works, date="2026-11-12"), checked(fails, newer, date="2026-11-11"), checked(fails, kernel="6.1")]
    rows = [line for line in merged(given).splitlines() if line.startswith("| QEMU")]
    assert len(rows) == 3
    assert "6.1 |" in rows[0]
    assert "fails: timing (it died)" in rows[0]
    assert "| — | 6.12.1 | 8 × EPYC, bare metal, Debian 13 | timing | works | 2026-11-12, 1.0 |" in rows[1]
    assert "| qemu 10 |" in rows[2]


def test_a_strangers_words_are_text_in_the_table():
    reason = "<img src=x> | [click](http://x) `a` www.x.org $1$ " + "y" * 200
    odd = platform_with(timing={"failed": 1, "reasons": [reason]})
    text = merged([checked(odd, left_behind=["mount /x"], ended="ended with code 70")])
    (row,) = (line for line in text.splitlines() if line.startswith("| QEMU"))
    assert r"\<img src=x\> \| \[click\](http&#58;//x) \`a\` www&#46;x.org \$1\$" in row
    assert "| the run ended with code 70; left behind: mount /x; fails: " in row


def test_merging_replaces_its_own_table_and_keeps_the_rest(invoke, tmp_path):
    check, page = tmp_path / "check.json", tmp_path / "support.md"
    check.write_text(checked(platform_with(timing={"valid": 1})).model_dump_json())
    before, after = "# Support\n\nBy us.\n\n## Others\n\n", "# Appendix\n\n[a]: b\n"
    page.write_text(f"{before}{BEGIN}\nold\n{END}\n{after}")
    printed = invoke("support", "merge", check).stdout
    for _ in range(2):
        assert invoke("support", "merge", check, "--out", page).exit_code == 0
        assert page.read_text() == before + printed + after
    new = tmp_path / "new.md"
    assert invoke("support", "merge", check, "--out", new).exit_code == 0
    assert new.read_text() == printed == merged([read_self_check(check)])
    page.write_text("# Support\n")
    assert invoke("support", "merge", check, "--out", page).exit_code == 0
    assert page.read_text() == f"# Support\n\n{printed}"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda one: one.pop("date"), "date is missing"),
        (lambda one: one.update(date="9999-09-09"), "date = '9999-09-09': Value error, lies in the future"),
        (lambda one: one.update(virtgauge_self_check=2), "virtgauge_self_check = 2"),
        (lambda one: one.update(colour="red"), "colour = 'red'"),
        (lambda one: one["machine"].update(cpus=-1), "machine.cpus = -1"),
        (lambda one: one.update(version="v" * 5000), "version = 'vvv"),
    ],
)
def test_what_is_no_self_check_is_refused_with_its_field(invoke, tmp_path, change, words):
    document = json.loads(checked().model_dump_json())
    change(document)
    (tmp_path / "odd.json").write_text(json.dumps(document))
    result = invoke("support", "merge", tmp_path / "odd.json", "--out", tmp_path / "page.md")
    assert isinstance(result.exception, UsageError)
    assert words in str(result.exception)
    assert "odd.json" in str(result.exception)
    assert not (tmp_path / "page.md").exists()


def test_what_cannot_be_checked_is_refused_before_anything_runs(invoke, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = invoke("self-check", "--platform", "quemu")
    assert isinstance(result.exception, UsageError)
    assert "--platform quemu" in str(result.exception)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / LEDGER_NAME).touch()
    result = invoke("self-check", "--out", "run")
    assert isinstance(result.exception, UsageError)
    assert "holds a run already" in str(result.exception)
    assert [one.name for one in tmp_path.iterdir()] == ["run"]


def test_a_run_that_takes_much_longer_than_it_was_to_take_is_ended(tmp_path, monkeypatch):
    ledger, really = tmp_path / LEDGER_NAME, subprocess.Popen
    stubborn = f"sleep 0.2; touch {ledger}; trap 'exit 130' TERM; while :; do sleep 0.1; done"
    monkeypatch.setattr(subprocess, "Popen", lambda _, **how: really(["sh", "-c", stubborn], **how))
    monkeypatch.setattr(support, "_LOOK_S", 0.05)
    assert support._ended([], ledger, 0.5) == (130, False)
