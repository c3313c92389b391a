"""The testbed of real guests: a router between who sends and who receives, whose way to the receiver is shaped.

    tested ──┐
             ├── router ══ shaper ══ (link) ══ receiver
    others ──┘

Each end has an address of its own; the router is a namespace.  What the others send is counted where it enters the
router, and goes to an address behind the receiver, which routes nothing.  Neighbours are permanent, and every offload
is off, so that each frame is one.  The link is there only where something is delayed or lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from typing import Any

from pyroute2 import IPRoute, NetlinkError

from virtgauge.errors import UnavailableError
from virtgauge.network.device_counters import DeviceCounters
from virtgauge.network.namespace import Namespace
from virtgauge.network.nic import NetworkError
from virtgauge.network.receive_threads import receive_in_threads
from virtgauge.platforms.base import Guest, LaunchError, Share
from virtgauge.platforms.remote.platform import RemoteHostLostError
from virtgauge.suites.bandwidth.ends import NOWHERE, NOWHERE_NETWORK, OTHERS_END, RECEIVER_END, SENDER_END
from virtgauge.suites.bandwidth.links import Link, make_link
from virtgauge.suites.bandwidth.placement import Placement
from virtgauge.suites.bandwidth.program import shared_folders
from virtgauge.suites.bandwidth.shaped_path import ShapedPath
from virtgauge.suites.bandwidth.testbed import OTHERS, RECEIVER, TESTED, Address, BandwidthTestbed, TestbedSpec
from virtgauge.suites.testbed import Stage

_READY_S = 120.0
_NUD_PERMANENT = 0x80
_FIFO = 60
"""Above that of the cross traffic."""


async def set_up_laboratory(stage: Stage, spec: TestbedSpec) -> BandwidthTestbed:
    """Make the networks, launch everybody, and join them.

    Raises:
        LaunchError: something did not come up.
        RemoteHostLostError: the tester's host cannot be reached.
    """
    where = Placement.of_this_machine() if stage.remote is None else Placement.beside_a_tester()
    try:
        router = Namespace(stage.scope, stage.name("router"), forwarding=True)
        stage.at_end(router.close)
        link = await make_link(stage, spec, router, where)
        tested, receiver, others = await _launch(stage, spec, router, link, where)
        router.netlink(_configure)
        if where.router is not None and not stage.platform.is_virtual:
            _take_apart(router, where.router)
        counters = DeviceCounters(router)
        stage.at_end(counters.close)
    except (NetworkError, UnavailableError) as error:
        raise LaunchError("network", str(error)) from error
    except (NetlinkError, OSError) as error:
        raise LaunchError("network", f"the router cannot be configured: {error}") from error
    stage.charge_kernel_threads()
    path = ShapedPath(router, RECEIVER, OTHERS, counters, link, others.channel, NOWHERE, crowded=where.crowded)
    return BandwidthTestbed(
        stage,
        spec,
        tested=tested,
        receiver=receiver,
        others=others,
        path=path,
        address=Address(RECEIVER_END.address, NOWHERE),
        others_cpu=where.others,
    )


async def _launch(
    stage: Stage, spec: TestbedSpec, router: Namespace, link: Link | None, where: Placement
) -> tuple[Guest, Guest, Guest]:
    """Tested guest, receiver and others, at the same time."""
    beside = None if where.others is None else (where.others,)
    wanted: dict[str, Any] = {"ready_timeout_s": _READY_S}
    of_guests = wanted | {"memory_mib": spec.memory_mib}
    of_tested = of_guests | {"nics": (SENDER_END.nic(TESTED),), "lab": router}
    # A virtual machine needs one for what it runs, and another for its devices, through which every packet goes.
    least = 2 if stage.platform.is_virtual else 1
    if where.sender is not None and len(where.sender) >= least:
        of_tested["cpus"] = where.sender
    if spec.shim:
        of_tested |= {"host_root": True, "shares": tuple(Share(folder) for folder in shared_folders())}
    if spec.fifo:
        of_tested["capabilities"] = ("CAP_SYS_NICE",)
    port, lab = (RECEIVER, router) if link is None else (link.remote_port, link.namespace)
    at_receiver = {"nics": (RECEIVER_END.nic(port),), "lab": lab, "cpus": beside}
    try:
        async with asyncio.TaskGroup() as group:
            tested = group.create_task(stage.launch(TESTED, **of_tested))
            others = group.create_task(stage.launch_peer(OTHERS, nics=(OTHERS_END.nic(OTHERS),), lab=router, **wanted))
            if spec.receiver == "guest":
                receiver = group.create_task(stage.launch(RECEIVER, **at_receiver, **of_guests))
            else:
                receiver = group.create_task(stage.launch_peer(RECEIVER, **at_receiver, **wanted))
    except* (LaunchError, RemoteHostLostError) as failures:
        raise failures.exceptions[0] from None
    return tested.result(), receiver.result(), others.result()


def _take_apart(router: Namespace, cpu: int) -> None:
    """Have what the tested guest sends taken by a thread of the kernel, on a processor of its own, before all others.

    Otherwise all of the path's work is done within the sender's own call, which then takes longer than the gaps that it
    is to keep.  A virtual machine has a thread of its own that hands its frames over.
    """
    for thread in receive_in_threads(router, [TESTED]):
        os.sched_setaffinity(thread, (cpu,))
        with contextlib.suppress(PermissionError):
            os.sched_setscheduler(thread, os.SCHED_FIFO, os.sched_param(_FIFO))


def _configure(route: IPRoute) -> None:
    """The router's interfaces: addresses, and the neighbours behind them."""
    for end in (SENDER_END, OTHERS_END, RECEIVER_END):
        index = socket.if_nametoindex(end.name)
        route.link("set", index=index, address=end.gateway_mac)
        route.addr("add", index=index, address=end.gateway, prefixlen=24)
        route.neigh("replace", ifindex=index, dst=end.address, lladdr=end.mac, state=_NUD_PERMANENT)
    route.route("add", dst=NOWHERE_NETWORK, gateway=RECEIVER_END.address)
