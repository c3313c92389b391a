"""Conclusions of a paper as data."""

from __future__ import annotations

import tomllib
from importlib import resources
from typing import TypeVar

from pydantic import BaseModel

Claim = TypeVar("Claim", bound=BaseModel)


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
