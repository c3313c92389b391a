"""A running domain, and the bridges of its interfaces."""

from __future__ import annotations

import asyncio
import contextlib

from virtgauge.agent.channel import Channel
from virtgauge.host.policy import Applied, Policy, PolicyError
from virtgauge.network.namespace import Namespace
from virtgauge.network.nic import Nic
from virtgauge.platforms.base import Accounting, Confinement, Guest
from virtgauge.platforms.xen.dom0 import Dom0, XenError
from virtgauge.platforms.xen.toolstack import XEN_WEIGHT, DomainConfig, Toolstack, Vif, xen_cap, xen_weight

# The bridges of dom0 between a domain's interfaces and the lab on this host: one for each, with nothing else on it.


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


# A running domain.

_SHUTDOWN_S = 1.5
_POWER_OFF_S, _PAUSE_S = 2.0, 0.1


class XenGuest(Guest):
    """A domain whose agent is its first process.

    Attributes:
        config: what it was made from.
    """

    def __init__(
        self,
        *,
        channel: Channel,
        ready_ns: int,
        label: str,
        config: DomainConfig,
        dom0: Dom0,
        removal: contextlib.ExitStack,
    ) -> None:
        """Take over what a launch has made; ``removal`` undoes it, last first."""
        self.channel, self.ready_ns, self.label, self.config = channel, ready_ns, label, config
        channel.timeout_factor = dom0.timeout_factor
        self._dom0, self._removal = dom0, removal
        self._xl = Toolstack(dom0)
        self._cap = config.cap
        self._pinned = False

    def accounting(self) -> Accounting:
        """CPU time of its virtual processors as Xen counts it; what dom0 does for it is not in there."""
        method = "xl list (steps of 0.1 s)"
        try:
            domain = self._xl.find(self.config.name)
        except XenError:
            domain = None
        used_ns = None if domain is None else round(domain.cpu_s * 1e9)
        return Accounting(used_ns, method, of_this_machine=not self._dom0.emulated)

    def confinement(self) -> Confinement:
        """Its cap; on which physical processors it runs is Xen's affair, which dom0's numbers do not name."""
        return Confinement(cpu_limit=None if self._cap is None else self._cap / 100)

    async def apply(self, policy: Policy) -> Applied:
        """Set cap and weight of the credit2 scheduler and the affinity, and read them back."""
        if policy.disk.given():
            raise PolicyError(f"disk limits {policy.disk.given()}: the guest has no disk of its own")
        try:
            return await self._apply(policy)
        except XenError as error:
            raise PolicyError(str(error)) from error

    async def _apply(self, policy: Policy) -> Applied:
        name, in_force, no_effect = self.config.name, dict[str, str](), list[str]()
        cap = 0 if policy.cpu_limit is None else self._possible_cap(policy.cpu_limit, no_effect)
        weight = XEN_WEIGHT if policy.weight is None else xen_weight(policy.weight)
        await self._xl.set_share(name, weight=weight, cap=cap)
        share = await self._xl.share(name)
        if (share.weight, share.cap) != (weight, cap):
            raise PolicyError(f"credit2 was asked for weight {weight} and cap {cap}, and has {share} in force")
        self._cap = share.cap or None
        if policy.cpu_limit is not None:
            in_force["credit2 cap"] = f"{share.cap} %" if share.cap else "none"
        if policy.weight is not None:
            in_force["credit2 weight"] = str(share.weight)
        if policy.reservation is not None and policy.weight is None:
            no_effect.append("reservation: credit2 has none; give a weight")
        await self._place(policy.cores, in_force, no_effect)
        notes = list[str]()
        if policy.cpu_limit is not None:
            notes.append(
                "cpu_limit: of its vCPUs together; what dom0 does for its interfaces is neither bounded nor charged"
            )
        if policy.weight is not None:
            notes.append("weight: 256 is everybody's in credit2, as 100 is here")
        return Applied(policy, in_force, tuple(no_effect), tuple(notes))

    def _possible_cap(self, cpu_limit: float, no_effect: list[str]) -> int:
        """In percent; Xen refuses a cap above what the domain's virtual processors come to."""
        cap, most = xen_cap(cpu_limit), self.config.vcpus * 100
        if cap >= most:
            no_effect.append(f"cpu_limit: the guest has {self.config.vcpus} vCPUs, and cannot use more")
        return min(cap, most)

    async def _place(self, cores: tuple[int, ...] | None, in_force: dict[str, str], no_effect: list[str]) -> None:
        if self._dom0.emulated:
            if cores is not None:
                no_effect.append("cores: the processors of an emulated Xen host are not this machine's")
            return
        if cores is None and not self._pinned:
            return
        await self._xl.pin(self.config.name, "all" if cores is None else ",".join(map(str, cores)))
        self._pinned = cores is not None
        if cores is not None:
            in_force["vcpu affinity"] = await self._xl.affinity(self.config.name)

    async def crash(self) -> None:
        """Destroy the domain: what its kernel had not written is lost."""
        await asyncio.to_thread(self._xl.destroy, self.config.name)

    async def close(self) -> None:
        """End the guest and remove everything made for it."""
        removal, self._removal = self._removal, contextlib.ExitStack()
        with removal:
            alive = not self.channel.closed
            await self.channel.shutdown(_SHUTDOWN_S)
            if alive:
                await self._powered_off()

    async def _powered_off(self) -> None:
        """Let the domain end by itself, and its interfaces go in order; what then remains is destroyed."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _POWER_OFF_S * self._dom0.timeout_factor
        with contextlib.suppress(XenError):
            while loop.time() < deadline and (await self._dom0.run(["xl", "domid", self.config.name])).exit_code == 0:
                await asyncio.sleep(_PAUSE_S)
