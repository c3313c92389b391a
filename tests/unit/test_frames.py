"""The frame decoder: whatever arrives, in whatever pieces, ends in messages or in a ProtocolError."""

import struct

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from virtgauge.agent.messages import MAX_FRAME, FrameDecoder, ProtocolError, encode


def frame(payload: bytes) -> bytes:
    return struct.pack(">I", len(payload)) + payload


messages = st.lists(
    st.fixed_dictionaries(
        {"type": st.text(max_size=20)},
        optional={"value": st.binary(max_size=200), "id": st.integers(0, 2**64 - 1), "nothing": st.none()},
    ),
    max_size=8,
)


@pytest.mark.slow
@given(sent=messages, data=st.data())
def test_messages_survive_any_fragmentation(sent, data):
    stream = b"".join(encode(message, number) for number, message in enumerate(sent))
    decoder, received = FrameDecoder(), []
    while stream:
        cut = data.draw(st.integers(1, len(stream)))
        received += decoder.feed(stream[:cut])
        stream = stream[cut:]
    decoder.finish()
    assert received == [{"seq": number, **message} for number, message in enumerate(sent)]


@pytest.mark.slow
@settings(max_examples=2000)
@given(noise=st.binary(max_size=300))
def test_random_bytes_never_raise_anything_but_a_protocol_error(noise):
    decoder = FrameDecoder()
    try:
        decoder.feed(noise)
        decoder.finish()
    except ProtocolError:
        pass


@pytest.mark.slow
@settings(max_examples=1000)
@given(payload=st.binary(min_size=1, max_size=200))
def test_a_well_framed_random_payload_is_a_message_or_a_protocol_error(payload):
    try:
        (message,) = FrameDecoder().feed(frame(payload))
    except ProtocolError:
        return
    assert isinstance(message["type"], str)


@pytest.mark.parametrize("length", [0, MAX_FRAME + 1, 0xFFFFFFFF])
def test_a_length_outside_the_bounds_is_refused_before_the_payload_arrives(length):
    with pytest.raises(ProtocolError, match="claims"):
        FrameDecoder().feed(struct.pack(">I", length))


def test_the_largest_frame_is_accepted():
    empty = len(encode({"type": "x", "value": b""}, 0)) - 4
    exact = encode({"type": "x", "value": bytes(MAX_FRAME - empty - 3)}, 0)  # bin32 has a longer header than bin8
    assert len(exact) == 4 + MAX_FRAME
    assert len(FrameDecoder().feed(exact)) == 1


def test_a_message_larger_than_a_frame_is_not_sent():
    with pytest.raises(ProtocolError, match="exceeds"):
        encode({"type": "x", "value": bytes(MAX_FRAME)}, 0)


def test_numbers_must_follow_one_another():
    decoder = FrameDecoder()
    decoder.feed(encode({"type": "x"}, 0))
    with pytest.raises(ProtocolError, match="frame 2 arrived where 1 was due"):
        decoder.feed(encode({"type": "x"}, 2))


def test_a_repeated_number_is_refused():
    decoder = FrameDecoder()
    with pytest.raises(ProtocolError):
        decoder.feed(encode({"type": "x"}, 0) * 2)


@pytest.mark.parametrize(
    "payload",
    [
        msgpack.packb([1, 2]),
        msgpack.packb("text"),
        msgpack.packb({"seq": 0}),
        msgpack.packb({"seq": 0, "type": 7}),
        msgpack.packb({"seq": False, "type": "x"}),
        msgpack.packb({"type": "x"}),
        b"\xc1",
        b"\x91" * 5000,
        msgpack.packb({"seq": 0, "type": "x"}) + b"\x00",
        b"\xdf\xff\xff\xff\xff",
    ],
    ids=[
        "list",
        "text",
        "no type",
        "type is a number",
        "seq is a bool",
        "no seq",
        "reserved byte",
        "deep nesting",
        "surplus",
        "map of four billion",
    ],
)
def test_a_payload_that_is_no_message_is_refused(payload):
    with pytest.raises(ProtocolError):
        FrameDecoder().feed(frame(payload))


def test_a_stream_that_ends_inside_a_frame_is_truncated():
    decoder = FrameDecoder()
    decoder.feed(encode({"type": "x"}, 0)[:-1])
    with pytest.raises(ProtocolError, match="ended inside a frame"):
        decoder.finish()
