"""The declarations of all suites with their measures, and what those that a run tried are told from."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from virtgauge.errors import UsageError, nearest
from virtgauge.ledger.records import ArmRecord, GuestRecord, Manifest
from virtgauge.plan.model import AA_SUFFIX, scopes_of
from virtgauge.results.columns import Cell
from virtgauge.results.measure import Measure
from virtgauge.results.table import ResultTable
from virtgauge.specs.bandwidth import BANDWIDTH
from virtgauge.specs.context import Context
from virtgauge.specs.forwarding import FORWARDING
from virtgauge.specs.imported import IMPORTED
from virtgauge.specs.isolation import ISOLATION
from virtgauge.specs.model import SuiteSpec
from virtgauge.specs.storage import STORAGE
from virtgauge.specs.timing import TIMING

SPECS: tuple[SuiteSpec, ...] = (TIMING, BANDWIDTH, FORWARDING, STORAGE, ISOLATION, IMPORTED)
MEASURES: Mapping[str, Mapping[str, Measure]] = {spec.name: {one.name: one for one in spec.measures} for spec in SPECS}
"""Every measure by suite and name.

A measure gives one figure a trial, so one a repetition: the unit of every interval.  A quantile is given only where a
trial has values enough beyond it (:data:`virtgauge.analysis.distribution.TAIL_SAMPLES`).
"""
_LEFT_OUT = "left out by the plan: the figures of an emulated processor decide nothing, and it would take long"


def find_measure(suite: str, name: str) -> Measure:
    """A measure by its suite and name. Raises UsageError: there is none; the nearest is suggested."""
    if suite not in MEASURES:
        raise UsageError(f"suite = {suite!r}: there is no such suite", f"use one of {', '.join(MEASURES)}")
    known = MEASURES[suite]
    if name not in known:
        raise UsageError(
            f"measure = {name!r}: the suite {suite} has no such measure{nearest(name, known)}",
            f"`virtgauge measures {suite}` lists them",
        )
    return known[name]


def named_measures(names: Sequence[str]) -> list[Measure]:
    """Measures by their full names (``timing.sleep_lateness.p99``), each once. Raises UsageError: there is no such."""
    found = {}
    for full in names:
        suite, dot, name = full.partition(".")
        if not dot:
            raise UsageError(f"--measure {full}: a measure is named with its suite", "as in timing.sleep_lateness.p99")
        found[full] = find_measure(suite, name)
    return list(found.values())


def headline_measures() -> list[Measure]:
    """Those by which runs are compared when none is named, suite by suite."""
    return [measure for measures in MEASURES.values() for measure in measures.values() if measure.headline]


@functools.lru_cache(4096)  # comparisons ask for each change of a cell
def cell_name(cell: Cell) -> str:
    """A cell as :meth:`SuiteSpec.full_name` has it, or, of a suite of another version, as its trials do."""
    if spec := next((one for one in SPECS if one.name == cell.suite), None):
        return spec.full_name(cell)
    return f"{cell.suite} {cell.probe}: {', '.join(f'{factor} {level}' for factor, level in cell.levels)}"


def contexts_of(table: ResultTable, facts: Mapping[str, Mapping[str, Any]] = {}) -> Iterator[Context]:
    """What each suite that was tried is told from: with the arms that it is for, by labels that tell them apart.

    ``facts`` are those of :func:`facts_of`, which no claim needs.
    """
    manifest = labelled(table.manifest)
    for spec in SPECS:
        if spec.name in table.suites:
            yield Context(spec, table, _arms_of(manifest, spec.name), facts)


def labelled(manifest: Manifest) -> Manifest:
    """A run's manifest, each arm with a label of its own."""
    labels = row_labels(manifest.arms)
    arms = (dataclasses.replace(arm, label=labels[arm.name]) for arm in manifest.arms)
    return dataclasses.replace(manifest, arms=tuple(arms))


def facts_of(arms: Sequence[ArmRecord], guests: Sequence[GuestRecord]) -> dict[str, dict[str, Any]]:
    """By arm, as the agent of its first guest that came up saw them; empty of others."""
    known = {one.arm: one.facts for one in reversed(guests) if one.facts}
    return {arm.name: known.get(arm.name, {}) for arm in arms}


def row_labels(arms: Sequence[ArmRecord]) -> dict[str, str]:
    """A label for every arm, told apart by its name where two arms share one."""
    labels = [arm.label for arm in arms]
    return {arm.name: arm.label if labels.count(arm.label) == 1 else f"{arm.label} [{arm.name}]" for arm in arms}


def _arms_of(manifest: Manifest, suite: str) -> tuple[ArmRecord, ...]:
    """Of a suite, in the manifest's order: all, unless its designs are for some only.

    One that was left out as emulated is not usable here, and says why.
    """
    scopes = scopes_of(manifest.plan_text, suite)
    if not scopes:
        return manifest.arms
    found = []
    for arm in manifest.arms:
        aa = arm.role == "aa"
        platform = arm.name.removesuffix(AA_SUFFIX) if aa else arm.name
        if any(scope.is_for(platform, aa=aa, emulated=arm.emulated) for scope in scopes):
            found.append(arm)
        elif any(scope.is_for(platform, aa=aa, emulated=False) for scope in scopes):
            found.append(dataclasses.replace(arm, usable=False, reason=_LEFT_OUT) if arm.usable else arm)
    return tuple(found)
