"""Real paths: what is shaped, counted and estimated on them, by every platform, and that nothing of them is left.

Other work on the machine keeps senders from their time, which they notice; so what is counted is tested everywhere, and
how near an estimate is, of a sender that comes before all others.
"""

from __future__ import annotations

import asyncio
import errno
import json
import math
import socket
import time

import pytest
from sampled import sampled
from suites.bandwidth_testbeds import BEFORE_OTHERS, IP, check_against_truth, path

from virtgauge.ledger.records import TrialStatus
from virtgauge.network.links import LinkCounters
from virtgauge.suites.bandwidth import laboratory, suite
from virtgauge.suites.bandwidth.laboratory import ShapedPath

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.usefixtures("private_state", "root")]

TRIES = 5
RECEIVERS = {"runc": "guest"}
"""Where a second guest receives, and not the host."""


@pytest.mark.parametrize("name", sampled(["host", "runc", "microvm"], ["runsc"]))
async def test_every_platform_estimates_a_path_beside_counted_cross_traffic_or_says_that_it_cannot(name):
    # yaz-original repeats no train, so that also an emulated sender is done in seconds.
    design = {"estimators": ["yaz-original"], "capacities_mbps": [20], "cross_mbps": [10], "capacity_s": 0.1}
    async with path(name, **design, receiver=RECEIVERS.get(name, "host")) as laid:
        assert len(laid.stage.guests) == (2 if name in RECEIVERS else 1)
        assert laid.testbed.guest is not laid.testbed.receiver
        outcome = await laid.measure()
        check_against_truth(outcome, 20, 10, within=1.0)
        result = json.loads(json.dumps(outcome.result))  # in a form that can be kept
        assert (result["estimator"], result["timing"], result["layer"]) == ("yaz-original", "hptime", "ip")
        assert (result["stamp"], result["receiver"]) == ("kernel", RECEIVERS.get(name, "host"))
        assert result["bytes_sent"] > 0
        assert result["link"] == {
            **{"kind": "tbf", "burst_bytes": 3028, "limit_bytes": 96896, "lateness_p99_ns": None},
            **{"overrun": 0, "delay_ms": 0, "loss": 0},
        }
        assert outcome.histograms["lateness"].unit == "ns"
        assert outcome.histograms["gap"].unit == "permille"
        assert outcome.histograms["gap"].n <= outcome.histograms["lateness"].n
        assert not laid.testbed.closed


@pytest.mark.alone
async def test_an_estimate_is_what_the_shaper_leaves_by_the_agent_and_by_a_program_under_the_shim():
    design = {"timings": ["system", "hptime"], "through": ["inside", "shim"], "shaper": "htb"}
    async with path("host", **design, **BEFORE_OTHERS) as laid:
        for timing, through in (("system", "inside"), ("hptime", "shim")):
            for _ in range(TRIES):
                outcome = await laid.measure(timing=timing, through=through)
                if check_against_truth(outcome, 50, 25, within=0.1):
                    break
            else:
                raise AssertionError(f"{timing} through {through}: not once within a tenth of the truth")
            result = outcome.result
            assert len(result["instants"]) == 2
            assert result["link"]["kind"] == "htb"
            if (timing, through) == ("hptime", "shim"):
                assert result["shim"]["served"] > 10 * result["shim"]["passed"]
            else:
                assert result["shim"] is None


@pytest.mark.alone
async def test_a_flood_shows_the_capacity_and_a_path_is_what_its_cell_says():
    async with path("host", capacities_mbps=[20, 50], cross_mbps=[0]) as laid:
        for capacity in (20e6, 50e6):
            cell = laid.cell(capacity_mbps=f"{capacity / 1e6:g}")
            await laid.testbed.path.set(laid.conditions(cell))
            seen = []
            while not seen or (abs(seen[-1] / capacity - 1) > 0.02 and len(seen) < TRIES):
                seen.append(await laid.testbed.path.measured_bps(0.5) or 0.0)
            assert seen[-1] == pytest.approx(capacity, rel=0.02), seen
            assert max(seen) < 1.02 * capacity  # a machine that is busy lets less pass, and never more
        assert await laid.testbed.path.measured_bps(0) is None


async def test_a_delayed_path_has_its_delay_and_its_loss_by_what_this_kernel_has(monkeypatch):
    design = {"delays_ms": [20], "losses": [0, 0.3], "capacities_mbps": [20], "cross_mbps": [0]}
    async with path("host", **design, estimators=["yaz-original"], estimates=1, **BEFORE_OTHERS) as laid:
        outcome = await laid.measure(loss="0")
        check_against_truth(outcome, 20, 0, within=1.0)
        link = outcome.result["link"]
        assert (link["delay_ms"], link["loss"]) == (20, 0)
        assert link["kind"] in ("netem", "emulator")
        assert link["overrun"] == 0
        assert (link["lateness_p99_ns"] is None) == (link["kind"] == "netem")

        with monkeypatch.context() as changed:
            changed.setattr(suite, "LISTENER_PORT", 1)
            assert (await laid.measure(loss="0")).status is TrialStatus.FAILED  # and leaves no emulator at work
        real = laid.testbed.path
        assert isinstance(real, ShapedPath) and real._link is not None
        await real.set(laid.conditions(laid.cell(loss="0.3")))
        far = LinkCounters(real._link.namespace)
        async with real.counting():
            with real._router.run(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as sender:
                before = far.read("far").tx_frames
                for _ in range(500):
                    sender.sendto(b"x", ("10.81.9.1", 9))
                    await asyncio.sleep(0.001)
                await asyncio.sleep(0.1)
                came = far.read("far").tx_frames - before
            assert came == pytest.approx(350, abs=6 * math.sqrt(500 * 0.3 * 0.7))
            with real._router.run(lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as caller:
                began_ns = time.monotonic_ns()
                while caller.connect_ex(("10.81.3.1", 1)) != errno.ECONNREFUSED:  # the first may be lost
                    pass
                assert time.monotonic_ns() - began_ns > 20e6
        far.close()
        await real.rest()


async def test_netem_that_is_asked_for_and_not_there_is_a_failed_launch_in_words(monkeypatch):
    monkeypatch.setattr(laboratory, "has_netem", lambda _: False)
    with pytest.raises(Exception, match=r"this kernel has no netem; leave link out"):
        async with path("host", delays_ms=[20], link="netem"):
            raise AssertionError("it was made without netem")


async def test_a_path_that_is_not_full_lets_everything_pass():
    """A rate that this machine cannot fill: its capacity is not seen, and nothing is claimed of it."""
    async with path(
        "host", capacities_mbps=[34_000], cross_mbps=[0], estimates=1, capacity_s=0.1, highest_mbps=1200
    ) as laid:
        for _ in range(TRIES):
            outcome = await laid.measure()
            assert outcome.result["capacity"]["measured_mbps"] is None
            assert outcome.result["truth_mbps"] == pytest.approx(34_000 * IP, rel=1e-3)
            assert outcome.status is TrialStatus.VALID
            if outcome.result["pacing"]["refused"] or outcome.result["lower_bound"]:
                break  # else a busy moment held the receiver up, which looks like a path that is full
        else:
            raise AssertionError(outcome.result)


@pytest.mark.full
async def test_cross_traffic_without_a_processor_of_its_own_is_refused_on_a_fast_path_and_on_no_other():
    async with path("host", capacities_mbps=[1000], cross_mbps=[0, 500], estimates=1, capacity_s=0) as laid:
        assert isinstance(laid.testbed.path, ShapedPath)
        laid.testbed.path._crowded = True
        refused = await laid.measure(cross_mbps="500")
        assert refused.status is TrialStatus.UNSUPPORTED
        assert "1000 Mbit/s beside cross traffic needs three processors" in refused.error
        assert (await laid.measure(cross_mbps="0")).status is not TrialStatus.UNSUPPORTED
        laid.testbed.path._crowded = False
        assert (await laid.measure(cross_mbps="500")).status is not TrialStatus.UNSUPPORTED
