"""A run as one JSON document of tables: a list of flat records each, whose columns other tools can join.

The dataclasses below are the contract: :func:`schema` makes the JSON Schema of them, and :func:`write` nothing else.
:data:`SCHEMA_VERSION` is raised when a field changes its meaning or goes away; fields may be added.
"""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter

from virtgauge.decisions.decisions import Decisions, decisions_of
from virtgauge.exchange.figures import chosen_of
from virtgauge.exchange.trials import reason_of, trials_of
from virtgauge.results.measure import Measure as Measured
from virtgauge.results.table import ResultTable
from virtgauge.specs.suites import contexts_of, facts_of

SCHEMA_VERSION = 3


def _means(text: str) -> Any:
    """The meaning of a field, as the schema tells it."""
    return Field(description=text)


_ArmName = Annotated[str, _means("name of a record of `arms`")]
_CellNumber = Annotated[int, _means("number of a record of `cells`")]
_Unit = Annotated[str, _means("base unit of the figures")]
_Confidence = Annotated[float, _means("confidence that was wanted of intervals, 0…1")]
_Fingerprint = Annotated[dict[str, Any], _means("what is known of the machine: kernel, processor, memory and the like")]


class _Record:
    __pydantic_config__ = ConfigDict(extra="forbid")


@dataclasses.dataclass(frozen=True)
class Run(_Record):
    """Where the figures come from."""

    run: Annotated[str, _means("name of the run, that of its folder")]
    created_at: Annotated[str, _means("when it was begun: ISO 8601, UTC")]
    version: Annotated[str, _means("version of the virtgauge that measured it")]
    plan: Annotated[str, _means("name of the plan")]
    plan_text: Annotated[str, _means("the whole plan as TOML, with every default and the seed")]
    seed: Annotated[int, _means("seed of the order of the trials")]
    confidence: _Confidence
    agent_sha256: Annotated[str, _means("SHA-256 of the agent in every guest; empty of a run that was imported")]
    fingerprint: _Fingerprint


@dataclasses.dataclass(frozen=True)
class Host(_Record):
    """One host of a fleet."""

    host: Annotated[str, _means("name of the host in the plan")]
    fingerprint: _Fingerprint


@dataclasses.dataclass(frozen=True)
class Arm(_Record):
    """A platform of the plan, or the reference once more (A/A)."""

    arm: Annotated[str, _means("name in the plan; that of the A/A arm is the reference's, followed by -aa")]
    platform: Annotated[str, _means("kind of the platform, such as oci")]
    label: Annotated[str, _means("name for people")]
    role: Annotated[str, _means("reference, aa (the reference once more) or test")]
    emulated: Annotated[bool, _means("whether its figures are marked and never ranked, as its processor is emulated")]
    usable: Annotated[bool, _means("whether it could be used; if not, it was skipped")]
    reason: Annotated[str, _means("why it could or could not be used")]
    fix: Annotated[str | None, _means("command that would make it usable; null where none is known")]
    settings: Annotated[dict[str, Any], _means("its settings in the plan, with every default")]
    in_force: Annotated[dict[str, Any], _means("what the platform said of them when its first guest had come up")]


@dataclasses.dataclass(frozen=True)
class Cell(_Record):
    """What was tried."""

    cell: Annotated[int, _means("number of the cell, from 0")]
    suite: Annotated[str, _means("name of the suite")]
    probe: Annotated[str, _means("what the suite measured, such as timer_cost")]
    factors: Annotated[dict[str, str], _means("level of each factor")]


@dataclasses.dataclass(frozen=True)
class Measure(_Record):
    """What rows and estimates are figures of."""

    measure: Annotated[str, _means("full name: suite and name, with a dot between")]
    unit: _Unit
    better: Annotated[Literal["lower", "higher", "neither"], _means("which figures are better")]
    meaning: Annotated[str, _means("what it is, in words")]

    @classmethod
    def of(cls, one: Measured) -> Measure:
        return cls(one.full_name, one.quantity.unit, one.better.value, one.meaning)


@dataclasses.dataclass(frozen=True)
class Row(_Record):
    """A measure of a trial; a trial whose probe has no measure is one row without one."""

    trial: Annotated[int, _means("number of the trial in the ledger")]
    cell: _CellNumber
    arm: _ArmName
    host: Annotated[str, _means("name of a record of `hosts`; empty where the run had one host only")]
    block: Annotated[int, _means("number of the repetition, from 0; trials of a cell with the same one are pairs")]
    attempt: Annotated[int, _means("number of the attempt at this repetition, from 1; the last valid one counts")]
    started_at: Annotated[str, _means("when it began: ISO 8601, UTC")]
    elapsed_ns: Annotated[int, _means("how long it took, in nanoseconds")]
    validity: Annotated[Literal["valid", "invalid", "failed", "unsupported"], _means("how the trial ended")]
    measure: Annotated[str | None, _means("full name of a record of `measures`")]
    value: Annotated[float | None, _means("the figure; null where the trial has none, or does not count")]
    unit: Annotated[str | None, _means("base unit of the value")]
    reason: Annotated[str | None, _means("why there is no value")]


@dataclasses.dataclass(frozen=True)
class Estimate(_Record):
    """A measure of an arm in a cell, and beside the reference's: what compares is null for the reference itself."""

    measure: Annotated[str, _means("full name of a record of `measures`")]
    cell: _CellNumber
    arm: _ArmName
    value: Annotated[float | None, _means("median over the repetitions; null where there is none")]
    low: Annotated[float | None, _means("lower end of its interval; null where there is none")]
    high: Annotated[float | None, _means("upper end of its interval; null where there is none")]
    unit: _Unit
    confidence: Annotated[float | None, _means("confidence that the interval has, 0…1: less than wanted of few")]
    n: Annotated[int, _means("repetitions behind it")]
    method: Annotated[str, _means("how figure and interval were found, or why one is missing")]
    at_least: Annotated[
        bool, _means("whether it is a lower bound: something else than what was measured limited over a tenth of them")
    ]
    ratio: Annotated[float | None, _means("arm / reference, over pairs")] = None
    ratio_low: Annotated[float | None, _means("lower end of its interval")] = None
    ratio_high: Annotated[float | None, _means("upper end of its interval")] = None
    difference: Annotated[float | None, _means("arm − reference, over pairs, in the base unit")] = None
    difference_low: Annotated[float | None, _means("lower end of its interval")] = None
    difference_high: Annotated[float | None, _means("upper end of its interval")] = None
    pairs: Annotated[int | None, _means("repetitions that both have")] = None
    band: Annotated[
        float | None, _means("ratios from 1 / band to band also occur between identical arms (A/A); null if unknown")
    ] = None
    judgement: Annotated[
        Literal["higher", "lower", "inconclusive"] | None,
        _means("what has been shown of the arm; of measures that are often zero by the difference, else by the ratio"),
    ] = None
    judgement_reason: Annotated[str | None, _means("why that has been shown, or nothing")] = None


@dataclasses.dataclass(frozen=True)
class Verdict(_Record):
    """A requirement on an arm, with the cell that decides it."""

    requirement: Annotated[str, _means("name of the requirement")]
    text: Annotated[str, _means("measure, bound and conditions in words")]
    arm: _ArmName
    outcome: Annotated[Literal["pass", "fail", "inconclusive"] | None, _means("what it comes to; null if not judged")]
    reason: Annotated[str, _means("why, in words")]
    cell: Annotated[int | None, _means("number of the cell that decides; null where nothing was measured")]
    host: Annotated[str | None, _means("name of the host of a fleet on which it does")]
    value: Annotated[float | None, _means("the figure there")]
    low: Annotated[float | None, _means("lower end of its interval")]
    high: Annotated[float | None, _means("upper end of its interval")]
    unit: _Unit
    confidence: _Confidence
    n: Annotated[int, _means("repetitions behind it")]
    margin: Annotated[
        float | None, _means("how far the figure is within the bound (negative: beyond it), as a share of the bound")
    ]
    more: Annotated[int | None, _means("about how many more repetitions would decide it; null where none is known")]


@dataclasses.dataclass(frozen=True)
class Rank(_Record):
    """An arm's place among those that can be ranked."""

    requirement: Annotated[str, _means("name of the requirement by whose measure; empty of the overall rank")]
    arm: _ArmName
    rank: Annotated[int, _means("its place, from 1; arms may share one")]


@dataclasses.dataclass(frozen=True)
class Claim(_Record):
    """What the run says of a paper's conclusion."""

    suite: Annotated[str, _means("name of the suite that it is about")]
    claim: Annotated[str, _means("name of the conclusion, unique in its suite")]
    place: Annotated[str, _means("where in the paper it stands")]
    text: Annotated[str, _means("what it says")]
    note: Annotated[str, _means("by which bounds it is judged, and whose they are")]
    arm: Annotated[str, _means("name of the arm whose figures are judged; empty of all arms together")]
    at_one_level: Annotated[bool, _means("whether databases are compared at one level of durability, unlike the paper")]
    verdict: Annotated[str, _means("what the run's figures say of it")]
    verdict_on_paper: Annotated[str, _means("what the paper's own figures say of it, by the same test")]
    evidence: Annotated[list[str], _means("the figures that decide, each in words")]


@dataclasses.dataclass(frozen=True)
class Document(_Record):
    """A run."""

    schema_version: Annotated[Literal[3], _means("raised when a field changes its meaning or goes away")]
    run: Annotated[Run, _means("where the figures come from")]
    hosts: Annotated[list[Host], _means("the hosts of a fleet; none where the run had one host only")]
    arms: Annotated[list[Arm], _means("the platforms, in the plan's order")]
    measures: Annotated[list[Measure], _means("what the suites of the run measure")]
    cells: Annotated[list[Cell], _means("what was tried")]
    rows: Annotated[list[Row], _means("every trial, valid or not, with each measure that its cell can have")]
    estimates: Annotated[list[Estimate], _means("every measure of each arm in each cell where it was tried")]
    verdicts: Annotated[list[Verdict], _means("every requirement on each platform that it is for")]
    ranks: Annotated[list[Rank], _means("places by each requirement's measure, and overall")]
    claims: Annotated[list[Claim], _means("the papers' conclusions on what was measured")]


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
    """The JSON Schema of the document, with the meaning of every record and field."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:virtgauge:run:{SCHEMA_VERSION}",
        **TypeAdapter(Document).json_schema(mode="serialization"),
        "title": "A run of virtgauge",
    }
