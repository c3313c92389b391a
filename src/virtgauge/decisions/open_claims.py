"""The papers' conclusions that a run leaves open though it has figures of them: further repetitions may decide them."""

from __future__ import annotations

from virtgauge.claims.verdicts import CheckedClaim, Verdict
from virtgauge.decisions.verdicts import Needed
from virtgauge.ledger.store import Ledger
from virtgauge.results.table import ResultTable
from virtgauge.specs.context import Context
from virtgauge.specs.suites import SPECS


def open_claims(ledger: Ledger) -> dict[str, list[str]]:
    """Their names, by suite; suites without any are left out."""
    table = ResultTable(ledger)
    found: dict[str, list[str]] = {}
    for spec in SPECS:
        if spec.name in table.suites:
            table.read(spec.measures)
            checks = spec.claims(Context(spec, table, table.arms, {}))
            names = [one.paper.name for one in checks if any(_is_open(hearing.checked) for hearing in one.run)]
            found |= {spec.name: names} if names else {}
    return found


def _is_open(checked: CheckedClaim) -> bool:
    return checked.verdict is Verdict.UNDECIDED and any(one.measured and one.agrees is None for one in checked.evidence)


def needed_for_claims(claims: dict[str, list[str]], ledger: Ledger) -> Needed:
    """What to measure for these: every cell of their suites, on what decides and on what that is compared with."""
    arms = {arm.name for arm in ledger.manifest().arms if arm.usable and (not arm.emulated or arm.role != "test")}
    return lambda arm, cell: cell.suite in claims and arm in arms
