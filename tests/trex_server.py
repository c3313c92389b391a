"""A TRex server that sends nothing: it speaks the published messages over a real ZeroMQ socket.

Every form stands where it comes from, in https://github.com/cisco-system-traffic-generator/trex-core at commit
27e0153b: SPEC is doc/trex_rpc_server_spec.asciidoc, the others are files of the server itself.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import copy
import dataclasses
import json
import struct
import time
import zlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import zmq
import zmq.asyncio

# SPEC, "Get System Info": the answer of the example, shortened to what a NIC is known by.
SYSTEM_INFO = {
    "core_type": "Intel(R) Xeon(R) CPU E5-2667 v3 @ 3.20GHz",
    "dp_core_count": 1,
    "dp_core_count_per_port": 1,
    "hostname": "csi-trex-11",
    "port_count": 2,
    "ports": [
        {
            "description": "VMXNET3 Ethernet Controller",
            "driver": "rte_vmxnet3_pmd",
            "dst_macaddr": "00:0c:29:2a:99:bc",
            "hw_macaddr": "00:0c:29:2a:99:b2",
            "index": 0,
            "is_virtual": True,
            "numa": -1,
            "pci_addr": "0000:03:00.0",
            "rx": {"caps": ["flow_stats", "latency", "rx_bytes"], "counters": 127},
            "speed": 10,
            "src_macaddr": "00:0c:29:2a:99:b2",
            "supp_speeds": [10000],
        },
        {
            "description": "VMXNET3 Ethernet Controller",
            "driver": "rte_vmxnet3_pmd",
            "dst_macaddr": "00:0c:29:2a:99:b2",
            "hw_macaddr": "00:0c:29:2a:99:bc",
            "index": 1,
            "is_virtual": True,
            "numa": -1,
            "pci_addr": "0000:0b:00.0",
            "rx": {"caps": ["flow_stats", "latency", "rx_bytes"], "counters": 127},
            "speed": 10,
            "src_macaddr": "00:0c:29:2a:99:bc",
            "supp_speeds": [10000],
        },
    ],
    "uptime": "Oct 31 2016 @ 16:25:28",
}

# SPEC, "Get Port Status": the answer of the example, of a port that nobody has.
PORT_STATUS = {
    "attr": {"fc": {"mode": 0}, "link": {"up": True}, "promiscuous": {"enabled": False}},
    "max_stream_id": 3,
    "owner": "",
    "speed": 10000,
    "state": "IDLE",
}

# src/rpc-server/trex_rpc_jsonrpc_v2_parser.cpp: the codes and their messages.
PARSE_ERROR, METHOD_NOT_FOUND, BAD_PARAMETERS, NOT_EXECUTED, TRY_AGAIN = -32700, -32601, -32602, -32000, -32001
MESSAGES = {
    BAD_PARAMETERS: "Bad parameters for method",
    NOT_EXECUTED: "Failed To Execute Method",
    TRY_AGAIN: "Try again later",
}

# What trex_stl_rpc_cmds.cpp, TrexRpcCmdAddStream::_run, parses without a default.
STREAM_FIELDS = {
    "enabled": bool,
    "self_start": bool,
    "flags": int,
    "action_count": int,
    "isg": (int, float),
    "next_stream_id": int,
    "mode": dict,
    "packet": dict,
    "vm": dict,
    "flow_stats": dict,
}


class Refusal(Exception):
    """The server's own error."""

    def __init__(self, code: int, specific: str) -> None:
        super().__init__(specific)
        self.code, self.specific = code, specific


@dataclasses.dataclass
class Port:
    """One port's state."""

    status: dict[str, Any] = dataclasses.field(default_factory=lambda: copy.deepcopy(PORT_STATUS))
    session: int = 0
    handler: str = ""
    streams: dict[str, dict[int, dict[str, Any]]] = dataclasses.field(default_factory=lambda: {"_": {}})
    counters: dict[str, int] = dataclasses.field(
        default_factory=lambda: {"opackets": 0, "ipackets": 0, "oerrors": 0, "ierrors": 0}
    )
    ends: float = 0.0


class TrexServer:
    """Answers as TRex does; what its device loses is the test's to say.

    Attributes:
        ports: their state.
        requests: every request, as it was understood.
        groups: counters of ``get_pgid_stats`` by packet group, filled when a port starts.
        device: from a stream and the frames that are to be sent to (frames sent, frames received, ``lat`` object).
        answers: by method, what is answered instead: an object is a whole response, bytes are the message itself,
            None is silence.
        overtime_s: for which it sends beyond the duration.
        requests_compressed: whether each request was.
        answer_compressed: whether answers are; None: as the request was.
    """

    def __init__(self) -> None:
        self.ports = {0: Port(), 1: Port()}
        self.system = copy.deepcopy(SYSTEM_INFO)
        self.version = ("STL", 5, 1)
        self.requests: list[dict[str, Any]] = []
        self.requests_compressed: list[bool] = []
        self.answer_compressed: bool | None = None
        self.groups: dict[int, dict[str, Any]] = {}
        self.active = {"flow_stats": [], "latency": []}
        self.device: Callable[[dict[str, Any], int], tuple[int, int, dict[str, Any]]] = lambda _, frames: (
            frames,
            frames,
            {},
        )
        self.receiving_port = 1
        self.overtime_s = 0.0
        self.answers: dict[str, Any] = {}
        self.port = 0

    @staticmethod
    def refusal(words: str) -> Refusal:
        """What a command that cannot be executed raises."""
        return Refusal(NOT_EXECUTED, words)

    @property
    def methods(self) -> list[str]:
        return [request["method"] for request in self.requests]

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[TrexServer]:
        context = zmq.asyncio.Context()
        socket = context.socket(zmq.REP)
        socket.setsockopt(zmq.LINGER, 0)
        self.port = socket.bind_to_random_port("tcp://127.0.0.1")
        task = asyncio.create_task(self._serve(socket))
        try:
            yield self
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            socket.close()
            context.term()

    async def _serve(self, socket: zmq.asyncio.Socket) -> None:
        while True:
            message = await socket.recv()
            reply = self.reply(message)
            if reply is None:
                await asyncio.Event().wait()
            await socket.send(reply)

    def reply(self, message: bytes) -> bytes | None:
        # src/rpc-server/trex_rpc_zip.cpp: magic and inflated size, big endian, then zlib's stream.
        compressed = message[:4] == bytes.fromhex("ABE85CEA")
        if compressed:
            size = struct.unpack(">I", message[4:8])[0]
            message = zlib.decompress(message[8:])
            assert len(message) == size
        request = json.loads(message)
        self.requests.append(request)
        self.requests_compressed.append(compressed)
        answer = self.answers.get(request["method"], self._respond)
        if callable(answer):
            answer = answer(request)
        if answer is None or isinstance(answer, bytes):
            return answer
        text = json.dumps(answer).encode()
        # src/rpc-server/trex_rpc_req_resp_server.cpp: the answer to a compressed request is compressed.
        if compressed if self.answer_compressed is None else self.answer_compressed:
            return bytes.fromhex("ABE85CEA") + struct.pack(">I", len(text)) + zlib.compress(text)
        return text

    def _respond(self, request: dict[str, Any]) -> dict[str, Any]:
        response = {"id": request["id"], "jsonrpc": "2.0"}
        method = getattr(self, f"do_{request['method']}", None)
        if method is None:
            # trex_rpc_jsonrpc_v2_parser.cpp: "Method " << method_name << " not registered"
            message = f"Method {request['method']} not registered"
            return response | {"error": {"code": METHOD_NOT_FOUND, "message": message}}
        try:
            if request["method"] not in ("api_sync_v2", "get_version", "ping"):
                self._check_api(request["params"])
            return response | {"result": method(request["params"])}
        except Refusal as refusal:
            error = {"code": refusal.code, "message": MESSAGES[refusal.code], "specific_err": refusal.specific}
            return response | {"error": error}

    # -- commands -----------------------------------------------------------------------------------------------

    def _check_api(self, params: dict[str, Any]) -> None:
        # src/rpc-server/trex_rpc_cmd.cpp, verify_api_handler
        if params.get("api_h") != "SPhoCDIV":
            raise Refusal(NOT_EXECUTED, "API verification failed - API handler provided mismatch for class: 'common'")

    def _owned(self, params: dict[str, Any]) -> Port:
        # src/rpc-server/trex_rpc_cmd.cpp, verify_ownership
        port = self._port(params)
        if not port.handler:
            raise Refusal(NOT_EXECUTED, "please acquire the port before modifying port state")
        if params["handler"] != port.handler:
            raise Refusal(NOT_EXECUTED, "port is not owned by you or your current executing session")
        return port

    def _port(self, params: dict[str, Any]) -> Port:
        if params["port_id"] not in self.ports:
            raise Refusal(NOT_EXECUTED, f"invalid port id - should be between 0 and {len(self.ports) - 1}")
        return self.ports[params["port_id"]]

    def do_api_sync_v2(self, params: dict[str, Any]) -> dict[str, Any]:
        # src/rpc-server/trex_rpc_cmd_api.h, TrexRpcAPIVersion::verify; the handle is that of SPEC's examples
        name, major, minor = self.version
        if params["name"] != name:
            words = f"server RPC configuration: '{name}', client RPC configuration: '{params['name']}'"
            raise Refusal(NOT_EXECUTED, f"RPC configuration mismatch - {words}")
        versions = f"\n(API type '{name}': - server: '{major}.{minor}', client: '{params['major']}.{params['minor']}')"
        if params["major"] < major:
            raise Refusal(NOT_EXECUTED, "RPC version mismatch: a newer client version is required" + versions)
        if params["major"] > major or params["minor"] > minor:
            words = "Version mismatch: your client version is too new to be supported by the server"
            raise Refusal(NOT_EXECUTED, words + versions)
        return {"api_h": "SPhoCDIV"}

    def do_get_system_info(self, params: dict[str, Any]) -> dict[str, Any]:
        return self.system

    def do_get_port_status(self, params: dict[str, Any]) -> dict[str, Any]:
        port = self._port(params)
        if port.status["state"] == "TX" and time.monotonic() >= port.ends:
            port.status["state"] = "STREAMS"
        return port.status

    def do_acquire(self, params: dict[str, Any]) -> str:
        # src/stx/common/trex_port.cpp, TrexPort::acquire; the handle is that of SPEC's examples
        port = self._port(params)
        assert isinstance(params["force"], bool)
        assert 0 < params["session_id"] < 2**32
        owner = port.status["owner"]
        if owner and not params["force"]:
            if owner != params["user"]:
                raise Refusal(NOT_EXECUTED, f"port is already taken by '{owner}'")
            if port.session != params["session_id"]:
                raise Refusal(NOT_EXECUTED, f"port is already owned by another session of '{owner}'")
        port.status["owner"], port.session, port.handler = params["user"], params["session_id"], "37JncCHr"
        return port.handler

    def do_release(self, params: dict[str, Any]) -> dict[str, Any]:
        port = self._owned(params)
        port.status["owner"], port.session, port.handler = "", 0, ""
        return {}

    def do_get_profile_list(self, params: dict[str, Any]) -> list[str]:
        return list(self._port(params).streams)

    def do_stop_traffic(self, params: dict[str, Any]) -> dict[str, Any]:
        port = self._owned(params)
        if port.status["state"] == "TX":
            port.status["state"] = "STREAMS"
        return {}

    def do_remove_all_streams(self, params: dict[str, Any]) -> dict[str, Any]:
        # src/stx/stl/trex_stl_rpc_cmds.cpp does nothing for a profile that there is not, which "*" is
        port = self._owned(params)
        if port.status["state"] == "TX":
            raise Refusal(NOT_EXECUTED, "command 'remove_and_delete_all_streams' cannot be executed on current state")
        port.streams.get(params["profile_id"], {}).clear()
        if not any(port.streams.values()):
            port.status["state"] = "IDLE"
        return {}

    def do_add_stream(self, params: dict[str, Any]) -> dict[str, Any]:
        port, stream = self._owned(params), params["stream"]
        for field, kind in STREAM_FIELDS.items():
            if not isinstance(stream.get(field), kind):
                raise Refusal(BAD_PARAMETERS, f"field '{field}' missing")
        assert stream["mode"] == {
            "type": "continuous",
            "rate": {"type": "pps", "value": stream["mode"]["rate"]["value"]},
        }
        assert stream["vm"] == {"instructions": []}
        assert set(stream["packet"]) == {"binary", "meta"}
        assert stream["flow_stats"]["rule_type"] in ("stats", "latency")
        frame = base64.b64decode(stream["packet"]["binary"], validate=True)
        if stream["flow_stats"]["rule_type"] == "latency" and (payload := len(frame) - 42) < 16:
            # src/stx/stl/trex_stl_fs.cpp
            words = f"Need at least 16 payload bytes for payload rules. Packet only has {payload} bytes"
            raise Refusal(NOT_EXECUTED, words)
        assert params["stream_id"] not in port.streams["_"]
        port.streams["_"][params["stream_id"]] = stream
        port.status["state"] = "STREAMS"
        return {}

    def do_start_traffic(self, params: dict[str, Any]) -> dict[str, Any]:
        port = self._owned(params)
        assert params["mul"] == {"type": "raw", "op": "abs", "value": 1.0}
        assert params["core_mask"] > 0
        if not params["force"] and not port.status["attr"]["link"]["up"]:
            raise Refusal(NOT_EXECUTED, "Link state is DOWN.")  # src/stx/stl/trex_stl_port.cpp
        port.status["state"] = "TX"
        port.ends = time.monotonic() + params["duration"] + self.overtime_s
        for stream in port.streams["_"].values():
            frames = round(stream["mode"]["rate"]["value"] * params["duration"])
            self._count(params["port_id"], stream, *self.device(stream, frames))
        return {"multiplier": 1.0, "ts": 20395.399607074254}  # SPEC, "Start Traffic"

    def _count(self, port: int, stream: dict[str, Any], sent: int, received: int, timed: dict[str, Any]) -> None:
        # src/stx/stl/trex_stl_fs.cpp, CFlowStatRuleMgr::dump_json: every counter by port, as text
        other = self.receiving_port
        group = {
            "tp": {str(number): sent if number == port else 0 for number in self.ports},
            "rp": {str(number): received if number == other else 0 for number in self.ports},
            "tb": {str(number): 0 for number in self.ports},
            "tps": {str(number): 0.0 for number in self.ports},
        }
        number = stream["flow_stats"]["stream_id"]
        assert number not in self.groups, "a packet group is used again, whose counters go on"
        self.groups[number] = {"flow_stats": group, "ver_id": 1}
        if stream["flow_stats"]["rule_type"] == "latency":
            self.groups[number]["latency"] = {"lat": timed} if timed else {}

    def do_get_active_pgids(self, params: dict[str, Any]) -> dict[str, Any]:
        # src/stx/stl/trex_stl_rpc_cmds.cpp, TrexRpcCmdGetActivePGIds::_run
        ids = copy.deepcopy(self.active)
        for group, counters in self.groups.items():
            ids["latency" if "latency" in counters else "flow_stats"].append(group)
        return {"ids": ids}

    def do_get_pgid_stats(self, params: dict[str, Any]) -> dict[str, Any]:
        known = {str(group): self.groups[group] for group in params["pgids"] if group in self.groups}
        timed = {group: counters["latency"] for group, counters in known.items() if "latency" in counters}
        return {
            "flow_stats": {group: counters["flow_stats"] for group, counters in known.items()},
            "latency": {"g": {"old_flow": 1}} | timed,
            "ver_id": {group: counters["ver_id"] for group, counters in known.items()},
        }

    def do_get_port_stats(self, params: dict[str, Any]) -> dict[str, Any]:
        # src/main_dpdk.cpp, CGlobalStats::port_stats_to_json
        rates = {"m_total_tx_bps": 0.0, "m_total_tx_pps": 0.0, "m_total_rx_bps": 0.0, "m_total_rx_pps": 0.0}
        return dict(self._port(params).counters) | {"obytes": 0, "ibytes": 0, "m_cpu_util": 0.0} | rates

    def do_remove_rx_filters(self, params: dict[str, Any]) -> dict[str, Any]:
        port = self._owned(params)
        if port.status["state"] != "STREAMS":
            raise Refusal(NOT_EXECUTED, "command 'remove_rx_filters' cannot be executed on current state")
        return {}
