"""What the members of a cluster prove themselves with: certificates, and TLS 1.3 only."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from virtgauge.errors import UsageError

if TYPE_CHECKING:
    from distributed.security import Security


@dataclasses.dataclass(frozen=True)
class TlsFiles:
    """An authority, a certificate that it signed, and its key: paths of PEM files, or PEM itself."""

    ca: str
    certificate: str
    key: str

    def security(self) -> Security:
        """For every role: whoever holds a certificate of a cluster may do anything in it."""
        import ssl

        from distributed.security import Security

        roles: dict[str, str] = {}
        for role in ("client", "scheduler", "worker"):
            roles |= {f"tls_{role}_cert": self.certificate, f"tls_{role}_key": self.key}
        security = Security(
            require_encryption=True, tls_ca_file=self.ca, tls_min_version=ssl.TLSVersion.TLSv1_3, **roles
        )
        try:
            security.get_connection_args("client")
        except (OSError, ssl.SSLError) as error:
            raise UsageError(
                f"certificate, key or authority cannot be used: {error}", "give PEM files that fit each other"
            ) from error
        return security

    @classmethod
    def temporary(cls) -> TlsFiles:
        """New ones that exist in memory only: one certificate for everybody, and no authority that could sign more."""
        from distributed.security import Security

        made = Security.temporary()
        return cls(made.tls_ca_file, made.tls_client_cert, made.tls_client_key)
