"""Replays of the papers: every conclusion once, beside what was measured, with a verdict that follows from it."""

from __future__ import annotations

import dataclasses
import html
import io
import re
from collections.abc import Collection, Iterator
from pathlib import Path

import markupsafe
import pytest
from bandwidth_results import Design as BandwidthDesign
from bandwidth_results import bandwidth_arms, bandwidth_ledger
from forwarding_results import forwarding_ledger, paper_arms
from isolation_results import Design as IsolationDesign
from isolation_results import isolation_arms, isolation_ledger
from replay_runs import PAPER_TRUTH_NS, put_together, replay_arms, timing_replay
from rich.console import Console
from storage_results import Design as StorageDesign
from storage_results import hardware_vm, storage_arms, storage_ledger
from synthetic import SyntheticArm, arm_record, synthetic_ledger

from virtgauge import report
from virtgauge.claims.papers import SOURCES, on_paper
from virtgauge.claims.verdicts import CheckedClaim, Evidence, Hearing, Verdict, counted, verdict_of
from virtgauge.ledger.records import Flag, TrialRecord
from virtgauge.report import Report
from virtgauge.report.replay import NOT_PART, Replay, ReplayedClaim, in_words, judge

pytestmark = pytest.mark.slow

EVIL = "<script>window.pwned=1</script>"
BANDWIDTH = (
    BandwidthDesign(cross_mbps=(0, 250), through=("shim",)),
    BandwidthDesign(("kite2",), capacity_mbps=10_000, cross_mbps=(1000,), delay_ms=20, through=("shim",)),
)
EMULATED = SyntheticArm(arm_record("qemu", "qemu", "QEMU microvm (tcg)", emulated=True), 11.0, 2.6)


def replay_of(built: Report) -> Replay:
    assert built.replay is not None
    return built.replay


def claims_of(built: Report, suite: str) -> dict[str, ReplayedClaim]:
    (part,) = (part for part in replay_of(built).parts if part.suite == suite)
    return {claim.paper.name: claim for claim in part.claims}


def text_of(built: Report) -> str:
    console = Console(file=io.StringIO(), width=140, force_terminal=False)
    report.render_text(built, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.fixture(scope="module")
def papers_truth(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return report.build(timing_replay(tmp_path_factory.mktemp("truth") / "run"))


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Report]:
    folder = tmp_path_factory.mktemp("replay")
    disk = ("disk-sequential-write", "disk-random-write-flush")
    levels = {"postgresql": "flushed", "mongodb": "none", "cassandra": "periodic"}
    parts = [
        timing_replay(folder / "timing"),
        bandwidth_ledger(folder / "bandwidth", [bandwidth_arms()[0], bandwidth_arms()[3]], BANDWIDTH),
        forwarding_ledger(folder / "forwarding", paper_arms(), strong=(1, 12), sizes=(64, 1518)),
        storage_ledger(
            folder / "storage",
            [storage_arms()[0], hardware_vm()],
            [StorageDesign((database,), (level,)) for database, level in levels.items()],
        ),
        isolation_ledger(
            folder / "isolation",
            [isolation_arms()[0], isolation_arms()[2]],
            [
                IsolationDesign(loads=("none", "integer"), on=("tested", "loading"), shares=(40, 95)),
                IsolationDesign(("memory-write-integer",), loads=("none", "memory-write-integer"), shares=(40, 60)),
                IsolationDesign((disk[0],), loads=("none", *disk), shares=(40,)),
            ],
        ),
    ]
    yield report.build(put_together(folder / "all", parts))


# -- one verdict -------------------------------------------------------------------------------------


def test_a_truth_that_is_the_papers_confirms(papers_truth: Report) -> None:
    found = claims_of(papers_truth, "timing")
    for name in ("cost-tsc-faster", "improved-half-the-cost", "sleep-three-orders", "cost-cpu-medians"):
        assert found[name].verdict is Verdict.CONFIRMED, (name, found[name].reason)
    (hearing,) = found["cost-tsc-faster"].run
    (evidence,) = hearing.checked.evidence
    ratio = re.search(r"System Call ÷ TSC, Host, Idle System, median: ([0-9.]+)×", evidence.text)
    assert ratio is not None
    truth = PAPER_TRUTH_NS["clock_gettime"] / PAPER_TRUTH_NS["rdtscp"]
    assert float(ratio[1]) == pytest.approx(truth, rel=0.1)


def test_a_truth_that_is_not_contradicts(tmp_path: Path) -> None:
    turned = {"rdtscp": 40.0, "clock_gettime": 20.0, "usleep": 900.0, "highpertimer": 50_000.0}
    found = claims_of(report.build(timing_replay(tmp_path / "run", turned)), "timing")
    for name in ("cost-tsc-faster", "improved-half-the-cost", "sleep-three-orders"):
        assert found[name].verdict is Verdict.CONTRADICTED, (name, found[name].reason)
    assert "otherwise" in found["cost-tsc-faster"].reason


def test_trials_too_short_to_tell_a_tail_contradict_by_what_it_is_at_least(papers_truth: Report) -> None:
    claim = claims_of(papers_truth, "timing")["sleep-cpu-120-ns"]
    assert claim.verdict is Verdict.CONTRADICTED
    (evidence,) = claim.run[0].checked.evidence
    assert "99.9th percentile: above " in evidence.text


def test_wide_intervals_leave_it_open(tmp_path: Path) -> None:
    alike = {"rdtscp": 20.0, "clock_gettime": 20.5}
    found = claims_of(report.build(timing_replay(tmp_path / "run", alike, spread=0.2)), "timing")
    assert found["cost-tsc-faster"].verdict is Verdict.UNDECIDED
    assert "open" in found["cost-tsc-faster"].reason


def test_a_single_repetition_decides_nothing(tmp_path: Path) -> None:
    built = report.build(timing_replay(tmp_path / "run", blocks=1))
    counts = counted(claim.verdict for claim in replay_of(built).claims)
    assert counts["confirmed"] == counts["contradicted"] == 0
    assert counts["undecided here"] > 0


def test_a_platform_that_is_not_there_leaves_its_claims_untested_and_says_so(papers_truth: Report) -> None:
    claim = claims_of(papers_truth, "timing")["conclusion-vbox-highest"]
    assert (claim.verdict, claim.reason) == (Verdict.UNTESTABLE, "this run has no Virtual Box")


@pytest.mark.parametrize(("factor", "verdict"), [(1.3, Verdict.CONFIRMED), (0.7, Verdict.CONTRADICTED)])
def test_a_virtual_machine_is_tested_as_the_papers(tmp_path: Path, factor: float, verdict: Verdict) -> None:
    arms = replay_arms(SyntheticArm(arm_record("kvm", "qemu", "QEMU q35 (kvm)"), factor, factor))
    found = claims_of(report.build(timing_replay(tmp_path / "run", arms=arms, loads=("idle",))), "timing")
    assert found["cost-host-lowest"].verdict is verdict


def test_identical_arms_that_differ_as_much_decide_nothing(tmp_path: Path) -> None:
    arms = replay_arms(SyntheticArm(arm_record("kvm", "qemu", "QEMU q35 (kvm)"), 1.3, 1.3))
    arms[1] = SyntheticArm(arms[1].record, 1.5, 1.5)
    built = report.build(timing_replay(tmp_path / "run", arms=arms, loads=("idle",)))
    claim = claims_of(built, "timing")["cost-host-lowest"]
    assert claim.verdict is Verdict.UNDECIDED
    assert all("identical arms" in one.text for one in claim.run[0].checked.evidence)


def test_emulated_figures_never_decide(tmp_path: Path) -> None:
    built = report.build(timing_replay(tmp_path / "run", arms=replay_arms(EMULATED), loads=("io",), blocks=1))
    claim = claims_of(built, "timing")["cost-io-qemu-lowest"]
    assert (claim.verdict, claim.reason) == (
        Verdict.UNTESTABLE,
        "the only QEMU of this run is emulated, which decides nothing",
    )
    assert replay_of(built).emulated == ("QEMU microvm (tcg)",)
    assert "its figures decide no claim" in report.render_html(built)


def test_emulated_routers_show_their_figures_and_decide_nothing(tmp_path: Path) -> None:
    arms = paper_arms()
    for arm in arms:
        object.__setattr__(arm.record, "emulated", True)
    routers = forwarding_ledger(tmp_path / "run", arms, strong=(1, 12), sizes=(64, 1518), blocks=2)
    ledger = put_together(tmp_path / "all", [routers])
    found = claims_of(report.build(ledger), "forwarding")
    assert {claim.verdict for claim in found.values()} == {Verdict.UNTESTABLE}
    assert "emulated, which decides nothing" in found["paravirtual-carries-more"].reason


def test_an_effect_of_the_function_is_found_by_rank_tests_and_contradicted_where_functions_are_alike(
    tmp_path: Path,
) -> None:
    found = claims_of(report.build(timing_replay(tmp_path / "run")), "timing")
    assert found["cost-summary-function"].verdict is Verdict.CONFIRMED
    assert "an effect" in found["cost-summary-function"].run[0].checked.evidence[0].text
    same = {"rdtscp": 20.0, "clock_gettime": 20.0}
    alike = claims_of(report.build(timing_replay(tmp_path / "same", same)), "timing")["cost-summary-function"]
    assert alike.verdict is Verdict.CONTRADICTED


# -- HPTSleep ----------------------------------------------------------------------------------------

REFUSED = Flag("hptime-refused", "hptime answered from the system's clock: the counter is trapped", fatal=False)
KVM = SyntheticArm(arm_record("kvm", "qemu", "QEMU q35 (kvm)"))
BOTH_SLEEPS = ("sleep-three-orders", "sleep-function", "sleep-function-within", "sleep-interaction-function-load")


def of_hptsleep(
    folder: Path, target_ns: int, cpu_ns: float | None, refused: Collection[tuple[str, int]] = ()
) -> dict[str, ReplayedClaim]:
    """Claims of host and KVM with HPTSleep of that length and CPU time; refused by arm and block."""

    def change(trial: TrialRecord) -> TrialRecord:
        if trial.factors["function"] != "highpertimer":
            return trial
        return dataclasses.replace(
            trial,
            factors=trial.factors | {"target_ns": str(target_ns)},
            key=trial.key.replace("=100000", f"={target_ns}"),
            result={"cpu_ns_per_sleep": cpu_ns},
            flags=(REFUSED,) if (trial.arm, trial.block) in refused else (),
        )

    ledger = timing_replay(folder / "run", arms=replay_arms(KVM))
    return claims_of(report.build(put_together(folder / "changed", [ledger], change=change)), "timing")


@pytest.mark.parametrize(
    ("target_ns", "cpu_ns", "verdict", "told"),
    [
        (700_000_000, 4e6, Verdict.CONFIRMED, "HPTSleep, Idle System, CPU time: 0.6 %"),
        (
            700_000_000,
            10.8e6,
            Verdict.CONFIRMED,
            "HPTSleep, Idle System, CPU time: 1.5 %",
        ),  # 1.54 % round to the paper's
        (700_000_000, 14e6, Verdict.CONTRADICTED, "HPTSleep, Idle System, CPU time: 2.0 %"),
        (700_000_000, None, Verdict.UNTESTABLE, "no CPU time of sleeps of 670 ms or more is known"),
        (10_000_000, 4e6, Verdict.UNTESTABLE, "no CPU time of sleeps of 670 ms or more is known"),
    ],
)
def test_hptsleeps_share_of_the_cpu_is_that_of_long_sleeps(
    tmp_path: Path, target_ns: int, cpu_ns: float | None, verdict: Verdict, told: str
) -> None:
    claim = of_hptsleep(tmp_path, target_ns, cpu_ns)["hptsleep-cpu-share"]
    assert claim.verdict is verdict
    assert told in claim.run[0].checked.evidence[0].text
    assert "Bounds: at most 1.5 % (ours)." in claim.run[0].checked.note


def test_hptsleep_without_its_counter_decides_nothing_and_its_platform_has_no_part_in_ranks_of_both_sleeps(
    tmp_path: Path,
) -> None:
    found = of_hptsleep(tmp_path, 10_000_000, 4e6, {("kvm", block) for block in range(6)})
    told = "HPTSleep on QEMU q35 (kvm) decides nothing: its counter cannot be trusted"
    for name in BOTH_SLEEPS:
        checked = found[name].run[0].checked
        assert checked.evidence and all(one.measured for one in checked.evidence), (name, checked.evidence)
        assert told in checked.note
        assert not any("QEMU" in one.text for one in checked.evidence)
    usleep = found["sleep-cpu-like-idle"].run[0].checked
    assert sum("QEMU" in one.text for one in usleep.evidence) == 1, "its uSleep decides"
    assert told not in found["cost-function"].run[0].checked.note


def test_repetitions_of_which_the_counter_was_refused_are_left_out(tmp_path: Path) -> None:
    found = of_hptsleep(tmp_path, 10_000_000, 4e6, {("kvm", block) for block in range(1, 6)})
    checked = found["sleep-three-orders"].run[0].checked
    assert ["QEMU" in one.text for one in checked.evidence if one.agrees is None] == [True], "one repetition is left"
    assert "HPTSleep on QEMU q35 (kvm), Idle System: 5 of 6 repetitions left out: its counter" in checked.note
    assert "decides nothing" not in checked.note
    ranked = of_hptsleep(tmp_path / "fewer", 10_000_000, 4e6, {("kvm", 0)})["sleep-function"].run[0].checked
    assert all(one.measured for one in ranked.evidence), "the platform is ranked by the repetitions that are left"
    assert "22 values" in ranked.evidence[0].text
    assert "Idle System: 1 of 6 repetitions left out: " in ranked.note


def test_repetitions_of_the_long_sleep_that_are_left_out_have_its_reason(tmp_path: Path) -> None:
    """Those of 10 ms are sound; of 0.7 s the counter was refused in two."""

    def of_length(trial: TrialRecord, target_ns: int, refused: Collection[tuple[str, int]] = ()) -> TrialRecord:
        if trial.factors["function"] != "highpertimer":
            return trial
        levels, key = trial.factors | {"target_ns": str(target_ns)}, trial.key.replace("=100000", f"={target_ns}")
        flags = (REFUSED,) if (trial.arm, trial.block) in refused else ()
        return dataclasses.replace(trial, factors=levels, key=key, result={"cpu_ns_per_sleep": 4e6}, flags=flags)

    usual = timing_replay(tmp_path / "run", arms=replay_arms(KVM))
    ledger = put_together(tmp_path / "both", [usual], change=lambda one: of_length(one, 10_000_000))
    for one in (one for one in usual.trials() if one.factors["function"] == "highpertimer"):
        long = of_length(dataclasses.replace(one, guest_id=None), 700_000_000, {("kvm", 0), ("kvm", 1)})
        ledger.add_trial(long, usual.histograms_of(one.trial_id), {})
    note = claims_of(report.build(ledger), "timing")["hptsleep-cpu-share"].run[0].checked.note
    assert "HPTSleep on QEMU q35 (kvm), Idle System: 2 of 6 repetitions left out: its counter" in note


@pytest.mark.parametrize(("target_ns", "cpu_ns"), [(10_000_000, 9.98e6), (1_000_000, None)])
def test_hptsleep_that_only_spins_decides_nothing(tmp_path: Path, target_ns: int, cpu_ns: float | None) -> None:
    found = of_hptsleep(tmp_path, target_ns, cpu_ns)
    for name in BOTH_SLEEPS:
        assert found[name].verdict is Verdict.UNTESTABLE
        assert "are no longer than the kernel’s tick" in found[name].reason


@pytest.mark.parametrize("cpu_ns", [4e6, None])
def test_hptsleep_that_sleeps_or_may_do_so_decides(tmp_path: Path, cpu_ns: float | None) -> None:
    assert of_hptsleep(tmp_path, 10_000_000, cpu_ns)["sleep-three-orders"].verdict is Verdict.CONFIRMED


# -- several platforms -------------------------------------------------------------------------------


def checked(*agreements: bool | None) -> CheckedClaim:
    evidence = tuple(Evidence(f"figure {number}", one) for number, one in enumerate(agreements))
    return CheckedClaim("name", "section 1", "text", "", verdict_of(evidence), evidence)


@pytest.mark.parametrize(
    ("checks", "verdict", "reason"),
    [
        ({"a": [True], "b": [True]}, Verdict.CONFIRMED, "every figure that decides agrees on A and B"),
        (
            {"a": [True], "b": [False, True]},
            Verdict.CONTRADICTED,
            "1 of 2 figures that decide say otherwise on B; confirmed on A",
        ),
        ({"a": [True], "b": [None]}, Verdict.UNDECIDED, "one figure leaves it open on B; confirmed on A"),
        ({"a": [True], "b": []}, Verdict.CONFIRMED, "every figure that decides agrees on A"),
        ({}, Verdict.UNTESTABLE, "no platform whose figures decide was measured"),
    ],
)
def test_what_one_platform_contradicts_is_contradicted(
    checks: dict[str, list[bool | None]], verdict: Verdict, reason: str
) -> None:
    hearings = [Hearing(arm, checked(*agreements)) for arm, agreements in checks.items()]
    assert judge(hearings, {"a": "A", "b": "B"}, emulated=False) == (verdict, reason)


# -- all papers --------------------------------------------------------------------------------------


def test_every_conclusion_of_every_paper_is_there_once(everything: Report) -> None:
    replayed = [(part.suite, claim.paper.name) for part in replay_of(everything).parts for claim in part.claims]
    known = [(suite, claim.name) for suite in SOURCES for claim in on_paper(suite)]
    assert replayed == known
    assert len(set(known)) == len(known) >= 177
    assert len(replay_of(everything).claims) == len(known)


def test_each_suite_brings_verdicts_of_its_own(everything: Report) -> None:
    for part in replay_of(everything).parts:
        assert part.measured
        tested = {claim.verdict for claim in part.claims}
        assert tested & {Verdict.CONFIRMED, Verdict.CONTRADICTED} and len(tested) > 1, (part.suite, tested)
        for claim in part.claims:
            assert claim.reason and (claim.verdict is not Verdict.UNTESTABLE or claim.reason != NOT_PART)


def test_the_page_has_every_claim_exactly_once(everything: Report) -> None:
    page = report.render_html(everything)
    markup = page[: page.index('<script type="application/json"')]
    section = markup[markup.index('<section id="papers">') :]
    section = section[: section.index("</section>")]
    claims = [(part.suite, claim) for part in replay_of(everything).parts for claim in part.claims]
    assert re.findall(r'id="claim-([^"]*)"', section) == [f"{suite}-{claim.paper.name}" for suite, claim in claims]
    on_papers = re.findall(r'<td><span class="badge [a-z]*">([a-z ]*)</span>\n', section)
    assert on_papers == [claim.paper.verdict.removesuffix(" here") for _, claim in claims]
    texts = re.findall(r'<tr id="claim-[^"]*"><th scope="row">(.*?)<small>', section)
    assert texts == [str(markupsafe.escape(claim.paper.text)) for _, claim in claims]
    assert markup.count('<tr id="claim-') == len(claims)
    assert replay_of(everything).summary in markup
    assert markup.index(replay_of(everything).summary) < markup.index('<section id="papers">')


def test_the_terminal_says_how_many_and_which(everything: Report) -> None:
    shown = text_of(everything)
    assert f"Claims of the papers: {replay_of(everything).summary}" in shown
    for part in replay_of(everything).parts:
        assert part.title in shown
    assert shown.count("contradicted") > 5


def test_what_was_not_part_of_a_run_is_not_testable_there(papers_truth: Report) -> None:
    replay = replay_of(papers_truth)
    (timing,) = (part for part in replay.parts if part.measured)
    assert replay.claims == timing.claims, "what was not measured does not make what was look like little"
    for part in replay.parts:
        assert part.measured == (part.suite == "timing")
        if not part.measured:
            assert {(claim.verdict, claim.reason) for claim in part.claims} == {(Verdict.UNTESTABLE, NOT_PART)}
    assert "virtgauge run paper:storage" in report.render_html(papers_truth)


def test_a_replay_that_has_just_begun_counts_nothing() -> None:
    assert Replay((), (), None).summary == "nothing was measured yet"


@pytest.mark.parametrize(
    ("verdicts", "told"),
    [
        ((1, 2, 3, 0), "1 of 6 testable claims confirmed, 2 contradicted, 3 undecided here"),
        ((5, 10, 5, 6), "5 of 20 testable claims confirmed, 10 contradicted, 5 undecided here; 6 not testable here"),
    ],
)
def test_claims_are_counted_among_those_that_could_be_tested(verdicts: tuple[int, ...], told: str) -> None:
    said = (one for one, number in zip(Verdict, verdicts, strict=True) for _ in range(number))
    assert in_words([replayed(one) for one in said]) == told


def test_what_one_platform_contradicts_and_others_leave_open_is_told_apart() -> None:
    claims = [
        replayed(Verdict.CONTRADICTED, Verdict.UNDECIDED),
        replayed(Verdict.CONTRADICTED, Verdict.UNTESTABLE),
        replayed(Verdict.CONFIRMED, Verdict.UNDECIDED),
    ]
    assert in_words(claims) == (
        "0 of 3 testable claims confirmed, 2 contradicted (1 of these undecided on other platforms), 1 undecided here"
    )


def replayed(*verdicts: Verdict) -> ReplayedClaim:
    """A claim of which each platform says one of these."""
    hearings = tuple(Hearing(f"arm{at}", CheckedClaim("", "", "", "", one, ())) for at, one in enumerate(verdicts))
    return ReplayedClaim(hearings[0].checked, hearings, *judge(hearings, {}, emulated=False))


def test_a_run_that_is_no_replay_has_none(tmp_path: Path) -> None:
    built = report.build(synthetic_ledger(tmp_path / "run", replay_arms(), blocks=1))
    assert built.replay is None
    assert "Claims of the papers" not in report.render_html(built) + text_of(built)
    assert 'id="timing-claims"' in report.render_html(built)


def test_names_of_a_run_become_neither_markup_nor_control(tmp_path: Path) -> None:
    evil = arm_record("kvm", "qemu", f"{EVIL}\x1b[31mred")
    arms = replay_arms(SyntheticArm(evil, 1.3, 1.3), SyntheticArm(arm_record("e", "qemu", EVIL, emulated=True)))
    built = report.build(timing_replay(tmp_path / "run", arms=arms, blocks=1))
    page, shown = report.render_html(built), text_of(built)
    assert EVIL not in page
    assert html.escape(EVIL) in page
    assert "\x1b" not in shown and "�[31mred" in shown
