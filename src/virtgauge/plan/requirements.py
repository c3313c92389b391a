"""What a plan requires: bounds on measures, from the plan itself (``[[require]]``) and from named profiles.

This module knows the form.  Whether there is such a measure, unit or cell is checked by
:mod:`virtgauge.decisions.requirements`, before anything is started.
"""

from __future__ import annotations

import difflib
import tomllib
from importlib import resources
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from virtgauge.errors import UsageError

Level = Annotated[str, Field(coerce_numbers_to_str=True)]


class Requirement(BaseModel):
    """One ``[[require]]``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = ""
    """What reports call it; made of measure and bound when absent."""
    suite: str
    measure: str
    """As `virtgauge measures` lists them: ``sleep_lateness.p99``."""
    conditions: dict[str, tuple[Level, ...]] = {}
    """Levels by factor; the requirement holds for every cell that has one of the levels of every factor named."""
    at_least: float | None = None
    at_most: float | None = None
    unit: str
    of: Literal["median", "every"] = "median"
    """What is bounded: the median over repetitions, or each of them."""
    compared_with: Literal["", "reference"] = ""
    """With ``reference``, the bound is on the factor between a platform's figure and the reference's."""
    confidence: Annotated[float, Field(ge=0.5, lt=1)] | None = None
    """Of the verdict; the plan's when absent."""
    platforms: tuple[str, ...] = ()
    """For these only; for all of the plan when absent."""
    source: str = ""
    """Where the bound comes from."""

    @field_validator("conditions", mode="before")
    @classmethod
    def _one_level_may_stand_alone(cls, value: object) -> object:
        if isinstance(value, dict):
            return {factor: level if isinstance(level, list | tuple) else [level] for factor, level in value.items()}
        return value

    @model_validator(mode="after")
    def _is_a_bound(self) -> Requirement:
        if self.at_least is None and self.at_most is None:
            raise ValueError("a requirement needs a bound: give at_least, at_most, or both")
        if self.at_least is not None and self.at_most is not None and self.at_least > self.at_most:
            raise ValueError(
                f"at_least = {self.at_least:g} lies above at_most = {self.at_most:g}: nothing can meet both"
            )
        return self

    @property
    def bound_text(self) -> str:
        """``≤ 100 µs``, ``≥ 0.9 ×``."""
        ends = [(sign, end) for sign, end in (("≥", self.at_least), ("≤", self.at_most)) if end is not None]
        return " and ".join(f"{sign} {end:g} {self.unit}".rstrip() for sign, end in ends)


class Budget(BaseModel):
    """How long to go on repeating until every requirement is decided."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    repetitions: Annotated[int, Field(ge=1, le=10_000)]
    """In all, the plan's own among them."""
    minutes: Annotated[float, Field(gt=0)] | None = None
    """Of the whole command; no further repetition is begun after it."""


class Profile(BaseModel):
    """Requirements of a kind of use, under a name."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    description: str
    require: Annotated[tuple[Requirement, ...], Field(min_length=1)]


def profile_names() -> list[str]:
    """The profiles that come with virtgauge."""
    return sorted(entry.name.removesuffix(".toml") for entry in _profiles().iterdir() if entry.name.endswith(".toml"))


def load_profile(name: str) -> Profile:
    """A profile by its name.

    Raises:
        UsageError: there is none.
    """
    if name not in profile_names():
        close = difflib.get_close_matches(name, profile_names(), n=1)
        raise UsageError(
            f"profile = {name!r}: there is no such profile" + (f"; did you mean {close[0]!r}?" if close else ""),
            f"use one of {', '.join(profile_names())}, or write the requirements as [[require]]",
        )
    return Profile.model_validate(tomllib.loads((_profiles() / f"{name}.toml").read_text()))


def _profiles() -> resources.abc.Traversable:
    return resources.files("virtgauge.plan") / "profiles"
