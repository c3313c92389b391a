"""The I/O- and network-bound load: a file service inside the guest, used from outside over a network.

Kirova et al. 2019, 2.1.3: an NFS server in the guest, whose files are read and written by ordinary calls.  The guest
has one interface; its other end is in a network namespace with a peer, the agent on the host, as the only other
station.  The server is nfs-ganesha where it really serves inside this guest, which only a bounded attempt tells, else
the agent's own file service.  The client is the agent's in either case, so that what is asked is the same.  (It speaks
NFS 4.0 itself: Debian 12's libnfs cannot write more than 4 kB at a time by it, and NFS 3 needs a port mapper too.)
Of two machines that exist already the first one's agent serves, at its address, and the second one is the peer.

**What the figures cover.**  The client starts before the probe, and has written every file once before its start is
answered; it is stopped after the probe's answer.  So the load is in full swing from the first sample to the last, and
the client's rates are those of a steady state around that span.  What the guest itself did (CPU, interrupts, context
switches) is counted by the probe, from the first sample to the last.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import errno
import random
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from virtgauge.agent.channel import AgentError, Channel, ChannelClosedError
from virtgauge.ledger.records import Flag
from virtgauge.plan import Section
from virtgauge.platforms.base import Share
from virtgauge.provision.ganesha import Ganesha, find_ganesha
from virtgauge.suites.testbed import GUEST_ADDRESS, GUEST_END, Testbed, address_peer

_NFS_PORT, _OWN_PORT = 2049, 2050
_EXPORT = "export"
_ATTEMPT_S = 12.0  # How long nfs-ganesha may take to serve its first files; it takes one second
_READY_S = 60.0
_STOP_S = 30.0
_MOMENT_S, _LONGER_S = 0.2, (2.0, 10.0)
"""How long files are used to see that they are served; longer, in turn, where an operation may take long."""
LONGEST_START_S = 180.0
"""Of the load, with what it takes to find that files of a machine that exists already can be used."""
_MEMORY_FILE_BYTES = 0x200000
"""The most that nfs-ganesha's memory filesystem can be told to keep of a file; it forgets the rest."""
_CAPABILITIES = ("CAP_DAC_READ_SEARCH",)
"""nfs-ganesha opens files by handle (open_by_handle_at(2)); containers that serve with it are given this."""
_CONFIGURATION = "ganesha.conf"
_LOG = "ganesha.log"


class FileLoadSettings(Section):
    """What the peer of the load ``io`` does."""

    threads: Annotated[int, Field(ge=1, le=256)] = 4
    """Threads of the peer, each with a connection and a file of its own."""
    file_mib: Annotated[int, Field(ge=1, le=1024)] = 2
    """Size of each file. Above 2, nfs-ganesha must serve from a disk: its memory file system keeps no more."""
    block_kib: Annotated[int, Field(ge=1, le=1024)] = 64
    """Size of a read or write."""
    write_percent: Annotated[int, Field(ge=0, le=100)] = 50
    """Share of writes; the others are reads."""
    flush_every: Annotated[int, Field(ge=0, le=1_000_000)] = 16
    """Writes between two flushes to the server's storage; 0 means never."""


@dataclasses.dataclass(frozen=True)
class FileService:
    """What serves in a guest, and how the client reaches it."""

    name: str  # for people and for the record (``nfs-ganesha 4.3 (VFS)``)
    # protocol, address, port, key: of the agent's load ``file_client``
    protocol: str
    address: str
    port: int
    key: str
    fallback: str | None  # why the services that come first do not serve here; None when the first one does
    load: int = 0  # its number in the guest's agent, once it was started


class FileTestbed(Testbed):
    """A guest and a peer at the two ends of a link, and a file service in the guest that was seen to serve."""

    service: FileService | None = None  # of a machine that exists already as soon as its files are used

    async def set_up(self, settings: FileLoadSettings) -> None:
        """Launch both, and find the service.
        Raises LaunchError, NetworkError: guest, peer or link did not come up; AgentError: not even the agent's own
        service serves.
        """
        stage = self.stage
        if stage.platform.only_plain is not None:
            await stage.launch()
            self._peer = (await stage.launch_helper("client")).channel
            return  # that its files cannot be used is no reason to give it up
        self._folder = stage.scratch_folder("files")
        stage.charge_kernel_threads()
        ganesha = find_ganesha()
        shares = (Share(self._folder, writable=True), *([Share(ganesha.folder)] if ganesha else []))
        lab = stage.make_lab()
        await stage.launch(nics=(GUEST_END,), lab=lab, shares=shares, capabilities=_CAPABILITIES)
        self._peer = (await stage.launch_peer("client", lab=lab)).channel
        await address_peer(self._peer)
        in_memory = settings.file_mib * 1024 * 1024 <= _MEMORY_FILE_BYTES
        self.service = await self._find_service(ganesha, ("VFS", "MEM") if in_memory else ("VFS",))

    async def start(self, settings: FileLoadSettings) -> int:
        """Start the client; it is in full swing when this returns its number.
        Raises AgentError: the service does not serve; ``lost``: the peer is gone.
        """
        with self._peer_told():
            if self.service is None:
                self.service = await self._service_there(str(self.stage.platform.address))
            return await _start_client(self._peer, self.service, settings, _READY_S)

    async def stop(self, client: int) -> dict[str, Any]:
        """Stop the client: what it and the service came to, as docs/protocol.md says of ``load`` in a file cell.
        Raises AgentError: ``lost``: the peer is gone.
        """
        assert self.service is not None
        with self._peer_told():
            done = (await self._peer.request("load_stop", load=client, timeout_s=_STOP_S)).value
        seconds = done["elapsed_ns"] * 1e-9
        return {
            "name": "io",
            "service": self.service.name,
            "client": f"agent, {self.service.protocol}",
            "fallback": self.service.fallback,
            "read_mb_per_s": done["read_bytes"] / seconds / 1e6 if seconds > 0 else None,
            "written_mb_per_s": done["written_bytes"] / seconds / 1e6 if seconds > 0 else None,
            **{key: value for key, value in done.items() if key not in {"name", "achieved"}},
        }

    @contextlib.contextmanager
    def _peer_told(self) -> Iterator[None]:
        """Tell the loss of the peer from that of the guest."""
        try:
            yield
        except ChannelClosedError as error:
            if self.guest.channel.closed:
                raise
            raise AgentError("lost", f"the peer, which uses the files of the load io, was lost: {error}") from error

    async def _service_there(self, address: str) -> FileService:
        """That of a machine that exists already, at its address.  Raises AgentError: its files cannot be used."""
        why = "it is a machine that exists already, on which nothing is installed"
        try:
            return await self._own_service(address, why, None, _ATTEMPT_S, (_MOMENT_S, *_LONGER_S))
        except (AgentError, TimeoutError) as error:
            told = error if isinstance(error, AgentError) else AgentError("timeout", "no answer in time")
            words = (
                f"files at {address}, port {_OWN_PORT} (TCP): {told.message}; the address must be one of the machine's "
                "own, and the port in nobody's use, and open to the peer"
            )
            raise AgentError(told.code, words, told.errno) from error

    async def _find_service(self, ganesha: Ganesha | None, filesystems: tuple[str, ...]) -> FileService:
        """The first service that serves, in the order VFS (a disk), MEM (memory), the agent's own."""
        reasons = []
        if ganesha is None:
            reasons.append("nfs-ganesha is not in the cache (virtgauge provision ganesha)")
        else:
            for filesystem in filesystems:
                try:
                    return await self._try_ganesha(ganesha, filesystem, "; ".join(reasons) or None)
                except (AgentError, TimeoutError) as error:
                    words = error.message if isinstance(error, AgentError) else "it did not answer in time"
                    reasons.append(f"nfs-ganesha ({filesystem}) does not: {words}")
                    if isinstance(error, AgentError) and error.errno == errno.ENOENT:  # no such program in this guest
                        break
        fallback, folder = "; ".join(reasons), self._folder / "own"
        return await self._own_service(GUEST_ADDRESS, fallback, folder, _READY_S)

    async def _own_service(
        self,
        address: str,
        fallback: str,
        folder: Path | None,
        within_s: float,
        tried_s: tuple[float, ...] = (_MOMENT_S,),
    ) -> FileService:
        """The agent's own, with files in a folder of the guest's, or without names in the agent's own.
        Raises AgentError: as :meth:`_served`.
        """
        key = secrets.token_hex(16)
        params = {"address": address, "port": _OWN_PORT, "token": key} | ({"folder": str(folder)} if folder else {})
        service = FileService("agent file service", "agent", address, _OWN_PORT, key, fallback)
        guest = self.guest.channel
        service = await self._served("file_server", params, service, within_s, tried_s)
        # Where its files are, a service tells at its end: it begins anew.
        ended = (await guest.request("load_stop", load=service.load, timeout_s=_STOP_S)).value
        started = await guest.request("load_start", name="file_server", params=params, timeout_s=_STOP_S)
        name = f"{service.name} ({ended['filesystem'] or 'on a filesystem that is not known here'})"
        return dataclasses.replace(service, name=name, load=int(started.value["load"]))

    async def _try_ganesha(self, ganesha: Ganesha, filesystem: str, fallback: str | None) -> FileService:
        folder = self._folder
        (folder / _LOG).unlink(missing_ok=True)
        data, state = folder / "data", folder / "state"
        data.mkdir(exist_ok=True)
        state.mkdir(exist_ok=True)
        (folder / _CONFIGURATION).write_text(_configuration(ganesha, filesystem, data, state))
        libraries = ":".join(map(str, ganesha.libraries))
        server = [str(ganesha.program), "-F", "-f", str(folder / _CONFIGURATION), "-L", str(folder / _LOG)]
        argv = ["/usr/bin/env", f"LD_LIBRARY_PATH={libraries}", *server, "-p", str(folder / "pid"), "-N", "NIV_WARN"]
        name = f"nfs-ganesha {ganesha.version} ({filesystem})"
        service = FileService(name, "nfs4", GUEST_ADDRESS, _NFS_PORT, _EXPORT, fallback)
        return await self._served("program", {"argv": argv}, service, _ATTEMPT_S)

    async def _served(
        self,
        load: str,
        params: dict[str, Any],
        service: FileService,
        within_s: float,
        tried_s: tuple[float, ...] = (_MOMENT_S,),
    ) -> FileService:
        """The service of this load, once files were written to it and read back right.
        Raises AgentError: it does not serve within the time; it has been stopped.
        """
        guest = self.guest.channel
        started = await guest.request("load_start", name=load, params=params, timeout_s=_STOP_S)
        service = dataclasses.replace(service, load=int(started.value["load"]))
        small = FileLoadSettings(threads=2, file_mib=1, write_percent=30, flush_every=4)
        try:
            for seconds in tried_s:
                client = await _start_client(self._peer, service, small, within_s)
                await asyncio.sleep(seconds)
                done = (await self._peer.request("load_stop", load=client, timeout_s=_STOP_S)).value
                if done["errors"]:
                    raise AgentError("os", f"{done['errors']} errors: {done['first_error']}")
                if done["read_bytes"] and done["written_bytes"]:
                    return service
            raise AgentError("timeout", f"nothing was read, or written, within {tried_s[-1]:g} s")
        except BaseException:
            with contextlib.suppress(AgentError, TimeoutError):
                await guest.request("load_stop", load=service.load, timeout_s=_STOP_S)
            raise


def load_flags(load: dict[str, Any]) -> Iterator[Flag]:
    """What is wrong with a file load, or worth saying."""
    if load["errors"]:
        wrong = f"{load['wrong_content']} of them wrong content"
        yield Flag("load-failed", f"the file load had {load['errors']} errors, {wrong}: {load['first_error']}")
    elif not load["operations"]:
        yield Flag("load-failed", "the file load did not complete a single operation")
    if load["fallback"]:
        yield Flag("file-service", f"{load['service']} serves here: {load['fallback']}", fatal=False)


async def _start_client(peer: Channel, service: FileService, settings: FileLoadSettings, within_s: float) -> int:
    params = {
        "threads": settings.threads,
        "file_bytes": settings.file_mib * 1024 * 1024,
        "block_bytes": settings.block_kib * 1024,
        "write_percent": settings.write_percent,
        "flush_every": settings.flush_every,
        "service": service.protocol,
        "address": service.address,
        "port": service.port,
        "token": service.key,
        "seed": random.getrandbits(63),
        "ready_ms": int(within_s * 1000),
    }
    started = await peer.request("load_start", name="file_client", params=params, timeout_s=within_s + _STOP_S)
    return int(started.value["load"])


def _configuration(ganesha: Ganesha, filesystem: str, data: Path, state: Path) -> str:
    """Only NFS 4.0 over TCP: that needs no port mapper.

    No grace period, because no client of an earlier server can have locks to reclaim; user names by the system's own
    tables, because the mapper of names looks for a configuration that need not be there.
    """
    return f"""\
NFS_CORE_PARAM {{
  Protocols = 4; NFS_Port = {_NFS_PORT}; Enable_UDP = false; Enable_NLM = false; Enable_RQUOTA = false;
  Plugins_Dir = "{ganesha.plugins}";
}}
NFSV4 {{
  Graceless = true; Minor_Versions = 0; Delegations = false; RecoveryRoot = "{state}";
  Only_Numeric_Owners = true; UseGetpwnam = true; DomainName = virtgauge;
}}
NFS_KRB5 {{ Active_krb5 = false; }}
EXPORT {{
  Export_Id = 1; Path = "{data if filesystem == "VFS" else "/mem"}"; Pseudo = /{_EXPORT};
  Access_Type = RW; Squash = None; Protocols = 4; Transports = TCP; SecType = sys;
  FSAL {{ Name = {filesystem}; }}
}}
MEM {{ Inode_Size = {_MEMORY_FILE_BYTES}; }}
"""
