"""What goes wrong in a laboratory of real guests is caught and named, and nothing of the laboratory is left."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from platforms.conftest import traces, undisturbed
from pyroute2 import IPRoute
from sampled import sampled
from suites.forwarding_labs import PLATFORMS, RUNC, SIZE, laboratory, tally

from virtgauge.agent.channel import ChannelClosedError
from virtgauge.execution.validity import ValidityLimits, clock_flags
from virtgauge.host.reclaim import reclaim_dead
from virtgauge.platforms.base import LaunchError
from virtgauge.suites.answers import added_up
from virtgauge.suites.base import Elapsed
from virtgauge.suites.forwarding.guest_lab import GuestLab
from virtgauge.suites.forwarding.trial import TrialResult

pytestmark = pytest.mark.slow

EQUAL = (0.5, 0.5)


@pytest.mark.parametrize("name", sampled(["runc"], ["virtio"]))
async def test_a_guest_that_dies_in_a_trial_ends_the_cell_with_a_word(name, private_state):
    async with laboratory(PLATFORMS[name]) as lab:
        counted = await tally(lab)
        trial = asyncio.create_task(counted.measure(EQUAL, 1000, 1.0))
        await asyncio.sleep(0.5)
        group = lab.stage.scope.cgroup("lab-router1")
        for pid in group.pids():
            os.kill(pid, signal.SIGKILL)
        with pytest.raises((ChannelClosedError, TimeoutError)):
            await asyncio.wait_for(trial, 30)
        assert lab.closed


async def test_a_bridge_that_floods_is_named(private_state):
    async with laboratory(RUNC, guests=3) as lab:

        def flood(route: IPRoute) -> None:
            for number in range(3):
                port = route.link_lookup(ifname=f"in{number}")[0]
                route.link("set", index=port, master=0)  # its entry goes with it
                route.link("set", index=port, master=route.link_lookup(ifname="br0")[0])
                route.brport("set", index=port, learning=0, unicast_flood=1)

        lab.namespace.netlink(flood)
        await asyncio.sleep(1.5)  # a bridge takes a port in when it next looks at the carriers
        with pytest.raises(LaunchError, match=r"frames for guest 0 also reach guest [12]"):
            await lab.check()


async def test_a_flow_that_reaches_two_guests_is_named(private_state):
    async with laboratory(RUNC, switch="openvswitch") as lab:
        switch = lab.switch
        both = f"output:{switch._ports['in0']},{switch._ports['in1']}"
        flow = f"cookie=0x1,priority=2,in_port={switch._ports['tx']},dl_dst=02:76:67:01:00:00,actions={both}"
        switch._add_flows("br0", [flow])
        # the second guest's kernel does not take a frame for another's address, but its link has carried it
        with pytest.raises(LaunchError, match="frames for guest 0 also reach guest 1"):
            await lab.check()


async def test_a_frame_that_comes_back_twice_is_named(private_state):
    async with laboratory(RUNC, switch="openvswitch") as lab:
        switch = lab.switch
        out = switch._ports["rx"]
        flow = f"cookie=0x3,priority=2,in_port={switch._ports['out0']},actions=output:{out},output:{out}"
        switch._add_flows("br1", [flow])
        with pytest.raises(LaunchError, match="frames through guest 0 come back more than once"):
            await lab.check()


async def test_a_flow_without_a_rule_is_named(private_state):
    async with laboratory(RUNC, switch="openvswitch") as lab:
        lab.switch._call(
            "ovs-ofctl", "del-flows", lab.switch._management("br1"), f"in_port={lab.switch._ports['out1']}"
        )
        with pytest.raises(LaunchError, match="do not come back through guest 1"):
            await lab.check()


async def test_a_full_queue_of_a_guest_is_where_its_losses_are(private_state):
    async with laboratory(PLATFORMS["virtio"]) as lab:
        await lab.check()
        counted = await tally(lab)

        async def lost_at_its_queue() -> tuple[int, int]:
            trial = await counted.measure((1.0, 0.0), 300_000, 0.3)
            assert trial.flows[0].lost > 0
            places = counted.accounts[-1].places
            assert "port in1" not in places
            return places.get("port in0", 0), trial.lost

        # A kernel that does not get to its work meanwhile loses frames before they come to the queue.
        await undisturbed(lost_at_its_queue, lambda found: found[0] > 0.9 * found[1])


async def test_a_step_of_the_testers_clock_is_flagged(private_state, monkeypatch):
    ask = GuestLab.measure

    async def stepped(self: GuestLab, *arguments: object) -> TrialResult:
        trial = await ask(self, *arguments)
        first, *others = trial.clocks
        return dataclasses.replace(
            trial, clocks=(first, *(Elapsed(c.clock, c.elapsed_ns + 5e8, c.uncertainty_ns) for c in others))
        )

    monkeypatch.setattr(GuestLab, "measure", stepped)
    async with laboratory(RUNC) as lab:
        counted = await tally(lab)
        await counted.measure(EQUAL, 1000, 0.2)
    flags = clock_flags(added_up(counted.clocks), None, ValidityLimits())
    assert "clock-drift" in {flag.name for flag in flags}


BUILD_AND_DIE = """
import asyncio, os, signal
from suites.forwarding_labs import RUNC, laboratory

async def main():
    async with laboratory(RUNC, switch="openvswitch") as lab:
        print(lab.stage.scope.tag, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


def test_a_controller_that_is_killed_leaves_what_clean_removes(private_state):
    tests = Path(__file__).parents[1]
    dead = subprocess.run(
        [sys.executable, "-c", BUILD_AND_DIE],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(tests)},
        timeout=60,
        check=False,
    )
    assert dead.returncode == -signal.SIGKILL, dead.stderr
    tag = dead.stdout.strip()
    assert traces(tag) != []
    lines = reclaim_dead()
    assert f"{tag}: removed the cgroup virtgauge/{tag}" in lines  # though the kernel's threads were in it
    assert traces(tag) == []


async def test_missing_rights_are_said_and_leave_nothing(private_state, monkeypatch):
    def refused() -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("virtgauge.network.namespace.in_thread", lambda _work: refused())
    with pytest.raises(LaunchError, match=r"Operation not permitted[\s\S]*as root"):
        async with laboratory(RUNC):
            raise AssertionError("it was built without the rights for it")
    assert SIZE == 64
