"""Verdicts, ranks and sequential repetitions on platforms whose truth is known."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from suites.isolation_runs import QUICK
from suites.simulated_runs import Recorder, execute, plan_of, report_of, simulated
from typer.testing import CliRunner

from virtgauge import report
from virtgauge.analysis.bounds import Outcome
from virtgauge.cli import app
from virtgauge.decisions.decisions import Decisions
from virtgauge.decisions.verdicts import Verdict
from virtgauge.errors import ExitCode
from virtgauge.execution.progress import Notice
from virtgauge.execution.run import resume_run
from virtgauge.ledger.store import Ledger
from virtgauge.plan.model import Plan
from virtgauge.platforms.simulated.platform import SimulatedPlatform

pytestmark = pytest.mark.slow

TIMER = {"suite": "timing", "measure": "timer_cost.p50", "unit": "ns"}
DESIGN = {"timers": ["rdtsc"]}


def platform(name: str, median_ns: float, *, seed: int = 1, guest_sigma: float = 0.02, **fields: Any) -> dict[str, Any]:
    return simulated(name, truth={"*": {"median_ns": median_ns, "guest_sigma": guest_sigma}}, seed=seed, **fields)


def decided(folder: Path, platforms: Sequence[dict[str, Any]], *required: dict[str, Any], **fields: Any) -> Decisions:
    known = {"repetitions": 8, "design": DESIGN, "require": [TIMER | one for one in required]}
    execute(plan_of(*platforms, **(known | fields)), folder)
    return report_of(folder).decisions


def verdict_on(decisions: Decisions, arm: str, requirement: int = 0) -> Verdict:
    name = decisions.requirements[requirement].name
    return next(one for one in decisions.verdicts if (one.requirement, one.arm) == (name, arm))


def test_what_is_within_passes_and_what_is_beyond_fails(tmp_path: Path) -> None:
    platforms = [platform("good", 20, seed=1), platform("bad", 200, seed=2), platform("edge", 100, seed=3)]
    decisions = decided(tmp_path / "run", platforms, {"at_most": 100})
    assert verdict_on(decisions, "good").outcome is Outcome.PASS
    assert verdict_on(decisions, "bad").outcome is Outcome.FAIL
    edge = verdict_on(decisions, "edge")
    assert edge.outcome is Outcome.INCONCLUSIVE
    assert edge.more is None or edge.more > 0
    good = verdict_on(decisions, "good").decisive
    assert good is not None
    assert good.margin == pytest.approx(0.8, abs=0.05)
    assert good.trials == tuple(sorted(good.trials)) and len(good.trials) == 8
    assert decisions.outcome is Outcome.FAIL


def test_all_cells_must_pass(tmp_path: Path) -> None:
    truth = {"rdtsc": {"median_ns": 20.0}, "rdtscp": {"median_ns": 300.0}}
    decisions = decided(tmp_path / "run", [simulated("a", truth=truth)], {"at_most": 100}, design={})
    verdict = verdict_on(decisions, "a")
    assert verdict.outcome is Outcome.FAIL
    assert verdict.decisive is not None
    assert verdict.decisive.factors["function"] == "rdtscp"
    assert [cell.outcome for cell in verdict.cells].count(Outcome.PASS) == 1


def test_a_bound_on_the_ratio_needs_an_aa_pair(tmp_path: Path) -> None:
    platforms = [platform("native", 100, seed=1), platform("near", 105, seed=2), platform("far", 300, seed=3)]
    bound = {"at_most": 1.5, "unit": "x", "compared_with": "reference"}
    decisions = decided(tmp_path / "with", platforms, bound, aa=True)
    assert verdict_on(decisions, "near").outcome is Outcome.PASS
    assert verdict_on(decisions, "far").outcome is Outcome.FAIL
    assert not [one for one in decisions.verdicts if one.arm == "native"], "it is not compared with itself"
    without = decided(tmp_path / "without", platforms, bound, aa=False)
    assert verdict_on(without, "far").outcome is Outcome.INCONCLUSIVE
    assert "A/A" in verdict_on(without, "far").reason


def test_a_margin_within_what_identical_arms_differ_by_decides_nothing(tmp_path: Path) -> None:
    """Guests differ by half among themselves: what identical arms seem apart covers the margin of a tenth."""
    platforms = [platform("native", 100, guest_sigma=0.5), platform("steady", 90, seed=5, guest_sigma=0.001)]
    decisions = decided(tmp_path / "run", platforms, {"at_most": 100}, aa=True)
    verdict = verdict_on(decisions, "steady")
    assert verdict.decisive is not None and verdict.decisive.estimate.high is not None
    assert verdict.decisive.estimate.high < 100, "the interval alone would pass"
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "identical arms" in verdict.reason


def test_emulated_and_skipped_platforms_are_neither_judged_nor_ranked(tmp_path: Path) -> None:
    platforms = [platform("a", 20), platform("tcg", 500, emulated=True), platform("gone", 20, usable=False)]
    decisions = decided(tmp_path / "run", platforms, {"at_most": 100})
    assert verdict_on(decisions, "tcg").outcome is None
    assert verdict_on(decisions, "gone").outcome is None
    assert decisions.outcome is Outcome.PASS
    for ranking in decisions.rankings:
        assert [rank.arm for rank in ranking.ranks] == ["a"]
        assert set(ranking.unranked) == {"tcg", "gone"}


def test_functional_figures_are_named_so_and_neither_judged_nor_ranked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SimulatedPlatform, "functional", property(lambda self: self.emulated))
    decisions = decided(tmp_path / "run", [platform("a", 20), platform("pvm", 500, emulated=True)], {"at_most": 100})
    assert verdict_on(decisions, "pvm").outcome is None
    assert verdict_on(decisions, "pvm").reason.startswith("functional: ")
    for ranking in decisions.rankings:
        assert ranking.unranked == {"pvm": "functional: its figures never rank"}


def test_a_platform_that_is_named_and_missing_is_undecided(tmp_path: Path) -> None:
    platforms = [platform("a", 20), platform("b", 20), platform("gone", 20, usable=False)]
    decisions = decided(tmp_path / "run", platforms, {"at_most": 100, "platforms": ["gone"]})
    assert verdict_on(decisions, "gone").outcome is Outcome.INCONCLUSIVE


def test_a_bound_whose_trials_all_failed_is_undecided_and_says_why(tmp_path: Path) -> None:
    broken = platform("broken", 20, seed=4, faults=[{"kind": "unsupported", "function": "rdtsc"}])
    decisions = decided(tmp_path / "run", [platform("a", 20), broken], {"at_most": 100}, budget={"repetitions": 20})
    verdict = verdict_on(decisions, "broken")
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "unsupported" in verdict.reason
    with Ledger.open(tmp_path / "run") as ledger:
        assert max(trial.block for trial in ledger.trials()) == 7, "repeating what cannot be measured is in vain"


def test_platforms_that_cannot_be_told_apart_share_a_rank(tmp_path: Path) -> None:
    platforms = [platform("first", 100, seed=1), platform("twin", 100, seed=2), platform("slow", 400, seed=3)]
    decisions = decided(tmp_path / "run", platforms, {"at_most": 1000}, aa=True)
    for ranking in decisions.rankings:
        assert {rank.arm: rank.rank for rank in ranking.ranks} == {"first": 1, "twin": 1, "slow": 3}


def test_one_that_fails_stands_behind_one_that_does_not(tmp_path: Path) -> None:
    """`fast` is better by the first requirement, and fails the second."""
    first = {"rdtsc": {"median_ns": 10.0}, "rdtscp": {"median_ns": 900.0}}
    second = {"rdtsc": {"median_ns": 80.0}, "rdtscp": {"median_ns": 90.0}}
    platforms = [simulated("fast", truth=first, seed=1), simulated("sound", truth=second, seed=2)]
    one = {"at_most": 100, "conditions": {"function": "rdtsc"}}
    other = {"at_most": 500, "conditions": {"function": "rdtscp"}}
    decisions = decided(tmp_path / "run", platforms, one, other, aa=True, design={})
    assert decisions.overall is not None
    assert [(rank.arm, rank.rank) for rank in decisions.overall.ranks] == [("sound", 1), ("fast", 2)]


# -- sequential repetitions ----------------------------------------------------------------------------------


def notices(recorder: Recorder) -> list[str]:
    return [event.text for event in recorder.events if isinstance(event, Notice)]


def test_repetitions_are_added_until_decided_and_only_where_needed(tmp_path: Path) -> None:
    platforms = [platform("clear", 20, seed=1), platform("close", 95, seed=2, guest_sigma=0.08)]
    plan = plan_of(
        *platforms, repetitions=2, design=DESIGN, require=[TIMER | {"at_most": 100}], budget={"repetitions": 200}
    )
    complete, recorder = execute(plan, tmp_path / "run")
    assert complete
    decisions = report_of(tmp_path / "run").decisions
    assert decisions.sequential
    assert verdict_on(decisions, "clear").outcome is Outcome.PASS
    assert verdict_on(decisions, "close").outcome is Outcome.PASS
    with Ledger.open(tmp_path / "run") as ledger:
        blocks = {arm: {t.block for t in ledger.trials() if t.arm == arm} for arm in ("clear", "close")}
    # The reference is measured beside what is open, so that pairs stay pairs.
    assert len(blocks["close"]) >= 8
    assert blocks["close"] == set(range(len(blocks["close"]))), "one repetition after the other, none beyond the last"
    assert any("every requirement is decided" in text for text in notices(recorder))


def test_figures_relative_to_other_cells_are_decided_by_repetitions_that_have_those_too(tmp_path: Path) -> None:
    names = ("kept", "relative_work", "q", "q_rate", "work_beside_load", "kept_of_promised", "conservation.given")
    where = {"load": "integer", "policy": "limit+reservation", "share": "50"}
    known = {"suite": "isolation", "conditions": where, "platforms": ["guest"], "at_least": 20, "unit": "%"}
    policies = {"policies": ["none", "limit+reservation"], "shares": [50, 90]}
    plan = plan_of(
        *(simulated(name, isolation={}, seed=seed) for seed, name in enumerate(("native", "guest"))),
        repetitions=2,
        suite={"isolation": [QUICK | policies | {"loads": ["none", "integer"]}]},
        require=[known | {"measure": name} for name in names],
        budget={"repetitions": 30},
    )
    _, recorder = execute(plan, tmp_path / "run")
    verdicts = report_of(tmp_path / "run").decisions.verdicts
    assert {one.requirement.split()[0]: one.outcome for one in verdicts} == dict.fromkeys(names, Outcome.PASS)
    assert any("every requirement is decided" in text for text in notices(recorder))
    with Ledger.open(tmp_path / "run") as ledger:
        assert {one.block for one in ledger.trials() if one.factors["share"] == "90"} == {0, 1}, "nothing rests on it"


def test_an_undecidable_bound_ends_with_the_budget_and_says_so(tmp_path: Path) -> None:
    plan = plan_of(
        platform("a", 100), repetitions=2, design=DESIGN, require=[TIMER | {"at_most": 100}], budget={"repetitions": 12}
    )
    _, recorder = execute(plan, tmp_path / "run")
    with Ledger.open(tmp_path / "run") as ledger:
        assert {trial.block for trial in ledger.trials()} == set(range(12))
    assert any("the budget of 12 repetitions is spent" in text for text in notices(recorder))
    assert sum("follow" in text for text in notices(recorder)) == 1, "told once, not with every repetition"
    assert verdict_on(report_of(tmp_path / "run").decisions, "a").outcome is Outcome.INCONCLUSIVE


P99 = {"suite": "timing", "measure": "sleep_lateness.p99", "unit": "us", "at_most": 1000}


def sleeping(samples: int) -> Plan:
    """A plan that requires the p99 of so many sleeps."""
    design = {"timers": [], "sleeps": ["clock_nanosleep"], "slacks": ["default"], "sleep_samples": samples}
    return plan_of(platform("a", 100), repetitions=2, design=design, require=[P99], budget={"repetitions": 12})


def test_a_quantile_that_trials_are_too_short_for_is_never_promised(tmp_path: Path) -> None:
    _, recorder = execute(sleeping(100), tmp_path / "run")
    told = notices(recorder)
    assert any("p99 needs 1000 values in each trial, and sleep_samples = 100" in text for text in told)
    assert any("no further repetition would decide the rest" in text for text in told)
    assert not any("every requirement is decided" in text for text in told)
    decisions = report_of(tmp_path / "run").decisions
    assert verdict_on(decisions, "a").outcome is Outcome.INCONCLUSIVE
    assert "longer trials would help" in verdict_on(decisions, "a").reason
    with Ledger.open(tmp_path / "run") as ledger:
        assert {trial.block for trial in ledger.trials()} == {0, 1}, "repetitions would not help"


@pytest.mark.parametrize(("samples", "warned"), [(999, True), (1000, False)])
def test_checking_a_plan_warns_of_trials_too_short_for_a_required_quantile(
    tmp_path: Path, samples: int, warned: bool
) -> None:
    (tmp_path / "p.toml").write_text(sleeping(samples).to_toml())
    result = CliRunner().invoke(app, ["plan", "check", str(tmp_path / "p.toml")])
    assert result.exit_code == 0
    assert ("warning: sleep_lateness.p99" in result.output) == warned


def test_a_budget_of_minutes_ends_it_too(tmp_path: Path) -> None:
    plan = plan_of(
        platform("a", 100),
        repetitions=2,
        design=DESIGN,
        require=[TIMER | {"at_most": 100}],
        budget={"repetitions": 5000, "minutes": 0.001},
    )
    _, recorder = execute(plan, tmp_path / "run")
    assert any("0.001 minutes is spent" in text for text in notices(recorder))


def test_resuming_a_decided_run_adds_nothing(tmp_path: Path) -> None:
    plan = plan_of(
        platform("a", 20), repetitions=2, design=DESIGN, require=[TIMER | {"at_most": 100}], budget={"repetitions": 50}
    )
    execute(plan, tmp_path / "run")
    with Ledger.open(tmp_path / "run") as ledger:
        before = len(ledger.trials())
    assert resume_run(tmp_path / "run", Recorder())
    with Ledger.open(tmp_path / "run") as ledger:
        assert len(ledger.trials()) == before == 8


# -- what a script and a person see --------------------------------------------------------------------------


def run_of(tmp_path: Path, median_ns: float) -> Path:
    folder = tmp_path / f"run{median_ns:g}"
    decided(folder, [platform("a", median_ns)], {"at_most": 100, "name": "<b>quick</b> & [red]sound[/red]"})
    return folder


@pytest.mark.parametrize(("median_ns", "code"), [(20, ExitCode.OK), (300, ExitCode.NOT_MET), (100, ExitCode.UNDECIDED)])
def test_the_exit_code_says_it(tmp_path: Path, median_ns: float, code: ExitCode) -> None:
    folder = run_of(tmp_path, median_ns)
    result = CliRunner().invoke(app, ["verdict", str(folder), "--junit", str(tmp_path / "v.xml")])
    assert result.exit_code == code, result.output
    assert "[red]sound[/red]" in result.output.replace("\n", ""), "a name is never read as markup"
    root = ElementTree.parse(tmp_path / "v.xml").getroot()
    (case,) = root.iter("testcase")
    assert case.get("name") == "<b>quick</b> & [red]sound[/red]"
    found = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
    assert found == {ExitCode.OK: [], ExitCode.NOT_MET: ["failure"], ExitCode.UNDECIDED: ["error"]}[code]


def test_json_holds_every_verdict(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["verdict", str(run_of(tmp_path, 20)), "--json"])
    value = json.loads(result.output)
    assert [one["outcome"] for one in value["verdicts"]] == ["pass"]
    assert value["requirements"][0]["text"] == "timer_cost.p50 ≤ 100 ns"


def test_the_page_shows_verdicts_and_escapes_names(tmp_path: Path) -> None:
    page = report.render_html(report_of(run_of(tmp_path, 300)))
    assert 'id="requirements"' in page
    assert page.count('<th scope="row">&lt;b&gt;quick&lt;/b&gt;') == 2, "a heading of each table's row"
    assert "<b>quick</b>" not in page
    assert '<span class="badge bad">fail</span>' in page


def test_a_run_without_requirements_says_where_they_come_from(tmp_path: Path) -> None:
    execute(plan_of(platform("a", 20), repetitions=1, design=DESIGN), tmp_path / "run")
    result = CliRunner().invoke(app, ["verdict", str(tmp_path / "run")])
    assert "requires nothing" in str(result.exception)
    assert 'id="requirements"' not in report.render_html(report_of(tmp_path / "run"))
