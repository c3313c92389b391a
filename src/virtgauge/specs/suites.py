"""The declarations of all suites."""

from __future__ import annotations

from virtgauge.specs.bandwidth import BANDWIDTH
from virtgauge.specs.forwarding import FORWARDING
from virtgauge.specs.imported import IMPORTED
from virtgauge.specs.isolation import ISOLATION
from virtgauge.specs.model import SuiteSpec
from virtgauge.specs.storage import STORAGE
from virtgauge.specs.timing import TIMING

SPECS: tuple[SuiteSpec, ...] = (TIMING, BANDWIDTH, FORWARDING, STORAGE, ISOLATION, IMPORTED)
