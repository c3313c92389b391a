"""The page and the terminal form of a comparison: whole, offline, and deaf to what names would like to do."""

from __future__ import annotations

import dataclasses
import html.parser
import io
import json
import re
from pathlib import Path

import altair
import pytest
from compared_runs import MEDIAN, ledger_of
from rich.console import Console
from synthetic import arm_record

from virtgauge.analysis.estimate import Estimate
from virtgauge.compare.comparison import Wanted, compare_runs, compare_series
from virtgauge.compare.document import document
from virtgauge.compare.model import Comparison, SeriesComparison
from virtgauge.report.drawing import specification
from virtgauge.specs.blocks import Chart

EVIL = "</script><script>window.pwned=1</script><img src=x onerror=window.pwned=2>\u2028{{7*7}}[red]\x1b]0;owned\x07"
EVIL_ARMS = [
    arm_record("host", "host", EVIL, "reference"),
    arm_record("host-aa", "host", EVIL, "aa"),
    arm_record("guest", "oci", EVIL + "2", settings={EVIL: EVIL}),
]
EVIL_DESIGN = [("timer_cost", {"function": "rdtscp", "load": "idle", EVIL: level}) for level in (EVIL, "tame")]


class Outline(html.parser.HTMLParser):
    """The elements of a document, and the text of its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._within = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._within = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._within = ""

    def handle_data(self, data: str) -> None:
        if self._within == "script":
            self.scripts[-1] += data


def evil_folders(root: Path, number: int) -> list[Path]:
    """Runs of which every name and fact is hostile."""
    return [
        ledger_of(
            root / f"run-{day}",
            day,
            guest=1.0 if day == 1 else 1.5,
            day=day,
            arms=EVIL_ARMS,
            design=EVIL_DESIGN,
            run_id=f"{EVIL}{day}",
            plan_name=f"{EVIL}{day}",
            fingerprint={"hostname": f"{EVIL}{day}", EVIL: {EVIL: [f"{EVIL}{day}"]}},
        )
        for day in range(1, number + 1)
    ]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    root = tmp_path_factory.mktemp("pair")
    folders = [ledger_of(root / name, seed, guest=1 + 0.3 * seed, day=1 + seed) for seed, name in enumerate("ab")]
    return compare_runs(folders, Wanted([MEDIAN]))


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> SeriesComparison:
    root = tmp_path_factory.mktemp("series")
    factors = [1.0, 1.0, 1.0, 1.4, 1.4]
    folders = [
        ledger_of(root / f"r{day}", day, guest=factor, day=day, blocks=6) for day, factor in enumerate(factors, 1)
    ]
    return compare_series(folders, Wanted([MEDIAN]))


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    return compare_runs(evil_folders(tmp_path_factory.mktemp("evil"), 2), Wanted([MEDIAN]))


@pytest.fixture(scope="module")
def evil_series(tmp_path_factory: pytest.TempPathFactory) -> SeriesComparison:
    return compare_series(evil_folders(tmp_path_factory.mktemp("evil"), 4), Wanted([MEDIAN]))


@pytest.fixture(scope="module")
def pages(
    pair: Comparison, series: SeriesComparison, evil: Comparison, evil_series: SeriesComparison
) -> dict[str, tuple[str, Outline]]:
    """Every page with its outline, made once."""
    texts = {
        "pair": document(pair).html(),
        "series": document(series).html(),
        "evil": document(evil).html(),
        "evil_series": document(evil_series).html(),
    }
    return {name: (text, Outline(text)) for name, text in texts.items()}


def printed(found: Comparison | SeriesComparison, width: int = 120) -> str:
    file = io.StringIO()
    document(found).print(Console(file=file, width=width, color_system=None))
    return file.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pair", "series"])
def test_the_page_refers_to_nothing_outside_itself_and_allows_no_script_but_its_own(
    name: str, pages: dict[str, tuple[str, Outline]]
) -> None:
    _, outline = pages[name]
    for tag, attributes in outline.elements:
        for attribute in ("src", "href", "action", "data", "poster", "srcset"):
            target = attributes.get(attribute)
            assert target is None or target.startswith(("#", "data:")), (tag, target)
    (policy,) = [a["content"] for t, a in outline.elements if t == "meta" and a.get("http-equiv")]
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    assert not re.search(r"script-src[^;]*unsafe-inline", policy)


@pytest.mark.parametrize(("name", "tame"), [("evil", "pair"), ("evil_series", "series")])
def test_names_cannot_leave_their_place(name: str, tame: str, pages: dict[str, tuple[str, Outline]]) -> None:
    text, outline = pages[name]
    assert len(outline.scripts) == len(pages[tame][1].scripts) == 3
    assert not [tag for tag, attributes in outline.elements if tag == "img" or "onerror" in attributes]
    assert "&lt;/script&gt;&lt;script&gt;window.pwned=1" in text  # they are there, as text
    assert "{{7*7}}" in text
    assert json.loads(outline.scripts[0])["panels"]


@pytest.mark.parametrize("name", ["evil", "evil_series"])
def test_names_do_not_steer_the_terminal(name: str, request: pytest.FixtureRequest) -> None:
    text = printed(request.getfixturevalue(name))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[red]" in text


@pytest.mark.parametrize("name", ["pair", "series"])
@pytest.mark.parametrize("width", [80, 120, 200])
def test_the_summary_fits_the_terminal(name: str, width: int, request: pytest.FixtureRequest) -> None:
    lines = printed(request.getfixturevalue(name), width).splitlines()
    assert max(len(line) for line in lines) <= width


def charts(found: Comparison | SeriesComparison) -> list[Chart]:
    made = document(found)
    drawn = [block for section in made.sections for block in section.blocks if isinstance(block, Chart)]
    for chart in drawn:
        altair.LayerChart.validate(specification(chart, made.arms))
    return drawn


def test_the_charts_are_valid_and_hold_every_change(pair: Comparison) -> None:
    (chart,) = charts(pair)
    rows = [row for panel in chart.panels for row in panel.rows]
    assert {row["x"] for row in rows} == {100 * (change.own.ratio.point - 1) for change in pair.changes}
    assert {row["hollow"] for row in rows} == {False, True}


def test_the_courses_mark_every_step(series: SeriesComparison) -> None:
    rows = [row for chart in charts(series) for panel in chart.panels for row in panel.rows]
    assert {row["x"] for row in rows if row["kind"] == "rule"} == {4}
    assert sum(row["kind"] == "ours" for row in rows) == len(series.series) * len(series.runs)


def test_what_changed_most_at_a_place_is_what_changed_most_there(series: SeriesComparison) -> None:
    (one,) = [one for one in series.series if one.steps and not one.relative]
    small, elsewhere = (Estimate.bare(size, "ratio", "") for size in (1.1, 9.0))
    (step,) = one.steps
    smaller = dataclasses.replace(step, size=small), dataclasses.replace(step, after=0, size=elsewhere)
    first = dataclasses.replace(one, arm="another", steps=smaller)
    both = dataclasses.replace(series, series=(first, one))
    (text,) = (block.paragraphs[0] for block in document(both).summary if block.heading == "between r3 and r4")
    assert text.startswith(f"2 figures worse; most of all {one.arm}, ")


def test_every_change_is_in_the_markup_without_scripts(pages: dict[str, tuple[str, Outline]]) -> None:
    text = html.unescape(pages["pair"][0])
    assert "b against a" in text
    assert "1 worse" in text
    assert "<h3>Worse</h3>" in text
    text = html.unescape(pages["series"][0])
    assert "between r3 and r4" in text
