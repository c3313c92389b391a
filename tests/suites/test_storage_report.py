"""The storage report through the whole pipeline: what the simulated database was told to be is what the page says."""

from __future__ import annotations

import pytest
from storage_results import storage_of
from suites.storage_runs import storage_trials

from virtgauge import report
from virtgauge.analysis.storage.limits import Limit
from virtgauge.ledger.store import Ledger

pytestmark = pytest.mark.usefixtures("private_state", "any_agent")

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
    found = storage_of(
        built(
            tmp_path / "run",
            repetitions=3,
            design=design,
            flush_us={"flushed": TURN_US},
            flushes_per_write={"flushed": 1.0, "periodic": 0.001},
        )
    )
    (share,) = found.ranking
    assert share.mixed.spread.point is not None and share.mixed.spread.point > 10
    assert share.equal[0].durability == "flushed"
    assert share.equal[0].spread.point == pytest.approx(1, abs=0.02)
    flushed = [cell.series[0] for cell in found.cells if cell.key.durability == "flushed"]
    assert {series.explanation.limit for series in flushed} == {Limit.FLUSHES}
    counted = [row.flushes_per_operation.point for row in found.durability if row.durability == "flushed"]
    assert counted == [pytest.approx(1.0, abs=0.02)] * 3
    # Named once, with the database's own words.
    lacking = {row.database: row.reason for row in found.not_measured if row.durability == "os"}
    assert set(lacking) == {"MongoDB", "Cassandra"}
    assert "its log stays in the process" in lacking["MongoDB"]


def test_a_knee_and_a_mixed_load_reach_the_page(tmp_path):
    whole = built(tmp_path / "run", design={"operations": ["knee", "mixed"]})
    found = storage_of(whole)
    knee, mixed = ([cell.series[0] for cell in found.cells if cell.key.operation == name] for name in ("knee", "mixed"))
    assert knee[0].knee_per_s.point is not None and knee[0].steps
    assert set(mixed[0].service) == set(mixed[0].response) == {"write", "read"}
    page = report.render_html(whole)
    assert "the paper’s Figure 1" in page and "Knees" in page


def test_crashes_show_what_was_lost(tmp_path):
    design = {
        "operations": ["crash"],
        "durability": ["none", "flushed"],
        "databases": ["mongodb"],
        "crash_after_s": 0.05,
    }
    rows = {row.durability: row for row in storage_of(built(tmp_path / "run", design=design)).durability}
    assert rows["flushed"].server.missing == 0 < rows["flushed"].server.acknowledged
    assert rows["none"].server.missing > 0
