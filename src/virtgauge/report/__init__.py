"""What a run means: the ledger analysed, then shown as a page or in the terminal.

Reads only what measuring wrote, so a report can be made again at any time.
"""

from __future__ import annotations

from virtgauge.report.last_screen import Place, print_last_screen
from virtgauge.report.model import Report, build
from virtgauge.report.page import render_html
from virtgauge.report.terminal import render_text

__all__ = ["Place", "Report", "build", "print_last_screen", "render_html", "render_text"]
