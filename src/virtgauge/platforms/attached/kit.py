"""The one file that starts the agent on a machine: a shell script with the agent and its identity in it."""

from __future__ import annotations

import datetime
import shlex
from pathlib import Path

from virtgauge.agent.binary import AgentBinary
from virtgauge.platforms.attached.credentials import Credentials, write_secret
from virtgauge.platforms.attached.settings import Endpoint

KIT_NAME, IDENTITY_NAME = "dial-in.sh", "identity.pem"
_END = "virtgauge-end-of-identity"

# POSIX, as the machine may have nothing but busybox.  The agent follows the last line of the script.
_SCRIPT = """\
#!/bin/sh
# Starts the agent of virtgauge, which calls the controller at {controller}, and removes it at the end.
# The identity in here is a secret, and of no use after {expires} (UTC).
set -u
umask 077
d=
gone() {{ cd /; test -z "$d" || rm -rf -- "$d"; }}
trap gone EXIT
trap 'exit 1' HUP INT TERM
test "$(uname -s)-$(uname -m)" = Linux-x86_64 || {{ echo "the agent is a program for Linux on x86-64" >&2; exit 1; }}
for b in ${{1:-}} "${{TMPDIR:-/tmp}}" /var/tmp /dev/shm "${{HOME:-/root}}"; do
    d=$(mktemp -d "$b/virtgauge.dial-in.XXXXXX" 2>/dev/null) || {{ d=; continue; }}
    if tail -n +{lines} "$0" > "$d/agent" && chmod 500 "$d/agent" && "$d/agent" --version > /dev/null; then break; fi
    rm -rf -- "$d"; d=
done
test -n "$d" || {{ echo "no folder takes the agent and may start programs; name one: sh $0 FOLDER" >&2; exit 1; }}
h=$(sha256sum "$d/agent" || openssl dgst -sha256 -r "$d/agent")
test "${{h%% *}}" = {sha256} || {{ echo "the copy of this file is damaged" >&2; exit 1; }}
cat > "$d/identity" <<'{end}'
{identity}{end}
"$d/agent" --dial {controller} --identity "$d/identity" &
p=$!
trap 'kill "$p"; wait "$p"; exit 1' HUP INT TERM
wait "$p"
exit $?
"""


def write_kit(folder: Path, agent: AgentBinary, credentials: Credentials, controller: Endpoint) -> Path:
    """Write the script, and the identity alone for a machine that has the agent already; both secret.

    Returns:
        the script.

    Raises:
        OSError: they cannot be written, or are there already.
    """
    expires = datetime.datetime.fromtimestamp(credentials.expires, datetime.UTC)
    script = _SCRIPT.format(
        controller=shlex.quote(str(controller)),
        expires=f"{expires:%Y-%m-%d %H:%M}",
        lines="@LINES@",
        sha256=agent.sha256,
        identity=credentials.identity(),
        end=_END,
    )
    script = script.replace("@LINES@", str(script.count("\n") + 1))
    write_secret(folder / IDENTITY_NAME, credentials.identity())
    path = folder / KIT_NAME
    write_secret(path, script.encode() + agent.path.read_bytes())
    return path
