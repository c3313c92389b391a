"""A machine whose agent calls the controller: one call for each guest."""

from __future__ import annotations

import asyncio
import contextlib

from virtgauge.agent.binary import AgentBinary
from virtgauge.agent.channel import Channel, ChannelClosedError, HandshakeError
from virtgauge.agent.frames import ProtocolError
from virtgauge.errors import VirtgaugeError
from virtgauge.host.scope import Scope
from virtgauge.platforms.attached.credentials import Credentials
from virtgauge.platforms.attached.guest import AttachedGuest
from virtgauge.platforms.attached.kit import IDENTITY_NAME, write_kit
from virtgauge.platforms.attached.listener import Listener, Strangers, listening
from virtgauge.platforms.attached.settings import AttachedSettings, Endpoint
from virtgauge.platforms.attempt import LaunchAttempt
from virtgauge.platforms.base import Availability, Guest, GuestSpec, LaunchError


class DialInAttempt(LaunchAttempt):
    """An attempt whose guest is no process of this machine."""

    def end_of_process(self) -> str | None:
        return None

    async def settle(self) -> None:
        pass


class DialIn:
    """The controller's side of one machine, for one run.

    Attributes:
        strangers: who else has called, by what they did.
    """

    def __init__(self, settings: AttachedSettings) -> None:
        assert settings.listen is not None
        self._settings = settings
        self._endpoint = Endpoint.parse(settings.listen)
        self._credentials: Credentials | None = None
        self._waited = False
        self._busy = False
        self.strangers: Strangers = Strangers()

    async def look(self) -> Availability:
        """Whether it can be listened here; whether the machine will call, only the run can tell."""
        try:
            if self._settings.credentials is not None:
                Credentials.load(self._settings.credentials.expanduser())
            async with listening(self._endpoint, Credentials.make(), Strangers()):
                pass
        except OSError as error:
            return Availability(False, *self._no_listening(error))
        except VirtgaugeError as error:
            return Availability(False, error.message, error.remedy)
        reason = (
            f"listens on {self._endpoint}; whether the machine calls {self._settings.dialled}, only the run can tell"
        )
        return Availability(True, reason)

    def begin(self, scope: Scope, agent: AgentBinary) -> str:
        """Make or read the credentials; returns what a person has to do now.

        Raises:
            VirtgaugeError: those of the plan cannot be used, or the new ones cannot be written.
        """
        dialled = self._settings.dialled
        if self._settings.credentials is not None:
            path = self._settings.credentials.expanduser()
            self._credentials = Credentials.load(path)
            return f"waiting for calls on {self._endpoint} with the credentials of {path}"
        self._credentials = Credentials.make()
        try:
            folder = scope.guest_folder(f"dial-in-{self._endpoint.port}")
            kit = write_kit(folder, agent, self._credentials, dialled)
        except OSError as error:
            words = f"what starts the agent on the machine cannot be written below {scope.folder}: {error.strerror}"
            raise VirtgaugeError(words, "make room there; two machines cannot call the same port") from error
        return (
            f"start the agent on the machine that shall call {dialled}: copy {kit} there (it is secret) and run "
            f"`sh {kit.name}`; or, where this agent is already: "
            f"`virtgauge-agent --dial {dialled} --identity FILE` with {folder / IDENTITY_NAME}"
        )

    async def launch(self, spec: GuestSpec, label: str) -> Guest:
        """Wait for the machine's next call.

        Raises:
            LaunchError: it does not call, or its agent is another one.
        """
        if self._credentials is None:
            raise LaunchError("dial-in", "no credentials were made: a run makes them when it begins")
        if self._busy:
            raise LaunchError("dial-in", "the machine has a guest already, and can have one at a time")
        # A person may have to start it first; after that it calls within seconds, or is not there.
        patience_s = spec.ready_timeout_s if self._waited else max(self._settings.wait_s, spec.ready_timeout_s)
        attempt = DialInAttempt(spec)
        self._busy = True
        async with contextlib.AsyncExitStack() as held:
            held.callback(self._free)
            try:
                async with (
                    asyncio.timeout(patience_s),
                    listening(self._endpoint, self._credentials, self.strangers) as listener,
                ):
                    channel = await self._conversation(listener, spec, attempt)
            except TimeoutError as error:
                self._waited = True
                raise LaunchError("dial-in", self._silence(patience_s)) from error
            except OSError as error:
                raise LaunchError("listen", "\n  → ".join(self._no_listening(error))) from error
            self._waited = True
            return AttachedGuest(channel=channel, ready_ns=attempt.ready_ns(), label=label, held=held.pop_all())

    async def _conversation(self, listener: Listener, spec: GuestSpec, attempt: DialInAttempt) -> Channel:
        while True:
            reader, writer = await listener.arrival()
            try:
                return await Channel.open(reader, writer, spec.agent.sha256, spec.ready_timeout_s)
            except ChannelClosedError:  # it has calls to spare
                continue
            except (HandshakeError, ProtocolError) as error:
                raise LaunchError(
                    "handshake",
                    f"the agent that called is not the one of this virtgauge: {error}\n"
                    f"  → give the machine this one: {spec.agent.path}",
                ) from error

    def _free(self) -> None:
        self._busy = False

    def _silence(self, waited_s: float) -> str:
        refused, dialled = self.remark(), self._settings.dialled
        return (
            f"no agent has called {dialled} within {waited_s:g} s"
            + (f"; {refused}" if refused else "")
            + "\n  → start it there as said at the beginning of the run; from there "
            + f"`nc -vz {dialled.address} {dialled.port}` must connect while the run waits "
            + "(a firewall, a NAT without forwarding, another network?); wait_s in the plan is how long to wait"
        )

    def remark(self) -> str | None:
        """Who else has called, in words; None where nobody has."""
        if not self.strangers:
            return None
        each = ", ".join(f"{count} {reason}" for reason, count in self.strangers.most_common())
        return f"calls of others that were refused: {each}"

    def _no_listening(self, error: OSError) -> tuple[str, str]:
        words = f"cannot listen on {self._endpoint}: {error.strerror or error}"
        return words, "name an address of this machine and a free port as listen"
