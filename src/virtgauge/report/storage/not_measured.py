"""Databases and levels that gave no figure, each reason once."""

from __future__ import annotations

from collections.abc import Sequence

from virtgauge.ledger.records import ArmRecord, TrialRecord, TrialStatus
from virtgauge.report.storage.model import NotMeasured
from virtgauge.report.storage.results import Results
from virtgauge.report.storage.vocabulary import DATABASES, PAPER_LEVELS, database_title
from virtgauge.report.trial_results import why_missing


def not_measured(results: Results, arms: Sequence[ArmRecord]) -> tuple[NotMeasured, ...]:
    """What no valid trial of a database at a level is there for, with the reason of the last attempt.

    A reason that holds for every level of a database is given for the database alone; the paper's databases that the
    plan does not have are named too.
    """
    usable = [arm.name for arm in arms if arm.usable]
    reasons: dict[tuple[str, str], dict[str, str]] = {}
    measured = set()
    for arm in usable:
        places: dict[tuple[str, str], list[TrialRecord]] = {}
        for key in results.keys:
            places.setdefault((key.database, key.durability), []).extend(results.tried(key, arm))
        for place, tried in places.items():
            if any(trial.status is TrialStatus.VALID for trial in tried):
                measured.add(place[0])
            elif tried:
                reasons.setdefault(place, {})[arm] = why_missing(tried, "rate")
    rows: dict[tuple[str, str], tuple[list[str], list[str]]] = {}
    for (database, level), by_arm in reasons.items():
        for arm, reason in by_arm.items():
            levels, names = rows.setdefault((database, reason), ([], []))
            levels += [level] * (level not in levels)
            names += [arm] * (arm not in names)
    found = [
        NotMeasured(
            database_title(database),
            "" if database not in measured and len(levels) > 1 else ", ".join(levels),
            tuple(names) if len(names) < len(usable) else (),
            reason,
        )
        for (database, reason), (levels, names) in rows.items()
    ]
    planned = {database_title(key.database) for key in results.keys}
    absent = [name for name in DATABASES.values() if name in PAPER_LEVELS and name not in planned]
    return (*found, *(NotMeasured(name, "", (), "the plan does not have it; the paper does") for name in absent))
