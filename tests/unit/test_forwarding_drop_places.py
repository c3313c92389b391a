"""What the kernel's own tables say about dropped frames."""

import pytest

from virtgauge.network.links import LinkCount, read_counts
from virtgauge.platforms.base import Cabling
from virtgauge.suites.forwarding import guest_lab
from virtgauge.suites.forwarding.device_lab import complaint_of
from virtgauge.suites.forwarding.drop_places import backlog_drops, ip_drops
from virtgauge.suites.forwarding.guest_lab import CpuPlan
from virtgauge.suites.forwarding.settings import ForwardingSettings
from virtgauge.suites.forwarding.trial import FlowResult, TrialResult

DEVICES = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier
    lo:     900       9    9    9    9     9          0         0      900       9    9    9    9     0       0
  eth0:    6000     100    1    2    3     4          0         0       60       1    0    0    0     0       0
  eth1:      60       1    0    0    0     0          0         0     5400      90    5    6    7     0       0
"""
SNMP = """Ip: Forwarding DefaultTTL InReceives InHdrErrors InAddrErrors InDiscards OutDiscards OutNoRoutes
Ip: 1 64 100 1 2 3 4 5
Icmp: InMsgs
Icmp: 7
"""


def test_frames_of_the_loopback_are_not_counted():
    assert read_counts(DEVICES) == {
        "eth0": LinkCount(6000, 100, 1 + 2 + 3, 60, 1, 0),
        "eth1": LinkCount(60, 1, 0, 5400, 90, 5 + 6 + 7),
    }


def test_the_second_figure_of_every_processor_is_its_backlogs_drops():
    assert backlog_drops("0000ffff 0000000a 00000001\n00000001 00000010 00000000\n") == 0x1A
    assert backlog_drops("") == 0


def test_what_the_ip_layer_would_not_route_is_counted():
    assert ip_drops(SNMP) == 15
    assert ip_drops("") == 0


@pytest.fixture(autouse=True)
def cores_of_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guest_lab, "core_of", str)


def test_tester_and_guests_are_apart_as_far_as_there_are_processors():
    assert CpuPlan.of([4]) == CpuPlan((), (4,))
    assert CpuPlan.of([0, 1]) == CpuPlan((0,), (1,))
    assert CpuPlan.of([0, 1, 2, 3]) == CpuPlan((0, 1), (2, 3))


def test_each_guest_has_a_processor_of_its_own_where_there_are_as_many_else_its_fair_share():
    plan = CpuPlan.of(range(5))  # two are the tester's
    own, shared = (ForwardingSettings(guests=guests, cpu_limit="fair") for guests in (3, 4))
    assert [plan.of_guest(number, own) for number in range(3)] == [((2,), None), ((3,), None), ((4,), None)]
    assert plan.of_guest(3, shared) == ((2, 3, 4), 0.75)
    assert plan.has_one_for_each(own)
    assert not plan.has_one_for_each(shared)
    assert not plan.has_one_for_each(ForwardingSettings(guests=3, cpu_limit=0.25)), "a knob of the plan decides then"


def test_two_threads_of_a_core_are_no_two_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven cores, whose second threads are numbered from 7 on: five are left for guests, and not twelve."""
    monkeypatch.setattr(guest_lab, "core_of", lambda cpu: str(cpu % 7))
    plan = CpuPlan.of(range(14))
    assert plan.tester == (0, 1)
    assert plan.guests[:5] == (2, 3, 4, 5, 6)
    fair = ForwardingSettings(guests=5, cpu_limit="fair")
    assert plan.has_one_for_each(fair)
    assert not plan.has_one_for_each(ForwardingSettings(guests=6, cpu_limit="fair"))
    assert plan.of_guest(4, fair) == ((6,), None)


@pytest.mark.parametrize(
    ("lost", "duplicates", "arrived", "wrong"),
    [
        (0, 0, 40, None),
        (40, 0, 0, "40 of 40 frames do not come back: lan0 of far took 40, and lan1 sent 0; see the cables"),
        (0, 3, 43, "3 of 40 frames come more than once"),
        (0, 0, 47, "7 frames came to port1 beside the 40 that were sent"),
        (10, 0, 40, "10 of 40 frames do not come back"),  # as many of others came
    ],
)
def test_frames_that_a_device_loses_repeats_or_did_not_get_are_told_apart(lost, duplicates, arrived, wrong):
    cabling = Cabling(("port0", "port1"), ("lan0", "lan1"), bridges=False)
    before = {name: LinkCount(0, 5, 0, 0, 5, 0) for name in cabling.there}
    now = {"lan0": LinkCount(0, 45, 0, 0, 5, 0), "lan1": LinkCount(0, 5, 0, 0, 45 - lost, 0)}
    trial = TrialResult(200.0, 0.2, 0.2, (FlowResult(40, lost, duplicates),), arrived=arrived)
    found = complaint_of(trial, cabling, "far", before, now)
    assert found is None if wrong is None else wrong in found
