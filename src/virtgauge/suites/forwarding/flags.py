"""What makes a forwarding result invalid, or has to be said with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from virtgauge.analysis.forwarding import LossAccounting
from virtgauge.ledger.records import Flag
from virtgauge.suites.forwarding.calibration import TesterCalibration
from virtgauge.suites.forwarding.searches.base import SearchResult

_NEAR_THE_LIMIT = 0.9


@dataclasses.dataclass(frozen=True)
class Conditions:
    """Under which a search was made.

    Attributes:
        calibration: of the tester.
        search: its outcome.
        medium_pps: the medium's highest rate; None without one.
        ledger: of the frames lost meanwhile.
        duplicates, reordered: frames, over all trials.
        late_share: part of the frames that left late in the trials at no more than the throughput.
        late_bound: what of that is bearable.
        unbound: why the guests' CPU limit is not in force; None where it is, or there is none.
    """

    calibration: TesterCalibration
    search: SearchResult
    medium_pps: float | None
    ledger: LossAccounting
    duplicates: int
    reordered: int
    late_share: float
    late_bound: float
    unbound: str | None = None


def flags_of(found: Conditions) -> Iterator[Flag]:
    """Every flag that applies."""
    throughput, limit = found.search.ndr.rate_pps, found.calibration.limit_pps
    if throughput is None:
        yield Flag("no-throughput", found.search.ndr.reason)
    elif found.medium_pps is not None and throughput >= 0.99 * found.medium_pps:
        detail = f"{throughput:,.0f} of the medium's {found.medium_pps:,.0f} frames/s: the device may be faster"
        yield Flag("medium-limited", detail, fatal=False)
    elif limit is not None and throughput >= _NEAR_THE_LIMIT * limit:
        yield Flag("generator-limited", f"{throughput:,.0f} frames/s of the tester's own {limit:,.0f} on a bare loop")
    if stretched := found.search.stretched:
        detail = f"{stretched} of {len(found.search.points)} trials could not be sent in time, and counted as failed"
        yield Flag("stretched", detail, fatal=False)
    if found.late_share > found.late_bound:
        yield Flag("late", f"{found.late_share:.1%} of the frames left late; {found.late_bound:.1%} is allowed")
    if found.unbound is not None:
        yield Flag("cpu-limit-unbound", found.unbound, fatal=False)
    if found.duplicates:
        yield Flag("duplicated", f"{found.duplicates} frames came more than once: a flow reaches two guests")
    if found.reordered:
        yield Flag("reordered", f"{found.reordered} frames came after later ones", fatal=False)
    if not (ledger := found.ledger).closed:
        yield Flag(
            "unclosed-ledger",
            f"of {ledger.lost} lost frames no counter explains {ledger.unattributed}, "
            f"and drop counters report {ledger.excess} that were not lost",
        )
