"""A plan's section of kind ``attached``, and the addresses in it."""

from __future__ import annotations

import dataclasses
import ipaddress
import re
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

_OF_SSH = ("host", "port", "user", "identity_file", "known_hosts", "jump_host", "sudo", "folder")
_OF_DIAL_IN = ("listen", "advertise", "credentials", "wait_s")
_HOP = re.compile(r"(?:(?P<user>[^@\s]+)@)?(?P<host>\[[0-9A-Fa-f:.]+\]|[^@:\s]+)(?::(?P<port>\d+))?")


@dataclasses.dataclass(frozen=True)
class Endpoint:
    """An IP address and a TCP port."""

    address: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``192.0.2.1:7443`` or ``[2001:db8::1]:7443``.

        Raises:
            ValueError: it is none; the agent is static and resolves no names.
        """
        host, colon, port = text.rpartition(":")
        try:
            address = ipaddress.ip_address(host[1:-1] if host.startswith("[") and host.endswith("]") else host)
            number = int(port)
        except ValueError:
            raise ValueError("give an IP address and a port, as 192.0.2.1:7443 or [2001:db8::1]:7443") from None
        if not colon or not 1 <= number <= 65535 or (address.version == 6) != host.startswith("["):
            raise ValueError("give an IP address and a port from 1 to 65535, as 192.0.2.1:7443 or [2001:db8::1]:7443")
        return cls(str(address), number)

    @property
    def everywhere(self) -> bool:
        """Whether it stands for all addresses of a machine, and so cannot be dialled."""
        return ipaddress.ip_address(self.address).is_unspecified

    def __str__(self) -> str:
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


@dataclasses.dataclass(frozen=True)
class Hop:
    """An ssh server on the way: ``[user@]host[:port]``; None where the user's own ssh configuration says it."""

    host: str
    user: str | None
    port: int | None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ValueError where the text is none."""
        found = _HOP.fullmatch(text)
        if not found or (found["port"] and not 1 <= int(found["port"]) <= 65535):
            raise ValueError("give [user@]host[:port], an IPv6 address in brackets")
        return cls(found["host"].strip("[]"), found["user"], int(found["port"]) if found["port"] else None)


class AttachedSettings(BaseModel):
    """A machine that exists already. The keys depend on ``via``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

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
    jump_host: str | None = None
    """ssh: ``[user@]host[:port]`` of a server to go through."""
    sudo: bool = False
    """ssh: start the agent with `sudo -n`."""
    folder: str | None = None
    """ssh: where the agent's private folder is made. By default the first folder that allows programs, /tmp first."""

    listen: str | None = None
    """dial-in: address and port of this machine, such as ``192.0.2.1:7443``."""
    advertise: str | None = None
    """dial-in: what the machine dials, if it differs from ``listen`` (behind a NAT, or with 0.0.0.0)."""
    credentials: Path | None = None
    """dial-in: the folder made by `virtgauge attach prepare`. By default credentials are made for the run."""
    wait_s: Annotated[float, Field(ge=1, le=86_400)] = 600.0
    """dial-in: how long the machine may take to call for the first time."""

    @field_validator("jump_host")
    @classmethod
    def _is_a_hop(cls, value: str | None) -> str | None:
        if value is not None:
            Hop.parse(value)
        return value

    @field_validator("listen", "advertise")
    @classmethod
    def _is_an_endpoint(cls, value: str | None) -> str | None:
        return None if value is None else str(Endpoint.parse(value))

    @field_validator("folder")
    @classmethod
    def _is_absolute(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith("/"):
            raise ValueError("give an absolute path of the far machine, as /var/tmp")
        return value

    @model_validator(mode="after")
    def _fields_fit(self) -> Self:
        own, others = (_OF_SSH, _OF_DIAL_IN) if self.via == "ssh" else (_OF_DIAL_IN, _OF_SSH)
        if stray := [field for field in others if field in self.model_fields_set]:
            raise ValueError(f'{stray[0]} means nothing with via = "{self.via}": its fields are {", ".join(own)}')
        if self.via == "ssh" and self.host is None:
            raise ValueError('via = "ssh" needs host: the machine\'s name or address')
        if self.via == "dial-in":
            if self.listen is None:
                raise ValueError('via = "dial-in" needs listen: an address and port of this machine, as 192.0.2.1:7443')
            if self.advertise is None and Endpoint.parse(self.listen).everywhere:
                raise ValueError(f"listen = {self.listen!r} cannot be dialled: give advertise, what the machine dials")
        return self

    @property
    def dialled(self) -> Endpoint:
        """What the machine dials."""
        assert self.listen is not None
        return Endpoint.parse(self.advertise or self.listen)
