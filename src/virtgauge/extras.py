"""What is not always installed: libraries of extras and files that are built natively, and the errors without them.

The names of extras are those of ``[project.optional-dependencies]`` in ``pyproject.toml``.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import virtgauge
from virtgauge.errors import UnavailableError

EXTRAS: dict[str, tuple[str, ...]] = {
    "attach": ("asyncssh", "cryptography"),
    "fleet": ("asyncssh", "cryptography", "distributed"),
    "query": ("duckdb",),
}
"""The modules of each extra that are imported."""


def require(extra: str, purpose: str) -> None:
    """Return if all modules of an extra can be imported, for a purpose (``asking an archive``).
    Raises UnavailableError: one is missing; names it, and the command that installs the extra.
    """
    missing = [module for module in EXTRAS[extra] if importlib.util.find_spec(module) is None]
    if missing:
        raise UnavailableError(
            f"{purpose} needs {', '.join(missing)}, not installed here", f"pip install 'virtgauge[{extra}]'"
        )


def find_native(name: str, variable: str, what: str, built: str, part: str) -> Path:
    """Find a file: where an environment variable says, then inside the installed package.

    The error says what it is, and to provide ``part`` or to set the variable to one that was ``built`` by hand.
    Raises UnavailableError: neither exists.
    """
    override = os.environ.get(variable)
    path = Path(override) if override else Path(virtgauge.__file__).parent / "native" / name
    if not path.is_file():
        raise UnavailableError(f"{what} is missing: {path}", how_to_build(part, variable, built))
    return path.resolve()


def how_to_build(part: str, variable: str, built: str) -> str:
    """The remedy where a native file is missing: a source tree can build it, an installation brings it."""
    return f"reinstall the package, or in a source tree: virtgauge provision {part}; or set {variable} to {built}"
