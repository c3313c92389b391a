"""Machines that exist already, as a platform."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import ipaddress
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BaseModel, Field, field_validator

from virtgauge.agent import AgentBinary
from virtgauge.agent.channel import AgentError, Channel, ChannelClosedError
from virtgauge.agent.messages import ProtocolError
from virtgauge.errors import UnavailableError, VirtgaugeError
from virtgauge.extras import require
from virtgauge.host.machine import AS_ROOT, NETWORK, fingerprint, lacking
from virtgauge.host.policy import Hypervisor, Policy, Target, commands
from virtgauge.host.scope import Scope
from virtgauge.network.wire import require_free
from virtgauge.plan import Hop, Section, written_as
from virtgauge.platforms.base import (
    Accounting,
    Availability,
    Cabling,
    Emulation,
    Guest,
    GuestSpec,
    LaunchError,
    Platform,
    Recognition,
    emulation_told,
    hypervisor_told,
)

_OF_SSH = ("host", "port", "user", "identity_file", "known_hosts", "jump_host", "sudo", "folder")
_OF_DIAL_IN = ("listen", "advertise", "credentials", "wait_s")
_TOLD_BY = {
    Hypervisor.HYPER_V: "hyperv",
    Hypervisor.ESXI: "vmware",
    Hypervisor.VIRTUALBOX: "vbox",
    Hypervisor.XEN: "xen",
}
"""What a machine's own facts say (:func:`hypervisor_told`), by the plan's words."""
_UNKNOWN_PROCESSOR = "a processor that does not say its model"
LEASE_S = 600
"""An agent that has heard nothing for so long ends by itself: its controller's machine, or the way to it, is gone."""
_RENEWAL_S = LEASE_S / 4
InterfaceName = Annotated[str, Field(pattern=r"^[^\s/:]{1,15}$")]


@dataclasses.dataclass(frozen=True)
class Endpoint:
    """An IP address and a TCP port."""

    address: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``192.0.2.1:7443`` or ``[2001:db8::1]:7443``.
        Raises ValueError: it is none; the agent is static and resolves no names.
        """
        host, _, port = text.rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        try:
            address, number = ipaddress.ip_address(host[1:-1] if bracketed else host), int(port)
            if not 1 <= number <= 65535 or (address.version == 6) is not bracketed:
                raise ValueError(text)
        except ValueError:
            words = "give an IP address and a port from 1 to 65535, as 192.0.2.1:7443 or [2001:db8::1]:7443"
            raise ValueError(words) from None
        return cls(str(address), number)

    @property
    def everywhere(self) -> bool:
        """Whether it stands for all addresses of a machine, and so cannot be dialled."""
        return ipaddress.ip_address(self.address).is_unspecified

    def __str__(self) -> str:
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


EndpointText = Annotated[str, AfterValidator(lambda text: str(Endpoint.parse(text)))]


def _is_a_hop(text: str) -> str:
    Hop.parse(text)
    return text


def _own_address(text: str) -> str:
    address = ipaddress.IPv4Address(text)
    if address.is_unspecified or address.is_loopback or address.is_multicast or text == "255.255.255.255":
        raise ValueError("give an address at which another machine reaches it, such as 192.0.2.21")
    return str(address)


HopText = Annotated[str, AfterValidator(_is_a_hop)]
RemoteFolder = Annotated[str, written_as(r"(?s)/.*", "give an absolute path of the remote machine, as /var/tmp")]


class MachineSettings(Section):
    """How a machine is reached."""

    via: Literal["ssh", "dial-in"]
    """``ssh``: the controller logs in.  ``dial-in``: the machine's agent calls the controller."""

    host: Annotated[str, Field(min_length=1)] | None = None
    """ssh: a name, an address, or a host of your ssh configuration."""
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """ssh: the server's port."""
    user: Annotated[str, Field(min_length=1)] | None = None
    """ssh: the login."""
    identity_file: Path | None = None
    """ssh: a private key. By default your ssh agent and default keys are tried."""
    known_hosts: Path | None = None
    """ssh: the file with the host's key; by default your own."""
    jump_host: HopText | None = None
    """ssh: ``[user@]host[:port]`` of a server to go through."""
    sudo: bool = False
    """ssh: start the agent with `sudo -n`."""
    folder: RemoteFolder | None = None
    """ssh: where the agent's private folder is made. By default the first folder that allows programs, /tmp first."""

    hypervisor: Hypervisor | None = None
    """Whose machine it is, for the words of a policy that is set by hand. ``esxi`` also says which of VMware's products
    it is, which the machine itself cannot; a machine that says something else is remarked."""
    vm: Annotated[str, Field(min_length=1)] | None = None
    """Its name there; ``host`` by default."""
    core_mhz: Annotated[int, Field(ge=1)] | None = None
    """Clock of one of that host's cores; for limits and reservations of ESXi."""

    listen: EndpointText | None = None
    """dial-in: address and port of this machine, such as ``192.0.2.1:7443``."""
    advertise: EndpointText | None = None
    """dial-in: what the machine dials, if it differs from ``listen`` (behind a NAT, or with 0.0.0.0)."""
    credentials: Path | None = None
    """dial-in: the file ``credentials.json`` that `virtgauge attach prepare` wrote. By default credentials are made for
    the run."""
    wait_s: Annotated[float, Field(ge=1, le=86_400)] = 600.0
    """dial-in: how long the machine may take to call for the first time."""

    address: Annotated[str, AfterValidator(_own_address)] | None = None
    """Its own IPv4 address on the path between the two machines of a pair, such as ``192.0.2.21``: the suite
    ``bandwidth`` sends its packets to that of the peer (port 8763, TCP and UDP), and beside the load `io` of the suite
    ``timing`` the peer uses files at that of the first machine (port 2050, TCP)."""

    def _problems(self) -> Iterator[str]:
        own, others = (_OF_SSH, _OF_DIAL_IN) if self.via == "ssh" else (_OF_DIAL_IN, _OF_SSH)
        if stray := [field for field in others if field in self.model_fields_set]:
            yield f'{stray[0]} means nothing with via = "{self.via}": its fields are {", ".join(own)}'
        if self.hypervisor is Hypervisor.ESXI and self.core_mhz is None:
            yield 'hypervisor = "esxi" counts CPU time in MHz: give core_mhz, the clock of a core of its host'
        if self.via == "ssh" and self.host is None:
            yield 'via = "ssh" needs host: the machine\'s name or address'
        if self.via == "dial-in":
            if self.listen is None:
                yield 'via = "dial-in" needs listen: an address and port of this machine, as 192.0.2.1:7443'
            elif self.advertise is None and Endpoint.parse(self.listen).everywhere:
                yield f"listen = {self.listen!r} cannot be dialled: give advertise, what the machine dials"

    @property
    def dialled(self) -> Endpoint:
        assert self.listen is not None
        return Endpoint.parse(self.advertise or self.listen)


class PeerSettings(MachineSettings):
    """A second machine that exists already, beside the first, by the same keys."""


class PortsSettings(Section):
    """Two interfaces of this host, each cabled to one of the machine's, for the suite ``forwarding``."""

    here: tuple[InterfaceName, InterfaceName]
    """Interfaces of this host: frames leave by the first and come back by the second. They are lent to the tester and
    given back as they were."""
    there: tuple[InterfaceName, InterfaceName]
    """Interfaces of the machine: what the first of ``here`` is cabled to, and what the second is."""
    forwards: Literal["router", "bridge"] = "router"
    """How the machine hands frames over, which is yours to set up there; the run prints the commands."""
    set_up: bool = False
    """router: the agent sets it up instead (as root, and it stays): for guests of `virtgauge image`, which have no
    shell."""

    @field_validator("here", "there")
    @classmethod
    def _are_two(cls, value: tuple[str, str]) -> tuple[str, str]:
        if value[0] == value[1]:
            raise ValueError(f"{value[0]!r} is named twice; name two interfaces")
        return value

    def _problems(self) -> Iterator[str]:
        if self.set_up and self.forwards == "bridge":
            yield "set_up: the agent sets up routers only; make the bridge yourself"


class AttachedSettings(MachineSettings):
    """A machine that exists already. The keys depend on ``via``."""

    ports: PortsSettings | None = None
    """The tester's two ports, with the machine between them; see
    [attached.md](platforms/attached.md#forwarding-between-two-ports)."""

    peer: PeerSettings | None = None
    """A second machine, for what is measured between two; see [attached.md](platforms/attached.md#which-suites)."""

    def _problems(self) -> Iterator[str]:
        yield from super()._problems()
        place = {"host", "port", "listen", "jump_host"}
        if self.peer is not None and self.peer.model_dump(include=place) == self.model_dump(include=place):
            where = f"host = {self.host!r}" if self.via == "ssh" else f"listen = {self.listen!r}"
            yield f"peer: it has the {where} of the first machine; name another one"


class AttachedGuest(Guest):
    """An agent on a machine that exists already, in a process of its own.

    Closing asks it to end, and then has the remote side removed; what is held here is let go in any case.
    """

    def __init__(self, *, channel: Channel, ready_ns: int, label: str, held: contextlib.AsyncExitStack) -> None:
        """``held`` ends the remote side, and lets go what this side holds."""
        self.channel, self.ready_ns, self.label = channel, ready_ns, label
        self._held = held
        self._renewal = asyncio.create_task(self._renew())

    def accounting(self) -> Accounting:
        """Never known: from outside, only the remote machine's own host could count."""
        return Accounting(None, "not known: the machine's CPUs are not this host's", of_this_machine=False)

    async def close(self) -> None:
        held, self._held = self._held, contextlib.AsyncExitStack()
        async with held:
            self._renewal.cancel()
            await asyncio.gather(self._renewal, return_exceptions=True)
            await self.channel.shutdown()

    async def _renew(self) -> None:
        """Let the agent hear something now and then, so that it knows that it is still wanted."""
        with contextlib.suppress(AgentError, ChannelClosedError, ProtocolError, TimeoutError):
            while True:
                await asyncio.sleep(_RENEWAL_S)
                await self.channel.request("read", paths=[], timeout_s=60.0)


if TYPE_CHECKING:
    from virtgauge.platforms.attached.dial_in import DialIn


class AttachedPlatform(Platform):
    """A machine that exists already: each launch is a fresh process of the agent on it.

    What its host does meanwhile, and which guests run beside it, nobody here knows: give it a quiet one.
    """

    kind: ClassVar[str] = "attached"
    Settings: ClassVar[type[BaseModel]] = AttachedSettings
    only_plain: ClassVar[str | None] = (
        "an attached machine has no interfaces in a laboratory of this host, and no disk, shares or limits from here"
    )

    def __init__(self, settings: MachineSettings) -> None:
        self.settings: MachineSettings = settings
        self.address = settings.address
        if isinstance(settings, AttachedSettings) and settings.peer is not None:
            self.peer = AttachedPlatform(settings.peer)
        if isinstance(settings, AttachedSettings) and (ports := settings.ports) is not None:
            self.cabling = Cabling(ports.here, ports.there, ports.forwards == "bridge", ports.set_up)

    @property
    def label(self) -> str:
        if self.settings.via == "ssh":
            return f"attached {self.settings.host} (ssh)"
        return f"attached (dials {self.settings.dialled})"

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, **self.settings.model_dump(mode="json", exclude_defaults=True)}

    async def probe(self) -> Availability:
        try:
            found = await self._look()
        except VirtgaugeError as error:
            return Availability(False, error.message, error.remedy)
        if self.peer is None or not found.usable:
            return found
        beside = await self.peer.probe()
        details = found.details | {f"peer_{name}": value for name, value in beside.details.items()}
        if not beside.usable:
            return Availability(False, f"its peer: {beside.reason}", beside.fix, details)
        return Availability(True, f"{found.reason}; its peer: {beside.reason}", details=details)

    async def _look(self) -> Availability:
        """Whether it can be reached.  Raises VirtgaugeError: it cannot, or interfaces are not free to be lent."""
        if self.cabling is not None:
            for name in self.cabling.here:
                require_free(name)
            if os.geteuid() != 0:
                raise UnavailableError(f"only root can lend interfaces to a tester{lacking(*NETWORK)}", AS_ROOT)
        if self.settings.via == "dial-in":
            return await self._dial_in.look()
        require("attach", "a machine that is reached by ssh")
        from virtgauge.platforms.attached import ssh

        return await ssh.look(self.settings)

    async def begin(self, scope: Scope, agent: AgentBinary) -> tuple[str, ...]:
        own = () if self.settings.via == "ssh" else (self._dial_in.begin(scope, agent),)
        return own if self.peer is None else (*own, *await self.peer.begin(scope, agent))

    def policy_text(self, policy: Policy, vcpus: int) -> tuple[str, ...]:
        name, hypervisor = self.settings.vm or self.settings.host or "GUEST", self.settings.hypervisor
        if hypervisor is None:
            of = "|".join(Hypervisor)
            return (f"virtgauge policy commands --hypervisor {of} --name {name} …   # prints it in their words",)
        words = commands(policy, hypervisor, Target(name, vcpus, self.settings.core_mhz))
        missing = (f"# {part}" for part in words.missing)
        return (*words.lines, *missing, "# read back what is in force:", *words.read_back)

    def emulation(self, facts: Mapping[str, Any]) -> Emulation | None:
        return emulation_told(facts)

    def recognised(self, facts: Mapping[str, Any]) -> Recognition:
        told, here = facts.get("hypervisor") or {}, fingerprint()
        physical = told.get("present") is False and told.get("type") != "xen"
        if facts.get("boot_id") == here["context"]["boot_id"]:  # this kernel is no guest's
            return Recognition(physical=physical, doubts=self._doubts(""))
        found, model = hypervisor_told(facts), str((facts.get("cpu") or {}).get("model") or _UNKNOWN_PROCESSOR)
        processor, doubts = "" if model == here["identity"]["cpu_model"] else model, self._doubts(found)
        if found == "vmware" and self.settings.hypervisor is Hypervisor.ESXI:
            found = "esx"
        return Recognition(found, processor, physical, doubts)

    def _doubts(self, found: str) -> tuple[str, ...]:
        """Doubts about the hypervisor that a machine's facts speak for."""
        planned = self.settings.hypervisor
        if planned is not None and _TOLD_BY[planned] != found:
            return (f'the plan says hypervisor = "{planned}", and the machine itself {found or "none that is known"}',)
        if planned is None and found == "vmware":
            return (
                'which of VMware\'s products it is cannot be told from inside: if it is ESXi, say hypervisor = "esxi"',
            )
        return ()

    def remarks(self) -> tuple[str, ...]:
        remark = None if self.settings.via == "ssh" else self._dial_in.refused_callers.words()
        own = () if remark is None else (f"{self.label}: {remark}",)
        return own if self.peer is None else (*own, *self.peer.remarks())

    async def launch(self, spec: GuestSpec) -> Guest:
        asked = {
            "network interfaces": spec.nics,
            "a laboratory's network": spec.lab,
            "forwarding": spec.forwarding,
            "a number of processors": spec.vcpus,
            "an amount of memory": spec.memory_mib,
            "CPUs of this host": spec.cpus,
            "a CPU limit": spec.cpu_limit,
            "folders of this host": spec.shares or spec.host_root,
            "a disk of its own": spec.disks,
            "capabilities": spec.capabilities,
        }
        if wanted := [what for what, value in asked.items() if value]:
            raise LaunchError("refused", f"{', '.join(wanted)}: {self.only_plain}")
        if self.settings.via == "dial-in":
            return await self._dial_in.launch(spec, self.label)
        from virtgauge.platforms.attached import ssh

        return await ssh.launch(self.settings, spec, self.label)

    @functools.cached_property
    def _dial_in(self) -> DialIn:
        from virtgauge.platforms.attached.dial_in import DialIn  # what needs no certificates waits for no library

        return DialIn(self.settings)
