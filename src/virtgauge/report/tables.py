"""What every run has, as rows ready to be shown: trials, facts, and how a comparison is coloured."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from virtgauge.report.model import Report
from virtgauge.report.trial_lines import TrialLine

MOST_SPOILT_TRIALS = 200
"""Of those that do not count, at most so many stand in the page's markup; all are in its table of trials."""

MOST_TRIALS = 10_000
"""Of more, the page sums up what every platform did of each cell; an export has all."""


def invalid_trials(report: Report) -> list[TrialLine]:
    """The first of the trials that do not count."""
    return list(itertools.islice(report.trials.invalid(), MOST_SPOILT_TRIALS))


def trial_columns(report: Report) -> dict[str, Any]:
    """All trials by columns; repeated texts once, referred to by number."""
    texts: dict[str, int] = {}

    def number(text: str) -> int:
        return texts.setdefault(text, len(texts))

    columns: dict[str, list[Any]] = {
        name: [] for name in ("id", "what", "arm", "block", "attempt", "status", "samples", "median", "foreign", "note")
    }
    for trial in report.trials:
        columns["id"].append(trial.trial_id)
        columns["what"].append(number(report.cells[trial.cell].name))
        columns["arm"].append(number(trial.arm))
        columns["block"].append(trial.block)
        columns["attempt"].append(trial.attempt)
        columns["status"].append(number(trial.status))
        columns["samples"].append(trial.samples)
        columns["median"].append(None if trial.median_ns is None else float(f"{trial.median_ns:.4g}"))
        columns["foreign"].append(None if trial.foreign_share is None else round(trial.foreign_share, 4))
        columns["note"].append(number(note_of(trial)))
    return {"texts": list(texts), "columns": columns}


def note_of(trial: TrialLine) -> str:
    """Error and flags of a trial in one line."""
    return "; ".join([*([trial.error] if trial.error else []), *trial.flags])


def flattened(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Nested facts as rows ``cpu model → …``; what is unknown is left out."""
    return list(_flatten(facts, ""))


def _flatten(value: Any, prefix: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flatten(inner, f"{prefix} {key}".strip())
    elif isinstance(value, list | tuple) and all(not isinstance(inner, Mapping | list | tuple) for inner in value):
        yield prefix, " ".join(str(inner) for inner in value)
    elif isinstance(value, list | tuple):
        for place, inner in enumerate(value):
            yield from _flatten(inner, f"{prefix} {place}")
    elif isinstance(value, bool):
        yield prefix, "yes" if value else "no"
    elif value is not None:
        yield prefix, str(value)
