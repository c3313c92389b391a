"""XML documents of texts that a run does not choose: JUnit of cases for CI, and Phoronix results of figures."""

from __future__ import annotations

import dataclasses
import enum
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from xml.etree import ElementTree

import numpy as np

from virtgauge import __version__
from virtgauge.decisions.decisions import Decisions, ReportedRequirement
from virtgauge.decisions.verdicts import Verdict
from virtgauge.errors import UsageError, printable
from virtgauge.exchange.figures import Figure, cell_text
from virtgauge.exchange.trials import reason_of
from virtgauge.ledger.records import ArmRecord, Manifest, TrialStatus, moment
from virtgauge.report.requirements import conditions_text, margin_text, more_text
from virtgauge.results.columns import Cell, Tried, read_marks
from virtgauge.results.measure import Better
from virtgauge.results.table import ResultTable
from virtgauge.specs.suites import row_labels


def child(parent: ElementTree.Element, tag: str, text: str | None = None, /, **attributes: str) -> ElementTree.Element:
    """A new element within another; what does not print, which XML cannot hold either, is replaced."""
    made = ElementTree.SubElement(parent, tag, {key: printable(value, lines=True) for key, value in attributes.items()})
    if text is not None:
        made.text = printable(text, lines=True)
    return made


def document(root: ElementTree.Element) -> str:
    """The document, indented, in UTF-8."""
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'


Outcome = enum.StrEnum("Outcome", "PASS FAIL INCONCLUSIVE ERROR SKIPPED")
"""How a case ended: as a verdict does, or in ways of its own.

An inconclusive one is an ``error``, not ``skipped``: a CI job that counts skipped cases as good would accept a platform
of which nothing has been shown.  Its type tells it from a failure of the measurement.
"""

_ELEMENTS = {Outcome.FAIL: "failure", Outcome.INCONCLUSIVE: "error", Outcome.ERROR: "error", Outcome.SKIPPED: "skipped"}


@dataclasses.dataclass(frozen=True)
class Case:
    """One thing that was examined on one platform."""

    suite: str  # the heading below which it stands, as a rule the platform
    classname: str  # what it belongs to: ``virtgauge.timing``
    name: str  # unique within suite and classname
    outcome: Outcome  # how it ended
    message: str = ""  # why, in a line; of one that passed, what was found
    seconds: float | None = None  # how long its trials took together; None where that is not known
    # what else a reader may want, in their order
    properties: Mapping[str, str] = dataclasses.field(default_factory=dict)
    detail: str = ""  # more lines on why it did not pass


def junit(cases: Iterable[Case], name: str, timestamp: str = "", properties: Mapping[str, str] | None = None) -> str:
    """The document: a suite for each name of one, of which the cases stand together.

    The properties of the run stand in every suite: CI servers show only what stands there.
    """
    every, root = list(cases), ElementTree.Element("testsuites")
    _count(root, name, every)
    for title, together in itertools.groupby(every, lambda case: case.suite):
        suite, own = child(root, "testsuite"), list(together)
        counts = _count(suite, title, own)
        suite.set("skipped", str(counts["skipped"]))
        if timestamp:
            suite.set("timestamp", timestamp[:19])  # without fraction and zone, as Surefire writes it
        if properties:
            listed = child(suite, "properties")
            for key, value in properties.items():
                child(listed, "property", name=key, value=value)
        for case in own:
            _case(suite, case)
    return document(root)


def _count(element: ElementTree.Element, name: str, cases: Sequence[Case]) -> Counter[str]:
    counts = Counter(_ELEMENTS.get(case.outcome, "") for case in cases)
    seconds = sum(case.seconds or 0.0 for case in cases)
    element.attrib.update(name=printable(name, lines=True), tests=str(len(cases)), failures=str(counts["failure"]))
    element.attrib.update(errors=str(counts["error"]), time=f"{seconds:.3f}")
    return counts


def _case(suite: ElementTree.Element, case: Case) -> None:
    made = child(suite, "testcase", classname=case.classname, name=case.name)
    if case.seconds is not None:
        made.set("time", f"{case.seconds:.3f}")
    if case.outcome in _ELEMENTS:
        child(made, _ELEMENTS[case.outcome], case.detail or None, type=case.outcome.value, message=case.message)
    lines = [f"{key}: {value}" for key, value in case.properties.items()]
    if case.outcome is Outcome.PASS and case.message:
        lines.insert(0, case.message)
    if lines:
        child(made, "system-out", "\n".join(lines))


def verdict_cases(decisions: Decisions, table: ResultTable) -> list[Case]:
    """The cases of a run, platform by platform; empty of one that requires nothing."""
    required = {one.name: one for one in decisions.requirements}
    judged = {number for verdict in decisions.verdicts for cell in verdict.cells for number in cell.trials}
    seconds = {mark.number: mark.elapsed_ns / 1e9 for mark in read_marks(table.ledger) if mark.number in judged}
    labels = row_labels(table.arms)
    return [
        _verdict_case(verdict, required[verdict.requirement], decisions, labels[verdict.arm], seconds)
        for verdict in sorted(decisions.verdicts, key=lambda one: list(labels).index(one.arm))
    ]


def _verdict_case(
    verdict: Verdict, required: ReportedRequirement, decisions: Decisions, label: str, seconds: dict[int, float]
) -> Case:
    trials = [number for cell in verdict.cells for number in cell.trials]
    properties = {
        "requirement": required.text,
        "figure": decisions.figure(verdict),
        "margin": margin_text(verdict.decisive),
        "cell": conditions_text(verdict.decisive),
        "repetitions": str(verdict.decisive.estimate.n) if verdict.decisive else "0",
        "trials": " ".join(map(str, trials)),
        "source": required.source,
    }
    return Case(
        suite=label,
        classname="virtgauge.requirements",
        name=required.name,
        outcome=Outcome(verdict.outcome.value) if verdict.outcome else Outcome.SKIPPED,
        message="; ".join(filter(None, (verdict.reason, more_text(verdict)))),
        seconds=sum(seconds.get(number, 0.0) for number in trials),
        properties={name: value for name, value in properties.items() if value},
        detail=decisions.figure(verdict),
    )


def trial_cases(table: ResultTable) -> Iterator[Case]:
    """A case for each arm and cell, arm by arm; a platform that was skipped is one case.

    It passes if each of its repetitions has a valid trial.  Nothing is required, so nothing fails: it is skipped if the
    guest cannot do it, or if it was measured under wrong conditions only; an error if it brought no figure.
    """
    labels = row_labels(table.arms)
    elapsed = {mark.number: mark.elapsed_ns for mark in read_marks(table.ledger)}
    for arm in table.arms:
        label, fix = labels[arm.name], arm.fix or ""
        if not arm.usable:
            yield Case(label, "virtgauge.platform", arm.name, Outcome.SKIPPED, arm.reason, detail=fix)
        for cell in table.cells():
            if table.tried(cell, arm.name):
                yield _trial_case(table, arm, label, cell, elapsed)


def _trial_case(table: ResultTable, arm: ArmRecord, label: str, cell: Cell, elapsed: Mapping[int, int]) -> Case:
    rows = table.trials.tried_at(cell, arm.name)
    blocks, attempts = table.trials.block[rows].tolist(), table.trials.attempt[rows].tolist()
    last = dict(zip(blocks, zip(attempts, table.endings.attempts(cell, arm.name), strict=True), strict=True))
    valid = table.numbers(cell, arm.name)
    lacking = {block: one for block, one in last.items() if block not in valid}
    failed = any(one.status is TrialStatus.FAILED for _, one in lacking.values())
    counted = f"{len(valid)} of {len(last)} repetitions have a valid trial"
    return Case(
        suite=label,
        classname=f"virtgauge.{cell.suite}.{cell.probe}",
        name=cell_text(cell),
        outcome=Outcome.PASS if not lacking else Outcome.ERROR if failed else Outcome.SKIPPED,
        message=f"{counted}: {_why([*lacking.values()][-1][1])}" if lacking else counted,
        seconds=sum(elapsed[number] for number in table.trials.number[rows].tolist()) / 1e9,
        properties={"arm": arm.name, "platform": arm.kind, "emulated": "yes" if arm.emulated else "no"},
        detail="\n".join(
            f"repetition {block}, attempt {attempt}: {_why(one)}" for block, (attempt, one) in lacking.items()
        ),
    )


def _why(one: Tried) -> str:
    return f"{one.status.value}: {reason_of(one)}"


_TITLE_LIMIT, _RESULT_TITLE_LIMIT, _SYSTEM_LIMIT = 126, 50, 128


def phoronix(manifest: Manifest, found: Sequence[Figure]) -> str:
    """The whole document. Raises UsageError: there is no figure, and the format has no result without one."""
    # Their results are ordered one way or the other.
    figures = [one for one in found if one.estimate.point is not None and one.measure.better is not Better.NEITHER]
    if not figures:
        raise UsageError(
            f"the run {manifest.run_id} has no valid figure of these measures",
            "choose others with --measure, or export --format csv, which holds trials that do not count too",
        )
    root = ElementTree.Element("PhoronixTestSuite")
    generated = child(root, "Generated")
    child(generated, "Title", f"{manifest.plan_name} ({manifest.run_id})"[:_TITLE_LIMIT])
    child(generated, "LastModified", moment(manifest.created_at))
    child(generated, "TestClient", f"virtgauge {__version__}")
    child(generated, "Description", f"virtgauge run {manifest.run_id} of the plan {manifest.plan_name}"[:2048])
    used = {figure.arm.name for figure in figures}
    for arm in manifest.arms:
        if arm.name in used:
            _system(root, arm, manifest)
    for _, own in itertools.groupby(figures, lambda one: (one.measure.full_name, one.cell)):
        _result(root, [*own])
    return document(root)


def _system(root: ElementTree.Element, arm: ArmRecord, manifest: Manifest) -> None:
    identity = manifest.fingerprint.get("identity")
    known = identity if isinstance(identity, dict) else {}
    system = child(root, "System")
    child(system, "Identifier", _identifier(arm))
    child(system, "Hardware", f"Processor: {known.get('cpu_model') or 'unknown'} ({known.get('cpu_count') or '?'})")
    child(system, "Software", f"Platform: {arm.label}, Kernel: {known.get('kernel_release') or 'unknown'}")
    child(system, "User", "virtgauge")
    child(system, "TimeStamp", moment(manifest.created_at))
    child(system, "TestClientVersion", manifest.tool_version)
    child(system, "Notes", f"{arm.mark}: these figures must not be ranked" if arm.mark else "")


def _result(root: ElementTree.Element, figures: list[Figure]) -> None:
    measure, cell = figures[0].measure, cell_text(figures[0].cell)
    result = child(root, "Result")
    child(result, "Identifier", "")  # no test profile of theirs stands behind it
    child(result, "Title", measure.full_name[:_RESULT_TITLE_LIMIT])
    child(result, "AppVersion", __version__)
    child(result, "Arguments", cell)
    child(result, "Description", f"{measure.meaning}: {cell}")
    child(result, "Scale", measure.quantity.unit)
    child(result, "Proportion", "HIB" if measure.better is Better.HIGHER else "LIB")
    child(result, "DisplayFormat", "BAR_GRAPH")
    data = child(result, "Data")
    for figure in figures:
        entry = child(data, "Entry")
        child(entry, "Identifier", _identifier(figure.arm))
        child(entry, "Value", _numbers([figure.estimate.point or 0.0]))
        child(entry, "RawString", _numbers(figure.values))


def _identifier(arm: ArmRecord) -> str:
    return f"{arm.name} ({arm.mark})" if arm.mark else arm.name[:_SYSTEM_LIMIT]


def _numbers(values: Iterable[float]) -> str:
    """As they read them: in plain decimals, with colons between."""
    return ":".join(np.format_float_positional(value, precision=10, fractional=False, trim="-") for value in values)
