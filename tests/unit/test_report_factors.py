"""Which factors matter: a known truth is found, nothing is ranked that must not be, and too little data says so."""

from __future__ import annotations

import html
import io
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from shown import shown
from synthetic import SyntheticArm, arm_record, synthetic_ledger

from virtgauge import report
from virtgauge.analysis.factor_tests import (
    FactorTest,
    ParameterFactors,
    Place,
    ProbeFactors,
    probe_factors,
)
from virtgauge.specs.blocks import Chart, Text, Value
from virtgauge.specs.timing_factors import factors_of

pytestmark = pytest.mark.slow

EMULATED = ("tcg",)
Guests = dict[int, dict[str, float]]  # A cell's figures by repetition and statistic


def cells(
    blocks: int = 6,
    functions: tuple[str, ...] = ("rdtscp", "clock_gettime"),
    loads: tuple[str, ...] = ("idle", "cpu"),
    seed: int = 1,
    **factors: float,
) -> dict[Place, Guests]:
    """Values of 10 ns for the first function and 40 for the others, times an arm's factor, with 3 % of chance.

    ``gvisor_under_cpu`` is by how much more gVisor costs under load.
    """
    rng = np.random.default_rng(seed)
    found: dict[Place, Guests] = {}
    for function in functions:
        for arm in ("host", "runc", "gvisor", "tcg"):
            for load in loads:
                truth = (10 if function == functions[0] else 40) * factors.get(arm, 1.0)
                truth *= factors.get("gvisor_under_cpu", 1.0) if (arm, load) == ("gvisor", "cpu") else 1.0
                found[function, arm, load] = {
                    block: {
                        "p50": truth * rng.lognormal(0, 0.03),
                        "half_iqr": rng.lognormal(0, 0.2),
                        "max": rng.lognormal(8 if load == "idle" else 14, 1),
                        "min": truth * 0.9 * rng.lognormal(0, 0.03),
                    }
                    for block in range(blocks)
                }
    return found


def factors_in(cells: Mapping[Place, Guests]) -> ProbeFactors | None:
    def of(guests: Guests, statistic: str) -> dict[int, float]:
        return {block: figures[statistic] for block, figures in guests.items()}

    return probe_factors({place: partial(of, guests) for place, guests in cells.items()}, EMULATED, 0.95)


def analysed(**options: float | int) -> ProbeFactors:
    found = factors_in(cells(**options))
    assert found is not None
    return found


def of(found: ProbeFactors, parameter: str) -> ParameterFactors:
    return next(one for one in found.parameters if one.parameter == parameter)


def of_factor(found: ParameterFactors, factor: str) -> FactorTest | None:
    return next((test for test in found.tests if test.factor == factor), None)


def test_a_platform_that_is_slower_stands_out_and_the_others_do_not() -> None:
    test = of_factor(of(analysed(gvisor=6.0), "p50"), "platform")
    assert test is not None and test.shown
    shown = {(pair.first, pair.second) for pair in test.pairs if pair.shown}
    assert shown == {("host", "gvisor"), ("runc", "gvisor")}
    (pair,) = (pair for pair in test.pairs if (pair.first, pair.second) == ("host", "gvisor"))
    assert pair.delta.point == -1  # the host's values are all smaller, within the same function and load


def test_a_function_is_tested_within_guests_by_friedmans_test() -> None:
    values = {place: blocks for place, blocks in cells(gvisor=2.0).items() if place[1] not in EMULATED}
    test = of_factor(of(analysed(gvisor=2.0), "p50"), "function")
    guests = 3 * 6
    assert test is not None and (test.sizes, test.blocks) == ((guests, guests), guests)
    assert all(
        values["rdtscp", arm, load][block]["p50"] < figures["p50"]
        for (function, arm, load), blocks in values.items()
        for block, figures in blocks.items()
        if function != "rdtscp"
    )
    assert test.p == pytest.approx(2 * 0.5**guests)  # each guest says the same, and is one voice
    assert test.epsilon_squared == pytest.approx(1)


def test_what_guests_have_in_common_in_a_function_or_a_load_shows_no_effect_and_no_interaction() -> None:
    """Guests differ in each function and in each load as much as in all, and cells beside: without any effect."""
    rng, shown = np.random.default_rng(3), Counter[str]()
    for _ in range(100):
        guests = {(arm, block): rng.normal(0, 0.3, 5) for arm in ("host", "runc", "gvisor") for block in range(6)}
        values: dict[Place, Guests] = {
            (function, arm, load): {
                block: dict.fromkeys(
                    ("p50", "half_iqr", "max", "min"),
                    float(np.exp(guests[arm, block][[0, 1 + i, 3 + j]].sum() + rng.normal(0, 0.1))),
                )
                for block in range(6)
            }
            for i, function in enumerate(("rdtscp", "clock_gettime"))
            for j, load in enumerate(("idle", "cpu"))
            for arm in ("host", "runc", "gvisor")
        }
        found = factors_in(values)
        assert found is not None
        median = of(found, "p50")
        shown.update(test.factor for test in median.tests if test.p < 0.05)
        shown.update("×".join((*effect.factors, "")) for effect in median.effects if effect.p < 0.05)
    assert all(count <= 11 for count in shown.values()), shown  # of 100; more than that 5 % give once in 200


def test_platforms_are_compared_by_guests_so_that_one_without_effect_is_rarely_significant() -> None:
    rng, significant = np.random.default_rng(1), 0
    for seed in range(100):
        values = cells(seed=seed)
        guests = {
            (arm, block): rng.lognormal(0, 0.3) for arm in ("host", "runc", "gvisor", "tcg") for block in range(6)
        }
        for (_, arm, _), blocks in values.items():
            for block, figures in blocks.items():
                figures["p50"] *= guests[arm, block]
        found = factors_in(values)
        assert found is not None
        test = of_factor(of(found, "p50"), "platform")
        assert test is not None and test.n == 3 * 6
        significant += test.p < 0.05
    assert significant <= 10


def test_a_load_that_lengthens_only_the_tail_matters_for_the_maximum_only() -> None:
    found = analysed()
    loads = {one.parameter: of_factor(one, "load") for one in found.parameters}
    assert {name for name, test in loads.items() if test is not None and test.shown} == {"max"}


def test_a_platform_that_only_suffers_under_load_interacts_with_it() -> None:
    effects = of(analysed(gvisor_under_cpu=2.0), "p50").effects
    assert {effect.factors for effect in effects if effect.shown and len(effect.factors) > 1} == {("platform", "load")}


def test_a_platform_that_multiplies_every_cost_alike_does_not_interact() -> None:
    effects = of(analysed(gvisor=50.0), "p50").effects
    assert len(effects) == 7
    assert not [effect.factors for effect in effects if effect.shown and len(effect.factors) > 1]


def test_an_effect_is_shown_by_ranks_and_values_or_not_at_all() -> None:
    for one in analysed(gvisor=2.0).parameters:
        for effect in one.effects:
            assert effect.p == max(effect.p_ranks, effect.p_values) <= effect.p_holm


def test_an_emulated_platform_is_never_ranked_but_described() -> None:
    found = analysed(tcg=30.0)
    assert found.unranked == ("tcg",)
    for one in found.parameters:
        test = of_factor(one, "platform")
        assert test is not None
        assert test.levels == ("host", "runc", "gvisor")
        marked = [pair for pair in test.pairs if "tcg" in (pair.first, pair.second)]
        assert len(marked) == 3
        assert all(pair.emulated and pair.p is None and pair.z is None and not pair.shown for pair in marked)
    # However slow it is, no test of another factor notices.
    assert of_factor(of(found, "p50"), "function") == of_factor(of(analysed(), "p50"), "function")


@pytest.mark.parametrize("blocks", [1, 2])
def test_too_few_repetitions_test_nothing_and_say_so(blocks: int) -> None:
    found = analysed(blocks=blocks)
    assert found.parameters == ()
    assert "these tests need" in found.notes[0]


def test_a_design_without_factors_has_nothing_to_test() -> None:
    only = {place: values for place, values in cells().items() if place == ("rdtscp", "host", "idle")}
    assert factors_in(only) is None


def test_what_was_not_measured_everywhere_is_left_out_of_interactions_by_name() -> None:
    values = cells(functions=("rdtscp", "clock_gettime", "rdtsc"))
    del values["rdtsc", "gvisor", "cpu"]
    found = factors_in(values)
    assert found is not None
    assert any("left out of the interactions: rdtsc." in note for note in found.notes)
    function = next(one for one in of(found, "p50").effects if one.factors == ("function",))
    assert function is not None and function.df == 1


def test_a_missing_repetition_takes_the_same_number_from_every_platform() -> None:
    values = cells()
    values["rdtscp", "runc", "idle"] = {b: f for b, f in values["rdtscp", "runc", "idle"].items() if b != 2}
    found = factors_in(values)
    assert found is not None
    assert found.repetitions == 5
    assert any("first 5 whole repetitions" in note for note in found.notes)


def test_too_few_whole_repetitions_leave_the_factors_but_no_interactions() -> None:
    values = cells(blocks=4)
    values["rdtscp", "runc", "idle"] = {0: values["rdtscp", "runc", "idle"][0]}
    found = factors_in(values)
    assert found is not None
    assert of(found, "p50").tests and not of(found, "p50").effects
    assert any("a platform has 1" in note for note in found.notes)


def test_what_has_no_logarithm_has_no_interactions_and_the_rest_has() -> None:
    values = {
        place: {block: dict(figures) | {"min": 0.0} for block, figures in blocks.items()}
        for place, blocks in cells().items()
    }
    found = factors_in(values)
    assert found is not None
    assert of(found, "p50").effects and not of(found, "min").effects
    assert any(note.startswith("A minimum of 0") for note in found.notes)


def test_a_single_platform_still_has_the_factors_function_and_load() -> None:
    values = {place: blocks for place, blocks in cells().items() if place[1] == "host"}
    found = factors_in(values)
    assert found is not None
    assert [test.factor for test in of(found, "p50").tests] == ["function", "load"]
    assert {effect.factors for effect in of(found, "p50").effects} == {("function",), ("load",), ("function", "load")}


def test_all_p_values_of_a_probe_are_one_family() -> None:
    tests = [test for one in analysed(gvisor=1.02).parameters for test in one.tests]
    assert len(tests) == 12
    smallest = min(tests, key=lambda test: test.p)
    assert smallest.p_holm == pytest.approx(min(1.0, 12 * smallest.p))


def test_chance_alone_rarely_shows_anything() -> None:
    """Twelve tests of factors and 28 of effects a run: with Holm, one run in twenty may show something of either."""
    found = [analysed(seed=seed, loads=("idle",), functions=("rdtscp",)) for seed in range(60)]
    runs = sum(any(test.shown for one in run.parameters for test in one.tests) for run in found)
    assert runs <= 8


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> report.Report:
    return report.build(synthetic_ledger(tmp_path_factory.mktemp("factors") / "run", blocks=6, reservoir=300))


def sentences_of(built: report.Report) -> list[str]:
    texts = [one for one in built.suite("timing").blocks if isinstance(one, Text) and one.tone == "finding"]
    return [paragraph for one in texts if ":" in one.heading for paragraph in one.paragraphs]


def test_a_run_with_a_known_truth_is_told_truly(usual: report.Report) -> None:
    suite = usual.suite("timing")
    median = of(dict(factors_of(suite.context))["timer_cost"], "p50")
    platform, load = of_factor(median, "platform"), of_factor(median, "load")
    assert platform is not None and platform.shown
    assert load is not None and not load.shown
    assert not [effect.factors for effect in median.effects if effect.shown and len(effect.factors) > 1]
    assert {("gvisor" in (pair.first, pair.second)) for pair in platform.pairs if pair.shown} == {True}
    assert all("host-aa" not in test.levels for test in median.tests)  # the reference once more is no level


def test_every_form_holds_every_sentence_and_that_emulated_platforms_are_not_ranked(usual: report.Report) -> None:
    page, file = html.unescape(report.render_html(usual)), io.StringIO()
    report.render_text(usual, Console(file=file, width=2000, color_system=None))
    assert "which factors matter" in page
    assert len(sentences_of(usual)) == 2 * 4
    for sentence in sentences_of(usual):
        assert sentence in page
        assert sentence in file.getvalue()
    assert "gVisor (runsc, systrap) differs from all others" in page
    assert "never ranked: they are in none of these tests" in page


def test_every_number_of_the_tests_is_a_figure(usual: report.Report) -> None:
    for part in ("h", "df", "n", "p", "p_adjusted", "epsilon_squared"):
        (cell,) = {"*;+factor=platform"}
        found = [one.place.cell for one in shown(usual, "timing", f"timer_cost.factors.p50.kruskal_wallis.{part}", "")]
        assert cell in found
        assert shown(usual, "timing", f"timer_cost.factors.p50.friedman.{part}", "", "+factor=load")
    effects = shown(usual, "timing", "sleep_lateness.factors.max.aligned_ranks.f", "", "+factor=function×platform")
    assert len(effects) == 1
    emulated = shown(usual, "timing", "timer_cost.factors.p50.dunn.delta", "", "+level=qemu-microvm")
    assert emulated and {one.note for one in emulated} == {"not ranked"}
    plain, adjusted = (
        shown(usual, "timing", f"timer_cost.factors.p50.dunn.{part}", "", "+factor=platform")
        for part in ("p", "p_adjusted")
    )
    assert plain
    for one, other in zip(plain, adjusted, strict=True):  # as the paper has it, and by Holm
        assert isinstance(one, Value) and isinstance(other, Value)
        assert one.estimate.point is not None and other.estimate.point is not None
        assert one.estimate.point <= other.estimate.point


def test_a_run_of_two_repetitions_says_that_it_cannot_tell(tmp_path: Path) -> None:
    built = report.build(synthetic_ledger(tmp_path / "run", blocks=2))
    assert "these tests need" in report.render_html(built)


def test_a_run_of_one_cell_has_no_such_section(tmp_path: Path) -> None:
    arms = [SyntheticArm(arm_record("host", "host", "Host", "reference"))]
    design = [("timer_cost", {"function": "clock_gettime", "load": "idle"})]
    built = report.build(synthetic_ledger(tmp_path / "run", arms, 4, design))
    assert sentences_of(built) == []
    assert "which factors matter" not in report.render_html(built)


def strips(built: report.Report) -> list[Chart]:
    return [one for one in built.suite("timing").blocks if isinstance(one, Chart) and one.kind == "strips"]


def test_strips_hold_raw_values_of_a_typical_repetition(usual: report.Report) -> None:
    points = 0
    for chart in strips(usual):
        for panel in chart.panels:
            assert [row["arm"] for row in panel.rows] == ["host", "host-aa", "runc", "gvisor", "qemu-microvm"]
            assert [row["strip"] for row in panel.rows] == [0, 1, 2, 3, 4]
            for row in panel.rows:
                assert min(row["y"]) < row["median"] < max(row["y"])
                points += len(row["y"])
    assert 1000 < points <= 20_000


def test_without_raw_values_there_is_no_strip(tmp_path: Path) -> None:
    assert strips(report.build(synthetic_ledger(tmp_path / "run", blocks=2))) == []
