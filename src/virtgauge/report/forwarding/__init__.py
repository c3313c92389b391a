"""The forwarding suite's part of a report: packets through many virtual routers (Batalla et al. 2016)."""

from __future__ import annotations

from virtgauge.report.forwarding.report import ForwardingReport

__all__ = ["ForwardingReport"]
