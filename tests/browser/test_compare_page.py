"""The page of a comparison in a real browser without any network: drawn, within its width, and no name that acts."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from compared_runs import MEDIAN, ledger_of
from playwright.sync_api import Browser, Route, sync_playwright
from synthetic import arm_record

from virtgauge.compare.comparison import Wanted, compare_runs, compare_series
from virtgauge.compare.document import document

pytestmark = pytest.mark.slow

CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
DRAWN = "html[data-figures=drawn]"
MARKS = """[...document.querySelectorAll('.chart')].map(
    chart => chart.querySelectorAll('svg .mark-symbol path, svg .mark-rule line').length)"""
EVIL = '</script><script>window.pwned=1</script><img src=x onerror="window.pwned=2">\'"><svg onload=window.pwned=3>'
ARMS = [
    arm_record("host", "host", EVIL, "reference"),
    arm_record("host-aa", "host", EVIL, "aa"),
    arm_record("guest", "oci", f"{EVIL}2"),
]
DESIGN = [("timer_cost", {"function": "rdtscp", "load": "idle", EVIL: level}) for level in (EVIL, "tame")]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Runs of which every name and fact is hostile, the last two with a slower guest."""
    root = tmp_path_factory.mktemp("hostile")
    return [
        ledger_of(
            root / f"run-{day}",
            day,
            guest=1.0 if day <= 2 else 1.5,
            day=day,
            arms=ARMS,
            design=DESIGN,
            run_id=f"{EVIL}{day}",
            fingerprint={"hostname": f"{EVIL}{day}"},
        )
        for day in range(1, 5)
    ]


@pytest.mark.parametrize(("kind", "width"), [("comparison", 1366), ("series", 390)])
def test_hostile_names_are_drawn_and_do_nothing(
    browser: Browser, folders: list[Path], tmp_path: Path, kind: str, width: int
) -> None:
    found = (
        compare_series(folders, Wanted([MEDIAN]))
        if kind == "series"
        else compare_runs([folders[0], folders[3]], Wanted([MEDIAN]))
    )
    complaints: list[str] = []
    requests: list[str] = []

    def only_the_file(route: Route) -> None:
        if route.request.url.startswith(("file:", "data:", "blob:")):
            route.continue_()
        else:
            requests.append(route.request.url)
            route.abort()

    (tmp_path / "compare.html").write_text(document(found).html(), encoding="utf-8")
    context = browser.new_context(viewport={"width": width, "height": 800})
    context.set_offline(True)
    context.route("**/*", only_the_file)
    page = context.new_page()
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto((tmp_path / "compare.html").as_uri())
    page.wait_for_selector(DRAWN, state="attached", timeout=120_000)
    marks = page.evaluate(MARKS)
    assert marks
    assert min(marks) >= 4, marks
    page.locator(".chart svg .mark-symbol path").first.hover(force=True)
    assert page.evaluate("window.pwned") is None
    assert page.locator("img").count() == 0
    assert EVIL in page.locator("#differs").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert complaints == []
    assert requests == []
    context.close()
