"""What gave no figure, each reason once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from virtgauge.ledger.records import ArmRecord
from virtgauge.report.bandwidth.keys import Key
from virtgauge.report.bandwidth.model import NotMeasured
from virtgauge.report.bandwidth.results import Results
from virtgauge.report.bandwidth.vocabulary import PRECISE, SHIM
from virtgauge.report.trial_results import why_missing


def not_measured(results: Results, arms: Sequence[ArmRecord]) -> tuple[NotMeasured, ...]:
    """Cells without a valid trial, with the reason of the last attempt, and timings that the plan leaves out."""
    usable = [arm.name for arm in arms if arm.usable]
    reasons: dict[tuple[str, str], list[Key]] = {}
    for arm in usable:
        for key in results.keys:
            tried = results.tried(key, arm)
            if tried and not results.counted(key, arm):
                reasons.setdefault((arm, why_missing(tried, "estimate")), []).append(key)
    rows: dict[tuple[str, str], list[str]] = {}
    for (arm, reason), keys in reasons.items():
        rows.setdefault((_what(keys, len(results.keys)), reason), []).append(arm)
    found = [
        NotMeasured(what, tuple(names) if len(names) < len(usable) else (), reason)
        for (what, reason), names in rows.items()
    ]
    return (*found, *_left_out(results.keys))


def _left_out(keys: Sequence[Key]) -> list[NotMeasured]:
    """What the report would compare, were it in the plan."""
    timings, ways = {key.timing for key in keys}, {key.through for key in keys}
    found = []
    if len(timings) < 2:
        found.append(NotMeasured("what precise timing does", (), "the plan has a single timing"))
    elif PRECISE not in timings:
        found.append(NotMeasured("what hptime does", (), "the plan has no timing hptime"))
    if SHIM not in ways:
        found.append(NotMeasured("the shim", (), "the plan has no cell with through = shim"))
    if all(key.path.free for key in keys):
        found.append(NotMeasured("cross traffic", (), "the plan has none"))
    return found


def _what(keys: Sequence[Key], of: int) -> str:
    """What cells have in common: ``kite2, hptime by the shim (12 cells)``."""
    if len(keys) == 1:
        return keys[0].label
    if len(keys) == of:
        return "everything"
    labels: tuple[Callable[[Key], str], ...] = (
        lambda key: key.estimator,
        lambda key: key.arrangement,
        lambda key: key.path.link.label,
        lambda key: key.path.cross_label,
        lambda key: key.pacing_label.removeprefix(", "),
    )
    common = [label(keys[0]) for label in labels if len({label(key) for key in keys}) == 1]
    return f"{', '.join(one for one in common if one) or 'several'} ({len(keys)} cells)"
