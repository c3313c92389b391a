"""Interfaces of the machine that are lent to a lab, and given back as they were."""

import array
import contextlib
import subprocess
import sys

import pytest
from platforms.conftest import traces
from pyroute2 import IPRoute

from virtgauge.host.lending import Loan, ask_ethtool, features_of
from virtgauge.host.process import in_thread
from virtgauge.host.reclaim import reclaim_dead
from virtgauge.network import NetworkError
from virtgauge.network.namespace import Namespace
from virtgauge.network.wire import lent, require_free

pytestmark = pytest.mark.slow

CABLES = ("vgcable0", "vgcable1")


def links():
    def read():
        with IPRoute() as route:
            return {link.get("ifname"): link["state"] for link in route.get_links()}

    return in_thread(read)


@pytest.fixture
def cables():
    """Stand-ins for two hardware interfaces of the machine."""

    def run(command, **arguments):
        def inside():
            with IPRoute() as route, contextlib.suppress(IndexError):
                index = {"index": route.link_lookup(ifname=CABLES[0])[0]} if command == "del" else {}
                route.link(command, **index, **arguments)

        in_thread(inside)

    run("add", ifname=CABLES[0], kind="veth", peer=CABLES[1])
    yield CABLES
    run("del")


def test_a_lent_interface_is_the_labs_until_it_is_given_back(scope, cables):
    with Namespace(scope, "lab") as lab:
        with lent(lab, cables[0]):
            assert cables[0] in lab.interfaces()
            assert cables[0] not in links()
        assert cables[0] not in lab.interfaces()
        assert links()[cables[0]] == "down"  # as it was


SEGMENTATION, GENERIC_RECEIVE = 0x1F, 0x2C  # linux/ethtool.h


def bring_up(name):
    with IPRoute() as route:
        route.link("set", index=route.link_lookup(ifname=name)[0], state="up")


def as_it_is(name):
    return links()[name], features_of(name)


KILLED = """
import os, signal
from virtgauge.host.scope import Scope
from virtgauge.network.namespace import Namespace
from virtgauge.network.wire import lent, require_free
scope = Scope()
lab = Namespace(scope, "lab")
held = [lent(lab, name) for name in {names!r}]
for one in held:
    one.__enter__()
print(scope.tag, *lab.interfaces(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("killed", [False, True])
def test_its_link_and_offloads_are_given_back_as_they_were_also_after_a_kill(scope, cables, killed):
    """Up, and with offloads that are neither the defaults nor those of a lab."""
    name = cables[0]
    in_thread(lambda: bring_up(name))
    for feature, on in ((SEGMENTATION, 0), (GENERIC_RECEIVE, 1)):
        ask_ethtool(name, array.array("I", [feature, on]))
    before = as_it_is(name)
    if killed:
        program = KILLED.format(names=cables)
        done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=False)
        tag, *inside = done.stdout.split()
        assert {*cables} <= {*inside}
        assert not {*cables} & links().keys()
        told = "\n".join(reclaim_dead())
        assert f"{tag}: gave the interface {name} back" in told
        assert "home" not in told
        assert traces(tag) == []
    else:
        with Namespace(scope, "lab") as lab, lent(lab, name):
            assert lab.run(lambda: features_of(name)) != before[1]
    assert as_it_is(name) == before
    assert links()[cables[1]] == "down"


@pytest.mark.parametrize("used", [True, False])
def test_one_that_has_come_back_by_itself_is_left_alone_once_the_machine_uses_it(tmp_path, cables, used):
    name = cables[0]
    loan = Loan(name, "/nonexistent", "/proc/self/ns/net", False, tuple(features_of(name)))
    ask_ethtool(name, array.array("I", [SEGMENTATION, 0]))
    in_thread(lambda: bring_up(name))
    if used:
        subprocess.run(["ip", "address", "add", "192.0.2.1/24", "dev", name], check=True)
    before = as_it_is(name)
    assert loan.give_back() == []
    assert as_it_is(name) == (before if used else ("down", [*loan.features]))


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ("link add link vgcable0 name vgabove type macvlan", "vgabove is made of it"),
        ("link set vgcable0 master vgbridge", "it is part of a bridge"),
        ("route add 203.0.113.0/24 dev vgcable0", "it carries the route to 203.0.113.0/24"),
        ("route add default dev vgcable0 metric 4000000000", "it carries the default route"),
        ("-6 address add 2001:db8::1/64 dev vgcable0", r"it has an address \(2001:db8::1\)"),
    ],
)
def test_an_interface_that_something_of_the_machine_is_on_is_refused_with_what_that_is(cables, arguments, why):
    in_thread(lambda: bring_up(cables[0]))
    subprocess.run(["ip", "link", "add", "vgbridge", "type", "bridge"], check=True)
    try:
        subprocess.run(["ip", *arguments.split()], check=True)
        with pytest.raises(NetworkError, match=why):
            require_free(cables[0])
    finally:
        subprocess.run(["ip", "link", "del", "vgbridge"], check=True)


def test_an_interface_that_the_machine_uses_or_does_not_have_is_not_lent(scope, cables):
    def address():
        with IPRoute() as route:
            route.addr("add", index=route.link_lookup(ifname=cables[0])[0], address="192.0.2.1", prefixlen=24)

    in_thread(address)
    with Namespace(scope, "lab") as lab:
        with pytest.raises(NetworkError, match="vgcable0: it has an address"), lent(lab, cables[0]):
            pass
        with pytest.raises(NetworkError, match="no interface vgcable9"), lent(lab, "vgcable9"):
            pass
    assert cables[0] in links()
