"""The timing paper's conclusions about bandwidth: well formed, tested on its own figures and on known truths."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from bandwidth_results import COARSE, PAPER, PRECISE, BandwidthArm, Timed, bandwidth_ledger, claims_of, figure
from shown import tables
from synthetic import arm_record

from virtgauge import report
from virtgauge.claims.verdicts import CheckedClaim, Verdict
from virtgauge.reference import bandwidth_figures, table
from virtgauge.specs.blocks import Text, Value

pytestmark = pytest.mark.slow

HOST, AA = arm_record("host", "host", "Host", "reference"), arm_record("host-aa", "host", "Host (A/A)", "aa")
KVM, RUNC = arm_record("kvm", "qemu", "QEMU (kvm)"), arm_record("runc", "oci", "Container (runc)")
WORST = arm_record("worst", "qemu", "QEMU (kvm, worse)")
TCG = arm_record("tcg", "qemu", "QEMU (tcg)", emulated=True)


# -- the paper's own figures -------------------------------------------------------------------------


def test_the_table_is_read_as_the_text_has_it() -> None:
    figures = bandwidth_figures()
    assert len(figures) == len(table("bandwidth").rows) == 6
    (host,) = [one for one in figures if (one.platform, one.timing) == ("Host OS", "HighPerTimer")]
    assert (host.tool, host.median, host.half_iqr, host.cross) == ("Kite2", 8922, 20.82, 1000)
    assert [one.half_iqr for one in figures if one.tool == "Yaz"] == [None, None]


# -- on runs of which the truth is known -------------------------------------------------------------

SMOOTH = dataclasses.replace(PRECISE, error=-0.01, spread=0.004)
"""As the paper has it: too little, and evenly."""
AS_THE_PAPER = {
    "hptime": SMOOTH,
    "system": dataclasses.replace(COARSE, error=0.2, spread=0.08, max_paced_mbps=3600.0),
}
IN_A_GUEST = {
    "hptime": Timed(error=-0.03, spread=0.038),
    "system": dataclasses.replace(COARSE, error=0.25, spread=0.2, max_paced_mbps=1900.0),
}
WORSE = {"hptime": Timed(error=-0.06, spread=0.1), "system": dataclasses.replace(COARSE, error=0.4, spread=0.3)}


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> report.Report:
    """Paths and timings of the paper, on platforms that do much of what it says."""
    arms = [
        BandwidthArm(HOST, AS_THE_PAPER),
        BandwidthArm(AA, AS_THE_PAPER),
        BandwidthArm(KVM, IN_A_GUEST),
        BandwidthArm(RUNC, WORSE),
        BandwidthArm(WORST, WORSE),
        BandwidthArm(TCG, WORSE),
    ]
    ledger = bandwidth_ledger(tmp_path_factory.mktemp("claims") / "run", arms, PAPER, searches=240)
    return report.build(ledger)


def judged(found: report.Report, arm: str) -> dict[str, CheckedClaim]:
    return {one.checked.name: one.checked for claim in claims_of(found) for one in claim.run if one.arm == arm}


def test_each_platform_is_judged_by_itself_and_emulated_ones_are_not(usual: report.Report) -> None:
    for claim in claims_of(usual):
        assert [one.arm for one in claim.run] == ["host", "kvm", "runc", "worst"]


@pytest.mark.parametrize(
    ("name", "host", "kvm", "worst"),
    [
        ("variance-falls-with-cross-traffic", Verdict.CONFIRMED, Verdict.CONFIRMED, Verdict.CONFIRMED),
        ("median-falls-with-cross-traffic", Verdict.CONFIRMED, Verdict.CONFIRMED, Verdict.CONFIRMED),
        ("system-timing-varies-more", Verdict.CONFIRMED, Verdict.CONFIRMED, Verdict.CONFIRMED),
        # Errors here are the same share of the truth whatever the cross traffic.
        ("spare-link-suffers-most", Verdict.UNTESTABLE, Verdict.UNDECIDED, Verdict.UNDECIDED),
        ("qemu-is-most-precise", Verdict.UNTESTABLE, Verdict.CONFIRMED, Verdict.CONTRADICTED),
        ("hptime-halves-the-spread", Verdict.CONFIRMED, Verdict.CONFIRMED, Verdict.CONFIRMED),
        ("hptime-is-closer", Verdict.CONFIRMED, Verdict.CONFIRMED, Verdict.CONFIRMED),
        ("system-timing-sends-less", Verdict.CONFIRMED, Verdict.UNTESTABLE, Verdict.UNTESTABLE),
        ("system-calls-matter-more-above-1-gbps", Verdict.CONFIRMED, Verdict.CONFIRMED, Verdict.UNDECIDED),
        ("kite2-underestimates", Verdict.CONFIRMED, Verdict.CONFIRMED, Verdict.CONTRADICTED),
        ("mean-is-close-to-the-median", Verdict.CONFIRMED, Verdict.CONFIRMED, Verdict.CONFIRMED),
        ("medians-are-alike-with-hptime", Verdict.UNTESTABLE, Verdict.UNDECIDED, Verdict.CONTRADICTED),
        ("guest-sends-less", Verdict.UNTESTABLE, Verdict.CONFIRMED, Verdict.CONTRADICTED),
        # The spreads of identical arms differ by more than 9.5 does from 8 or 11.
        ("guest-spreads-ten-times-as-wide", Verdict.UNTESTABLE, Verdict.UNDECIDED, Verdict.CONTRADICTED),
        # With system timing it is 40 % off, where the host cannot pace more than 3.6 Gbit/s.
        ("virtualization-harms", Verdict.UNTESTABLE, Verdict.CONFIRMED, Verdict.CONTRADICTED),
        # Of IP packets 8.917 Gbit/s are available, of which 3.6 are 59.6 % off.
        ("system-timing-fails-at-10-gbps", Verdict.CONTRADICTED, Verdict.CONFIRMED, Verdict.CONTRADICTED),
    ],
)
def test_the_known_truth_is_what_the_verdicts_say(
    usual: report.Report, name: str, host: Verdict, kvm: Verdict, worst: Verdict
) -> None:
    found = {arm: judged(usual, arm)[name].verdict for arm in ("host", "kvm", "worst")}
    assert found == {"host": host, "kvm": kvm, "worst": worst}


def test_what_a_conclusion_is_about_is_said_where_it_is_not_this_platform(usual: report.Report) -> None:
    assert judged(usual, "runc")["system-timing-sends-less"].evidence[0].text == "said of the host"
    assert judged(usual, "host")["virtualization-harms"].evidence[0].text == "said of platforms beside the host"
    assert judged(usual, "runc")["qemu-is-most-precise"].evidence[0].text == "said of qemu, which this is not"
    for name in ("guest-sends-less", "medians-are-alike-with-hptime", "guest-spreads-ten-times-as-wide"):
        assert judged(usual, "runc")[name].evidence[0].text == "said of qemu, which this is not"
    for name in ("virtualization-harms", "spare-link-suffers-most"):
        assert judged(usual, "runc")[name].verdict is Verdict.UNTESTABLE
        assert judged(usual, "runc")[name].evidence[0].text == "said of virtual machines, and this is none"


def test_of_virtual_machines_one_alone_is_not_the_most_precise_beside_a_container(tmp_path: Path) -> None:
    arms = [BandwidthArm(HOST, AS_THE_PAPER), BandwidthArm(KVM, IN_A_GUEST), BandwidthArm(RUNC, WORSE)]
    ledger = bandwidth_ledger(tmp_path / "run", arms, PAPER, searches=60)
    assert judged(report.build(ledger), "kvm")["qemu-is-most-precise"].verdict is Verdict.UNTESTABLE


def test_a_comparison_of_platforms_names_both_sides(usual: report.Report) -> None:
    told = [one.text for one in judged(usual, "kvm")["guest-sends-less"].evidence]
    assert told
    assert all(text.startswith("this platform ÷ Host, ") for text in told)


def test_a_refusal_counts_as_the_highest_rate_that_could_be_sent(usual: report.Report) -> None:
    sends = judged(usual, "host")["system-timing-sends-less"]
    assert all(": 0.40" in one.text for one in sends.evidence) and len(sends.evidence) == 2
    # 3.6 of the 8.917 Gbit/s of IP packets.
    fails = judged(usual, "host")["system-timing-fails-at-10-gbps"]
    assert all("59.6 % (59.6 % to 59.6 %)" in one.text for one in fails.evidence)


def test_too_few_searches_tell_nothing_of_outliers(tmp_path: Path) -> None:
    def verdict_of(searches: int) -> CheckedClaim:
        arms = [BandwidthArm(HOST, AS_THE_PAPER)]
        ledger = bandwidth_ledger(tmp_path / str(searches), arms, PAPER[1:2], blocks=2, searches=searches)
        return judged(report.build(ledger), "host")["system-timing-has-more-outliers"]

    few = verdict_of(10)
    assert few.verdict is Verdict.UNTESTABLE
    assert "fewer than 20 searches" in few.evidence[0].text
    assert verdict_of(60).verdict is not Verdict.UNTESTABLE


def test_what_was_not_measured_is_not_testable_and_says_so(tmp_path: Path) -> None:
    ledger = bandwidth_ledger(tmp_path / "run", [BandwidthArm(HOST)], PAPER[:1], blocks=2)
    claims = judged(report.build(ledger), "host")
    assert claims["usleep-shows-in-the-deviation"].verdict is Verdict.UNTESTABLE
    assert claims["usleep-shows-in-the-deviation"].evidence[0].text == (
        "not measured: kite2, system timing, capacity from 9 Gbit/s"
    )
    one_level: Any = [dataclasses.replace(PAPER[0], cross_mbps=(100,))]
    ledger = bandwidth_ledger(tmp_path / "one", [BandwidthArm(HOST)], one_level, blocks=2)
    falls = judged(report.build(ledger), "host")["median-falls-with-cross-traffic"]
    assert falls.verdict is Verdict.UNTESTABLE
    assert falls.evidence[0].text.startswith("nothing was measured both ways")


def test_the_published_figures_stand_beside_ours_of_the_same_estimator_timing_and_path(usual: report.Report) -> None:
    (table,) = tables(usual, "bandwidth", "published")
    assert len({row.heads[0] for row in table.rows}) == 6
    system = [row for row in table.rows if row.heads[0].startswith("Kite2, System Call, Host OS")]
    assert [row.heads[1] for row in system if row.arm == "host"] == [
        "kite2, system timing",
        "kite2, system timing, without the shim",
    ]
    theirs, *_, paced = system[0].cells
    assert isinstance(theirs, Value) and isinstance(paced, Value)
    assert (theirs.estimate.point, paced.estimate.point, paced.note) == (3600e6, 3600e6, "cannot pace more in 6 of 6")
    precise = [row for row in table.rows if row.heads[0].startswith("Yaz, HighPerTimer, QEMU")]
    assert {row.arm for row in precise} == {"host", "kvm", "runc", "worst", "tcg"}
    ours = figure(usual, "estimate", "kvm", capacity_mbps=1000, timing="hptime", through="inside")
    assert ours.estimate.point == pytest.approx(500e6 * 1500 / 1514 * 0.97, rel=0.01)
    assert ours in next(row.cells for row in precise if row.arm == "kvm")


def test_published_figures_without_ours_are_told_all_the_same(tmp_path: Path) -> None:
    built = report.build(bandwidth_ledger(tmp_path / "run", [BandwidthArm(HOST)], PAPER[:1], blocks=1))
    assert tables(built, "bandwidth", "published") == []
    blocks = next(one.blocks for one in built.suite("bandwidth").sections if one.anchor == "published")
    text = next(one for one in reversed(blocks) if isinstance(one, Text))
    assert sum("Nothing of this kind was measured here" in paragraph for paragraph in text.paragraphs) == 6
