"""TRex's remote procedure calls: JSON-RPC 2.0 in ZeroMQ requests, a whole message optionally deflated.

Written from TRex's published documents, of which no code is used:

- transport, commands, parameters and error codes: ``doc/trex_rpc_server_spec.asciidoc``;
- ``api_sync_v2``, the handle ``api_h`` and compression: the Python client's ``common/trex_conn.py``,
  ``common/trex_req_resp_client.py`` and ``utils/zipmsg.py``, the server's ``src/rpc-server/trex_rpc_zip.cpp`` and
  ``trex_rpc_jsonrpc_v2_parser.cpp``

in https://github.com/cisco-system-traffic-generator/trex-core, read at commit 27e0153b (November 2025).
"""

from __future__ import annotations

import asyncio
import itertools
import json
import struct
import time
import zlib
from typing import TYPE_CHECKING, Any

from virtgauge.errors import UnavailableError, VirtgaugeError

if TYPE_CHECKING:
    import zmq.asyncio

SYNC_PORT = 4501

# Stateless mode's interface.  A server takes clients of its own major version whose minor version it knows; nothing
# here needs a minor version beyond the first.
API_NAME, API_MAJOR, API_MINOR = "STL", 5, 0

METHOD_NOT_FOUND = -32601
TRY_AGAIN = -32001

_COMPRESSED = 0xABE85CEA
_HEADER = struct.Struct(">II")  # magic, size once inflated
_LIMIT = 64 << 20  # bytes; a full answer about 1152 packet groups is a hundredth of it
_TRY_AGAIN_S = 0.2


class TrexError(VirtgaugeError):
    """TRex did not do its part."""


class TrexRefusalError(TrexError):
    """The server answered a request with an error.

    Attributes:
        code: of JSON-RPC: -32600 … -32700, or TRex's own -32000 (could not be executed) … -32003.
        reason: the server's words.
    """

    def __init__(self, method: str, code: int, reason: str) -> None:
        super().__init__(f"TRex refused {method}: {reason} (error {code})")
        self.code = code
        self.reason = reason


def encode(request: Any) -> bytes:
    """A message as TRex's own client sends it, deflated; the server then deflates its answer too."""
    text = json.dumps(request).encode()
    return _HEADER.pack(_COMPRESSED, len(text)) + zlib.compress(text)


def decode(message: bytes) -> Any:
    """What a message says, whether it is deflated or not.

    Raises:
        ValueError: it is not TRex's: the deflated part is broken or not as long as its header says, or not JSON.
    """
    if len(message) >= _HEADER.size:
        magic, size = _HEADER.unpack_from(message)
        if magic == _COMPRESSED:
            if size > _LIMIT:
                raise ValueError(f"a message of {size} bytes is announced; {_LIMIT} are allowed")
            inflate = zlib.decompressobj()
            try:
                text = inflate.decompress(message[_HEADER.size :], size + 1)
            except zlib.error as broken:
                raise ValueError(f"the compressed part is broken: {broken}") from broken
            if len(text) != size or not inflate.eof:
                raise ValueError(f"the compressed part does not hold the {size} bytes that its header announces")
            return json.loads(text)
    return json.loads(message)


class TrexRpc:
    """Requests to one server, one at a time.

    A request that is not answered in time is abandoned with its connection, since ZeroMQ's request socket cannot send
    another; the next request makes a new one.
    """

    def __init__(self, host: str, port: int = SYNC_PORT, timeout_s: float = 5.0) -> None:
        self.address = f"{host}:{port}"
        self._timeout_s = timeout_s
        self._ids = itertools.count(1)
        self._one_at_a_time = asyncio.Lock()
        self._socket: zmq.asyncio.Socket | None = None
        self._api_handle: str | None = None

    async def connect(self) -> None:
        """Agree on the interface's version, and get the handle that every further request carries.

        Raises:
            UnavailableError: nobody answers, pyzmq is missing, or the server speaks another version.
        """
        version = {"name": API_NAME, "major": API_MAJOR, "minor": API_MINOR}
        try:
            answer = await self.call("api_sync_v2", **version)
        except TrexRefusalError as refusal:
            spoken = f"{API_NAME} {API_MAJOR}.{API_MINOR}"
            reason = "it is older than v2.31" if refusal.code == METHOD_NOT_FOUND else refusal.reason
            raise UnavailableError(
                f"TRex at {self.address} does not speak version {spoken} of its interface: {reason}",
                "run a TRex of that version there, in stateless mode: ./t-rex-64 -i",
            ) from refusal
        if not isinstance(answer, dict) or not isinstance(handle := answer.get("api_h"), str):
            raise self._nonsense("api_sync_v2", "it has no api_h")
        self._api_handle = handle

    async def call(self, method: str, **params: Any) -> Any:
        """The result of one request; a server that says "try again" is asked until the time-out.

        Raises:
            UnavailableError: no answer in time, or pyzmq is missing.
            TrexRefusalError: the server answered with an error.
            TrexError: the answer is none of TRex's.
        """
        if self._api_handle is not None:
            params["api_h"] = self._api_handle
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                return await self._request(method, params)
            except TrexRefusalError as refusal:
                if refusal.code != TRY_AGAIN or time.monotonic() + _TRY_AGAIN_S > deadline:
                    raise
            await asyncio.sleep(_TRY_AGAIN_S)

    def close(self) -> None:
        """Drop the connection; can be called twice."""
        if self._socket is not None:
            self._socket.close(linger=0)
            self._socket = None

    async def _request(self, method: str, params: dict[str, Any]) -> Any:
        number = f"virtgauge-{next(self._ids)}"
        message = encode({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        async with self._one_at_a_time:
            reply = await self._exchange(method, message)
        try:
            answer = decode(reply)
        except ValueError as broken:  # json and Unicode errors are ValueErrors
            raise self._nonsense(method, str(broken)) from broken
        if not isinstance(answer, dict) or answer.get("jsonrpc") != "2.0":
            raise self._nonsense(method, "it is not a JSON-RPC 2.0 response")
        if isinstance(error := answer.get("error"), dict):
            reason = error.get("specific_err") or error.get("message") or "no reason given"
            raise TrexRefusalError(method, int(error.get("code", 0)), str(reason).strip())
        if answer.get("id") != number or "result" not in answer:
            raise self._nonsense(method, f"it answers request {answer.get('id')!r}, not {number!r}, or has no result")
        return answer["result"]

    async def _exchange(self, method: str, message: bytes) -> bytes:
        if self._socket is None:
            self._socket = _request_socket(f"tcp://{self.address}")
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._socket.send(message)
                return await self._socket.recv()
        except TimeoutError as silence:
            self.close()
            raise UnavailableError(
                f"TRex at {self.address} did not answer {method} within {self._timeout_s:g} s",
                f"check that ./t-rex-64 -i runs there, and that TCP port {self.address.rpartition(':')[2]} "
                "is open from here",
            ) from silence
        except BaseException:
            self.close()
            raise

    def _nonsense(self, method: str, what: str) -> TrexError:
        return TrexError(
            f"what {self.address} answered to {method} is not TRex's: {what}",
            f"check that TRex listens there; its port for requests is {SYNC_PORT} if its configuration names no other",
        )


def _request_socket(endpoint: str) -> zmq.asyncio.Socket:
    try:
        import zmq
        import zmq.asyncio
    except ImportError as missing:
        raise UnavailableError(
            "TRex is spoken to over ZeroMQ, and Python's pyzmq is not installed", "pip install 'virtgauge[trex]'"
        ) from missing
    socket = zmq.asyncio.Context.instance().socket(zmq.REQ)
    socket.setsockopt(zmq.LINGER, 0)
    try:
        socket.connect(endpoint)
    except zmq.ZMQError as refused:
        socket.close(linger=0)
        raise UnavailableError(f"{endpoint} is not an address that TRex can be reached at: {refused}") from refused
    return socket
