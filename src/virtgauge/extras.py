"""What of virtgauge needs libraries that are not always installed, and the error where they are not.

The names are those of ``[project.optional-dependencies]`` in ``pyproject.toml``.
"""

from __future__ import annotations

import importlib.util

from virtgauge.errors import UnavailableError

EXTRAS: dict[str, tuple[str, ...]] = {
    "attach": ("asyncssh", "cryptography"),
    "fleet": ("asyncssh", "cryptography", "distributed"),
    "query": ("duckdb",),
}
"""The modules of each extra that are imported."""


def require(extra: str, purpose: str) -> None:
    """Return if all modules of an extra can be imported.

    Args:
        extra: its name.
        purpose: what is about to be done, as the subject of a sentence: "asking an archive".

    Raises:
        UnavailableError: one is missing; names it, and the command that installs the extra.
    """
    missing = [module for module in EXTRAS[extra] if importlib.util.find_spec(module) is None]
    if missing:
        raise UnavailableError(
            f"{purpose} needs {', '.join(missing)}, not installed here", f"pip install 'virtgauge[{extra}]'"
        )
