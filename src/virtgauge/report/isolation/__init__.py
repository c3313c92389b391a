"""The isolation suite's part of a report: what a noisy neighbour costs (Rzecki et al. 2014)."""

from __future__ import annotations

from virtgauge.report.isolation.report import IsolationReport

__all__ = ["IsolationReport"]
