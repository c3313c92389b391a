"""What a plan is written in: its tables, and texts that have to be of a form."""

from __future__ import annotations

import re

from pydantic import AfterValidator, BaseModel, ConfigDict


class Section(BaseModel):
    """A table of a plan: it has no other keys than its fields, and is never changed."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def written_as(pattern: str, words: str) -> AfterValidator:
    """What a text of a plan has to match, and what is said of one that does not."""

    def checked(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(words)
        return text

    return AfterValidator(checked)
