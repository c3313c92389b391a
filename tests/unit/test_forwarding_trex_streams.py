"""The streams and frames that a load becomes on TRex."""

import pytest

from virtgauge.suites.forwarding.trex_streams import TrexFlow, streams_of_load, udp_frame


def frame(guest, size=64):
    return udp_frame(
        source_mac="02:00:00:00:00:01",
        destination_mac=f"52:54:00:00:00:{guest:02x}",
        source="198.18.0.2",
        destination=f"198.19.{guest}.2",
        size=size,
    )


def flows(*shares):
    return [TrexFlow(frame(guest), share) for guest, share in enumerate(shares)]


def test_a_flows_timed_stream_is_slow_and_part_of_its_load():
    streams = streams_of_load(flows(0.7, 0.299, 0.001, 0.0), 1_000_000, 1000, iter(range(5, 99)))
    assert [(s.flow, s.rule, round(s.rate_pps)) for s in streams] == [
        (0, "stats", 699_000),
        (0, "latency", 1000),
        (1, "stats", 298_000),
        (1, "latency", 1000),
        (2, "stats", 900),
        (2, "latency", 100),
    ]
    assert [s.group for s in streams] == [5, 6, 7, 8, 9, 10]
    assert sum(s.rate_pps for s in streams) == pytest.approx(1_000_000)


@pytest.mark.parametrize("size", [64, 128, 512, 1024, 1518])
def test_a_frame_is_as_long_as_asked_without_its_fcs_and_its_header_adds_up(size):
    data = frame(9, size)
    assert len(data) == size - 4
    assert data[:14].hex() == "525400000009" + "020000000001" + "0800"
    words = [int.from_bytes(data[at : at + 2], "big") for at in range(14, 34, 2)]
    total = sum(words)
    assert (total & 0xFFFF) + (total >> 16) == 0xFFFF
    assert int.from_bytes(data[16:18], "big") == size - 4 - 14
    assert int.from_bytes(data[38:40], "big") == size - 4 - 34


def test_a_frame_without_room_for_the_stamp_is_refused():
    assert len(frame(1, 62)) == 58
    with pytest.raises(ValueError, match="no room"):
        frame(1, 61)
    with pytest.raises(ValueError, match="not a MAC"):
        udp_frame(source_mac="02:00", destination_mac="02:00", source="10.0.0.1", destination="10.0.0.2", size=64)
