"""The isolation paper's conclusions: complete, well formed, tested on the paper's own figures and on known truths."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from isolation_results import Design, IsolationArm, isolation_arms, isolation_ledger, isolation_of
from pydantic import ValidationError
from synthetic import arm_record

from virtgauge import report
from virtgauge.analysis.comparison import unpaired_ratio
from virtgauge.analysis.estimate import Estimate
from virtgauge.reference.claim_file import read_claims
from virtgauge.reference.isolation_claims import Bounds, Claim, Selection, isolation_claims
from virtgauge.report.isolation.claim_figures import Figures, Found, PaperFigures, Place, Which, told
from virtgauge.report.isolation.model import IsolationFindings
from virtgauge.report.isolation.paper_claims import examine
from virtgauge.report.isolation.published import by_figure, published_figures
from virtgauge.report.verdicts import ExaminedClaim, Verdict

CLAIMS = {claim.name: claim for claim in isolation_claims()}
BOTH = "limit+reservation"


# -- the conclusions ---------------------------------------------------------------------------------


def test_every_conclusion_has_a_name_of_its_own_a_place_and_a_way_to_judge_it() -> None:
    assert len(CLAIMS) == len(isolation_claims()) >= 28
    for claim in isolation_claims():
        assert claim.place.startswith("section")
        assert claim.text and claim.tests


@pytest.mark.parametrize("claim", isolation_claims(), ids=lambda claim: claim.name)
def test_a_bound_is_the_papers_or_said_to_be_ours(claim: Claim) -> None:
    for test in claim.tests:
        bounds = {getattr(test, name, None) for name in ("at_least", "at_most")} - {None, 1}
        stated = all(f"{bound * 100:g} %" in claim.text + claim.note for bound in bounds)
        assert stated or "ours" in claim.note, f"a bound of {claim.name} comes from nowhere"


def test_malformed_tests_are_refused() -> None:
    about = {"benchmarks": ["cpu"], "loads": ["none"]}
    with pytest.raises(ValidationError, match="at_least or at_most"):
        Bounds.model_validate({"kind": "bounds", "of": about})
    with pytest.raises(ValidationError, match="quantity"):
        Selection.model_validate(about | {"quantity": "speed"})
    with pytest.raises(ValueError, match="table"):
        read_claims("timing_claims.toml", Claim)


# -- on the paper's own figures ----------------------------------------------------------------------

PRINTED = {
    "cpu-limit-honoured-alone": "above 96.0 %",
    "cpu-limit-honoured-under-load": "above 90.0 %",
    "tested-gets-too-much": "160.0 %",
    "eight-instead-of-five": "8.0 %",
    "energy-saving-slows-a-limited-guest": "25.0 %",
    "energy-saving-below-70": "25.0 % to 28.0 %",
    "energy-saving-grows-with-the-limit": "61.0 %",
    "forty-per-cent-give-ten": "10.0 % to 11.2 %",
    "memory-too-efficient-at-low-shares": "130.0 %",
    "memory-up-to-130": "130.0 %",
    "memory-falls-to-80": "80.0 %",
    "memory-loses-twice-as-much": "80.0 %",
    "cpu-isolation-pretty-well": "above 90.0 %",
    "memory-isolation-a-bit-worse": "0.89×",
}


@pytest.mark.parametrize("name", CLAIMS)
def test_what_the_paper_prints_confirms_its_conclusions_and_nothing_else_is_decided(name: str) -> None:
    examined = examine(CLAIMS[name], PaperFigures())
    if name in PRINTED:
        assert examined.verdict is Verdict.CONFIRMED
        assert any(PRINTED[name] in one.text for one in examined.evidence)
    else:
        # Of one that is about two guests, the paper prints the half.
        half = name == "limited-guest-gets-too-little-memory"
        assert examined.verdict is (Verdict.UNDECIDED if half else Verdict.UNTESTABLE)


def test_the_table_is_read_as_the_text_has_it() -> None:
    figures = published_figures()
    assert len(figures) == 10
    (beside,) = [figure for figure in figures if figure.on == "loading"]
    assert beside.share == pytest.approx(0.95)
    assert beside.q_low == beside.q_high == 1.6
    (below,) = [figure for figure in figures if "below 70" in figure.note]
    assert (below.share, below.q_low, below.q_high, below.energy_saving) == (None, 0.25, 0.28, True)


@pytest.mark.parametrize(("which", "expected"), [("lowest", None), ("highest", 1.3), ("each", (0.0, 1.3))])
def test_a_figure_with_one_end_says_nothing_of_the_other(which: Which, expected: Any) -> None:
    wanted = Selection(benchmarks=("memory",), loads=("none",), energy_saving=False)
    found = PaperFigures().select(wanted, which)
    if expected is None:
        assert not found
        return
    (one,) = found
    ends = (one.estimate.low, one.estimate.high)
    assert ends == (expected if isinstance(expected, tuple) else (expected, expected))


# -- kinds of tests, on figures that are given -------------------------------------------------------


class Given(Figures):
    """Figures as a test names them: by benchmark, load, guest and share."""

    def __init__(self, figures: Mapping[tuple[str, str, str, float], tuple[float, float]]) -> None:
        self._figures = figures

    def select(self, wanted: Selection, which: Which) -> Sequence[Found]:
        found = []
        for (benchmark, load, on, share), (low, high) in self._figures.items():
            fits = wanted.on == on and wanted.shares.includes(share)
            if fits and benchmark in wanted.benchmarks and any(load.startswith(one) for one in wanted.loads):
                place = Place(benchmark, load, "1", BOTH, on, share)
                middle = low if math.isinf(high) else (low + high) / 2
                found.append(Found(place, f"{benchmark} {load}", Estimate(middle, low, high, 0.95, 5, "ratio", "")))
        if which == "each" or not found:
            return found
        return [(min if which == "lowest" else max)(found, key=lambda one: one.estimate.point or 0)]

    def ratio(self, one: Found, other: Found) -> Estimate:
        return unpaired_ratio(one.estimate, other.estimate)

    def why_none(self, wanted: Selection) -> str:
        return "not given"


def verdict(name: str, figures: Mapping[tuple[str, str, str, float], tuple[float, float]]) -> Verdict:
    return examine(CLAIMS[name], Given(figures)).verdict


@pytest.mark.parametrize(
    ("interval", "expected"),
    [
        ((0.97, 0.99), Verdict.CONFIRMED),
        ((0.95, 0.97), Verdict.UNDECIDED),
        ((0.80, 0.90), Verdict.CONTRADICTED),
    ],
)
def test_the_whole_interval_decides(interval: tuple[float, float], expected: Verdict) -> None:
    assert verdict("cpu-limit-honoured-alone", {("cpu", "none", "tested", 0.5): interval}) is expected


def test_one_share_that_disagrees_is_enough_where_all_must_agree() -> None:
    good = {("cpu", "none", "tested", share): (0.97, 0.99) for share in (0.25, 0.5)}
    assert verdict("cpu-limit-honoured-alone", good | {("cpu", "none", "tested", 0.75): (0.7, 0.8)}) is (
        Verdict.CONTRADICTED
    )


def test_the_highest_alone_decides_where_something_happens_in_some_places() -> None:
    figures = {("cpu", "cpu", "loading", 0.5): (0.98, 1.0), ("cpu", "cpu", "loading", 0.95): (1.5, 1.7)}
    assert verdict("tested-gets-too-much", figures) is Verdict.CONFIRMED
    assert verdict("tested-gets-too-much", dict(list(figures.items())[:1])) is Verdict.CONTRADICTED


@pytest.mark.parametrize(
    ("memory", "expected"),
    [
        ((0.79, 0.81), Verdict.CONFIRMED),
        ((0.5, 0.52), Verdict.CONTRADICTED),
        ((0.895, 0.905), Verdict.CONTRADICTED),
        ((0.6, 0.9), Verdict.UNDECIDED),
    ],
)
def test_losses_are_compared_and_not_what_is_left(memory: tuple[float, float], expected: Verdict) -> None:
    figures = {("memory", "memory-write", "tested", 0.75): memory, ("cpu", "cpu", "tested", 0.5): (0.89, 0.91)}
    assert verdict("memory-loses-twice-as-much", figures) is expected


def test_twice_of_nothing_is_not_decided() -> None:
    figures = {
        ("memory", "memory-write", "tested", 0.75): (0.79, 0.81),
        ("cpu", "cpu", "tested", 0.5): (1.01, 1.02),
    }
    assert verdict("memory-loses-twice-as-much", figures) is Verdict.UNDECIDED


def test_mirrored_places_leave_the_same_for_the_tested_guest() -> None:
    name = "memory-more-efficient-beside-a-limited-guest"
    figures = {
        ("memory", "memory-write", "loading", 0.75): (1.25, 1.35),
        ("memory", "memory-write", "tested", 0.25): (0.95, 1.0),
    }
    assert verdict(name, figures) is Verdict.CONFIRMED
    figures["memory", "memory-write", "tested", 0.25] = (1.3, 1.4)
    assert verdict(name, figures) is Verdict.CONTRADICTED
    other_share = {
        ("memory", "memory-write", "loading", 0.75): (1.25, 1.35),
        ("memory", "memory-write", "tested", 0.75): (0.9, 1.0),
    }
    assert verdict(name, other_share) is Verdict.UNTESTABLE


def test_a_difference_between_loads_needs_two_of_them() -> None:
    name = "disk-depends-on-the-other-operation"
    one = {("disk", "disk-read", "tested", 0.5): (0.4, 0.42)}
    assert verdict(name, one) is Verdict.UNTESTABLE
    assert verdict(name, one | {("disk", "disk-write", "tested", 0.5): (0.6, 0.62)}) is Verdict.CONFIRMED
    assert verdict(name, one | {("disk", "disk-write", "tested", 0.5): (0.41, 0.43)}) is Verdict.CONTRADICTED


def test_without_an_interval_nothing_is_decided() -> None:
    found = Found(Place("cpu", "none", "", "", "tested", 0.5), "", Estimate.bare(0.99, "ratio", "one repetition"))
    assert told(found.estimate) == "99.0 % (no interval)"

    class Bare(Given):
        def select(self, wanted: Selection, which: Which) -> Sequence[Found]:
            return [found]

    assert examine(CLAIMS["cpu-limit-honoured-alone"], Bare({})).verdict is Verdict.UNDECIDED


# -- on runs of which the truth is known -------------------------------------------------------------

SHARES = (5, 50, 95)
DESIGNS = (
    Design(loads=("none", "integer"), on=("tested", "loading"), shares=SHARES),
    Design(
        benchmarks=("memory-write-integer",),
        loads=("none", "memory-write-integer"),
        on=("tested", "loading"),
        shares=SHARES,
    ),
    Design(benchmarks=("disk-random-write-flush",), loads=("none", "flush", "disk-sequential-write-flush")),
)


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> IsolationFindings:
    return isolation_of(report.build(isolation_ledger(tmp_path_factory.mktemp("claims") / "run", designs=DESIGNS)))


def judged(found: IsolationFindings, arm: str) -> dict[str, ExaminedClaim]:
    return {one.examined.name: one.examined for claim in found.paper_claims for one in claim.arms if one.arm == arm}


def test_each_platform_is_judged_by_itself_and_emulated_ones_are_not(usual: IsolationFindings) -> None:
    for claim in usual.paper_claims:
        assert [one.arm for one in claim.arms] == ["host", "runc", "gvisor"]


def test_the_known_truth_is_what_the_verdicts_say(usual: IsolationFindings) -> None:
    runc, gvisor = judged(usual, "runc"), judged(usual, "gvisor")
    # A container gets 99 % of its share and works as fast as the host; gVisor does neither.
    assert runc["cpu-limit-honoured-alone"].verdict is Verdict.CONFIRMED
    assert gvisor["cpu-limit-honoured-alone"].verdict is Verdict.CONTRADICTED
    assert runc["limits-are-of-cpu-time"].verdict is Verdict.CONFIRMED
    assert runc["reservation-is-not-hard"].verdict is Verdict.CONFIRMED
    # Shares are exact here: 5 % are 5 %.
    assert runc["eight-instead-of-five"].verdict is Verdict.CONTRADICTED
    assert "5.0 %" in runc["eight-instead-of-five"].evidence[0].text
    assert runc["tested-gets-too-much"].verdict is Verdict.CONTRADICTED
    # Beside half a CPU's worth of memory writes 1 / (1 + 0.5 · 0.5) is kept; gVisor suffers half as much again.
    assert runc["memory-falls-to-80"].verdict is Verdict.CONFIRMED
    assert gvisor["memory-falls-to-80"].verdict is Verdict.CONTRADICTED
    assert runc["memory-is-the-bottleneck"].verdict is Verdict.CONFIRMED
    assert runc["memory-up-to-130"].verdict is Verdict.CONTRADICTED
    # Two users of a disk have a half each, whatever they do to it.
    assert runc["no-disk-isolation"].verdict is Verdict.CONFIRMED
    assert runc["disk-use-slows-others"].verdict is Verdict.CONFIRMED
    assert runc["disk-depends-on-the-other-operation"].verdict is Verdict.CONTRADICTED
    assert runc["expected-order"].verdict is Verdict.CONFIRMED


def test_energy_saving_is_not_judged_where_the_clock_stays(usual: IsolationFindings) -> None:
    for name, examined in judged(usual, "host").items():
        if name.startswith("energy-saving") or name == "forty-per-cent-give-ten":
            assert examined.verdict is Verdict.UNTESTABLE
            assert "keeps its clock" in examined.evidence[0].text


def test_a_processor_that_changes_its_clock_is_the_papers_other_case(tmp_path: Path) -> None:
    arms = [IsolationArm(arm_record("host", "host", "Host", "reference")), IsolationArm(arm_record("vm", "qemu", "VM"))]
    designs = [Design(loads=("none",), shares=(50, 95), policies=("none", BOTH))]
    frequency = {"frequency": {"before_hz": 0.8e9, "after_hz": 3.2e9}}
    found = isolation_of(report.build(isolation_ledger(tmp_path / "run", arms, designs, fields=frequency)))
    claims = judged(found, "vm")
    # The share is honoured in spite of it: no clock of the paper's AMD.
    assert claims["energy-saving-below-70"].verdict is Verdict.CONTRADICTED
    assert claims["energy-saving-slows-a-limited-guest"].verdict is Verdict.CONTRADICTED
    assert claims["cpu-limit-honoured-alone"].verdict is Verdict.UNTESTABLE
    assert "changes its clock" in claims["cpu-limit-honoured-alone"].evidence[0].text


def test_what_was_not_measured_is_not_testable_and_says_so(tmp_path: Path) -> None:
    found = isolation_of(report.build(isolation_ledger(tmp_path / "run", isolation_arms()[:1], blocks=2)))
    claims = judged(found, "host")
    disk = claims["no-disk-isolation"]
    assert disk.verdict is Verdict.UNTESTABLE
    assert disk.evidence[0].text == (
        "not measured: disk beside disk load, none or limit or limit+reservation on the tested guest"
    )
    share = claims["eight-instead-of-five"].evidence[0].text
    assert share.endswith("limit+reservation on the loading guest, a share of 95 %")


def test_the_published_figures_stand_beside_ours(usual: IsolationFindings) -> None:
    rows = by_figure(usual.published)
    assert [figure for figure, _ in rows] == list(published_figures())
    ours = {(figure.benchmark, figure.load, figure.share): row for figure, row in rows}
    (five,) = (row for figure, row in rows if figure.on == "loading")
    assert five["runc"].q.point == pytest.approx(0.99, abs=0.02)
    assert five["runc"].key is not None and five["runc"].key.on == "loading"
    memory = ours["RAM read/write", "RAM write", None]["runc"]
    assert memory.q.point == pytest.approx(0.8 * 0.99, abs=0.02)
    assert memory.note.startswith("the lowest of 2: memory write (integers), ")
    assert not ours["dhrystone", "none", 0.9]
