"""A stand-in for the API server of Kubernetes: one ConfigMap, TLS by its own authority, a token, merge patches."""

from __future__ import annotations

import datetime
import http.server
import ipaddress
import json
import ssl
import threading
from pathlib import Path
from typing import Any, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

NAME, NAMESPACE, TOKEN = "virtgauge-verdict", "measuring", "a.token.of-this-test"
PATH = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{NAME}"


class ApiServer:
    """Writes the files of a ServiceAccount into a folder, and listens on the loopback while it is entered."""

    def __init__(self, account: Path) -> None:
        self.account = account
        self.config_map: dict[str, Any] = {"kind": "ConfigMap", "metadata": {"name": NAME}, "data": {"note": "mine"}}
        self.patches: list[dict[str, Any]] = []  # that were applied
        self.seen: list[tuple[str, int]] = []  # each request's path, and its answer's status
        self.refusals: list[int] = []  # the status of the next answers, whatever they are to; 0 is none of HTTP
        self.answering = threading.Event()  # while it is not set, answers wait
        self.answering.set()
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        account.mkdir()
        certificate = _certificates(account)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    def environment(self) -> dict[str, str]:
        """What a kubelet tells each container."""
        return {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(self._server.server_port)}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def _answer(self, path: str, headers: Any, body: bytes) -> tuple[int, dict[str, Any]]:
        status = self.refusals.pop(0) if self.refusals else 200
        if status != 200:
            return status, {"kind": "Status", "message": "nope"}
        if headers["Authorization"] != f"Bearer {TOKEN}":
            return 401, {"kind": "Status", "message": "Unauthorized"}
        if path != PATH:
            return 403, {"kind": "Status", "message": f"cannot patch {path}"}
        if headers["Content-Type"] != "application/merge-patch+json":
            return 415, {"kind": "Status", "message": "the body of the request was in an unknown format"}
        patch = json.loads(body)
        self.patches.append(patch)
        self.config_map = _merged(self.config_map, patch)
        assert all(isinstance(value, str) for value in self.config_map["data"].values())
        return 200, self.config_map

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_PATCH(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status, answer = server._answer(self.path, self.headers, body)
                server.seen.append((self.path, status))
                server.answering.wait(30)
                if not status:
                    self.wfile.write(b"nothing of HTTP\r\n")
                    return
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(answer).encode())

            def log_message(self, *_: object) -> None:
                pass

        return Handler


def _merged(target: Any, patch: Any) -> Any:
    """RFC 7396, section 2."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merged(merged.get(name), value)
    return merged


def _certificates(account: Path) -> Path:
    """The account's files, with the authority that signed the server's certificate; that and its key in one file."""
    keys = {name: ec.generate_private_key(ec.SECP256R1()) for name in ("authority", "server")}
    names = {name: x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) for name in keys}
    now = datetime.datetime.now(datetime.UTC)
    signed = {}
    for name, key in keys.items():
        new = x509.CertificateBuilder().subject_name(names[name]).issuer_name(names["authority"])
        new = new.public_key(key.public_key()).serial_number(x509.random_serial_number())
        new = new.not_valid_before(now - datetime.timedelta(hours=1)).not_valid_after(now + datetime.timedelta(days=1))
        new = new.add_extension(x509.BasicConstraints(name == "authority", None), critical=True)
        if name == "server":
            address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
            new = new.add_extension(x509.SubjectAlternativeName([address]), critical=False)
        signed[name] = new.sign(keys["authority"], hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    (account / "ca.crt").write_bytes(signed["authority"])
    (account / "token").write_text(TOKEN)
    (account / "namespace").write_text(NAMESPACE)
    private = keys["server"].private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    both = account.with_name(f"{account.name}-server.pem")
    both.write_bytes(private + signed["server"])
    return both
