"""The arms that one suite's part of a report is about: all of the run's, unless its designs are for some only."""

from __future__ import annotations

import dataclasses

from virtgauge.ledger.records import ArmRecord, Manifest
from virtgauge.plan.design_scope import scopes_of
from virtgauge.plan.model import AA_SUFFIX

_LEFT_OUT = "left out by the plan: the figures of an emulated processor decide nothing, and it would take long"


def arms_of(manifest: Manifest, suite: str) -> tuple[ArmRecord, ...]:
    """Arms in the manifest's order; one that was left out as emulated is not usable here, and says why."""
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
