"""The controller's end of the channel against peers that misbehave."""

import asyncio
import contextlib
import socket

import msgpack
import numpy as np
import pytest

from virtgauge.agent import messages
from virtgauge.agent.channel import AgentError, Channel, ChannelClosedError, HandshakeError
from virtgauge.agent.messages import FrameDecoder, ProtocolError, encode

HASH = "ab" * 32


class Peer:
    """The far end of a channel, scripted by the test."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer
        self.decoder, self.waiting, self.sequence = FrameDecoder(), [], 0

    async def receive(self):
        while not self.waiting:
            data = await self.reader.read(65536)
            assert data, "the controller closed the channel"
            self.waiting += self.decoder.feed(data)
        return self.waiting.pop(0)

    def send(self, **message):
        self.writer.write(encode(message, self.sequence))
        self.sequence += 1

    async def welcome(self, **changes):
        hello = await self.receive()
        self.send(**{"type": "welcome", "protocol": 1, "token": hello["token"], "agent_sha256": HASH} | changes)


@contextlib.asynccontextmanager
async def peer_and_opening():
    here, there = socket.socketpair()
    peer = Peer(*await asyncio.open_connection(sock=there))
    reader, writer = await asyncio.open_connection(sock=here)
    opening = asyncio.create_task(Channel.open(reader, writer, HASH, 2.0))
    try:
        yield peer, opening
    finally:
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
        peer.writer.close()
        if not opening.cancelled() and opening.exception() is None:
            await opening.result().close()


@contextlib.asynccontextmanager
async def connected():
    async with peer_and_opening() as (peer, opening):
        await peer.welcome()
        yield peer, await opening


async def test_a_request_brings_its_result_and_samples():
    async with connected() as (peer, channel):
        seen = []
        request = asyncio.create_task(channel.request("probe", name="x", params={}, on_progress=seen.append))
        asked = await peer.receive()
        peer.send(type="started", id=asked["id"], clocks={"tsc": 1})
        peer.send(type="progress", id=asked["id"], done=0.5)
        for part in ([1, -2], [3]):
            values = np.array(part, dtype="<i8").tobytes()
            peer.send(type="samples", id=asked["id"], series="reservoir", values=values)
        peer.send(type="result", id=asked["id"], value={"n": 3})
        reply = await request
        assert reply.value == {"n": 3}
        assert reply.samples["reservoir"].tolist() == [1, -2, 3]
        assert reply.sent_ns <= reply.finished_ns
        assert seen == [0.5]


async def test_overlapping_requests_get_their_own_answers():
    async with connected() as (peer, channel):
        first = asyncio.create_task(channel.request("facts"))
        second = asyncio.create_task(channel.request("facts"))
        asked = [await peer.receive(), await peer.receive()]
        for request in reversed(asked):
            peer.send(type="result", id=request["id"], value={"id": request["id"]})
        assert [(await first).value["id"], (await second).value["id"]] == [asked[0]["id"], asked[1]["id"]]


async def test_an_error_answer_keeps_its_code_and_leaves_the_session_open():
    async with connected() as (peer, channel):
        request = asyncio.create_task(channel.request("probe", name="no such", params={}))
        asked = await peer.receive()
        peer.send(type="error", id=asked["id"], code="bad-request", message="name: unknown", errno=None)
        with pytest.raises(AgentError, match="name: unknown") as caught:
            await request
        assert caught.value.code == "bad-request"
        assert not channel.closed


async def test_a_slow_guest_is_waited_for_as_much_longer_as_it_declares():
    async with connected() as (peer, channel):
        channel.timeout_factor = 4.0
        request = asyncio.create_task(channel.request("probe", name="x", params={}, timeout_s=0.01))
        await peer.receive()
        with pytest.raises(TimeoutError, match=r"did not answer the request 'probe' within 0.04 s"):
            await request


async def test_a_time_out_cancels_the_request_in_the_agent():
    async with connected() as (peer, channel):
        request = asyncio.create_task(channel.request("probe", name="x", params={}, timeout_s=0.05))
        asked = await peer.receive()
        with pytest.raises(TimeoutError, match=r"did not answer the request 'probe' within 0.05 s"):
            await request
        cancel = await peer.receive()
        assert (cancel["type"], cancel["target"]) == ("cancel", asked["id"])
        peer.send(type="error", id=asked["id"], code="cancelled", message="", errno=None)  # late: ignored
        again = asyncio.create_task(channel.facts())
        asked = await peer.receive()
        peer.send(type="result", id=asked["id"], value={"init": False})
        assert await again == {"init": False}


async def test_a_peer_that_goes_away_ends_open_requests():
    async with connected() as (peer, channel):
        request = asyncio.create_task(channel.request("facts"))
        await peer.receive()
        peer.writer.close()
        with pytest.raises(ChannelClosedError):
            await request
        with pytest.raises(ChannelClosedError):
            await channel.request("facts")


async def test_a_peer_that_goes_away_inside_a_frame_is_a_protocol_error():
    async with connected() as (peer, channel):
        request = asyncio.create_task(channel.request("facts"))
        await peer.receive()
        peer.writer.write(b"\x00\x00\x01\x00part")
        peer.writer.close()
        with pytest.raises(ProtocolError, match="inside a frame"):
            await request


@pytest.mark.parametrize(
    "message",
    [
        {"type": "result", "id": 99, "value": {}},
        {"type": "result", "id": "1", "value": {}},
        {"type": "result", "id": 1, "value": [1]},
        {"type": "no such type", "id": 1},
        {"type": "samples", "id": 1, "series": "x", "values": b"seven b"},
        {"type": "progress", "id": 1, "done": "half"},
        {"type": "error", "id": None, "code": "protocol", "message": "you broke it"},
    ],
    ids=lambda message: f"{message['type']} {message.get('id')}",
)
async def test_an_answer_that_breaks_the_protocol_ends_the_session(message):
    async with connected() as (peer, channel):
        request = asyncio.create_task(channel.request("facts"))
        await peer.receive()
        peer.send(**message)
        with pytest.raises(ProtocolError):
            await request
        assert channel.closed


async def test_a_flood_of_samples_is_refused_before_it_fills_the_memory():
    async with connected() as (peer, channel):
        request = asyncio.create_task(channel.request("probe", name="x", params={}))
        asked = await peer.receive()
        chunk = bytes(4_000_000)
        with contextlib.suppress(ConnectionError):
            for _ in range(20):
                peer.send(type="samples", id=asked["id"], series="reservoir", values=chunk)
                await peer.writer.drain()
        with pytest.raises(ProtocolError, match="not acceptable"):
            await request


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"protocol": 2}, "speaks protocol 2"),
        ({"agent_sha256": "00" * 32}, "not that of the binary sent"),
        ({"token": "another"}, "another session's greeting"),
        ({"type": "error", "code": "version", "message": "I speak 7"}, "I speak 7"),
    ],
)
async def test_a_wrong_welcome_is_refused(changes, complaint):
    async with peer_and_opening() as (peer, opening):
        await peer.welcome(**changes)
        with pytest.raises(HandshakeError, match=complaint):
            await opening


async def test_a_silent_peer_is_a_time_out():
    here, there = socket.socketpair()
    with there:
        reader, writer = await asyncio.open_connection(sock=here)
        with pytest.raises(HandshakeError, match="no agent answered"):
            await Channel.open(reader, writer, HASH, 0.05)


async def test_closing_twice_is_harmless():
    async with connected() as (_, channel):
        await channel.close()
        await channel.close()
        await channel.shutdown()
        assert channel.closed


@pytest.mark.parametrize("late", [False, True], ids=["at once", "later"])
async def test_a_second_answer_ends_the_session(late):
    async with connected() as (peer, channel):
        request = asyncio.create_task(channel.request("facts"))
        asked = await peer.receive()
        peer.send(type="result", id=asked["id"], value={})
        if late:
            assert (await request).value == {}
            request = asyncio.create_task(channel.request("facts"))
            await peer.receive()
        peer.send(type="result", id=asked["id"], value={})
        with pytest.raises(ProtocolError, match="answered before"):
            if not late:
                assert (await request).value == {}
                await channel.request("facts", timeout_s=5.0)
            await request


async def test_an_answer_of_an_earlier_request_is_not_taken_for_this_ones():
    async with connected() as (peer, channel):
        for number in range(3):
            request = asyncio.create_task(channel.request("facts"))
            asked = await peer.receive()
            peer.send(type="result", id=asked["id"], value={"uid": number})
            assert (await request).value == {"uid": number}
        request = asyncio.create_task(channel.request("facts"))
        await peer.receive()
        peer.send(type="samples", id=2, series="reservoir", values=bytes(8))
        with pytest.raises(ProtocolError, match="answers the request 2, which was answered before"):
            await request


async def test_what_a_given_up_request_brings_is_counted_and_kept_by_nobody():
    async with connected() as (peer, channel):
        with pytest.raises(TimeoutError):
            await channel.request("probe", name="x", params={}, timeout_s=0.01)
        asked, _ = await peer.receive(), await peer.receive()
        with contextlib.suppress(ConnectionError):
            for _ in range(20):
                peer.send(type="samples", id=asked["id"], series="reservoir", values=bytes(4_000_000))
                await peer.writer.drain()
        with pytest.raises(ProtocolError, match="not acceptable"):
            await channel.request("facts", timeout_s=5.0)


async def test_a_flood_of_small_messages_is_refused(monkeypatch):
    monkeypatch.setattr(messages, "_MOST_MESSAGES", 100)
    async with connected() as (peer, channel):
        request = asyncio.create_task(channel.request("probe", name="x", params={}))
        asked = await peer.receive()
        for _ in range(101):
            peer.send(type="progress", id=asked["id"], done=0.5)
        with pytest.raises(ProtocolError, match="more than 100 messages"):
            await request


@pytest.mark.parametrize(
    "value",
    [{"n": float("nan")}, {"n": float("inf")}, {"n": msgpack.Timestamp(1)}, {"n": msgpack.ExtType(3, b"x")}],
    ids=str,
)
async def test_what_is_no_number_and_no_text_ends_the_session(value):
    async with connected() as (peer, channel):
        request = asyncio.create_task(channel.request("probe", name="x", params={}))
        asked = await peer.receive()
        peer.send(type="result", id=asked["id"], value=value)
        with pytest.raises(ProtocolError):
            await request


async def test_a_nest_of_lists_and_a_crowd_of_them_end_the_session():
    nest = []
    for _ in range(100):
        nest = [nest]
    for value in ({"n": nest}, {"n": [{}] * 70_000}):
        async with connected() as (peer, channel):
            request = asyncio.create_task(channel.request("probe", name="x", params={}))
            asked = await peer.receive()
            peer.send(type="result", id=asked["id"], value=value)
            with pytest.raises(ProtocolError, match=r"nested deeper|maps and lists"):
                await request


STEERING = "\x1b[2J\x9b31m\x07\u202egnp.exe\u2066\u200f\r\nvirtgauge: all is well"


async def test_text_of_a_guest_is_cleaned_where_it_enters():
    async with connected() as (peer, channel):
        request = asyncio.create_task(channel.request("probe", name="x", params={}))
        asked = await peer.receive()
        peer.send(type="result", id=asked["id"], value={STEERING: [STEERING, "x" * 100_000, "500 µs – ok"]})
        ((name, (text, long, kept)),) = (await request).value.items()
        assert name == text == "�[2J�31m��gnp.exe����virtgauge: all is well"
        assert (len(long), long[-1], kept) == (8192, "…", "500 µs – ok")

        request = asyncio.create_task(channel.request("probe", name="x", params={}))
        asked = await peer.receive()
        peer.send(type="error", id=asked["id"], code="os", message=STEERING, errno=None)
        with pytest.raises(AgentError) as caught:
            await request
        assert str(caught.value) == f"os: {text}"


def test_what_a_program_of_a_guest_printed_becomes_one_clean_line():
    assert str(AgentError("program", f"it said\n {STEERING}")).isprintable()


@pytest.mark.parametrize(
    "facts",
    [
        {"hypervisor": "kvm"},
        {"cpu": {"model": 7}},
        {"cpu": {"flags": ["tsc", 1]}},
        {"tsc": {"frequency_hz": True}},
        {"idle": {"states": [{"name": "C1", "latency_us": "2"}]}},
        {"mitigations": {"meltdown": None, "mds": []}},
        {"more": b"bytes"},
        {"more": ["x" * 8000] * 200},
    ],
    ids=lambda facts: f"{facts!r:.40}",
)
async def test_facts_of_another_type_are_refused(facts):
    async with connected() as (peer, channel):
        asking = asyncio.create_task(channel.facts())
        asked = await peer.receive()
        peer.send(type="result", id=asked["id"], value=facts)
        with pytest.raises(ProtocolError, match="fact"):
            await asking


async def test_facts_may_be_missing_nil_or_more():
    told = {
        "hypervisor": {"present": True, "signature": None, "new": 1},
        "cpu": None,
        "tsc": {"error_ppm": 1},
        "new": 2,
    }
    async with connected() as (peer, channel):
        asking = asyncio.create_task(channel.facts())
        asked = await peer.receive()
        peer.send(type="result", id=asked["id"], value=told)
        assert await asking == told
