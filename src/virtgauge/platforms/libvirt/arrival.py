"""Waiting for a guest's agent: until it is there, the guest has ended, or the time is over."""

from __future__ import annotations

import asyncio

from virtgauge.agent.channel import Channel
from virtgauge.platforms.libvirt.attempt import DomainAttempt
from virtgauge.platforms.libvirt.connection import called
from virtgauge.platforms.libvirt.drivers import ChannelKind
from virtgauge.platforms.libvirt.entrance import CallIn, Entrance, Streams, Terminal

AnyEntrance = Entrance | Terminal | CallIn

_LOOK_S = 0.5
"""How often it is looked whether a guest that has not called yet still runs."""
_LEAST_S = 0.1
"""What is left, as :attr:`LaunchAttempt.remaining_s` has it, of a time that is over."""


async def conversation(attempt: DomainAttempt, entrance: AnyEntrance, kind: ChannelKind) -> Channel:
    """The agent's channel, past the handshake.

    Args:
        attempt: whose domain runs.
        entrance: where the stream comes in.
        kind: of the channel.

    Raises:
        LaunchError: the guest ended, or its agent did not come in time.
    """
    arrival = asyncio.create_task(_streams(attempt, entrance, kind))
    try:
        while not (await asyncio.wait({arrival}, timeout=min(_LOOK_S, attempt.remaining_s)))[0]:
            if (ended := attempt.end_of_process()) is not None:
                raise attempt.failure("boot", f"{ended} before its agent answered")
            if attempt.remaining_s <= _LEAST_S:
                if isinstance(entrance, CallIn):
                    raise attempt.failure("dial-in", entrance.silence(attempt.spec.ready_timeout_s))
                raise attempt.failure("handshake", "nothing came over its channel in time")
        reader, writer = await arrival
    finally:
        arrival.cancel()
    return await attempt.open_channel(reader, writer)


async def _streams(attempt: DomainAttempt, entrance: AnyEntrance, kind: ChannelKind) -> Streams:
    def note(noise: bytes) -> None:
        with attempt.console.open("ab") as log:
            log.write(noise)

    if isinstance(entrance, Entrance):
        return await entrance.streams(kind, note)
    if isinstance(entrance, CallIn):
        return await entrance.streams()
    handle = attempt.handle
    description = await called("the description of the guest", lambda: handle.libvirt_domain.XMLDesc(0))
    return await entrance.streams(description, note)
