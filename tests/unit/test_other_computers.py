"""An arm on another computer than the reference: its ratios are of computers, too, and decide nothing of platforms."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from synthetic import SyntheticArm, arm_record, synthetic_ledger

from virtgauge import report
from virtgauge.claims.verdicts import Verdict
from virtgauge.decisions.ranking import rankings
from virtgauge.decisions.requirements import resolve
from virtgauge.decisions.verdicts import Judge
from virtgauge.ledger.records import ArmRecord
from virtgauge.ledger.store import Ledger
from virtgauge.plan.requirements import Requirement
from virtgauge.report.answers import answers
from virtgauge.results.table import ResultTable
from virtgauge.specs.blocks import Table, Value
from virtgauge.specs.headline import Tone

pytestmark = pytest.mark.slow

SLOWER = 2.38  # Of a processor of 2.1 GHz beside one of 5 GHz
XEON, CORE = "Xeon @ 2.10GHz", "Core @ 5.00GHz"
OVER_PLATFORMS = ("cost-host-esxi", "cost-io-native", "conclusion-bare-metal")

DESIGN = [
    ("timer_cost", {"function": function, "load": load})
    for function in ("rdtscp", "clock_gettime")
    for load in ("idle", "cpu", "io")
]


HOST = {"identity": {"cpu_model": CORE}}


def guest(processor: str) -> ArmRecord:
    return arm_record("esxi", "attached", "Attached", virtual=True, recognised="esx", processor=processor)


def run_of(folder: Path, *arms: SyntheticArm) -> Ledger:
    return synthetic_ledger(folder, arms, blocks=10, design=DESIGN, run={"fingerprint": HOST})


def with_a_guest(folder: Path, processor: str) -> Ledger:
    """A guest without any overhead, whose processor has a clock of less than half the host's."""
    arms = [arm_record("host", "host", "Host", "reference"), arm_record("host-aa", "host", "Host (A/A)", "aa")]
    return run_of(folder, *(SyntheticArm(arm) for arm in arms), SyntheticArm(guest(processor), SLOWER, SLOWER))


def of_a_guest(folder: Path, processor: str) -> report.Report:
    with with_a_guest(folder, processor) as ledger:
        return report.build(ledger)


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> report.Report:
    return of_a_guest(tmp_path_factory.mktemp("apart") / "run", XEON)


@pytest.fixture(scope="module")
def alike(tmp_path_factory: pytest.TempPathFactory) -> report.Report:
    return of_a_guest(tmp_path_factory.mktemp("alike") / "run", "")


def verdicts(found: report.Report) -> dict[str, Verdict]:
    return {one.paper.name: one.run[0].checked.verdict for one in found.suite("timing").claims if one.run}


def test_a_guest_without_overhead_contradicts_no_conclusion_because_its_computer_is_slower(
    apart: report.Report, alike: report.Report
) -> None:
    assert {verdicts(alike)[name] for name in OVER_PLATFORMS} == {Verdict.CONTRADICTED}
    decided = {Verdict.CONFIRMED, Verdict.CONTRADICTED}
    assert not decided & {verdicts(apart)[name] for name in OVER_PLATFORMS}
    claims = {one.paper.name: one.run[0].checked for one in apart.suite("timing").claims if one.run}
    reasons = [one.text for one in claims["cost-host-esxi"].evidence]
    assert any(f"measured on different computers ({CORE}; {XEON})" in reason for reason in reasons), reasons


def test_its_ratios_are_not_judged_and_the_report_says_so_once(apart: report.Report, alike: report.Report) -> None:
    (caveat,) = [text for text in apart.caveats if "another computer" in text]
    assert XEON in caveat and CORE in caveat and caveat.startswith("Attached ran on another computer")
    assert not [text for text in alike.caveats if "another computer" in text]
    headline = next(one for one in apart.suite("timing").headlines if one.arm == "esxi")
    assert headline.tone is Tone.ELSEWHERE
    assert headline.text.startswith("on another computer: ") and "the host" not in headline.text
    (answer,) = [one for one in answers(apart) if one.platform == "esxi"]
    assert answer.sentence.startswith("on another computer, not judged: ") and answer.decisive is None
    assert next(one for one in answers(alike) if one.platform == "esxi").tone is Tone.SLOWER


def _judged(found: report.Report) -> set[str]:
    tables = [block for section in found.suite("timing").sections for block in section.blocks]
    cells = [cell for one in tables if isinstance(one, Table) for row in one.rows for cell in row.cells]
    return {cell.judged for cell in cells if isinstance(cell, Value) and cell.place.arm == "esxi"}


def test_no_figure_of_it_is_coloured(apart: report.Report, alike: report.Report) -> None:
    assert _judged(alike) >= {"worse"}
    assert _judged(apart) == {"plain"}


@pytest.mark.parametrize(("processor", "ratio"), [("", "fail"), (XEON, None)])
def test_bounds_on_the_ratio_are_not_judged_and_absolute_ones_are(
    tmp_path: Path, processor: str, ratio: str | None
) -> None:
    measure, levels = "timer_cost.p50", {"load": ("idle",)}
    bounds = [
        Requirement(
            suite="timing", measure=measure, conditions=levels, at_most=1.5, unit="x", compared_with="reference"
        ),
        Requirement(suite="timing", measure=measure, conditions=levels, at_most=1, unit="ms"),
    ]
    with with_a_guest(tmp_path / "run", processor) as ledger:
        table = ResultTable(ledger)
        requirements = resolve(bounds, None, ["host", "esxi"], 0.95, "test")
        found = Judge(requirements, table, any_time_valid=False).verdicts()
        overall = rankings(requirements, found, table)[-1]
    own = [one for one in found if one.arm == "esxi"]
    assert [one.outcome for one in own] == [ratio, "pass"]
    assert ("on another computer" in own[0].reason) is (ratio is None)
    assert ("on another computer" in overall.unranked.get("esxi", "")) is (ratio is None)


def test_two_of_one_computer_are_compared_where_the_reference_is_one_of_them(tmp_path: Path) -> None:
    """A physical server and a guest on it, whose controller is another computer."""
    physical = arm_record("server", "attached", "Server", "reference", physical=True, processor=XEON, virtual=False)
    again = dataclasses.replace(physical, name="server-aa", label="Server (A/A)", role="aa")
    esxi = SyntheticArm(guest(XEON), SLOWER, SLOWER)
    with run_of(tmp_path / "run", SyntheticArm(physical), SyntheticArm(again), esxi) as ledger:
        found = report.build(ledger)
    assert {verdicts(found)[name] for name in OVER_PLATFORMS} == {Verdict.CONTRADICTED}
    assert not [text for text in found.caveats if "another computer" in text]
