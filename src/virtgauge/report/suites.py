"""The suites' reports by the suite's name, in the order in which a page shows them."""

from __future__ import annotations

from collections.abc import Callable

from virtgauge.report.bandwidth import BandwidthReport
from virtgauge.report.forwarding import ForwardingReport
from virtgauge.report.imported import ImportedReport
from virtgauge.report.isolation import IsolationReport
from virtgauge.report.sections import SuiteRecords
from virtgauge.report.spec_report import SpecReport
from virtgauge.report.storage import StorageReport
from virtgauge.report.timing import TimingReport

SUITE_REPORTS: dict[str, Callable[[SuiteRecords], SpecReport]] = {
    TimingReport.suite: TimingReport,
    BandwidthReport.suite: BandwidthReport,
    ForwardingReport.suite: ForwardingReport,
    StorageReport.suite: StorageReport,
    IsolationReport.suite: IsolationReport,
    ImportedReport.suite: ImportedReport,
}
