"""The storage report on hand-made results whose causes are known: figures, page, terminal and text."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import altair
import pytest
from rich.console import Console
from storage_results import KNEE_SHARE, Design, StorageArm, hardware_vm, storage_arms, storage_ledger, storage_of
from synthetic import arm_record

from virtgauge import report
from virtgauge.analysis.storage.limits import Limit
from virtgauge.ledger.records import Flag
from virtgauge.report.headline import Tone
from virtgauge.report.storage import tables
from virtgauge.report.storage.figures import draw
from virtgauge.report.storage.model import Key, Series, StorageFindings
from virtgauge.report.verdicts import Verdict
from virtgauge.report.words import duration, duration_interval

EVIL = "</script><script>window.pwned=1</script><img src=x onerror=window.pwned=2>"
DISK = "rotational:7200"
SMALL: dict[str, Any] = {"clients": (1,), "operations": ("single-write",)}


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> report.Report:
    """Host, container, gVisor, an emulated machine; three databases at three levels on a turning disk."""
    designs = [
        Design(flushes=DISK, crashes=("server", "machine")),
        Design(databases=("postgresql",), levels=("flushed",), flushes="at-once", **SMALL),
        Design(databases=("postgresql",), levels=("flushed",), operations=("knee", "mixed")),
        Design(databases=("postgresql",), levels=("flushed",), loops=("open:200", "open:500"), **SMALL),
        Design(databases=("mongodb",), levels=("flushed",), operations=("single-read",), index=(True, False)),
    ]
    return report.build(storage_ledger(tmp_path_factory.mktemp("storage") / "run", designs=designs))


def series_of(found: StorageFindings, arm: str, **levels: Any) -> Series:
    """The one series of an arm whose cell has these levels."""

    def fits(key: Key) -> bool:
        return all(getattr(key, name) == level for name, level in levels.items())

    (cell,) = [cell for cell in found.cells if fits(cell.key)]
    series = cell.of(arm)
    assert series is not None
    return series


def printed(built: report.Report, width: int = 150) -> str:
    file = io.StringIO()
    report.render_text(built, Console(file=file, width=width, color_system=None))
    return file.getvalue()


def test_ranks_are_given_within_a_level_only_and_shared_where_nothing_differs(usual: report.Report) -> None:
    found = storage_of(usual)
    at = {"operation": "single-write", "clients": 1, "flushes": DISK}
    flushed = [
        series_of(found, "host", database=name, durability="flushed", **at).rank for name in ("postgresql", "mongodb")
    ]
    assert flushed == [1, 1]  # one turn of the disk for each of them
    periodic = {
        name: series_of(found, "host", database=name, durability="periodic", **at).rank
        for name in ("postgresql", "mongodb", "cassandra")
    }
    assert periodic == {"mongodb": 1, "postgresql": 2, "cassandra": 3}
    assert series_of(found, "qemu", database="mongodb", durability="periodic", **at).rank is None


def test_the_share_of_durability_in_the_papers_ranking_is_nearly_all_on_a_turning_disk(usual: report.Report) -> None:
    share = next(one for one in storage_of(usual).ranking if (one.arm, one.flushes) == ("host", DISK))
    assert share.mixed.levels == {"PostgreSQL": "flushed", "Cassandra": "periodic", "MongoDB": "none"}
    assert (share.mixed.fastest, share.mixed.slowest) == ("MongoDB", "PostgreSQL")
    assert share.equal[0].durability == "flushed"
    assert share.equal[0].spread.point == pytest.approx(1, abs=0.05)
    assert share.equal[0].share == pytest.approx(1, abs=0.01)
    assert "durability is 99" in share.sentence
    assert all(one.arm != "qemu" for one in storage_of(usual).ranking)


def test_the_causes_that_results_were_made_with_are_found(usual: report.Report) -> None:
    found = storage_of(usual)

    def limit(**levels: Any) -> Limit:
        explanation = series_of(found, "host", flushes=DISK, loop="closed", **levels).explanation
        assert explanation is not None
        return explanation.limit

    single = {"operation": "single-write", "clients": 1}
    assert limit(database="postgresql", durability="flushed", **single) is Limit.FLUSHES
    assert limit(database="mongodb", durability="none", **single) is Limit.SENDING
    assert limit(database="cassandra", durability="periodic", **single) is Limit.ROUND_TRIP
    many = {"operation": "single-write", "clients": 16}
    assert limit(database="cassandra", durability="periodic", **many) is Limit.SERVER_CPU
    assert limit(database="mongodb", durability="periodic", **many) is Limit.CLIENT
    grouped = series_of(found, "host", database="postgresql", durability="flushed", flushes=DISK, **many)
    assert any("16.0 writes to a flush (group commit)" in reason for reason in grouped.reasons)


def test_all_48_cells_of_the_paper_are_replayed_or_say_why_not(usual: report.Report) -> None:
    cells = storage_of(usual).replay
    assert len(cells) == 48
    assert all(cell.explained for cell in cells)
    (first,) = [
        cell
        for cell in cells
        if (cell.paper.database, cell.paper.server, cell.paper.name, cell.paper.many_clients)
        == ("PostgreSQL", "physical", "single-write", False)
    ]
    assert first.ratio.point == pytest.approx(1, abs=0.03)
    text = " ".join(first.explained)
    assert "1.00 statements to a turn of its 7200 rpm disk" in text
    assert "the same on any hardware" in text
    virtual = [cell for cell in cells if cell.paper.server == "virtual"]
    known = ("simulated in software", "About the paper’s figure", "the same on any hardware")
    assert all(any(words in " ".join(cell.explained) for words in known) for cell in virtual)


def test_databases_that_were_not_measured_are_named_once_with_their_reason(tmp_path: Path) -> None:
    design = Design(databases=("postgresql", "sqlite"), levels=("flushed", "none"), **SMALL)
    built = report.build(storage_ledger(tmp_path / "run", designs=[design], blocks=2))
    found = storage_of(built)
    rows = {(row.database, row.durability): row.reason for row in found.not_measured}
    assert set(rows) == {("PostgreSQL", "none"), ("SQLite", "none"), ("MongoDB", ""), ("Cassandra", "")}
    assert "no level “none”" in rows["SQLite", "none"]
    levels = {(row.database, row.durability) for row in found.durability}
    assert levels == {("postgresql", "flushed"), ("sqlite", "flushed")}
    missing = next(cell for cell in found.replay if cell.paper.database == "MongoDB")
    assert missing.rate.point is None
    assert "Not measured: MongoDB at the paper’s level (none)." in missing.explained


def test_lost_rows_are_summed_by_what_was_killed(usual: report.Report) -> None:
    rows = {(row.database, row.durability): row for row in storage_of(usual).durability if row.arm == "host"}
    flushed, periodic, none = (rows["mongodb", level] for level in ("flushed", "periodic", "none"))
    assert (flushed.server.missing, flushed.machine.missing) == (0, 0)
    assert (periodic.server.missing, periodic.machine.missing) == (0, 6 * 120)
    assert none.server.acknowledged == 6 * 12_000
    assert none.server.missing == 6 * 900
    assert none.server.newest_lost_ns == 3.5e6
    assert periodic.below == "none"
    assert none.price.point is None


def test_the_price_of_a_level_is_its_rate_over_that_of_the_next_weaker_one(usual: report.Report) -> None:
    found = storage_of(usual)
    (row,) = [
        row
        for row in found.durability
        if (row.arm, row.database, row.durability, row.flushes) == ("host", "postgresql", "flushed", DISK)
    ]
    assert row.below == "periodic"
    at = {"database": "postgresql", "operation": "single-write", "clients": 1, "flushes": DISK}
    one, other = (series_of(found, "host", durability=level, **at).rate.point for level in ("flushed", "periodic"))
    assert one is not None and other is not None
    assert row.price.point == pytest.approx(one / other, rel=0.05)


def test_what_a_flush_took_stands_beside_how_many_an_operation_needs(usual: report.Report) -> None:
    rows = {
        (row.durability, row.flushes): row
        for row in storage_of(usual).durability
        if (row.arm, row.database) == ("host", "postgresql")
    }
    turn = rows["flushed", DISK]
    assert turn.mean_flush_ns.point == pytest.approx(60e9 / 7200, rel=0.02)
    assert turn.mean_flush_ns.n == 6
    none = rows["periodic", DISK].mean_flush_ns  # no write waited for one
    assert (none.point, none.method) == (None, "no flush was timed")
    told = f"{duration(turn.mean_flush_ns.point)}<small>{duration_interval(turn.mean_flush_ns)}</small>"
    page = report.render_html(usual)
    assert "one flush<br>takes" in page
    assert f">{told}</td>" in page


def test_knees_and_mixed_loads_are_told_with_their_objective_and_streams(usual: report.Report) -> None:
    found, arms = storage_of(usual), [arm.record for arm in usual.arms]
    (host, *_) = [(key, series) for key, arm, series in tables.knee_rows(found, arms) if arm.name == "host"]
    assert host[0].of == "single-write"
    assert host[1].knee_per_s.point == pytest.approx(KNEE_SHARE * 1e6 / (500 + 132))
    assert {step.met for step in host[1].steps} == {True, False}
    mixed = [row for row in tables.mixed_rows(found, arms) if row.arm.name == "host"]
    assert [(row.stream, row.measure) for row in mixed] == [
        ("writes", "service"),
        ("writes", "response"),
        ("reads", "service"),
        ("reads", "response"),
    ]
    assert mixed[0].latency.p99.point is not None
    assert mixed[0].latency.p999.method == "needs 10,000 operations in a repetition"


def test_figures_are_valid_vega_lite_and_each_panel_is_of_one_level(usual: report.Report) -> None:
    drawn = draw(storage_of(usual), [arm.record for arm in usual.arms])
    titles = [figure.title for figure in drawn.figures]
    assert titles[:2] == ["Single reads with and without an index", "One client, single writes"]
    assert {"Many clients, multiple reads", "What durability costs", "Latency against the offered rate"} <= set(titles)
    for figure in drawn.figures:
        altair.LayerChart.validate(figure.spec)
        for panel in figure.panels:
            assert drawn.data[panel.data].rows
    writes = next(figure for figure in drawn.figures if figure.title == "One client, single writes")
    assert [panel.title for panel in writes.panels] == [
        *("flushed, flushes at once", "flushed, 7200 rpm", "periodic, 7200 rpm", "none, 7200 rpm"),
    ]
    published = {
        panel.title: {row["t"] for row in drawn.data[panel.data].rows if row["kind"] == "published"}
        for panel in writes.panels
    }
    assert published["none, 7200 rpm"] == {"MongoDB, physical: 34,000/s", "MongoDB, virtual: 21,000/s"}
    assert published["flushed, 7200 rpm"] == {"PostgreSQL, physical: 120/s", "PostgreSQL, virtual: 400/s"}


def test_the_papers_tables_contradict_some_of_its_own_conclusions(usual: report.Report) -> None:
    claims = {claim.paper.name: claim for claim in storage_of(usual).paper_claims}
    assert claims["single-write-order"].paper.verdict is Verdict.CONFIRMED
    assert claims["cassandra-drops-sixteenfold"].paper.verdict is Verdict.CONFIRMED
    assert claims["virtualization-smallest-on-postgresql"].paper.verdict is Verdict.CONFIRMED
    # 1,000 reads a second on the virtual machine, with one client as with many.
    assert claims["single-read-all-benefit"].paper.verdict is Verdict.CONTRADICTED
    # With many clients Cassandra's 560,000 rows/s on the virtual machine are more.
    assert claims["postgresql-wins-multi-reads"].paper.verdict is Verdict.CONTRADICTED
    assert claims["index-speeds-reads-up"].paper.verdict is Verdict.UNTESTABLE


def test_what_ranks_at_mixed_levels_is_contradicted_at_equal_ones(usual: report.Report) -> None:
    claims = {claim.paper.name: claim for claim in storage_of(usual).paper_claims}
    huge = claims["single-write-huge-difference"]
    assert huge.run.verdict is Verdict.CONFIRMED
    assert huge.equal is not None and huge.equal.verdict is Verdict.CONTRADICTED
    assert huge.level == "flushed"
    assert claims["caching-by-the-vmm"].run.verdict is Verdict.CONFIRMED


def test_an_emulated_machine_decides_nothing_about_virtual_ones(usual: report.Report) -> None:
    claims = {claim.paper.name: claim for claim in storage_of(usual).paper_claims}
    impact = claims["single-write-physical-wins"].run
    assert impact.verdict is Verdict.UNTESTABLE
    assert [one.text for one in impact.evidence] == [
        "the only virtual machine of this run is emulated, which decides nothing"
    ]


def test_a_real_virtual_machine_is_judged(tmp_path: Path) -> None:
    arms = [storage_arms()[0], hardware_vm(cpu=1.3)]
    designs = [Design(), Design(flushes="at-once", **SMALL)]
    found = storage_of(report.build(storage_ledger(tmp_path / "run", arms, designs)))
    claims = {claim.paper.name: claim.run for claim in found.paper_claims}
    assert claims["single-write-physical-wins"].verdict is Verdict.CONFIRMED
    assert claims["single-write-postgresql-virtual-faster"].verdict is Verdict.CONFIRMED  # flushes at once there
    assert claims["many-single-read-ten-times-slower"].verdict is Verdict.CONTRADICTED


def test_only_a_container_beside_the_host_is_no_virtual_machine(tmp_path: Path) -> None:
    arms = [storage_arms()[0], StorageArm(arm_record("runc", "oci", "Container (runc)"))]
    found = storage_of(report.build(storage_ledger(tmp_path / "run", arms, [Design(**SMALL)], blocks=2)))
    claims = {claim.paper.name: claim.run for claim in found.paper_claims}
    assert claims["single-write-physical-wins"].verdict is Verdict.UNTESTABLE
    virtual = next(cell for cell in found.replay if cell.paper.server == "virtual" and cell.arm)
    assert "container" in " ".join(virtual.explained) or virtual.ratio.point == pytest.approx(1, abs=0.25)


def test_headlines_rank_no_emulated_platform(usual: report.Report) -> None:
    by_arm = {headline.arm: headline for headline in storage_of(usual).headlines}
    assert by_arm["host"].tone is Tone.REFERENCE
    assert by_arm["gvisor"].tone is Tone.SLOWER
    assert "of the host’s rows" in by_arm["gvisor"].text
    assert by_arm["qemu"].tone is Tone.EMULATED
    assert by_arm["qemu"].text.startswith("not ranked: ")
    assert "host-aa" not in by_arm


def test_results_that_do_not_count_leave_reasons_and_no_figures(tmp_path: Path) -> None:
    flags = [Flag("wrong-answer", "3 reads brought other readings")]
    built = report.build(storage_ledger(tmp_path / "run", designs=[Design(**SMALL)], blocks=2, flags=flags))
    found = storage_of(built)
    series = next(cell for cell in found.cells if cell.key.durability == "flushed").series[0]
    assert series.rate.point is None
    assert series.missing == "invalid: wrong-answer: 3 reads brought other readings"
    assert {headline.tone for headline in found.headlines} == {Tone.MISSING}
    assert "There is no valid result to draw" in report.render_html(built)


def test_the_terminal_tells_rates_durability_and_conclusions_at_any_width(usual: report.Report) -> None:
    for width in (80, 150):
        text = printed(usual, width)
        assert "flushed before each acknowledgement" in " ".join(text.split())
        assert "durability is 99" in " ".join(text.split())
        assert "Tables IV and V" in text
        assert max(map(len, text.splitlines())) <= width


def test_the_json_form_holds_every_cell_and_conclusion(usual: report.Report) -> None:
    told = json.loads(report.render_json(usual))
    (suite,) = [suite for suite in told["suites"] if suite["suite"] == "storage"]
    assert len(suite["replay"]) == 48
    assert len(suite["paper_claims"]) >= 25
    assert len(suite["cells"]) == len(storage_of(usual).cells)


def test_names_of_a_run_cannot_become_markup(tmp_path: Path) -> None:
    arms = [StorageArm(arm_record("host", "host", EVIL, "reference")), StorageArm(arm_record("two", "oci", EVIL))]
    fields = {"settings": {EVIL: EVIL}, "database": EVIL}
    built = report.build(storage_ledger(tmp_path / "run", arms, [Design(**SMALL)], blocks=2, fields=fields))
    page = report.render_html(built)
    assert "<script>window.pwned" not in page
    assert "<img src=x" not in page
