"""Laboratories of real guests: every flow comes back, every lost frame is found, limits bind, and nothing gets out."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from platforms.network_checks import frames_outside
from sampled import sampled
from suites.forwarding_labs import PLATFORMS, RUNC, SIZE, laboratory, tally

from virtgauge.host.process import text_of
from virtgauge.suites.forwarding.settings import ForwardingSettings
from virtgauge.suites.forwarding.suite import ForwardingSuite
from virtgauge.suites.forwarding.trial import Load

pytestmark = pytest.mark.slow

EQUAL = (0.5, 0.5)
SWITCHES = ("bridge", "openvswitch")
PAIRS = [("runc", "bridge"), ("gvisor", "bridge"), ("virtio", "openvswitch")]
LOW_PPS, HIGH_PPS = 1000, 300_000


@pytest.mark.parametrize(
    ("name", "switch"),
    sampled(PAIRS, [(name, switch) for name in PLATFORMS for switch in SWITCHES if (name, switch) not in PAIRS]),
)
async def test_every_guest_forwards_its_flow_and_every_lost_frame_is_found(name, switch, private_state):
    async with laboratory(PLATFORMS[name], switch=switch) as lab:
        await lab.check()
        counted = await tally(lab)
        low = await counted.measure(EQUAL, LOW_PPS, 0.5)
        assert [flow.sent for flow in low.flows] == [250, 250]
        assert low.lost == 0
        high = await counted.measure(EQUAL, HIGH_PPS, 0.3)
        calm, crowded = counted.accounts
        assert calm.closed
        assert calm.places == {}
        assert crowded.lost == high.lost
        # frames of the overloaded guest itself that pass while its counters are read; elsewhere to the frame
        bearable = high.sent // 10 if name == "gvisor" else 0
        assert max(crowded.unattributed, crowded.excess) <= bearable, crowded


@pytest.mark.parametrize("switch", sampled(["openvswitch"], ["bridge"]))
async def test_open_vswitch_alone_is_measured_with_no_guest_between_its_bridges(switch, private_state):
    async with laboratory(RUNC, switch=switch) as lab:
        found = await lab.calibration(SIZE, HIGH_PPS, 0.1)
        assert found.switch_pps is None if switch == "bridge" else LOW_PPS < found.switch_pps <= found.limit_pps
        await lab.check()
        counted = await tally(lab)
        await counted.measure(EQUAL, LOW_PPS, 0.5)
        assert counted.accounts[0].places == {}, "nothing of it is taken for a flow of the guests"


async def test_a_router_of_the_hosts_kernel_loses_in_its_own_queue_and_is_charged_for_what_it_routes(private_state):
    async with laboratory(RUNC) as lab:
        assert [guest.confinement().unbound for guest in lab.stage.guests] == [None, None]
        before = [guest.accounting().cpu_ns or 0 for guest in lab.stage.guests]
        counted = await tally(lab)
        trial = await counted.measure((1.0, 0.0), 150_000, 1.0)
        used = [(guest.accounting().cpu_ns or 0) - then for guest, then in zip(lab.stage.guests, before, strict=True)]
        assert used[0] > 50e6  # a microsecond for each frame would be 150 ms
        assert used[1] < used[0] / 10
        assert set(counted.accounts[0].places) <= {"port in0", "bridge: not taken from tx"}
        assert trial.flows[1].sent == 0


async def test_threads_that_route_are_in_the_guests_group_and_on_its_cpus(private_state):
    async with laboratory(RUNC) as lab:
        for number in range(lab.flows):
            group = f"/{lab.stage.scope.tag}/lab-router{number}"
            members = [
                pid
                for pid in Path("/proc").glob("[0-9]*")
                if (text_of(pid / "comm") or "").startswith("napi/eth") and group in (text_of(pid / "cgroup") or "")
            ]
            assert len(members) == 2
            for pid in members:
                allowed = next(
                    line.split()[1]
                    for line in (pid / "status").read_text().splitlines()
                    if line.startswith("Cpus_allowed_list")
                )
                assert allowed == ",".join(map(str, lab.cpus.guests)) or "-" in allowed


@pytest.mark.alone
@pytest.mark.parametrize("name", sampled(["runc"], ["gvisor", "virtio", "e1000"]))
async def test_a_cpu_limit_binds_or_is_said_not_to(name, private_state):
    limit = 0.2
    async with laboratory(PLATFORMS[name], cpu_limit=limit) as lab:
        counted = await tally(lab)
        await counted.measure((1.0, 0.0), 1000, 0.2)
        loop = asyncio.get_running_loop()
        before, started = lab.guest.accounting().cpu_ns, loop.time()
        await lab.measure(Load((1.0, 0.0), SIZE, 150_000, 2.0))
        used_s, span_s = ((lab.guest.accounting().cpu_ns or 0) - (before or 0)) / 1e9, loop.time() - started
        bound = used_s <= limit * (span_s + 0.2) * 1.5
        assert bound == (lab.unbound is None), (used_s, span_s, lab.unbound)
        if name != "runc":
            assert bound  # guests with processes of their own are stopped by any kernel


async def test_a_burst_is_as_long_as_asked_and_one_frame_of_a_stream_is_timed(private_state):
    async with laboratory(RUNC) as lab:
        for duration_s in (1.0, 64 / 1e6):  # which the agent would refuse of a stream
            burst = await lab.measure(Load(EQUAL, SIZE, 1000, duration_s, burst=64))
            assert burst.sent == 64
            assert burst.offered_pps <= 1000
        tagged = await lab.measure(Load(EQUAL, SIZE, 1000, 0.5, tagged=True))
        assert sum(flow.latency.n for flow in tagged.flows if flow.latency is not None) == 1


async def test_a_cell_has_a_throughput_and_agreeing_clocks(private_state):
    settings = ForwardingSettings(
        guests=2, switch="bridge", port="af_packet", trial_s=0.2, duration_sum_s=0.4, resolution=0.2,
        calibration_s=0.1, latency_s=0.2, latency_loads=(50,), max_pps=50_000, k=(1,), frame_bytes=(SIZE,),
    )  # fmt: skip
    suite = ForwardingSuite(settings)
    async with laboratory(RUNC) as lab:
        found = await suite.measure(suite.cells()[0], lab, lambda _: None)
    assert found.result["port"] == "af_packet"
    assert found.result["cpu_limit_unbound"] is None
    assert {clock.clock for clock in found.guest_clocks} >= {"CLOCK_MONOTONIC", "CLOCK_MONOTONIC_RAW"}
    longest, shortest = (f(clock.elapsed_ns for clock in found.guest_clocks) for f in (max, min))
    assert longest - shortest < 1e-3 * longest


@pytest.mark.alone
async def test_no_frame_leaves_the_laboratory(private_state):
    def outside() -> dict[str, list[str]]:
        lines = Path("/proc/net/dev").read_text().splitlines()[2:]
        return {name.strip(): figures.split() for name, _, figures in (line.partition(":") for line in lines)}

    ours = bytes.fromhex("027667")  # how every hardware address of a laboratory begins
    with frames_outside() as tap:
        tap.setblocking(True)
        tap.settimeout(0.2)
        seen, ended = [], threading.Event()

        def listen() -> None:
            while not ended.is_set():
                try:
                    frame = tap.recv(2048)
                except TimeoutError:
                    continue
                if frame[:3] == ours or frame[6:9] == ours:
                    seen.append(frame)

        listener = threading.Thread(target=listen)
        listener.start()
        try:
            before = outside()
            for switch in ("bridge", "openvswitch"):
                async with laboratory(RUNC, switch=switch) as lab:
                    await lab.check()
                    trial = await lab.measure(Load(EQUAL, SIZE, 20_000, 0.5))
                    assert trial.sent == 10_000
            after = outside()
        finally:
            ended.set()
            listener.join()
    assert seen == []
    assert after.keys() == before.keys()  # no interface of the laboratory was ever left outside
