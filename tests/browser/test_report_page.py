"""The report in a real browser without any network: figures drawn, no error, and no name that acts."""

from __future__ import annotations

import itertools
import shutil
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from bandwidth_results import PAPER, bandwidth_ledger
from isolation_results import Design as IsolationDesign
from isolation_results import isolation_ledger
from playwright.sync_api import Browser, BrowserContext, Page, Route, sync_playwright
from storage_results import Design, storage_ledger
from suites.simulated_runs import execute, report_of, simulated
from synthetic import SyntheticArm, arm_record, manifest, synthetic_ledger, usual_arms

from virtgauge import report
from virtgauge.ledger.records import HostRecord
from virtgauge.ledger.store import Ledger
from virtgauge.plan.load import load_plan
from virtgauge.plan.model import PlatformSection

pytestmark = pytest.mark.slow

CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
ARGUMENTS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
DRAWN = "html[data-figures=drawn]"
MARKS = """[...document.querySelectorAll('.chart')].map(
    chart => chart.querySelectorAll('svg .mark-line path, svg .mark-symbol path').length)"""
EVIL = '</script><script>window.pwned=1</script><img src=x onerror="window.pwned=2">\'"><svg onload=window.pwned=3>'


class Visit:
    """One page, opened offline, with everything that it complained about or asked for."""

    def __init__(self, context: BrowserContext, path: Path) -> None:
        self.complaints: list[str] = []
        self.requests: list[str] = []
        context.set_offline(True)
        context.route("**/*", self._only_files)
        self.page: Page = context.new_page()
        self.page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector(DRAWN, state="attached", timeout=120_000)

    def _only_files(self, route: Route) -> None:
        address = route.request.url
        if address.startswith(("file:", "data:", "blob:")):
            route.continue_()
            return
        self.requests.append(address)
        route.abort()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a usual run."""
    folder = tmp_path_factory.mktemp("usual")
    built = report.build(synthetic_ledger(folder / "run", blocks=7, invalid_share=0.05, reservoir=200))
    return written(built, folder / "report.html")


@pytest.fixture(scope="module", autouse=True)  # before the browser's loop: a run has one of its own
def quick(simulated_machine: Path) -> Path:
    """The page of the preset quick, with simulated platforms in the places of its own, each slower than the last."""
    plan, _ = load_plan("quick")
    platforms = []
    for place, section in enumerate(plan.platform):
        truth = {"truth": {"*": {"median_ns": 25.0 * 2**place}}, "storage": {"parallel": 8 // 2**place}}
        platforms.append(PlatformSection.model_validate(simulated(section.name, seed=place, load_factor=4, **truth)))
    execute(plan.model_copy(update={"platform": tuple(platforms), "seed": 1}), simulated_machine / "run")
    return written(report_of(simulated_machine / "run"), simulated_machine / "report.html")


def written(built: report.Report, path: Path) -> Path:
    path.write_text(report.render_html(built), encoding="utf-8")
    return path


def variety(png: bytes) -> int:
    """How many different stretches of 64 bytes the pixels of a PNG have; a blank picture has a handful."""
    data, place = b"", 8
    while place < len(png):
        length, kind = struct.unpack(">I4s", png[place : place + 8])
        if kind == b"IDAT":
            data += png[place + 8 : place + 8 + length]
        place += 12 + length
    pixels = zlib.decompress(data)
    return len({pixels[at : at + 64] for at in range(0, len(pixels), 64)})


def test_the_page_draws_every_figure_offline_and_without_complaint_on_light_and_on_dark(
    browser: Browser, usual: Path, tmp_path: Path
) -> None:
    paper = "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
    seen = {}
    for scheme in ("light", "dark"):
        context = browser.new_context(viewport={"width": 1366, "height": 800}, color_scheme=scheme)
        visit = Visit(context, usual)
        marks = visit.page.evaluate(MARKS)
        assert len(marks) == 2 * 18 + 9  # raw values and a CCDF for each cell, a panel of medians for each function
        assert min(marks) >= 5, marks
        shot = visit.page.screenshot(path=tmp_path / f"{scheme}.png")
        assert variety(shot) > 1000
        background, ink = visit.page.evaluate(paper)
        levels = [sum(int(part) for part in colour[4:-1].split(",")) for colour in (background, ink)]
        assert abs(levels[0] - levels[1]) > 450
        seen[scheme] = background
        assert visit.complaints == []
        assert visit.requests == []
        context.close()
    assert seen["light"] != seen["dark"]


def test_the_first_screen_holds_every_verdict_and_no_width_makes_the_page_scroll_sideways(
    browser: Browser, usual: Path
) -> None:
    context = browser.new_context(viewport={"width": 1366, "height": 800})
    page = Visit(context, usual).page
    bottoms = page.evaluate(
        "[...document.querySelectorAll('table.answers tbody tr:not(.group)')]"
        ".map(e => e.getBoundingClientRect().bottom)"
    )
    assert len(bottoms) == 5  # skipped ones too
    assert max(bottoms) <= 800
    for width in (1366, 1024, 390):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    context.close()


def test_every_part_is_led_to_from_one_line_and_by_keyboard(browser: Browser, usual: Path) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = Visit(context, usual).page
    assert page.evaluate("document.querySelector('nav').scrollWidth") <= 1280
    assert page.evaluate("document.querySelector('nav').getBoundingClientRect().height") < 60
    page.focus("nav summary")
    page.keyboard.press("Enter")
    link = page.locator("nav details a").last
    assert link.is_visible()
    link.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("nav details:not([open])")
    place = "document.getElementById(decodeURIComponent(location.hash.slice(1))).getBoundingClientRect().top"
    assert 0 <= page.evaluate(place) < 800
    context.close()


def test_the_page_of_quick_is_short_where_nothing_is_opened(browser: Browser, quick: Path) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = Visit(context, quick).page
    assert page.evaluate("document.documentElement.scrollHeight") <= 8 * 1800
    told = page.eval_on_selector_all(
        "main > details > summary, main > section > details > summary",
        "all => all.map(one => one.textContent).filter(one => !/\\d/.test(one))",
    )
    assert set(map(str.strip, told)) <= {"How to read this", "The plan"}, "what is folded says how much it is"
    context.close()


def test_a_narrow_screen_and_paper_show_every_answer_whole(browser: Browser, usual: Path) -> None:
    cut = """[...document.querySelectorAll('table.answers td, table.answers th[scope=row]')]
        .filter(cell => cell.getBoundingClientRect().right > document.documentElement.clientWidth + 1).length"""
    context = browser.new_context(viewport={"width": 400, "height": 800})
    page = Visit(context, usual).page
    assert page.evaluate(cut) == 0
    page.set_viewport_size({"width": 1031, "height": 700})  # of A4 across, with margins
    page.emulate_media(media="print")
    assert page.evaluate(cut) == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 1031
    assert page.evaluate(
        "[...document.querySelectorAll('th, td')].every(one => getComputedStyle(one).overflowWrap === 'break-word')"
    ), "a column is not narrower than its words"
    context.close()


def test_those_who_do_not_see_it_get_titles_texts_and_scopes(browser: Browser, usual: Path) -> None:
    context = browser.new_context()
    page = Visit(context, usual).page
    page.eval_on_selector_all("details", "all => all.forEach(one => { one.open = true; })")
    charts = page.eval_on_selector_all(
        ".chart", "all => all.map(one => [one.getAttribute('aria-label'), one.getAttribute('aria-describedby')])"
    )
    assert charts and all(label and text for label, text in charts)
    assert page.evaluate("[...document.querySelectorAll('table')].every(one => one.caption?.textContent.trim())")
    assert page.evaluate("[...document.querySelectorAll('th')].every(one => one.scope)")
    rows = "[...document.querySelectorAll('main tbody:not(#trial-rows) tr')]"
    assert page.evaluate(f"{rows}.every(one => one.querySelector('th'))"), "every row has a heading"
    levels = page.eval_on_selector_all("h1, h2, h3, h4", "all => all.map(one => +one.tagName[1])")
    assert levels[0] == 1 and all(after <= before + 1 for before, after in itertools.pairwise(levels))
    context.close()


def test_all_trials_can_be_opened_and_filtered(browser: Browser, usual: Path) -> None:
    context = browser.new_context()
    page = Visit(context, usual).page
    page.click("#all-trials summary")
    page.wait_for_selector("#trial-rows tr")
    assert page.locator("#trial-rows tr").count() == 200
    page.click("#trial-more")
    assert page.locator("#trial-rows tr").count() > 200
    page.fill("#trial-filter", "invalid gvisor")
    rows = page.locator("#trial-rows tr").all_inner_texts()
    assert rows
    assert all("invalid" in row and "gVisor" in row for row in rows)
    colours = "rows => [...new Set(rows.map(row => getComputedStyle(row).backgroundColor))]"
    invalid = page.eval_on_selector_all("#trial-rows tr", colours)
    page.fill("#trial-filter", "gvisor")
    valid = page.eval_on_selector_all("#trial-rows tr.status-valid", colours)
    assert len(invalid) == len(valid) == 1 and invalid != valid
    context.close()


def test_names_that_would_run_are_shown_and_do_not(browser: Browser, tmp_path: Path) -> None:
    arms = [
        SyntheticArm(arm_record("host", "host", EVIL, "reference")),
        SyntheticArm(arm_record("bad", "oci", EVIL, usable=False, reason=EVIL, fix=EVIL)),
    ]
    fields = {"plan_name": EVIL, "plan_text": f"# {EVIL}", "run_id": EVIL, "fingerprint": {EVIL: {"hostname": EVIL}}}
    facts = {"identity": {"cpu_model": EVIL, "kernel_release": EVIL}}
    hosts = tuple(HostRecord(f"{EVIL}{index}", index, facts, {}, ("host",)) for index in range(2))
    design = [("timer_cost", {"function": "clock_gettime", "load": "idle", EVIL: EVIL})]
    ledger = synthetic_ledger(tmp_path / "run", arms, 2, design, run=fields | {"hosts": hosts}, invalid_share=0.9)
    ledger.add_event(EVIL, EVIL)
    context = browser.new_context()
    visit = Visit(context, written(report.build(ledger), tmp_path / "report.html"))
    visit.page.click("#all-trials summary")
    visit.page.wait_for_selector("#trial-rows tr")
    visit.page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    visit.page.hover(".chart svg")
    assert visit.page.evaluate("window.pwned") is None
    assert visit.page.locator("img").count() == 0
    assert EVIL in visit.page.locator("table.answers").inner_text()
    assert f"{EVIL}1" in visit.page.locator("#hosts").inner_text()
    assert visit.complaints == []
    assert visit.requests == []
    context.close()


def test_an_empty_run_has_a_page_without_complaint(browser: Browser, tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "run", manifest([arm.record for arm in usual_arms()]))
    context = browser.new_context()
    visit = Visit(context, written(report.build(ledger), tmp_path / "report.html"))
    assert "no valid trial" in visit.page.inner_text("main")
    assert visit.complaints == []
    context.close()


def test_the_page_is_readable_without_scripts(browser: Browser, usual: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(usual.as_uri())
    text = page.inner_text("main")
    assert "no difference shown (even chance to see" in text
    assert "× the host" in (page.text_content("main") or "")  # sentences are folded
    assert "drawn by the scripts in this file" in (page.text_content("main") or "")  # figures are folded
    context.close()


def test_the_storage_suites_figures_are_drawn_with_their_axes(browser: Browser, tmp_path: Path) -> None:
    designs = [
        Design(flushes="rotational:7200", crashes=("server",)),
        Design(databases=("postgresql",), levels=("flushed",), operations=("knee", "mixed")),
        Design(databases=("mongodb",), levels=("flushed",), operations=("single-read",), index=(True, False)),
    ]
    built = report.build(storage_ledger(tmp_path / "run", designs=designs, blocks=3))
    context = browser.new_context(viewport={"width": 1366, "height": 800})
    visit = Visit(context, written(built, tmp_path / "report.html"))
    marks = visit.page.evaluate(MARKS)
    assert len(marks) > 30
    assert min(marks) >= 5, marks
    titles = visit.page.evaluate(
        "[...document.querySelectorAll('.chart svg .role-axis-title')].map(e => e.textContent)"
    )
    assert {"op/s", "rows/s", "clients", "operations/s offered", "p99 of the response"} <= set(titles)
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= 1366
    assert visit.complaints == []
    assert visit.requests == []
    context.close()


def test_the_isolation_suites_figures_are_drawn_and_numbers_on_colours_stand_out(
    browser: Browser, tmp_path: Path
) -> None:
    designs = [
        IsolationDesign(loads=("none", "integer"), on=("tested", "loading"), shares=(25, 75)),
        IsolationDesign(benchmarks=("latency", "wake"), loads=("none", "cache"), policies=("none",)),
        IsolationDesign(loads=("integer",), intensities=(25, 50, 100), policies=("none",)),
    ]
    built = report.build(isolation_ledger(tmp_path / "run", designs=designs, blocks=3))
    context = browser.new_context(viewport={"width": 1366, "height": 800})
    visit = Visit(context, written(built, tmp_path / "report.html"))
    drawn = """[...document.querySelectorAll('.chart')].map(chart =>
        chart.querySelectorAll('svg .role-mark path, svg .role-mark line').length)"""
    marks = visit.page.evaluate(drawn)
    assert len(marks) > 12
    assert min(marks) >= 1, marks
    numbers = visit.page.evaluate(
        """[...document.querySelectorAll('.chart svg .mark-text.role-mark text')].map(
            text => [text.textContent, getComputedStyle(text).fill === getComputedStyle(document.body).color])"""
    )
    numbers = [one for one in numbers if one[0]]  # published marks may have names, and none here do
    assert len(numbers) >= 12
    assert all(text.endswith("×") and stands_out for text, stands_out in numbers)
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= 1366
    assert visit.complaints == []
    assert visit.requests == []
    context.close()


def test_the_bandwidth_suites_figures_are_drawn_with_their_axes(browser: Browser, tmp_path: Path) -> None:
    built = report.build(bandwidth_ledger(tmp_path / "run", designs=PAPER, blocks=3))
    context = browser.new_context(viewport={"width": 1366, "height": 800})
    visit = Visit(context, written(built, tmp_path / "report.html"))
    marks = visit.page.evaluate(MARKS)
    assert len(marks) == 2 * 4 + 2 * 4 + 8 + 2 + 2 * 4  # the paper’s, errors, effects, gaps and lateness
    assert min(marks) >= 2, marks
    titles = visit.page.evaluate(
        "[...document.querySelectorAll('.chart svg .role-axis-title')].map(e => e.textContent)"
    )
    assert {"cross traffic, Mbit/s", "estimate, bit/s", "half the IQR, bit/s", "percentage points"} <= set(titles)
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= 1366
    assert visit.complaints == []
    assert visit.requests == []
    context.close()
