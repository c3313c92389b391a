"""The bandwidth suite's part of a report: what estimates of available bandwidth are worth (Kirova et al. 2019)."""

from __future__ import annotations

from virtgauge.report.bandwidth.report import BandwidthReport

__all__ = ["BandwidthReport"]
