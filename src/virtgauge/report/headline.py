"""Each platform in one sentence."""

from __future__ import annotations

import dataclasses
import enum


class Tone(enum.StrEnum):
    """How a headline is to be taken."""

    REFERENCE = "reference"
    SLOWER = "slower"
    FASTER = "faster"
    SAME = "same"  # no difference shown
    EMULATED = "emulated"  # figures that must not be ranked
    MISSING = "missing"


@dataclasses.dataclass(frozen=True)
class Headline:
    """One arm in one sentence."""

    arm: str
    label: str
    tone: Tone
    text: str
