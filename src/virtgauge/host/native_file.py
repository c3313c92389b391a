"""What the package brings with it that was built natively: where each file is."""

from __future__ import annotations

import os
from pathlib import Path

import virtgauge
from virtgauge.errors import UnavailableError


def find_native(name: str, variable: str, what: str, built: str) -> Path:
    """Find a file: where an environment variable says, then inside the installed package.

    Args:
        name: of the file in the package.
        variable: of the environment.
        what: the file is, for the error.
        built: how one is called that was built by hand, for the error's remedy.

    Raises:
        UnavailableError: neither exists.
    """
    override = os.environ.get(variable)
    path = Path(override) if override else Path(virtgauge.__file__).parent / "native" / name
    if not path.is_file():
        raise UnavailableError(
            f"{what} is missing: {path}",
            f"run `make` in the source tree, reinstall the package, or set {variable} to {built}",
        )
    return path.resolve()
