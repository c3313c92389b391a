"""What a guest's kernel says of the states that an idle processor waits in, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MOST_NAMED = 6


def visible(idle: Mapping[str, Any] | None) -> bool:
    """Whether this kernel itself chooses between idle states."""
    return bool(idle and idle.get("states") and idle.get("driver") not in (None, "none"))


def described(idle: Mapping[str, Any] | None) -> str:
    """``intel_idle, menu: POLL 0 µs, C1 2 µs, C6 133 µs (disabled)``."""
    if idle is None:
        return "not told"
    if not visible(idle):
        return "none visible"
    names = [part for part in (idle["driver"], idle.get("governor")) if part]
    states = idle["states"]
    shown = ", ".join(_state(state) for state in states[:_MOST_NAMED])
    more = f" and {len(states) - _MOST_NAMED} more" if len(states) > _MOST_NAMED else ""
    return f"{', '.join(dict.fromkeys(names))}: {shown}{more}"


def _state(state: Mapping[str, Any]) -> str:
    latency = "" if state.get("latency_us") is None else f" {state['latency_us']} µs"
    return f"{state.get('name', '')}{latency}{' (disabled)' if state.get('disabled') else ''}"
