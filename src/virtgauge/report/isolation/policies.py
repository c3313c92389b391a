"""What was declared for each guest, and what the platform said was in force."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from virtgauge.report.isolation.model import AppliedPolicy, Key
from virtgauge.report.isolation.results import Results


def applied_policies(results: Results, arms: Sequence[str]) -> tuple[AppliedPolicy, ...]:
    """Every policy on every arm once, of the guest that it was for, as the last valid result recorded it."""
    last: dict[tuple[Any, ...], tuple[Key, Mapping[str, Any]]] = {}
    for arm in arms:
        for key in results.keys:
            if not key.free:
                for trial in results.counted(key, arm).values():
                    told = (trial.result.get("policy_applied") or {}).get(key.on)
                    if told:
                        last[arm, key.policy, key.on, key.share, key.cores] = key, told
    return tuple(_applied(arm, key, told) for (arm, *_), (key, told) in last.items())


def _applied(arm: str, key: Key, told: Mapping[str, Any]) -> AppliedPolicy:
    return AppliedPolicy(
        arm=arm,
        policy=key.policy,
        on=key.on,
        share=key.share,
        cores=key.cores,
        declared=_texts(told.get("declared")),
        in_force=_texts(told.get("in_force")),
        no_effect=tuple(str(one) for one in told.get("no_effect") or ()),
        notes=tuple(str(one) for one in told.get("notes") or ()),
    )


def _texts(told: Mapping[str, Any] | None) -> dict[str, str]:
    """Nested bounds (``disk``: its four) as names of one level; what is not bounded is left out."""
    found: dict[str, str] = {}
    for name, value in (told or {}).items():
        if isinstance(value, Mapping):
            found |= {f"{name} {inner}": text for inner, text in _texts(value).items()}
        elif isinstance(value, list | tuple):
            found[str(name)] = ", ".join(str(one) for one in value)
        elif value is not None:
            found[str(name)] = f"{value:g}" if isinstance(value, float) else str(value)
    return found
