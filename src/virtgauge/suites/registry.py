"""The suites by name."""

from __future__ import annotations

from virtgauge.suites.bandwidth.suite import BandwidthSuite
from virtgauge.suites.base import Suite
from virtgauge.suites.forwarding.suite import ForwardingSuite
from virtgauge.suites.isolation.suite import IsolationSuite
from virtgauge.suites.storage.suite import StorageSuite
from virtgauge.suites.timing import TimingSuite

SUITES: dict[str, type[Suite]] = {
    suite.name: suite for suite in (TimingSuite, ForwardingSuite, StorageSuite, IsolationSuite, BandwidthSuite)
}
