"""The paper's conclusions on the paper's own tables: what decides each, and what is found."""

from __future__ import annotations

import html
import json
from pathlib import Path

import pytest
from scipy import stats
from synthetic import arm_record, manifest, synthetic_ledger

from virtgauge import reference, report
from virtgauge.ledger.store import Ledger
from virtgauge.reference import claims
from virtgauge.report.timing.paper_claims import ExaminedClaim, Verdict, examine, examined_claims


def claim(name: str) -> ExaminedClaim:
    (found,) = (one for one in examined_claims() if one.name == name)
    return found


def disagreeing(name: str) -> str:
    return "; ".join(one.text for one in claim(name).evidence if one.agrees is False)


def figures(name: str, **levels: str) -> list[reference.TimingFigure]:
    return [
        row
        for row in reference.timing_figures(name)
        if all(getattr(row, factor) == level for factor, level in levels.items())
    ]


def test_every_conclusion_has_its_own_name_a_place_and_a_verdict_that_follows_from_its_evidence() -> None:
    found = examined_claims()
    assert len({one.name for one in found}) == len(found) >= 30
    for one in found:
        assert one.place.startswith("section ")
        agreement = [evidence.agrees for evidence in one.evidence]
        assert agreement
        assert (one.verdict is Verdict.CONTRADICTED) == (False in agreement)
        assert (one.verdict is Verdict.CONFIRMED) == all(agreement)


def test_levels_that_conclusions_name_are_in_the_tables() -> None:
    levels = {
        level
        for name in ("timer_cost", "sleep_miss")
        for row in reference.timing_figures(name)
        for level in (row.function, row.platform, row.load)
    }
    for one in claims.timing_claims():
        for test in one.tests:
            data = test.model_dump()
            named = [*data.get("levels", ()), *data.get("to", ()), *data.get("ignoring", ())]
            named += [data[key] for key in ("level", "lower", "higher") if key in data]
            named += list(data.get("where", {}).values()) + [name for pair in data.get("pairs", ()) for name in pair]
            assert set(named) - {"*", "others"} <= levels, one.name


def test_the_load_decides_the_maximum_which_the_paper_denies_for_the_timer_cost() -> None:
    rows = figures("timer_cost")
    theirs = stats.kruskal(
        *([row.max_ns for row in rows if row.load == load] for load in ("Idle System", "CPU-bound", "IO/network-bound"))
    )
    assert claim("cost-load").verdict is Verdict.CONTRADICTED
    assert f"maximum: H(2) = {theirs.statistic:.2f}, p < 0.001" in disagreeing("cost-load")


def test_the_load_decides_only_the_maximum_of_the_miss_time_as_the_paper_says() -> None:
    assert claim("sleep-load").verdict is Verdict.CONFIRMED


def test_the_function_decides_the_median_of_the_timer_cost() -> None:
    rows = figures("timer_cost")
    theirs = stats.kruskal(*([r.median_ns for r in rows if r.function == f] for f in ("TSC", "System Call")))
    (evidence,) = claim("cost-summary-function").evidence
    assert f"H(1) = {theirs.statistic:.2f}" in evidence.text
    assert claim("cost-summary-function").verdict is Verdict.CONFIRMED


def test_figures_of_the_text_that_the_table_does_not_hold_are_found() -> None:
    text = disagreeing("cost-idle-figures")
    assert "TSC, VBox, Idle System, median: text 2.12, table 2.054 µs" in text
    assert "System Call, VBox, Idle System, median: text 2.18, table 2.042 µs" in text
    assert disagreeing("sleep-cpu-figures") == "uSleep, QEMU, CPU-bound, median: text 61.3, table 63.26 µs"
    assert claim("sleep-idle-figures").verdict is Verdict.CONFIRMED
    assert claim("sleep-io-figures").verdict is Verdict.CONFIRMED


def test_a_hundredfold_is_thirty_eight_to_fifty_five() -> None:
    vbox = figures("sleep_miss", function="HPTSleep", platform="VBox")
    others = [r for r in figures("sleep_miss", function="HPTSleep") if r.platform in ("ESXi", "QEMU", "Xen")]
    ratios = [v.median_ns / o.median_ns for v in vbox for o in others if v.load == o.load]
    assert claim("conclusion-vbox-hundredfold").verdict is Verdict.CONTRADICTED
    assert f"{min(ratios):.1f}× to {max(ratios):.1f}×" in disagreeing("conclusion-vbox-hundredfold")


def test_interactions_cannot_be_tested_with_one_value_a_cell() -> None:
    found = [one for one in examined_claims() if "interaction" in one.name]
    assert len(found) == 6
    assert {one.verdict for one in found} == {Verdict.UNDECIDED}


def test_three_values_against_three_are_not_enough_for_the_papers_level() -> None:
    for name in ("cost-function-within", "cost-function-xen-qemu", "sleep-function-within"):
        assert claim(name).verdict is Verdict.UNDECIDED
        assert all("3 + 3 values" in one.text for one in claim(name).evidence)


def test_virtual_box_has_the_largest_medians_though_dunns_test_does_not_separate_it_from_all() -> None:
    assert claim("conclusion-vbox-highest").verdict is Verdict.CONFIRMED
    evidence = claim("cost-summary-vbox").evidence
    assert [one.agrees for one in evidence] == [True, False]
    assert "3 of 4 pairs differ" in evidence[1].text and "not VBox–Xen" in evidence[1].text


@pytest.mark.parametrize(
    ("test", "agrees"),
    [
        ({"kind": "order", "factor": "function", "lower": "TSC", "higher": "System Call", "parameter": "max"}, False),
        ({"kind": "order", "factor": "load", "lower": "Idle System", "higher": "CPU-bound", "parameter": "max"}, True),
        ({"kind": "extreme", "factor": "load", "level": "CPU-bound", "parameter": "max", "which": "largest"}, True),
        ({"kind": "extreme", "factor": "load", "level": "CPU-bound", "parameter": "max", "which": "smallest"}, False),
        ({"kind": "spread", "factor": "platform", "parameter": "median", "at_most": 0.5}, False),
        ({"kind": "spread", "factor": "platform", "parameter": "median", "at_most": 1.0}, True),
        ({"kind": "factor", "factor": "load", "significant": ["max"]}, True),
        ({"kind": "factor", "factor": "load", "insignificant": ["max"]}, False),
        ({"kind": "pairs", "factor": "load", "pairs": [["CPU-bound", "*"]], "significant": ["max"]}, True),
        ({"kind": "pairs", "factor": "load", "pairs": [["CPU-bound", "*"]], "insignificant": ["max"]}, False),
        ({"kind": "interaction"}, None),
    ],
)
def test_a_test_can_come_out_either_way(test: dict[str, object], agrees: bool | None) -> None:
    data = {"name": "x", "table": ["timer_cost"], "place": "section 0", "text": "x", "tests": [test]}
    found = examine(claims.Claim.model_validate(data))
    assert {one.agrees for one in found.evidence} == {agrees}


def test_the_report_shows_every_conclusion_once_and_holds_it_as_data(tmp_path: Path) -> None:
    built = report.build(synthetic_ledger(tmp_path / "run", blocks=2))
    text = html.unescape(report.render_html(built))
    assert text.count('<section id="timing-claims">') == 1
    for one in examined_claims():
        assert one.text in text
    data = json.loads(report.render_json(built))["suites"][0]["paper_claims"]
    assert {entry["verdict"] for entry in data} == {"confirmed", "contradicted", "cannot be tested"}


def test_a_run_that_measured_no_timing_has_no_such_section(tmp_path: Path) -> None:
    built = report.build(Ledger.create(tmp_path / "run", manifest([arm_record("host", "host", "Host", "reference")])))
    assert built.suites == ()
    assert 'id="timing-claims"' not in report.render_html(built)
