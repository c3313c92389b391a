"""Comparisons that make no sense, refused with the reason and what to do instead."""

from __future__ import annotations

from collections.abc import Sequence

from virtgauge.compare.runs import ReadRun
from virtgauge.errors import UsageError

LEAST_SERIES = 4
"""Runs; with three, one that differs cannot be told from a change."""


def refuse_same_runs(runs: Sequence[ReadRun]) -> None:
    """Refuse a run beside itself or its copy.

    Raises:
        UsageError: two folders hold the same run.
    """
    seen: dict[tuple[str, str, int], ReadRun] = {}
    for run in runs:
        twin = seen.setdefault(run.identity, run)
        if twin is not run:
            raise UsageError(
                f"{twin.folder} and {run.folder} hold the same run ({run.manifest.run_id}, made "
                f"{run.manifest.created_at[:19]})",
                "name two runs; what a run says of its own platforms is in `virtgauge report`, and "
                "`virtgauge compare RUN --arm A=B` holds two of them against each other",
            )


def refuse_other_versions(runs: Sequence[ReadRun], across: bool) -> None:
    """Refuse runs that different versions of virtgauge measured, unless that is asked for.

    Raises:
        UsageError: their major or minor version differs.
    """
    base = runs[0]
    for run in runs[1:]:
        if not across and _series(run) != _series(base):
            raise UsageError(
                f"{base.folder} was measured by virtgauge {base.manifest.tool_version} and {run.folder} by "
                f"{run.manifest.tool_version}: a figure of the same name may have been measured otherwise",
                "measure both with one version, or compare with --across-versions, which marks it",
            )


def refuse_short_series(runs: Sequence[ReadRun]) -> None:
    """Refuse a series in which a change could not be told from a single run that differs.

    Raises:
        UsageError: it has too few runs.
    """
    if len(runs) < LEAST_SERIES:
        raise UsageError(
            f"--series: {len(runs)} runs; a series takes {LEAST_SERIES} at least",
            "compare fewer without --series, or add runs",
        )


def _series(run: ReadRun) -> tuple[str, ...]:
    return tuple(run.manifest.tool_version.split(".")[:2])
