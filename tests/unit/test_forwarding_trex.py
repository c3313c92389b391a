"""TRex as the tester, against a server that speaks its published messages: never yet against a real one."""

import asyncio
import base64
import sys
import time

import pytest
from pydantic import ValidationError
from trex_server import TrexServer

from virtgauge.errors import UnavailableError, UsageError
from virtgauge.suites.forwarding import trex
from virtgauge.suites.forwarding.trex import TrexDevice, TrexSettings
from virtgauge.suites.forwarding.trex_rpc import TrexError, TrexRefusalError
from virtgauge.suites.forwarding.trex_session import TrexSession
from virtgauge.suites.forwarding.trex_streams import TrexFlow, udp_frame

CABLED = {"ingress": "cable0", "egress": "cable1"}
LATENCY = {
    "jit": 1,
    "average": 25.0,
    "last_max": 44,
    "total_max": 44,
    "total_min": 21,
    "histogram": {"20": 90, "40": 10},
}


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    # A busy machine asks late whether the server has finished, which is not the server's lateness.
    monkeypatch.setattr(trex, "_PUNCTUAL_S", 20.0)


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


def settings(server, **fields):
    return TrexSettings(
        **{**CABLED, "host": "127.0.0.1", "rpc_port": server.port, "drain_s": 0.0, "timeout_s": 30.0, **fields}
    )


def kind(stream):
    return stream["flow_stats"]["rule_type"]


def guest_of(stream):
    return base64.b64decode(stream["packet"]["binary"])[5]


async def trial(server, load, rate=10_000.0, duration=0.1, **fields):
    async with server.listening(), TrexDevice.open(load, settings(server, **fields)) as device:
        return await device.measure(rate, duration)


async def test_every_flow_is_sent_at_its_share_and_comes_back():
    server = TrexServer()
    server.device = lambda stream, frames: (frames, frames, LATENCY if kind(stream) == "latency" else {})
    result = await trial(server, flows(0.25, 0.75))
    assert [flow.sent for flow in result.flows] == [250, 750]
    assert result.lost == 0
    assert result.port == "trex"
    assert result.passes(0.0)
    assert result.drops == {}
    assert result.received_pps == pytest.approx(10_000)
    assert [flow.latency.n for flow in result.flows] == [100, 100]
    assert result.flows[0].latency.minimum == 21_000_000


async def test_a_guest_that_loses_frames_is_told_from_one_that_does_not():
    server = TrexServer()
    server.device = lambda stream, frames: (frames, frames - (7 if guest_of(stream) == 1 else 0), {})
    result = await trial(server, flows(0.5, 0.5))
    # Seven of the untimed and seven of the timed stream
    assert [flow.lost for flow in result.flows] == [0, 14]
    assert not result.passes(0.0)
    assert result.worst_loss_ratio == pytest.approx(14 / 500)
    # TRex leaves the histogram out when no timed frame came back
    assert result.flows[0].latency is None


async def test_order_and_duplicates_are_those_of_the_timed_frames():
    server = TrexServer()
    errors = {"drp": 5, "ooo": 3, "dup": 2, "sth": 1, "stl": 5}  # drp is an estimate from gaps, not a loss
    timed = {"er": errors, "lat": LATENCY}
    server.do_get_pgid_stats = lambda params, answer=server.do_get_pgid_stats: with_latency(answer(params), timed)
    result = await trial(server, flows(1.0))
    assert (result.flows[0].reordered, result.flows[0].duplicates, result.flows[0].lost) == (3, 2, 0)


def with_latency(answer, timed):
    return {
        **answer,
        "latency": {group: (timed if group != "g" else value) for group, value in answer["latency"].items()},
    }


async def test_copies_of_untimed_frames_are_duplicates_and_never_a_negative_loss():
    server = TrexServer()
    server.device = lambda stream, frames: (frames, frames + 4, {})
    result = await trial(server, flows(1.0), latency_pps=0)
    assert (result.flows[0].lost, result.flows[0].duplicates) == (0, 4)


async def test_a_generator_that_sends_less_than_asked_has_not_offered_the_load():
    server = TrexServer()
    server.device = lambda stream, frames: (round(frames * 0.9), round(frames * 0.9), {})
    result = await trial(server, flows(0.5, 0.5))
    assert result.stretched
    assert result.lost == 0
    assert not result.passes(0.5)


async def test_a_generator_that_takes_longer_than_asked_has_not_offered_the_load(monkeypatch):
    monkeypatch.setattr(trex, "_PUNCTUAL_S", 0.25)
    server = TrexServer()
    server.overtime_s = 0.6
    result = await trial(server, flows(1.0))
    assert result.stretched
    assert result.sent == 1000
    # A tenth of a second's frames in seven tenths: at most so many a second were really sent.
    assert result.elapsed_s >= 0.7
    assert result.received_pps <= 1000 / 0.7


async def test_another_load_vector_needs_no_other_session():
    server = TrexServer()
    async with server.listening(), TrexDevice.open(flows(0.5, 0.5), settings(server)) as device:
        equal = await device.measure(10_000, 0.1)
        uneven = await device.with_flows(flows(0.9, 0.1)).measure(10_000, 0.1)
    assert [flow.sent for flow in equal.flows] == [500, 500]
    assert [flow.sent for flow in uneven.flows] == [900, 100]
    assert server.methods.count("acquire") == 2


async def test_a_frame_more_or_less_at_the_end_of_a_stream_is_no_shortfall():
    server = TrexServer()
    server.device = lambda stream, frames: (frames - 1, frames - 1, {})
    result = await trial(server, flows(0.5, 0.5), rate=1000.0)
    assert not result.stretched


async def test_frames_that_come_back_elsewhere_are_lost_and_their_place_is_named():
    server = TrexServer()
    server.receiving_port = 0
    result = await trial(server, flows(1.0))
    assert result.lost == result.sent == 1000
    assert result.drops == {"received by TRex port 0": 1000}


async def test_frames_that_the_tester_itself_dropped_are_told():
    server = TrexServer()
    server.ports[0].counters["oerrors"], server.ports[1].counters["ierrors"] = 5, 70

    def device(stream, frames):
        server.ports[1].counters["ierrors"] += 3
        return frames, frames - 3, {}

    server.device = device
    result = await trial(server, flows(1.0), latency_pps=0)
    assert result.lost == 3
    assert result.drops == {"TRex port 1 ierrors": 3}


async def test_two_trials_never_share_a_packet_group_nor_take_another_clients():
    server = TrexServer()
    server.active = {"flow_stats": [7, 900], "latency": [12]}
    async with server.listening(), TrexDevice.open(flows(0.5, 0.5), settings(server)) as device:
        await device.measure(1000, 0.05)
        await device.measure(2000, 0.05)
    assert sorted(server.groups) == list(range(901, 909))


async def test_ports_are_acquired_cleared_and_given_back():
    server = TrexServer()
    server.ports[0].streams["somebody's"] = {1: {}}
    await trial(server, flows(1.0))
    assert server.methods[0] == "api_sync_v2"
    assert server.methods.count("acquire") == server.methods.count("release") == 2
    for port in server.ports.values():
        assert port.status["owner"] == ""
        assert port.status["state"] == "IDLE"
        assert not any(port.streams.values())
    counting = server.methods.index("get_pgid_stats")
    assert server.methods.index("start_traffic") < counting < server.methods.index("remove_rx_filters")


async def test_a_start_says_how_long_at_which_rate_and_on_which_cores():
    server = TrexServer()
    await trial(server, flows(1.0), core_mask=0b11)
    (start,) = [request["params"] for request in server.requests if request["method"] == "start_traffic"]
    assert start == {
        "api_h": "SPhoCDIV",
        "handler": "37JncCHr",
        "port_id": 0,
        "duration": 0.1,
        "mul": {"type": "raw", "op": "abs", "value": 1.0},
        "core_mask": 3,
        "force": True,
    }


async def test_a_port_that_somebody_has_is_left_to_them():
    server = TrexServer()
    server.ports[1].status["owner"] = "itay"
    async with server.listening():
        with pytest.raises(
            UnavailableError, match=r"port 1 of TRex at .* cannot be had: port is already taken by 'itay'"
        ) as e:
            async with TrexDevice.open(flows(1.0), settings(server)):
                pass
    assert "force = true" in e.value.remedy
    assert server.ports[0].status["owner"] == ""
    assert server.ports[1].status["owner"] == "itay"


async def test_a_port_is_taken_from_its_owner_on_demand_and_what_they_sent_is_ended():
    server = TrexServer()
    server.ports[0].status.update(owner="itay", state="TX")
    server.ports[0].streams["_"] = {1: {"flow_stats": {"enabled": False}}}
    result = await trial(server, flows(1.0), force=True)
    assert result.sent == 1000


async def test_another_session_of_ours_is_not_shut_out_silently():
    server = TrexServer()
    async with server.listening(), TrexSession.open("127.0.0.1", server.port) as first:
        await first.acquire(0)
        async with TrexSession.open("127.0.0.1", server.port) as second:
            with pytest.raises(UnavailableError, match="another session"):
                await second.acquire(0)


async def test_a_link_that_is_down_is_named_before_anything_is_sent():
    server = TrexServer()
    server.ports[1].status["attr"]["link"]["up"] = False
    async with server.listening():
        with pytest.raises(UnavailableError, match=r"link of port 1 of TRex at .* is down"):
            async with TrexDevice.open(flows(1.0), settings(server)):
                pass
    assert "start_traffic" not in server.methods


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda port: port["attr"]["link"].update(up=False), "link of port 0 .* went down during the trial"),
        (lambda port: port.update(owner="itay"), "taken away during the trial by itay"),
        (lambda port: port.update(owner=""), "taken away during the trial and released"),
    ],
)
async def test_what_spoils_a_trial_under_way_is_named(change, words):
    server = TrexServer()
    server.device = lambda stream, frames: change(server.ports[0].status) or (frames, frames, {})
    async with server.listening():
        with pytest.raises(TrexError, match=words):
            async with TrexDevice.open(flows(1.0), settings(server, latency_pps=0)) as device:
                await device.measure(1000, 5)


async def test_a_server_that_never_ends_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(trex, "_OVERTIME_S", 0.2)
    server = TrexServer()
    server.do_get_port_status = lambda params: server.ports[params["port_id"]].status
    started = time.monotonic()
    async with server.listening():
        with pytest.raises(TrexError, match=r"still sends 0\.2 s after a trial of 0\.1 s"):
            async with TrexDevice.open(flows(1.0), settings(server)) as device:
                await device.measure(1000, 0.1)
    assert time.monotonic() - started < 30
    assert server.ports[0].status["state"] == "IDLE"


async def test_a_trial_that_is_cancelled_leaves_nothing_running():
    server = TrexServer()
    async with server.listening():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.0), TrexDevice.open(flows(1.0), settings(server)) as device:
                await device.measure(1000, 60)
    for port in server.ports.values():
        assert port.status["state"] == "IDLE"
        assert port.status["owner"] == ""


async def test_a_server_that_vanishes_is_named_and_the_end_does_not_hang():
    server = TrexServer()
    server.answers["get_pgid_stats"] = lambda request: None
    started = time.monotonic()
    async with server.listening():
        with pytest.raises(UnavailableError, match="did not answer get_pgid_stats"):
            async with TrexDevice.open(flows(1.0), settings(server, timeout_s=1.0)) as device:
                await device.measure(1000, 0.1)
    assert time.monotonic() - started < 30


async def test_a_refused_stream_is_told_in_the_servers_words():
    server = TrexServer()

    def refuse(params):
        # src/stx/stl/trex_stl_fs.cpp
        raise server.refusal("Failed allocating statistic counter. Probably all are used for this rule type.")

    server.do_add_stream = refuse
    async with server.listening():
        with pytest.raises(TrexRefusalError, match="refused add_stream: Failed allocating statistic counter"):
            async with TrexDevice.open(flows(1.0), settings(server)) as device:
                await device.measure(1000, 0.1)
    assert server.ports[0].status["owner"] == ""


@pytest.mark.parametrize(
    "lat", [{"histogram": {"20": 3}}, {"histogram": {"x": 3}, "total_min": 1, "total_max": 2}, "x"]
)
async def test_a_latency_of_another_form_is_an_error_that_names_the_group(lat):
    server = TrexServer()
    server.do_get_pgid_stats = lambda params, answer=server.do_get_pgid_stats: with_latency(
        answer(params), {"lat": lat}
    )
    with pytest.raises(TrexError, match="latency of packet group 2 is not as TRex publishes it"):
        await trial(server, flows(1.0))


async def test_a_packet_group_without_counters_is_an_error():
    server = TrexServer()
    server.do_get_pgid_stats = lambda params: {"flow_stats": None, "latency": None, "ver_id": None}
    with pytest.raises(TrexError, match="no counters of packet group 1"):
        await trial(server, flows(1.0))


async def test_a_port_that_cannot_count_flows_is_refused_with_the_way_out():
    server = TrexServer()
    server.system["ports"][1]["rx"] = {"caps": ["flow_stats"], "counters": 127}
    with pytest.raises(UnavailableError, match="cannot do latency"):
        await trial(server, flows(1.0))
    assert (await trial(server, flows(1.0), latency_pps=0)).sent == 1000
    server.system["ports"][1]["rx"] = {"caps": ["flow_stats", "latency"], "counters": 1}
    with pytest.raises(UnavailableError, match=r"counts 1 flows at a time, not 2") as raised:
        await trial(server, flows(0.5, 0.5))
    assert "--software" in raised.value.remedy


async def test_a_port_that_there_is_not_is_refused_with_those_there_are():
    with pytest.raises(UnavailableError, match="has no port 4; it has 0, 1"):
        await trial(TrexServer(), flows(1.0), receive_port=4)


async def test_a_ports_mac_is_read_under_the_name_of_the_specification_and_of_the_server():
    server = TrexServer()
    server.system["ports"][1]["hw_mac"] = server.system["ports"][1].pop("hw_macaddr")
    async with server.listening(), TrexSession.open("127.0.0.1", server.port) as session:
        ports = await session.ports()
    assert [ports[0].mac, ports[1].mac] == ["00:0c:29:2a:99:b2", "00:0c:29:2a:99:bc"]


async def test_without_pyzmq_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "zmq", None)
    with pytest.raises(UnavailableError, match="pyzmq is not installed") as raised:
        async with TrexDevice.open(flows(1.0), TrexSettings(**CABLED, host="127.0.0.1")):
            pass
    assert raised.value.remedy == "pip install 'virtgauge[trex]'"


def test_more_timed_flows_than_trex_can_time_are_refused():
    many = [TrexFlow(frame(0), 1 / 129)] * 129
    with pytest.raises(UsageError, match="128 flows at most"):
        TrexDevice(None, many, TrexSettings(**CABLED, host="h"))
    with pytest.raises(UsageError, match="5,000,000 frames per second"):
        TrexDevice(None, many[:100], TrexSettings(**CABLED, host="h", latency_pps=100_000))
    TrexDevice(None, many, TrexSettings(**CABLED, host="h", latency_pps=0))


@pytest.mark.parametrize(
    "section",
    [
        {},
        {"host": "h", "transmit_port": 1},
        {"host": "h", "transmit_port": -1},
        {"host": "h", "rpc_port": 0},
        {"host": "h", "core_mask": 0},
        {"host": "h", "shortfall": 0},
        {"host": "h", "latency_pps": -1},
        {"host": "h", "color": "red"},
        {"host": "h", "egress": "cable0"},
    ],
)
def test_a_plans_section_that_makes_no_sense_is_refused(section):
    with pytest.raises(ValidationError):
        TrexSettings(**{**CABLED, **section})
