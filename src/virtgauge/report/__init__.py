"""What a run means: the ledger analysed, then shown as a page, in the terminal, or as JSON.

Reads only what measuring wrote, so a report can be made again at any time.
"""

from __future__ import annotations

from virtgauge.report.document import render_json
from virtgauge.report.findings import build
from virtgauge.report.model import Report
from virtgauge.report.page import render_html
from virtgauge.report.terminal import render_text

__all__ = ["Report", "build", "render_html", "render_json", "render_text"]
