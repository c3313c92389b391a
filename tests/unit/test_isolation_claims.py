"""The isolation paper's conclusions: complete, well formed, tested on the paper's own figures and on known truths."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from isolation_reports import HOST, built, rows_of
from isolation_results import Design, IsolationArm, isolation_arms
from shown import shown
from synthetic import arm_record

from virtgauge import report
from virtgauge.claims.verdicts import CheckedClaim, Verdict
from virtgauge.execution.prepare import check_plan
from virtgauge.ledger.records import Flag
from virtgauge.plan.load import load_plan
from virtgauge.reference import isolation_figures
from virtgauge.specs.blocks import Value

pytestmark = pytest.mark.slow

BOTH = "limit+reservation"
VM = IsolationArm(arm_record("vm", "qemu", "VM"))
HYPER_V = IsolationArm(dataclasses.replace(arm_record("there", "attached", "There"), recognised="hyperv"), share=0.97)
SAVES_ENERGY = {"frequency": {"before_hz": 0.8e9, "after_hz": 3.2e9}}


# -- the paper's own figures -------------------------------------------------------------------------


def test_the_table_is_read_as_the_text_has_it() -> None:
    figures = isolation_figures()
    assert len(figures) == 10
    (beside,) = [figure for figure in figures if figure.on == "loading"]
    assert beside.share == pytest.approx(0.95)
    assert beside.q_low == beside.q_high == 1.6
    (below,) = [figure for figure in figures if "below 70" in figure.note]
    assert (below.share, below.q_low, below.q_high, below.energy_saving) == (None, 0.25, 0.28, True)


# -- on runs of which the truth is known -------------------------------------------------------------

SHARES = (5, 50, 95)
DESIGNS = (
    Design(loads=("none", "integer"), on=("tested", "loading"), shares=SHARES),
    Design(
        benchmarks=("memory-write-integer",),
        loads=("none", "memory-write-integer"),
        cores=("1-apart",),
        shares=SHARES,
    ),
    Design(
        benchmarks=("memory-write-integer",), loads=("memory-write-integer",), on=("tested", "loading"), shares=SHARES
    ),
    Design(benchmarks=("disk-random-write-flush",), loads=("none", "flush", "disk-sequential-write-flush")),
)


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> report.Report:
    arms = [dataclasses.replace(arm, contention=arm.contention / 2) for arm in isolation_arms()]
    return built(tmp_path_factory.mktemp("claims"), *DESIGNS, arms=arms)


def judged(found: report.Report, arm: str) -> dict[str, CheckedClaim]:
    return {
        one.checked.name: one.checked
        for claim in found.suite("isolation").claims
        for one in claim.run
        if one.arm == arm
    }


def test_each_platform_is_judged_by_itself_and_emulated_ones_are_not(usual: report.Report) -> None:
    for claim in usual.suite("isolation").claims:
        assert [one.arm for one in claim.run] == ["host", "runc", "gvisor"]


def test_the_known_truth_is_what_the_verdicts_say(usual: report.Report) -> None:
    runc, gvisor = judged(usual, "runc"), judged(usual, "gvisor")
    # A container gets 99 % of its share and works as fast as the host; gVisor does neither.
    assert runc["cpu-limit-honoured-alone"].verdict is Verdict.CONFIRMED
    assert gvisor["cpu-limit-honoured-alone"].verdict is Verdict.CONTRADICTED
    assert runc["limits-are-of-cpu-time"].verdict is Verdict.CONFIRMED
    assert runc["reservation-is-not-hard"].evidence[0].text == "said of Hyper-V, which this is not"
    # Shares are exact here: 5 % are 5 %.
    assert runc["more-than-the-five-left"].verdict is Verdict.UNDECIDED
    assert runc["tested-gets-too-much"].verdict is Verdict.CONTRADICTED
    # Beside a neighbour that writes memory 1 / (1 + 0.5 · 0.5) is kept; gVisor suffers half as much again.
    assert runc["memory-falls-to-80"].verdict is Verdict.CONFIRMED
    assert gvisor["memory-falls-to-80"].verdict is Verdict.CONTRADICTED
    assert runc["memory-is-the-bottleneck"].verdict is Verdict.CONFIRMED
    assert runc["memory-up-to-130"].verdict is Verdict.CONTRADICTED
    # Beside another user of a disk two thirds are kept, whatever it does.
    assert runc["no-disk-isolation"].verdict is Verdict.CONFIRMED
    assert runc["disk-use-slows-others"].verdict is Verdict.CONFIRMED
    assert runc["disk-depends-on-the-other-operation"].verdict is Verdict.CONTRADICTED


def test_what_is_said_of_hyper_v_is_tested_on_a_guest_of_hyper_v(tmp_path: Path) -> None:
    """An attached one, which says so itself."""
    claims = judged(built(tmp_path, DESIGNS[0], arms=(HOST, HYPER_V)), "there")
    assert claims["reservation-is-not-hard"].verdict is Verdict.CONFIRMED


def test_of_memory_nothing_is_decided_by_guests_that_use_it_by_turns(tmp_path: Path) -> None:
    by_turns, limited = DESIGNS[2], "memory-more-efficient-beside-a-limited-guest"
    claims = judged(built(tmp_path / "by turns", by_turns), "runc")
    for name in ("memory-falls-to-80", "memory-is-the-bottleneck", "memory-isolation-worse-as-bottleneck", limited):
        assert claims[name].verdict is Verdict.UNTESTABLE
        placed = "all cores" if name == limited else "a core each or all cores"
        assert claims[name].evidence[0].text.endswith(f", {placed}")
    on_all = dataclasses.replace(by_turns, cores=("all",))
    claims = judged(built(tmp_path / "all", on_all), "runc")
    assert claims[limited].verdict is not Verdict.UNTESTABLE


@pytest.mark.parametrize(("flag", "said"), [("fits-a-cache", "a cache may hold"), ("one-core", "on one core")])
def test_of_memory_nothing_is_decided_by_caches_and_by_guests_on_one_core(tmp_path: Path, flag: str, said: str) -> None:
    flags = [Flag(flag, "", fatal=False)]
    claims = judged(built(tmp_path, *DESIGNS[:2], flags=flags), "runc")
    assert claims["memory-falls-to-80"].verdict is Verdict.UNTESTABLE
    assert said in claims["memory-falls-to-80"].evidence[0].text
    on_all = claims["memory-more-efficient-beside-a-limited-guest"]  # of which there are no trials at all
    assert on_all.verdict is Verdict.UNTESTABLE
    assert said not in on_all.evidence[0].text
    assert claims["cpu-limit-honoured-alone"].verdict is Verdict.CONFIRMED


def test_a_policy_that_was_not_in_force_decides_nothing(tmp_path: Path) -> None:
    """As limits of guests that libvirt starts in VirtualBox."""
    flags = [Flag("policy-no-effect", "tested: cpu_limit: VirtualBox has no such setting here", fatal=False)]
    checked = judged(built(tmp_path, *DESIGNS[:2], flags=flags), "runc")
    assert {one.verdict for one in checked.values()} == {Verdict.UNTESTABLE}
    assert "whose policy was not in force" in checked["cpu-limit-honoured-alone"].evidence[0].text


def test_where_memory_is_no_bottleneck_what_is_said_of_it_is_not_contradicted(tmp_path: Path) -> None:
    claims = judged(built(tmp_path, DESIGNS[1], arms=(HOST, dataclasses.replace(VM, contention=0.01))), "vm")
    bottleneck = claims["memory-is-the-bottleneck"]
    assert bottleneck.verdict is Verdict.UNDECIDED
    assert "fill its channels" in bottleneck.evidence[0].text


def test_a_fall_to_80_per_cent_is_not_contradicted_by_better_isolation(tmp_path: Path) -> None:
    """Of which a neighbour's writes leave more than 90 %."""
    claims = judged(built(tmp_path, DESIGNS[1], arms=(HOST, dataclasses.replace(VM, contention=0.2))), "vm")
    assert claims["memory-falls-to-80"].verdict is Verdict.CONFIRMED


def test_energy_saving_is_not_judged_where_the_clock_stays(usual: report.Report) -> None:
    for name, checked in judged(usual, "host").items():
        if name.startswith("energy-saving") or name == "forty-per-cent-give-ten":
            assert checked.verdict is Verdict.UNTESTABLE
            assert "keeps its clock" in checked.evidence[0].text


def test_a_processor_that_changes_its_clock_is_the_papers_other_case(tmp_path: Path) -> None:
    limited = Design(loads=("none",), shares=(50, 95), policies=("none", BOTH))
    claims = judged(built(tmp_path, limited, arms=(HOST, VM), fields=lambda factors: SAVES_ENERGY), "vm")
    # The share is honoured in spite of it: no clock of the paper's AMD.
    assert claims["energy-saving-below-70"].verdict is Verdict.CONTRADICTED
    assert claims["energy-saving-slows-a-limited-guest"].verdict is Verdict.CONTRADICTED
    assert claims["cpu-limit-honoured-alone"].verdict is Verdict.UNTESTABLE
    assert "changes its clock" in claims["cpu-limit-honoured-alone"].evidence[0].text


@dataclasses.dataclass(frozen=True)
class Governed(Design):
    """Every cell under two governors."""

    def cells(self) -> Iterator[dict[str, str]]:
        for factors, governor in itertools.product(super().cells(), ("performance", "powersave")):
            yield factors | {"governor": governor}


@pytest.mark.parametrize(
    ("other", "expected"), [({}, Verdict.CONFIRMED), ({"frequency": None}, Verdict.UNTESTABLE)], ids=["known", "not"]
)
def test_of_two_governors_the_one_that_changes_the_clock_is_the_papers_other_case(
    tmp_path: Path, other: dict[str, Any], expected: Verdict
) -> None:
    """And so is one of which it is not known."""
    fields = {"powersave": SAVES_ENERGY, "performance": other}
    limited = Governed(loads=("none",), shares=(50, 95), policies=("none", BOTH))
    found = built(tmp_path, limited, arms=(HOST, VM), fields=lambda factors: fields[factors["governor"]])
    claims = judged(found, "vm")
    without, saving = claims["cpu-limit-honoured-alone"], claims["energy-saving-below-70"]
    assert (without.verdict, saving.verdict) == (expected, Verdict.CONTRADICTED)
    if not other:
        assert all("performance" in one.text for one in without.evidence)
        assert all("powersave" in one.text for one in saving.evidence)


@dataclasses.dataclass(frozen=True)
class Preset(Design):
    """The cells of a plan."""

    plan: str = ""

    def cells(self) -> Iterator[dict[str, str]]:
        yield from (dict(cell.factors) for cell in check_plan(*load_plan(self.plan)).cells)


@pytest.mark.parametrize("plan", ["isolation-2014", "paper:isolation"])
@pytest.mark.parametrize("saving", ["powersave", "ondemand"], ids=["intel_pstate", "other drivers"])
def test_the_presets_have_the_cells_that_each_conclusion_is_drawn_from(tmp_path: Path, plan: str, saving: str) -> None:
    """Were they run in Hyper-V, which they cannot be, and on a host with one governor that lowers the clock."""
    saves = {saving: SAVES_ENERGY}
    found = built(
        tmp_path, Preset(plan=plan), arms=(HOST, HYPER_V), fields=lambda one: saves.get(one.get("governor", ""), {})
    )
    untested = [name for name, one in judged(found, "there").items() if one.verdict is Verdict.UNTESTABLE]
    assert untested == []


def test_what_was_not_measured_is_not_testable_and_says_so(tmp_path: Path) -> None:
    found = built(tmp_path, Design(), arms=(HOST,), blocks=2)
    claims = judged(found, "host")
    disk = claims["no-disk-isolation"]
    assert disk.verdict is Verdict.UNTESTABLE
    assert disk.evidence[0].text == (
        "not measured: disk beside disk load, none or limit or limit+reservation on the tested guest"
    )
    share = claims["more-than-the-five-left"].evidence[0].text
    assert share.endswith("limit+reservation on the loading guest, a share of 95 %")


def test_the_published_figures_stand_beside_ours(usual: report.Report) -> None:
    rows = rows_of(usual, "published")
    assert len(rows) == len(isolation_figures())

    def ours(benchmark: str, load: str, on: str, share: str) -> list[Value]:
        found = shown(usual, "isolation", "published.q", "runc")
        return [
            one
            for one in found
            if isinstance(one, Value) and one.place.cell.endswith(f"{benchmark}/{load}/{on}/{share}")
        ]

    (five,) = ours("CPU", "CPU", "loading", "0.95")
    assert five.estimate.point == pytest.approx(0.99, abs=0.02)
    assert "on=loading" in five.place.cell
    (memory,) = ours("RAM read/write", "RAM write", "tested", "None")
    assert memory.estimate.point == pytest.approx(0.8 * 0.99, abs=0.02)
    assert memory.hint.startswith("the lowest of 4: memory write (integers), ")
    assert not ours("dhrystone", "none", "tested", "0.9")
