"""What the hosts of a fleet say together, in sentences."""

from __future__ import annotations

from virtgauge.measures.catalogue import MEASURES
from virtgauge.report.hosts.model import HostFindings, HostRow, HostTest
from virtgauge.results.formatting import NONE
from virtgauge.results.quantities import significant


def sentence(findings: HostFindings) -> str:
    """What a first look is about."""
    hosts = f"{len(findings.hosts)} host{'' if len(findings.hosts) == 1 else 's'}"
    if not findings.tested:
        return f"{hosts}; whether they differ cannot be said with the repetitions at hand."
    differing = len(findings.differing)
    if not differing:
        return f"{hosts}; no difference between them was shown in any of {findings.tested} comparisons."
    return f"{hosts}; they differ in {differing} of {findings.tested} comparisons, so one ratio does not stand for all."


def host_caveats(findings: HostFindings | None) -> tuple[str, ...]:
    """What a reader must know before the figures, in which the hosts stand together."""
    if findings is None or not findings.differing:
        return ()
    return (
        f"Hosts differ in {len(findings.differing)} of {findings.tested} comparisons: figures of all hosts together do "
        "not stand for each of them (see Hosts).",
    )


def figure_text(row: HostRow, value: float | None) -> str:
    """A figure of a row in a person's unit."""
    suite, _, name = row.measure.partition(".")
    return MEASURES[suite][name].quantity.text(value)


def test_text(test: HostTest | None) -> str:
    """``differ, p = 0.003``, or why nothing can be said."""
    if test is None or test.differ is None:
        return NONE if test is None else test.reason
    return f"{'differ' if test.differ else 'no difference shown'}, {probability(test)}"


def probability(test: HostTest) -> str:
    """``p = 0.003``, adjusted; empty where the test could not be made."""
    if test.p_adjusted is None:
        return ""
    return "p < 0.001" if test.p_adjusted < 0.001 else f"p = {significant(test.p_adjusted, 2)}"
