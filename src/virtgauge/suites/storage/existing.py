"""Servers that are there already, named by a plan: never started, never stopped, never told to forget anything.

Their passwords come from the environment, because a plan is kept with the run and shown in its report.
"""

from __future__ import annotations

import os
import re
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from virtgauge.errors import UsageError
from virtgauge.suites.storage.databases import DATABASES, database

SERVED = tuple(name for name, product in DATABASES.items() if product.schemes)  # The databases that have servers

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
_TABLE = re.compile(r"[a-z][a-z0-9_]{0,47}")


class ExistingServer(BaseModel):
    """A server that runs already, on the host or an attached machine, used from the host. A plan may name several."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    database: Annotated[str, Field(json_schema_extra={"enum": [*SERVED]})]
    """The product."""
    uri: str
    """Address such as ``postgresql://user@host:5432/database``, without a password."""
    password_env: str | None = None
    """Environment variable that holds the password."""
    name: str = ""
    """What reports call it; database and host by default."""
    table: str = "virtgauge_readings"
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

    @field_validator("name")
    @classmethod
    def _is_a_name(cls, value: str) -> str:
        if value and not _NAME.fullmatch(value):
            raise ValueError("use 1 to 40 letters, digits, dots, dashes and underscores")
        return value

    @field_validator("table")
    @classmethod
    def _is_a_table(cls, value: str) -> str:
        if not _TABLE.fullmatch(value):
            raise ValueError("use 1 to 48 lower-case letters, digits and underscores, beginning with a letter")
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
            "path": None,
            "library": None,
            "table": self.table,
            "timeout_ms": timeout_ms,
            "options": {},
        }


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
