"""The isolation report on hand-made results whose truth is known: figures, sentences, page, terminal and text."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from isolation_reports import (
    AA,
    HOST,
    MEMORY,
    built,
    interference_of,
    sentence_of,
    series_of,
)
from isolation_results import (
    BUSY_LATENESS_NS,
    IDLE_LATENESS_NS,
    Design,
    IsolationArm,
    isolation_arms,
    isolation_ledger,
    isolation_of,
)
from rich.console import Console
from synthetic import arm_record

from virtgauge import report
from virtgauge.analysis.estimate import Estimate
from virtgauge.ledger.records import Flag
from virtgauge.report.headline import Tone
from virtgauge.report.isolation import tables
from virtgauge.report.isolation.accounting import account_tables
from virtgauge.report.isolation.model import (
    Degree,
)
from virtgauge.report.isolation.sentences import degree_of
from virtgauge.report.isolation.vocabulary import Resource, benchmark_words, kept, load_words, policy_words

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


def test_without_a_policy_nothing_is_declared_beside_a_load(usual: report.Report) -> None:
    found = isolation_of(usual)
    alone, beside = (
        series_of(found, "runc", benchmark="integer", load=load, policy="none") for load in ("none", "integer")
    )
    assert alone.q.point == alone.relative.point
    assert beside.q.point is None
    assert beside.q.method == "no share was declared that promises anything here"
    assert beside.relative.point == pytest.approx(0.495, rel=0.02)


def test_a_limit_without_a_reservation_keeps_a_fair_share_and_isolates_nothing(tmp_path: Path) -> None:
    found = isolation_of(built(tmp_path, Design(policies=("none", "limit"), shares=(75,))))
    limited = interference_of(found, "host", policy="limit")
    assert limited.kept.point == pytest.approx(2 / 3, rel=0.02)
    assert series_of(found, "host", policy="limit", load="integer").q_share.point == pytest.approx(1, rel=0.01)
    sentence = sentence_of(found, "host", Resource.CPU)
    assert sentence.degree is Degree.NOT
    assert sentence.text.startswith("with limit of 75 % on the tested guest, integer keeps 67 % (")
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
    assert degree_of(figure, Estimate(1.0, 0.94, 1.05, 0.95, 6, "ratio", "")) is Degree.ISOLATED
    assert degree_of(figure, Estimate(1.0, 0.99, 1.01, 0.95, 6, "ratio", "")) is Degree.PARTLY


def test_every_resource_has_a_sentence_that_says_by_how_much(usual: report.Report) -> None:
    found = isolation_of(usual)
    host = {one.resource: one for one in found.sentences if one.arm == "host"}
    assert set(host) == set(Resource)
    assert {resource: one.degree for resource, one in host.items()} == {
        Resource.CPU: Degree.ISOLATED,
        Resource.MEMORY: Degree.NOT,
        Resource.CACHE: Degree.NOT,
        Resource.DISK: Degree.PARTLY,
        Resource.WAKE: Degree.NOT,
    }
    # On a core of its own a whole one writes memory, or takes the cache.
    assert host[Resource.MEMORY].worst.point == pytest.approx(1 / 1.5, rel=0.02)
    assert host[Resource.CACHE].worst.point == pytest.approx(1 / 1.6, rel=0.02)
    # Half of 100 MB/s is what the neighbour may take of a disk that does 200.
    assert host[Resource.DISK].worst.point == pytest.approx(1 / 1.25, rel=0.02)
    assert host[Resource.DISK].text.startswith("with disk limit of 50 % on the loading guest, disk sequential write")
    assert "without a policy 50 % (" in host[Resource.DISK].text


def test_waking_up_is_told_in_times_as_late(usual: report.Report) -> None:
    found = isolation_of(usual)
    later = (IDLE_LATENESS_NS + BUSY_LATENESS_NS * 0.99) / IDLE_LATENESS_NS  # a hundredth of the core is its own
    sentence = sentence_of(found, "host", Resource.WAKE)
    assert sentence.worst.point == pytest.approx(1 / later, rel=0.03)
    words = (
        r"wake-ups are 8\d× as late \(.*×\) as without the load at their p99, beside integer load \(one shared core\)\."
    )
    assert re.fullmatch(words, sentence.text)
    cell = series_of(found, "host", benchmark="wake", load="integer")
    assert cell.latency_p50_ns.point == pytest.approx(IDLE_LATENESS_NS * later, rel=0.02)
    assert cell.value_unit == "wake-ups/s"
    assert kept(sentence.worst, Resource.WAKE).endswith("× as late")


def test_few_wake_ups_are_judged_by_a_quantile_that_they_can_tell(tmp_path: Path) -> None:
    design = Design(("wake",), loads=("none", "integer"), policies=("none",))
    found = isolation_of(built(tmp_path, design, arms=(HOST, AA), wake_ups=400))
    assert found.wake_tail == 0.9
    assert "at their p90" in sentence_of(found, "host", Resource.WAKE).text
    series = series_of(found, "host", load="integer")
    assert series.latency_p99_ns.point is None
    assert series.latency_p99_ns.method == "a repetition has too few operations for a p99"
    assert series.missing is None
    assert "at the p90" in report.render_html(
        report.build(isolation_ledger(tmp_path / "page", [HOST], [design], wake_ups=400))
    )


def test_a_policy_on_shared_cores_hides_no_contention_on_cores_apart(tmp_path: Path) -> None:
    """No policy of the cores was tried where each guest has its own; what memory loses there is told."""
    designs = (
        Design((MEMORY,), loads=("none", MEMORY), shares=(75,)),
        Design((MEMORY,), loads=("none", MEMORY), cores=("1-apart",), policies=("none",)),
    )
    found = isolation_of(built(tmp_path, *designs, arms=(HOST, AA)))
    assert interference_of(found, "host", share=0.75).kept.point == pytest.approx(1 / 1.125, rel=0.02)
    sentence = sentence_of(found, "host", Resource.MEMORY)
    assert sentence.key is not None and sentence.key.cores == "1-apart"
    assert sentence.worst.point == pytest.approx(1 / 1.5, rel=0.02)
    assert sentence.text.endswith("of its unloaded work beside memory write (integers) load (a core each).")


def test_a_disk_limit_that_has_no_effect_isolates_nothing_and_is_named(usual: report.Report) -> None:
    found = isolation_of(usual)
    sentence = sentence_of(found, "gvisor", Resource.DISK)
    assert sentence.degree is Degree.NOT
    assert sentence.worst.point == pytest.approx(1 / 2.5, rel=0.02)
    applied = [one for one in found.policies if one.arm == "gvisor" and one.policy == "disk-limit"]
    assert applied
    assert all(one.no_effect == ("write_bps: writes are the host's buffered ones",) for one in applied)
    (half,) = [one for one in found.policies if (one.arm, one.policy, one.on) == ("runc", "disk-limit", "loading")]
    assert half.declared["write_bps"] == "50000000"
    assert half.in_force["blkio.throttle.write_bps_device"] == "7:0 50000000"
    assert half.on == "loading"


def test_headlines_begin_with_the_worst_and_compare_degrees_with_the_reference(usual: report.Report) -> None:
    headlines = {one.arm: one for one in isolation_of(usual).headlines}
    assert list(headlines) == ["host", "runc", "gvisor", "qemu"]
    assert headlines["host"].tone is Tone.REFERENCE
    assert headlines["host"].text.startswith("wake-up latency not isolated: wake-ups are 8")
    assert "disk partly isolated; CPU time isolated." in headlines["host"].text
    assert headlines["runc"].tone is Tone.SAME
    assert headlines["gvisor"].tone is Tone.SLOWER
    assert headlines["qemu"].tone is Tone.EMULATED
    assert headlines["qemu"].text.startswith("not ranked: ")


def test_emulated_platforms_are_never_coloured() -> None:
    assert tables.degree_class(Degree.NOT, emulated=True) == "plain"
    assert tables.degree_class(Degree.NOT, emulated=False) == "worse"


def test_a_platform_that_keeps_more_than_the_reference_is_told_so(tmp_path: Path) -> None:
    apart = IsolationArm(arm_record("apart", "oci", "Apart"), contention=0.01)
    design = Design((MEMORY,), loads=("none", MEMORY), cores=("1-apart",), policies=("none",))
    found = isolation_of(built(tmp_path, design, arms=(HOST, AA, apart)))
    assert {one.arm: one.tone for one in found.headlines} == {"host": Tone.REFERENCE, "apart": Tone.FASTER}
    text = next(one.text for one in found.headlines if one.arm == "apart")
    assert text.startswith("memory bandwidth isolated: memory write (integers, 64 MiB) keeps 100 % (")


def test_without_a_load_nothing_is_said_of_isolation(tmp_path: Path) -> None:
    found = isolation_of(built(tmp_path, Design(loads=("none",)), arms=(HOST, AA)))
    assert found.interference == ()
    assert "says nothing of isolation" in found.headlines[0].text
    assert sentence_of(found, "host", Resource.CPU).text == "the plan has no load beside it"
    assert sentence_of(found, "host", Resource.DISK).text == "the plan has no benchmark of it"
    rows = {row.what: row.reason for row in found.not_measured}
    assert rows["disk"] == "the plan has no benchmark of it"


def test_what_a_platform_refuses_is_named_once_with_its_reason(tmp_path: Path) -> None:
    def refused(arm: str, factors: Any) -> str | None:
        return (
            "the policy cannot be applied: cpu.shares: no such file"
            if arm == "runc" and factors["on"] != "none"
            else None
        )

    result = built(tmp_path, Design(shares=(25, 75)), refused=refused)
    found = isolation_of(result)
    (row,) = [row for row in found.not_measured if row.arms]
    assert row.arms == ("runc",)
    assert row.what == "integer, limit and reservation, on the tested guest, one shared core (4 cells)"
    assert row.reason == "unsupported: the policy cannot be applied: cpu.shares: no such file"
    assert series_of(found, "runc", load="integer", share=0.25).missing == row.reason
    assert sentence_of(found, "runc", Resource.CPU).text.startswith("integer keeps 50 %")
    assert row.reason in report.render_html(result)


def test_an_arm_without_any_valid_result_has_no_figures(tmp_path: Path) -> None:
    flags = (Flag("loader-died", "the load integer ended: killed by signal 9"),)
    result = built(tmp_path, Design(), arms=(HOST, AA), flags=flags)
    found = isolation_of(result)
    assert found.headlines[0].tone is Tone.MISSING
    assert "loader-died: the load integer ended: killed by signal 9" in found.headlines[0].text
    assert all(series.missing for cell in found.cells for series in cell.series)
    assert found.flags["host"] == {"loader-died": 6 * len(found.cells)}
    assert "loader-died" in report.render_html(result)
    assert "no valid figures" in printed(result)


def test_results_of_one_repetition_have_no_intervals_and_are_shown(tmp_path: Path) -> None:
    result = built(tmp_path, Design(), arms=(HOST,), blocks=1)
    found = isolation_of(result)
    assert not any(series.q.has_interval for cell in found.cells for series in cell.series)
    assert sentence_of(found, "host", Resource.CPU).degree is Degree.ISOLATED
    assert re.search(r"integer keeps \d+ % of what is promised", sentence_of(found, "host", Resource.CPU).text)
    assert "The array" in report.render_html(result)


def test_the_account_from_outside_tells_what_the_guest_does_not_see(usual: report.Report) -> None:
    found = isolation_of(usual)
    blind, seeing = (
        series_of(found, arm, benchmark="integer", load="integer", policy="none") for arm in ("runc", "qemu")
    )
    assert blind.guest_seen_cpus.point == 1
    assert blind.received_cpus.point == pytest.approx(0.495)
    assert (blind.stopped_share.point, blind.steal_seen_share.point) == (pytest.approx(0.505), 0)
    assert seeing.steal_seen_share.point == pytest.approx(0.525)
    throttled = series_of(found, "host", benchmark="integer", load="none", share=0.25)
    assert throttled.throttled_share.point == 1
    assert blind.throttled_share.point is None
    arms = [arm.record for arm in usual.arms]
    titles = [table.title for table in account_tables(found, arms)]
    assert "integer, 1 vCPU each on one shared core" in titles
    assert all(row.arm.role != "aa" for table in account_tables(found, arms) for row in table.rows)


def test_slices_lie_around_the_share_of_the_reference(usual: report.Report) -> None:
    slices = series_of(isolation_of(usual), "host", benchmark="integer", load="integer", share=0.25).slice_quantiles
    assert slices is not None
    assert list(slices) == sorted(slices)
    assert slices[2] == pytest.approx(0.25, rel=0.02)
    assert slices[4] / slices[0] == pytest.approx(1 + 2 * 1.645 * 0.02, rel=0.02)


def test_the_page_holds_the_whole_array(usual: report.Report) -> None:
    found = isolation_of(usual)
    arms = [arm.record for arm in usual.arms]
    rows = [row for table in tables.array(found, arms) for row in table.rows]
    assert len(rows) == sum(len(cell.series) for cell in found.cells)
    html = report.render_html(usual)
    for anchor in ("resources", "figures", "latency", "shares", "policies", "accounting", "tables", "published"):
        assert f'id="isolation-{anchor}"' in html
    section = html.partition('<section id="isolation-tables">')[2].partition("</section>")[0]
    assert section.count("6 valid") == len(rows)
    assert "DMIPS" in section
    assert "How to read this" in html
    assert "little more than a fair share" in html


def test_latencies_stand_beside_those_without_the_load(usual: report.Report) -> None:
    found = isolation_of(usual)
    arms = [arm.record for arm in usual.arms]
    matrices = {matrix.title: matrix for matrix in tables.latencies(found, arms)}
    waking = matrices["waking up, 1 vCPU each on one shared core"]
    assert [arm.name for arm in waking.arms] == ["host", "runc", "gvisor", "qemu"]
    (line,) = waking.lines
    pair = line.columns[0]
    assert pair is not None and pair.without is not None
    assert pair.without.latency_p99_ns.point is not None and pair.under.latency_p99_ns.point is not None
    assert pair.under.latency_p99_ns.point > 30 * pair.without.latency_p99_ns.point


def test_the_text_form_holds_every_figure_of_the_array(usual: report.Report) -> None:
    document = json.loads(report.render_json(usual))
    (suite,) = [suite for suite in document["suites"] if suite["suite"] == "isolation"]
    assert len(suite["cells"]) == len(isolation_of(usual).cells)
    series = suite["cells"][0]["series"][0]
    assert {"value", "relative", "q", "q_share", "q_rate", "received_cpus", "entitled_cpus", "flags"} <= set(series)
    assert {one["degree"] for one in suite["sentences"]} <= {degree.value for degree in Degree}


def test_the_terminal_says_how_well_each_resource_is_kept_apart(usual: report.Report) -> None:
    text = printed(usual)
    assert "kept of what was promised" in text
    assert "wake-up latency, Host: not isolated: wake-ups are 8" in text
    assert "memory bandwidth, gVisor (runsc, systrap): not isolated:" in text
    assert "QEMU microvm (tcg): not isolated" not in text
    assert printed(usual, 60)


def test_nothing_of_a_run_becomes_markup_on_the_page(tmp_path: Path) -> None:
    evil = IsolationArm(arm_record("evil", "oci", EVIL))
    note = {"tested": {"declared": {EVIL: EVIL}, "in_force": {EVIL: EVIL}, "no_effect": [EVIL], "notes": [EVIL]}}
    fields = {"policy_applied": note, "value_unit": EVIL}
    flags = (Flag(EVIL, EVIL, fatal=False),)
    result = built(tmp_path, Design(), arms=(HOST, evil), blocks=2, fields=fields, flags=flags)
    assert EVIL not in report.render_html(result)
    odd = built(tmp_path / "odd", Design(benchmarks=(EVIL,), loads=("none", EVIL)), arms=(HOST,), blocks=1)
    assert EVIL not in report.render_html(odd)
    assert printed(odd)


def test_names_of_cells_say_what_was_done(usual: report.Report) -> None:
    names = {cell.name for cell in usual.cells}
    assert (
        "Isolation: integer · integer load · one shared core · limit and reservation of 25 % on the tested guest"
        in names
    )
    assert "Isolation: memory latency (64 MiB) · no load · a core each · no policy" in names
    assert benchmark_words("memory-read-simd", "4xLLC") == "memory read (SIMD, 4 × last-level cache)"
    assert benchmark_words("disk-random-write-flush") == "disk random write with flush"
    assert load_words("memory-copy-float", 30) == "memory copy (floats) load at 30 %"
    assert policy_words("disk-limit", "loading", 0.075) == "disk limit of 7.5 % on the loading guest"
