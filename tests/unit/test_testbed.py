"""A stage ends everything that was launched on it, and knows whose CPU time is whose."""

import dataclasses

import pytest

from virtgauge.agent import find_agent
from virtgauge.host.scope import Scope
from virtgauge.platforms.base import Accounting, Confinement, Guest, LaunchError, Platform
from virtgauge.suites.testbed import Stage, Testbed


@dataclasses.dataclass
class Stream:
    closed: bool = False
    timeout_factor: float = 1.0


class Fake(Guest):
    def __init__(self, name, log, cpu_ns, ready_ns):
        self.name, self.log, self.cpu_ns, self.ready_ns = name, log, cpu_ns, ready_ns
        self.channel, self.label = Stream(), name

    def accounting(self):
        return Accounting(self.cpu_ns, "test")

    async def close(self):
        self.log.append(self.name)


class FakePlatform(Platform):
    kind = "fake"
    label = "fake"

    def __init__(self, cpu_ns=5):
        self.log, self.cpu_ns = [], cpu_ns

    async def probe(self):
        raise NotImplementedError

    async def launch(self, spec):
        if spec.name.endswith("broken"):
            raise LaunchError("boot", "told to")
        return Fake(spec.name, self.log, self.cpu_ns, ready_ns=len(spec.name))


@pytest.fixture
def platform():
    return FakePlatform()


@pytest.fixture
def stage(platform, any_agent, private_state):
    with Scope() as scope:
        yield Stage(platform, scope, find_agent(), "g1")


async def test_a_testbed_of_one_guest_bears_the_stage_s_own_name(stage, platform):
    testbed = await Testbed.of_one_guest(stage)
    assert testbed.guest.name == "g1"
    await stage.close()
    assert platform.log == ["g1"]


async def test_what_was_launched_before_a_failure_is_ended_with_the_stage(stage, platform):
    await stage.launch("a")
    with pytest.raises(LaunchError):
        await stage.launch("broken")
    stage.at_end(lambda: platform.log.append("network"))
    stage.at_end(lambda: platform.log.append("switch"))
    await stage.close()
    assert platform.log == ["g1-a", "switch", "network"]
    await stage.close()
    assert platform.log.count("network") == 1  # guests bear being closed twice; what was made by hand is undone once


async def test_the_guests_cpu_time_is_apart_from_that_of_peers_and_switches(stage):
    await stage.launch("a")
    await stage.launch("b")
    stage.charge(lambda: 7)
    stage.charge(lambda: None)
    assert stage.accounting().cpu_ns == 10
    assert stage.peers_cpu_ns() == 7
    await stage.close()


async def test_a_stage_is_confined_to_the_cpus_of_all_its_guests_where_each_tells_them(stage, monkeypatch):
    assert stage.confined_to() == ()
    for name, cpu in (("a", 1), ("b", 0)):
        guest = await stage.launch(name)
        assert stage.confined_to() == ()
        monkeypatch.setattr(guest, "confinement", lambda cpu=cpu: Confinement(cpus=(cpu,)))
    assert stage.confined_to() == (0, 1)
    monkeypatch.setattr(guest, "accounting", lambda: Accounting(5, "test", of_this_machine=False))
    assert stage.confined_to() == (1,)  # whose numbers the other's are not
    await stage.close()


async def test_where_a_guest_has_no_time_of_this_machine_nothing_is_known_of_all(stage, monkeypatch):
    await stage.launch("a")
    invented = await stage.launch("b")
    monkeypatch.setattr(invented, "accounting", lambda: Accounting(5, "test", of_this_machine=False))
    assert stage.accounting().cpu_ns is None
    await stage.close()


async def test_what_takes_from_this_machine_matters_where_a_guest_or_a_helper_of_it_works_here(stage, monkeypatch):
    guest, helper = await stage.launch("a"), await stage.launch("client")
    stage.peers.append(stage.guests.pop())
    monkeypatch.setattr(guest, "accounting", lambda: Accounting(None, "test", of_this_machine=False))
    monkeypatch.setattr(helper, "accounting", lambda: Accounting(None, "test"))
    assert stage.accounting().of_this_machine
    monkeypatch.setattr(helper, "accounting", lambda: Accounting(None, "test", of_this_machine=False))
    assert not stage.accounting().of_this_machine
    await stage.close()


async def test_a_testbed_with_one_lost_agent_is_closed_and_as_late_as_its_slowest_guest(stage):
    await stage.launch("a")
    slow = await stage.launch("slowest")
    testbed = Testbed(stage)
    assert testbed.ready_ns == len("g1-slowest")
    assert testbed.timeout_factor == 1.0
    slow.channel.timeout_factor = 4.0
    assert testbed.timeout_factor == 4.0
    assert not testbed.closed
    slow.channel.closed = True
    assert testbed.closed
    await stage.close()
