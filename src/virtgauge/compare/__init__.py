"""Two runs or more side by side: what changed, what did not, and since when."""

from __future__ import annotations

from virtgauge.compare.comparison import compare_runs, compare_series, render_json
from virtgauge.compare.model import Comparison, Finding, SeriesComparison
from virtgauge.compare.page import render_html
from virtgauge.compare.terminal import render_text

__all__ = [
    "Comparison",
    "Finding",
    "SeriesComparison",
    "compare_runs",
    "compare_series",
    "render_html",
    "render_json",
    "render_text",
]
