"""Who may look: names that the server answers to, and the token that it asks for on addresses others can reach."""

from __future__ import annotations

import dataclasses
import hmac
import ipaddress
import os
import secrets
import socket
from collections.abc import Collection, Mapping
from pathlib import Path

from virtgauge.errors import UsageError

TOKEN_VARIABLE = "VIRTGAUGE_SERVE_TOKEN"
SHORTEST_TOKEN = 16


@dataclasses.dataclass(frozen=True)
class Access:
    """The rules."""

    token: str | None  # asked for once; None where everybody who can reach the server may look
    # that the server answers to, besides addresses: a page elsewhere whose name was made to mean this machine (DNS
    # rebinding) sends its own
    names: frozenset[str] = frozenset()
    # what the browser is given for the token, as a cookie; forgotten when the server ends
    session: str = dataclasses.field(default_factory=lambda: secrets.token_urlsafe(32))

    def knows_host(self, header: str | None) -> bool:
        """Whether a request's ``Host`` is an address or one of the names; the port may be that of a tunnel."""
        if not header:
            return False
        name = header.rpartition("]")[0].removeprefix("[") if header.startswith("[") else header.partition(":")[0]
        return name.lower() in self.names or is_address(name)

    def accepts_token(self, given: bytes) -> bool:
        """Whether this is the token; takes as long whatever is given."""
        return self.token is not None and hmac.compare_digest(given, self.token.encode())

    def accepts_session(self, given: str | None) -> bool:
        """Whether a request without token may pass."""
        return self.token is None or hmac.compare_digest((given or "").encode(), self.session.encode())


def came_from_elsewhere(headers: Mapping[str, str]) -> bool:
    """Whether a browser says that another site's page asks for this as a part of itself, and no link was followed."""
    site, destination = headers.get("Sec-Fetch-Site", "none"), headers.get("Sec-Fetch-Dest", "document")
    return site not in ("none", "same-origin") and destination != "document"


def is_address(text: str) -> bool:
    """Whether it is an IP address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def access_for(address: str, token_file: Path | None, allowed: Collection[str]) -> tuple[Access, bool]:
    """The rules for an address, and whether the token was drawn just now, so that it has to be told.

    The token is that of the file, else of the environment; beyond loopback one is drawn where there is none. Raises
    UsageError: the address is none, or the token cannot be read or is too short.
    """
    if not is_address(address):
        raise UsageError(
            f"--address {address}: not an address of this machine", "give one: 127.0.0.1, ::1, 0.0.0.0 for all"
        )
    names = frozenset(name.lower() for name in ("localhost", socket.gethostname(), socket.getfqdn(), *allowed) if name)
    token, source = os.environ.get(TOKEN_VARIABLE), TOKEN_VARIABLE
    if token_file is not None:
        source = f"--token-file {token_file}"
        try:
            token = token_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{source} cannot be read: {error}", "check the path") from error
    if token is not None and (len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable()):
        raise UsageError(
            f"{source}: a token has at least {SHORTEST_TOKEN} printable ASCII characters",
            "make one: python3 -c 'import secrets; print(secrets.token_urlsafe())'",
        )
    if token is None and not ipaddress.ip_address(address).is_loopback:
        return Access(secrets.token_urlsafe(24), names), True
    return Access(token, names), False
