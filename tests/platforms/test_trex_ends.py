"""TRex at the ends of a real lab: cables are lent and given back, ports are held as long as the bench stands."""

import contextlib

import pytest
from pyroute2 import IPRoute
from trex_server import TrexServer

from virtgauge.agent.binary import find_agent
from virtgauge.agent.channel import AgentError
from virtgauge.network.loan import lend
from virtgauge.network.namespace import Namespace, in_thread
from virtgauge.network.nic import NetworkError
from virtgauge.platforms.base import LaunchError
from virtgauge.platforms.host import HostPlatform
from virtgauge.platforms.oci.platform import OciPlatform
from virtgauge.suites.bench import Stage
from virtgauge.suites.forwarding.guest_lab import GuestLab
from virtgauge.suites.forwarding.settings import ForwardingSettings
from virtgauge.suites.forwarding.trex import TrexSettings
from virtgauge.suites.forwarding.trex_ends import TrexEnds
from virtgauge.suites.forwarding.trial import Manner

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
        give_back = lend(lab, cables[0])
        assert cables[0] in lab.interfaces()
        assert cables[0] not in links()
        give_back()
        give_back()
        assert cables[0] not in lab.interfaces()
        assert links()[cables[0]] == "down"  # as it was


def test_an_interface_that_the_machine_uses_or_does_not_have_is_not_lent(scope, cables):
    def address():
        with IPRoute() as route:
            route.addr("add", index=route.link_lookup(ifname=cables[0])[0], address="192.0.2.1", prefixlen=24)

    in_thread(address)
    with Namespace(scope, "lab") as lab:
        with pytest.raises(NetworkError, match="vgcable0: it has an address"):
            lend(lab, cables[0])
        with pytest.raises(NetworkError, match="no interface vgcable9"):
            lend(lab, "vgcable9")
    assert cables[0] in links()


async def test_trex_sends_each_flow_to_its_guest_and_gives_everything_back(scope, cables):
    server = TrexServer()
    async with server.listening():
        settings = TrexSettings(
            host="127.0.0.1", rpc_port=server.port, drain_s=0.0, ingress=cables[0], egress=cables[1], timeout_s=30.0
        )
        stage = Stage(HostPlatform(), scope, find_agent(), "g1")
        with Namespace(scope, "lab") as lab:
            try:
                ends = await TrexEnds.connect(stage, settings, 2, lab)
                assert set(cables) <= set(lab.interfaces())
                assert ends.receive_mac == "00:0c:29:2a:99:bc"
                trial = await ends.measure([0.75, 0.25], 64, 1000.0, 0.1)
                assert [flow.sent for flow in trial.flows] == pytest.approx([75, 25], abs=2)
                assert trial.arrived == trial.sent
                # 10 Gb/s of 64-byte frames, each with preamble and gap
                assert ends.known_calibration(64, 20e6).limit_pps == pytest.approx(10e9 / (84 * 8))
                with pytest.raises(AgentError, match="unsupported"):
                    await ends.measure([0.5, 0.5], 64, 1000.0, 0.1, Manner(burst=10))
                assert {port.status["owner"] for port in server.ports.values()} != {""}
            finally:
                await stage.close()
            assert {port.status["owner"] for port in server.ports.values()} == {""}
    assert set(cables) <= set(links())


async def test_frames_that_trex_claims_to_have_sent_but_no_rule_has_seen_fail_the_check(scope, cables):
    server = TrexServer()
    async with server.listening():
        trex = {"host": "127.0.0.1", "rpc_port": server.port, "drain_s": 0.0, "ingress": cables[0], "egress": cables[1]}
        settings = ForwardingSettings.model_validate({"guests": 1, "switch": "openvswitch", "trex": trex})
        runc = OciPlatform(OciPlatform.Settings(runtime="runc"))
        stage = Stage(runc, scope, find_agent(), "g1")
        try:
            lab = await GuestLab.create(settings, stage)
            with pytest.raises(LaunchError, match="its rule counted 0"):
                await lab.check()
        finally:
            await stage.close()
    assert set(cables) <= set(links())


async def test_a_trex_that_does_not_answer_leaves_the_cables_where_they_were(scope, cables):
    stage = Stage(HostPlatform(), scope, find_agent(), "g1")
    settings = TrexSettings(host="127.0.0.1", rpc_port=9, ingress=cables[0], egress=cables[1], timeout_s=0.2)
    with Namespace(scope, "lab") as lab:
        try:
            with pytest.raises(Exception, match=r"TRex at 127\.0\.0\.1"):
                await TrexEnds.connect(stage, settings, 1, lab)
        finally:
            await stage.close()
    assert set(cables) <= set(links())
