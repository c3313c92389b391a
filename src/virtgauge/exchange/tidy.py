"""A run as one JSON document of tables: a list of flat records each, whose columns other tools can join.

The dataclasses below are the contract: :func:`schema` makes the JSON Schema of them, and :func:`write` nothing else.
:data:`SCHEMA_VERSION` is raised when a field changes its meaning or goes away; fields may be added.
"""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any, Literal

from pydantic import ConfigDict, TypeAdapter

from virtgauge.exchange.figures import chosen_of
from virtgauge.exchange.trials import reason_of, trials_of
from virtgauge.report.requirements import Decisions, decisions_of
from virtgauge.results.measure import Measure as Measured
from virtgauge.results.table import ResultTable
from virtgauge.specs.suites import contexts_of, facts_of

SCHEMA_VERSION = 3


class _Record:
    __pydantic_config__ = ConfigDict(extra="forbid")


@dataclasses.dataclass(frozen=True)
class Run(_Record):
    """Where the figures come from; ``plan_text`` is the whole plan as TOML, ``confidence`` the one that was wanted."""

    run: str
    created_at: str
    version: str
    plan: str
    plan_text: str
    seed: int
    confidence: float
    agent_sha256: str
    fingerprint: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Host(_Record):
    """One host of a fleet."""

    host: str
    fingerprint: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Arm(_Record):
    """A platform of the plan: ``arm`` is its name there, and ``platform`` its kind (``oci``).

    ``role`` is ``reference``, ``aa`` (the reference once more) or ``test``.  One that is not usable was skipped for
    ``reason``; ``fix`` is the command that would enable it.  ``settings`` are those of the plan, resolved; ``in_force``
    is what the platform said of them when its first guest had come up.
    """

    arm: str
    platform: str
    label: str
    role: str
    emulated: bool
    usable: bool
    reason: str
    fix: str | None
    settings: dict[str, Any]
    in_force: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Cell(_Record):
    """What was tried, under a number; ``factors`` has the level of each factor."""

    cell: int
    suite: str
    probe: str
    factors: dict[str, str]


@dataclasses.dataclass(frozen=True)
class Measure(_Record):
    """What ``rows`` and ``estimates`` name: its full name and unit, and which way is better."""

    measure: str
    unit: str
    better: Literal["lower", "higher", "neither"]
    meaning: str

    @classmethod
    def of(cls, one: Measured) -> Measure:
        return cls(one.full_name, one.quantity.unit, one.better.value, one.meaning)


@dataclasses.dataclass(frozen=True)
class Row(_Record):
    """A measure of a trial.

    ``value`` is null where the trial has none, and ``reason`` says why; ``validity`` is how the trial ended.  A trial
    whose probe has no measure is one row without one.  Repetitions with the same ``block`` are pairs.
    """

    trial: int
    cell: int
    arm: str
    host: str
    block: int
    attempt: int
    started_at: str
    elapsed_ns: int
    validity: Literal["valid", "invalid", "failed", "unsupported"]
    measure: str | None
    value: float | None
    unit: str | None
    reason: str | None


@dataclasses.dataclass(frozen=True)
class Estimate(_Record):
    """A measure of an arm in a cell: the median over ``n`` repetitions with its interval.

    ``at_least``: it is a lower bound, because something else than what was measured limited more than a tenth of them.
    ``confidence`` is the one that the interval has.  A figure or interval that is missing is null, and ``method`` says
    why.  The rest compares it with the reference's, pair by pair, and is null for the reference itself: ``ratio`` is
    arm / reference, ``difference`` arm − reference; ratios within 1 / ``band`` to ``band`` also occur between identical
    arms (A/A); ``judgement`` says what has been shown, of measures that are often zero by their difference.
    """

    measure: str
    cell: int
    arm: str
    value: float | None
    low: float | None
    high: float | None
    unit: str
    confidence: float | None
    n: int
    method: str
    at_least: bool
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    difference: float | None = None
    difference_low: float | None = None
    difference_high: float | None = None
    pairs: int | None = None
    band: float | None = None
    judgement: Literal["higher", "lower", "inconclusive"] | None = None
    judgement_reason: str | None = None


@dataclasses.dataclass(frozen=True)
class Verdict(_Record):
    """A requirement on an arm, with the cell that decides it.

    ``outcome`` is null where it is not judged.  ``margin`` is how far the figure is within the bound (negative: beyond)
    as a share of it, ``more`` about how many more repetitions would decide it.
    """

    requirement: str
    text: str
    arm: str
    outcome: Literal["pass", "fail", "inconclusive"] | None
    reason: str
    cell: int | None
    host: str | None
    value: float | None
    low: float | None
    high: float | None
    unit: str
    confidence: float
    n: int
    margin: float | None
    more: int | None


@dataclasses.dataclass(frozen=True)
class Rank(_Record):
    """An arm's place by a requirement's measure, or overall where ``requirement`` is empty; arms may share one."""

    requirement: str
    arm: str
    rank: int


@dataclasses.dataclass(frozen=True)
class Claim(_Record):
    """What the run says of a paper's conclusion: the figures of one arm, or of all where ``arm`` is empty.

    ``at_one_level``: databases are compared at one level of durability, where the paper did not.
    """

    suite: str
    claim: str
    place: str
    text: str
    note: str  # by which bounds it is judged, and whose they are
    arm: str
    at_one_level: bool
    verdict: str
    verdict_on_paper: str
    evidence: list[str]


@dataclasses.dataclass(frozen=True)
class Document(_Record):
    """A run."""

    schema_version: Literal[3]
    run: Run
    hosts: list[Host]
    arms: list[Arm]
    measures: list[Measure]
    cells: list[Cell]
    rows: list[Row]
    estimates: list[Estimate]
    verdicts: list[Verdict]
    ranks: list[Rank]
    claims: list[Claim]


def write(table: ResultTable, out: IO[str]) -> None:
    """Write the document of a run, also of one in progress; memory never holds all rows."""
    manifest, decisions = table.manifest, decisions_of(table)
    of_run = Run(
        manifest.run_id, manifest.created_at, manifest.tool_version, manifest.plan_name, manifest.plan_text,
        manifest.seed, manifest.confidence, manifest.agent_sha256, manifest.fingerprint,
    )  # fmt: skip
    measures = chosen_of(table, None)
    parts: dict[str, Iterable[object]] = {
        "hosts": [Host(one.name, one.fingerprint) for one in manifest.hosts],
        "arms": arms(table),
        "measures": map(Measure.of, measures),
        "cells": [Cell(n, one.suite, one.probe, one.factors) for n, one in enumerate(table.trials.cells)],
        "rows": rows(table, measures),
        "estimates": estimates(table, measures),
        "verdicts": verdicts(table, decisions),
        "ranks": [
            Rank(ranking.requirement, one.arm, one.rank) for ranking in decisions.rankings for one in ranking.ranks
        ],
        "claims": _claims(table),
    }
    out.write(f'{{"schema_version":{SCHEMA_VERSION},\n"run":{_text(of_run)}')
    for name, records in parts.items():
        out.write(f',\n"{name}":[')
        for number, record in enumerate(records):
            out.write((",\n" if number else "\n") + _text(record))
        out.write("]")
    out.write("}\n")


def arms(table: ResultTable) -> Iterator[Arm]:
    """The platforms of a run, in the plan's order."""
    facts = facts_of(table.arms, table.ledger.guests())
    for one in table.arms:
        in_force = facts[one.name].get("in_force")
        yield Arm(
            *(one.name, one.kind, one.label, one.role, one.emulated, one.usable, one.reason, one.fix),
            *(one.settings, in_force if isinstance(in_force, dict) else {}),
        )


def _claims(table: ResultTable) -> Iterator[Claim]:
    for context in contexts_of(table):
        for checks in context.spec.claims(context):
            leveled = [] if checks.at_one_level is None else [("", checks.at_one_level, True)]
            for arm, found, at_one_level in [*((one.arm, one.checked, False) for one in checks.run), *leveled]:
                yield Claim(
                    context.spec.name, found.name, found.place, found.text, found.note, arm, at_one_level,
                    found.verdict.value, checks.paper.verdict.value, [evidence.text for evidence in found.evidence],
                )  # fmt: skip


def _text(record: object) -> str:
    return json.dumps(vars(record), allow_nan=False, separators=(",", ":"))


def rows(table: ResultTable, measures: Sequence[Measured]) -> Iterator[Row]:
    """Every trial of a run, in the order of the ledger, with those of these measures that its cell can have."""
    for one in trials_of(table, measures):
        why = None if one.counts else "a later attempt counts" if one.ended.status == "valid" else reason_of(one.ended)
        host = "" if one.host is None else one.host.name
        mark, validity = one.mark, typing.cast(Any, one.ended.status.value)
        place = (mark.number, one.cell, one.arm, host, one.block, one.attempt, mark.started_at, mark.elapsed_ns)
        for of, value in one.figures:
            reason = None if value is not None else why or "no such figure in this trial"
            yield Row(*place, validity, of.full_name, value, of.quantity.unit, reason)
        if not one.figures:
            yield Row(*place, validity, None, None, None, why)


def estimates(table: ResultTable, measures: Sequence[Measured]) -> Iterator[Estimate]:
    """These measures of every arm in every cell where it was tried: by measure, cell and arm."""
    cells = {cell: number for number, cell in enumerate(table.trials.cells)}
    for of in measures:
        for cell in table.cells(of.suite):
            tried = (arm for arm in table.arms if of.fits(cell) and table.tried(cell, arm.name))
            for arm in tried:
                one, compared = table.estimate(of, cell, arm.name), dict[str, Any]()
                at_least = one.point is not None and table.may_be_higher(of, cell, arm.name)
                if arm.name != table.reference and one.point is not None:
                    found = table.compared(of, cell, arm.name)
                    judged = table.differed(of, cell, arm.name) if of.by_difference else found
                    for name, beside in (("ratio", found.ratio), ("difference", found.difference)):
                        compared |= {name: beside.point, f"{name}_low": beside.low, f"{name}_high": beside.high}
                    compared |= {"pairs": found.difference.n, "band": found.band}
                    compared |= {"judgement": judged.judgement.value, "judgement_reason": judged.reason}
                yield Estimate(
                    of.full_name, cells[cell], arm.name, one.point, one.low, one.high, one.unit, one.confidence,
                    one.n, one.method, at_least, **compared,
                )  # fmt: skip


def verdicts(table: ResultTable, decisions: Decisions) -> Iterator[Verdict]:
    """What a run decides on each of its requirements, for each platform that it is for."""
    cells = {cell: number for number, cell in enumerate(table.trials.cells)}
    required = {one.name: one for one in decisions.requirements}
    for verdict in decisions.verdicts:
        of, at = required[verdict.requirement], verdict.decisive
        yield Verdict(
            requirement=of.name,
            text=of.text,
            arm=verdict.arm,
            outcome=None if verdict.outcome is None else typing.cast(Any, verdict.outcome.value),
            reason=verdict.reason,
            cell=None if at is None else cells[at.cell],
            host=None if at is None or not at.host else at.host,
            value=None if at is None else at.estimate.point,
            low=None if at is None else at.estimate.low,
            high=None if at is None else at.estimate.high,
            unit=of.unit,
            confidence=of.confidence,
            n=0 if at is None else at.estimate.n,
            margin=None if at is None else at.margin,
            more=verdict.more,
        )


def schema() -> dict[str, Any]:
    """The JSON Schema of the document, with the dataclasses' descriptions."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:virtgauge:run:{SCHEMA_VERSION}",
        **TypeAdapter(Document).json_schema(mode="serialization"),
        "title": "A run of virtgauge",
    }
