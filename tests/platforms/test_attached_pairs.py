"""Two attached machines in networks of their own: the path between them, and what is estimated of it."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from platforms.ssh_server import SshServer, ssh_server
from platforms.test_attached_runs import inside, section, virtgauge

from virtgauge.host.scope import Scope
from virtgauge.ledger.records import TrialRecord, TrialStatus
from virtgauge.ledger.store import Ledger
from virtgauge.network import links
from virtgauge.network.namespace import Namespace
from virtgauge.network.nic import Nic, Route
from virtgauge.network.shaper import Bucket, shape

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("root")]

PLAN = """
name = "pair"
repetitions = 1
reference = "far"
aa = false
[validity]
patience_s = 0
[[platform]]
name = "far"
kind = "attached"
{first}
[platform.peer]
{second}
"""
FIRST, SECOND = (f"10.219.{number}.2" for number in (1, 2))
"""Where the controller reaches them."""
MBPS = 50


def gateway(router: Namespace, port: str, address: str) -> None:
    def give(route: object) -> None:
        route.addr("add", index=socket.if_nametoindex(port), address=address, prefixlen=24)

    router.netlink(give)


@pytest.fixture
def machines(scope: Scope, tmp_path: Path) -> Iterator[tuple[Namespace, SshServer, SshServer]]:
    """The controller's network and two machines: each on a link of its own to it, and a router between the two."""
    with contextlib.ExitStack() as stack:
        here = stack.enter_context(Namespace(scope, "here"))
        router = stack.enter_context(Namespace(scope, "router", forwarding=True))
        servers = []
        for number, name in enumerate(("one", "two"), start=1):
            machine = stack.enter_context(Namespace(scope, name))
            nic = Nic(mac=f"52:54:00:a7:7b:0{number}", port=name, addresses=(f"10.219.{number}.2/24",))
            links.connect(here, machine, (nic,))
            gateway(here, name, f"10.219.{number}.1")
            others = Route(f"10.220.{3 - number}.0/24", f"10.220.{number}.254")
            nic = Nic(
                mac=f"52:54:00:a7:7c:0{number}", port=name, addresses=(f"10.220.{number}.2/24",), routes=(others,)
            )
            links.connect(router, machine, (nic,), first=1)
            gateway(router, name, f"10.220.{number}.254")
            servers.append(stack.enter_context(ssh_server(tmp_path / name, f"10.219.{number}.2", inside(machine))))
        shape(router, "two", Bucket.of("tbf", MBPS * 1e6, 100, 10))
        yield here, *servers


def measured(
    machines: tuple[Namespace, SshServer, SshServer], folder: Path, peer: dict[str, object], suite: str
) -> tuple[list[TrialRecord], str]:
    here, first, second = machines
    (folder / "plan.toml").write_text(
        PLAN.format(first=section(first.settings()), second=section(second.settings(**peer))) + suite
    )
    done = virtgauge("run", folder / "plan.toml", "--out", folder / "run", enter=inside(here))
    output, _ = done.communicate(timeout=240)
    assert done.returncode == 0, output
    with Ledger.open(folder / "run") as ledger:
        return ledger.trials(), output


BANDWIDTH = """
[[suite.bandwidth]]
timings = ["hptime"]
capacities_mbps = ["as-is"]
estimates = 2
fifo = 50
"""


def test_an_estimate_of_the_path_between_two_machines_is_what_its_router_lets_pass(
    machines: tuple[Namespace, SshServer, SshServer], tmp_path: Path, private_state: Path
) -> None:
    """The run knows nothing of the shaper on the path; the estimate is near it, and no error is told."""
    (trial,), output = measured(machines, tmp_path, {"address": "10.220.2.2"}, BANDWIDTH)
    assert trial.status is TrialStatus.VALID, (trial.error, trial.flags)
    result = trial.result
    assert result["median_mbps"] == pytest.approx(MBPS * 1500 / 1514, rel=0.1), result
    assert (result["truth_mbps"], result["error_ratio"]) == (None, None)
    assert result["receiver"] == "peer"
    assert result["stamp"] == "kernel"
    assert "what is true of a path as it is nobody knows" in output
