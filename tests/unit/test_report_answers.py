"""One answer for each platform and suite: figure, interval, and what could have been resolved."""

from __future__ import annotations

import dataclasses
import re
import types
from pathlib import Path
from typing import Any

import pytest
from synthetic import synthetic_ledger

from virtgauge import report
from virtgauge.analysis.bounds import Outcome
from virtgauge.analysis.comparison import Agreement, Comparison, Judgement, Resolution
from virtgauge.analysis.estimate import Estimate
from virtgauge.decisions.decisions import ReportedRequirement
from virtgauge.decisions.verdicts import Verdict
from virtgauge.report.answers import Answer, IdenticalArms, answers, identical_arms
from virtgauge.specs.headline import Headline, HeadlineFigure, Tone
from virtgauge.specs.headline import figure as headline_figure

pytestmark = pytest.mark.slow


def answers_of(folder: Path, **options: object) -> dict[str, Answer]:
    with synthetic_ledger(folder, **options) as ledger:
        return {answer.platform: answer for answer in answers(report.build(ledger))}


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Answer]:
    return answers_of(tmp_path_factory.mktemp("answers") / "run")


def test_every_usable_platform_has_one_and_the_aa_arm_none(usual: dict[str, Answer]) -> None:
    assert list(usual) == ["host", "runc", "gvisor", "qemu-microvm"]
    assert {answer.suite for answer in usual.values()} == {"timing"}


def test_the_figure_that_differs_most_comes_first_with_its_interval(usual: dict[str, Answer]) -> None:
    assert usual["gvisor"].clauses[0].startswith("worse: clock_gettime reads 53× slower (")
    assert usual["gvisor"].clauses[1].startswith("usleep wakes ")
    assert usual["gvisor"].tone is Tone.SLOWER


@pytest.mark.parametrize(
    ("first", "then"),
    [((11, 12.5, 14), (48, 59, 3280)), ((48, 59, 3280), (1.008, 1.009, 1.01)), ((0.2, 0.25, 0.3), (1.4, 2, 3))],
)
def test_what_surely_differs_leads_not_what_is_least_certain(first: tuple[float, ...], then: tuple[float, ...]) -> None:
    def weight(low: float, point: float, high: float) -> float:
        ratio = Estimate(point, low, high, 0.95, 6, "ratio", "")
        judged = Judgement.HIGHER if point > 1 else Judgement.LOWER
        return headline_figure("usleep", "", Comparison(ratio, 1.01, judged, "", Estimate.missing("ns", ""))).weight

    assert weight(*first) > weight(*then) > 0


def test_that_ratios_are_formed_in_pairs_is_said_once_below_the_answers(built: report.Report) -> None:
    page = report.render_html(built)
    assert page.count("median of these ratios") == 1
    assert 'class="answers"' in page.partition("median of these ratios")[0]


@pytest.mark.parametrize("failing", ["sleep", "timer"])
def test_what_a_platform_fails_by_comes_first(built: report.Report, failing: str) -> None:
    probes = {"timer": "timer_cost", "sleep": "sleep_lateness"}
    requirements = [
        ReportedRequirement(name, name, "", "", 0.95, "ns", "timing", (probe,)) for name, probe in probes.items()
    ]
    verdicts = [
        Verdict(name, arm, Outcome.FAIL if name == failing else Outcome.PASS, None, (), "")
        for arm in ("host", "gvisor")
        for name in probes
    ]
    decided = dataclasses.replace(built.decisions, requirements=tuple(requirements), verdicts=tuple(verdicts))
    found = {one.platform: one for one in answers(dataclasses.replace(built, decisions=decided))}
    first = {"sleep": "usleep ", "timer": "clock_gettime "}[failing]
    assert found["gvisor"].clauses[0].startswith(f"worse: {first}")
    assert found["host"].clauses[0].startswith(f"reference: {first}")
    assert len(found["gvisor"].clauses) == 2


def test_no_difference_says_how_small_a_one_would_have_been_seen(usual: dict[str, Answer]) -> None:
    assert usual["runc"].sentence.startswith("no difference shown (even chance to see 1.0")
    assert usual["runc"].unresolved == ()


def test_emulated_figures_are_labelled_and_not_compared(usual: dict[str, Answer]) -> None:
    assert usual["qemu-microvm"].sentence.startswith("emulated, not judged: clock_gettime reads 2")
    assert "×" not in usual["qemu-microvm"].sentence


def test_a_word_stands_before_each_kind_of_figure(built: report.Report) -> None:
    def changed(name: str, tone: Tone, *, slight: bool = False) -> HeadlineFigure:
        judged = Judgement.INCONCLUSIVE if tone is Tone.SAME else Judgement.HIGHER
        found = Resolution(1.02, 1.02, 1.01, "")
        return HeadlineFigure(
            name, "", change="by so much", judgement=judged, resolution=found, tone=tone, slight=slight
        )

    figures = [
        changed("a", Tone.SLOWER),
        changed("b", Tone.SLOWER),
        changed("c", Tone.SLOWER, slight=True),
        changed("d", Tone.FASTER),
        changed("e", Tone.SAME),
        dataclasses.replace(changed("f", Tone.SAME), resolution=Resolution(None, None, 1.01, "5 repetitions give …")),
        dataclasses.replace(changed("g", Tone.SAME), resolution=Resolution(2.0, 3.0, 1.01, "A/A band")),
    ]
    headline = Headline("gvisor", "gvisor", Tone.SLOWER, "", tuple(figures))
    suite: Any = types.SimpleNamespace(suite="timing", headlines=(headline,))
    (answer,) = answers(dataclasses.replace(built, suites=(suite,)))
    assert answer.clauses == (
        "worse: a by so much",
        "b by so much",
        "slightly worse: c by so much",
        "better: d by so much",
        "not proven: f by so much",
        "no difference shown (even chance to see 1.02×): e",
        "unresolved: g",
    )
    assert answer.smallest == (
        "1.02×; not resolved: f (5 repetitions give …); not resolved: g: even chance to see 3.0× (A/A band)"
    )
    assert answer.proves


def test_the_column_says_what_it_holds(built: report.Report) -> None:
    page = report.render_html(built)
    assert ">What may have been missed<" in page
    column = re.findall(r'<td class="figure[ a-z]*">.*?</td><td class="[a-z]+">(.*?)</td>', page, re.DOTALL)
    assert [one for one in column if re.fullmatch(r"1\.\d+×", one)]
    assert not [one for one in column if one.startswith(("yes", "no"))]


def test_what_could_not_be_resolved_says_why(tmp_path: Path) -> None:
    found = answers_of(tmp_path / "run", spread=0.5)
    assert found["runc"].sentence == "unresolved: clock_gettime, clock_gettime under CPU load, usleep"
    assert any("usleep: even chance to see " in clause for clause in found["runc"].unresolved)


def test_a_figure_under_load_that_resolves_nothing_limits_the_answer(tmp_path: Path) -> None:
    found = answers_of(tmp_path / "run", loaded_spread=1.5)
    same, slower = found["runc"], found["gvisor"]
    assert re.fullmatch(r"no difference shown \(even chance to see 1\.\d+×\) in 3 figures", same.clauses[0])
    unresolved = r"usleep under CPU load: even chance to see [\d.]+× \(.+\)"
    assert re.fullmatch(rf"1\.\d+×; not resolved: {unresolved}", same.smallest)
    assert same.clauses[1:] == ("unresolved: usleep under CPU load",)
    for one in (same, slower):
        assert re.match(r"usleep under CPU load: even chance to see [\d.]+× ", *one.unresolved)
    assert slower.clauses[-1] == "unresolved: usleep under CPU load"


def test_one_repetition_gives_figures_that_are_called_unproven(tmp_path: Path) -> None:
    found = answers_of(tmp_path / "run", blocks=1)
    assert found["gvisor"].sentence.startswith("not proven: clock_gettime reads ")
    assert all("single repetition" in clause for clause in found["gvisor"].unresolved)


def test_a_line_takes_the_clauses_that_fit(usual: dict[str, Answer]) -> None:
    answer = usual["gvisor"]
    assert answer.fitted(200) == answer.sentence
    assert answer.fitted(50) == f"{answer.clauses[0]}; …"
    assert answer.fitted(20).endswith("…")
    assert len(answer.fitted(20)) <= 20


def test_headline_figures_beside_identical_arms_that_seem_far_apart_are_counted(tmp_path: Path) -> None:
    with synthetic_ledger(tmp_path / "still") as still, synthetic_ledger(tmp_path / "noisy", spread=0.5) as noisy:
        good, poor = identical_arms(report.build(still)), identical_arms(report.build(noisy))
    assert good.good
    assert re.fullmatch(r"A/A ok, even chance to see 1\.\d+×", good.text)
    assert not poor.good
    assert 0 < poor.coarse <= poor.figures
    assert poor.text.endswith(" headline figures too noisy to show 1.5×")


def beside_identical_arms(built: report.Report, *figures: HeadlineFigure, widest: float = 1.02) -> IdenticalArms:
    headline = Headline("runc", "runc", Tone.SAME, "", figures)
    suite: Any = types.SimpleNamespace(suite="timing", headlines=(headline,))
    return identical_arms(dataclasses.replace(built, suites=(suite,), agreement=Agreement(8, 0, 1, widest)))


def figure(smallest: float | None, band: float | None, judgement: Judgement | None, unit: str = "ratio") -> Any:
    found = Resolution(smallest, smallest, band, "")
    return HeadlineFigure("usleep", "", judgement=judgement, resolution=found, unit=unit)


SAME, HIGHER = Judgement.INCONCLUSIVE, Judgement.HIGHER
GOOD = figure(1.1, 1.05, SAME)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> report.Report:
    with synthetic_ledger(tmp_path_factory.mktemp("built") / "run") as ledger:
        return report.build(ledger)


@pytest.mark.parametrize(
    "poor", [figure(12, 1.1, SAME), figure(None, None, SAME), figure(None, 1.1, SAME), figure(2.0, None, HIGHER)]
)
def test_one_figure_that_resolves_nothing_is_enough_for_amber(built: report.Report, poor: HeadlineFigure) -> None:
    found = beside_identical_arms(built, GOOD, poor)
    assert not found.good
    assert (found.coarse, found.figures) == (1, 2)


def test_too_few_repetitions_are_not_called_noise(built: report.Report) -> None:
    few = figure(None, 1.02, SAME)
    alone, among = beside_identical_arms(built, few, few), beside_identical_arms(built, GOOD, few)
    assert alone.text == "A/A agrees within 1.02×; too few repetitions to show any difference"
    assert among.text == "A/A: 1 of 2 headline figures too noisy, or of too few repetitions, to show 1.5×"
    assert not alone.good and not among.good


def test_figures_without_identical_arms_are_not_said_to_be_of_too_few_repetitions(built: report.Report) -> None:
    bare, few = figure(None, None, SAME), figure(None, 1.02, SAME)
    texts = [beside_identical_arms(built, *found).text for found in ((bare, bare), (GOOD, bare), (GOOD, bare, few))]
    assert texts == [
        "A/A agrees within 1.02×; no headline figure has an interval of identical arms",
        "A/A: 1 of 2 headline figures too noisy, or without an interval of identical arms, to show 1.5×",
        "A/A: 2 of 3 headline figures too noisy, of too few repetitions, or without an interval of identical arms, "
        "to show 1.5×",
    ]


def test_a_difference_that_was_shown_was_resolved_whatever_its_interval(built: report.Report) -> None:
    assert beside_identical_arms(built, GOOD, figure(12, 1.1, HIGHER)).good
    assert "1.1×" in beside_identical_arms(built, figure(12, 1.1, HIGHER)).text


def test_a_figure_that_resolves_one_direction_only_is_not_coarse_and_says_which(built: report.Report) -> None:
    one_sided = dataclasses.replace(GOOD, resolution=Resolution(1.03, 44, 1.01, ""))
    found = beside_identical_arms(built, GOOD, one_sided)
    assert found.good
    assert "1.1× up, 44× down" in found.text


@pytest.mark.parametrize(("widest", "good"), [(1.02, True), (51, False)])
def test_without_a_headline_figure_the_widest_band_of_all_cells_decides(
    built: report.Report, widest: float, good: bool
) -> None:
    found = beside_identical_arms(built, HeadlineFigure("usleep", "62 µs"), widest=widest)
    assert found.good is good
    assert "no headline figure is compared" in found.text


def test_figures_that_are_no_ratios_are_said_not_to_count(built: report.Report) -> None:
    found = beside_identical_arms(built, GOOD, figure(0.2, 0.1, SAME, "share"))
    assert found.uncounted == 1
    assert found.text.endswith("(1 in points not counted)")
