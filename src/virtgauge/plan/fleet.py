"""The plan's section ``[fleet]``: which hosts are measured, and how their workers are reached."""

from __future__ import annotations

import enum
import ipaddress
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from virtgauge.plan import Hop, Section, written_as

MOST_HOSTS = 1000
CABLES = 2  # That a tester needs: there and back, or the receiver's and the others'


class Start(enum.Enum):
    """Who starts the workers."""

    CLUSTER = "an existing cluster"
    SSH = "this command, by ssh"
    HERE = "this command, as processes of this machine"


Name = Annotated[  # Of a platform
    str,
    written_as(
        r"[A-Za-z0-9][A-Za-z0-9.-]{0,39}",
        "use 1 to 40 letters, digits, dots and dashes, beginning with a letter or digit",
    ),
]
HostName = Annotated[  # As a node of Kubernetes or Slurm may be called
    str,
    written_as(
        r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}",
        "use 1 to 63 letters, digits, dots, dashes and underscores, beginning with a letter or digit; a worker of "
        "another name is named by address",
    ),
]


MachineId = Annotated[
    str, written_as(r"[0-9a-f]{32}", "give the 32 hexadecimal digits of /etc/machine-id of that host")
]
Scheduler = Annotated[  # Of an existing cluster
    str,
    written_as(
        r"tls://(?:\[[0-9A-Fa-f:.]+\]|[^\s:/]+):\d{1,5}",
        "give tls://host:port; whoever can speak to a cluster can run programs on all of it, so it must ask for "
        "certificates",
    ),
]


class FleetHost(Section):
    """One host."""

    name: HostName
    """What reports call the host."""
    address: Annotated[str, Field(min_length=1, max_length=255)] | None = None
    """``[user@]host[:port]`` for ssh. Of an existing cluster: the worker's name, if it differs from ``name``."""
    machine_id: MachineId | None = None
    """Content of the host's /etc/machine-id. Another machine at this address is refused."""
    measured: bool = True
    """``false``: the host serves only as the tester of other hosts' guests."""

    @property
    def worker(self) -> str:
        """The name of its worker in an existing cluster."""
        return self.address or self.name


class Cable(Section):
    """Two interfaces that are cabled to each other and that nothing else uses."""

    tester: Annotated[str, Field(min_length=1, max_length=15)]
    """Interface of the tester's host."""
    guests: Annotated[str, Field(min_length=1, max_length=15)]
    """Interface of the guests' host."""


class FleetPair(Section):
    """A suite whose tester runs on one host and whose guests run on another. Both hosts are claimed together."""

    suite: Literal["bandwidth", "forwarding"]
    """The suite whose tester is on another host."""
    tester: str
    """Name of the tester's host."""
    guests: str
    """Name of the guests' host."""
    cables: tuple[Cable, ...] = ()
    """Between the two hosts. Without cables they are joined by tunnels over their network."""

    @field_validator("cables")
    @classmethod
    def _are_enough(cls, value: tuple[Cable, ...]) -> tuple[Cable, ...]:
        ends = [(end, getattr(cable, end)) for cable in value for end in ("tester", "guests")]
        for end, name in ends:
            if ends.count((end, name)) > 1:
                raise ValueError(f"the interface {name!r} of the host of the {end} is in two cables")
        if value and len(value) < CABLES:
            raise ValueError(f"a tester needs {CABLES} cables, one for each of its interfaces; or none, for tunnels")
        return value

    @property
    def words(self) -> str:
        how = "cables" if self.cables else "tunnels (VXLAN)"
        return f"suite.{self.suite} of {self.guests}: its tester is on {self.tester}, joined by {how}"


class FleetSection(Section):
    """The hosts of `virtgauge fleet run`. Give one of ``scheduler``, ``listen`` and ``workers``."""

    hosts: Annotated[tuple[FleetHost, ...], Field(min_length=1, max_length=MOST_HOSTS)]
    """The hosts; each is measured with all repetitions."""
    scheduler: Scheduler | None = None
    """Existing cluster: its address, ``tls://host:8786``."""
    ca: Path | None = None
    """Existing cluster: PEM file of the authority that signed all certificates."""
    certificate: Path | None = None
    """Existing cluster: PEM file of this command's certificate."""
    key: Path | None = None
    """Existing cluster: PEM file of this command's private key."""
    workers: Literal["here"] | None = None
    """``here``: one worker process on this machine for each host, to try a plan."""
    listen: str | None = None
    """ssh: the address of this machine that the hosts connect to."""
    command: Annotated[tuple[str, ...], Field(min_length=1)] = ("virtgauge",)
    """ssh: the command that starts virtgauge on the hosts."""
    one_machine: bool = False
    """Allow several hosts to be the same machine, to try a plan. The report says so."""
    losses: Annotated[int, Field(ge=0, le=100)] = 3
    """How often a batch may lose its worker before its host is set aside."""
    wait_s: Annotated[float, Field(ge=1, le=86_400)] = 300.0
    """How long a worker, or an existing cluster's scheduler, may be away, at the start or after a loss."""
    pair: tuple[FleetPair, ...] = ()
    """Suites whose tester is on another host (``[[fleet.pair]]``)."""

    @field_validator("listen")
    @classmethod
    def _is_an_address(cls, value: str | None) -> str | None:
        if value is not None and ipaddress.ip_address(value).is_unspecified:
            raise ValueError("give the one address of this machine that the hosts reach, not all of them")
        return value

    @property
    def start(self) -> Start:
        if self.scheduler is not None:
            return Start.CLUSTER
        return Start.HERE if self.workers == "here" else Start.SSH

    @model_validator(mode="after")
    def _fields_fit(self) -> Self:
        names = [host.name for host in self.hosts]
        self._each_once(names, "name")
        self._each_once([host.worker for host in self.hosts], "address")
        self._each_once([host.machine_id for host in self.hosts if host.machine_id], "machine_id")
        given = {"scheduler": self.scheduler, "workers": self.workers, "listen": self.listen}
        said = [field for field, value in given.items() if value is not None]
        if len(said) != 1:
            raise ValueError(
                "give one of scheduler (an existing cluster), listen (workers are started by ssh) and "
                f'workers = "here" (for trying); {" and ".join(said) or "none of them"} is given'
            )
        self._credentials_fit()
        if self.start is Start.SSH and (bare := [host.name for host in self.hosts if host.address is None]):
            raise ValueError(f'host {bare[0]!r} needs address = "user@host" to be reached by ssh')
        for host in self.hosts if self.start is Start.SSH else ():
            try:
                Hop.parse(host.address or "")
            except ValueError as error:
                raise ValueError(f"host {host.name!r}: address = {host.address!r}: {error}") from None
        if self.start is Start.HERE and len(names) > 1 and not self.one_machine:
            raise ValueError(
                'workers = "here" makes several hosts of this one machine, which disturb each other; say one_machine = '
                "true to try it anyway"
            )
        if self.start is Start.HERE and self.pair:
            raise ValueError(
                'pair: workers = "here" are processes of this one machine, which has no wire to itself; give hosts of '
                "their own, by listen or scheduler"
            )
        for pair in self.pair:
            self._pair_fits(pair, names)
        self._each_has_its_use()
        return self

    def _each_has_its_use(self) -> None:
        testers, measured = {pair.tester for pair in self.pair}, {host.name for host in self.hosts if host.measured}
        if not measured:
            raise ValueError("no host is measured; leave measured = false out")
        for host in self.hosts:
            if not host.measured and host.name not in testers:
                raise ValueError(f"host {host.name!r} is not measured and no pair's tester; leave it out")
        for pair in self.pair:
            if pair.guests not in measured:
                raise ValueError(f"pair: {pair.guests!r} is to have guests, but measured = false")

    def _each_once(self, values: list[Any], field: str) -> None:
        for value in values:
            if values.count(value) > 1:
                raise ValueError(f"two hosts have {field} = {value!r}; each host is one machine with its own")

    def _credentials_fit(self) -> None:
        files = {"ca": self.ca, "certificate": self.certificate, "key": self.key}
        if self.start is Start.CLUSTER:
            if missing := [field for field, path in files.items() if path is None]:
                raise ValueError(f"an existing cluster needs {missing[0]}: the path of a PEM file")
        elif given := [field for field, path in files.items() if path is not None]:
            raise ValueError(f"{given[0]} is of an existing cluster; for workers that it starts, the run makes its own")

    def _pair_fits(self, pair: FleetPair, names: list[str]) -> None:
        for end in (pair.tester, pair.guests):
            if end not in names:
                raise ValueError(f"pair: {end!r} is no host of the fleet; choose from {', '.join(names)}")
        if len([one for one in self.pair if (one.suite, one.guests) == (pair.suite, pair.guests)]) > 1:
            raise ValueError(f"pair: suite.{pair.suite} of {pair.guests!r} has two testers; leave one out")
        if pair.tester == pair.guests:
            raise ValueError(f"pair: tester and guests are both on {pair.tester!r}; leave the pair out")
