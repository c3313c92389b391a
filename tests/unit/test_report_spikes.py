"""Why the worst cycles were late, as the report has it: by arm and cause, and nothing of what is no such record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import altair
import pytest
from shown import shown, tables, value
from synthetic import arm_record, manifest, trial

from virtgauge import report
from virtgauge.analysis.courses import CAUSES
from virtgauge.analysis.spikes import MOST_PARTS
from virtgauge.ledger.store import Ledger
from virtgauge.report import Report
from virtgauge.report.drawing import specification
from virtgauge.specs.blocks import Chart
from virtgauge.specs.timing_spikes import _WORDS

HOST = arm_record("host", "host", "Host", "reference")
GUEST = arm_record("guest", "oci", "Guest")
LEVELS = {"function": "cycle", "policy": "fifo", "load": "idle", "period_ns": "1000000", "trace": "on"}


def late(cause: str, us: int, by: str = "") -> dict[str, Any]:
    return {
        "late_ns": us * 1000,
        "cause": cause,
        "by": by,
        "share": 0.9,
        "course": [["timer", "", us * 100], [cause, by, us * 900]],
    }


def built_of(tmp_path: Path, *found: tuple[Any, Any]) -> Report:
    """Of trials, each of an arm, with what their records have in place of the worst cycles."""
    ledger = Ledger.create(tmp_path / "run", manifest([HOST, GUEST]))
    for block, (arm, worst) in enumerate(found):
        ledger.add_trial(trial(arm, "cycle", LEVELS, block, result={"spikes": {"ring_kib": 65536, "worst": worst}}))
    return report.build(ledger)


def test_causes_are_counted_over_repetitions_with_whom_and_the_latest(tmp_path: Path) -> None:
    first = [late("preempted", 900, "hog"), late("preempted", 800, "hog"), late("above", 700, "idle")]
    built = built_of(tmp_path, (HOST, first), (HOST, [late("preempted", 950, "kworker/0:1")]), (GUEST, first[2:]))
    ours, latest, theirs, _ = tables(built, "timing", "spikes")
    assert [row.heads[1] for row in ours.rows] == [_WORDS["preempted"][0], _WORDS["above"][0]]
    assert "cycle of 1 ms" in ours.rows[0].heads[0]
    assert "traced" in ours.rows[0].heads[0]
    assert len(theirs.rows) == 1

    def figure(name: str, cause: str) -> float | None:
        return value(built, "timing", f"cycle.cause.{name}", "host", f"+cause={cause}").estimate.point

    assert [figure("times", cause) for cause in ("preempted", "above")] == [3, 1]
    assert [figure("share", cause) for cause in ("preempted", "above")] == [75, 25]
    assert figure("latest", "preempted") == 950_000
    assert [row.cells[0] for row in latest.rows] == ["950 µs", "900 µs", "800 µs", "700 µs"]
    assert latest.rows[1].cells[1] == "timer 90.0 µs → preempted: hog 810 µs"
    (by,) = shown(built, "timing", "cycle.cause.by", "host", "+cause=preempted")
    assert by.text == "hog (2), kworker/0:1 (1)"
    assert _WORDS["preempted"][1].split(",")[0] in report.render_html(built)


def test_the_latest_cycles_are_drawn_from_the_deadline_on_as_each_kernel_saw_them(tmp_path: Path) -> None:
    both = late("guest", 900, "preempted: x") | {"inside": [["above", "idle", 50_000], ["preempted", "x", 850_000]]}
    summed = late("preempted", 800, "hog") | {"course": [["preempted", "hog", 100_000]] * MOST_PARTS}
    built = built_of(tmp_path, (GUEST, [summed, both]))
    (chart,) = (one for one in built.suite("timing").blocks if isinstance(one, Chart) and one.kind == "spans")
    (panel,) = chart.panels
    assert [(row["category"], row["lane"], row["x"], row["x2"], row["t"]) for row in panel.rows] == [
        ("1. 900 µs", "the host's kernel", 0, 90_000, "timer 90.0 µs"),
        ("1. 900 µs", "the host's kernel", 90_000, 900_000, "guest: preempted: x 810 µs"),
        ("1. 900 µs", "the guest's kernel", 0, 50_000, "above: idle 50.0 µs"),
        ("1. 900 µs", "the guest's kernel", 50_000, 900_000, "preempted: x 850 µs"),
    ]
    assert "1. the guest's kernel, preempted: x 850 µs" in chart.text
    altair.LayerChart.validate(specification(chart, [GUEST]))
    (_, latest) = tables(built, "timing", "spikes")
    assert latest.rows[0].cells[2] == "above: idle 50.0 µs → preempted: x 850 µs"


@pytest.mark.parametrize("worst", [None, 7, [7], [{}], [{"cause": [], "late_ns": 5}], [late("above", -1)]])
def test_what_is_no_such_record_is_left_out(tmp_path: Path, worst: Any) -> None:
    assert tables(built_of(tmp_path, (HOST, worst)), "timing", "spikes") == []


def test_every_cause_has_its_words() -> None:
    assert set(_WORDS) == set(CAUSES)
