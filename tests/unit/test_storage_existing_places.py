"""Whether a server that is there already is on the machine that it is measured for."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from virtgauge.suites.storage.existing import _is_on, not_on

HERE, HERE_PORT = "192.0.2.1", 0xD431
DB1, DB2, PUBLIC = "192.0.2.20", "192.0.2.21", "203.0.113.7"
TRIE = """Main:
  +-- 0.0.0.0/0 3 0 5
     +-- 192.0.2.0/24 2 0 2
        |-- 192.0.2.0
           /24 link UNICAST
        |-- 192.0.2.20
           /32 host LOCAL
        |-- 192.0.2.21
           /32 link UNICAST
     |-- 172.17.0.1
        /32 host LOCAL
     |-- 127.0.0.1
        /32 host LOCAL
"""
IPV6 = "20010db8000000000000000000000020 02 40 00 80     eth0\n"
LISTENS = "   0: 00000000:1538 00000000:0000 0A 00000000:00000000\n"
CONNECTED = "   1: 1400A8C0:1538 010200C0:D431 01 00000000:00000000\n"
CONNECTED6 = f"   1: {'0' * 32}:1538 0000000000000000FFFF0000010200C0:D431 01 00000000:00000000\n"
OF_ANOTHER = "   1: 1400A8C0:1538 010200C0:D432 01 00000000:00000000\n"


@pytest.mark.parametrize(
    ("server", "tcp", "tcp6", "there"),
    [
        (DB1, LISTENS, "", True),
        (DB1, "", "", True),  # Docker's rule hands it on, and nothing of it is in the machine's own table
        (DB2, LISTENS, "", False),  # something else listens on the same port there
        (DB2, LISTENS + OF_ANOTHER, "", False),
        (PUBLIC, LISTENS + CONNECTED, "", True),  # an address in front of it
        (PUBLIC, "", CONNECTED6, True),
        (PUBLIC, LISTENS, "", False),
        ("2001:db8::20", "", "", True),
        ("2001:db8::21", LISTENS, "", False),
        (DB2, "   0: 0:1538 F:D431 01\n   1: 00000000:1538 \N{SNOWMAN}:D431 01\n", "0", False),  # what no kernel writes
    ],
)
def test_the_machine_has_the_address_or_our_connection(server: str, tcp: str, tcp6: str, there: bool) -> None:
    assert is_on(server, tcp, tcp6) is there


def is_on(server: str, tcp: str = "", tcp6: str = "", here: str = HERE, own: bool = False) -> bool:
    tables = {"/proc/net/fib_trie": TRIE, "/proc/net/if_inet6": IPV6, "/proc/net/tcp": tcp, "/proc/net/tcp6": tcp6}
    places = ipaddress.ip_address(server), ipaddress.ip_address(here)
    return _is_on(tables, *places, HERE_PORT, of_this_machine=own)


@pytest.mark.parametrize(("server", "here"), [("127.0.0.1", "127.0.0.1"), ("172.17.0.1", "172.17.0.1")])
def test_an_address_of_this_machine_is_no_other_machines(server: str, here: str) -> None:
    words = "".join(f"{byte:02X}" for byte in reversed(ipaddress.ip_address(here).packed))
    ours = f"   1: {words}:1538 {words}:D431 01 00000000:00000000\n"
    assert not is_on(server, LISTENS + ours, here=here)
    assert is_on(server, LISTENS + ours, here=here, own=True)
    assert not is_on(server, LISTENS, here=here, own=True), "this machine, and another network of it"


class Machine:
    """A channel to a machine that has this one's tables."""

    def __init__(self, boot_id: str) -> None:
        self._boot_id = boot_id

    async def request(self, kind: str, paths: list[str]) -> Any:
        files = {path: Path(path).read_bytes() if Path(path).exists() else None for path in paths}
        return SimpleNamespace(value={"files": files})

    async def facts(self) -> dict[str, Any]:
        return {"boot_id": self._boot_id}


@pytest.fixture
def port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def asked(port: int, boot_id: str) -> str | None:
    machine: Any = Machine(boot_id)
    return asyncio.run(not_on(machine, "127.0.0.1", port))


def test_a_server_on_loopback_is_on_this_machine_alone(port: int) -> None:
    here = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert asked(port, here) is None
    assert "no connection from here" in str(asked(port, "another")), "it listens on the same port of its own"


def test_where_nothing_answers_that_is_said() -> None:
    assert "nothing answers at 127.0.0.1, port 1 (" in str(asked(1, "another"))
