"""Running other programs quietly: what they print goes to a log, whose end is told when they fail."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

from virtgauge.folders import cache_root
from virtgauge.provision.cache import ProvisionError, no_space

_TAIL_LINES = 12
_TIME_LIMIT_S = 1800.0
_ERROR = re.compile(r"E: |error: |verifying .* checksum mismatch$|(.*: )?missing go\.sum entry")
_running: set[subprocess.Popen[bytes]] = set()
_starting = threading.Lock()


class ToolError(ProvisionError):
    """A program failed; the message names it, its status and its last line, or last error."""


def run_logged(
    argv: Sequence[str | Path],
    *,
    log: str,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    may_be_ended: bool = True,
) -> None:
    """Run a program to its end, its output appended to the log of that name below the cache's ``logs`` folder.

    The environment's variables come on top of this process's own.  It is killed after half an hour, and by
    :func:`end_running` if it may be ended.
    Raises ToolError: the program is missing, failed, or ran too long; ProvisionError: the disk was full.
    """
    logs = cache_root() / "logs"
    path = logs / f"{log}.log"
    name = Path(argv[0]).name + "".join(f" {word}" for word in argv[1:2])
    try:
        logs.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as output:
            output.write(f"$ {' '.join(map(str, argv))}\n".encode())
            output.flush()
            start = output.tell()
            with _starting:  # else what has just begun would not be among those that are ended
                process = subprocess.Popen(
                    [str(word) for word in argv],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=os.environ | {"LC_ALL": "C.UTF-8"} | dict(environment or {}),
                    cwd=folder,
                    start_new_session=True,
                )
                if may_be_ended:
                    _running.add(process)
            try:
                process.wait(_TIME_LIMIT_S)
            except subprocess.TimeoutExpired:
                _end(process)
                raise
            finally:
                _running.discard(process)
    except subprocess.TimeoutExpired as error:
        raise ToolError(f"`{name}` did not end within {_TIME_LIMIT_S:.0f} s", f"see {path}") from error
    except FileNotFoundError as error:
        raise ToolError(f"{argv[0]} is not installed", "install it, then try again") from error
    if process.returncode == 0:
        return
    tail = _tail(path, start)
    if "No space left on device" in tail:
        raise no_space(cache_root())
    lines = [line.strip() for line in tail.splitlines() if line.strip()]
    # What apt and Go say of another hash than the one that was meant comes before explanations, and what rustup says
    # before a backtrace.
    last = next((line for line in reversed(lines) if _ERROR.match(line)), lines[-1] if lines else "")
    said = f": {last}" if last else ""
    raise ToolError(f"`{name}` ended with status {process.returncode}{said}", f"see {path}")


def end_running() -> None:
    """End what :func:`run_logged` is waiting for in other threads, whatever it started included."""
    with _starting:
        running = tuple(_running)
    for process in running:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def start_log(log: str) -> None:
    """Forget what an earlier set-up wrote to a log."""
    (cache_root() / "logs" / f"{log}.log").unlink(missing_ok=True)


def _tail(path: Path, start: int) -> str:
    with path.open("rb") as log:
        log.seek(start)
        return b"".join(deque(log, maxlen=_TAIL_LINES)).decode(errors="replace")
