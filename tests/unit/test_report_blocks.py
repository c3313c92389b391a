"""From a declaration and results to blocks, on a suite of two factors whose figures are known, and how they look."""

from __future__ import annotations

import dataclasses
import io
import itertools
from pathlib import Path
from typing import Any

import altair
import numpy as np
import pytest
from rich.console import Console
from synthetic import STARTED, arm_record, hdr_bins, manifest

from virtgauge.ledger.records import TrialRecord, TrialStatus
from virtgauge.ledger.store import Ledger
from virtgauge.report import compose
from virtgauge.report.drawing import specification
from virtgauge.report.terminal import print_blocks
from virtgauge.results.measure import Better, Measure, Statistic, field
from virtgauge.results.quantities import DURATION, OPERATION_RATE
from virtgauge.results.table import ResultTable
from virtgauge.specs.blocks import Value
from virtgauge.specs.context import Context
from virtgauge.specs.headline import Tone
from virtgauge.specs.model import ChartSpec, Factor, Figures, HeadlineSpec, SuiteSpec, TableSpec

pytestmark = pytest.mark.slow

ARMS = (
    arm_record("host", "host", "Host", "reference"),
    arm_record("aa", "host", "Host (A/A)", "aa"),
    arm_record("guest", "qemu", "Guest <b>"),
    arm_record("slow", "qemu", "Slow", emulated=True),
)
FACTORS_OF = {"host": 1.0, "aa": 1.0, "guest": 0.5, "slow": 0.01}
PROBE = frozenset({"work"})
RATE = Measure("toy", "rate", OPERATION_RATE, Better.HIGHER, "work done", PROBE, field("rate"))
TAIL = Measure("toy", "time.p99", DURATION, Better.LOWER, "time", PROBE, Statistic("time", "p99"))
SPEC = SuiteSpec(
    "toy",
    "Toy",
    (
        Factor("tool", text=str.upper),
        Factor("size", levels=("large", "small"), text=lambda level: f"{level} ones"),
        Factor("clients", usual="1", text=lambda level: f"{level} clients"),
    ),
    (RATE, TAIL),
    HeadlineSpec(
        {"rate": ("does", "things", "at")},
        {"rate": ("faster", "slower", "")},
        lambda context: [("rate", cell) for cell in context.where({"size": ("large",), "clients": ("1",)})],
        lambda context, cell: context.text(cell, "tool"),
    ),
    summary=(),
    sections=(),
    missing=("tool", "size"),
)


@pytest.fixture
def context(tmp_path: Path) -> Context:
    """Two tools, two sizes, three numbers of clients; ``b`` cannot do small ones, and is twice as fast."""
    random = np.random.default_rng(1)
    with Ledger.create(tmp_path / "run", manifest(ARMS)) as ledger:
        for block in range(6):
            for arm, factor in FACTORS_OF.items():
                for tool, size, clients in itertools.product("ab", ("small", "large"), ("1", "10", "2")):
                    levels = {"tool": tool, "size": size, "clients": clients}
                    can = (tool, size) != ("b", "small")
                    rate = 1000 * factor * int(clients) * (2 if tool == "b" else 1) * (1 + block / 10_000)
                    record = TrialRecord(
                        **{"trial_id": 0, "key": f"{arm}{block}{levels}", "suite": "toy", "probe": "work", "arm": arm},
                        **{"platform": "host", "block": block, "attempt": 1, "factors": levels, "flags": ()},
                        **{"status": TrialStatus.VALID if can else TrialStatus.UNSUPPORTED, "accounting": {}},
                        **{"result": {"rate": rate} if can else {}, "error": None if can else "b has no small ones"},
                        **{"guest_id": None, "started_at": STARTED, "elapsed_ns": 1},
                    )
                    histograms = {"time": hdr_bins(random.integers(1000, 9000, 2000))} if can else {}
                    ledger.add_trial(record, histograms)
    return Context(SPEC, ResultTable.open(tmp_path / "run"), ARMS, {})


GLANCE = TableSpec(
    "",
    (Figures("rate", compared=True),),
    split=("size",),
    across=("clients",),
    ends=("clients",),
    rows=("tool",),
    ranked="tool",
)


def test_a_table_is_split_and_has_levels_across_of_which_the_ends_are_kept(context: Context) -> None:
    large, small = compose.tables(context, GLANCE)
    assert (large.title, small.title) == ("Large ones", "Small ones")
    assert (large.folded, small.folded) == (False, True)
    assert [column.group for column in large.columns] == ["1 clients", "10 clients"]
    assert [(row.heads[0], row.arm) for row in large.rows] == [
        (tool, arm) for tool in "AB" for arm in ("host", "aa", "guest", "slow")
    ]
    assert {row.heads[0] for row in small.rows} == {"A"}, "what nobody can do is told once, elsewhere"


def test_figures_are_compared_ranked_and_judged_but_not_of_emulated_arms(context: Context) -> None:
    large, _ = compose.tables(context, GLANCE)
    rows = {(row.heads[0], row.arm): row.cells[0] for row in large.rows}
    guest, slow, host, other = (rows[key] for key in (("A", "guest"), ("A", "slow"), ("A", "host"), ("B", "host")))
    assert isinstance(guest, Value) and isinstance(slow, Value) and isinstance(host, Value) and isinstance(other, Value)
    assert (host.rank, other.rank, slow.rank) == (2, 1, None)
    assert guest.compared is not None and guest.compared.distinguishable
    assert (guest.judged, slow.judged, host.compared) == ("worse", "plain", None)
    assert guest.place.cell == "work;clients=1;size=large;tool=a"


def test_headlines_say_what_each_platform_does(context: Context) -> None:
    by_arm = {one.arm: one for one in compose.headlines(context)}
    assert by_arm["host"].text == "does things at 1.00 kop/s (A), 2.00 kop/s (B)."
    assert by_arm["guest"].tone is Tone.SLOWER
    assert "500 op/s (A, 0.50× the host" in by_arm["guest"].text
    assert by_arm["slow"].tone is Tone.EMULATED
    many = dataclasses.replace(SPEC, headline=dataclasses.replace(SPEC.headline, most=1))
    ranged = {one.arm: one for one in compose.headlines(dataclasses.replace(context, spec=many))}
    assert ranged["guest"].text == "does 0.50× (A) to 0.50× (A) of the host’s things."


def test_what_was_not_measured_is_told_once(context: Context) -> None:
    table = compose.not_measured(context)
    assert table is not None
    assert [(row.heads, row.cells) for row in table.rows] == [
        (("B",), ("small ones", "all", "unsupported: b has no small ones"))
    ]


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("dots", {"rows": "tool"}),
        ("lines", {"x": "clients", "where": {"tool": "a"}}),
        ("ccdf", {"measures": ("time",)}),
        ("heat_map", {"x": "clients", "rows": "tool"}),
    ],
)
def test_each_kind_of_chart_is_valid_and_says_what_it_shows(context: Context, kind: Any, more: dict[str, Any]) -> None:
    told: dict[str, Any] = {"measures": ("rate",), "panels": ("size",)} | more
    (chart,) = compose.charts(context, ChartSpec(kind, "Title", "Caption", **told))
    titles = [panel.title for panel in chart.panels]
    if kind == "heat_map":  # one for each platform
        assert {"Host, large ones", "Host, small ones"} < set(titles)
    else:
        assert titles == ["Large ones", "Small ones"]
    altair.LayerChart.validate(specification(chart, ARMS))
    assert chart.text
    if kind == "dots":
        assert chart.text.startswith("Large ones: Host A 1.00 kop/s; ")


def test_a_chart_of_nothing_is_left_out(context: Context) -> None:
    assert list(compose.charts(context, ChartSpec("dots", "", "", ("rate",), rows="tool", where={"tool": "z"}))) == []


def test_the_terminal_shows_tables_at_any_width(context: Context) -> None:
    found = tuple(compose.tables(context, GLANCE))
    for width in (60, 150):
        file = io.StringIO()
        print_blocks(found, (), {arm.name: arm for arm in ARMS}, Console(file=file, width=width, color_system=None))
        text = file.getvalue()
        assert "1.00 kop/s" in text and "slow (emulated)" in text and "Small ones: 4 rows" in text
        assert max(map(len, text.splitlines())) <= width
