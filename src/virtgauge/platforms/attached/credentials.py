"""Certificates of one run: an authority that is forgotten at once, and the only two that it ever certified.

Both ends speak TLS 1.3 and accept nobody but the other.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import ssl
from pathlib import Path
from typing import Any, Self

from virtgauge.errors import UsageError
from virtgauge.extras import require
from virtgauge.host.process import memory_file

CONTROLLER_NAME = "controller.virtgauge"
"""What the controller is certified as: the machine knows it by the run's authority, and not by an address."""
LONGEST_RUN = datetime.timedelta(days=7)
"""How long those of a run are valid that nobody prepared; a run that ends makes them useless earlier."""

_KEY = "-----BEGIN PRIVATE KEY-----"
_FORMAT = 1
_LONG_AGO = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
"""A machine without a clock of its own begins here, and shall find the controller's certificate valid all the same."""


@dataclasses.dataclass(frozen=True)
class Credentials:
    """What the controller proves itself with, and whom it lets in; all PEM."""

    authority: str  # the certificate that both others are signed with
    controller: str  # certificate and private key of the listening side
    agent: str  # certificate and private key of the dialling side
    expires: int  # seconds since 1970

    @classmethod
    def make(cls, valid: datetime.timedelta = LONGEST_RUN) -> Self:
        """New ones, valid from now.  Raises UnavailableError: the library that makes certificates is not installed."""
        require("attach", "making certificates")
        from virtgauge.platforms.attached.certificates import authority, signed

        now = datetime.datetime.now(datetime.UTC)
        certifying = authority(_LONG_AGO, now + valid)
        controller = signed(certifying, CONTROLLER_NAME, _LONG_AGO, listens=True)
        # judged by this machine's own clock, so it need not reach back
        agent = signed(certifying, "agent.virtgauge", now - datetime.timedelta(minutes=5), listens=False)
        return cls(
            authority=certifying.pem,
            controller=controller.pem + controller.key_pem,
            agent=agent.pem + agent.key_pem,
            expires=int((now + valid).timestamp()),
        )

    def identity(self) -> str:
        """The agent's identity file, as ``virtgauge-agent --identity`` reads it; secret."""
        certificate, mark, key = self.agent.partition(_KEY)
        return f"virtgauge identity 1\nexpires {self.expires}\n{certificate}{self.authority}{mark}{key}"

    def context(self) -> ssl.SSLContext:
        """For the listening side: TLS 1.3, a certificate of the other side demanded, nothing that could be resumed."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=self.authority)
        context.num_tickets = 0
        with memory_file(self.controller) as path:
            context.load_cert_chain(path)
        return context

    def agent_certificate(self) -> bytes:
        """The only certificate that is let in (DER)."""
        return ssl.PEM_cert_to_DER_cert(self.agent.partition(_KEY)[0])

    @property
    def expired(self) -> bool:
        return datetime.datetime.now(datetime.UTC).timestamp() >= self.expires

    def save(self, path: Path) -> None:
        """Write both sides' secrets to a new file of mode 600, for a later run on this machine."""
        write_secret(path, json.dumps({"format": _FORMAT, **dataclasses.asdict(self)}, indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what :meth:`save` wrote.  Raises UsageError: it cannot be read, is something else, or has expired."""
        remedy = "create new ones: virtgauge attach prepare"
        try:
            mode = path.stat().st_mode & 0o777
            value: dict[str, Any] = json.loads(path.read_text())
            if value.pop("format") != _FORMAT:
                raise ValueError("another version wrote it")
            found = cls(**value)
            found.context()
            if _KEY not in found.agent:
                raise ValueError("the agent's key is missing")
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(f"the credentials {path} cannot be used: {error}", remedy) from error
        if mode & 0o077:
            raise UsageError(f"the credentials {path} can be read by others (mode {mode:o})", f"chmod 600 {path}")
        if found.expired:
            raise UsageError(f"the credentials {path} have expired", remedy)
        return found


def write_secret(path: Path, text: str | bytes) -> None:
    """Write a new file that nobody else can read.  Raises OSError: it exists, or cannot be written."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
        file.write(text.encode() if isinstance(text, str) else text)
