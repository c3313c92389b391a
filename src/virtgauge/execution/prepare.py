"""From a plan to what will be run: every section checked, every platform probed, before anything is started."""

from __future__ import annotations

import asyncio
import dataclasses

from pydantic import ValidationError

from virtgauge.decisions.requirements import BoundRequirement, understand
from virtgauge.errors import UnavailableError, UsageError
from virtgauge.ledger.records import ArmRecord
from virtgauge.plan.design_scope import DesignScope
from virtgauge.plan.explain import explain
from virtgauge.plan.model import AA_SUFFIX, Plan, PlatformSection
from virtgauge.platforms.base import Availability, Platform
from virtgauge.platforms.registry import KINDS, create, settings_model
from virtgauge.suites.base import PLAIN_BENCH, Cell, Suite
from virtgauge.suites.registry import SUITES


@dataclasses.dataclass(frozen=True)
class Arm:
    """A platform of the plan, ready to launch guests under its name."""

    record: ArmRecord
    platform: Platform


@dataclasses.dataclass(frozen=True)
class Design:
    """A plan's checked content.

    Attributes:
        platforms: by name, not yet probed.
        cells: each once, though several designs have it.
        suites: of each cell, by its key.
        scopes: of every design that has a cell, by the cell's key.
        requirements: what the platforms must do.
    """

    platforms: dict[str, Platform]
    cells: tuple[Cell, ...]
    suites: dict[str, Suite]
    scopes: dict[str, tuple[DesignScope, ...]]
    requirements: tuple[BoundRequirement, ...] = ()

    def is_for(self, cell: Cell, arm: ArmRecord) -> bool:
        """Whether a cell is measured on an arm."""
        name = arm.name.removesuffix(AA_SUFFIX) if arm.role == "aa" else arm.name
        return self._is_for(cell, name, aa=arm.role == "aa", emulated=arm.emulated)

    def cells_of(self, platform: str) -> list[Cell]:
        """What is measured on a platform, if it is not emulated."""
        return [cell for cell in self.cells if self._is_for(cell, platform, aa=False, emulated=False)]

    def trials_of_a_repetition(self, plan: Plan) -> int:
        """If every platform can be used, and none is emulated."""
        arms = [(name, False) for name in self.platforms] + [(plan.reference, True)] * plan.aa
        return sum(self._is_for(cell, name, aa=aa, emulated=False) for cell in self.cells for name, aa in arms)

    def _is_for(self, cell: Cell, platform: str, *, aa: bool, emulated: bool) -> bool:
        return any(scope.is_for(platform, aa=aa, emulated=emulated) for scope in self.scopes[cell.key])

    def shortfalls(self) -> list[str]:
        """What the suites need and this machine lacks, in words, each said once."""
        suites = {id(suite): suite for suite in self.suites.values()}
        return list(dict.fromkeys(words for suite in suites.values() for words in suite.shortfalls()))


def check_plan(plan: Plan, source: str) -> Design:
    """Check every section of a plan; starts nothing.

    Raises:
        UsageError: naming source, field, value and remedy.
    """
    platforms = {section.name: _platform(section, index, source) for index, section in enumerate(plan.platform)}
    suites: dict[str, Suite] = {}
    scopes: dict[str, tuple[DesignScope, ...]] = {}
    cells: list[Cell] = []
    for name, designs in plan.suite.items():
        for index, section in enumerate(designs):
            scope, settings = _scope(name, section, index, platforms, source)
            suite = _suite(name, settings, index, source)
            for cell in suite.cells():
                if cell.key not in suites:  # two designs may share a cell; it is measured once
                    suites[cell.key] = suite
                    cells.append(cell)
                scopes[cell.key] = (*scopes.get(cell.key, ()), scope)
    if not cells:
        raise UsageError(f"{source}: the plan has no cell to measure", "give its suites at least one function")
    figures = [cell.figures_key for cell in cells]
    requirements = understand(plan.requirements, figures, list(platforms), plan.confidence, source)
    design = Design(platforms, tuple(cells), suites, scopes, requirements)
    _require_plain(design, source)
    return design


def _scope(
    suite: str, section: dict[str, object], index: int, platforms: dict[str, Platform], source: str
) -> tuple[DesignScope, dict[str, object]]:
    try:
        scope, settings = DesignScope.split(section)
    except ValidationError as error:
        raise explain(error, source, ("suite", suite, index), DesignScope) from error
    for name in scope.platforms or ():
        if name not in platforms:
            raise UsageError(
                f"{source}: suite.{suite}[{index}].platforms: {name!r} is no platform of the plan",
                f"name some of {', '.join(platforms)}",
            )
    return scope, settings


def _platform(section: PlatformSection, index: int, source: str) -> Platform:
    path = ("platform", index)
    if section.kind not in KINDS:
        raise UsageError(
            f"{source}: platform[{index}].kind = {section.kind!r}: there is no such kind of platform",
            f"use one of {', '.join(sorted(KINDS))}",
        )
    try:
        return create(section.kind, section.settings)
    except ValidationError as error:
        raise explain(error, source, path, settings_model(section.kind)) from error


def _require_plain(design: Design, source: str) -> None:
    """Refuse cells that a platform whose guests can be had only as they are could never measure."""
    for name, platform in design.platforms.items():
        beyond = next((cell for cell in design.cells_of(name) if cell.bench != PLAIN_BENCH), None)
        if beyond is not None and platform.only_plain is not None:
            level = f" with load = {beyond.factors['load']!r}" if "load" in beyond.factors else ""
            raise UsageError(
                f"{source}: platform {name!r} cannot be measured by suite.{beyond.suite}{level}: {platform.only_plain}",
                "leave it out, or measure the platform in a plan of its own: suite.timing without the load io needs "
                "nothing but the machine",
            )


def _suite(name: str, settings: dict[str, object], index: int, source: str) -> Suite:
    if name not in SUITES:
        raise UsageError(f"{source}: suite.{name}: there is no such suite", f"use one of {', '.join(sorted(SUITES))}")
    kind = SUITES[name]
    try:
        return kind.create(settings)
    except ValidationError as error:
        raise explain(error, source, ("suite", name, index), kind.Settings) from error


def probe_platforms(plan: Plan, source: str) -> list[tuple[str, str, Availability]]:
    """Name, label and availability of every platform of a plan (what `virtgauge doctor` shows).

    Raises:
        UsageError: the plan is refused.
    """

    async def probe_all() -> list[tuple[str, str, Availability]]:
        platforms = check_plan(plan, source).platforms
        return [(name, platform.label, await platform.probe()) for name, platform in platforms.items()]

    return asyncio.run(probe_all())


async def probe_arms(plan: Plan, platforms: dict[str, Platform]) -> list[Arm]:
    """Find out which platforms can be used here; the A/A arm follows its reference.

    Raises:
        UnavailableError: the reference cannot be used, or nothing but the reference can and there is no A/A arm.
    """
    arms = []
    for section in plan.platform:
        platform = platforms[section.name]
        availability = await platform.probe()
        role = "reference" if section.name == plan.reference else "test"
        arms.append(_arm(section.name, role, platform, availability))
        if role == "reference" and plan.aa:
            arms.append(_arm(section.name + AA_SUFFIX, "aa", platform, availability))
    reference = next(arm.record for arm in arms if arm.record.role == "reference")
    if not reference.usable:
        raise UnavailableError(
            f"the reference platform {reference.name!r} cannot be used here: {reference.reason}",
            reference.fix or "name another reference in the plan",
        )
    return arms


def _arm(name: str, role: str, platform: Platform, availability: Availability) -> Arm:
    record = ArmRecord(
        name=name,
        kind=platform.kind,
        label=platform.label + (" (A/A)" if role == "aa" else ""),
        role=role,
        emulated=availability.emulated,
        usable=availability.usable,
        reason=availability.reason,
        fix=availability.fix,
        settings=platform.describe() | {"found": availability.details},
    )
    return Arm(record=record, platform=platform)
