"""From a plan to what will be run: every section checked, every platform probed, before anything is started."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from virtgauge.analysis.distribution import samples_needed
from virtgauge.decisions.requirements import BoundRequirement, resolve
from virtgauge.errors import UnavailableError, UsageError, closest, nearest
from virtgauge.ledger.records import TAILS, ArmRecord
from virtgauge.plan.load import PlanError, Problems, explain, load_plan
from virtgauge.plan.model import AA_SUFFIX, DesignScope, Plan, PlatformSection
from virtgauge.plan.requirements import Requirement
from virtgauge.platforms import KINDS, create, settings_model
from virtgauge.platforms.base import Availability, Platform
from virtgauge.suites.base import PLAIN_TESTBED, Cell, Suite
from virtgauge.suites.cell_settings import lost_loads, other_servers, settings_of_cell
from virtgauge.suites.registry import SUITES


@dataclasses.dataclass(frozen=True)
class Arm:
    """A platform of the plan, ready to launch guests under its name."""

    record: ArmRecord
    platform: Platform


@dataclasses.dataclass(frozen=True)
class Design:
    """A plan's checked content."""

    platforms: dict[str, Platform]  # by name, not yet probed
    cells: tuple[Cell, ...]  # each once, though several designs have it
    suites: dict[str, Suite]  # of each cell, by its key
    scopes: dict[str, tuple[DesignScope, ...]]  # of every design that has a cell, by the cell's key
    requirements: tuple[BoundRequirement, ...] = ()  # what the platforms must do

    def is_for(self, cell: Cell, arm: ArmRecord) -> bool:
        name = arm.name.removesuffix(AA_SUFFIX) if arm.role == "aa" else arm.name
        return self._is_for(cell, name, aa=arm.role == "aa", emulated=arm.emulated)

    def refusal(self, cell: Cell, platform: Platform) -> str | None:
        """Why a cell cannot be measured on a platform, and takes no time there; None where it can, or may be tried."""
        return self.suites[cell.key].refusal(cell, platform)

    def cells_of(self, platform: str) -> list[Cell]:
        """What is measured on a platform, if it is not emulated."""
        return [cell for cell in self.cells if self._is_for(cell, platform, aa=False, emulated=False)]

    def trials_of_a_repetition(self, plan: Plan) -> int:
        """If every platform can be used, and none is emulated."""
        arms = [(name, False) for name in self.platforms] + [(plan.reference, True)] * plan.aa
        return sum(self._is_for(cell, name, aa=aa, emulated=False) for cell in self.cells for name, aa in arms)

    @property
    def depends_on_emulation(self) -> bool:
        """Whether cells are left out on platforms that turn out to be emulated."""
        return not all(any(scope.emulated for scope in scopes) for scopes in self.scopes.values())

    def _is_for(self, cell: Cell, platform: str, *, aa: bool, emulated: bool) -> bool:
        return any(scope.is_for(platform, aa=aa, emulated=emulated) for scope in self.scopes[cell.key])

    def to_do(self, arm: Arm) -> list[str]:
        """What a person has to do at an arm's platform before it is measured, in words."""
        if arm.record.role == "aa":
            return []
        suites = {id(suite): suite for suite in (self.suites[cell.key] for cell in self.cells_of(arm.record.name))}
        return [words for suite in suites.values() for words in suite.to_do(arm.platform)]

    def needs(self) -> list[str]:
        """The parts (``provision/parts.py``) that platforms and suites need, each named once."""
        platforms = self.platforms.values()
        simulated = all(platform.simulated for platform in platforms)
        wanted = [part for platform in platforms for part in platform.needs()]
        wanted += [part for suite in self._distinct_suites() for part in suite.needs()]
        return list(dict.fromkeys([*([] if simulated else ["agent"]), *wanted, "page"]))

    def missing_prerequisites(self) -> list[str]:
        """What the suites need and this machine lacks, in words, each said once; nothing lacks for a simulation."""
        if all(platform.simulated for platform in self.platforms.values()):
            return []
        found = (words for suite in self._distinct_suites() for words in suite.missing_prerequisites())
        return list(dict.fromkeys(found))

    def _distinct_suites(self) -> list[Suite]:
        """The suite of each design once, though many cells have it."""
        return list({id(suite): suite for suite in self.suites.values()}.values())

    def undecidable(self) -> list[str]:
        """Requirements on a quantile for which planned trials are too short, in words."""
        found = []
        for requirement in self.requirements:
            share = TAILS.get(requirement.measure.statistic)
            planned = [cell for cell in self.cells if requirement.covers(cell.figures_key) and "samples" in cell.params]
            fewest = min((cell.params["samples"] for cell in planned), default=None)
            if share is not None and fewest is not None and fewest < (needed := samples_needed(share)):
                key = "reads" if planned[0].probe == "timer_cost" else "sleep_samples"
                found.append(
                    f"{requirement.name}: cannot be decided: {requirement.measure.statistic} needs {needed} values in "
                    f"each trial, and {key} = {fewest}; set {key} = {needed} or more in [[suite.timing]]"
                )
        return found


def check_plan(plan: Plan, source: str) -> Design:
    """Check every section of a plan; starts nothing.
    Raises PlanError: all that is wrong, each with field, value and remedy.
    """
    problems = Problems(source)
    sections = _Sections(problems, [section.name for section in plan.platform])
    for index, section in enumerate(plan.platform):
        sections.add_platform(section, index)
    for name, designs in plan.suite.items():
        for index, settings in enumerate(designs):
            sections.add_suite(name, settings, index)
    whole = not problems.lines
    if whole and not sections.cells:
        raise UsageError(f"{source}: the plan has no cell to measure", "give its suites at least one function")
    cells = tuple(sections.cells.values())
    figures = [cell.figures_key for cell in cells] if whole else None  # else what is missing covers nothing
    requirements: tuple[BoundRequirement, ...] = ()
    with problems.collected():
        requirements = resolve(plan.requirements, figures, sections.names, plan.confidence, source)
    design = Design(sections.platforms, cells, sections.suites, sections.scopes, requirements)
    _require_testbeds(design, problems)
    if plan.at_the_same_time and (reason := next(_needing_turns(design), None)):
        problems.add(f"at_the_same_time = true: {reason[0]}", reason[1])
    problems.raise_if_any()
    return design


def load_checked(preset_or_path: str) -> tuple[Plan, str, Design]:
    """A plan by preset or file, what to call its source, and its checked content.
    Raises UsageError: it cannot be read; PlanError: all that is wrong with its frame and with its sections.
    """
    try:
        plan, source = load_plan(preset_or_path)
    except PlanError as error:
        if error.content is not None:
            raise PlanError(error.source, _problems_of_parts(error)) from None
        raise
    return plan, source, check_plan(plan, source)


def _problems_of_parts(error: PlanError) -> list[str]:
    """The problems of a refused frame, and those of what can be resolved of the plan in spite of them."""
    problems = Problems(error.source, error.lines)
    content = {_meant(name, error.content or {}): value for name, value in (error.content or {}).items()}
    rows = content.get("platform")
    tables = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    sections = _Sections(problems, [str(row.get("name")) for row in tables])
    for index, row in enumerate(tables):
        with contextlib.suppress(ValidationError):  # which the frame has told
            sections.add_platform(PlatformSection.model_validate(row), index)
    suites = content.get("suite")
    for name, designs in suites.items() if isinstance(suites, dict) else ():
        for index, design in enumerate(designs if isinstance(designs, list) else [designs]):
            if isinstance(design, dict):
                sections.add_suite(name, design, index)
    required = content.get("require")
    if isinstance(required, list):
        resolved = []
        for one in required:
            with contextlib.suppress(ValidationError):
                resolved.append(Requirement.model_validate(one))
        if len(resolved) == len(required):  # else their numbers would not be those of the file
            with problems.collected():
                resolve(resolved, None, sections.names, 0.95, error.source)
    # What fits together is asked of the frame's other fields only where each is right in itself.
    refused = {line.partition(" = ")[0].partition(":")[0].partition(".")[0].partition("[")[0] for line in error.lines}
    if refused & {"require", "profile"}:
        refused.add("budget")  # which would have nothing to decide
    try:
        Plan.model_validate({name: value for name, value in content.items() if name not in refused})
    except ValidationError as further:
        found = explain(further, error.source, model=Plan)
        problems.lines += [line for line in found.lines if not line.endswith(": missing; it must be given")]
    return list(dict.fromkeys(problems.lines))


def _meant(name: str, content: Mapping[str, Any]) -> str:
    """The field of a plan that a misspelt name stands for, where it is not given as well."""
    meant = closest(name, Plan.model_fields)
    return name if name in Plan.model_fields or meant is None or meant in content else meant


class _Sections:
    """Platforms and suites of a plan as they are checked one by one; what is wrong is collected."""

    def __init__(self, problems: Problems, names: Sequence[str]) -> None:
        self.names = list(names)
        self.platforms: dict[str, Platform] = {}
        self.suites: dict[str, Suite] = {}
        self.scopes: dict[str, tuple[DesignScope, ...]] = {}
        self.cells: dict[str, Cell] = {}  # by their keys
        self._problems = problems

    def add_platform(self, section: PlatformSection, index: int) -> None:
        if section.kind not in KINDS:
            told = f"platform[{index}].kind = {section.kind!r}: there is no such kind of platform"
            self._problems.add(told + nearest(section.kind, KINDS), f"use one of {', '.join(sorted(KINDS))}")
            return
        with self._problems.collected(("platform", index), settings_model(section.kind)):
            self.platforms[section.name] = create(section.kind, section.settings)

    def add_suite(self, name: str, section: dict[str, object], index: int) -> None:
        scope = DesignScope()
        settings = {key: value for key, value in section.items() if key not in DesignScope.model_fields}
        with self._problems.collected(("suite", name, index), DesignScope):
            given, _ = DesignScope.split(section)
            if unknown := [one for one in given.platforms or () if one not in self.names]:
                told = f"suite.{name}[{index}].platforms: {unknown[0]!r} is no platform of the plan"
                self._problems.add(told + nearest(unknown[0], self.names), f"name some of {', '.join(self.names)}")
            else:
                scope = given
        if name not in SUITES:
            told = f"suite.{name}: there is no such suite{nearest(name, SUITES)}"
            self._problems.add(told, f"use one of {', '.join(sorted(SUITES))}")
            return
        with self._problems.collected(("suite", name, index), SUITES[name].Settings):
            suite = SUITES[name].create(settings)
            for cell in suite.cells():
                if cell.key not in self.suites:
                    self.suites[cell.key] = suite
                    self.cells[cell.key] = cell
                # two designs may share one, measured once
                elif problem := _unlike((self.suites[cell.key], self.cells[cell.key]), (suite, cell)):
                    self._problems.add(f"suite.{name}[{index}]{problem[0]}", problem[1])
                    return
                self.scopes[cell.key] = (*self.scopes.get(cell.key, ()), scope)


def _unlike(first: tuple[Suite, Cell], second: tuple[Suite, Cell]) -> tuple[str, str] | None:
    """Why two designs' cells of one name are not one, and the remedy; None where they are."""
    if first[1].as_is != second[1].as_is:
        return (
            ": another design has the same cells for other guests",
            "what is of machines as they are (policy_set_by_hand) belongs into a plan of its own",
        )
    theirs, ours = ({**settings_of_cell(suite.settings, cell), **cell.params} for suite, cell in (first, second))
    for name, value in ours.items():
        if (other := theirs.get(name)) != value:
            told = f": another design has the same cells with {name} {other!r} in place of {value!r}"
            return told, "one of them would not be measured: give both the same settings, or each a plan of its own"
    if other_servers(first[0].settings, second[0].settings, second[1]):
        told = f": another design has another server of the name {second[1].factors['database']!r}"
        return told, "one of them would not be measured: give each a name of its own"
    if loads := lost_loads(first[0].settings, second[0].settings):
        told = f": the first design of the same cells does not measure at {loads[0]:g} % of the throughput"
        return told, "these cells are measured as the first design says: name all loads there"
    return None


_PINNED = ("vcpu_cpus", "emulator_cpus", "iothread_cpus")


def _needing_turns(design: Design) -> Iterator[tuple[str, str]]:
    """What cannot be measured on all platforms at the same time, each with the remedy."""
    for name, platform in design.platforms.items():
        if platform.only_plain is not None:
            told = f"platform {name!r} cannot be kept on CPUs of its own: {platform.only_plain}"
            yield told, "measure it in a plan of its own, or leave at_the_same_time out"
        if pinned := [key for key in platform.describe().get("tuning", {}) if key in _PINNED]:
            told = f"platform {name!r}: tuning.{pinned[0]} names CPUs, and each turn has others"
            yield told, f"leave {', '.join(pinned)} out, or at_the_same_time"
    for cell in design.cells:
        if cell.probe != "cycle" or cell.testbed != "guest":
            what = f"load {cell.factors['load']!r}" if cell.probe == "cycle" else f"suite.{cell.suite}'s {cell.probe}"
            told = f"{what} needs the machine to itself; only cycles and stalls do not"
            yield told, "leave it out (timers = [], sleeps = []), or at_the_same_time"
        if cell.params["cpus"]:
            told = f"cycles.cpus = {cell.params['cpus']}: each platform gets CPUs of its own"
            yield told, "leave cpus out, or at_the_same_time"
        if "trace" in cell.factors:
            told = "cycles.trace = true: guests at the same time have threads of the same names"
            yield told, "leave one of them out"
        if cell.params["idle_states"] != "default":
            told = "cycles.idle_states: a host that stays in shallow ones does so for all platforms"
            yield told, "leave it out, or at_the_same_time"
        if cell.params["class"] == "deadline":
            told = 'cycles.classes has "deadline", whose threads cannot be kept on some CPUs'
            yield told, 'use "fifo", or leave at_the_same_time out'


_ALONE = "its designs by the scope (platforms = [...]), or measure the platform in a plan of its own"


def _require_testbeds(design: Design, problems: Problems) -> None:
    """Refuse cells that a platform could never measure: it has its machines only as they are, or none that is so."""
    for name, platform in design.platforms.items():
        by_hand = [cell for cell in design.cells_of(name) if cell.as_is == "pair" and cell.suite == "isolation"]
        set_by_hand = {tuple(cell.factors[key] for key in _SET) for cell in by_hand}
        if len(set_by_hand) > 1:
            told = " and ".join(" ".join(one) for one in sorted(set_by_hand))
            told = f"platform {name!r}: its policy is set by hand, and the plan has {told}"
            problems.add(told, "give each a plan of its own, or a platform")
            return
        for cell in design.cells_of(name):
            why = _lacking(platform, cell)
            if why is None:
                continue
            level = next((f" with {key} = {cell.factors[key]!r}" for key in _TOLD if key in cell.factors), "")
            told = f"platform {name!r} cannot be measured by suite.{cell.suite}{level}: {why[0]}"
            problems.add(told, why[1])
            return


_TOLD = ("load", "capacity_mbps", "switch")  # Factors by which such a refusal names its cell


def _lacking(platform: Platform, cell: Cell) -> tuple[str, str] | None:
    """What a platform lacks for a cell, and the remedy; None where it lacks nothing."""
    if cell.as_is == "server":
        return None  # of the host, of a machine that exists already, or unsupported there with the reason
    if cell.as_is == "pair":
        if platform.simulated:
            return None
        if platform.only_plain is None:
            return "that is of two machines that exist already", f"limit {_ALONE}"
        if platform.peer is None:
            return "it has no second machine", 'name one: peer = { via = "ssh", host = …, address = … }'
        if cell.suite == "bandwidth" and platform.peer.address is None:
            return "its peer has no address on the path", "give peer.address, to which the packets are sent"
        return None
    if cell.as_is == "device":
        if platform.simulated or platform.cabling is not None:
            return None
        if platform.only_plain is None:
            return "that is of a machine that exists already", f"limit {_ALONE}"
        return "it is between no two interfaces of this host", "name them: ports = { here = [...], there = [...] }"
    if platform.only_plain is None or cell.testbed == PLAIN_TESTBED:
        return None
    if cell.beside_peer:
        if platform.peer is None:
            words = f'name one: peer = {{ via = "ssh", host = … }}, or limit {_ALONE}'
            return "it has no second machine beside it", words
        if platform.address is None:
            return "its address on the path to its peer is not known", "give address, at which the peer uses its files"
        return None
    return platform.only_plain, f"{_AS_IS.get(cell.suite, 'leave it out')}, limit {_ALONE}"


_AS_IS = {
    "forwarding": 'give guests = 1, switch = "none" and the two ports that the machine is between',
    "bandwidth": 'give capacities_mbps = ["as-is"] and a peer',
    "isolation": "give policy_set_by_hand = true and a peer",
    "storage": "give databases = [] and a [[suite.storage.server]] of the machine",
}
"""What such a platform can be measured by instead."""
_SET = ("policy", "on", "share", "cores")  # What a person sets at a hypervisor, of a cell's factors


def probe_platforms(plan: Plan, source: str) -> list[tuple[str, Platform, Availability]]:
    """Name, platform and availability of every platform of a plan (what `virtgauge doctor` shows).
    Raises UsageError: the plan is refused.
    """

    async def probe_all() -> list[tuple[str, Platform, Availability]]:
        platforms = check_plan(plan, source).platforms
        return [(name, platform, await platform.probe()) for name, platform in platforms.items()]

    return asyncio.run(probe_all())


async def probe_arms(plan: Plan, platforms: dict[str, Platform]) -> list[Arm]:
    """Find out which platforms can be used here; the A/A arm follows its reference.
    Raises UnavailableError: the reference cannot be used.
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


def refuse_missing(arms: Sequence[Arm], named: Collection[str] = ()) -> None:
    """Refuse a run that could not answer what was asked.

    Platforms that the user named one by one must be usable; the others of a plan may be skipped.
    Raises UnavailableError: a named platform cannot be used, or of several platforms only the reference can.
    """
    records = [arm.record for arm in arms if arm.record.role != "aa"]
    for record in records:
        if record.name in named and not record.usable:
            raise UnavailableError(f"--platform {record.name} cannot be used here: {record.reason}", record.fix)
    reference = next(record for record in records if record.role == "reference")
    compared = [record for record in records if record.role == "test"]
    if compared and not any(record.usable for record in compared):
        reasons = "".join(f"\n  {one.name}: {one.reason}" + (f" ({one.fix})" if one.fix else "") for one in compared)
        raise UnavailableError(
            f"no platform of the plan can be compared with {reference.name} here:{reasons}",
            f"make one of them usable, or measure {reference.name} alone: --platform {reference.name}",
        )


def _arm(name: str, role: str, platform: Platform, availability: Availability) -> Arm:
    record = ArmRecord(
        name=name,
        kind=platform.kind,
        label=platform.label + (" (A/A)" if role == "aa" else ""),
        role=role,
        emulated=platform.emulated,
        usable=availability.usable,
        reason=availability.reason,
        fix=availability.fix,
        settings=platform.describe() | {"found": availability.details},
        virtual=platform.is_virtual or platform.simulated,
        functional=platform.functional,
    )
    return Arm(record, platform)


FIRST_FIGURES = "first-figures"  # Below the run's folder
_REPETITIONS = 6  # At most: with so many, the range is a 95 % interval of the median
_LONGEST_S = 60.0  # A design that takes longer is no first look; it is measured with all platforms only


def first_figures(plan: Plan, design: Design, missing: Collection[str]) -> Plan | None:
    """The plan of the first figures.

    None where no part is missing that takes long to provide, or where what is there leaves no platform beside the
    reference, or nothing to measure.
    """
    ready = [section for section in plan.platform if not set(missing) & set(design.platforms[section.name].needs())]
    names = {section.name for section in ready}
    if not missing or plan.reference not in names or len(names) < 2:
        return None
    suite = _first_suite(plan, names, missing, _LONGEST_S / min(plan.repetitions, _REPETITIONS) / len(names))
    if suite is None:
        return None
    return plan.model_copy(
        update={
            "name": f"{plan.name}-{FIRST_FIGURES}",
            "platform": tuple(ready),
            "suite": suite,
            "repetitions": min(plan.repetitions, _REPETITIONS),
            "aa": False,
            "require": (),
            "profile": (),
            "budget": None,
        }
    )


def _first_suite(
    plan: Plan, names: set[str], missing: Collection[str], longest_s: float
) -> dict[str, tuple[dict[str, Any], ...]] | None:
    """The first design that all these platforms can be measured by now, in at most so many seconds each."""
    for name, sections in plan.suite.items():
        for section in sections:
            scope, settings = DesignScope.split(section)
            suite = SUITES[name].create(settings)
            for_all = scope.platforms is None or names <= set(scope.platforms)
            short = sum(cell.expected_s for cell in suite.cells()) <= longest_s
            if for_all and short and not set(suite.needs()) & set(missing):
                return {name: (section,)}
    return None
