"""The papers' conclusions that a run leaves open though it has figures of them: further repetitions may decide them."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator

from virtgauge.claims.verdicts import CheckedClaim, ClaimCheck, Verdict
from virtgauge.decisions.verdicts import Needed
from virtgauge.ledger.store import Ledger
from virtgauge.results.table import ResultTable
from virtgauge.specs.context import Context
from virtgauge.specs.suites import SPECS

Names = dict[str, list[str]]  # of conclusions, by suite; suites without any are left out


def open_claims(ledger: Ledger, most: int = sys.maxsize) -> tuple[Names, Names]:
    """Those that so many repetitions may decide, and those that stay undecided however often is repeated."""
    found: tuple[Names, Names] = ({}, {})
    for suite, one in _checked(ledger):
        heard = [hearing.checked for hearing in one.run if hearing.checked.verdict in _NO_VERDICT]
        is_open = any(may_decide(checked, most) for checked in heard)
        if is_open or (heard and len(heard) == len(one.run)):
            found[not is_open].setdefault(suite, []).append(one.paper.name)
    return found


def wanted_by(claims: Names, ledger: Ledger) -> tuple[dict[tuple[str, str], float], int]:
    """About how many more repetitions would decide each of these, by suite and name; and how many can be tested at all.

    Infinite where that cannot be told, or is more than four times as many as there are.
    """
    wanted, tested = {}, 0
    for suite, one in _checked(ledger):
        tested += any(hearing.checked.verdict is not Verdict.UNTESTABLE for hearing in one.run)
        if one.paper.name in claims.get(suite, ()):
            left = (hearing for hearing in one.run if hearing.checked.verdict in _NO_VERDICT)
            wanted[suite, one.paper.name] = max(
                hearing.more() for hearing in left if may_decide(hearing.checked, sys.maxsize)
            )
    return wanted, tested


def _checked(ledger: Ledger) -> Iterator[tuple[str, ClaimCheck]]:
    """Every conclusion about the suites of a run, with the suite."""
    table = ResultTable(ledger)
    for spec in SPECS:
        if spec.name in table.suites:
            table.read(spec.measures)
            yield from ((spec.name, one) for one in spec.claims(Context(spec, table, table.arms, {})))


_NO_VERDICT = (Verdict.UNDECIDED, Verdict.UNTESTABLE)


def may_decide(checked: CheckedClaim, most: float) -> bool:
    """Whether so many repetitions may confirm it: a single part that never will is enough for it to stay open."""
    return max((one.needs for one in checked.evidence if one.agrees is None), default=math.inf) <= most


def needed_for_claims(claims: Names, ledger: Ledger) -> Needed:
    """What to measure for these: every cell of their suites, on what decides and on what that is compared with."""
    arms = {arm.name for arm in ledger.manifest().arms if arm.usable and (not arm.emulated or arm.role != "test")}
    return lambda arm, cell: cell.suite in claims and arm in arms
