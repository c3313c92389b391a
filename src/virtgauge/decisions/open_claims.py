"""The papers' conclusions that a run leaves open though it has figures of them: further repetitions may decide them."""

from __future__ import annotations

import sys

from virtgauge.claims.verdicts import CheckedClaim, Verdict, of_platforms
from virtgauge.decisions.verdicts import Needed
from virtgauge.ledger.store import Ledger
from virtgauge.results.table import ResultTable
from virtgauge.specs.suites import contexts_of

# Of conclusions, by suite; suites without any are left out. False where other platforms decide it as a whole
Names = dict[str, dict[str, bool]]
_NO_VERDICT = (Verdict.UNDECIDED, Verdict.UNTESTABLE)


def open_claims(ledger: Ledger, most: int = sys.maxsize) -> tuple[Names, Names]:
    """Those that so many repetitions may decide on some platform, and those that stay so however often is repeated."""
    table = ResultTable(ledger)
    found: tuple[Names, Names] = ({}, {})
    for context in contexts_of(table):
        table.read(context.spec.measures)
        for one in context.spec.claims(context):
            heard = [hearing.checked for hearing in one.run if hearing.checked.verdict in _NO_VERDICT]
            is_open = any(_may_decide(checked, most) for checked in heard)
            if is_open or (heard and len(heard) == len(one.run)):
                as_a_whole = of_platforms(one.run) in _NO_VERDICT
                found[not is_open].setdefault(context.spec.name, {})[one.paper.name] = as_a_whole
    return found


def _may_decide(checked: CheckedClaim, most: float) -> bool:
    return any(one.agrees is None and one.needs <= most for one in checked.evidence)


def needed_for_claims(claims: Names, ledger: Ledger) -> Needed:
    """What to measure for these: every cell of their suites, on what decides and on what that is compared with."""
    arms = {arm.name for arm in ledger.manifest().arms if arm.usable and (not arm.emulated or arm.role != "test")}
    return lambda arm, cell: cell.suite in claims and arm in arms
