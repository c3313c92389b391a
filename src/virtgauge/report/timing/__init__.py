"""The timing suite's part of a report: clocks and sleeps (Kirova et al. 2019)."""

from __future__ import annotations

from virtgauge.report.timing.report import TimingReport

__all__ = ["TimingReport"]
