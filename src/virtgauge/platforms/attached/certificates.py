"""Certificates with keys of their own: of an authority for one run, of those that it certifies, or signed by itself."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterable

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


@dataclasses.dataclass(frozen=True)
class Certified:
    """A certificate and its private key, which is written nowhere unless somebody does."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    @property
    def key_pem(self) -> str:
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode()


def authority(since: datetime.datetime, until: datetime.datetime) -> Certified:
    """An authority for one run. Its key is never written: when it is dropped, no further certificate can come to be."""
    only_ends = x509.BasicConstraints(ca=True, path_length=0)
    return _certified("virtgauge run", since, until, [(only_ends, True), (_usage(certifies=True), True)])


def signed(by: Certified, name: str, since: datetime.datetime, *, listens: bool) -> Certified:
    """A new certificate, of a listening or of a dialling side, that is valid as long as the authority."""
    purpose = ExtendedKeyUsageOID.SERVER_AUTH if listens else ExtendedKeyUsageOID.CLIENT_AUTH
    extensions = (
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (_usage(certifies=False), True),
        (x509.ExtendedKeyUsage([purpose]), True),
        (x509.SubjectAlternativeName([x509.DNSName(name)]), False),
    )
    return _certified(name, since, by.certificate.not_valid_after_utc, extensions, by)


def self_signed(name: str, since: datetime.datetime, until: datetime.datetime) -> tuple[str, str]:
    """A certificate for every end of those that share it, which signs no other, and its private key (PEM)."""
    own = _certified(name, since, until, [(x509.SubjectAlternativeName([x509.DNSName(name)]), False)])
    return own.pem, own.key_pem


def _certified(
    name: str,
    since: datetime.datetime,
    until: datetime.datetime,
    extensions: Iterable[tuple[x509.ExtensionType, bool]],  # in their order, and whether each is critical
    by: Certified | None = None,  # itself without one
) -> Certified:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if by is None else by.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(since)
        .not_valid_after(until)
    )
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical=critical)
    return Certified(builder.sign(key if by is None else by.key, hashes.SHA256()), key)


def _usage(*, certifies: bool) -> x509.KeyUsage:
    rest = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    others = dict.fromkeys((*rest, "crl_sign", "encipher_only", "decipher_only"), False)
    return x509.KeyUsage(digital_signature=not certifies, key_cert_sign=certifies, **others)
