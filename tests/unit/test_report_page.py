"""The page and the terminal form: whole, offline, and deaf to what a run's names would like to do."""

from __future__ import annotations

import html.parser
import io
import json
import re
from pathlib import Path

import altair
import pytest
from rich.console import Console
from synthetic import SyntheticArm, arm_record, manifest, synthetic_ledger, usual_arms

from virtgauge import report
from virtgauge.errors import UnavailableError
from virtgauge.ledger.store import Ledger
from virtgauge.report import page as pages
from virtgauge.report.drawing import specification
from virtgauge.specs.blocks import Chart

pytestmark = pytest.mark.slow

EVIL = "</script><script>window.pwned=1</script><img src=x onerror=window.pwned=2>\u2028{{7*7}}"


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


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> report.Report:
    return report.build(synthetic_ledger(tmp_path_factory.mktemp("page") / "run", blocks=3, invalid_share=0.1))


def printed(built: report.Report, width: int = 120) -> str:
    file = io.StringIO()
    report.render_text(built, Console(file=file, width=width, color_system=None))
    return file.getvalue()


def test_the_page_refers_to_nothing_outside_itself(usual: report.Report) -> None:
    outline = Outline(report.render_html(usual))
    for tag, attributes in outline.elements:
        for name in ("src", "href", "action", "data", "poster", "srcset"):
            target = attributes.get(name)
            assert target is None or target.startswith(("#", "data:")), (tag, target)
    assert not {"iframe", "object", "embed", "base", "form"} & {tag for tag, _ in outline.elements}


def test_the_page_allows_no_connection_and_no_script_but_its_own(usual: report.Report) -> None:
    outline = Outline(report.render_html(usual))
    (policy,) = [a["content"] for t, a in outline.elements if t == "meta" and a.get("http-equiv")]
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    assert not re.search(r"script-src[^;]*unsafe-inline", policy)


def test_every_summary_and_its_interval_is_in_the_markup_without_scripts(usual: report.Report) -> None:
    text = report.render_html(usual)
    for headline in usual.suite("timing").headlines:
        assert headline.text in html.unescape(text)
    assert "A/A agrees within" in text
    assert "emulated" in text
    assert "apt-get install kata-containers" in text


def test_the_pages_data_holds_every_trial(usual: report.Report) -> None:
    outline = Outline(report.render_html(usual))
    data = json.loads(outline.scripts[0])
    assert data["trials"]["columns"]["id"] == [trial.trial_id for trial in usual.trials]
    curves = [name for name, panel in data["panels"].items() if panel["kind"] == "curves"]
    assert len(curves) == len(usual.cells)


def test_every_figure_is_valid_vega_lite(tmp_path: Path) -> None:
    built = report.build(synthetic_ledger(tmp_path / "run", blocks=3, reservoir=50))
    arms = [arm.record for arm in built.arms]
    charts = [one for one in built.suite("timing").blocks if isinstance(one, Chart)]
    assert len({chart.title for chart in charts}) == len(charts) == 2 * 3
    for chart in charts:
        altair.LayerChart.validate(specification(chart, arms))


def test_names_cannot_leave_their_place(tmp_path: Path) -> None:
    arms = [
        SyntheticArm(arm_record("host", "host", EVIL, "reference")),
        SyntheticArm(arm_record("evil", "oci", EVIL, usable=False, reason=EVIL, fix=EVIL)),
    ]
    design = [("timer_cost", {"function": "clock_gettime", "load": "idle"})]
    fields = {"plan_name": EVIL, "plan_text": f"# {EVIL}", "fingerprint": {"hostname": EVIL, "cpu": {"flags": [EVIL]}}}
    ledger = synthetic_ledger(tmp_path / "run", arms, blocks=2, design=design, run=fields)
    ledger.add_event(EVIL, EVIL)
    tame = Outline(report.render_html(report.build(synthetic_ledger(tmp_path / "tame", arms[:1], 2, design))))
    text = report.render_html(report.build(ledger))
    outline = Outline(text)
    assert len(outline.scripts) == len(tame.scripts) == 3
    assert not [tag for tag, attributes in outline.elements if tag == "img" or "onerror" in attributes]
    assert "49" not in re.findall(r"<title>(.*?)</title>", text)[0]


def test_the_table_of_a_first_look_has_no_empty_column(usual: report.Report) -> None:
    text = report.render_html(usual)
    glance = text[text.index("<h2>Timing") : text.index("Each platform in one sentence")]
    head, body = glance.split("<tbody>", 1)
    assert re.findall(r'<th rowspan="2" scope="col"[^>]*>([^<]*)</th>', head) == ["Platform"]
    rows = body.split("</tr>")[:-1]
    assert all(row.count("<th ") == 1 and 'scope="row"' in row for row in rows)


def test_the_colour_of_a_ratio_is_pale_where_it_is_slight(tmp_path: Path) -> None:
    host = SyntheticArm(arm_record("host", "host", "Host", "reference"))
    aa = SyntheticArm(arm_record("host-aa", "host", "Host (A/A)", "aa"))
    slight = SyntheticArm(arm_record("slight", "oci", "slight"), 1.04, 1.04)
    large = SyntheticArm(arm_record("large", "oci", "large"), 1.3, 1.3)
    text = report.render_html(report.build(synthetic_ledger(tmp_path / "run", [host, aa, slight, large], spread=0.002)))
    glance = text[text.index("<h2>Timing") : text.index("Each platform in one sentence")]
    assert re.findall(r'class="ratio worse slight"[^>]*>(1\.0\d)', glance)
    assert re.findall(r'class="ratio worse"[^>]*>(1\.[23]\d)', glance)
    assert not re.findall(r'class="ratio worse slight"[^>]*>1\.[1-9]', glance)


def test_a_run_without_figures_still_has_a_page_and_a_summary(tmp_path: Path) -> None:
    built = report.build(Ledger.create(tmp_path / "run", manifest([arm.record for arm in usual_arms()])))
    text = report.render_html(built)
    assert "no valid trial" in text
    assert "not finished" in text
    assert "no valid trial" in printed(built)


def test_the_summary_in_the_terminal_holds_verdicts_figures_and_what_was_skipped(usual: report.Report) -> None:
    text = printed(usual)
    assert "× the host" in text
    assert "qemu-microvm (emulated)" in text
    assert "kata-runtime" in text
    assert "trials valid" in text


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_the_summary_fits_the_terminal(usual: report.Report, width: int) -> None:
    lines = printed(usual, width).splitlines()
    assert max(len(line) for line in lines) <= width
    assert not [line for line in lines if "…" in line]


def test_names_do_not_steer_the_terminal(tmp_path: Path) -> None:
    arms = [SyntheticArm(arm_record("host", "host", "[red]\x1b]0;owned\x07[/nonsense]", "reference"))]
    design = [("timer_cost", {"function": "clock_gettime", "load": "idle"})]
    text = printed(report.build(synthetic_ledger(tmp_path / "run", arms, 1, design)))
    assert "\x1b" not in text
    assert "[red]" in text


def test_a_missing_drawing_library_is_named_with_the_command_that_makes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "LIBRARY", tmp_path / "vega-embed.js")
    pages.drawing_library.cache_clear()
    with pytest.raises(UnavailableError, match="virtgauge provision page"):
        pages.drawing_library()


def test_the_drawing_library_is_safe_within_a_script_element() -> None:
    script = pages.drawing_library()
    assert "vegaEmbed" in script
    assert "</script" not in script and "<!--" not in script
