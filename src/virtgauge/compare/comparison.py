"""Runs compared, from their folders: what is common, what changed, and what else differs; often the point of it all."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from virtgauge.compare.changes import Criteria, find_changes, find_series
from virtgauge.compare.matching import Matched, match
from virtgauge.compare.model import Change, Compared, Comparison, EnvironmentLine, RunLine, Series, SeriesComparison
from virtgauge.compare.runs import LEAST_SERIES, ReadRun, read_run
from virtgauge.errors import UsageError
from virtgauge.ledger.records import run_labels, unfinished_text
from virtgauge.plan.model import Plan
from virtgauge.report.settings import OF_EVERY_RUN, recorded_facts
from virtgauge.results.measure import Measure
from virtgauge.specs.suites import cell_name
from virtgauge.suites.cell_settings import plan_of

SCHEMA_VERSION = 1  # Of the JSON form; raised when a field changes its meaning or goes away


def differing_environment(runs: Sequence[ReadRun]) -> Iterator[EnvironmentLine]:
    """Facts in which the runs differ: host, virtgauge, plan, and the settings of arms of one name."""
    plans = [plan_of(run.manifest) for run in runs]
    common = set.intersection(*({arm.name for arm in run.manifest.arms if arm.role != "aa"} for run in runs))
    told = [dict(_facts(run, None if None in plans else plan, common)) for run, plan in zip(runs, plans, strict=True)]
    for name in dict.fromkeys(name for facts in told for name in facts):
        values = tuple(facts.get(name) for facts in told)
        if len(set(values)) > 1:
            yield EnvironmentLine(name, values)


def _facts(run: ReadRun, plan: Plan | None, arms: Collection[str]) -> Iterator[tuple[str, str | None]]:
    manifest = run.manifest
    known = recorded_facts(manifest, manifest.fingerprint, [arm for arm in manifest.arms if arm.name in arms])
    yield from ((name, value) for name, value in known if name not in OF_EVERY_RUN)
    yield "hosts", ", ".join(host.name for host in manifest.hosts) or None
    yield "repetitions", str(run.repetitions)
    for name, limit in plan.validity.model_dump().items() if plan else ():
        yield f"validity limit {name.replace('_', ' ')}", f"{limit:g}"


def caveats(runs: Sequence[ReadRun], across: bool, *, series: bool = False) -> Iterator[str]:
    """What a reader must know before the figures; ``across`` says that runs of different versions were asked for."""
    labels = _labels(runs)

    def of(wanted: Callable[[ReadRun], bool]) -> str:
        return ", ".join(label for label, run in zip(labels, runs, strict=True) if wanted(run))

    if across and len({tuple(run.version) for run in runs}) > 1:
        yield (
            "The runs were measured by different versions of virtgauge: a figure of the same name may have been "
            "measured otherwise."
        )
    if len({run.manifest.agent_sha256 for run in runs}) > 1:
        yield "The agent in the guests was not the same in all runs; a part of a change may be the agent's."
    yield from (f"{unfinished_text(label)}." for label, run in zip(labels, runs, strict=True) if not run.finished)
    if without := of(lambda run: not any(arm.role == "aa" and arm.usable for arm in run.manifest.arms)):
        what = "steps are not held against them there" if series else "no difference from it is called one"
        yield f"{without}: identical arms (A/A) were not measured, so {what}."
    if len(runs) > 1 and (unread := of(lambda run: plan_of(run.manifest) is None)):
        yield f"{unread}: the plan cannot be read, so how each cell was measured was not compared."
    if any(len(run.manifest.hosts) > 1 for run in runs):
        yield "Repetitions of a fleet's hosts are taken together: a host that is in one run only is a part of a change."
    if len({run.manifest.confidence for run in runs}) > 1:
        yield "The runs ask for different confidence; the base run's is used."


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What of runs is compared, and how."""

    measures: Sequence[Measure]
    arms: Sequence[str] = ()  # ``BASE=OTHER`` or ``NAME`` each; all that are named alike when empty
    equivalent: float = 0.05  # the largest change that does not matter, as a share
    across_versions: bool = False  # whether runs of different versions of virtgauge may be compared
    progress: Callable[[str], None] = lambda what: None  # is told what is being done


def compare_runs(folders: Sequence[Path], wanted: Wanted) -> Comparison:
    """Compare runs with the first; of a single one, two of its arms. Raises UsageError: it makes no sense, and why."""
    runs = _read(folders, wanted)
    matched, criteria, common = _common(runs, wanted)
    wanted.progress(f"comparing {len(matched.places)} figures")
    return Comparison(**common, changes=find_changes(runs, matched, criteria))


def compare_series(folders: Sequence[Path], wanted: Wanted, seed: int = 1) -> SeriesComparison:
    """Find changes within four runs or more, in the order of their making; ``seed`` is that of the permutations."""
    runs = _read(folders, wanted)
    if len(runs) < LEAST_SERIES:  # a change could not be told from a single run that differs
        raise UsageError(
            f"--series: {len(runs)} runs; a series takes {LEAST_SERIES} at least",
            "compare fewer without --series, or add runs",
        )
    runs.sort(key=lambda run: run.manifest.created_at)
    matched, criteria, common = _common(runs, wanted, series=True)
    return SeriesComparison(**common, seed=seed, series=find_series(runs, matched, criteria, seed, wanted.progress))


def _labels(runs: Sequence[ReadRun]) -> list[str]:
    return run_labels((run.manifest.run_id, run.manifest.created_at) for run in runs)


def _common(
    runs: Sequence[ReadRun], wanted: Wanted, *, series: bool = False
) -> tuple[Matched, Criteria, dict[str, Any]]:
    """What is compared, by what it is judged, and what every comparison says of it."""
    matched = match(runs, wanted.measures, wanted.arms)
    criteria = Criteria(runs[0].manifest.confidence, wanted.equivalent)
    labels = _labels(runs)
    lines = (
        RunLine(
            *(label, run.manifest.run_id, run.manifest.created_at, run.manifest.plan_name),
            *(run.manifest.tool_version, run.repetitions, run.finished),
        )
        for label, run in zip(labels, runs, strict=True)
    )
    common = {
        "runs": tuple(lines),
        "confidence": criteria.nominal,
        "equivalent": criteria.equivalent,
        "environment": tuple(differing_environment(runs)),
        "caveats": tuple(caveats(runs, wanted.across_versions, series=series)),
        "set_aside": matched.set_aside,
        "cells": matched.cells,
        "arms": matched.arms,
    }
    return matched, criteria, common


def render_json(found: Comparison | SeriesComparison) -> str:
    """The whole comparison in base units; a missing figure is null, and the estimate's ``method`` says why."""
    kind = "series" if isinstance(found, SeriesComparison) else "comparison"
    arms = [arm.label for arm in found.arms]

    def fields(one: Any) -> dict[str, Any]:
        """What a record has, but for what the form has otherwise: cells and arms by their places, steps by runs."""
        told = {field.name: getattr(one, field.name) for field in dataclasses.fields(one)}
        match one:
            case Compared():
                told["cells"] = [
                    {"suite": cell.suite, "probe": cell.probe, "factors": cell.factors, "name": cell_name(cell)}
                    for cell in found.cells
                ]
            case Change() | Series():
                told |= {"cell": found.places[one.cell], "arm": arms.index(one.arm), "unit": one.measure.quantity.unit}
                told |= {"measure": one.measure.full_name, "better": one.measure.better.value}
        if isinstance(one, Series):
            told["unit"], runs = one.quantity.unit, told.pop("runs")
            told["steps"] = [
                {"after": runs[step.after], "size": step.size, "limit": step.limit, "finding": step.finding}
                for step in one.steps
            ]
        return told

    document = {"kind": kind, "schema_version": SCHEMA_VERSION} | fields(found)
    return json.dumps(document, default=fields, allow_nan=False, separators=(",", ":"))


def _read(folders: Sequence[Path], wanted: Wanted) -> list[ReadRun]:
    """Read runs; none may stand beside its copy, or beside one of another version unless that is asked for."""
    runs: list[ReadRun] = []
    seen: dict[tuple[str, str, int], ReadRun] = {}
    for folder in folders:
        wanted.progress(f"reading {folder}")
        run = read_run(folder, wanted.measures)
        twin = seen.setdefault((run.manifest.run_id, run.manifest.created_at, run.manifest.seed), run)
        if twin is not run:
            raise UsageError(
                f"{twin.folder} and {run.folder} hold the same run ({run.manifest.run_id}, made "
                f"{run.manifest.created_at[:19]})",
                "name two runs; the platforms of one run are in `virtgauge report`, and "
                "`virtgauge compare RUN --arm A=B` compares two of them",
            )
        runs.append(run)
    base = runs[0]
    for run in runs:
        if not wanted.across_versions and run.version != base.version:
            raise UsageError(
                f"{base.folder} was measured by virtgauge {base.manifest.tool_version} and {run.folder} by "
                f"{run.manifest.tool_version}: a figure of the same name may have been measured otherwise",
                "measure both with one version, or compare with --across-versions, which marks it",
            )
    return runs
