"""Two runs or more side by side: what changed, what did not, and since when."""

from __future__ import annotations

from virtgauge.compare.comparison import Wanted, compare_runs, compare_series, render_json
from virtgauge.compare.document import document
from virtgauge.compare.model import Comparison, SeriesComparison

__all__ = ["Comparison", "SeriesComparison", "Wanted", "compare_runs", "compare_series", "document", "render_json"]
