"""The papers' claims in a real browser: every one in sight of its figures, and no name that acts."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser.test_report_page import EVIL, Visit, browser
from playwright.sync_api import Browser
from replay_runs import replay_arms, timing_replay
from synthetic import SyntheticArm, arm_record

from virtgauge import report

pytestmark = pytest.mark.slow
__all__ = ["browser"]  # the fixture


def test_every_claim_is_shown_with_its_verdict_and_no_name_acts(tmp_path: Path, browser: Browser) -> None:
    arms = replay_arms(SyntheticArm(arm_record("kvm", "qemu", EVIL), 1.3, 1.3))
    built = report.build(timing_replay(tmp_path / "run", arms=arms, blocks=6))
    path = tmp_path / "report.html"
    path.write_text(report.render_html(built), encoding="utf-8")
    assert built.replay is not None
    context = browser.new_context(viewport={"width": 1300, "height": 900})
    visit = Visit(context, path)
    page = visit.page
    page.click("nav a[href='#papers']")
    claims = sum(len(part.claims) for part in built.replay.parts)
    assert page.locator("#papers tr[id^='claim-'] td.judged .badge").count() == claims
    row = page.locator("#claim-timing-cost-tsc-faster")
    assert row.locator(".badge").first.inner_text() == "confirmed"
    assert "System Call ÷ TSC, Host, Idle System" in row.locator(".evidence li").first.inner_text()
    assert row.bounding_box() is not None
    other = page.locator("#claims-storage > summary")
    assert "not part of this run" in other.inner_text()
    rows = page.locator("tr[id^='claim-storage-']")
    assert not rows.first.is_visible(), "what was not measured is folded"
    other.click()
    assert rows.first.is_visible()
    # Nothing is wider than the page: a table that must be scrolled sideways would hide its verdicts.
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert page.evaluate("window.pwned") is None
    assert (visit.complaints, visit.requests) == ([], [])
    context.close()
