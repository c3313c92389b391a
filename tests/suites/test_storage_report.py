"""The storage report through the whole pipeline: what the simulated database was told to be is what the page says."""

from __future__ import annotations

import pytest
from shown import shown, tables
from suites.storage_runs import storage_trials

from virtgauge import report
from virtgauge.analysis.resources import Limit
from virtgauge.ledger.store import Ledger

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("private_state", "any_agent")]

TURN_US = 1e6 / 120


def built(folder, **told):
    storage_trials(folder, **told)
    with Ledger.open(folder) as ledger:
        return report.build(ledger)


def test_equal_durability_makes_the_papers_ranking_vanish(tmp_path):
    design = {
        "databases": ["postgresql", "mongodb", "cassandra"],
        "durability": ["flushed", "periodic", "os", "none"],
        "flushes": ["rotational:7200"],
        "operations": ["single-write"],
    }
    found = built(
        tmp_path / "run",
        repetitions=3,
        design=design,
        flush_us={"flushed": TURN_US},
        flushes_per_write={"flushed": 1.0, "periodic": 0.001},
    )
    (mixed,) = shown(found, "storage", "durability_share.spread", "device", "durability=mixed")
    (flushed,) = shown(found, "storage", "durability_share.spread", "device", "durability=flushed")
    assert mixed.estimate.point is not None and mixed.estimate.point > 10
    assert flushed.estimate.point == pytest.approx(1, abs=0.02)
    assert {one.text for one in shown(found, "storage", "limit", "device", "durability=flushed")} == {Limit.FLUSHES}
    counted = shown(found, "storage", "durability.flushes_per_operation", "device", "durability=flushed")
    assert [one.estimate.point for one in counted] == [pytest.approx(1.0, abs=0.02)] * 3
    # Named once, with the database's own words.
    (table,) = tables(found, "storage", "missing")
    lacking = {row.heads[0]: row.cells[2] for row in table.rows if row.cells[0] == "in the OS"}
    assert set(lacking) == {"MongoDB", "Cassandra"}
    assert "its log stays in the process" in lacking["MongoDB"]


def test_a_knee_and_a_mixed_load_reach_the_page(tmp_path):
    whole = built(tmp_path / "run", design={"operations": ["knee", "mixed"]})
    (knee,) = shown(whole, "storage", "knee", "device")
    assert knee.estimate.point is not None and shown(whole, "storage", "knee.step.p99", "device")
    for stream in ("write", "read"):
        for time in ("service", "response"):
            assert shown(whole, "storage", f"{time}.p50", "device", f"+stream={stream}")
    page = report.render_html(whole)
    assert "the paper’s Figure 1" in page and "Knees" in page


def test_queries_reach_the_page_by_their_rate(tmp_path):
    times = {"last-value": 250.0, "window": 900.0}
    found = built(tmp_path / "run", design={"operations": ["last-value", "window"]}, service_us=times)
    for name, time_us in times.items():
        for one in shown(found, "storage", "throughput", "device", f"operation={name}"):
            assert one.estimate.point == pytest.approx(1e6 / time_us, rel=0.01)
    page = report.render_html(found)
    assert "last values" in page and "windows" in page


def test_what_is_stored_for_a_reading_reaches_the_page(tmp_path):
    whole = built(tmp_path / "run", design={"operations": ["multi-write"]}, bytes_per_reading=40.0)
    (stored,) = shown(whole, "storage", "bytes_per_reading", "device")
    assert stored.estimate.point == pytest.approx(40)
    assert "stored per reading" in report.render_html(whole)


def test_a_disk_for_the_commit_log_is_told_wherever_it_was_measured(tmp_path):
    """Beside the usual place, in tables, in the durability of a level, and with the reason where it cannot be."""
    design = {"databases": ["postgresql", "sqlite"], "commit_log": ["same", "separate"]}
    found = built(tmp_path / "run", design=design | {"operations": ["single-write", "crash"], "crash_after_s": 0.05})
    for figure in ("throughput", "durability.flushes_per_operation", "lost_rows"):
        places = [
            one.place for one in shown(found, "storage", figure, "device") if "database=postgresql" in one.place.cell
        ]
        assert len({place.cell for place in places}) == 2, figure
        assert {"commit_log=separate" in place.cell for place in places} == {True, False}, figure
    page = report.render_html(found)
    assert "commit log on a disk of its own" in page
    (table,) = tables(found, "storage", "missing")
    (lacking,) = (row.cells for row in table.rows if row.heads[0] == "SQLite")
    assert lacking[0] == "flushed; commit log on a disk of its own" and "a file beside the database" in lacking[2]


def test_crashes_show_what_was_lost(tmp_path):
    design = {
        "operations": ["crash"],
        "durability": ["none", "flushed"],
        "databases": ["mongodb"],
        "crash_after_s": 0.05,
    }
    found = built(tmp_path / "run", design=design)

    def lost(level, what):
        (one,) = shown(found, "storage", f"crash.server.{what}", "device", f"durability={level}")
        return one.estimate.point

    assert lost("flushed", "missing") == 0 < lost("flushed", "acknowledged")
    assert lost("none", "missing") > 0
