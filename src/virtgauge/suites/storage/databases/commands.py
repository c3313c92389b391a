"""What the servers' command lines have in common: an empty folder, another user, programs that this user can reach."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from virtgauge.suites.storage.databases.base import Account

_SHELL, _SETPRIV = "/bin/sh", "/usr/bin/setpriv"

_MAKE_EMPTY = """\
mkdir -p -- "$1" || exit
if [ -n "$(ls -A -- "$1")" ]; then
    echo "$1 already holds something; it is left as it is" >&2
    exit 1
fi
chmod 700 -- "$1" && { [ -z "$2" ] || chown -- "$2" "$1"; }
"""

_FOLDER_OPEN = 'exec 3<"$0" && exec "$@"'
_OPEN_FOLDER = Path("/proc/self/fd/3")


def make_empty(folder: Path, account: Account | None) -> list[str]:
    """Make a folder, private to the account; one that holds something is refused, and not touched."""
    owner = f"{account.uid}:{account.gid}" if account else ""
    return [_SHELL, "-c", _MAKE_EMPTY, "sh", str(folder), owner]


def as_account(account: Account | None, argv: Sequence[str]) -> list[str]:
    """Run a program as this user, without a process in between; as it is where there is none to become."""
    if account is None:
        return list(argv)
    return [_SETPRIV, f"--reuid={account.uid}", f"--regid={account.gid}", "--clear-groups", *argv]


def reaching(folder: Path, account: Account | None) -> tuple[list[str], Path]:
    """How the account gets at the programs in a folder: what goes before the command, and where it finds them.

    A root's cache is in its home, which others cannot pass through.  There the folder is opened while the process is
    still root's, and seen through the descriptor, for which only the folder's own permissions count; the shell that
    does it becomes the server.
    """
    if account is None or all(place.stat().st_mode & 0o001 for place in (folder, *folder.parents)):
        return [], folder
    return [_SHELL, "-c", _FOLDER_OPEN, str(folder)], _OPEN_FOLDER
