"""The estimator's executable: where it is."""

from __future__ import annotations

import os
from pathlib import Path

from virtgauge.errors import UnavailableError

ENVIRONMENT_VARIABLE = "VIRTGAUGE_BANDWIDTH"


def find_bandwidth() -> Path:
    """Find the estimator: ``$VIRTGAUGE_BANDWIDTH``, then the one inside the installed package.

    Raises:
        UnavailableError: neither exists.
    """
    override = os.environ.get(ENVIRONMENT_VARIABLE)
    path = Path(override) if override else Path(__file__).parent.parent / "native" / "bandwidth"
    if not path.is_file():
        raise UnavailableError(
            f"the bandwidth estimator is missing: {path}",
            f"run `make` in the source tree, reinstall the package, or set {ENVIRONMENT_VARIABLE} to a built one",
        )
    return path.resolve()
