"""What the remote machine's shell does: make a private folder, take the agent, check it, run it, remove the folder.

All of it is one command, whose standard input is the agent's bytes and then the channel.  So there is no moment at
which a lost connection would leave the folder behind: the shell removes it whenever it ends, and it ends with the
agent, which ends with the channel.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import secrets
import shlex

from virtgauge.agent import AgentBinary

AGENT_NAME = "virtgauge-agent"
BASES = ("@tmp", "/var/tmp", "@runtime", "/dev/shm", "@home")
"""Where a folder is tried in turn; those with an @ are named by the remote machine's environment."""
_LONGEST_NOISE = 1000  # Lines that a login may print before our command speaks

# The user's login shell may be any (csh, fish), and reads all of this between single quotes: so it has no single quote,
# no backslash, no exclamation mark and no line break.
_SCRIPT = " ".join(
    (
        'umask 077; t="$1"; n="$2"; h="$3"; s="$4"; l="$7"; d=;',
        'gone() { cd /; test -z "$d" || rm -rf -- "$d"; };',
        # A closed pipe shall be an error of echo and not the death of the shell, which would skip the removal.
        'trap gone EXIT; trap "exit 1" HUP INT TERM; trap "" PIPE;',
        'k=$(uname -s)-$(uname -m); test "$k" = Linux-x86_64 || { echo "$t other $k"; exit 0; };',
        'case "$5" in @tmp) b=${TMPDIR:-/tmp};; @home) b=$HOME;; @runtime) b=${XDG_RUNTIME_DIR:-/run/user/none};;',
        "*) b=$5;; esac;",
        'd=$(mktemp -d "$b/virtgauge.$6.XXXXXX") || { d=; echo "$t no-folder $b"; exit 0; };',
        'cp /bin/sh "$d/try" || { echo "$t full $b"; exit 0; };',
        '"$d/try" -c :; test $? -ne 126 || { echo "$t noexec $b"; exit 0; };',
        'rm -f "$d/try"; echo "$t send $d";',
        f'head -c "$n" > "$d/{AGENT_NAME}" || {{ echo "$t full $b"; exit 0; }};',
        f'g=$(sha256sum "$d/{AGENT_NAME}" || openssl dgst -sha256 -r "$d/{AGENT_NAME}"); g=${{g%% *}};',
        'test "$g" = "$h" || { echo "$t mismatch $g"; exit 0; };',
        f'chmod 500 "$d/{AGENT_NAME}"; cd "$d"; echo "$t ready $d";',
        f'$s "$d/{AGENT_NAME}" --lease "$l"; x=$?; exit $x',
    )
)

_REMOVAL = " ".join(
    (
        'case "$1" in */virtgauge.vg*) ;; *) exit 2;; esac;',
        f'test "$(readlink "/proc/$2/exe")" = "$1/{AGENT_NAME}" && kill -9 "$2";',
        'rm -rf -- "$1"; test -d "$1" && exit 1; exit 0',
    )
)


class PlacementError(Exception):
    """The agent could not be put into a folder."""

    def __init__(self, message: str, *, elsewhere: bool = False) -> None:
        super().__init__(message)
        self.elsewhere = elsewhere  # another folder of the same machine may do


@dataclasses.dataclass(frozen=True)
class Placement:
    """One attempt to start the agent below one folder of the remote machine."""

    agent: AgentBinary
    base: str  # the folder; see :data:`BASES`
    tag: str  # of the scope, in the folder's name
    sudo: bool  # start the agent as root
    lease_s: int  # the agent ends when it has heard nothing for so long
    # begins each line that our shell prints
    token: str = dataclasses.field(default_factory=lambda: f"virtgauge-{secrets.token_hex(8)}")

    def command(self) -> str:
        """The command for the remote user's login shell."""
        size, sudo = str(self.agent.path.stat().st_size), "sudo -n" if self.sudo else ""
        about = (self.token, size, self.agent.sha256, sudo, self.base, self.tag, str(self.lease_s))
        return _shell(_SCRIPT, *about)

    async def carry_out(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        """Send the agent; returns the folder that it is in, after which the stream is the channel.
        Raises PlacementError: it could not be done there; the folder is gone again.
        """
        folder = await self._answer(reader, "send")
        writer.write(self.agent.path.read_bytes())
        with contextlib.suppress(ConnectionError):  # what the remote side says of it is more than that
            await writer.drain()
        await self._answer(reader, "ready")
        return folder

    async def _answer(self, reader: asyncio.StreamReader, due: str) -> str:
        """What the remote shell says beside the word that is due.  Raises PlacementError: it says another, or none."""
        for _ in range(_LONGEST_NOISE):
            try:
                line = await reader.readline()
            except ValueError:  # a line beyond the reader's limit is not ours
                continue
            if not line:
                break
            token, _, rest = line.decode(errors="replace").strip().partition(" ")
            said, _, about = rest.partition(" ")
            if token == self.token and said:
                if said != due:
                    raise _refusal(said, about, due)
                return about
        raise PlacementError("the remote shell said nothing that we asked of it, and ended")


def removal_command(folder: str, pid: int) -> str:
    """Kills an agent that does not end, if it is still the one in the folder, and removes the folder."""
    return _shell(_REMOVAL, folder, str(pid))


def _shell(script: str, *arguments: str) -> str:
    return " ".join(("exec sh -c", f"'{script}'", "sh", *(shlex.quote(word) for word in arguments)))


def _refusal(said: str, about: str, due: str) -> PlacementError:
    return {
        "no-folder": PlacementError(f"no folder can be made in {about}", elsewhere=True),
        "noexec": PlacementError(f"programs in {about} may not be started (mounted noexec)", elsewhere=True),
        "full": PlacementError(f"the agent could not be written to {about}", elsewhere=True),
        "mismatch": PlacementError(
            f"what arrived has the SHA-256 {about or 'unknown (neither sha256sum nor openssl is there)'}, "
            "and is not the agent that was sent"
        ),
        "other": PlacementError(f"the machine is a {about}; the agent is a program for Linux on x86-64"),
    }.get(said, PlacementError(f"the remote shell said {said!r} where {due!r} was due"))
