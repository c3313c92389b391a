"""What shall be measured: the plan and its presets; here its tables, and texts that have to be of a form."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Self

from pydantic import AfterValidator, BaseModel, ConfigDict, model_validator


class Section(BaseModel):
    """A table of a plan: it has no other keys than its fields, which fit together, and is never changed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if problem := next(self._problems(), None):
            raise ValueError(problem)
        return self

    def _problems(self) -> Iterator[str]:
        """Why its keys do not fit together, in words; the first is told, so that each may rest on those before it."""
        yield from ()


def written_as(pattern: str, words: str) -> AfterValidator:
    """What a text of a plan has to match, and what is said of one that does not."""

    def checked(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(words)
        return text

    return AfterValidator(checked)


_HOP = re.compile(r"(?:(?P<user>[^@\s]+)@)?(?P<host>\[[0-9A-Fa-f:.]+\]|[^@:\s]+)(?::(?P<port>\d+))?")


@dataclasses.dataclass(frozen=True)
class Hop:
    """An ssh server on the way: ``[user@]host[:port]``; None where the user's own ssh configuration says it."""

    host: str
    user: str | None
    port: int | None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ValueError where the text is none."""
        found = _HOP.fullmatch(text)
        if not found or (found["port"] and not 1 <= int(found["port"]) <= 65535):
            raise ValueError("give [user@]host[:port], an IPv6 address in brackets")
        return cls(found["host"].strip("[]"), found["user"], int(found["port"]) if found["port"] else None)
