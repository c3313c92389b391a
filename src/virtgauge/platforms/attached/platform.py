"""Machines that exist already, as a platform."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel

from virtgauge.agent.binary import AgentBinary
from virtgauge.host.scope import Scope
from virtgauge.platforms.attached.limits import ONLY_AS_IT_IS, refusal
from virtgauge.platforms.attached.settings import AttachedSettings
from virtgauge.platforms.base import Availability, Guest, GuestSpec, LaunchError, Platform
from virtgauge.platforms.emulation import Emulation, emulation_told

if TYPE_CHECKING:
    from virtgauge.platforms.attached.dial_in import DialIn


class AttachedPlatform(Platform):
    """A machine that exists already: each launch is a fresh process of the agent on it.

    What its host does meanwhile, and which guests run beside it, nobody here knows: give it a quiet one.
    """

    kind: ClassVar[str] = "attached"
    Settings: ClassVar[type[BaseModel]] = AttachedSettings
    only_plain: ClassVar[str | None] = ONLY_AS_IT_IS

    def __init__(self, settings: AttachedSettings) -> None:
        self.settings = settings

    @property
    def label(self) -> str:
        if self.settings.via == "ssh":
            return f"attached {self.settings.host} (ssh)"
        return f"attached (dials {self.settings.dialled})"

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, **self.settings.model_dump(mode="json", exclude_defaults=True)}

    async def probe(self) -> Availability:
        if self.settings.via == "dial-in":
            return await self._dial_in.look()
        from virtgauge.platforms.attached import ssh

        return await ssh.look(self.settings)

    async def begin(self, scope: Scope, agent: AgentBinary) -> tuple[str, ...]:
        return () if self.settings.via == "ssh" else (self._dial_in.begin(scope, agent),)

    def emulation(self, facts: Mapping[str, Any]) -> Emulation | None:
        return emulation_told(facts)

    def remarks(self) -> tuple[str, ...]:
        remark = None if self.settings.via == "ssh" else self._dial_in.remark()
        return () if remark is None else (f"{self.label}: {remark}",)

    async def launch(self, spec: GuestSpec) -> Guest:
        if (words := refusal(spec)) is not None:
            raise LaunchError("refused", words)
        if self.settings.via == "dial-in":
            return await self._dial_in.launch(spec, self.label)
        from virtgauge.platforms.attached import ssh

        return await ssh.launch(self.settings, spec, self.label)

    @functools.cached_property
    def _dial_in(self) -> DialIn:
        from virtgauge.platforms.attached.dial_in import DialIn  # what needs no certificates waits for no library

        return DialIn(self.settings)
