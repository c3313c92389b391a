"""Presets that replay the papers' designs in short: one for each part, and ``paper:all`` composed of them."""

from __future__ import annotations

import functools
import tomllib
from importlib import resources
from typing import Any

PAPER_PREFIX = "paper:"
"""Of a plan's name whose report sets the papers' conclusions beside what was measured."""
ALL = f"{PAPER_PREFIX}all"
_PARTS = ("timing", "bandwidth", "forwarding", "storage", "isolation")
_ABOUT = (
    "A short replay of four papers: each of their conclusions beside what is measured here; about 45 minutes on two "
    "cores, some 25 more with KVM"
)
_HEAD = f"""\
# The designs of {", ".join(PAPER_PREFIX + part for part in _PARTS)},
# composed into one plan; `virtgauge plan show {PAPER_PREFIX}timing` and so on say why each is what it is.
"""


def paper_names() -> tuple[str, ...]:
    """Their names, that of all of them first."""
    return (ALL, *(PAPER_PREFIX + part for part in _PARTS))


def paper_text(name: str) -> str:
    """One of these as TOML.

    Raises:
        KeyError: there is none of that name.
    """
    if name == ALL:
        return _composed()
    if name not in paper_names():
        raise KeyError(name)
    part = name.removeprefix(PAPER_PREFIX)
    return (resources.files("virtgauge.plan") / "presets" / "paper" / f"{part}.toml").read_text(encoding="utf-8")


@functools.cache
def _composed() -> str:
    import tomli_w

    plans = [tomllib.loads(paper_text(PAPER_PREFIX + part)) for part in _PARTS]
    platforms: dict[str, dict[str, Any]] = {}
    for plan in plans:
        for section in plan["platform"]:
            if platforms.setdefault(section["name"], section) != section:
                raise ValueError(f"{plan['name']}: platform {section['name']!r} differs from another plan's")
    composed = {
        "name": ALL,
        "description": _ABOUT,
        "repetitions": max(plan["repetitions"] for plan in plans),
        "platform": list(platforms.values()),
        "suite": {suite: designs for plan in plans for suite, designs in _scoped(plan).items()},
    }
    return _HEAD + tomli_w.dumps(composed)


def _scoped(plan: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """A plan's designs, each for the platforms of that plan, and for its A/A arm only if that plan has one."""
    scope: dict[str, Any] = {"platforms": [section["name"] for section in plan["platform"]]}
    if not plan.get("aa", True):
        scope["aa"] = False
    return {suite: [scope | design for design in designs] for suite, designs in plan["suite"].items()}
