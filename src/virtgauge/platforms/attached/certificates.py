"""An authority for one run, and the certificates that it signs; or one that is its own.

The authority's private key is never written and is dropped with the object, so no further certificate can come to be.
"""

from __future__ import annotations

import datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


class Authority:
    """Signs certificates that are valid no longer than itself.

    Attributes:
        certificate: its own (PEM).
    """

    def __init__(self, since: datetime.datetime, until: datetime.datetime) -> None:
        self._until = until
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("virtgauge run")
        self.certificate = _pem(
            _builder(self._name, self._name, self._key, since, until)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(certifies=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )

    def server(self, name: str, since: datetime.datetime) -> str:
        """A new certificate and private key of a listening side (PEM)."""
        return self._certified(name, since, ExtendedKeyUsageOID.SERVER_AUTH)

    def client(self, name: str, since: datetime.datetime) -> str:
        """A new certificate and private key of a dialling side (PEM)."""
        return self._certified(name, since, ExtendedKeyUsageOID.CLIENT_AUTH)

    def _certified(self, name: str, since: datetime.datetime, purpose: x509.ObjectIdentifier) -> str:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            _builder(_name(name), self._name, key, since, self._until)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(certifies=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return _pem(certificate) + _secret(key)


def self_signed(name: str, since: datetime.datetime, until: datetime.datetime) -> tuple[str, str]:
    """A certificate for every end of those that share it, which signs no other, and its private key (PEM)."""
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _builder(_name(name), _name(name), key, since, until)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _pem(certificate), _secret(key)


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
    rest = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    others = dict.fromkeys((*rest, "crl_sign", "encipher_only", "decipher_only"), False)
    return x509.KeyUsage(digital_signature=not certifies, key_cert_sign=certifies, **others)


def _secret(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
