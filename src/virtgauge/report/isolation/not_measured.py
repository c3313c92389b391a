"""What gave no figure, each reason once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from virtgauge.ledger.records import ArmRecord
from virtgauge.report.isolation.model import Degree, Key, NotMeasured, ResourceSentence
from virtgauge.report.isolation.results import Results
from virtgauge.report.isolation.vocabulary import SHORT_CORES, policy_name
from virtgauge.report.trial_results import why_missing


def not_measured(
    results: Results, arms: Sequence[ArmRecord], sentences: Sequence[ResourceSentence]
) -> tuple[NotMeasured, ...]:
    """Cells without a valid trial, with the reason of the last attempt, and resources that the plan leaves out."""
    usable = [arm.name for arm in arms if arm.usable]
    reasons: dict[tuple[str, str], list[Key]] = {}
    for arm in usable:
        for key in results.keys:
            tried = results.tried(key, arm)
            if tried and not results.work(key, arm):
                reasons.setdefault((arm, why_missing(tried, "rate")), []).append(key)
    rows: dict[tuple[str, str], list[str]] = {}
    for (arm, reason), keys in reasons.items():
        rows.setdefault((_what(keys, len(results.keys)), reason), []).append(arm)
    found = [
        NotMeasured(what, tuple(names) if len(names) < len(usable) else (), reason)
        for (what, reason), names in rows.items()
    ]
    return (*found, *_left_out(sentences))


def _left_out(sentences: Sequence[ResourceSentence]) -> list[NotMeasured]:
    """Resources of which nothing is said of any platform."""
    resources = dict.fromkeys(one.resource for one in sentences)
    said = {one.resource for one in sentences if one.degree is not Degree.OPEN}
    reasons = {one.resource: one.text for one in sentences}
    return [NotMeasured(one.value, (), reasons[one]) for one in resources if one not in said]


def _what(keys: Sequence[Key], of: int) -> str:
    """What cells have in common: ``disk limit, on the loading guest (12 cells)``."""
    if len(keys) == 1:
        key = keys[0]
        return f"{key.benchmark_label}, {key.load_label}, {key.policy_label}, {SHORT_CORES.get(key.cores, key.cores)}"
    if len(keys) == of:
        return "everything"
    labels: dict[str, Callable[[Key], str]] = {
        "benchmark_label": lambda key: key.benchmark_label,
        "load": lambda key: key.load_label,
        "policy": lambda key: policy_name(key.policy),
        "on": lambda key: f"on the {key.on} guest",
        "cores": lambda key: SHORT_CORES.get(key.cores, key.cores),
    }
    common = [label(keys[0]) for name, label in labels.items() if len({getattr(key, name) for key in keys}) == 1]
    return f"{', '.join(one for one in common if one != 'on the none guest') or 'several'} ({len(keys)} cells)"
