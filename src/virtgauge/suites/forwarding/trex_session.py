"""A session with a TRex server: its ports, and what it counts.

Sources: ``doc/trex_rpc_server_spec.asciidoc`` (commands and the states of a port) and, for what the answers hold,
``src/stx/stl/trex_stl_rpc_cmds.cpp``, ``src/stx/common/trex_rpc_cmds_common.cpp``, ``src/stx/stl/trex_stl_fs.cpp`` of
https://github.com/cisco-system-traffic-generator/trex-core.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import secrets
import socket
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

from virtgauge.errors import UnavailableError, VirtgaugeError
from virtgauge.suites.forwarding.trex_rpc import SYNC_PORT, TrexError, TrexRefusalError, TrexRpc
from virtgauge.suites.forwarding.trex_streams import TrexStream

ALL_CORES = 2**64 - 1

_GROUPS_PER_QUERY = 1024  # the server takes 1024 + 128
_TRANSMITTING = ("TX", "PAUSE", "PCAP_TX")


@dataclasses.dataclass(frozen=True)
class PortStatus:
    """A port as the server sees it.

    Attributes:
        owner: user who has acquired it; empty where nobody has.
        state: ``DOWN``, ``IDLE``, ``STREAMS``, ``TX``, ``PAUSE`` …
        link_up: there is a carrier.
    """

    owner: str
    state: str
    link_up: bool

    @property
    def transmitting(self) -> bool:
        """Whether it sends, or would go on sending."""
        return self.state in _TRANSMITTING


@dataclasses.dataclass(frozen=True)
class PortFacts:
    """A port as it is built.

    Attributes:
        description: of its NIC.
        mac: that it takes frames for.
        capabilities: of receiving: ``flow_stats``, ``latency``, ``rx_bytes``.
        groups: packet groups that it can count at a time.
        mbps: of its link.
    """

    description: str
    mac: str
    capabilities: tuple[str, ...]
    groups: int
    mbps: float


@dataclasses.dataclass(frozen=True)
class GroupCounters:
    """What TRex counted of one packet group.

    Attributes:
        sent, received: frames by port.
        errors: of a timed group: ``drp`` (gaps, an estimate), ``ooo``, ``dup``, ``sth``, ``stl`` (sequence number too
            high, too low); those that are zero are missing.
        latency: of a timed group, as published; None of others.
    """

    sent: Mapping[int, int]
    received: Mapping[int, int]
    errors: Mapping[str, int]
    latency: Mapping[str, Any] | None


class TrexSession:
    """What one client of a server may do; ports that it has acquired are its own until it closes."""

    def __init__(self, rpc: TrexRpc) -> None:
        self.rpc = rpc
        self.user = f"virtgauge@{socket.gethostname()}"
        self._session_id = secrets.randbelow(2**32 - 1) + 1
        self._handlers: dict[int, str] = {}

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, host: str, port: int = SYNC_PORT, timeout_s: float = 5.0) -> AsyncIterator[TrexSession]:
        """Connect; at the end, stop what is sent and give back the ports.

        Raises:
            UnavailableError: see :meth:`TrexRpc.connect`.
        """
        rpc = TrexRpc(host, port, timeout_s)
        try:
            await rpc.connect()
            session = cls(rpc)
            try:
                yield session
            except BaseException:
                # What went wrong first is what the user has to read, not that the server could not be told good-bye.
                with contextlib.suppress(VirtgaugeError):
                    await session.release()
                raise
            await session.release()
        finally:
            rpc.close()

    async def acquire(self, port: int, *, force: bool = False) -> None:
        """Make a port this session's, idle and without streams.

        Args:
            force: take it from whoever has it, and end what they send.

        Raises:
            UnavailableError: somebody else has it, or there is no such port.
        """
        try:
            handler = await self.rpc.call(
                "acquire", port_id=port, user=self.user, session_id=self._session_id, force=force
            )
        except TrexRefusalError as refusal:
            raise UnavailableError(
                f"port {port} of TRex at {self.rpc.address} cannot be had: {refusal.reason}",
                "release it there (in its console: release), or take it away from its owner with force = true",
            ) from refusal
        self._handlers[port] = str(handler)
        await self.clear(port)

    async def clear(self, port: int) -> None:
        """End what a port of ours sends, and remove every stream from it, also those that others left."""
        await self._owned("stop_traffic", port, profile_id="*")
        for profile in await self.rpc.call("get_profile_list", port_id=port, profile_id="*"):
            await self._owned("remove_all_streams", port, profile_id=profile)

    async def release(self) -> None:
        """Clear and give back every port; what is tried with one is tried with all.

        Raises:
            VirtgaugeError: of the last port that could not be cleared or given back.
        """
        failure: VirtgaugeError | None = None
        while self._handlers:
            port = next(iter(self._handlers))
            try:
                await self.clear(port)
                await self._owned("release", port)
            except VirtgaugeError as error:
                failure = error
            finally:
                del self._handlers[port]
            if isinstance(failure, UnavailableError):
                break  # the server is gone: asking for each port would wait for as many time-outs
        if failure is not None:
            raise failure

    async def add(self, port: int, streams: Sequence[TrexStream]) -> None:
        """Give streams to a port of ours.

        Raises:
            TrexRefusalError: no counter is left, the frame is not one TRex can count, or the port is not ours any more.
        """
        for number, stream in enumerate(streams, start=1):
            await self._owned("add_stream", port, stream_id=number, stream=stream.as_json())

    async def start(self, port: int, duration_s: float, core_mask: int = ALL_CORES) -> None:
        """Send the port's streams at the rates they have, or as fast as it can if that is less.

        Args:
            duration_s: after which the server stops by itself, even when nobody asks any more.
            core_mask: of the server's sending cores; not all of a port's can be excluded.

        Raises:
            TrexRefusalError: the port is not ours any more, has no streams, or sends already.
        """
        # Without force the server refuses what exceeds the port's line rate: a search has to see it sent too slowly
        # instead, as with every other tester.  Force also passes over a link that is down, which the caller watches.
        await self._owned(
            "start_traffic",
            port,
            duration=duration_s,
            mul={"type": "raw", "op": "abs", "value": 1.0},
            core_mask=core_mask,
            force=True,
        )

    async def stop_counting(self, port: int) -> None:
        """Remove the receiving rules of a port that has stopped; frames that come later are not counted."""
        await self._owned("remove_rx_filters", port)

    async def status(self, port: int) -> PortStatus:
        """State, owner and link."""
        answer = await self.rpc.call("get_port_status", port_id=port, block=False)
        with _published("get_port_status"):
            return PortStatus(
                owner=str(answer["owner"]), state=str(answer["state"]), link_up=bool(answer["attr"]["link"]["up"])
            )

    async def ports(self) -> dict[int, PortFacts]:
        """Every port of the server, by number."""
        answer = await self.rpc.call("get_system_info")
        with _published("get_system_info"):
            return {
                int(port["index"]): PortFacts(
                    description=str(port["description"]),
                    # The specification's name, and the one that the server sends today.
                    mac=str(port["hw_macaddr"] if "hw_macaddr" in port else port["hw_mac"]),
                    capabilities=tuple(port["rx"]["caps"]),
                    groups=int(port["rx"]["counters"]),
                    mbps=1000.0 * float(port["speed"]),
                )
                for port in answer["ports"]
            }

    async def port_counters(self, port: int) -> dict[str, int]:
        """Frames since the server started: ``opackets``, ``ipackets``, ``oerrors``, ``ierrors``."""
        answer = await self.rpc.call("get_port_stats", port_id=port)
        with _published("get_port_stats"):
            return {name: int(answer[name]) for name in ("opackets", "ipackets", "oerrors", "ierrors")}

    async def free_groups(self) -> Iterator[int]:
        """Numbers that no stream of any client uses, ascending without end."""
        answer = await self.rpc.call("get_active_pgids")
        with _published("get_active_pgids"):
            taken = [int(group) for kind in ("flow_stats", "latency") for group in answer["ids"][kind]]
        return itertools.count(max(taken, default=0) + 1)

    async def group_counters(self, groups: Sequence[int]) -> dict[int, GroupCounters]:
        """What was counted of each of these packet groups.

        Raises:
            TrexError: the server knows nothing of one of them, or answers otherwise than published.
        """
        counters: dict[int, GroupCounters] = {}
        for start in range(0, len(groups), _GROUPS_PER_QUERY):
            asked = list(groups[start : start + _GROUPS_PER_QUERY])
            answer = await self.rpc.call("get_pgid_stats", pgids=asked)
            with _published("get_pgid_stats"):
                flow_stats, latency = answer["flow_stats"] or {}, answer["latency"] or {}
                for group in asked:
                    if (key := str(group)) not in flow_stats:
                        raise TrexError(f"TRex at {self.rpc.address} has no counters of packet group {group}")
                    timed = latency.get(key) or {}
                    counters[group] = GroupCounters(
                        sent=_by_port(flow_stats[key]["tp"]),
                        received=_by_port(flow_stats[key]["rp"]),
                        errors={name: int(count) for name, count in (timed.get("er") or {}).items()},
                        latency=timed.get("lat"),
                    )
        return counters

    async def _owned(self, method: str, port: int, **params: Any) -> Any:
        return await self.rpc.call(method, port_id=port, handler=self._handlers[port], **params)


def _by_port(counts: Mapping[str, int]) -> dict[int, int]:
    return {int(port): int(count) for port, count in counts.items()}


@contextlib.contextmanager
def _published(method: str) -> Iterator[None]:
    """An answer that does not have the published form is an error that names it."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as odd:
        raise TrexError(f"TRex answered {method} otherwise than it publishes: {odd!r}") from odd
