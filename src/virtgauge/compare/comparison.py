"""Runs compared, from their folders: what is common, what changed, and what else differs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from virtgauge.compare.changes import Criteria, find_changes
from virtgauge.compare.environment import caveats, differing_environment
from virtgauge.compare.matching import Matched, match
from virtgauge.compare.model import SCHEMA_VERSION, CellLine, Comparison, RunLine, SeriesComparison
from virtgauge.compare.naming import cell_names, run_labels
from virtgauge.compare.runs import ReadRun, read_run, refuse_other_versions, refuse_same_runs, refuse_short_series
from virtgauge.compare.series import find_series
from virtgauge.results.measure import Measure

Progress = Callable[[str], None]


def compare_runs(
    folders: Sequence[Path],
    measures: Sequence[Measure],
    *,
    arms: Sequence[str] = (),
    equivalent: float = 0.05,
    across_versions: bool = False,
    progress: Progress = lambda what: None,
) -> Comparison:
    """Compare runs with the first of them.

    Args:
        folders: of two or more runs; or of a single one, of which ``arms`` names two to compare.
        measures: that are compared.
        arms: ``BASE=OTHER`` or ``NAME`` for each arm; all that are named alike when empty.
        equivalent: the largest change that does not matter, as a share.
        across_versions: whether runs of different versions of virtgauge may be compared.
        progress: told what is being done.

    Raises:
        UsageError: a comparison that makes no sense, and why.
    """
    runs = _read(folders, measures, across_versions, progress)
    matched = match(runs, measures, arms)
    progress(f"comparing {len(matched.places)} figures")
    criteria = Criteria(runs[0].manifest.confidence, equivalent)
    changes = find_changes(runs, matched, criteria)
    return Comparison(**_common(runs, matched, criteria, across_versions), changes=changes)


def compare_series(
    folders: Sequence[Path],
    measures: Sequence[Measure],
    *,
    arms: Sequence[str] = (),
    equivalent: float = 0.05,
    across_versions: bool = False,
    seed: int = 1,
    progress: Progress = lambda what: None,
) -> SeriesComparison:
    """Find changes within a series of runs, in the order in which they were made.

    Args:
        folders: of four or more runs, in any order.
        measures, arms, equivalent, across_versions, progress: see :func:`compare_runs`.
        seed: of the permutations.

    Raises:
        UsageError: a series that makes no sense, and why.
    """
    runs = _read(folders, measures, across_versions, progress)
    refuse_short_series(runs)
    runs.sort(key=lambda run: run.manifest.created_at)
    matched = match(runs, measures, arms)
    criteria = Criteria(runs[0].manifest.confidence, equivalent)
    series = find_series(runs, matched, criteria, seed, progress)
    return SeriesComparison(**_common(runs, matched, criteria, across_versions), seed=seed, series=series)


def _common(runs: Sequence[ReadRun], matched: Matched, criteria: Criteria, across_versions: bool) -> dict[str, Any]:
    names = cell_names(matched.cells)
    return {
        "schema_version": SCHEMA_VERSION,
        "runs": _lines(runs),
        "confidence": criteria.nominal,
        "equivalent": criteria.equivalent,
        "environment": differing_environment(runs),
        "caveats": caveats(runs, across_versions),
        "set_aside": matched.set_aside,
        "cells": tuple(CellLine(cell.suite, cell.probe, cell.factors, names[cell]) for cell in matched.cells),
        "arms": matched.arms,
    }


def render_json(found: Comparison | SeriesComparison) -> str:
    """The whole comparison in base units; a missing figure is null, and the estimate's ``method`` says why."""
    kind = "series" if isinstance(found, SeriesComparison) else "comparison"
    document = {"kind": kind} | dataclasses.asdict(found)
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _read(
    folders: Sequence[Path], measures: Sequence[Measure], across_versions: bool, progress: Progress
) -> list[ReadRun]:
    runs = []
    for folder in folders:
        progress(f"reading {folder}")
        runs.append(read_run(folder, measures))
    refuse_same_runs(runs)
    refuse_other_versions(runs, across_versions)
    return runs


def _lines(runs: Sequence[ReadRun]) -> tuple[RunLine, ...]:
    return tuple(
        RunLine(
            label=label,
            run_id=run.manifest.run_id,
            created_at=run.manifest.created_at,
            plan_name=run.manifest.plan_name,
            tool_version=run.manifest.tool_version,
            repetitions=run.repetitions,
            finished=run.finished,
        )
        for label, run in zip(run_labels(runs), runs, strict=True)
    )
