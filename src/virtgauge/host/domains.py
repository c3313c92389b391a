"""Domains of libvirt and of Xen that carry a tag: ended where their run is dead."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from virtgauge.folders import write_whole
from virtgauge.host.process import in_daemon, output_of, text_of
from virtgauge.host.tag import is_own_file

DOMAIN_FILE = "libvirt.json"  # In a guest's folder: the connection's URI, and the name of the domain there

_DESTROY_S = 15.0


@dataclasses.dataclass(frozen=True)
class DomainRecord:
    """A domain that may exist."""

    uri: str
    name: str  # of the domain; it begins with the scope's tag

    def write(self, folder: Path) -> None:
        """Put it into a guest's folder, whole or not at all; before the domain is made.
        Raises OSError: it cannot be written.
        """
        write_whole(folder / DOMAIN_FILE, json.dumps(dataclasses.asdict(self)).encode())


def destroy_domains(folder: Path) -> list[str]:
    """Destroy every domain recorded in a scope's folder. Returns what was done, or could not be, a line for people
    each; the record of one that could not be destroyed stays.
    """
    lines = []
    for path, record in _records(folder):
        gone, line = _destroyed(record)
        lines.append(line)
        if gone:
            path.unlink(missing_ok=True)
    return [line for line in lines if line]


def has_domains(folder: Path) -> bool:
    """Whether domains are recorded in a scope's folder."""
    return any(True for _ in _records(folder))


def open_unattended(libvirt: Any, uri: str) -> Any:
    """A connection by libvirt's module; blocking.

    Passwords come from libvirt's own file of them (https://libvirt.org/auth.html), and nobody is asked for any.
    Raises libvirt.libvirtError: it cannot be opened.
    """
    kinds = [libvirt.VIR_CRED_AUTHNAME, libvirt.VIR_CRED_PASSPHRASE, libvirt.VIR_CRED_NOECHOPROMPT]
    return libvirt.openAuth(uri, [kinds, lambda *_: -1, None], 0)


def remove_domain(connection: Any, name: str) -> bool:
    """Destroy a domain and forget its definition, as far as there is one; blocking. Returns whether there was one."""
    import libvirt

    try:
        domain = connection.lookupByName(name)
    except libvirt.libvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
            return False
        raise
    with contextlib.suppress(libvirt.libvirtError):  # not running, or just gone
        domain.destroy()
    try:
        if domain.isPersistent():
            domain.undefine()
        elif domain.isActive():
            raise libvirt.libvirtError(f"the domain {name} does not end")
    except libvirt.libvirtError as error:
        if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:
            raise
    return True


def _records(folder: Path) -> Iterator[tuple[Path, DomainRecord]]:
    for path in sorted(folder.glob(f"*/{DOMAIN_FILE}")):
        if not is_own_file(path):
            continue  # a URI may name a program to start: another user's is not opened
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            value = json.loads(path.read_text())
            yield path, DomainRecord(uri=str(value["uri"]), name=str(value["name"]))


def _destroyed(record: DomainRecord) -> tuple[bool, str]:
    """Destroy one within a bound; in a thread, because a hypervisor may never answer.

    Returns whether it is gone, and what was done; nothing where there was none.
    """
    failed = f"could not destroy the domain {record.name}; try `virsh -c {record.uri} destroy {record.name}`: "

    def work() -> str:
        import libvirt

        libvirt.registerErrorHandler(lambda *_: None, None)
        with contextlib.closing(open_unattended(libvirt, record.uri)) as connection:
            return f"destroyed the domain {record.name}" if remove_domain(connection, record.name) else ""

    try:
        return True, in_daemon(work, "libvirt").result(_DESTROY_S)
    except TimeoutError:
        return False, f"{failed}no answer within {_DESTROY_S:g} s"
    except Exception as error:  # a missing module, or whatever libvirt says: the rest is reclaimed all the same
        return False, f"{failed}{error}"


CAPABILITIES = Path("/proc/xen/capabilities")


def is_xen_host(capabilities: Path = CAPABILITIES) -> bool:
    """Whether this machine is the privileged domain of a Xen host."""
    return "control_d" in (text_of(capabilities) or "").split()


def destroy_tagged_domains(tag: str) -> list[str]:
    """Destroy every domain of a scope; on any other machine than a Xen host nothing is done. Returns what was done, a
    line for people each.
    """
    if not is_xen_host():
        return []
    xl = functools.partial(output_of, timeout_s=_DESTROY_S)
    names = [line.split()[0] for line in (xl(["xl", "list"]) or "").splitlines() if line.startswith(f"{tag}-")]
    return [f"destroyed the domain {name}" for name in names if xl(["xl", "destroy", name]) is not None]
