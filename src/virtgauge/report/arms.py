"""How arms are drawn and called alike everywhere, and which of them a suite is about."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from virtgauge.ledger.records import ArmRecord, Manifest
from virtgauge.plan.model import AA_SUFFIX, scopes_of

REFERENCE_COLOUR = "#7b8494"
_COLOURS = (
    *("#2f7ff0", "#ee7d22", "#12a594", "#c44fb8", "#b89400"),
    *("#8a63f0", "#e5484d", "#56a336", "#0ea5d0", "#a1745a"),
)


def arm_colours(arms: Sequence[ArmRecord]) -> dict[str, str]:
    """A colour for every arm: neutral for reference and A/A, else by order in the plan."""
    tests = [arm.name for arm in arms if arm.role == "test"]
    colours = {name: _COLOURS[place % len(_COLOURS)] for place, name in enumerate(tests)}
    return {arm.name: colours.get(arm.name, REFERENCE_COLOUR) for arm in arms}


def arm_dashes(arms: Sequence[ArmRecord]) -> dict[str, list[int]]:
    """Solid lines for measured arms, dashed for emulated ones, dotted for the A/A arm."""
    return {arm.name: [7, 3] if arm.emulated else [2, 2] if arm.role == "aa" else [1, 0] for arm in arms}


def told_apart(arms: Sequence[ArmRecord]) -> tuple[ArmRecord, ...]:
    """The same arms, each with a label of its own."""
    labels = row_labels(arms)
    return tuple(dataclasses.replace(arm, label=labels[arm.name]) for arm in arms)


def row_labels(arms: Sequence[ArmRecord]) -> dict[str, str]:
    """A label for every arm, told apart by its name where two arms share one."""
    labels = [arm.label for arm in arms]
    return {arm.name: arm.label if labels.count(arm.label) == 1 else f"{arm.label} [{arm.name}]" for arm in arms}


_LEFT_OUT = "left out by the plan: the figures of an emulated processor decide nothing, and it would take long"


def arms_of(manifest: Manifest, suite: str) -> tuple[ArmRecord, ...]:
    """Of a suite, in the manifest's order: all, unless its designs are for some only.

    One that was left out as emulated is not usable here, and says why.
    """
    scopes = scopes_of(manifest.plan_text, suite)
    if not scopes:
        return manifest.arms
    found = []
    for arm in manifest.arms:
        aa = arm.role == "aa"
        platform = arm.name.removesuffix(AA_SUFFIX) if aa else arm.name
        if any(scope.is_for(platform, aa=aa, emulated=arm.emulated) for scope in scopes):
            found.append(arm)
        elif any(scope.is_for(platform, aa=aa, emulated=False) for scope in scopes):
            found.append(dataclasses.replace(arm, usable=False, reason=_LEFT_OUT) if arm.usable else arm)
    return tuple(found)
