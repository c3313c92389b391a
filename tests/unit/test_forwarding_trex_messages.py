"""TRex's messages: what is sent, what is understood, and what is said of everything else."""

import struct
import time
import zlib

import pytest
from trex_server import TrexServer

from virtgauge.errors import UnavailableError
from virtgauge.suites.forwarding.trex_rpc import TrexError, TrexRefusalError, TrexRpc, decode, encode
from virtgauge.suites.forwarding.trex_session import TrexSession

# doc/trex_rpc_server_spec.asciidoc, "Get Version", as the server's JSON writer would put it on the wire.
VERSION = (
    b'{"id":"wapkk8m6","jsonrpc":"2.0","result":{"build_date":"Sep 16 2015","build_time":"12:33:01",'
    b'"built_by":"imarom","version":"v0.0"}}\n'
)


def deflated(text, size=None):
    return bytes.fromhex("ABE85CEA") + struct.pack(">I", len(text) if size is None else size) + zlib.compress(text)


def answering(request, **fields):
    return {"jsonrpc": "2.0", "id": request["id"], **fields}


def refusing(code, specific):
    return lambda request: answering(request, error={"code": code, "message": "…", "specific_err": specific})


def test_a_message_is_understood_compressed_or_not():
    assert decode(VERSION) == decode(deflated(VERSION))
    assert decode(VERSION)["result"]["version"] == "v0.0"


def test_a_request_goes_out_under_the_magic_number_with_its_size():
    request = {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {}}
    message = encode(request)
    assert message[:4].hex().upper() == "ABE85CEA"
    text = zlib.decompress(message[8:])
    assert struct.unpack(">I", message[4:8]) == (len(text),)
    assert decode(message) == request


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (deflated(VERSION)[:-9], "announces"),
        (deflated(VERSION, size=len(VERSION) - 1), "announces"),
        (deflated(VERSION, size=len(VERSION) + 1), "announces"),
        (bytes.fromhex("ABE85CEA") + struct.pack(">I", 1 << 31) + b"x", "announced"),
        (bytes.fromhex("ABE85CEA") + struct.pack(">I", 4) + b"nonsense", "broken"),
        (b"", "Expecting value"),
        (b"\xff\xfe\xfd", "decode"),
        (b"HTTP/1.1 400 Bad Request", "Expecting value"),
    ],
)
def test_a_message_that_is_not_trexs_is_named(message, words):
    with pytest.raises(ValueError, match=words):
        decode(message)


@pytest.mark.parametrize("compressed", [True, False, None])
async def test_the_handle_of_the_agreed_interface_goes_with_every_further_request(compressed):
    server = TrexServer()
    server.answer_compressed = compressed
    async with server.listening(), TrexSession.open("127.0.0.1", server.port):
        pass
    async with server.listening():
        rpc = TrexRpc("127.0.0.1", server.port)
        await rpc.connect()
        assert (await rpc.call("get_system_info"))["hostname"] == "csi-trex-11"
        rpc.close()
    agreed, asked = server.requests[-2:]
    assert agreed["method"] == "api_sync_v2"
    assert agreed["params"] == {"name": "STL", "major": 5, "minor": 0}
    assert asked["params"] == {"api_h": "SPhoCDIV"}
    assert all(server.requests_compressed)
    assert agreed["id"] != asked["id"]


@pytest.mark.parametrize(
    ("version", "words"),
    [
        (("STL", 4, 6), "your client version is too new"),
        (("STL", 6, 0), "a newer client version is required"),
        (("ASTF", 5, 1), "server RPC configuration: 'ASTF'"),
    ],
)
async def test_another_version_of_the_interface_is_refused_in_the_servers_words(version, words):
    server = TrexServer()
    server.version = version
    async with server.listening():
        with pytest.raises(UnavailableError, match=words) as raised:
            async with TrexSession.open("127.0.0.1", server.port):
                pass
    assert "t-rex-64 -i" in raised.value.remedy


async def test_a_server_from_before_this_interface_is_named_old():
    server = TrexServer()
    # trex_rpc_jsonrpc_v2_parser.cpp says nothing specific of a method that it does not know
    server.answers["api_sync_v2"] = lambda request: answering(
        request, error={"code": -32601, "message": "Method api_sync_v2 not registered"}
    )
    async with server.listening():
        with pytest.raises(UnavailableError, match=r"older than v2\.31"):
            async with TrexSession.open("127.0.0.1", server.port):
                pass


async def test_a_server_that_is_not_there_is_named_within_the_time_out():
    started = time.monotonic()
    with pytest.raises(
        UnavailableError, match=r"TRex at 127\.0\.0\.1:9 did not answer api_sync_v2 within 0\.2 s"
    ) as raised:
        async with TrexSession.open("127.0.0.1", 9, timeout_s=0.2):
            pass
    assert time.monotonic() - started < 10
    assert "t-rex-64" in raised.value.remedy
    assert "9" in raised.value.remedy


async def test_an_address_that_cannot_be_one_is_refused():
    with pytest.raises(UnavailableError, match="not an address"):
        async with TrexSession.open("no host;", 4501):
            pass


async def test_after_a_silence_the_next_request_is_answered():
    server = TrexServer()
    async with server.listening():
        rpc = TrexRpc("127.0.0.1", server.port, timeout_s=1.0)
        await rpc.connect()
        port = server.port
        server.answers["get_port_stats"] = lambda request: None
        with pytest.raises(UnavailableError, match="did not answer get_port_stats"):
            await rpc.call("get_port_stats", port_id=0)
    server.answers.clear()
    async with server.listening():
        rpc.address = rpc.address.replace(str(port), str(server.port))
        assert (await rpc.call("get_port_stats", port_id=0))["opackets"] == 0
        rpc.close()
        rpc.close()


async def test_a_server_that_asks_for_patience_is_asked_again():
    server = TrexServer()
    asked = []

    def busy(request):
        # "Try again later" of trex_rpc_jsonrpc_v2_parser.cpp: the specific part is left out when it is empty
        asked.append(request)
        if len(asked) < 3:
            return answering(request, error={"code": -32001, "message": "Try again later"})
        return answering(request, result={"owner": "", "state": "IDLE", "attr": {"link": {"up": True}}})

    server.answers["get_port_status"] = busy
    async with server.listening(), TrexSession.open("127.0.0.1", server.port) as session:
        assert (await session.status(0)).state == "IDLE"
    assert len(asked) == 3


async def test_patience_ends_with_the_time_out():
    server = TrexServer()
    server.answers["get_port_status"] = refusing(-32001, "")
    async with server.listening(), TrexSession.open("127.0.0.1", server.port, timeout_s=0.5) as session:
        with pytest.raises(TrexRefusalError, match="get_port_status"):
            await session.status(0)
    assert 1 <= server.methods.count("get_port_status") <= 4


async def test_a_refusal_says_which_request_and_why():
    server = TrexServer()
    async with server.listening(), TrexSession.open("127.0.0.1", server.port) as session:
        with pytest.raises(TrexRefusalError, match=r"refused no_such: Method no_such not registered \(error -32601\)"):
            await session.rpc.call("no_such")
        server.answers["get_version"] = refusing(-32602, "field 'port_id' is missing")
        with pytest.raises(TrexRefusalError, match="field 'port_id' is missing") as raised:
            await session.rpc.call("get_version")
    assert raised.value.code == -32602


@pytest.mark.parametrize(
    "answer",
    [
        b"220 ftp.example ready",
        deflated(VERSION, size=3),
        [],
        {"jsonrpc": "1.0", "id": 1, "result": {}},
        {"jsonrpc": "2.0", "id": "another", "result": {}},
        lambda request: answering(request),
    ],
)
async def test_an_answer_that_is_not_json_rpc_is_an_error_that_names_the_request(answer):
    server = TrexServer()
    server.answers["get_active_pgids"] = answer
    async with server.listening(), TrexSession.open("127.0.0.1", server.port) as session:
        with pytest.raises(TrexError, match="get_active_pgids is not TRex's"):
            await session.free_groups()


@pytest.mark.parametrize("result", [{}, {"ids": {"flow_stats": []}}, {"ids": {"flow_stats": ["x"], "latency": []}}, 7])
async def test_a_result_of_another_form_is_an_error_that_names_the_request(result):
    server = TrexServer()
    server.answers["get_active_pgids"] = lambda request: answering(request, result=result)
    async with server.listening(), TrexSession.open("127.0.0.1", server.port) as session:
        with pytest.raises(TrexError, match="get_active_pgids otherwise than it publishes"):
            await session.free_groups()


async def test_a_handle_that_the_server_does_not_know_is_refused():
    server = TrexServer()
    server.answers["api_sync_v2"] = lambda request: answering(request, result={"api_h": "of another life"})
    async with server.listening(), TrexSession.open("127.0.0.1", server.port) as session:
        with pytest.raises(TrexRefusalError, match="API handler provided mismatch"):
            await session.ports()
