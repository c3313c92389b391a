"""The isolation report on hand-made results whose truth is known: sentences, page, charts and terminal."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import altair
import numpy as np
import pytest
from isolation_reports import AA, HOST, MEMORY, at, built, charts, panel_of, rows_of, sentence_of
from isolation_results import (
    BUSY_LATENESS_NS,
    IDLE_LATENESS_NS,
    Design,
    IsolationArm,
    isolation_arms,
)
from rich.console import Console
from shown import shown, tables, value
from synthetic import arm_record

from virtgauge import report
from virtgauge.analysis.estimate import Estimate
from virtgauge.ledger.records import Flag
from virtgauge.report.drawing import specification
from virtgauge.results.columns import Cell
from virtgauge.specs import isolation_work
from virtgauge.specs.blocks import Finding, Value
from virtgauge.specs.context import Context
from virtgauge.specs.headline import Tone
from virtgauge.specs.isolation_formatting import Resource
from virtgauge.specs.isolation_insights import Degree, degree_of
from virtgauge.specs.isolation_paper import guides_of_q, guides_of_work

pytestmark = pytest.mark.slow

EVIL = "</script><script>window.pwned=1</script><img src=x onerror=window.pwned=2>"


def printed(result: report.Report, width: int = 160) -> str:
    file = io.StringIO()
    report.render_text(result, Console(file=file, width=width, color_system=None))
    return file.getvalue()


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> report.Report:
    """Host, container, gVisor and an emulated machine; a benchmark of every resource, with and without policies."""
    designs = (
        Design(("integer", MEMORY, "latency"), loads=("none", "integer", MEMORY, "cache"), shares=(25, 75)),
        Design((MEMORY, "latency"), loads=("none", MEMORY, "cache"), cores=("1-apart",), policies=("none",)),
        Design(
            ("disk-sequential-write-flush",),
            loads=("none", "flush"),
            policies=("none", "disk-limit"),
            on=("tested", "loading"),
        ),
        Design(("wake",), loads=("none", "integer"), policies=("none",)),
    )
    return built(tmp_path_factory.mktemp("isolation"), *designs, arms=isolation_arms())


def test_where_sentences_tell_all_there_are_no_columns_of_dashes(usual: report.Report) -> None:
    page = report.render_html(usual)
    assert '<th scope="col" class="text">Answer</th></tr>' in page
    assert "The figure that leads" not in page and "What may have been missed" not in page


def test_without_a_policy_nothing_is_declared_beside_a_load(usual: report.Report) -> None:
    where = {"benchmark": "integer", "policy": "none"}
    alone = at(usual, "runc", "q", load="none", **where)
    assert alone.point == at(usual, "runc", "relative_work", load="none", **where).point
    beside = at(usual, "runc", "q", load="integer", **where)
    assert beside.point is None
    assert beside.method == "no share was declared that promises anything here"
    assert at(usual, "runc", "relative_work", load="integer", **where).point == pytest.approx(0.495, rel=0.02)


def test_a_limit_without_a_reservation_keeps_a_fair_share_and_isolates_nothing(tmp_path: Path) -> None:
    found = built(tmp_path, Design(policies=("none", "limit"), shares=(75,)))
    where = {"policy": "limit", "load": "integer"}
    assert at(found, "host", "kept_of_promised", **where).point == pytest.approx(2 / 3, rel=0.02)
    assert at(found, "host", "entitlement", **where).point == pytest.approx(100, rel=0.01)
    sentence = sentence_of(found, "host", Resource.CPU)
    assert sentence.degree is Degree.NOT
    assert sentence.text.startswith("With limit of 75 % on the tested guest, integer keeps 67 % (")
    assert "of what is promised beside integer load (one shared core); without a policy 50 % (" in sentence.text


@pytest.mark.parametrize(
    ("interval", "degree"),
    [
        ((0.96, 0.98, 1.0), Degree.ISOLATED),
        ((0.951, 0.96, 0.97), Degree.ISOLATED),
        ((0.90, 0.96, 1.02), Degree.ISOLATED),  # the point is, and the interval reaches 1
        ((0.90, 0.96, 0.97), Degree.PARTLY),  # a difference is shown
        ((0.70, 0.80, 0.94), Degree.PARTLY),
        ((0.70, 0.72, 0.74), Degree.NOT),
        ((0.50, 0.60, 0.90), Degree.NOT),
        ((0.55, 0.61, 0.80), Degree.PARTLY),
        ((0.70, 0.80, 1.01), Degree.UNDECIDED),  # as chance may have it of nothing lost
        ((None, 0.95, None), Degree.ISOLATED),
        ((None, 0.8, None), Degree.PARTLY),
        ((None, 0.5, None), Degree.NOT),
        ((None, None, None), Degree.OPEN),
    ],
)
def test_the_degree_follows_the_rule_that_the_page_states(
    interval: tuple[float | None, float | None, float | None], degree: Degree
) -> None:
    low, point, high = interval
    assert degree_of(Estimate(point, low, high, 0.95, 6, "ratio", "")) is degree


def test_what_identical_arms_differ_by_is_no_lack_of_isolation() -> None:
    figure = Estimate(0.955, 0.945, 0.965, 0.95, 6, "ratio", "")
    assert degree_of(figure) is Degree.PARTLY
    assert degree_of(figure, 1.06) is Degree.ISOLATED
    assert degree_of(figure, 1.01) is Degree.PARTLY


def test_every_resource_has_a_sentence_that_says_by_how_much(usual: report.Report) -> None:
    host = {resource: sentence_of(usual, "host", resource) for resource in Resource}
    assert {resource: one.degree for resource, one in host.items()} == {
        Resource.CPU: Degree.ISOLATED,
        Resource.MEMORY: Degree.NOT,
        Resource.CACHE: Degree.NOT,
        Resource.DISK: Degree.PARTLY,
        Resource.WAKE: Degree.NOT,
    }
    # On a core of its own a whole one writes memory, or takes the cache.
    assert host[Resource.MEMORY].kept.point == pytest.approx(100 / 1.5, rel=0.02)
    assert host[Resource.CACHE].kept.point == pytest.approx(100 / 1.6, rel=0.02)
    # Half of 100 MB/s is what the neighbour may take of a disk that does 200.
    assert host[Resource.DISK].kept.point == pytest.approx(100 / 1.25, rel=0.02)
    assert host[Resource.DISK].text.startswith("With disk limit of 50 % on the loading guest, disk sequential write")
    assert "without a policy 50 % (" in host[Resource.DISK].text


def test_waking_up_is_told_in_times_as_late(usual: report.Report) -> None:
    later = (IDLE_LATENESS_NS + BUSY_LATENESS_NS * 0.99) / IDLE_LATENESS_NS  # a hundredth of the core is its own
    sentence = sentence_of(usual, "host", Resource.WAKE)
    assert sentence.kept.point == pytest.approx(later, rel=0.03)
    words = (
        r"Wake-ups are 8\d× as late \(.*×\) as without the load at their p99, beside integer load \(one shared core\)\."
    )
    assert re.fullmatch(words, sentence.text)
    where = {"benchmark": "wake", "load": "integer"}
    assert at(usual, "host", "wake.p50", **where).point == pytest.approx(IDLE_LATENESS_NS * later, rel=0.02)
    assert at(usual, "host", "value", **where).unit == "wake-ups/s"


def test_few_wake_ups_are_judged_by_a_quantile_that_they_can_tell(tmp_path: Path) -> None:
    design = Design(("wake",), loads=("none", "integer"), policies=("none",))
    found = built(tmp_path, design, arms=(HOST, AA), wake_ups=400)
    (tail,) = shown(found, "isolation", "wake_tail", "")
    assert isinstance(tail, Value) and tail.estimate.point == 0.9
    assert "at their p90" in sentence_of(found, "host", Resource.WAKE).text
    assert at(found, "host", "wake.p90", load="integer").point is not None
    assert not shown(found, "isolation", "wake.p99", "host")
    assert "at the p90" in report.render_html(found)


def test_a_policy_on_shared_cores_hides_no_contention_on_cores_apart(tmp_path: Path) -> None:
    """No policy of the cores was tried where each guest has its own; what memory loses there is told."""
    designs = (
        Design((MEMORY,), loads=("none", MEMORY), shares=(75,)),
        Design((MEMORY,), loads=("none", MEMORY), cores=("1-apart",), policies=("none",)),
    )
    found = built(tmp_path, *designs, arms=(HOST, AA))
    kept = at(found, "host", "kept_of_promised", share=75, load=MEMORY)
    assert kept.point == pytest.approx(1 / 1.125, rel=0.02)
    sentence = sentence_of(found, "host", Resource.MEMORY)
    assert sentence.kept.point == pytest.approx(100 / 1.5, rel=0.02)
    assert sentence.text.endswith("of its unloaded work beside memory write (integers) load (a core each).")


def test_a_disk_limit_that_has_no_effect_isolates_nothing_and_is_named(usual: report.Report) -> None:
    sentence = sentence_of(usual, "gvisor", Resource.DISK)
    assert sentence.degree is Degree.NOT
    assert sentence.kept.point == pytest.approx(100 / 2.5, rel=0.02)
    limits = [row for row in rows_of(usual, "policies") if row.heads[0].startswith("disk limit")]
    refused = [row for row in limits if row.arm == "gvisor"]
    assert refused and all(row.cells[2] == "write_bps: writes are the host's buffered ones" for row in refused)
    (half,) = [row for row in limits if row.arm == "runc" and row.heads[0].endswith("on the loading guest")]
    declared, in_force, *_ = half.cells
    assert isinstance(declared, Finding) and isinstance(in_force, Finding)
    assert "write_bps=50000000" in declared.text
    assert "blkio.throttle.write_bps_device=7:0 50000000" in in_force.text


def test_headlines_begin_with_the_worst_and_compare_degrees_with_the_reference(usual: report.Report) -> None:
    headlines = {one.arm: one for one in usual.suite("isolation").headlines}
    assert list(headlines) == ["host", "runc", "gvisor", "qemu"]
    assert headlines["host"].tone is Tone.REFERENCE
    assert headlines["host"].text.startswith("wake-up latency not isolated: wake-ups are 8")
    assert "disk partly isolated; CPU time isolated." in headlines["host"].text
    assert headlines["runc"].tone is Tone.SAME
    assert headlines["gvisor"].tone is Tone.SLOWER
    assert headlines["gvisor"].figures[0].name == "disk"  # By which it is worse; waking up is the worst, as on the host
    assert headlines["qemu"].tone is Tone.EMULATED
    assert headlines["qemu"].text.startswith("not ranked: ")


def test_emulated_platforms_are_never_coloured(usual: report.Report) -> None:
    kept = "resource:memory bandwidth.kept"
    assert value(usual, "isolation", kept, "gvisor").note == "not isolated"
    emulated = value(usual, "isolation", kept, "qemu")
    assert emulated.note == ""
    assert emulated.hint.startswith("not isolated: ")


def test_a_platform_that_keeps_more_than_the_reference_is_told_so(tmp_path: Path) -> None:
    apart = IsolationArm(arm_record("apart", "oci", "Apart"), contention=0.01)
    design = Design((MEMORY,), loads=("none", MEMORY), cores=("1-apart",), policies=("none",))
    headlines = built(tmp_path, design, arms=(HOST, AA, apart)).suite("isolation").headlines
    assert {one.arm: one.tone for one in headlines} == {"host": Tone.REFERENCE, "apart": Tone.FASTER}
    text = next(one.text for one in headlines if one.arm == "apart")
    assert text.startswith("memory bandwidth isolated: memory write (integers, 64 MiB) keeps 100 % (")


def test_without_a_load_nothing_is_said_of_isolation(tmp_path: Path) -> None:
    found = built(tmp_path, Design(loads=("none",)), arms=(HOST, AA))
    assert rows_of(found, "resources") == []
    assert "says nothing of isolation" in found.suite("isolation").headlines[0].text
    reasons = {row.heads[0]: row.cells[-1] for row in rows_of(found, "missing")}
    assert reasons["CPU time"] == "the plan has no load beside it"
    assert reasons["disk"] == "the plan has no benchmark of it"


def test_what_a_platform_refuses_is_named_once_with_its_reason(tmp_path: Path) -> None:
    def refused(arm: str, factors: Any) -> str | None:
        return (
            "the policy cannot be applied: cpu.shares: no such file"
            if arm == "runc" and factors["on"] != "none"
            else None
        )

    result = built(tmp_path, Design(shares=(25, 75)), refused=refused)
    reason = "unsupported: the policy cannot be applied: cpu.shares: no such file"
    (row,) = [row for row in rows_of(result, "missing") if row.cells[1] == "Container (runc)"]
    assert row.heads == ("integer",)
    assert row.cells[0] == (
        "limit and reservation; on the tested guest; one shared core; no load, "
        "limit and reservation; on the tested guest; one shared core; integer load"
    )
    assert row.cells[2] == reason
    assert at(result, "runc", "value", load="integer", share=25).method == reason
    assert sentence_of(result, "runc", Resource.CPU).text.startswith("Integer keeps 50 %")
    assert reason in report.render_html(result)


def test_an_arm_without_any_valid_result_has_no_figures(tmp_path: Path) -> None:
    flags = (Flag("loader-died", "the load integer ended: killed by signal 9"),)
    result = built(tmp_path, Design(), arms=(HOST, AA), flags=flags)
    found = result.suite("isolation")
    assert found.headlines[0].tone is Tone.MISSING
    assert "loader-died: the load integer ended: killed by signal 9" in found.headlines[0].text
    assert charts(result) == {}
    rows = rows_of(result, "tables")
    assert rows and all(str(row.cells[-1]) == "0 valid, loader-died: 6" for row in rows)
    assert "loader-died" in report.render_html(result)
    assert "no valid figures" in printed(result)


def test_results_of_one_repetition_have_no_intervals_and_are_shown(tmp_path: Path) -> None:
    result = built(tmp_path, Design(), arms=(HOST,), blocks=1)
    values = [one for one in shown(result, "isolation", "q", "host") if isinstance(one, Value)]
    assert values and not any(one.estimate.has_interval for one in values)
    assert sentence_of(result, "host", Resource.CPU).degree is Degree.ISOLATED
    assert re.search(r"Integer keeps \d+ % of what is promised", sentence_of(result, "host", Resource.CPU).text) is None
    assert re.search(r"integer keeps \d+ % of what is promised", sentence_of(result, "host", Resource.CPU).text)


def test_the_account_from_outside_tells_what_the_guest_does_not_see(usual: report.Report) -> None:
    where = {"benchmark": "integer", "load": "integer", "policy": "none"}
    expected = {"guest_seen_cpus": 1, "received_cpus": 0.495, "stopped_share": 50.5, "steal_seen_share": 0}
    for measure, figure in expected.items():
        assert at(usual, "runc", measure, **where).point == pytest.approx(figure)
    assert at(usual, "qemu", "steal_seen_share", **where).point == pytest.approx(52.5)
    throttled = {"benchmark": "integer", "load": "none", "share": 25}
    assert at(usual, "host", "throttled_share", **throttled).point == 100
    assert at(usual, "runc", "throttled_share", **where).point is None
    assert "Integer, one shared core" in [table.title for table in tables(usual, "isolation", "accounting")]


def test_slices_lie_around_the_share_of_the_reference(usual: report.Report) -> None:
    where = {"benchmark": "integer", "load": "integer", "share": 25}
    slices = [at(usual, "host", f"slices.p{share}", **where).point or 0 for share in (5, 25, 50, 75, 95)]
    assert slices == sorted(slices)
    assert slices[2] == pytest.approx(25, rel=0.02)
    assert slices[4] / slices[0] == pytest.approx(1 + 2 * 1.645 * 0.02, rel=0.02)


def test_the_page_holds_the_whole_array(usual: report.Report) -> None:
    rows = rows_of(usual, "tables")
    html = report.render_html(usual)
    for anchor in ("resources", "figures", "latency", "shares", "policies", "accounting", "tables", "published"):
        assert f'id="isolation-{anchor}"' in html
    section = html.partition('<section id="isolation-tables">')[2].partition("</section>")[0]
    assert section.count("6 valid") == len(rows) == 5 * len({row.cells[0].place.cell for row in rows})  # type: ignore[union-attr]
    assert "DMIPS" in section
    assert "How to read this" in html
    assert "little more than a fair share" in html


def test_latencies_stand_beside_those_without_the_load(usual: report.Report) -> None:
    alone, under = (
        at(usual, "host", "wake.p99", benchmark="wake", load=load).point or 0 for load in ("none", "integer")
    )
    assert under > 30 * alone > 0
    rows = panel_of(usual, "Lateness under load: the p99", "Waking up, no policy, one shared core")
    assert [row["x"] for row in rows if row["arm"] == "host"] == [
        pytest.approx(alone, 1e-3),
        pytest.approx(under, 1e-3),
    ]


def test_the_terminal_says_how_well_each_resource_is_kept_apart(usual: report.Report) -> None:
    text = printed(usual)
    assert "Share of the promise that is kept" in text
    assert "wake-up latency" in text
    assert "not isolated" in text
    assert printed(usual, 60)


def test_nothing_of_a_run_becomes_markup_on_the_page(tmp_path: Path) -> None:
    evil = IsolationArm(arm_record("evil", "oci", EVIL))
    note = {"tested": {"declared": {EVIL: EVIL}, "in_force": {EVIL: EVIL}, "no_effect": [EVIL], "notes": [EVIL]}}
    fields = {"policy_applied": note, "value_unit": EVIL}
    flags = (Flag(EVIL, EVIL, fatal=False),)
    result = built(tmp_path, Design(), arms=(HOST, evil), blocks=2, fields=lambda factors: fields, flags=flags)
    assert EVIL not in report.render_html(result)
    odd = built(tmp_path / "odd", Design(benchmarks=(EVIL,), loads=("none", EVIL)), arms=(HOST,), blocks=1)
    assert EVIL not in report.render_html(odd)
    assert printed(odd)


# -- charts ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> report.Report:
    disk = "disk-sequential-write-flush"
    designs = (
        Design(loads=("none", "integer"), on=("tested", "loading"), shares=(25, 75)),
        Design(benchmarks=("latency", "wake"), loads=("none", "cache"), shares=(25,)),
        Design(benchmarks=(disk,), loads=("none", disk), policies=("none", "disk-limit"), shares=(25, 75)),
        Design(loads=("integer",), intensities=(25, 50, 100), policies=("none",)),
    )
    return built(tmp_path_factory.mktemp("figures"), *designs, arms=isolation_arms(), blocks=2)


def test_every_kind_of_chart_is_valid(drawn: report.Report) -> None:
    arms = [arm.record for arm in drawn.arms]
    for kind in ("Efficiency", "What a neighbour", "Under growing", "Memory latency"):
        chart = next(one for title, one in charts(drawn).items() if title.startswith(kind))
        altair.LayerChart.from_dict(specification(chart, arms), validate=True).to_dict(validate=True)


@pytest.mark.parametrize(("what", "measure"), [("Performance", "relative_work"), ("Efficiency q", "q")])
def test_curves_are_the_figures_with_their_intervals(drawn: report.Report, what: str, measure: str) -> None:
    title = f"{what} against the declared share: limit and reservation on the tested guest"
    rows = panel_of(drawn, title, "Integer, integer load, one shared core")
    ours = {(row["arm"], row["x"]): row for row in rows if row["kind"] == "ours"}
    assert len(ours) == 10
    for (arm, share), row in ours.items():
        where = {"benchmark": "integer", "load": "integer", "on": "tested", "intensity": 100}
        found = at(drawn, arm, measure, share=f"{share:g}", **where)
        assert (row["low"], row["high"]) == (found.low, found.high)


def cell(benchmark: str, load: str, on: str) -> Cell:
    intensity = "0" if load == "none" else "100"
    levels = {"benchmark": benchmark, "block": "", "load": load, "intensity": intensity, "cores": "1"}
    return Cell(
        "isolation", "kernel", tuple({**levels, "policy": "limit+reservation", "on": on, "share": "50"}.items())
    )


def test_lines_of_what_was_declared_fall_where_the_loading_guest_has_the_share(usual: report.Report) -> None:
    context: Context = usual.suite("isolation").context  # type: ignore[attr-defined]

    def due(guides: Any, on: str) -> list[tuple[float, float]]:
        rows = guides(context, [cell("wake", "none", on)])
        return [(row["across"], row["up"]) for row in rows if row.get("of") == "due"]

    assert due(guides_of_work, "tested") == [(0, 0), (100, 1)]
    assert due(guides_of_work, "loading") == [(0, 1), (100, 0)]
    assert due(guides_of_q, "loading") == [(0, 1), (100, 1)]


def test_what_the_paper_states_lies_where_it_says(usual: report.Report) -> None:
    context: Context = usual.suite("isolation").context  # type: ignore[attr-defined]

    def stated(guides: Any, *of: str) -> list[dict[str, Any]]:
        return [row for row in guides(context, [cell(*of)]) if row.get("of") != "due"]

    (cross,) = stated(guides_of_work, "integer", "integer", "loading")
    assert (cross["kind"], cross["x"], cross["y"]) == ("published", pytest.approx(95), pytest.approx(0.08))
    saving = stated(guides_of_q, "integer", "none", "tested")
    assert {row["x"]: row["y"] for row in saving if row["kind"] == "published"} == {90: 0.61, 95: 0.98, 100: 1.0}
    assert {row["up"] for row in saving if row["kind"] == "guide"} == {0.96, 0.25, 0.28}
    bound = stated(guides_of_work, "memory-read-simd", "memory-write-integer", "tested")
    assert [(row["across"], row["up"]) for row in bound] == [(50, pytest.approx(0.4)), (100, pytest.approx(0.8))]
    for benchmark, load in (("floating", "none"), ("integer", "cache"), ("latency", "none"), ("wake", "none")):
        assert stated(guides_of_q, benchmark, load, "tested") == []


def test_the_matrix_holds_what_is_kept_beside_the_strongest_load(drawn: report.Report) -> None:
    rows = panel_of(drawn, "What a neighbour costs", "gVisor (runsc, systrap), no policy, one shared core")
    squares = {(row["y"], row["x"]): row["value"] for row in rows}
    assert len(squares) == len(rows)
    where = {"benchmark": "integer", "load": "integer", "policy": "none", "intensity": 100}
    kept = at(drawn, "gvisor", "kept_of_promised", **where).point
    assert squares["integer", "integer load"] == pytest.approx(kept, rel=1e-3)


def test_a_disk_limit_is_drawn_of_disks_alone_and_a_single_share_is_no_curve(
    drawn: report.Report, tmp_path: Path
) -> None:
    bounded = [one for title, one in charts(drawn).items() if "disk limit" in title]
    assert bounded and all(panel.title.startswith("Disk") for one in bounded for panel in one.panels)
    assert all(row["kind"] != "guide" for one in bounded for panel in one.panels for row in panel.rows)
    assert not any("against" in title for title in charts(built(tmp_path, Design(shares=(50,)), blocks=2)))


def test_the_latency_of_memory_is_a_threads_own_however_many_there_are() -> None:
    """Each of eight threads follows a chain of its own, 100 ns a load; their loads are counted together."""
    found = isolation_work._memory_latency(np.array([8.0, np.nan]), np.array([8e7, 1e7]))
    assert found.tolist() == [100.0, 100.0]
