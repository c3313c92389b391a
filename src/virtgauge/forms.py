"""Texts of a plan that have to be of a form."""

from __future__ import annotations

import re

from pydantic import AfterValidator


def written_as(pattern: str, words: str) -> AfterValidator:
    """What a text of a plan has to match, and what is said of one that does not."""

    def checked(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(words)
        return text

    return AfterValidator(checked)
