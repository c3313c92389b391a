"""What each guest of a run was: the settings that a plan gave, or in which its arms differ, and what was in force."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from virtgauge.ledger.records import ArmRecord, Manifest
from virtgauge.report.trials import flattened
from virtgauge.specs.blocks import Column, Row, Section, table_of

_APART = frozenset({"name", "kind", "found"})  # What is no setting of a plan's section: see the label, and environment
OF_EVERY_RUN = frozenset({"boot id", "hypervisor steal ticks"})  # Facts that differ between any two and mean nothing
_CAPTION = (
    "Settings that the plan gave to some platform, or in which platforms of one kind differ; – is the default, or a "
    "setting that the platform does not have. “In force” was read back from the platform and from the host."
)


def settings_section(plan_text: str, arms: Sequence[ArmRecord], facts: Mapping[str, Mapping[str, Any]]) -> Section:
    """A folded table of settings by arm; ``facts`` are those of each arm's first guest."""
    shown = [arm for arm in arms if arm.usable and arm.role != "aa"]
    given = _given(plan_text)
    values = {arm.name: dict(_named(arm.settings)) | given.get(arm.name, {}) for arm in shown}
    told = {arm.name: _in_force(facts.get(arm.name, {})) for arm in shown}
    names = dict.fromkeys(name for arm in shown for name in values[arm.name])
    wanted = [name for name in names if any(name in one for one in given.values()) or _differs(name, shown, values)]
    rows = [Row((name,), "", tuple(_text(name, values[arm.name], told[arm.name]) for arm in shown)) for name in wanted]
    columns = [Column(arm.label, text=True) for arm in shown]
    tables = tuple(table_of("", ("Setting",), columns, rows, _CAPTION))
    return Section("settings", "Settings of the guests", tables, folded=True)


def recorded_facts(
    manifest: Manifest, fingerprint: Mapping[str, Any], arms: Iterable[ArmRecord]
) -> Iterator[tuple[str, str]]:
    """What was recorded beside a run's figures, by name: a host's fingerprint, virtgauge, plan, and these arms."""
    for name, value in flattened(fingerprint):
        yield name.removeprefix("identity ").removeprefix("context ").replace("_", " "), value
    yield "virtgauge", manifest.tool_version
    yield "agent (SHA-256)", manifest.agent_sha256[:12]
    yield "plan", manifest.plan_name
    for arm in arms:
        for name, value in (("kind", arm.kind), ("is", arm.label), *flattened(arm.settings)):
            yield f"{arm.name}: {name.replace('_', ' ')}", value


def _given(plan_text: str) -> dict[str, dict[str, str]]:
    """What the plan says of each platform; nothing where it is no plan that is known."""
    try:
        sections = tomllib.loads(plan_text)["platform"]
        return {str(section["name"]): dict(_named(section)) for section in sections}
    except (tomllib.TOMLDecodeError, KeyError, TypeError, AttributeError):
        return {}


def _named(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    return flattened({name: value for name, value in settings.items() if name not in _APART})


def _in_force(facts: Mapping[str, Any]) -> dict[str, str]:
    found = facts.get("in_force")
    return {name.replace(".", " "): str(told) for name, told in found.items()} if isinstance(found, dict) else {}


def _differs(name: str, arms: Sequence[ArmRecord], values: Mapping[str, Mapping[str, str]]) -> bool:
    """Whether arms of one kind have it and differ in it."""
    levels = {(arm.kind, values[arm.name].get(name)) for arm in arms}
    return len(levels) > len({arm.kind for arm in arms})


def _text(name: str, values: Mapping[str, str], told: Mapping[str, str]) -> str | None:
    if name in told:
        return f"{values.get(name, '–')} (in force: {told[name]})"
    return values.get(name)
