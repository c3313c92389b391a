"""The storage suite's part of a report: sensor data on databases (van der Veen et al. 2012)."""

from __future__ import annotations

from virtgauge.report.storage.report import StorageReport

__all__ = ["StorageReport"]
