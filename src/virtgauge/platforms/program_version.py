"""What a program of the host says its version is."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

_BOUND_S = 5.0


async def said_version(program: Path) -> str | None:
    """What ``PROGRAM --version`` prints; None where it cannot be started, fails, or says nothing in time."""
    try:
        process = await asyncio.create_subprocess_exec(
            program, "--version", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    except OSError:
        return None
    try:
        output, _ = await asyncio.wait_for(process.communicate(), _BOUND_S)
    except TimeoutError:
        process.kill()
        await process.wait()
        return None
    return output.decode(errors="replace").strip() or None if process.returncode == 0 else None
