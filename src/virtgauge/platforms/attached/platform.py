"""Machines that exist already, as a platform."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel

from virtgauge.agent.binary import AgentBinary
from virtgauge.agent.channel import AgentError, Channel, ChannelClosedError
from virtgauge.agent.frames import ProtocolError
from virtgauge.errors import UnavailableError
from virtgauge.extras import require
from virtgauge.host.scope import Scope
from virtgauge.platforms.attached.settings import AttachedSettings
from virtgauge.platforms.base import (
    Accounting,
    Availability,
    Emulation,
    Guest,
    GuestSpec,
    LaunchError,
    Platform,
    emulation_told,
)

# What a machine that exists already cannot be given, in words.

ONLY_AS_IT_IS = (
    "an attached machine has no interfaces in a laboratory of this host, no disk, shares or "
    "limits from here, and no second guest beside it"
)


def refusal(spec: GuestSpec) -> str | None:
    """Why a guest as specified cannot be had of a machine that exists already; None where it can."""
    asked = {
        "network interfaces": spec.nics,
        "a laboratory's network": spec.lab,
        "forwarding": spec.forwarding,
        "a number of processors": spec.vcpus,
        "an amount of memory": spec.memory_mib,
        "CPUs of this host": spec.cpus,
        "a CPU limit": spec.cpu_limit,
        "folders of this host": spec.shares or spec.host_root,
        "a disk of its own": spec.disk,
        "capabilities": spec.capabilities,
    }
    wanted = [what for what, value in asked.items() if value]
    return f"{', '.join(wanted)}: {ONLY_AS_IT_IS}" if wanted else None


# A machine that exists already, as a guest: nothing of it is of this host.

LEASE_S = 600
"""An agent that has heard nothing for so long ends by itself: its controller's machine, or the way to it, is gone."""
_RENEWAL_S = LEASE_S / 4
_ANSWER_S = 60.0


class AttachedGuest(Guest):
    """An agent on a machine that exists already, in a process of its own.

    Closing asks it to end, and then has the far side removed; what is held here is let go in any case.
    """

    def __init__(self, *, channel: Channel, ready_ns: int, label: str, held: contextlib.AsyncExitStack) -> None:
        """Take over what a launch has made.

        Args:
            channel: past the handshake.
            ready_ns: what the launch took.
            label: for people.
            held: ends the far side, and lets go what this side holds.
        """
        self.channel, self.ready_ns, self.label = channel, ready_ns, label
        self._held = held
        self._renewal = asyncio.create_task(self._renew())

    def accounting(self) -> Accounting:
        """Never known: from outside, only the far machine's own host could count."""
        method = "not known: the machine's CPUs are not this host's"
        return Accounting(cpu_ns=None, method=method, of_this_machine=False)

    async def close(self) -> None:
        """End the agent, and what it left on its machine."""
        held, self._held = self._held, contextlib.AsyncExitStack()
        async with held:
            self._renewal.cancel()
            await asyncio.gather(self._renewal, return_exceptions=True)
            await self.channel.shutdown()

    async def _renew(self) -> None:
        """Let the agent hear something now and then, so that it knows that it is still wanted."""
        with contextlib.suppress(AgentError, ChannelClosedError, ProtocolError, TimeoutError):
            while True:
                await asyncio.sleep(_RENEWAL_S)
                await self.channel.request("read", paths=[], timeout_s=_ANSWER_S)


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
        try:
            require("attach", "a machine that is reached by ssh")
        except UnavailableError as error:
            return Availability(False, error.message, error.remedy)
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
