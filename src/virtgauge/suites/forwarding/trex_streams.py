"""The streams that a load becomes on TRex: for every flow one that carries it and one, slow, that is timed.

Sources: "Add Stream" in ``doc/trex_rpc_server_spec.asciidoc``, "Per stream statistics" and "Per stream
latency/jitter/packet errors" in ``doc/trex_stateless.asciidoc``, the fields of ``stl/trex_stl_streams.py`` and their
parsing in ``src/stx/stl/trex_stl_rpc_cmds.cpp`` of https://github.com/cisco-system-traffic-generator/trex-core.
"""

from __future__ import annotations

import base64
import dataclasses
import ipaddress
import struct
from collections.abc import Iterator, Sequence
from typing import Any, Literal

FCS_BYTES = 4
LATENCY_PAYLOAD_BYTES = 16  # that TRex overwrites at the end of a timed frame: stream, sequence, time
MAX_LATENCY_GROUPS = 128
MAX_LATENCY_PPS = 5_000_000  # of all timed streams together

_HEADERS_BYTES = 14 + 20 + 8  # Ethernet, IPv4, UDP
_SOURCE_MAC_FROM_FRAME = 1
_DESTINATION_MAC_FROM_FRAME = 1 << 1

# Of a flow's load, the most that its timed stream takes.
_LATENCY_SHARE = 0.1


@dataclasses.dataclass(frozen=True)
class TrexFlow:
    """One flow: the frames of one guest.

    Attributes:
        frame: as it is sent, from the destination's MAC to the last byte before the FCS; see :func:`udp_frame`.
        share: of the load of all flows.
    """

    frame: bytes
    share: float


@dataclasses.dataclass(frozen=True)
class TrexStream:
    """One stream of one flow.

    Attributes:
        flow: number of its flow.
        group: the packet group by which TRex counts it.
        rule: ``stats`` is counted, ``latency`` is also timed and its order watched.
        rate_pps: frames per second.
        frame: without FCS.
    """

    flow: int
    group: int
    rule: Literal["stats", "latency"]
    rate_pps: float
    frame: bytes

    def as_json(self) -> dict[str, Any]:
        """The object ``stream`` of ``add_stream``: continuous, at its own rate, with the frame's own MAC addresses."""
        return {
            "enabled": True,
            "self_start": True,
            "next_stream_id": -1,
            "action_count": 0,
            "isg": 0.0,
            "flags": _SOURCE_MAC_FROM_FRAME | _DESTINATION_MAC_FROM_FRAME,
            "mode": {"type": "continuous", "rate": {"type": "pps", "value": self.rate_pps}},
            "packet": {"binary": base64.b64encode(self.frame).decode(), "meta": ""},
            "vm": {"instructions": []},
            "flow_stats": {"enabled": True, "stream_id": self.group, "rule_type": self.rule},
        }


def streams_of_load(
    flows: Sequence[TrexFlow], rate_pps: float, latency_pps: float, groups: Iterator[int]
) -> list[TrexStream]:
    """The streams that offer a load.

    A flow's timed stream is part of its load.  TRex times in software, so it is kept slow: ``latency_pps``, but no more
    than a tenth of the flow.  A flow without load has no stream.

    Args:
        rate_pps: of all flows together.
        latency_pps: of each flow's timed stream; 0 for none.
        groups: packet groups that are free.
    """
    streams = []
    for number, flow in enumerate(flows):
        rate = rate_pps * flow.share
        timed = min(latency_pps, rate * _LATENCY_SHARE)
        if rate > 0:
            streams.append(TrexStream(number, next(groups), "stats", rate - timed, flow.frame))
        if timed > 0:
            streams.append(TrexStream(number, next(groups), "latency", timed, flow.frame))
    return streams


def udp_frame(
    *,
    source_mac: str,
    destination_mac: str,
    source: str,
    destination: str,
    size: int,
    source_port: int = 1024,
    destination_port: int = 1024,
) -> bytes:
    """An IPv4 UDP frame without FCS; its UDP checksum is left out (RFC 768), since TRex writes into the payload.

    Args:
        size: in bytes, with FCS, as RFC 2544 counts; 64 leaves 18 bytes of payload, of which TRex's stamp needs 16.

    Raises:
        ValueError: too short for the stamp, or not a MAC or IPv4 address.
    """
    payload = size - FCS_BYTES - _HEADERS_BYTES
    if payload < LATENCY_PAYLOAD_BYTES:
        raise ValueError(f"a frame of {size} bytes has no room for TRex's stamp of {LATENCY_PAYLOAD_BYTES} bytes")
    addresses = ipaddress.IPv4Address(source).packed + ipaddress.IPv4Address(destination).packed
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + 8 + payload, 1, 0, 64, 17, 0) + addresses
    ip = ip[:10] + struct.pack(">H", _internet_checksum(ip)) + ip[12:]
    udp = struct.pack(">HHHH", source_port, destination_port, 8 + payload, 0)
    return _mac(destination_mac) + _mac(source_mac) + b"\x08\x00" + ip + udp + bytes(payload)


def _mac(text: str) -> bytes:
    address = bytes.fromhex(text.replace(":", ""))
    if len(address) != 6:
        raise ValueError(f"{text!r} is not a MAC address")
    return address


def _internet_checksum(header: bytes) -> int:
    """RFC 1071, of an even number of bytes."""
    total: int = sum(struct.unpack(f">{len(header) // 2}H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
