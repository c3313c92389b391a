"""Servers that are there already, named by a plan: never started, never stopped, never told to forget anything.

Their passwords come from the environment, because a plan is kept with the run and shown in its report.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import re
import socket
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field, ValidationInfo, field_validator

from virtgauge.agent.channel import Channel
from virtgauge.errors import UsageError
from virtgauge.host.machine import fingerprint
from virtgauge.plan import Section, written_as
from virtgauge.suites.storage.databases import DATABASES, database

SERVED = tuple(name for name, product in DATABASES.items() if product.schemes)  # The databases that have servers

_NAME = written_as(r"|[A-Za-z0-9][A-Za-z0-9._-]{0,39}", "use 1 to 40 letters, digits, dots, dashes and underscores")
_TABLE = written_as(
    r"[a-z][a-z0-9_]{0,47}", "use 1 to 48 lower-case letters, digits and underscores, beginning with a letter"
)
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_ADDRESSES = ("/proc/net/fib_trie", "/proc/net/if_inet6")
_CONNECTIONS = ("/proc/net/tcp", "/proc/net/tcp6")
_OWN_IPV4 = re.compile(r"\|-- ([\d.]+)\n(?: +/\d+ .*\n)*? +/32 host LOCAL")
_REMOTE_END = re.compile(r"^ *\d+: [0-9A-F]+:[0-9A-F]{4} ([0-9A-F]+):([0-9A-F]{4}) ", re.MULTILINE)


class ExistingServer(Section):
    """A server that runs already, on the host or an attached machine, used from the host. A plan may name several."""

    database: Annotated[str, Field(json_schema_extra={"enum": [*SERVED]})]
    """The product."""
    uri: str
    """Address such as ``postgresql://user@host:5432/database``, without a password."""
    password_env: str | None = None
    """Environment variable that holds the password."""
    name: Annotated[str, _NAME] = ""
    """What reports call it; database and host by default."""
    table: Annotated[str, _TABLE] = "virtgauge_readings"
    """Created for each trial and dropped after it."""
    allow_drop: bool = False
    """An existing table of that name may be dropped. Otherwise it is never touched and the trial fails."""

    @field_validator("database")
    @classmethod
    def _has_servers(cls, value: str) -> str:
        if value not in SERVED:
            raise ValueError(f"no servers of that name are known; choose one of: {', '.join(SERVED)}")
        return value

    @field_validator("uri")
    @classmethod
    def _is_a_uri(cls, value: str, info: ValidationInfo) -> str:
        product = DATABASES[info.data.get("database", SERVED[0])]
        example = f"{product.schemes[0]}://user@host:{product.port}/database"
        try:
            parts = urllib.parse.urlsplit(value)
            host, _ = parts.hostname, parts.port
        except ValueError as error:
            raise ValueError(f"is no address: {error}; write it as in {example}") from error
        if parts.scheme not in product.schemes or not host:
            raise ValueError(f"is no address of {product.name}; write it as in {example}")
        option = product.uri_option
        if parts.fragment or (parts.query and not (option and re.fullmatch(f"{option}=[^&=]+", parts.query))):
            allowed = f", with ?{option}=… behind it where it is needed" if option else ""
            raise ValueError(f"options in the address are not passed on; write it as in {example}{allowed}")
        return value

    def model_post_init(self, _context: Any, /) -> None:
        if not self.name:
            object.__setattr__(self, "name", f"{self.database}.{urllib.parse.urlsplit(self.uri).hostname}")

    def password(self) -> str:
        """From the environment; empty where the server asks for none. Raises UsageError: the variable is not set."""
        if self.password_env is None:
            return ""
        if self.password_env not in os.environ:
            raise UsageError(
                f"the password of the server {self.name} is to be in ${self.password_env}, which is not set",
                f"export {self.password_env}=…",
            )
        return os.environ[self.password_env]

    def missing_prerequisite(self) -> str | None:
        """Why its password cannot be had and what would help, in words; None where it can, or none is asked for."""
        try:
            self.password()
        except UsageError as error:
            return f"{error.message} (to enable it: {error.remedy})"
        return None

    def store(self, timeout_ms: int) -> dict[str, Any]:
        """The ``store`` of sensorstore's specifications. Raises UsageError: the password is not in the environment."""
        parts, password, product = urllib.parse.urlsplit(self.uri), self.password(), database(self.database)
        return {
            "driver": product.driver,
            "address": parts.hostname,
            "port": parts.port or product.port,
            "uri": product.client_uri(parts, password),
            "user": urllib.parse.unquote(parts.username or "virtgauge"),
            "password": password,
            "database": urllib.parse.unquote(parts.path.lstrip("/")) or "virtgauge",
            "table": self.table,
            "timeout_ms": timeout_ms,
            "options": {},
        }


async def not_on(machine: Channel, address: str, port: int) -> str | None:
    """Why what answers at an address is not shown to be on a machine, in words; None where it is.

    It is where every address that the name stands for is the machine's own, or the machine has our connection.
    """
    loop, reached = asyncio.get_running_loop(), False
    why = "it has no address"
    try:
        places = await loop.getaddrinfo(address, port, type=socket.SOCK_STREAM)
    except OSError as error:
        return f"{address} is not known here: {error}"
    for place in dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in places):
        try:
            async with asyncio.timeout(10.0):
                _, connection = await asyncio.open_connection(place, port)
        except (OSError, TimeoutError) as error:
            why = str(error) or "in time"
            continue
        with contextlib.closing(connection):
            reached, here = True, connection.get_extra_info("sockname")
            told = (await machine.request("read", paths=[*_ADDRESSES, *_CONNECTIONS])).value["files"]
            tables = {path: bytes(table or b"").decode(errors="replace") for path, table in told.items()}
            boot_id = (await machine.facts())["boot_id"]
            of_this_machine = boot_id == fingerprint()["context"]["boot_id"]
            if not _is_on(tables, _address(place), _address(here[0]), here[1], of_this_machine=of_this_machine):
                return f"{place} is no address of that machine, and it has no connection from here"
    return None if reached else f"nothing answers at {address}, port {port} ({why})"


def _is_on(tables: Mapping[str, str], server: Address, here: Address, port: int, *, of_this_machine: bool) -> bool:
    """Whether a machine, by its own tables, is at the other end of a connection from an address and port of ours.

    Addresses of this machine are nobody's elsewhere, though others may have them, too: 127.0.0.1, a bridge's.
    """
    if (server.is_loopback or server == here) and not of_this_machine:
        return False
    ends = {end for path in _CONNECTIONS for end in _REMOTE_END.findall(tables.get(path, ""))}
    if ends & {(form, f"{port:04X}") for form in _as_kernel_writes(here)}:
        return True
    own = {*_OWN_IPV4.findall(tables.get(_ADDRESSES[0], ""))}
    own |= {line.partition(" ")[0] for line in tables.get(_ADDRESSES[1], "").splitlines()}
    named = str(server) if server.version == 4 else server.packed.hex()
    return named in own and not server.is_loopback and server != here


def _address(text: str) -> Address:
    found = ipaddress.ip_address(text.partition("%")[0])
    return getattr(found, "ipv4_mapped", None) or found


def _as_kernel_writes(address: Address) -> set[str]:
    """``0100007F``: groups of four bytes, the last byte first; of IPv4 also as sockets of IPv6 have it."""
    packed = address.packed
    words = "".join(packed[at : at + 4][::-1].hex().upper() for at in range(0, len(packed), 4))
    return {words} if address.version == 6 else {words, f"{'0' * 16}FFFF0000{words}"}


def allowing_drop(sections: Sequence[Mapping[str, Any]]) -> tuple[tuple[dict[str, Any], ...], int]:
    """A plan's ``[[suite.storage]]`` with every existing server allowed to lose its table, and how many they are."""
    allowed, count = [], 0
    for section in sections:
        servers = [{**server, "allow_drop": True} for server in section.get("server", ())]
        count += len(servers)
        allowed.append({**section, "server": servers} if servers else dict(section))
    return tuple(allowed), count


def refuse_passwords(section: object) -> str | None:
    """Why a section of a plan must not be taken as it is: a password in an address.  It is not repeated here."""
    servers = section.get("server") if isinstance(section, dict) else None
    for index, server in enumerate(servers if isinstance(servers, list | tuple) else ()):
        uri = server.get("uri") if isinstance(server, dict) else None
        if isinstance(uri, str) and re.match(r"[a-z]+://[^/@]*:[^/]*@", uri):
            return (
                f"server[{index}].uri holds a password, and a plan is kept with its run; "
                'leave it out and give password_env = "NAME", the environment variable that has it'
            )
    return None
