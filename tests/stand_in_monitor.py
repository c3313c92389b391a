"""A program in the place of Firecracker or Cloud Hypervisor: it takes the calls that their descriptions allow.

As a program (``stand_in_monitor.py KIND CONDUCT RECORD AGENT ARGUMENT…``) it serves their interface on a Unix socket,
and writes every call to RECORD.  Its guest is the agent, on the terminal that is its standard input and output, or what
CONDUCT says.  As a module it has the rules, which are written by hand and know nothing of the code under test.
"""

from __future__ import annotations

import http.server
import json
import os
import re
import socketserver
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

VERSIONS = {"firecracker": "Firecracker v1.12.0", "cloud-hypervisor": "cloud-hypervisor v45.0"}
_BUCKETS = {"bandwidth": dict, "ops": dict}
_LINES = ("Off", "Pty", "Tty", "File", "Socket", "Null")

FIRECRACKER: dict[str, Any] = {
    "/machine-config": {
        "vcpu_count!": range(1, 33),
        "mem_size_mib!": range(1, 1 << 31),
        "smt": bool,
        "track_dirty_pages": bool,
        "huge_pages": ("None", "Transparent", "2M"),
        "cpu_template": str,
    },
    "/boot-source": {"kernel_image_path!": str, "initrd_path": str, "boot_args": str},
    r"/drives/(\w+)": {
        "drive_id!": str,
        "is_root_device!": bool,
        "is_read_only": bool,
        "path_on_host": str,
        "cache_type": ("Unsafe", "Writeback"),
        "io_engine": ("Sync", "Async"),
        "partuuid": str,
        "rate_limiter": _BUCKETS,
        "socket": str,
    },
    r"/network-interfaces/(\w+)": {
        "iface_id!": str,
        "host_dev_name!": str,
        "guest_mac": str,
        "rx_rate_limiter": _BUCKETS,
        "tx_rate_limiter": _BUCKETS,
    },
    "/actions": {"action_type!": ("FlushMetrics", "InstanceStart", "SendCtrlAltDel")},
}
"""Fields of the body by the path of a PUT, those with a ``!`` required: of Firecracker 1.0 and all that followed.

A range is an integer within it, a tuple one of these words.
"""

CLOUD_HYPERVISOR: dict[str, Any] = {
    "/api/v1/vm.create": {
        "payload!": {"kernel": str, "cmdline": str, "initramfs": str, "firmware": str},
        "cpus": {"boot_vcpus!": range(1, 255), "max_vcpus!": range(1, 255), "topology": dict, "affinity": list},
        "memory": {"size!": range(1 << 20, 1 << 45), "mergeable": bool, "shared": bool, "hugepages": bool},
        "disks": [
            {
                "path": str,
                "readonly": bool,
                "direct": bool,
                "num_queues": range(1, 256),
                "id": str,
                "serial": str,
                "image_type": ("FixedVhd", "Qcow2", "Raw", "Vhdx", "Unknown"),
                "rate_limiter_config": _BUCKETS,
            }
        ],
        "net": [
            {
                "tap": str,
                "mac": str,
                "mtu": range(1 << 16),
                "num_queues": range(2, 256),
                "id": str,
                "offload_tso": bool,
                "offload_ufo": bool,
                "offload_csum": bool,
                "rate_limiter_config": _BUCKETS,
            }
        ],
        "serial": {"mode!": _LINES, "file": str, "socket": str},
        "console": {"mode!": tuple(mode for mode in _LINES if mode != "Socket"), "file": str},
        "rng": {"src!": str},
        "vsock": {"cid!": range(3, 1 << 32), "socket!": str},
    },
    "/api/v1/vm.boot": None,
}


class NotAllowedError(Exception):
    """A call that the description does not allow: the status of the answer, and its words."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def check(value: Any, rule: Any, where: str) -> None:
    """Whether a value is of a rule.  Raises NotAllowedError: it is not, and where."""
    if isinstance(rule, dict):
        if not isinstance(value, dict):
            raise NotAllowedError(400, f"{where} is no object")
        allowed = {name.rstrip("!"): of for name, of in rule.items()}
        for name in (name.rstrip("!") for name in rule if name.endswith("!")):
            if name not in value:
                raise NotAllowedError(400, f"missing field `{name}` of {where}")
        for name, inner in value.items():
            if name not in allowed:
                raise NotAllowedError(400, f"unknown field `{name}` of {where}, expected one of {', '.join(allowed)}")
            check(inner, allowed[name], f"{where}.{name}")
        return
    if isinstance(rule, list):
        if not isinstance(value, list):
            raise NotAllowedError(400, f"{where} is no list")
        for number, one in enumerate(value):
            check(one, rule[0], f"{where}[{number}]")
        return
    if isinstance(rule, range):
        fits = isinstance(value, int) and not isinstance(value, bool) and value in rule
    else:
        fits = value in rule if isinstance(rule, tuple) else type(value) is rule
    if not fits:
        raise NotAllowedError(400, f"{where} is {value!r}, expected {rule}")


class Interface:
    """What one monitor allows, one call after another."""

    def __init__(self, kind: str) -> None:
        self.rules = {"firecracker": FIRECRACKER, "cloud-hypervisor": CLOUD_HYPERVISOR}[kind]
        self.taken: list[str] = []  # the paths of calls that were allowed
        self.started = False

    def take(self, method: str, path: str, body: Any) -> bool:
        """Take a call; whether it starts the machine.  Raises NotAllowedError."""
        pattern = next((pattern for pattern in self.rules if re.fullmatch(pattern, path)), None)
        if method != "PUT" or pattern is None:
            raise NotAllowedError(404, f"Invalid request method and/or path: {method} {path}")
        if self.started:
            raise NotAllowedError(400, "The requested operation is not supported after starting the microVM")
        rule, named = self.rules[pattern], re.fullmatch(pattern, path)
        if (rule is None) != (body is None):
            raise NotAllowedError(400, "Empty PUT request." if body is None else f"{path} takes no body")
        if rule is not None:
            check(body, rule, path)
        assert named is not None
        for name in named.groups():
            if name not in (body.get("drive_id"), body.get("iface_id")):
                raise NotAllowedError(400, "The id from the path does not match the id from the body!")
        if body == {"action_type": "InstanceStart"} or path == "/api/v1/vm.boot":
            needed = "/boot-source" if path == "/actions" else "/api/v1/vm.create"
            if needed not in self.taken:
                raise NotAllowedError(400 if path == "/actions" else 404, f"cannot start without {needed}")
            self.started = True
        self.taken.append(path)
        return self.started


def _serve(socket: str, kind: str, conduct: str, record: Path, agent: str) -> None:
    interface = Interface(kind)

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_PUT(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            with record.open("a") as log:
                log.write(json.dumps([self.command, self.path, body]) + "\n")
            if conduct == "says nothing":
                time.sleep(600)
            if conduct == "speaks no HTTP":
                self.wfile.write(b"hello\r\n\r\n")
                return
            try:
                if length and self.headers.get("Content-Type") != "application/json":
                    raise NotAllowedError(400, "Unsupported Content-Type")
                starts = interface.take("PUT", self.path, body)
                if starts and conduct == "refuses":
                    raise NotAllowedError(400, "Start microvm error: Cannot create vCPUs: No space left on device")
            except NotAllowedError as error:
                told = {"fault_message": str(error)} if kind == "firecracker" else ["Error from API", str(error)]
                self._answer(error.status, json.dumps(told).encode())
                return
            if starts and conduct == "dies at the start":
                os._exit(148)
            self._answer(204, b"")
            if starts:
                threading.Thread(target=_guest, args=(conduct, agent), daemon=True).start()

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            if body:
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if body:
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    class Server(socketserver.ThreadingUnixStreamServer):
        daemon_threads = True

    Server(socket, Handler).serve_forever()


def _guest(conduct: str, agent: str) -> None:
    os.write(1, b"[    0.000000] Linux version 6.1.0\r\n")
    if conduct == "panics":
        os.write(1, b"[    0.100000] Kernel panic - not syncing: No working init found.\r\n")
        time.sleep(0.2)
        os._exit(0)
    if conduct == "never boots":
        return
    subprocess.run([agent, "--channel", "/dev/stdin"], check=False, stdout=subprocess.DEVNULL)
    os._exit(0)


def _main(kind: str, conduct: str, record: str, agent: str, *arguments: str) -> None:
    if arguments == ("--version",):
        print(f"{VERSIONS[kind]}\n" if conduct != "no version" else "", flush=True)
        sys.exit(conduct == "no version")
    match kind, arguments:
        case "firecracker", ["--api-sock", socket, "--log-path", log] if Path(log).exists():
            pass
        case "cloud-hypervisor", ["--api-socket", path, "--log-file", _] if path.startswith("path="):
            socket = path.removeprefix("path=")
        case _:
            sys.exit(f"wrong arguments: {arguments}")
    if conduct == "dies":
        sys.exit("Failed to open /dev/kvm: Permission denied (os error 13)")
    if conduct == "never listens":
        time.sleep(600)
    _serve(socket, kind, conduct, Path(record), agent)


if __name__ == "__main__":
    _main(*sys.argv[1:])
