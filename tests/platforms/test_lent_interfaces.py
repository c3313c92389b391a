"""Interfaces of the machine that are lent to a lab, and given back as they were."""

import contextlib

import pytest
from pyroute2 import IPRoute

from virtgauge.network.namespace import Namespace, in_thread
from virtgauge.network.nic import NetworkError
from virtgauge.network.wire import lent

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
