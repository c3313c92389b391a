"""What each guest was: settings that a plan gives, or in which arms of a kind differ, and what was in force of them."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from synthetic import SyntheticArm, arm_record, cells, synthetic_ledger

from virtgauge import report
from virtgauge.exchange import Format
from virtgauge.exchange.exports import export
from virtgauge.ledger.store import Ledger
from virtgauge.report.page import render_html
from virtgauge.report.settings import settings_section
from virtgauge.report.terminal import render_text
from virtgauge.specs.blocks import Section, Table

PLAN = """
[[platform]]
name = "default"
kind = "qemu"
machine = "q35"
[[platform]]
name = "tuned"
kind = "qemu"
machine = "q35"
[platform.tuning]
vcpu_cpus = [1]
hpet = false
"""
COMMON = {"kind": "qemu", "machine": "q35", "memory_mib": 512, "found": {"qemu": "7.2"}}
TUNING = {"vcpu_cpus": [1], "hpet": False}
ARMS = (
    arm_record("default", "qemu", "QEMU", "reference", settings=COMMON | {"vcpus": 2}),
    arm_record("default-aa", "qemu", "QEMU (A/A)", "aa", settings=COMMON),
    arm_record("tuned", "qemu", "QEMU [tuned]", settings=COMMON | {"vcpus": 1, "tuning": TUNING}),
    arm_record("gone", "oci", "runsc", usable=False, settings={"runtime": "runsc"}),
)
FACTS = {"tuned": {"in_force": {"tuning.hpet": "false", "tuning.vcpu_cpus": "1"}}}


def rows(section: Section) -> dict[str, tuple[Any, ...]]:
    (table,) = section.blocks
    assert isinstance(table, Table)
    assert [column.title for column in table.columns] == ["QEMU", "QEMU [tuned]"]
    return {row.heads[0]: row.cells for row in table.rows}


def test_what_the_plan_gives_and_what_differs_is_told_with_what_was_in_force() -> None:
    section = settings_section(PLAN, ARMS, FACTS)
    assert section.folded
    assert rows(section) == {
        "machine": ("q35", "q35"),
        "vcpus": ("2", "1"),
        "tuning vcpu_cpus": (None, "1 (in force: 1)"),
        "tuning hpet": (None, "no (in force: false)"),
    }


def test_what_only_another_kind_has_is_no_difference() -> None:
    arms = (ARMS[0], arm_record("runc", "oci", "runc", settings={"kind": "oci", "runtime": "runc"}))
    assert settings_section("", arms, {}).blocks == ()


@pytest.mark.parametrize("facts", [{"in_force": "all of it"}, {"in_force": ["a"]}, {}])
def test_facts_of_strangers_are_no_defect(facts: dict[str, Any]) -> None:
    assert rows(settings_section(PLAN, ARMS, {"tuned": facts}))["tuning hpet"] == (None, "no")


@pytest.mark.parametrize("plan", ["no [ plan", "platform = 3", '[[platform]]\nkind = "qemu"', "platform = [1]"])
def test_a_plan_that_nobody_knows_gives_nothing(plan: str) -> None:
    assert list(rows(settings_section(plan, ARMS, {}))) == ["vcpus", "tuning vcpu_cpus", "tuning hpet"]


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """A finished run of the arms above."""
    arms = [SyntheticArm(arm) for arm in ARMS]
    design = list(cells(timers=("rdtscp",), sleeps=(), loads=("idle",)))
    with synthetic_ledger(tmp_path / "run", arms, 2, design, reads=20_000, run={"plan_text": PLAN}) as ledger:
        yield ledger


def test_the_page_folds_them_and_the_terminal_says_where_they_are(ledger: Ledger) -> None:
    found = report.build(ledger)
    page = render_html(found)
    assert "<summary><h2>Settings of the guests</h2>" in page
    assert "tuning vcpu_cpus" in page
    console = Console(record=True, width=120, file=io.StringIO())
    render_text(found, console)
    assert "more in the HTML report (`--format html`): Settings of the guests" in console.export_text()


def test_a_run_without_settings_has_no_such_section(tmp_path: Path) -> None:
    with synthetic_ledger(tmp_path / "run", blocks=2, design=list(cells(sleeps=(), loads=("idle",)))) as ledger:
        assert "Settings of the guests" not in render_html(report.build(ledger))


def test_the_json_export_has_them_with_each_arm(ledger: Ledger, tmp_path: Path) -> None:
    export(ledger, Format.JSON, tmp_path / "run.json")
    arms = {arm["arm"]: arm for arm in json.loads((tmp_path / "run.json").read_text())["arms"]}
    assert arms["tuned"]["settings"]["tuning"] == {"vcpu_cpus": [1], "hpet": False}
    assert arms["default"]["in_force"] == {}
