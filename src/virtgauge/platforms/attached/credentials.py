"""Certificates of one run: an authority that is forgotten at once, and the only two that it ever certified.

Both ends speak TLS 1.3 and accept nobody but the other.  The authority's private key is never written and dropped as
soon as it has signed, so no third certificate can come to be.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import ssl
import tempfile
from pathlib import Path
from typing import Any, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from virtgauge.errors import UsageError

CONTROLLER_NAME = "controller.virtgauge"
"""What the controller is certified as: the machine knows it by the run's authority, and not by an address."""
LONGEST_RUN = datetime.timedelta(days=7)
"""How long those of a run are valid that nobody prepared; a run that ends makes them useless earlier."""

_IDENTITY_HEAD = "virtgauge identity 1"
_FORMAT = 1
_LONG_AGO = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
"""A machine without a clock of its own begins here, and shall find the controller's certificate valid all the same."""
_SKEW = datetime.timedelta(minutes=5)


@dataclasses.dataclass(frozen=True)
class Credentials:
    """What the controller proves itself with, and whom it lets in; all PEM.

    Attributes:
        authority: the certificate that both others are signed with.
        controller: certificate and private key of the listening side.
        agent: certificate and private key of the dialling side.
        expires: seconds since 1970.
    """

    authority: str
    controller: str
    agent: str
    expires: int

    @classmethod
    def make(cls, valid: datetime.timedelta = LONGEST_RUN) -> Self:
        """New ones, valid from now."""
        now = datetime.datetime.now(datetime.UTC)
        until = now + valid
        issuer_key = ec.generate_private_key(ec.SECP256R1())
        issuer = _name("virtgauge run")
        authority = (
            _builder(issuer, issuer, issuer_key, _LONG_AGO, until)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(certifies=True), critical=True)
            .sign(issuer_key, hashes.SHA256())
        )

        def certified(name: str, since: datetime.datetime, purpose: x509.ObjectIdentifier) -> str:
            key = ec.generate_private_key(ec.SECP256R1())
            certificate = (
                _builder(_name(name), issuer, key, since, until)
                .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
                .add_extension(_usage(certifies=False), critical=True)
                .add_extension(x509.ExtendedKeyUsage([purpose]), critical=True)
                .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
                .sign(issuer_key, hashes.SHA256())
            )
            return (
                _pem(certificate)
                + key.private_bytes(
                    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
                ).decode()
            )

        return cls(
            authority=_pem(authority),
            controller=certified(CONTROLLER_NAME, _LONG_AGO, ExtendedKeyUsageOID.SERVER_AUTH),
            # judged by this machine's own clock, so it need not reach back
            agent=certified("agent.virtgauge", now - _SKEW, ExtendedKeyUsageOID.CLIENT_AUTH),
            expires=int(until.timestamp()),
        )

    def identity(self) -> str:
        """The agent's identity file, as ``virtgauge-agent --identity`` reads it; secret."""
        certificate, key = self.agent.split("-----BEGIN PRIVATE KEY-----", 1)
        return (
            f"{_IDENTITY_HEAD}\nexpires {self.expires}\n{certificate}{self.authority}-----BEGIN PRIVATE KEY-----{key}"
        )

    def context(self) -> ssl.SSLContext:
        """For the listening side: TLS 1.3, a certificate of the other side demanded, nothing that could be resumed."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=self.authority)
        context.num_tickets = 0
        with tempfile.NamedTemporaryFile("w", prefix="virtgauge-") as file:  # of mode 600; OpenSSL reads a file only
            file.write(self.controller)
            file.flush()
            context.load_cert_chain(file.name)
        return context

    def agent_certificate(self) -> bytes:
        """The only certificate that is let in (DER)."""
        return ssl.PEM_cert_to_DER_cert(self.agent.split("-----BEGIN PRIVATE KEY-----", 1)[0])

    @property
    def expired(self) -> bool:
        """Whether they hold no longer."""
        return datetime.datetime.now(datetime.UTC).timestamp() >= self.expires

    def save(self, path: Path) -> None:
        """Write both sides' secrets to a new file of mode 600, for a later run on this machine."""
        write_secret(path, json.dumps({"format": _FORMAT, **dataclasses.asdict(self)}, indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what :meth:`save` wrote.

        Raises:
            UsageError: it cannot be read, is something else, or has expired.
        """
        remedy = "make them anew: virtgauge attach prepare"
        try:
            mode = path.stat().st_mode & 0o777
            value: dict[str, Any] = json.loads(path.read_text())
            if value.pop("format") != _FORMAT:
                raise ValueError("another version wrote it")
            found = cls(**value)
            found.context()
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(f"the credentials {path} cannot be used: {error}", remedy) from error
        if mode & 0o077:
            raise UsageError(f"the credentials {path} can be read by others (mode {mode:o})", f"chmod 600 {path}")
        if found.expired:
            raise UsageError(f"the credentials {path} have expired", remedy)
        return found


def write_secret(path: Path, text: str | bytes) -> None:
    """Write a new file that nobody else can read.

    Raises:
        OSError: it exists, or cannot be written.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(text.encode() if isinstance(text, str) else text)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    since: datetime.datetime,
    until: datetime.datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(since)
        .not_valid_after(until)
    )


def _usage(*, certifies: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not certifies,
        key_cert_sign=certifies,
        crl_sign=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
