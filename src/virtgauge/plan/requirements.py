"""What a plan requires: bounds on measures, from the plan itself (``[[require]]``) and from named profiles.

This module knows the form.  Whether there is such a measure, unit or cell is checked by
:mod:`virtgauge.decisions.requirements`, before anything is started.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib import resources
from typing import Annotated, Literal

from pydantic import Field, field_validator

from virtgauge.errors import UsageError, nearest
from virtgauge.plan import Section, written_as

Level = Annotated[str, Field(coerce_numbers_to_str=True)]
_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86_400}
_TIME = r"([0-9]{1,6}(?:\.[0-9]{1,6})?) ?(s|min|h|d)"
Time = Annotated[str, written_as(f"|(?=.*[1-9]){_TIME}", "give a number above 0 and s, min, h or d, as in 24 h")]


class Requirement(Section):
    """One requirement: a bound on a measure. A plan may have any number."""

    name: str = ""
    """What reports call it; composed of measure and bound by default."""
    suite: str
    """The suite that measures it."""
    measure: str
    """A name that `virtgauge measures` lists, such as ``sleep_lateness.p99``."""
    conditions: dict[str, tuple[Level, ...]] = Field(default={})
    """Levels by factor. The requirement holds for every cell that has one of the levels of every factor named."""
    at_least: float | None = None
    """Lower bound, in ``unit``."""
    at_most: float | None = None
    """Upper bound, in ``unit``."""
    unit: str
    """Of the bounds: a unit of the measure's kind, or ``x`` for a ratio."""
    of: Literal["median", "every"] = "median"
    """What is bounded: the median over repetitions, or every single repetition."""
    compared_with: Literal["", "reference"] = ""
    """``reference``: the bound is on the ratio to the reference's figure."""
    during: Time = ""
    """A time such as ``24 h``: for so long nothing may be beyond the bound ([realtime.md](realtime.md))."""
    per: Time = ""
    """A time such as ``1 h``, in which there may be at most so many clusters of what the measure counts."""
    confidence: Annotated[float, Field(ge=0.5, lt=1)] | None = None
    """Of this verdict; the plan's by default."""
    platforms: tuple[str, ...] = ()
    """Names of the platforms that must meet it; all of the plan by default."""
    source: str = ""
    """Where the bound comes from."""

    @field_validator("conditions", mode="before")
    @classmethod
    def _one_level_may_stand_alone(cls, value: object) -> object:
        if isinstance(value, dict):
            return {factor: level if isinstance(level, list | tuple) else [level] for factor, level in value.items()}
        return value

    def _problems(self) -> Iterator[str]:
        if self.at_least is None and self.at_most is None:
            yield "a requirement needs a bound: give at_least, at_most, or both"
        if self.at_least is not None and self.at_most is not None and self.at_least > self.at_most:
            yield f"at_least = {self.at_least:g} lies above at_most = {self.at_most:g}: nothing can meet both"
        if self.over_s is not None:
            if self.during and self.per:
                yield "during and per are two ways to require over a time; give one of them"
            if self.at_least is not None or self.of != "median" or self.compared_with:
                yield "during and per go with at_most; leave at_least, of and compared_with out"
            if self.per and (self.at_most or 0) <= 0:
                yield "per: that there is none can be shown for no time; at_most above 0, or during, can"

    @property
    def over_s(self) -> float | None:
        """Seconds that it is required over; None of one on each repetition."""
        found = re.fullmatch(_TIME, self.during or self.per)
        return None if found is None else float(found[1]) * _SECONDS[found[2]]

    @property
    def bound_text(self) -> str:
        """``≤ 100 µs``, ``≥ 0.9 ×``, ``≤ 1 per 1 h``."""
        ends = [(sign, end) for sign, end in (("≥", self.at_least), ("≤", self.at_most)) if end is not None]
        bounds = " and ".join(f"{sign} {end:g} {self.unit}".rstrip() for sign, end in ends)
        return bounds + (f" during {self.during}" if self.during else f" per {self.per}" if self.per else "")


class Budget(Section):
    """How long to go on repeating until every requirement is decided."""

    repetitions: Annotated[int, Field(ge=1, le=10_000)]
    """The most repetitions, the plan's own included."""
    minutes: Annotated[float, Field(gt=0)] | None = None
    """Of the whole command. After that time no further repetition begins."""
    claims: bool = False
    """Repeat for the papers' conclusions that are still open, too ([papers.md](papers.md))."""

    def told(self, *, requirements: bool) -> str:
        """``repeated until the papers' conclusions are decided, at most 64 repetitions in all or 120 minutes``."""
        what = " and ".join(["requirements"] * requirements + ["the papers' conclusions"] * self.claims)
        minutes = f" or {self.minutes:g} minutes" if self.minutes else ""
        return f"repeated until {what} are decided, at most {self.repetitions} repetitions in all{minutes}"

    def looks(self, repetitions: int) -> tuple[int, ...]:
        """After how many repetitions conclusions are judged: the plan's, each time twice as many, and at the end."""
        found = [repetitions]
        while 2 * found[-1] < self.repetitions:
            found.append(2 * found[-1])
        return (*found, self.repetitions) if repetitions < self.repetitions else (repetitions,)

    def claims_confidence(self, confidence: float, repetitions: int) -> float:
        """Of intervals that decide on conclusions: the chance of an error is shared by the looks (Bonferroni)."""
        return 1 - (1 - confidence) / len(self.looks(repetitions)) if self.claims else confidence


class Profile(Section):
    """Requirements of a kind of use, under a name."""

    description: str
    require: Annotated[tuple[Requirement, ...], Field(min_length=1)]


def toml_names(folder: resources.abc.Traversable) -> list[str]:
    """What the TOML files of a folder of this package are called."""
    return sorted(one.name.removesuffix(".toml") for one in folder.iterdir() if one.name.endswith(".toml"))


def profile_names() -> list[str]:
    """The profiles that come with virtgauge."""
    return toml_names(_profiles())


def load_profile(name: str) -> Profile:
    """A profile by its name. Raises UsageError: there is none."""
    if name not in profile_names():
        raise UsageError(
            f"profile = {name!r}: unknown profile{nearest(name, profile_names())}",
            f"use one of {', '.join(profile_names())}, or write the requirements as [[require]]",
        )
    return Profile.model_validate(tomllib.loads((_profiles() / f"{name}.toml").read_text()))


def _profiles() -> resources.abc.Traversable:
    return resources.files("virtgauge.plan") / "profiles"
