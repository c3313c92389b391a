"""The isolation suite's figures: valid, and drawn from the findings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import altair
import pytest
from isolation_results import Design, isolation_ledger, isolation_of

from virtgauge import report
from virtgauge.ledger.records import ArmRecord, Flag
from virtgauge.report.charts import Drawn, Figure
from virtgauge.report.isolation.figures import draw
from virtgauge.report.isolation.guides import due_line, published_rows
from virtgauge.report.isolation.model import IsolationFindings, Key
from virtgauge.report.isolation.vocabulary import SHORT_CORES, benchmark_words

BOTH = "limit+reservation"
DISK = "disk-sequential-write-flush"
DISK_WORDS = benchmark_words(DISK)
HERE, APART = (f" · {SHORT_CORES[cores]}" for cores in ("1", "1-apart"))
DESIGNS = (
    Design(loads=("none", "integer"), on=("tested", "loading"), shares=(25, 75)),
    Design(benchmarks=("memory-write-integer",), loads=("none", "memory-write-integer"), shares=(25, 75)),
    Design(benchmarks=("latency", "wake"), loads=("none", "cache"), shares=(25,), cores=("1", "1-apart")),
    Design(benchmarks=(DISK,), loads=("none", DISK), policies=("none", "disk-limit", BOTH), shares=(25, 75)),
    Design(loads=("integer",), intensities=(25, 50, 100), policies=("none",)),
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> report.Report:
    return report.build(isolation_ledger(tmp_path_factory.mktemp("figures") / "run", designs=DESIGNS, blocks=2))


@pytest.fixture(scope="module")
def found(built: report.Report) -> IsolationFindings:
    return isolation_of(built)


@pytest.fixture(scope="module")
def drawn(built: report.Report, found: IsolationFindings) -> Drawn:
    return draw(found, arms_of(built))


def arms_of(built: report.Report) -> list[ArmRecord]:
    return [arm.record for arm in built.arms]


def figure_of(drawn: Drawn, title: str) -> Figure:
    (figure,) = [figure for figure in drawn.figures if figure.title == title]
    return figure


def rows_of(drawn: Drawn, title: str, panel: str) -> list[dict[str, Any]]:
    (name,) = [one.data for one in figure_of(drawn, title).panels if one.title == panel]
    return [dict(row) for row in drawn.data[name].rows]


def test_every_figure_is_valid_and_every_panel_has_its_own_data(drawn: Drawn) -> None:
    names = [panel.data for figure in drawn.figures for panel in figure.panels]
    assert len(set(names)) == len(names)
    assert set(names) == drawn.data.keys()
    # One of each kind of chart, for a validation takes half a second.
    for kind in ("Efficiency", "What a neighbour", "From one tenth", "Latency"):
        figure = next(figure for figure in drawn.figures if figure.title.startswith(kind))
        altair.LayerChart.from_dict(figure.spec, validate=True).to_dict(validate=True)


def test_there_is_a_figure_of_each_kind(drawn: Drawn) -> None:
    titles = [figure.title for figure in drawn.figures]
    assert len(set(titles)) == len(titles)
    assert {
        "Performance against the declared share, CPU time: limit and reservation on the tested guest",
        "Efficiency q against the declared share, CPU time: limit and reservation on the tested guest",
        "Performance against the declared share, CPU time: limit and reservation on the loading guest",
        "Efficiency q against the declared share, CPU time: limit and reservation on the loading guest",
        "Performance against the declared share, disk: disk limit on the tested guest",
        "What a neighbour costs: no policy",
        "What a neighbour costs: limit and reservation of 25 % on the tested guest",
        "Under growing pressure",
        "From one tenth of a second to the next: no policy",
        "Latency under load: no policy",
        "Memory latency under load: limit and reservation of 25 % on the tested guest",
    } <= set(titles)


@pytest.mark.parametrize("quantity", ["relative", "q"])
def test_curves_are_the_findings_with_their_intervals(drawn: Drawn, found: IsolationFindings, quantity: str) -> None:
    what = "Performance" if quantity == "relative" else "Efficiency q"
    title = f"{what} against the declared share, CPU time: limit and reservation on the tested guest"
    rows = rows_of(drawn, title, f"integer, integer load{HERE}")
    ours = {(row["arm"], row["x"]): row for row in rows if row["kind"] in ("ours", "other")}
    expected = {
        (series.arm, cell.key.share): getattr(series, quantity)
        for cell in found.cells
        for series in cell.series
        if (cell.key.benchmark, cell.key.load, cell.key.intensity, cell.key.policy, cell.key.on)
        == ("integer", "integer", 100, BOTH, "tested")
    }
    assert ours.keys() == expected.keys()
    for place, estimate in expected.items():
        assert (ours[place]["y"], ours[place]["low"], ours[place]["high"]) == (
            (estimate.point, estimate.low, estimate.high)
        )


def test_the_identical_arm_is_off_the_lines(drawn: Drawn) -> None:
    title = "Performance against the declared share, CPU time: limit and reservation on the tested guest"
    kinds = {row["arm"]: row["kind"] for row in rows_of(drawn, title, f"integer, no load{HERE}") if "arm" in row}
    assert kinds == {"host": "ours", "host-aa": "other", "runc": "ours", "gvisor": "ours", "qemu": "ours"}


def test_lines_of_what_was_declared_fall_where_the_loading_guest_has_the_share() -> None:
    assert [(row["across"], row["up"]) for row in due_line("tested", "relative")] == [(0, 0), (1, 1)]
    assert [(row["across"], row["up"]) for row in due_line("loading", "relative")] == [(0, 1), (1, 0)]
    assert [(row["across"], row["up"]) for row in due_line("loading", "q")] == [(0, 1), (1, 1)]


def key(benchmark: str, load: str, on: str) -> Key:
    return Key(benchmark, "", load, 0 if load == "none" else 100, "1", BOTH, on, 0.5)


def test_what_the_paper_states_lies_where_it_says() -> None:
    (cross,) = published_rows(key("integer", "integer", "loading"), "relative")
    assert (cross["kind"], cross["x"], cross["y"]) == ("published", 0.95, pytest.approx(0.08))
    saving = published_rows(key("integer", "none", "tested"), "q")
    marks = {row["x"]: row["y"] for row in saving if row["kind"] == "published"}
    assert marks == {0.9: 0.61, 0.95: 0.98, 1.0: 1.0}
    lines = {row["up"] for row in saving if row["kind"] == "guide"}
    assert lines == {0.96, 0.25, 0.28}
    bound = published_rows(key("memory-read-simd", "memory-write-integer", "tested"), "relative")
    assert [(row["across"], row["up"]) for row in bound] == [(0.5, pytest.approx(0.4)), (1.0, pytest.approx(0.8))]


@pytest.mark.parametrize(
    ("benchmark", "load"),
    [
        ("floating", "none"),
        ("integer", "cache"),
        ("latency", "none"),
        ("wake", "none"),
        ("memory-read-simd", "integer"),
    ],
)
def test_the_paper_has_nothing_of_what_it_did_not_measure(benchmark: str, load: str) -> None:
    assert published_rows(key(benchmark, load, "tested"), "q") == []


def test_a_disk_limit_is_held_against_no_share_of_the_cores(drawn: Drawn) -> None:
    title = "Performance against the declared share, disk: disk limit on the tested guest"
    rows = rows_of(drawn, title, f"{DISK_WORDS}, no load{HERE}")
    assert rows and all(row["kind"] != "guide" for row in rows)


def test_the_matrix_holds_what_is_kept_beside_the_strongest_load(drawn: Drawn, found: IsolationFindings) -> None:
    title = "What a neighbour costs: no policy"
    panels = [panel.title for panel in figure_of(drawn, title).panels]
    assert f"gVisor (runsc, systrap){HERE}" in panels
    assert f"QEMU microvm (tcg) (emulated){APART}" in panels
    assert not any("A/A" in panel for panel in panels)
    rows = rows_of(drawn, title, f"gVisor (runsc, systrap){HERE}")
    squares = {(row["benchmark"], row["load"]): row for row in rows}
    assert len(squares) == len(rows)
    for one in found.interference:
        if one.arm == "gvisor" and one.key.free and one.key.cores == "1" and one.key.benchmark == "integer":
            square = squares["integer", "integer"]
            if one.key.intensity == 100:
                assert square["lost"] == pytest.approx(1 - (one.kept.point or 0), abs=1e-4)
    assert squares["integer", "integer"]["figure"] == "50 %"


def test_pressure_is_drawn_point_by_point(drawn: Drawn, found: IsolationFindings) -> None:
    rows = rows_of(drawn, "Under growing pressure", f"integer beside integer load{HERE}")
    ours = [(row["x"], row["y"]) for row in rows if row.get("arm") == "runc"]
    (pressure,) = [one for one in found.pressure if one.arm == "runc"]
    assert ours == [(point.intensity / 100, point.ratio.point) for point in pressure.points]
    assert [share for share, _ in ours] == [0, 0.25, 0.5, 1]


def test_slices_are_held_against_the_share_of_the_cores_and_disks_are_not(
    drawn: Drawn, found: IsolationFindings
) -> None:
    title = "From one tenth of a second to the next: limit and reservation of 25 % on the tested guest"
    rows = rows_of(drawn, title, f"integer{HERE}")
    (due,) = [row for row in rows if row["kind"] == "guide"]
    assert due["x"] == 0.25
    (row,) = [row for row in rows if row.get("arm") == "gvisor" and row["category"] == "integer"]
    (series,) = [
        series
        for cell in found.cells
        if (cell.key.benchmark, cell.key.load, cell.key.share, cell.key.on) == ("integer", "integer", 0.25, "tested")
        and (series := cell.of("gvisor")) is not None
    ]
    assert tuple(row[name] for name in ("p5", "p25", "p50", "p75", "p95")) == series.slice_quantiles
    free = "From one tenth of a second to the next: no policy"
    for other in (rows_of(drawn, title, f"{DISK_WORDS}{HERE}"), rows_of(drawn, free, f"integer{HERE}")):
        assert other and all(row["kind"] != "guide" for row in other)
    assert not any(panel.title.startswith("waking") for panel in figure_of(drawn, free).panels)


def test_latencies_are_the_medians_and_the_p99_of_the_findings(drawn: Drawn, found: IsolationFindings) -> None:
    rows = rows_of(drawn, "Latency under load: no policy", f"wake-up lateness{HERE}")
    (row,) = [row for row in rows if (row["arm"], row["category"]) == ("runc", "cache")]
    (series,) = [
        series
        for cell in found.cells
        if (cell.key.benchmark, cell.key.load, cell.key.cores, cell.key.policy) == ("wake", "cache", "1", "none")
        and (series := cell.of("runc")) is not None
    ]
    assert (row["x"], row["far"]) == (series.latency_p50_ns.point, series.latency_p99_ns.point)
    assert row["far"] > row["x"] > 0
    title = "Memory latency under load: no policy"
    (memory,) = [
        row
        for row in rows_of(drawn, title, f"memory latency{HERE}")
        if (row["arm"], row["category"]) == ("host", "no load")
    ]
    assert memory["x"] == pytest.approx(80, rel=0.03)
    assert memory["low"] <= memory["x"] <= memory["high"]


def test_a_single_share_is_no_curve(tmp_path: Path) -> None:
    built = report.build(isolation_ledger(tmp_path / "run", designs=[Design(shares=(50,))], blocks=2))
    titles = [figure.title for figure in draw(isolation_of(built), arms_of(built)).figures]
    assert titles
    assert not any("against the declared share" in title for title in titles)


def test_without_a_valid_result_nothing_is_drawn(tmp_path: Path) -> None:
    flags = [Flag("loader-died", "it ended after 2 s")]
    built = report.build(isolation_ledger(tmp_path / "run", blocks=2, flags=flags))
    assert draw(isolation_of(built), arms_of(built)) == Drawn((), {})


def test_a_disk_limit_is_drawn_of_disks_alone(tmp_path: Path) -> None:
    design = Design(
        benchmarks=("integer", DISK), loads=("none", DISK), policies=("disk-limit",), on=("loading",), shares=(25, 75)
    )
    built = report.build(isolation_ledger(tmp_path / "run", designs=[design], blocks=2))
    drawn = draw(isolation_of(built), arms_of(built))
    bounded = [figure for figure in drawn.figures if "disk limit" in figure.title]
    assert len(bounded) >= 3
    rows = [dict(row) for figure in bounded for panel in figure.panels for row in drawn.data[panel.data].rows]
    assert not any(row.get("benchmark") == "integer" for row in rows)
    assert not any(panel.title.startswith("integer") for figure in bounded for panel in figure.panels)
