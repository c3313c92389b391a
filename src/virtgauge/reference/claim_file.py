"""Conclusions of a paper as data."""

from __future__ import annotations

import tomllib
from importlib import resources
from typing import Self, TypeVar

from pydantic import BaseModel, ConfigDict, model_validator

Claim = TypeVar("Claim", bound=BaseModel)


class Bounded(BaseModel):
    """What a test with bounds has: one of them at least; ValueError without."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    at_least: float | None = None
    at_most: float | None = None

    @model_validator(mode="after")
    def _has_a_bound(self) -> Self:
        if self.at_least is None and self.at_most is None:
            raise ValueError("a test needs at_least or at_most")
        return self


def read_claims(name: str, kind: type[Claim]) -> tuple[Claim, ...]:
    """The tables ``[[claim]]`` of a file of this package, in their order.

    Raises:
        ValueError: the file holds anything else, or a claim that is not of this kind.
    """
    text = resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
    tables = tomllib.loads(text)
    if tables.keys() != {"claim"}:
        raise ValueError(f"{name} holds {sorted(tables)} and not claims alone")
    return tuple(kind.model_validate(table) for table in tables["claim"])
