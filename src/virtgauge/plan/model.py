"""The plan: which platforms, which suites at which levels, how often, and what counts as valid.

A plan is TOML.  This module knows its frame; the sections of a platform and of a suite are checked by the platform
and the suite themselves (:mod:`virtgauge.execution.prepare`), before anything is started.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from virtgauge.errors import nearest
from virtgauge.plan import Section
from virtgauge.plan.fleet import FleetSection, Name
from virtgauge.plan.requirements import Budget, Requirement, load_profile


class DesignScope(Section):
    """The platforms for which a design is measured."""

    platforms: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """Names of the platforms that are measured; all of the plan by default."""
    aa: bool = True
    """Whether the A/A arm is measured too, if its reference is."""
    emulated: bool = True
    """Whether platforms with an emulated processor are measured. Their figures decide nothing and may take hours."""

    def is_for(self, platform: str, *, aa: bool, emulated: bool) -> bool:
        """Whether an arm is measured.

        The name of the A/A arm is the reference's; ``emulated``: its processor is, as far as that is known.
        """
        named = self.platforms is None or platform in self.platforms
        return named and (self.aa or not aa) and (self.emulated or not emulated)

    @classmethod
    def split(cls, section: Mapping[str, Any]) -> tuple[Self, dict[str, Any]]:
        """A section's scope, and what is left of it for the suite.
        Raises pydantic.ValidationError: the scope is refused.
        """
        own = {name: value for name, value in section.items() if name in cls.model_fields}
        return cls.model_validate(own), {name: value for name, value in section.items() if name not in own}


def scopes_of(plan_text: str, suite: str) -> list[DesignScope]:
    """The scopes of a suite's designs in the plan of a run; empty where it has none, or is no plan that is known."""
    try:
        sections = tomllib.loads(plan_text).get("suite", {}).get(suite, [])
        return [DesignScope.split(section)[0] for section in sections]
    except (tomllib.TOMLDecodeError, ValidationError, AttributeError, TypeError):
        return []


def without_platforms(design: Mapping[str, Any], platforms: Collection[str]) -> dict[str, Any] | None:
    """A design without these, which may name nothing at all; None where it was for them alone."""
    named = design.get("platforms")
    if not named or not isinstance(named, list | tuple):
        return dict(design)
    left = [one for one in named if not isinstance(one, str) or one not in platforms]
    return {**design, "platforms": left} if left else None


AA_SUFFIX = "-aa"  # The A/A arm is the reference under its own name and this suffix


class PlatformSection(BaseModel):
    """The keys of every kind."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: Name
    """What reports call it: letters, digits, dots and dashes."""
    kind: str
    """attached, bubblewrap, cloud-hypervisor, firecracker, host, libvirt, oci, qemu, simulated, uml or xen."""

    @field_validator("name")
    @classmethod
    def _is_not_kept(cls, value: str) -> str:
        if value.endswith(AA_SUFFIX):
            raise ValueError(f"names ending in {AA_SUFFIX!r} are kept for the A/A arm; choose another")
        return value

    @property
    def settings(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class ValidityLimits(Section):
    """Limits beyond which a trial is invalid. Shares are of the machine's CPU time during the trial; of more than eight
    CPUs, of the time of eight, or of as many as guest and helpers keep busy. Where these are confined to some CPUs,
    steal is that of these alone.
    """

    foreign_load: Annotated[float, Field(gt=0, le=1)] = 0.03
    """CPU time of programs other than the guest and virtgauge."""
    steal: Annotated[float, Field(gt=0, le=1)] = 0.02
    """CPU time that the hypervisor below this machine gave to others. Trials that are measured in slices accept none
    ([noise.md](noise.md)), unless this is 1."""
    clock_ppm: Annotated[float, Field(gt=0)] = 300.0
    """Disagreement between TSC, CLOCK_MONOTONIC_RAW and CLOCK_MONOTONIC over the trial, in parts per million."""
    patience_s: Annotated[float, Field(ge=0, le=86_400)] = 10.0
    """How much longer a trial may take because of foreign load and steal: what they spoil is left out and measured
    again on the same guest, in a quiet moment ([noise.md](noise.md)). 0 judges every trial once, as a whole."""


class Plan(Section):
    """The keys at the top of the file."""

    name: str = "plan"
    """What reports and run folders are called: letters, digits, dots, dashes, underscores and colons."""
    description: str = ""
    """One sentence for `virtgauge plan list`."""
    repetitions: Annotated[int, Field(ge=1, le=10_000)] = 6
    """Independent repetitions; each starts a fresh guest of every platform."""
    repetitions_per_guest: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Repetitions in a row on the same guest, before the turn of the next platform: a soak's. They are independent of
    one another only as far as that guest is with time ([realtime.md](realtime.md))."""
    at_the_same_time: bool = False
    """Cycles on all platforms at once, each on CPUs of its own, which change with the turns; else one platform after
    another. What guests do to one another by caches, memory and clock rates is then in the figures
    ([realtime.md](realtime.md#all-at-the-same-time))."""
    attempts: Annotated[int, Field(ge=1, le=100)] = 3
    """How often an invalid or failed trial is tried in all."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    """Of the random order of trials. Without one, a seed is drawn and recorded."""
    confidence: Annotated[float, Field(ge=0.5, lt=1)] = 0.95
    """Of all intervals and verdicts."""
    reference: str = "host"
    """Name of the platform that the others are compared with."""
    aa: bool = True
    """Measure the reference a second time under another name (A/A). What differs between the two is noise."""
    platform: Annotated[tuple[PlatformSection, ...], Field(min_length=1)]
    suite: Annotated[dict[str, tuple[dict[str, Any], ...]], Field(min_length=1)]
    """Per suite, one or more factorial designs (``[[suite.timing]]``)."""
    validity: ValidityLimits = ValidityLimits()
    profile: tuple[str, ...] = ()
    """Named sets of requirements, beside the plan's own; `virtgauge profiles` lists them."""
    require: tuple[Requirement, ...] = ()
    """What the platforms must do (``[[require]]``)."""
    budget: Budget | None = None
    """With one, repetitions are added until every requirement, and every conclusion if asked for, is decided."""
    fleet: FleetSection | None = None
    """The hosts of `virtgauge fleet run`; each is measured with all repetitions."""

    @property
    def requirements(self) -> tuple[Requirement, ...]:
        """The plan's own and those of its profiles. Raises UsageError: there is no such profile."""
        return (*self.require, *(one for name in self.profile for one in load_profile(name).require))

    @field_validator("suite", mode="before")
    @classmethod
    def _one_design_may_stand_alone(cls, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: [design] if isinstance(design, dict) else design for name, design in value.items()}
        return value

    @model_validator(mode="after")
    def _parts_fit(self) -> Plan:
        if problems := [*self._name_problems(), *self._budget_problems()]:
            raise ValueError("\n".join(problems))
        return self

    def _name_problems(self) -> Iterator[str]:
        names = [section.name for section in self.platform]
        for name in dict.fromkeys(name for name in names if names.count(name) > 1):
            yield f"two platforms are named {name!r}; give each its own name"
        if self.reference not in names:
            yield (
                f"reference = {self.reference!r} is no platform of the plan{nearest(self.reference, names)}; "
                f"choose one of {names}"
            )

    def _budget_problems(self) -> Iterator[str]:
        by_fresh = "[fleet]" if self.fleet else "budget.claims" if self.budget and self.budget.claims else ""
        if self.repetitions_per_guest > 1 and by_fresh:
            number = self.repetitions_per_guest
            yield f"repetitions_per_guest = {number}: {by_fresh} takes a fresh guest for each; leave one of them out"
        if self.at_the_same_time and self.fleet:
            yield "at_the_same_time = true: [fleet] measures platforms one after another; leave one of them out"
        if self.budget is None:
            return
        if not (self.require or self.profile or self.budget.claims):
            yield "budget: there is nothing to decide; add a [[require]], a profile or claims = true, or leave it out"
        if self.budget.repetitions < self.repetitions:
            yield (
                f"budget.repetitions = {self.budget.repetitions} is less than repetitions = {self.repetitions}; "
                "it counts them all"
            )

    def narrowed_to(self, platforms: Collection[str]) -> Self:
        """The plan for some of its platforms and the reference, without designs and requirements of others alone.

        A name that is no platform or suite of the plan stays where it stands, for the check to tell of.
        """
        left_out = {section.name for section in self.platform} - {*platforms, self.reference}
        suites = {
            suite: tuple(left for one in designs if (left := without_platforms(one, left_out)) is not None)
            for suite, designs in self.suite.items()
        }
        gone = {suite for suite, designs in suites.items() if not designs}
        require = tuple(
            one.model_copy(update={"platforms": tuple(name for name in one.platforms if name not in left_out)})
            for one in self.requirements
            if one.suite not in gone and not (one.platforms and left_out.issuperset(one.platforms))
        )
        decides = require or (self.budget and self.budget.claims)
        changes = {
            "platform": tuple(section for section in self.platform if section.name not in left_out),
            "suite": {suite: designs for suite, designs in suites.items() if designs},
            "profile": (),  # whose requirements are among the others now
            "require": require,
            "budget": self.budget if decides else None,
        }
        return self.model_copy(update=changes)

    def to_toml(self) -> str:
        """The plan with every default written out, for the record."""
        import tomli_w

        return tomli_w.dumps(self.model_dump(mode="json", exclude_none=True))
