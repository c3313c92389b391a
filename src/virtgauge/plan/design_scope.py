"""Which arms a design of a suite is for: all of the plan's, unless it says otherwise.

One plan may hold designs of several suites that do not want the same platforms: databases are for virtual machines,
routers for interfaces.  ``platforms``, ``aa`` and ``emulated`` of a ``[[suite.NAME]]`` say so; no suite ever sees them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError


class DesignScope(BaseModel):
    """For which platforms a design is measured."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    platforms: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """Names of the platforms that are measured; all of the plan by default."""
    aa: bool = True
    """Whether the A/A arm is measured too, if its reference is."""
    emulated: bool = True
    """Whether platforms with an emulated processor are measured. Their figures decide nothing and may take hours."""

    def is_for(self, platform: str, *, aa: bool, emulated: bool) -> bool:
        """Whether an arm is measured.

        Args:
            platform: its name in the plan; of the A/A arm, the reference's.
            aa: it is the A/A arm.
            emulated: its processor is emulated, as far as that is known.
        """
        named = self.platforms is None or platform in self.platforms
        return named and (self.aa or not aa) and (self.emulated or not emulated)

    @classmethod
    def split(cls, section: Mapping[str, Any]) -> tuple[Self, dict[str, Any]]:
        """A section's scope, and what is left of it for the suite.

        Raises:
            pydantic.ValidationError: the scope is refused.
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
