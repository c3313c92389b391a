"""The server of runs in a real browser: a run that grows, reports, names that would run, the token, the keyboard."""

from __future__ import annotations

import contextlib
import http.client
import re
import shutil
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright
from served_runs import EVIL, HOST, add_block, served, under_way
from synthetic import SyntheticArm, arm_record, cells, manifest, synthetic_ledger
from waiting import wait_until

from virtgauge.ledger.records import SCHEDULED
from virtgauge.ledger.store import Ledger

pytestmark = pytest.mark.slow

CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
ARGUMENTS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
GVISOR = arm_record("gvisor", "oci", "gVisor")
FEW = list(cells(timers=("rdtsc",), sleeps=(), loads=("idle",)))
expect.set_options(timeout=30_000)  # a page is no slower than that, however the machine pauses
TOKEN = "a-token-of-the-tests-long-enough"


def served_often(*folders: Path, token: str | None = None) -> AbstractContextManager[str]:
    """With pages that ask for themselves ten times a second."""
    return served(*folders, token=token, ask_every_s=0.1)


class Visit:
    """A page with everything that it complained about or asked elsewhere."""

    def __init__(self, context: BrowserContext, address: str) -> None:
        self.complaints: list[str] = []
        self.elsewhere: list[str] = []
        self.page: Page = context.new_page()
        self.page.set_default_timeout(20_000)
        self.page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self._asked(request.url, address))
        self.page.goto(address)

    def _asked(self, url: str, address: str) -> None:
        if not url.startswith((address.split("?")[0], "data:")):
            self.elsewhere.append(url)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield chromium
        chromium.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    with browser.new_context() as context:
        yield context


def grow(folder: Path, go_on: threading.Event) -> None:
    """Append repetitions as a run does: the first at once, each further one when it is asked for."""
    rng = np.random.default_rng(1)
    plan = "repetitions = 3\n"
    with Ledger.create(folder, manifest([HOST, GVISOR], plan_text=plan)) as ledger:
        ledger.add_event("started", "virtgauge")
        ledger.add_event(SCHEDULED, "12 trials")
        for block in range(3):
            add_block(ledger, block, {"host": 20.0, "gvisor": 900.0}, rng, [HOST, GVISOR])
            assert go_on.wait(60)
            go_on.clear()
        ledger.add_event("completed", "")


def test_a_run_that_grows_is_followed_without_reloading_and_keeps_what_the_reader_did(
    context: BrowserContext, tmp_path: Path
) -> None:
    folder, go_on = tmp_path / "now", threading.Event()
    folder.mkdir()
    with under_way(folder), served_often(tmp_path) as address:
        writer = threading.Thread(target=grow, args=(folder, go_on))
        writer.start()
        try:
            visit = Visit(context, address)
            page = visit.page
            page.click("text=now")
            expect(page.locator("#valid")).to_have_text("4")
            page.evaluate("window.sameDocument = true")
            page.click("#figures-1 summary")  # closed by the reader
            page.focus("#figures-2 summary")
            go_on.set()
            expect(page.locator("#valid")).to_have_text("8")
            expect(page.locator("#figures-2")).to_contain_text("n = 2")
            assert page.evaluate("document.querySelector('progress').value") == pytest.approx(8 / 12, abs=1e-3)
            assert not page.evaluate("document.getElementById('figures-1').open")
            go_on.set()
            expect(page.locator("#valid")).to_have_text("12")
            assert page.evaluate("window.sameDocument")
        finally:
            go_on.set()
            writer.join(60)
    assert [one for one in visit.complaints if "ERR_CONNECTION" not in one] == []
    assert visit.elsewhere == []


def test_the_list_follows_too_and_a_focused_link_stays_focused(context: BrowserContext, tmp_path: Path) -> None:
    folder = tmp_path / "now"
    with Ledger.create(folder, manifest([HOST])) as ledger, under_way(folder), served_often(tmp_path) as address:
        ledger.add_event("started", "virtgauge")
        visit = Visit(context, address)
        page = visit.page
        expect(page.locator("tbody tr")).to_contain_text("0 valid")
        page.keyboard.press("Tab")
        expect(page.locator(".skip")).to_be_focused()
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        link = page.locator("tbody a")
        expect(link).to_be_focused()
        add_block(ledger, 0, {"host": 20.0}, np.random.default_rng(1), [HOST])
        expect(page.locator("tbody tr")).to_contain_text("2 valid")
        expect(link).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_have_text("now")
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        expect(page.locator("#to-runs")).to_be_focused()
        page.keyboard.press("Tab")
        expect(page.locator("#figures-1 summary")).to_be_focused()
        page.keyboard.press("Space")
        assert not page.evaluate("document.getElementById('figures-1').open")
    assert visit.complaints == []


def test_nothing_is_asked_while_the_page_is_hidden(context: BrowserContext, tmp_path: Path) -> None:
    synthetic_ledger(tmp_path / "now", blocks=1, design=FEW, finished=False).close()
    hide = "Object.defineProperty(document, 'hidden', {configurable: true, get: () => window.away === true})"
    context.add_init_script(hide)
    with under_way(tmp_path / "now"), served_often(tmp_path) as address:
        visit = Visit(context, address)
        asked: list[str] = []
        visit.page.on("request", lambda request: asked.append(request.url))
        with visit.page.expect_response(lambda answer: answer.status in (200, 304)):
            pass
        visit.page.evaluate("window.away = true; document.dispatchEvent(new Event('visibilitychange'))")
        asked.clear()
        visit.page.wait_for_timeout(500)  # five times the interval at which it asks
        assert asked == []
        with visit.page.expect_response(lambda answer: answer.status in (200, 304)):
            visit.page.evaluate("window.away = false; document.dispatchEvent(new Event('visibilitychange'))")


def test_the_token_opens_once_and_a_finished_report_opens_and_reaches_nothing(
    context: BrowserContext, tmp_path: Path
) -> None:
    from virtgauge import report

    with synthetic_ledger(tmp_path / "whole", blocks=2, design=FEW) as ledger:
        text = report.render_html(report.build(ledger))
    spy = "<script>fetch('/').then(() => document.title = 'reached')</script>"
    (tmp_path / "whole" / "report.html").write_text(text)
    synthetic_ledger(tmp_path / "foreign", blocks=1, design=FEW).close()
    (tmp_path / "foreign" / "report.html").write_text(f"<title>quiet</title><script>window.ran = true</script>{spy}")
    with served_often(tmp_path, token=TOKEN) as address:
        shut = context.new_page()
        shut.goto(address)
        assert shut.inner_text("body").startswith("401")
        visit = Visit(context, f"{address}/?token={TOKEN}")
        assert visit.page.url == f"{address}/"
        assert visit.page.evaluate("document.cookie") == ""  # it is there, and no script's business
        visit.page.click("text=whole")
        visit.page.click("#to-report")
        visit.page.wait_for_selector("html[data-figures=drawn]", state="attached")
        assert visit.page.locator(".chart svg").count() >= 2
        assert visit.complaints == []
        visit.page.goto(address)
        visit.page.click("text=foreign")
        visit.page.click("#to-report")
        assert visit.page.evaluate("window.ran")  # a report is a page with scripts …
        visit.page.wait_for_timeout(200)
        assert visit.page.title() == "quiet"  # … that reaches nothing
        assert visit.page.evaluate("self.origin") == "null"
        with pytest.raises(Exception, match="sandboxed"):
            visit.page.evaluate("document.cookie")


def test_names_that_would_run_are_shown_and_do_not(context: BrowserContext, tmp_path: Path) -> None:
    arms = [
        SyntheticArm(arm_record("host", "host", EVIL, "reference")),
        SyntheticArm(arm_record("bad", EVIL, EVIL, usable=False, reason=EVIL, fix=EVIL)),
    ]
    fields = {"plan_name": EVIL, "run_id": EVIL, "fingerprint": {"hostname": EVIL}}
    design = [("timer_cost", {"function": "rdtsc", "load": "idle", EVIL: EVIL})]
    name = "\"onmouseover=window.pwned=5 '<svg onload=window.pwned=4>"
    with synthetic_ledger(tmp_path / name, arms, 2, design, run=fields, invalid_share=1, finished=False) as ledger:
        ledger.add_event(EVIL, EVIL)
        with under_way(tmp_path / name), served_often(tmp_path) as address:
            visit = Visit(context, address)
            page = visit.page
            expect(page.locator("tbody a")).to_have_text(name)
            page.hover("tbody a")
            page.click("tbody a")
            expect(page.locator("h1")).to_have_text(name)
            before = page.locator("#valid").inner_text()
            add_block(ledger, 7, {"host": 20.0}, np.random.default_rng(1), [HOST])  # so that parts are replaced
            expect(page.locator("#valid")).not_to_have_text(before)
            assert EVIL in page.locator("main").inner_text()
            assert page.locator("img, svg, main script, iframe").count() == 0
            assert page.evaluate("window.pwned") is None
            assert visit.complaints == []
            assert visit.elsewhere == []
            # And were one of them to get in, the page's policy would stop it.
            page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.pwned=1\">')")
            page.evaluate(
                "const s = document.createElement('script'); s.textContent = 'window.pwned=2'; document.body.append(s)"
            )
            page.wait_for_timeout(100)
            assert page.evaluate("window.pwned") is None
            assert any("Content Security Policy" in one for one in visit.complaints)


def test_no_page_scrolls_sideways(context: BrowserContext, tmp_path: Path) -> None:
    synthetic_ledger(tmp_path / ("long-name-" * 12), blocks=1, invalid_share=0.1, finished=False).close()
    with served_often(tmp_path) as address:
        page = Visit(context, address).page
        for width in (400, 1024):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.click("tbody a")
        expect(page.locator("#valid")).to_have_text("90")
        for width in (400, 1024):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_command_serves_until_ctrl_c_and_leaves_nothing(tmp_path: Path) -> None:
    synthetic_ledger(tmp_path / "runs" / "whole", blocks=1, design=FEW).close()
    command = [sys.executable, "-m", "virtgauge.cli", "serve"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    page = urllib.request.urlopen(address, timeout=30).read().decode()
    assert "whole" in page
    (path,) = re.findall(r'href="(/run/[0-9a-f]{16})"', page)
    with contextlib.closing(http.client.HTTPConnection(address.removeprefix("http://").strip("/"))) as connection:
        connection.request("GET", path + "/report")  # the answer of which would take seconds
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        wait_until("a child", children.read_text)
        (maker,) = map(int, children.read_text().split())
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert not Path(f"/proc/{maker}").exists()
    assert process.returncode == 0
    assert said == "virtgauge serves runs (read-only; Ctrl-C ends it):\n"
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(address, timeout=30)
