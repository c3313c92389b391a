"""What other tools measured and somebody imported, beside the reference."""

from __future__ import annotations

from virtgauge.report.imported.report import ImportedReport

__all__ = ["ImportedReport"]
