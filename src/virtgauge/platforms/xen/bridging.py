"""The bridges of dom0 between a domain's interfaces and the lab on this host: one for each, with nothing else on it."""

from __future__ import annotations

import contextlib

from virtgauge.network.namespace import Namespace
from virtgauge.network.nic import Nic
from virtgauge.platforms.xen.dom0 import Dom0, XenError
from virtgauge.platforms.xen.domain import Vif


async def bridged(dom0: Dom0, lab: Namespace, nic: Nic, removal: contextlib.ExitStack) -> Vif:
    """A bridge with an uplink to the lab; the toolstack's script puts the domain's interface on it.

    Args:
        dom0: gets the bridge.
        lab: gets the port.
        nic: of the guest.
        removal: gets what undoes it, after the domain has ended.

    Raises:
        NetworkError, XenError: it cannot be made.
    """
    uplink = dom0.uplink(lab, nic, removal)
    bridge = dom0.bridge_name(uplink)
    removal.callback(_remove, dom0, bridge)
    # It waits for no spanning tree and asks for no groups; the script gives the domain's interface the bridge's MTU.
    await dom0.check(
        [
            *("ip", "link", "add", "name", bridge, "type", "bridge"),
            *("stp_state", "0", "forward_delay", "0", "mcast_snooping", "0"),
        ]
    )
    await dom0.check(["ip", "link", "set", "dev", uplink, "mtu", str(nic.mtu), "master", bridge, "up"])
    await dom0.check(["ip", "link", "set", "dev", bridge, "mtu", str(nic.mtu), "up"])
    return Vif(mac=nic.mac, bridge=bridge, script=dom0.vif_script)


def _remove(dom0: Dom0, bridge: str) -> None:
    with contextlib.suppress(XenError):
        dom0.run_now(["ip", "link", "del", "dev", bridge])
