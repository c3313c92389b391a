"""First figures: what can be measured before everything that a plan needs is there.

Building takes minutes, and a person waits.  So the reference and the platforms that are ready (a container, as a rule)
are measured by the plan's first design that is ready, before the rest is built.  That is a run of its own in the run's
folder, without an A/A pair; the comparison repeats it, with all platforms in each block.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from virtgauge.execution.prepare import Design
from virtgauge.plan.design_scope import DesignScope
from virtgauge.plan.model import Plan
from virtgauge.suites.registry import SUITES

FOLDER = "first-figures"
"""Below the run's folder."""
_REPETITIONS = 6
"""At most: with so many, the range is a 95 % interval of the median."""
_LONGEST_S = 60.0
"""A design that takes longer is no first look; it is measured with all platforms only."""


def first_figures(plan: Plan, design: Design, missing: Collection[str]) -> Plan | None:
    """The plan of the first figures.

    Args:
        plan: what is to be run.
        design: its checked content.
        missing: names of the parts that are not there yet and take long to provide.

    Returns:
        None where nothing is missing, or where it leaves no platform beside the reference, or nothing to measure.
    """
    ready = [section for section in plan.platform if not set(missing) & set(design.platforms[section.name].needs())]
    names = {section.name for section in ready}
    if not missing or plan.reference not in names or len(names) < 2:
        return None
    suite = _first_suite(plan, names, missing, _LONGEST_S / min(plan.repetitions, _REPETITIONS) / len(names))
    if suite is None:
        return None
    return plan.model_copy(
        update={
            "name": f"{plan.name}-{FOLDER}",
            "platform": tuple(ready),
            "suite": suite,
            "repetitions": min(plan.repetitions, _REPETITIONS),
            "aa": False,
            "require": (),
            "profile": (),
            "budget": None,
        }
    )


def _first_suite(
    plan: Plan, names: set[str], missing: Collection[str], longest_s: float
) -> dict[str, tuple[dict[str, Any], ...]] | None:
    """The first design that all these platforms can be measured by now, in at most so many seconds each."""
    for name, sections in plan.suite.items():
        for section in sections:
            scope, settings = DesignScope.split(section)
            suite = SUITES[name].create(settings)
            for_all = scope.platforms is None or names <= set(scope.platforms)
            short = sum(cell.expected_s for cell in suite.cells()) <= longest_s
            if for_all and short and not set(suite.needs()) & set(missing):
                return {name: (section,)}
    return None
