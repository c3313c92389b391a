"""Para-virtual against fully emulated interfaces, cell by cell."""

from __future__ import annotations

from collections.abc import Sequence

from virtgauge.analysis.comparison import paired_ratio
from virtgauge.ledger.records import ArmRecord
from virtgauge.report.forwarding.cells import AT_THROUGHPUT
from virtgauge.report.forwarding.interfaces import pairs
from virtgauge.report.forwarding.model import InterfaceRatio
from virtgauge.report.forwarding.results import CellKey, Results


def interface_ratios(
    results: Results, keys: Sequence[CellKey], arms: Sequence[ArmRecord], nominal: float
) -> tuple[InterfaceRatio, ...]:
    """The ratios of every two arms that differ in their interfaces alone, in the cells that both were tried in.

    Args:
        keys: of all cells, in the report's order.
    """
    found = []
    for first, second in pairs(arms):
        for index, key in enumerate(keys):
            if not (results.tried(key, first.name) and results.tried(key, second.name)):
                continue
            throughput = [results.throughput_mbps(key, arm.name) for arm in (first, second)]
            latency = [results.latency_ns(key, arm.name, AT_THROUGHPUT) for arm in (first, second)]
            found.append(
                InterfaceRatio(
                    paravirtual=first.name,
                    emulated=second.name,
                    cell=index,
                    throughput=paired_ratio(throughput[0], throughput[1], nominal),
                    latency=paired_ratio(latency[0], latency[1], nominal),
                )
            )
    return tuple(found)
