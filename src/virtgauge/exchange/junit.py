"""Cases as JUnit XML, which every CI server reads.

The form is that of Maven Surefire as Jenkins' xUnit plugin has it in its schema: suites of cases, and in a case a
``failure``, an ``error`` or ``skipped``.  There a case has no properties, so what belongs to one case stands as lines
``name: value`` in its ``system-out``.
"""

from __future__ import annotations

import dataclasses
import enum
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from xml.etree import ElementTree

from virtgauge.exchange.xml import child, document, xml_text


class Outcome(enum.StrEnum):
    """How a case ended.

    An inconclusive one is an ``error``, not ``skipped``: a CI job that counts skipped cases as good would accept a
    platform of which nothing has been shown.  Its type tells it from a failure of the measurement.
    """

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    ERROR = "error"
    SKIPPED = "skipped"


_ELEMENTS = {
    Outcome.FAIL: "failure",
    Outcome.INCONCLUSIVE: "error",
    Outcome.ERROR: "error",
    Outcome.SKIPPED: "skipped",
}


@dataclasses.dataclass(frozen=True)
class Case:
    """One thing that was examined on one platform.

    Attributes:
        suite: the heading below which it stands, as a rule the platform.
        classname: what it belongs to: ``virtgauge.timing``.
        name: unique within suite and classname.
        outcome: how it ended.
        message: why, in a line; of one that passed, what was found.
        seconds: how long its trials took together; None where that is not known.
        properties: what else a reader may want, in their order.
        detail: more lines on why it did not pass.
    """

    suite: str
    classname: str
    name: str
    outcome: Outcome
    message: str = ""
    seconds: float | None = None
    properties: Mapping[str, str] = dataclasses.field(default_factory=dict)
    detail: str = ""


def junit(cases: Iterable[Case], name: str, timestamp: str = "", properties: Mapping[str, str] | None = None) -> str:
    """The document: a suite for each name of one, in the order of the cases.

    Args:
        cases: any number.
        name: of the whole: the plan's.
        timestamp: when the run began, ISO 8601.
        properties: of the run, in every suite: CI servers show only what stands there.
    """
    suites: dict[str, list[Case]] = {}
    for case in cases:
        suites.setdefault(case.suite, []).append(case)
    root = ElementTree.Element("testsuites")
    _count(root, name, [case for own in suites.values() for case in own])
    for title, own in suites.items():
        suite = child(root, "testsuite")
        counts = _count(suite, title, own)
        suite.set("skipped", str(counts["skipped"]))
        if timestamp:
            # Without fraction and zone, as Surefire writes it.
            suite.set("timestamp", timestamp[:19])
        if properties:
            listed = child(suite, "properties")
            for key, value in properties.items():
                child(listed, "property", name=key, value=value)
        for case in own:
            _case(suite, case)
    return document(root)


def _count(element: ElementTree.Element, name: str, cases: Sequence[Case]) -> Counter[str]:
    counts = Counter(_ELEMENTS.get(case.outcome, "") for case in cases)
    known = [case.seconds for case in cases if case.seconds is not None]
    for key, value in (
        ("name", name),
        ("tests", str(len(cases))),
        ("failures", str(counts["failure"])),
        ("errors", str(counts["error"])),
        ("time", f"{sum(known):.3f}"),
    ):
        element.set(key, xml_text(value))
    return counts


def _case(suite: ElementTree.Element, case: Case) -> None:
    made = child(suite, "testcase", classname=case.classname, name=case.name)
    if case.seconds is not None:
        made.set("time", f"{case.seconds:.3f}")
    if case.outcome in _ELEMENTS:
        text = case.detail or None
        child(made, _ELEMENTS[case.outcome], text, type=case.outcome.value, message=case.message)
    lines = [f"{key}: {value}" for key, value in case.properties.items()]
    if case.outcome is Outcome.PASS and case.message:
        lines.insert(0, case.message)
    if lines:
        child(made, "system-out", "\n".join(lines))
